"""Drives a generator of rounds over one data set: the study with one site."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Generic, TypeVar

from eigenveil.errors import DataError, PrivacyError
from eigenveil.estimators.plans import BasePlan
from eigenveil.estimators.rounds import Answers, Ask, Round
from eigenveil.linalg.threads import small_matrix_threads
from eigenveil.moments.engine import accumulate
from eigenveil.moments.exponential import release_vectors
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
    """A finished fit: its result and what was spent on it, in order."""

    factors: Result
    records: list[ReleaseRecord] = field(default_factory=list)


@dataclass(frozen=True)
class CertifiedRun(Generic[Result]):
    """A finished fit of one data set: its result, and the certificate of what it released."""

    factors: Result
    certificate: Certificate


def certified_run(
    plan: BasePlan,
    rounds: Generator[Round, Answers, Result],
    rows: RowSource,
    source: RandomSource,
    *,
    progress: RoundProgress | None = None,
) -> CertifiedRun[Result]:
    """Run a plan's rounds over one data set and certify what they released.

    Raises
    ------
    DataError
        When the rows cannot be used; nothing was released.
    PrivacyError
        With ``spent``, the guarantee of what was released before, or ``None``.
    """
    try:
        run = run_rounds(rounds, rows, source, fewest_rows=plan.fewest_rows, progress=progress)
    except PrivacyError as error:
        if error.released:
            error.spent = compose(error.released, delta=plan.delta, adjacency=plan.adjacency)
        raise
    certificate = certificate_of(
        plan,
        run.records,
        secure=source.secure,
        stopped=getattr(run.factors, "stopped", None),
    )
    return CertifiedRun(run.factors, certificate)


def certificate_of(
    plan: BasePlan,
    records: Sequence[ReleaseRecord],
    *,
    secure: bool,
    stopped: str | None = None,
) -> Certificate:
    """The certificate of what one data set released under a plan."""
    return make_certificate(
        software=f"eigenveil {version('eigenveil')}",
        plan=plan.model_dump(mode="json"),
        secure=secure,
        wish=Claim(epsilon=plan.epsilon, delta=plan.delta, adjacency=plan.adjacency),
        releases=records,
        stopped=stopped,
    )


def run_rounds(
    rounds: Generator[Round, Answers, Result],
    rows: RowSource,
    source: RandomSource,
    *,
    fewest_rows: int = 1,
    progress: RoundProgress | None = None,
) -> Run[Result]:
    """Answer every round from ``rows``.

    ``progress(what, n)`` is told after every n rows of the pass named ``what``.

    Raises
    ------
    DataError
        When fewer than ``fewest_rows`` rows are read; before anything is released.
    PrivacyError
        With ``records`` of what had been released attached to it as ``released``.
    """
    records: list[ReleaseRecord] = []
    try:
        with small_matrix_threads(rows.features):
            asks = next(rounds)
            while True:
                asks = rounds.send(_answer(asks, rows, source, records, fewest_rows, progress))
    except StopIteration as end:
        return Run(end.value, records)
    except PrivacyError as error:
        error.released = tuple(records)
        raise


def _answer(
    asks: Round,
    rows: RowSource,
    source: RandomSource,
    records: list[ReleaseRecord],
    fewest_rows: int,
    progress: RoundProgress | None,
) -> dict[str, Release]:
    """One pass over the rows and the releases it is for."""
    label = ", ".join(ask.name for ask in asks)
    tell = None if progress is None else _teller(progress, label)
    count = accumulate(rows, [ask.accumulator for ask in asks], progress=tell)
    if count < fewest_rows:
        raise DataError(
            f"{count} rows are fewer than the {fewest_rows} that n_components asks for.",
            hint="Ask for fewer components, or check that all files were read.",
            code="fewer-rows-than-components",
        )
    answers = {}
    for ask in asks:
        records.append(ask.record)  # counted before the noise is drawn
        answers[ask.name] = _release(ask, source)
    return answers


def _teller(progress: RoundProgress, label: str) -> Callable[[int], None]:
    return lambda rows: progress(label, rows)


def _release(ask: Ask, source: RandomSource) -> Release:
    if ask.record.noise.kind == "bingham":
        return release_vectors(ask.accumulator, ask.record, source)
    return ask.accumulator.release(ask.record, source)
