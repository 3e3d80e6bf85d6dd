"""What a private stream holds between two blocks: sums, and nothing of any row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError, PrivacyError
from eigenveil.estimators.pipeline import Factors
from eigenveil.estimators.stream_plan import StreamPlan
from eigenveil.estimators.stream_rounds import stream_asks, stream_factors
from eigenveil.linalg.threads import small_matrix_threads
from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.engine import Findings, InvalidRows, check_rows
from eigenveil.moments.release import Release
from eigenveil.moments.source import RowSource
from eigenveil.moments.stream_sums import PrefixSum
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.releases import ReleaseRecord


class StreamState:
    """The sums of a stream, and their release at its end or after every block.

    Parameters
    ----------
    plan : StreamPlan
    public_centre : array of shape (D,) or None
    source : RandomSource
        Of the noise.

    Attributes
    ----------
    rows, blocks : int
        So far; private to the owner of the rows.
    factors : Factors or None
        What the latest release gives.
    """

    def __init__(
        self, plan: StreamPlan, public_centre: NDArray[np.float64] | None, source: RandomSource
    ) -> None:
        self.plan = plan
        self.rows = self.blocks = 0
        self.factors: Factors | None = None
        self._centre, self._source = public_centre, source
        self._asks = stream_asks(plan, public_centre=public_centre)
        self._ended = False
        self._sums: list[Accumulator] = []
        self._prefixes: list[PrefixSum] = []
        for ask in self._asks:
            if plan.publish == "end":
                self._sums.append(ask.accumulator)
            else:
                self._prefixes.append(PrefixSum(ask.accumulator, ask.record, source))

    @property
    def records(self) -> list[ReleaseRecord]:
        """Of everything that the stream releases."""
        return [ask.record for ask in self._asks]

    def add(self, rows: RowSource, count: int) -> InvalidRows | None:
        """Add a block of ``count`` rows; under continual release it is released.

        Returns
        -------
        InvalidRows or None
            Those that became zero rows: for the owner of the rows only.

        Raises
        ------
        PrivacyError, DataError
            When the stream was released, its horizon is over, or a row is not valid and the plan
            says ``invalid="error"``. Nothing was added.
        """
        self._check_open()
        if self.plan.invalid == "error":
            check_rows(rows)
        found = Findings(rows.names)
        for prefix in self._prefixes:
            prefix.check_room()
        with small_matrix_threads(self.plan.features):
            for number, block in enumerate(rows.blocks()):
                for total in self._sums:
                    total.update(block)
                for prefix in self._prefixes:
                    prefix.update(block)
                found.add(number, block)
            self.rows += count
            self.blocks += 1
            if self._prefixes:
                self._factorise([prefix.close() for prefix in self._prefixes])
        return found.all

    def merge(self, other: StreamState) -> None:
        """Add the rows that another stream of the same kind has seen; it is left unchanged.

        Raises
        ------
        DataError, PrivacyError
            When they are of different kinds, or one was released. Nothing was added.
        """
        if self.plan != other.plan or not np.array_equal(
            _entries(self._centre), _entries(other._centre)
        ):
            raise DataError(
                "The streams have different plans or centres: "
                f"{_first_difference(self.plan, other.plan)}.",
                hint="Merge streams that were made with the same parameters, by one version.",
                code="merge-mismatch",
            )
        if self.plan.publish != "end":
            raise PrivacyError(
                "Streams under continual release cannot be merged: each has noise of its own.",
                hint="Merge streams with publish='end' before they are released.",
                code="merge-continual",
            )
        self._check_open()
        other._check_open()
        for mine, theirs in zip(self._sums, other._sums, strict=True):
            mine.merge(theirs)
        self.rows += other.rows
        self.blocks += other.blocks

    def end(self) -> None:
        """Release the sums, once."""
        if self._ended or self._prefixes:
            return
        self._ended = True  # whatever happens next, noise is drawn once
        self._factorise([ask.accumulator.release(ask.record, self._source) for ask in self._asks])
        self._sums = []

    def _factorise(self, releases: list[Release]) -> None:
        answers = {ask.name: found for ask, found in zip(self._asks, releases, strict=True)}
        public = self.rows if self.plan.adjacency == "replace-one" else None
        self.factors = stream_factors(
            self.plan, answers, public_centre=self._centre, public_rows=public
        )

    def _check_open(self) -> None:
        if self._ended:
            raise PrivacyError(
                "The stream was released: further rows would need a budget of their own.",
                hint="Start a new stream, or use publish='continual'.",
                code="already-released",
            )


def _entries(centre: NDArray[np.float64] | None) -> NDArray[np.float64]:
    return np.zeros(0) if centre is None else centre


def _first_difference(first: StreamPlan, second: StreamPlan) -> str:
    mine, theirs = first.model_dump(), second.model_dump()
    for name, value in mine.items():
        if value != theirs[name]:
            return f"{name} is {value!r} here and {theirs[name]!r} there"
    return "their centres differ"
