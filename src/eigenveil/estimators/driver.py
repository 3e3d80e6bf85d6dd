"""Drives a generator of rounds over one data set: the study with one site."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Generic, TypeVar

from eigenveil.estimators.inputs import tell_owner
from eigenveil.estimators.plans import BasePlan
from eigenveil.estimators.result import Asked, Result, model_digest
from eigenveil.estimators.rounds import Answers, Ask, Round
from eigenveil.linalg.threads import small_matrix_threads
from eigenveil.moments.engine import InvalidRows, accumulate, check_rows
from eigenveil.moments.exponential import release_vectors
from eigenveil.moments.independence import dependence
from eigenveil.moments.release import Release
from eigenveil.moments.source import RowSource
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.certificate import Claim, make_certificate, reasons_of
from eigenveil.privacy.releases import ReleaseRecord
from eigenveil.privacy.spending import tell_spent

RoundProgress = Callable[[str, int], None]
Found = TypeVar("Found")


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
    rounds: Generator[Round, Answers, Any],
    rows: RowSource,
    source: RandomSource,
    *,
    asked: Asked,
    keep: Callable[[Result], None],
    progress: RoundProgress | None = None,
) -> None:
    """Run a plan's rounds over one data set, certify what they released, and hand it to ``keep``.

    Raises
    ------
    DataError
        When a row is not valid and the plan says ``invalid="error"``; nothing was released.
    PrivacyError
        When the wish cannot be met.
    BaseException
        Whatever stops the fit after something was released says so: ``spent`` is the guarantee of
        what was released before (``None`` where nothing was), ``released`` its records.
    """
    records: list[ReleaseRecord] = []
    secure = source.secure
    plan = plan.drawn_from(secure=secure)
    if plan.invalid == "error":
        check_rows(rows)
    try:
        run = run_rounds(rounds, rows, source, progress=progress, records=records)
        names = None if rows.names is None else tuple(str(name) for name in rows.names)
        keep(
            certified(
                asked,
                plan,
                records,
                run.factors,
                features=rows.features,
                names=names,
                secure=secure,
            )
        )
    except BaseException as error:
        tell_spent(
            error,
            records,
            delta=plan.delta,
            adjacency=plan.adjacency,
            reasons_not_certified=reasons_of(plan.model_dump(include={"row_norm", "noise_source"})),
        )
        raise
    tell_owner(run.invalid)


def certified(
    asked: Asked,
    plan: BasePlan,
    records: Sequence[ReleaseRecord],
    factors: Any,
    *,
    features: int,
    names: tuple[str, ...] | None,
    secure: bool,
) -> Result:
    """What was made of one data set's releases under a plan, with the certificate of both."""
    certificate = make_certificate(
        software=f"eigenveil {version('eigenveil')}",
        plan=plan.model_dump(mode="json"),
        model=model_digest(factors, features=features, names=names),
        secure=secure,
        wish=Claim(epsilon=plan.epsilon, delta=plan.delta, adjacency=plan.adjacency),
        releases=records,
        stopped=getattr(factors, "stopped", None) or None,
        dependent=dependence(),
    )
    return Result(asked, plan, factors, features, names, certificate)


def run_rounds(
    rounds: Generator[Round, Answers, Found],
    rows: RowSource,
    source: RandomSource,
    *,
    progress: RoundProgress | None = None,
    records: list[ReleaseRecord] | None = None,
) -> Run[Found]:
    """Answer every round from ``rows``.

    ``progress(what, n)`` is told after every n rows of the pass named ``what``; to ``records``
    each release is added before its noise is drawn.
    """
    records = [] if records is None else records
    invalid: InvalidRows | None = None
    try:
        with small_matrix_threads(rows.features):
            asks = next(rounds)
            while True:
                answers, invalid = _answer(asks, rows, source, records, progress)
                asks = rounds.send(answers)
    except StopIteration as end:
        return Run(end.value, records, invalid)


def _answer(
    asks: Round,
    rows: RowSource,
    source: RandomSource,
    records: list[ReleaseRecord],
    progress: RoundProgress | None,
) -> tuple[dict[str, Release], InvalidRows | None]:
    """One pass over the rows and the releases it is for."""
    label = ", ".join(ask.name for ask in asks)
    tell = None if progress is None else _teller(progress, label)
    found = accumulate(rows, [ask.accumulator for ask in asks], progress=tell)
    answers = {}
    for ask in asks:
        records.append(ask.record)  # counted before the noise is drawn
        answers[ask.name] = _release(ask, source)
    return answers, found.invalid


def _teller(progress: RoundProgress, label: str) -> Callable[[int], None]:
    return lambda rows: progress(label, rows)


def _release(ask: Ask, source: RandomSource) -> Release:
    if ask.record.noise.kind == "bingham":
        return release_vectors(ask.accumulator, ask.record, source)
    return ask.accumulator.release(ask.record, source)
