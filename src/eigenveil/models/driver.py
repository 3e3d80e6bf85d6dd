"""The driver of one data set: it runs the rounds of a plan over its rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Never, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

import eigenveil
from eigenveil.errors import InvalidRowsWarning
from eigenveil.files import Place
from eigenveil.linalg.eigen import small_matrix_threads
from eigenveil.models.options import Options
from eigenveil.models.plan import BasePlan
from eigenveil.models.result import EstimatorSpec, Result, certificate_of
from eigenveil.models.rounds import Answers, Factors, Found, Round, independent, next_round
from eigenveil.models.task import task_of_plan
from eigenveil.moments.engine import InvalidRows, accumulate
from eigenveil.moments.independence import dependence
from eigenveil.moments.source import PartitionedRows, RowSource
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.accountant import Loss, Spending
from eigenveil.privacy.certificate import Together, reasons_of, rule_of_rows
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.releases import ReleaseRecord
from eigenveil.tables.schema import Schema
from eigenveil.tables.units import unit_rows

LedgerPlace: TypeAlias = "str | os.PathLike[str] | eigenveil.Ledger"


class Charges(Protocol):
    """What a fit's releases are charged to."""

    counted: bool  # Whether they are charged at all
    accounts: tuple[str, ...]  # The ledger, and its accounts that are charged

    def charge(self, records: Sequence[ReleaseRecord]) -> None:
        """Charge releases, durably, before their noise is drawn."""

    def together(self) -> Together | None:
        """What all that was charged to its account until now costs; ``None`` where it is alone."""

    def end(self, outcome: str) -> None:
        """No more releases come: what was reserved and not charged is free again."""


class _Uncharged:
    """No ledger: nothing is charged."""

    counted = False
    accounts: tuple[str, ...] = ()

    def charge(self, records: Sequence[ReleaseRecord]) -> None:
        """Nothing."""

    def together(self) -> Together | None:
        return None

    def end(self, outcome: str) -> None:
        """Nothing."""


UNCHARGED: Charges = _Uncharged()


@dataclass(frozen=True)
class FitTerms:
    """What a fit says of itself to a ledger."""

    adjacency: Adjacency
    # What one neighbour has more, or other, than the other: all rows of a unit, or one row
    unit: str | None
    epsilon: float  # Its target: the budget of an account that is opened for it
    delta: float
    pure_part: float
    reserve: Loss  # The most that it costs, under its own adjacency, and where one unit is changed
    replacing: Loss
    note: str  # For the owner, who reads it in the ledger

    @classmethod
    def of(cls, plan: BasePlan, *, by: str) -> FitTerms:
        """Those of a plan, whatever its number of rows; ``by`` is the estimator's name."""
        return cls(
            adjacency=plan.adjacency,
            unit=plan.unit,
            epsilon=plan.epsilon,
            delta=plan.delta,
            pure_part=plan.pure_part,
            reserve=plan.reservation(),
            replacing=plan.reservation(replacing=True),
            note=f"{by}, noise: {plan.noise_source}, plan {plan.hash}",
        )


def begin_charges(
    options: Options, plan: BasePlan, *, files: Sequence[Place] | None = None
) -> Charges:
    """Reserve what a fit may cost, before any of its rows is read."""
    if options.ledger is None:
        if options.data_set is not None:
            raise options.refused("data_set", "data-set-without-ledger", data_set=options.data_set)
        return UNCHARGED
    if getattr(plan, "row_norm", None) == "max":
        raise options.refused("row_norm", "norm-not-private")
    terms = FitTerms.of(plan, by=options.owner)
    return eigenveil.begin_fit(options.ledger, options.data_set, files, terms)


def rounds_of(plan: BasePlan, **context: Any) -> Generator[Round, Answers, Any]:
    """The rounds of a plan, whatever its task; ``context`` as of each task's rounds."""
    rounds: Generator[Round, Answers, Any] = task_of_plan(plan).rounds(plan, **context)
    return rounds


def rows_for(plan: BasePlan, rows: RowSource) -> RowSource:
    """Rows as a plan takes them: as its task does, with the weights of its units."""
    taken = rows.read_by(task_of_plan(plan).rows_for)
    return taken if plan.unit is None else unit_rows(taken, plan.max_rows_per_unit)


# -- Drives a generator of rounds over one data set: the study with one site.

RoundProgress = Callable[[str, int], None]
Call = TypeVar("Call")
Reply = TypeVar("Reply")
Rounds = Generator[Round, Answers, Found]


@dataclass
class FitRun(Generic[Found]):
    """A finished fit: its result and what was spent on it, in order.

    ``invalid`` is for the owner of the rows only.
    """

    factors: Found
    records: list[ReleaseRecord] = field(default_factory=list)
    invalid: InvalidRows | None = None


def certified_fit(
    plan: BasePlan,
    rounds: Rounds[Any],
    rows: RowSource,
    source: RandomSource,
    *,
    spec: EstimatorSpec,
    keep: Callable[[Result], None],
    charges: Charges = UNCHARGED,
) -> None:
    """Run a plan's rounds over one data set, certify what they released, and hand it to ``keep``.

    Every release is charged to ``charges`` before its noise is drawn; whoever began them ends them.
    """
    plan = plan.drawn_from(secure=source.secure)
    with Spending(
        plan.delta,
        plan.adjacency,
        plan.unit,
        reasons_of(plan.model_dump(include={"row_norm", "noise_source"})),
    ) as spending:
        run = run_rounds(
            rounds,
            rows,
            source,
            progress=current_progress(),
            records=spending.records,
            charges=charges,
        )
        keep(
            certified(
                spec,
                plan,
                run.records,
                run.factors,
                names=None if rows.names is None else tuple(str(name) for name in rows.names),
                schema=rows.schema,
                secure=source.secure,
                counted=charges.counted,
                together=charges.together(),
                cluster=isinstance(rows, PartitionedRows),
                newlines_in_cells=rows.newlines_in_cells,
            )
        )
        warn_owner(run.invalid, plan)


def certified(
    spec: EstimatorSpec,
    plan: BasePlan,
    records: Sequence[ReleaseRecord],
    factors: Any,
    *,
    names: tuple[str, ...] | None,
    schema: Schema | None = None,
    **of_run: Any,
) -> Result:
    """What was made of one data set's releases under a plan, with the certificate of both."""
    certificate = certificate_of(
        plan, factors, records, names=names, schema=schema, dependent=dependence(), **of_run
    )
    return Result(spec, plan, factors, plan.features, names, certificate, schema=schema)


def drive(rounds: Rounds[Found], answer: Callable[[Round], Answers]) -> Found:
    """What a generator of rounds makes of the answers, each given at once."""

    def no_calls(queries: Round) -> Generator[Never, Never, Answers]:
        return answer(queries)
        yield

    try:
        next(driven(rounds, no_calls))
    except StopIteration as end:
        found: Found = end.value
        return found
    raise AssertionError("nothing is waited for: a defect")


def driven(
    rounds: Rounds[Found], answer: Callable[[Round], Generator[Call, Reply, Answers]]
) -> Generator[Call, Reply, Found]:
    """The same where answers are waited for: the one loop that every fit goes through.

    What an answer yields goes to whoever waits. Nothing else ends the loop than the generator's
    own result, whatever an answer raises.
    """
    queries, found = next_round(rounds, None)
    released: dict[str, NDArray[np.float64]] = {}
    while queries is not None:
        answers = yield from answer(queries)
        for name, release in answers.items():
            if (kept := independent(release)) is not None:
                released[name] = kept
        del queries  # and with them the sums, which may be large
        queries, found = next_round(rounds, answers)
    if isinstance(found, Factors):
        found = replace(found, released=released)
    return found  # type: ignore[return-value]  # there is one where there are no more queries


def run_rounds(
    rounds: Rounds[Found],
    rows: RowSource,
    source: RandomSource,
    *,
    progress: RoundProgress | None = None,
    records: list[ReleaseRecord] | None = None,
    charges: Charges = UNCHARGED,
) -> FitRun[Found]:
    """Answer every round from ``rows``.

    ``progress(what, n)`` is called after every n rows of the pass named ``what``; to ``records``
    each release is added before its noise is drawn.
    """
    records = [] if records is None else records
    invalid: InvalidRows | None = None

    def answer(queries: Round) -> Answers:
        nonlocal invalid
        label = ", ".join(query.name for query in queries)
        notify = None if progress is None else partial(progress, label)
        found = accumulate(rows, [query.accumulator for query in queries], progress=notify)
        invalid, answers = found.invalid, {}
        charges.charge([query.record for query in queries])
        for query in queries:
            records.append(query.record)  # counted before the noise is drawn
            answers[query.name] = query.accumulator.release(query.record, source)
        return answers

    with small_matrix_threads(rows.features):
        return FitRun(drive(rounds, answer), records, invalid)


# -- What only the owner of rows is told.


def warn_owner(invalid: InvalidRows | None, plan: BasePlan, *, where: str = "") -> None:
    """Warn whoever called about rows that are left out; nothing of it is kept."""
    if invalid is not None:
        warnings.warn(f"{where}{told_owner(invalid, plan)}", InvalidRowsWarning, stacklevel=4)


def told_owner(invalid: InvalidRows, plan: BasePlan) -> str:
    """What the owner of rows is told of those that are left out, and the rule."""
    rule = f" By rule, {rule_of_rows(plan.model_dump())}." if invalid.count else ""
    return f"{invalid}.{rule}"


FitProgress = Callable[[str, int], None]
"""Called with what is done, and how many more rows (of a study: sites) it is done for."""
_LISTENER: ContextVar[FitProgress | None] = ContextVar("listener", default=None)


def current_progress() -> FitProgress | None:
    return _LISTENER.get()


@contextmanager
def told_to(listener: FitProgress | None) -> Iterator[None]:
    """Tell this listener of the fits in the block, in this thread and those of its context."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
