"""Running audits: the cases by name, their outputs, bounds, and a verdict on each claim."""

from __future__ import annotations

import math
import multiprocessing
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from itertools import chain
from typing import NamedTuple

import numpy as np

from eigenveil.audit.bounds import (
    chance_bounds,
    delta_lower_bounds,
    epsilon_lower_bound,
    least_trials,
    mu_lower_bound,
)
from eigenveil.audit.case import Case, FloatArray, Randomness, Samples, joined
from eigenveil.audit.sound import sound_cases
from eigenveil.errors import DataError, PrivacyError, nearest
from eigenveil.privacy.accountant import delta_of_mu, epsilon_of_mu

# Words that stand for many cases.
EVERYTHING = "all"
GROUPS = ("sound", "published")


@cache
def all_cases() -> dict[str, Case]:
    """Every case by its name: this package's, and those that installed packages add."""
    others = (point.load()() for point in entry_points(group="eigenveil.audits"))
    found: dict[str, Case] = {}
    for case in chain(sound_cases(), *others):
        if case.name in found:
            raise AssertionError(f"two cases are called {case.name!r}")
        found[case.name] = case
    return found


def mechanisms() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in all_cases().values():
        found.setdefault(case.mechanism, []).append(case)
    return found


def chosen(words: Sequence[str]) -> list[Case]:
    """The cases that words name: mechanisms, cases, ``sound``, ``published`` or ``all``."""
    cases, families = all_cases(), mechanisms()
    taken: dict[str, Case] = {}
    for word in words:
        if word == EVERYTHING:
            found = list(cases.values())
        elif word in GROUPS:
            found = [case for case in cases.values() if case.group == word]
        elif word in families:
            found = families[word]
        elif word in cases:
            found = [cases[word]]
        else:
            names = dict.fromkeys([*families, *cases, *GROUPS, EVERYTHING])
            near = nearest(word.lower().replace("_", "-"), names)
            raise DataError("unknown-mechanism", word=word, near=near)
        taken.update((case.name, case) for case in found)
    return list(taken.values())


# -- Running audits: outputs from several processes, bounds, and a verdict on each claim.

TRIALS, CONFIDENCE = 100_000, 0.999
# Of a case that draws a part of the trials, no fewer than so many.
_FEWEST = 1_000
_POINTS = 25  # of the curve of delta against epsilon, evenly to twice the claim
_CHUNK = 5_000
# Environment that keeps linear algebra to one thread in a worker.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Progress = Callable[[int, int], None]
"""Called with the outputs that are drawn so far, and all of them (trials of all cases)."""


@dataclass(frozen=True, kw_only=True)
class WitnessFound:
    """How often the witness event happened on either data set."""

    hits: int  # On the first data set, and on the second, where it cannot happen
    forbidden: int
    low: float  # Clopper-Pearson bounds of its chance on the first
    high: float


@dataclass(frozen=True, kw_only=True)
class Finding:
    case: Case
    trials: int  # Outputs on each of the two data sets
    false_alarm: float  # All bounds of this case together are wrong with at most this chance
    mu: float | None  # Lower bound, of Gaussian claims
    # Lower bound at the claim's delta: the larger of that from events, and of Gaussian noise that
    # which follows from `mu`
    epsilon: float
    epsilons: FloatArray  # Lower bounds of delta at these epsilons, and what the claim allows
    deltas: FloatArray
    claimed: FloatArray
    # Which parts of the claim a bound exceeds: "mu", "epsilon", "delta". Of a published algorithm
    # not "mu": its paper states epsilon and delta alone.
    broken: tuple[str, ...]
    beyond_mu: bool  # Whether the bound exceeds the mu of the claim, stated or only calculated
    witness: WitnessFound | None
    seconds: float  # Of processor time, to draw the outputs

    @property
    def holds(self) -> bool:
        return not self.broken

    @property
    def verdict(self) -> str:
        if self.holds:
            return "under its claim" + (", mu above its calculation" if self.beyond_mu else "")
        return f"CLAIM BROKEN ({', '.join(self.broken)})"

    @property
    def tightness(self) -> float:
        """Bound over claim: of mu where the claim is Gaussian, else of epsilon."""
        if self.mu is not None and self.case.claim.mu is not None:
            return self.mu / self.case.claim.mu
        return self.epsilon / self.case.claim.epsilon


def judge(case: Case, samples: Samples, *, false_alarm: float, seconds: float = 0.0) -> Finding:
    """Bounds from samples, and whether the claim stands; wrong with at most ``false_alarm``.

    The chance is divided equally among the bounds on mu (of Gaussian claims), on epsilon, on the
    curve of delta, and on the witness event.
    """
    claim = case.claim
    parts = 2 + (claim.mu is not None) + (case.witness is not None)
    level = false_alarm / parts
    mu, beyond_mu = None, False
    epsilon = epsilon_lower_bound(*samples, delta=claim.delta, false_alarm=level)
    epsilons = np.linspace(0.0, 2.0 * claim.epsilon, _POINTS)
    deltas = delta_lower_bounds(*samples, epsilons, false_alarm=level)
    if claim.mu is not None:
        mu = mu_lower_bound(*samples, false_alarm=level)
        beyond_mu = mu > claim.mu
        epsilon = max(epsilon, epsilon_of_mu(mu, claim.delta))
        deltas = np.maximum(deltas, [delta_of_mu(mu, float(e)) for e in epsilons])
    claimed = claim.curve(epsilons)
    exceeded = {
        "mu": beyond_mu and case.group == "sound",
        "epsilon": epsilon > claim.epsilon,
        "delta": np.any(deltas > claimed * (1.0 + 1e-12)),
    }
    return Finding(
        case=case,
        trials=samples.first.size,
        false_alarm=false_alarm,
        mu=mu,
        epsilon=epsilon,
        epsilons=epsilons,
        deltas=deltas,
        claimed=claimed,
        broken=tuple(name for name, over in exceeded.items() if over),
        beyond_mu=beyond_mu,
        witness=_witness(case, samples, level),
        seconds=seconds,
    )


def _witness(case: Case, samples: Samples, level: float) -> WitnessFound | None:
    if case.witness is None:
        return None
    hits = int(np.count_nonzero(samples.first < case.witness.below - 1e-9))
    forbidden = int(np.count_nonzero(samples.second < case.witness.below - 1e-9))
    low, high = chance_bounds(hits, samples.first.size, false_alarm=level)
    return WitnessFound(hits=hits, forbidden=forbidden, low=low, high=high)


def audit(
    cases: Sequence[Case],
    *,
    trials: int = TRIALS,
    confidence: float = CONFIDENCE,
    jobs: int = 1,
    seed: int | None = None,
    progress: Progress | None = None,
) -> list[Finding]:
    """Audit cases; all bounds of all of them hold together with the stated confidence."""
    _check(trials, confidence, jobs)
    if not cases:
        return []
    false_alarm = (1.0 - confidence) / len(cases)
    _check_enough(cases, trials, false_alarm)
    drawn: dict[str, list[_DrawnPart]] = {case.name: [] for case in cases}
    tasks = [
        (case.name, start, min(_CHUNK, trials_of(case, trials) - start), seed)
        for case in cases
        for start in range(0, trials_of(case, trials), _CHUNK)
    ]
    total = sum(count for _, _, count, _ in tasks)
    done = 0
    for part in _run(tasks, cases, jobs):
        drawn[part.name].append(part)
        done += part.samples.first.size
        if progress is not None:
            progress(done, total)
    findings = []
    for case in cases:
        parts = sorted(drawn[case.name], key=lambda part: part.start)
        samples, seconds = joined([part.samples for part in parts]), [p.seconds for p in parts]
        findings.append(judge(case, samples, false_alarm=false_alarm, seconds=math.fsum(seconds)))
    return findings


def trials_of(case: Case, trials: int) -> int:
    """Outputs that a case draws on each data set, where so many are requested."""
    return min(trials, max(_FEWEST, round(trials * case.share)))


_Task = tuple[str, int, int, int | None]  # A case's name, the first output, how many, the seed


class _DrawnPart(NamedTuple):
    name: str
    start: int
    samples: Samples
    seconds: float


def _run(tasks: Sequence[_Task], cases: Sequence[Case], jobs: int) -> Iterator[_DrawnPart]:
    registered = all(all_cases().get(case.name) is case for case in cases)
    if jobs == 1 or len(tasks) == 1 or not registered:  # a case of one's own is not sent
        own = {case.name: case for case in cases}
        for task in tasks:
            yield _draw(own[task[0]], task)
        return
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=context) as pool:
            # the slow cases are spread over the run by the order of their names' hashes
            order = sorted(tasks, key=lambda task: zlib.crc32(f"{task[0]} {task[1]}".encode()))
            waiting = [pool.submit(_drawn_by_name, task) for task in order]
            try:
                for future in as_completed(waiting):
                    yield future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _drawn_by_name(task: _Task) -> _DrawnPart:
    return _draw(all_cases()[task[0]], task)


def _draw(case: Case, task: _Task) -> _DrawnPart:
    name, start, count, seed = task
    entropy = None
    if seed is not None:  # the same outputs whatever else is audited, and in whatever order
        entropy = np.random.SeedSequence([seed, zlib.crc32(name.encode()), start])
    begun = time.process_time()
    samples = case.sample(count, Randomness(entropy))
    return _DrawnPart(name, start, samples, time.process_time() - begun)


def _check(trials: int, confidence: float, jobs: int) -> None:
    if not 0.5 < confidence < 1.0:
        wanted = "between 0.5 and 1, such as 0.999"
        raise PrivacyError("out-of-range", name="confidence", value=confidence, wanted=wanted)
    if jobs < 1:
        raise PrivacyError("out-of-range", name="jobs", value=jobs, wanted="1 or more")
    if trials < 1:
        raise PrivacyError("too-few-trials", trials=trials, wanted=TRIALS)


def _check_enough(cases: Sequence[Case], trials: int, false_alarm: float) -> None:
    """Refuse so few trials that not even a loss of twice the claim could be seen at all."""
    for case in cases:
        loss = case.claim.mu if case.claim.mu is not None else case.claim.epsilon
        needed = least_trials(min(2.0 * loss, 3.0), false_alarm=false_alarm / 4)
        drawn = trials_of(case, trials)
        if drawn < needed:
            enough = needed if needed <= _FEWEST else math.ceil(needed / case.share)
            raise PrivacyError(
                "trials-show-nothing", case=case.name, trials=drawn, loss=loss, enough=enough
            )
