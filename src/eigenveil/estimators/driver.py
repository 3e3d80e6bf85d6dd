"""Drives a generator of rounds over one data set: the study with one site."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Generic, TypeVar

from eigenveil.errors import PrivacyError
from eigenveil.estimators.plans import BasePlan
from eigenveil.estimators.rounds import Answers, Ask, Round
from eigenveil.linalg.threads import small_matrix_threads
from eigenveil.moments.engine import InvalidRows, accumulate, check_rows
from eigenveil.moments.exponential import release_vectors
from eigenveil.moments.independence import dependence
from eigenveil.moments.release import Release
from eigenveil.moments.source import RowSource
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.certificate import Certificate, Claim, make_certificate
from eigenveil.privacy.releases import ReleaseRecord

RoundProgress = Callable[[str, int], None]


Result = TypeVar("Result")


@dataclass
class Run(Generic[Result]):
    """A finished fit: its result and what was spent on it, in order.

    ``invalid`` is for the owner of the rows only.
    """

    factors: Result
    records: list[ReleaseRecord] = field(default_factory=list)
    invalid: InvalidRows | None = None


@dataclass(frozen=True)
class CertifiedRun(Generic[Result]):
    """A finished fit of one data set: its result, and the certificate of what it released.

    ``invalid`` is for the owner of the rows only.
    """

    factors: Result
    certificate: Certificate
    invalid: InvalidRows | None = None


def certified_run(
    plan: BasePlan,
    rounds: Generator[Round, Answers, Result],
    rows: RowSource,
    source: RandomSource,
    *,
    reasons_not_certified: Sequence[str] = (),
    progress: RoundProgress | None = None,
) -> CertifiedRun[Result]:
    """Run a plan's rounds over one data set and certify what they released.

    Raises
    ------
    DataError
        When a row is not valid and the plan says ``invalid="error"``; nothing was released.
    PrivacyError
        With ``spent``, the guarantee of what was released before, or ``None``.
    """
    if plan.invalid == "error":
        check_rows(rows)
    try:
        run = run_rounds(rounds, rows, source, progress=progress)
    except PrivacyError as error:
        if error.released:
            error.spent = compose(error.released, delta=plan.delta, adjacency=plan.adjacency)
        raise
    certificate = certificate_of(
        plan, run.records, secure=source.secure, reasons_not_certified=reasons_not_certified
    )
    return CertifiedRun(run.factors, certificate, run.invalid)


def certificate_of(
    plan: BasePlan,
    records: Sequence[ReleaseRecord],
    *,
    secure: bool,
    reasons_not_certified: Sequence[str] = (),
) -> Certificate:
    """The certificate of what one data set released under a plan."""
    return make_certificate(
        software=f"eigenveil {version('eigenveil')}",
        plan=plan.model_dump(mode="json"),
        plan_hash=plan.hash,
        secure=secure,
        wish=Claim(epsilon=plan.epsilon, delta=plan.delta, adjacency=plan.adjacency),
        releases=list(records),
        reasons_not_certified=[*reasons_not_certified, *dependence()],
    )


def run_rounds(
    rounds: Generator[Round, Answers, Result],
    rows: RowSource,
    source: RandomSource,
    *,
    progress: RoundProgress | None = None,
) -> Run[Result]:
    """Answer every round from ``rows``.

    ``progress(what, n)`` is told after every n rows of the pass named ``what``.

    Raises
    ------
    PrivacyError
        With ``records`` of what had been released attached to it as ``released``.
    """
    records: list[ReleaseRecord] = []
    invalid: InvalidRows | None = None
    try:
        with small_matrix_threads(rows.features):
            asks = next(rounds)
            while True:
                answers, invalid = _answer(asks, rows, source, records, progress)
                asks = rounds.send(answers)
    except StopIteration as end:
        return Run(end.value, records, invalid)
    except PrivacyError as error:
        error.released = tuple(records)
        raise


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
