"""The driver of one data set: it runs the rounds of a plan over its rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Never, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import InvalidRowsWarning
from eigenveil.linalg.threads import small_matrix_threads
from eigenveil.models.charging import UNCHARGED, Charges
from eigenveil.models.plan import BasePlan
from eigenveil.models.result import EstimatorSpec, Result, certificate_of
from eigenveil.models.rounds import Answers, Factors, Round, independent
from eigenveil.models.task import task_of_plan
from eigenveil.moments.engine import InvalidRows, accumulate
from eigenveil.moments.independence import dependence
from eigenveil.moments.source import PartitionedRows, RowSource
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.certificate import reasons_of, rule_of_rows
from eigenveil.privacy.releases import ReleaseRecord
from eigenveil.privacy.spending import Spending
from eigenveil.tables.units import unit_rows


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
Found = TypeVar("Found")
Call = TypeVar("Call")
Reply = TypeVar("Reply")
Rounds = Generator[Round, Answers, Found]


@dataclass
class Run(Generic[Found]):
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
    progress: RoundProgress | None = None,
) -> None:
    """Run a plan's rounds over one data set, certify what they released, and hand it to ``keep``.

    Every release is charged to ``charges`` before its noise is drawn; whoever began them ends them.
    """
    secure = source.secure
    plan = plan.drawn_from(secure=secure)
    with Spending(
        plan.delta,
        plan.adjacency,
        plan.unit,
        reasons_of(plan.model_dump(include={"row_norm", "noise_source"})),
    ) as spending:
        run = run_rounds(
            rounds, rows, source, progress=progress, records=spending.records, charges=charges
        )
        names = None if rows.names is None else tuple(str(name) for name in rows.names)
        keep(
            certified(
                spec,
                plan,
                run.records,
                run.factors,
                features=rows.features,
                names=names,
                secure=secure,
                counted=charges.counted,
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
    features: int,
    names: tuple[str, ...] | None,
    secure: bool,
    counted: bool,
    cluster: bool = False,
    newlines_in_cells: bool = False,
) -> Result:
    """What was made of one data set's releases under a plan, with the certificate of both."""
    certificate = certificate_of(
        plan,
        factors,
        records,
        features=features,
        names=names,
        secure=secure,
        dependent=dependence(),
        counted=counted,
        cluster=cluster,
        newlines_in_cells=newlines_in_cells,
    )
    return Result(spec, plan, factors, features, names, certificate)


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
    queries, found = _step(rounds, None)
    released: dict[str, NDArray[np.float64]] = {}
    while queries is not None:
        answers = yield from answer(queries)
        for name, release in answers.items():
            if (kept := independent(release)) is not None:
                released[name] = kept
        queries, found = _step(rounds, answers)
    if isinstance(found, Factors):
        found = replace(found, released=released)
    return found  # type: ignore[return-value]  # there is one where there are no more queries


def _step(
    rounds: Rounds[Found], answers: Answers | None
) -> tuple[Round, None] | tuple[None, Found]:
    """The next round, or the result."""
    try:
        queries = next(rounds) if answers is None else rounds.send(answers)
    except StopIteration as end:
        return None, end.value
    return queries, None


def run_rounds(
    rounds: Rounds[Found],
    rows: RowSource,
    source: RandomSource,
    *,
    progress: RoundProgress | None = None,
    records: list[ReleaseRecord] | None = None,
    charges: Charges = UNCHARGED,
) -> Run[Found]:
    """Answer every round from ``rows``.

    ``progress(what, n)`` is called after every n rows of the pass named ``what``; to ``records``
    each release is added before its noise is drawn.
    """
    records = [] if records is None else records
    invalid: InvalidRows | None = None

    def answer(queries: Round) -> Answers:
        """One pass over the rows and the releases it is for."""
        nonlocal invalid
        label = ", ".join(query.name for query in queries)
        notify = None if progress is None else _notifier(progress, label)
        found = accumulate(rows, [query.accumulator for query in queries], progress=notify)
        invalid, answers = found.invalid, {}
        charges.charge([query.record for query in queries])
        for query in queries:
            records.append(query.record)  # counted before the noise is drawn
            answers[query.name] = query.accumulator.release(query.record, source)
        return answers

    with small_matrix_threads(rows.features):
        return Run(drive(rounds, answer), records, invalid)


def _notifier(progress: RoundProgress, label: str) -> Callable[[int], None]:
    return lambda rows: progress(label, rows)


# -- What only the owner of rows is told.


def warn_owner(invalid: InvalidRows | None, plan: BasePlan, *, where: str = "") -> None:
    """Warn whoever called about rows that are left out; nothing of it is kept."""
    if invalid is not None:
        warnings.warn(f"{where}{told_owner(invalid, plan)}", InvalidRowsWarning, stacklevel=4)


def told_owner(invalid: InvalidRows, plan: BasePlan) -> str:
    """What the owner of rows is told of those that are left out, and the rule."""
    rule = f" By rule, {rule_of_rows(plan.model_dump())}." if invalid.count else ""
    return f"{invalid}.{rule}"
