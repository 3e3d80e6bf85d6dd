"""What a private stream holds between two blocks: sums, and nothing of any row.

A stream is open until it is released, merged into another, over its horizon, or torn: an exception
passed while a block was being taken in, so that nobody knows which rows are counted. Whatever is
not open holds no sums any more, and refuses.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError, PrivacyError
from eigenveil.linalg.eigen import small_matrix_threads
from eigenveil.models.driver import UNCHARGED, Charges, certified, drive
from eigenveil.models.options import Options
from eigenveil.models.pca.plan import Plan, make_plan
from eigenveil.models.pca.rounds import private_pca
from eigenveil.models.pca.variances import PCAFactors
from eigenveil.models.result import EstimatorSpec, Result
from eigenveil.models.rounds import Answers, Round
from eigenveil.models.schedule import COUNTS_OF_HOLES, Step
from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.engine import Findings, InvalidRows
from eigenveil.moments.preparation import AS_IT_IS, Preparation
from eigenveil.moments.release import Release
from eigenveil.moments.source import RowSource
from eigenveil.moments.stream_sums import DiscountedSum, PrefixSum
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.accountant import Spending
from eigenveil.privacy.certificate import SEEDED
from eigenveil.privacy.releases import Sharing
from eigenveil.privacy.statistics import STATISTICS
from eigenveil.privacy.streams import StreamFactor, best_factor
from eigenveil.tables.units import StreamUnits

# -- What a private fit of a stream does: one pass, one round, decided before any row.

Publish = Literal["end", "continual", "blocks"]

# Of mu squared, or of epsilon. The scale gives the number of rows and the data's units; the moment
# is what the components are made of.
_FRACTIONS: dict[Step, float] = {"scale": 0.02, "moment": 0.98}
# Up to so many values the second moment itself is summed up (8 MiB); beyond, a sketch.
_MOST_VALUES = 1 << 20


class StreamPlan(Plan):
    """A plan with a single round, so that rows are read once and forgotten.

    ``publish`` is "end"; or "continual" with the ``horizon``, the most blocks there can be, and
    the ``factor`` that spreads the noise over them; or "blocks", each of which has noise of its
    own, where released sums are multiplied by ``forgetting`` at every further block.
    """

    one_pass: ClassVar[bool] = True

    publish: Publish
    horizon: int | None = None
    factor: StreamFactor | None = None
    forgetting: float = 1.0

    def context(self) -> dict[str, Any]:
        return {"features": self.features, "noise_draws": self.noise_draws}

    def released_values(self) -> int:
        return super().released_values() * (self.horizon or 1)

    def sharing(self, *, noise_parts: int = 1) -> dict[Step, Sharing]:
        """How the noise of every step is shared by parties and spread over blocks."""
        return {
            step: Sharing(
                noise_parts=noise_parts, stream=self.factor, disjoint=self.publish == "blocks"
            )
            for step in self.fractions
        }


def _fractions(table: Plan) -> dict[Step, float]:
    """Shares of a stream's steps; counts of observed entries have the share of one table's."""
    counts = table.fractions.get("missing", 0.0)
    found = {step: (1.0 - counts) * fraction for step, fraction in _FRACTIONS.items()}
    return {"missing": counts, **found} if counts else found


def make_stream_plan(options: Options, *, features: int, noise_draws: int = 1) -> StreamPlan:
    """Settle every choice that the options of a private stream leave open.

    Where the columns of a sketch are not given, the whole second moment is summed up while its
    triangle has at most 2**20 values (D <= 1447), and a sketch of 4 columns a component beyond.
    What corrects for missing entries is the whole second moment at any width.
    """
    factor = _factor(options)
    if factor is not None and options.unit is not None and options.adjacency == "replace-one":
        raise PrivacyError("units-replaced-in-blocks")
    if options.publish == "blocks" and options.unit is not None:
        raise PrivacyError("units-in-blocks")
    whole = features * (features + 1) // 2
    corrects = options.missing in COUNTS_OF_HOLES
    sketched = options.given_columns is not None or (whole > _MOST_VALUES and not corrects)
    noise = STATISTICS["second-moment"].usual(pure=options.delta == 0).name
    table = options.on("table", mechanism="sketch" if sketched else noise)
    plan = make_plan(table, features=features, noise_draws=noise_draws)
    settled = plan.model_dump() | {"fractions": _fractions(plan)}
    horizon = None if options.horizon is None else int(options.horizon)
    return StreamPlan(
        **settled,
        publish=options.publish,
        horizon=horizon,
        factor=factor,
        forgetting=_forgetting(options),
    )


def _factor(options: Options) -> StreamFactor | None:
    if options.publish != "end" and options.delta == 0:
        raise PrivacyError(
            "pure-needs-other-mechanism",
            name="publish",
            value=options.publish,
            instead="publish='end'",
        )
    if options.publish != "continual":
        if options.horizon is not None:
            raise options.refused(
                "horizon",
                "unused-parameter",
                of="publish='continual'",
                found=options.publish,
                given=options.horizon,
                usual=None,
            )
        return None
    if options.horizon is None:
        raise options.refused("horizon", "no-horizon")
    return best_factor(int(options.horizon))


def _forgetting(options: Options) -> float:
    if options.publish != "blocks" and options.forgetting != 1.0:
        raise options.refused(
            "forgetting",
            "unused-parameter",
            of="publish='blocks'",
            found=options.publish,
            given=options.forgetting,
            usual=1.0,
        )
    return float(options.forgetting)


# -- The single round of a stream: what is summed up, and what its release gives.


def stream_queries(
    plan: StreamPlan,
    *,
    public_center: NDArray[np.float64] | None = None,
    preparation: Preparation = AS_IT_IS,
    noise_parts: int = 1,
) -> Round:
    """The sums of a stream and their records; ``noise_parts`` parties draw the noise together."""
    rounds = private_pca(
        plan,
        public_center=public_center,
        preparation=preparation,
        sharing=plan.sharing(noise_parts=noise_parts),
    )
    return next(rounds)


def stream_factors(
    plan: StreamPlan,
    answers: Answers,
    *,
    public_center: NDArray[np.float64] | None = None,
    preparation: Preparation = AS_IT_IS,
) -> PCAFactors:
    """Components and variances from releases of :func:`stream_queries`, by their names."""
    rounds = private_pca(plan, public_center=public_center, preparation=preparation)
    once = [answers]  # a stream has one round
    return drive(rounds, lambda _: once.pop())


Standing = Literal["open", "released", "over", "merged", "torn"]
# How often this process was forked off another one: process numbers may repeat.
_forks = 0


def _note_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


class StreamState:
    """The sums of a stream, and their release at its end or after every block."""

    def __init__(
        self,
        plan: StreamPlan,
        public: Mapping[str, Any],
        source: RandomSource,
        *,
        spec: EstimatorSpec,
        names: tuple[str, ...] | None,
        charges: Charges = UNCHARGED,
    ) -> None:
        self.plan, self.names = plan, names
        self.blocks = 0
        self.result: Result | None = None
        self._spec, self._public = spec, dict(public)
        self._source: RandomSource | None = source
        self._secure = source.secure
        self._standing: Standing = "open"
        self._forks = _forks
        self._charges, self._counted, self._charged = charges, charges.counted, False
        self._units = None if plan.unit is None else StreamUnits(plan.max_rows_per_unit)
        self._queries = stream_queries(plan, **self._public)
        self._records = [query.record for query in self._queries]
        self._sums: list[Accumulator] = []
        self._prefixes: list[PrefixSum | DiscountedSum] = []
        for query in self._queries:
            match plan.publish:
                case "end":
                    self._sums.append(query.accumulator.empty())
                case "continual":
                    self._prefixes.append(PrefixSum(query.accumulator, query.record, source))
                case "blocks":
                    self._prefixes.append(
                        DiscountedSum(query.record, source, forgetting=plan.forgetting)
                    )

    @property
    def torn(self) -> bool:
        """Whether nobody knows any more which rows it counts."""
        return self._standing == "torn"

    def add(self, rows: RowSource, *, keep: Callable[[Result], None]) -> InvalidRows | None:
        """Add a block of rows; under continual release it is released to ``keep``.

        The block is summed up by itself and added when it is whole.
        """
        self.check_open()
        found = Findings(rows.names)
        for prefix in self._prefixes:
            prefix.check_room()
        block_sums = [query.accumulator.empty() for query in self._queries]
        with small_matrix_threads(self.plan.features):
            blocks = rows.blocks()
            if self._units is not None:
                blocks = self._units.weighted(blocks)
            for number, block in enumerate(blocks):
                for total in block_sums:
                    total.update(block)
                found.add(number, block)
            for total in block_sums:
                total.flush()
            if self._prefixes:
                self._charge()
            self._standing = "torn"  # until all of the block is in
            if self._prefixes:
                keep(self._published(block_sums))
            for mine, theirs in zip(self._sums, block_sums, strict=False):
                mine.merge(theirs)
        self.blocks += 1
        if self._units is not None:
            self._units.keep()
        if self.blocks == self.plan.horizon:
            self._empty("over")
        else:
            self._standing = "open"
        return found.all

    def merge(self, other: StreamState) -> None:
        """Add the rows that another stream of the same kind has seen; ``other`` is spent by it."""
        if other is self:
            raise PrivacyError("merge-itself")
        self.check_open()
        other.check_open()
        if self.plan != other.plan or not _same(self._public, other._public):
            raise DataError("merge-plans", difference=_first_difference(self.plan, other.plan))
        if self._charges.accounts != other._charges.accounts:
            raise DataError("merge-accounts")
        if self.plan.publish != "end":
            raise PrivacyError("merge-continual")
        if self._units is not None and other._units is not None:
            self._units.merge(other._units)
        self._standing = other._standing = "torn"  # until all sums are in
        for mine, theirs in zip(self._sums, other._sums, strict=True):
            mine.merge(theirs)
        self.blocks += other.blocks
        other._empty("merged")
        self._standing = "open"

    def end(self) -> Result:
        """The result; the sums are released once, and forgotten."""
        self.check_process()
        if self.result is not None and not self.torn:
            return self.result
        self.check_open()
        assert self._source is not None
        self._charge()
        self._standing = "torn"  # whatever happens next, noise is drawn once
        try:
            made = self._made(
                [
                    total.release(record, self._source)
                    for total, record in zip(self._sums, self._records, strict=True)
                ],
            )
            self._empty("released")
            self.result = made
        except BaseException as error:
            self.stop(error, noise_drawn=True)
            raise
        return made

    def abandon(self) -> None:
        """Give back what was reserved: the stream goes no further, and nothing saw it begin."""
        self._charges.end("stopped")

    def stop(self, error: BaseException, *, noise_drawn: bool) -> None:
        """Refuse everything from now on, for the caller sees a failure."""
        self._empty("torn")
        if noise_drawn:
            self.attach_spent(error)

    def attach_spent(self, error: BaseException) -> None:
        """Attach to an error what the stream's releases cost."""
        Spending(
            delta=self.plan.delta,
            adjacency=self.plan.adjacency,
            unit=self.plan.unit,
            reasons_not_certified=[] if self._secure else [SEEDED],
            records=self._records,
        ).notify(error)

    def check_open(self) -> None:
        """Raise unless rows can be added, in the process that made the stream."""
        self.check_process()
        match self._standing:
            case "open":
                return
            case "over":
                raise PrivacyError("horizon-over", blocks=self.blocks)
            case "released":
                raise PrivacyError("already-released")
            case "merged":
                raise PrivacyError("already-merged")
            case "torn":
                raise PrivacyError("torn")

    def check_process(self) -> None:
        """Raise in a process that was forked off the one that made the stream."""
        if self._forks != _forks:
            raise PrivacyError("other-process")

    def _charge(self) -> None:
        """Charge all that the stream ever releases, once, before any noise is drawn."""
        if not self._charged:
            self._charges.charge(self._records)
            self._charged = True

    def _published(self, block_sums: list[Accumulator]) -> Result:
        """The release of the stream with one more block."""
        try:
            releases = [
                prefix.release(total)
                for prefix, total in zip(self._prefixes, block_sums, strict=True)
            ]
            self.result = made = self._made(releases)
        except BaseException as error:
            self.stop(error, noise_drawn=True)
            raise
        return made

    def _made(self, releases: list[Release]) -> Result:
        answers = {query.name: found for query, found in zip(self._queries, releases, strict=True)}
        factors = stream_factors(self.plan, answers, **self._public)
        return certified(
            self._spec,
            self.plan,
            self._records,
            factors,
            names=self.names,
            secure=self._secure,
            counted=self._counted,
            together=self._charges.together(),
        )

    def _empty(self, standing: Standing) -> None:
        """Close the stream, and keep nothing of any row."""
        self._standing = standing
        self._sums, self._prefixes, self._queries = [], [], ()
        self._source, self._units = None, None
        charges, self._charges = self._charges, UNCHARGED
        charges.end("finished" if standing in ("released", "over") else standing)

    def __getstate__(self) -> dict[str, Any]:
        if self._sums or self._prefixes:
            raise PrivacyError("open-stream")
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _forks=_forks)  # it is closed: nothing can be counted again


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    mine, theirs = (
        (public["public_center"], *public["preparation"].merge_key()) for public in (one, other)
    )
    return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))


def _first_difference(first: StreamPlan, second: StreamPlan) -> str:
    mine, theirs = first.model_dump(), second.model_dump()
    mine["fractions"] = mine.pop("fractions")  # last: they follow from the others
    for name, value in mine.items():
        if value != theirs[name]:
            return f"{name} is {value!r} here and {theirs[name]!r} there"
    return "their centres or scales differ"
