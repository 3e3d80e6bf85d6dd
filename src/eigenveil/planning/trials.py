"""Simulated fits: what came of them, and the noise that fits with other budgets share.

A plan is tried on rows that are drawn, by the rounds that a real fit runs. Every fit of a trial has
a seed of its own, and each release draws its noise in units of its scale from a stream of its own
name: so fits at two budgets, or with a few rows more, differ by what was changed and not by luck.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import PrivacyError
from eigenveil.linalg.eigen import small_matrix_threads
from eigenveil.models.driver import drive
from eigenveil.models.plan import BasePlan
from eigenveil.models.rounds import Answers, Round, SumQuery
from eigenveil.models.schedule import Step
from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.engine import accumulate
from eigenveil.moments.norms import FloatArray
from eigenveil.moments.release import Release, noise_integers
from eigenveil.moments.source import ArrayRows, RowSource
from eigenveil.noise.entries import from_coordinates
from eigenveil.noise.source import SeededSource
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.mechanisms import MECHANISMS

# Noise is drawn with so many steps of a grid to its scale, or as many as its sampler can.
_STEPS = 30
# Simulated fits of a trial, by the numbers that each of them draws.
_ALL_NUMBERS, _FEWEST, _MOST = 20_000_000, 5, 20

Rounds = Generator[Round, Answers, Any]


@dataclass(frozen=True)
class Scenario:
    """The data that are expected of a fit."""

    rows: int  # Rows, or documents; units, where these are protected
    spectrum: NDArray[np.float64]  # Eigenvalues of the covariance, up to a factor
    # Norm of the rows' mean, in units of the root mean square norm of a centred row
    mean_norm: float = 0.0
    # Of a mixture's component from the mean of all rows, in standard deviations of a feature within
    # a component
    distance: float = 3.0
    topic_words: int = 20  # Words over which a topic is spread evenly
    document_words: int = 20


@dataclass(frozen=True)
class Trials:
    """What simulated fits of one plan came to."""

    # Of each fit, from 0 to 1; 0 where it stopped with nothing. None where nothing is simulated.
    qualities: tuple[float, ...] = ()
    # How many of the fits showed nothing: no component, direction or topic that is usable
    nothing: int = 0
    stopped: int = 0  # How many of these stopped before they had released everything
    note: str = ""  # Why nothing was simulated, or why fits stopped

    @property
    def fits(self) -> int:
        return len(self.qualities)

    @property
    def quality(self) -> float | None:
        """The mean over the fits."""
        return math.fsum(self.qualities) / self.fits if self.fits else None

    @property
    def shown_quality(self) -> float | None:
        """The same; ``None`` where nothing is simulated, or every fit stopped with nothing."""
        return None if self.stopped == self.fits else self.quality

    @property
    def quality_error(self) -> float | None:
        """Its standard error; ``None`` of fewer than two fits."""
        if self.fits < 2:
            return None
        return float(np.std(self.qualities, ddof=1)) / math.sqrt(self.fits)

    @property
    def probability(self) -> float | None:
        """That a fit shows nothing: the part of the fits that did not."""
        return self.nothing / self.fits if self.fits else None

    @property
    def probability_error(self) -> float | None:
        """Its standard error: the deviation of a probability of which only these fits are known.

        With a uniform prior, so that it is not 0 where none of the fits, or all, showed nothing.
        """
        if not self.fits:
            return None
        likely = (self.nothing + 1) / (self.fits + 2)
        return math.sqrt(likely * (1.0 - likely) / (self.fits + 3))

    def as_json(self) -> dict[str, Any] | None:
        """What is said of the probability, as plain values; ``None`` where nothing is simulated."""
        if not self.fits:
            return None
        return {
            "probability": self.probability,
            "standard_error": self.probability_error,
            "simulated_fits": self.fits,
        }

    def text(self) -> str:
        if not self.fits:
            return "-"
        return (
            f"{self.probability:.2g} ± {self.probability_error:.1g} ({self.nothing} of {self.fits})"
        )


@dataclass
class TrialNoise:
    """The noise of one simulated fit: the same deviates at every scale, by the release's name."""

    seed: tuple[int, ...]
    _drawn: Counter[str] = field(default_factory=Counter)

    def release(self, query: SumQuery, total: Accumulator) -> Release:
        """What a query releases of a sum over rows."""
        record = query.record
        self._drawn[query.name] += 1
        name = zlib.crc32(query.name.encode())
        source = SeededSource(np.random.default_rng((*self.seed, name, self._drawn[query.name])))
        mechanism = MECHANISMS[record.noise.kind]
        if not mechanism.added:
            return total.release(record, source)
        finest = mechanism.finest_grid(1.0)
        grid = -_STEPS if finest is None else max(finest, -_STEPS)
        unit = record.noise.model_copy(update={"scale": 1.0, "grid": grid})
        noise = noise_integers(total, record.model_copy(update={"noise": unit}), source)
        drawn = np.ldexp(noise.astype(np.float64), grid) * record.noise.scale
        exact = np.ldexp(total.integers().astype(np.float64), total.grid)
        return Release(record, exact + from_coordinates(total.layout, total.shape, drawn))


def run_trial(rounds: Rounds, rows: RowSource, noise: TrialNoise) -> Any:

    def answer(queries: Round) -> Answers:
        sums = [query.accumulator.empty() for query in queries]
        accumulate(rows, sums)
        return {
            query.name: noise.release(query, total)
            for query, total in zip(queries, sums, strict=True)
        }

    with small_matrix_threads(rows.features):
        return drive(rounds, answer)


# Runs the rounds of a fit on synthetic rows.
Drive = Callable[[Rounds, FloatArray, TrialNoise], Any]


def of_all_rows(rounds: Rounds, rows: FloatArray, noise: TrialNoise) -> Any:
    return run_trial(rounds, ArrayRows(rows), noise)


@dataclass(frozen=True)
class Simulation:
    """How fits are simulated; deterministic for a seed."""

    fits: int | None = None  # As many as are worth their time, if nothing is said
    seed: int = 0
    # Deviation of each step's noise over that of one curator
    louder: Mapping[Step, float] = field(default_factory=dict)
    drive: Drive = of_all_rows

    def trials(self, simulate: Callable[[int], tuple[float, Any]], numbers: int) -> Trials:
        few = max(_FEWEST, min(_MOST, _ALL_NUMBERS // max(1, numbers)))
        return _gathered(simulate, self.fits or few)

    def noise(self, number: int) -> TrialNoise:
        return TrialNoise((self.seed, number))

    def budgets(
        self, plan: BasePlan, more_rows: float, features: int, columns: int | None = None
    ) -> dict[Step, StepBudget]:
        """Budgets under which fewer rows and features meet noise of the same relative size."""
        fewer = features / plan.features
        narrow = fewer if plan.pure else math.sqrt(fewer)
        moment = plan.noises["moment"].growth(features, plan.features, columns)
        growth: dict[Step, float] = {"center": narrow, "columns": narrow, "moment": moment}
        return {
            step: times(budget, more_rows * growth.get(step, 1.0) / self.louder.get(step, 1.0))
            for step, budget in plan.budgets.items()
        }


ONE_CURATOR = Simulation()


def _gathered(simulate: Callable[[int], tuple[float, Any]], fits: int) -> Trials:
    qualities, nothing, stopped, unscaled, note = [], 0, 0, 0, ""
    try:
        for number in range(fits):
            quality, factors = simulate(number)
            shown = bool(factors.usable.any())
            unscaled += bool(np.any(getattr(factors, "scale", np.ones(0)) == 0))
            nothing += not shown
            if factors.stopped and not shown:
                stopped, note, quality = stopped + 1, str(factors.stopped), 0.0
            qualities.append(min(1.0, max(0.0, float(quality))))
    except PrivacyError as error:
        return Trials(note=error.message)
    if 0 < stopped < fits:
        note = f"in {stopped} of {fits} fits {note}"
    if unscaled > stopped:
        left = f"in {unscaled} of {fits} fits noise hid the scale of some columns, left out"
        note = "; ".join(filter(None, [note, left]))
    return Trials(tuple(qualities), nothing, stopped, note)


def times(budget: StepBudget, factor: float) -> StepBudget:
    if budget.mu is not None:
        return StepBudget(mu=budget.mu * factor)
    assert budget.epsilon is not None
    return StepBudget(epsilon=budget.epsilon * factor)
