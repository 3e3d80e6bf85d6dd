"""The prediction of a fit of PCA: the fit itself, run on synthetic rows.

Rows are Gaussian with the spectrum the user expects. Where there are more rows or features than
are worth simulating, fewer are drawn and every budget is scaled so that the noise keeps its size
against them: noise of a sum shrinks relative to it as rows are added, and its largest eigenvalue
grows with the features as random-matrix theory states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError, PrivacyError
from eigenveil.linalg.subspace import captured_energy
from eigenveil.models.driver import run_rounds
from eigenveil.models.pca.plan import Plan
from eigenveil.models.pca.rounds import Factors, private_pca
from eigenveil.models.pca.ways import DIRECTIONS
from eigenveil.models.plan import COLUMN_RANGES, Step
from eigenveil.models.rounds import Answers, Round
from eigenveil.models.shapes import rehearse
from eigenveil.moments.rows import AS_IT_IS, FloatArray, Preparation
from eigenveil.moments.source import ArrayRows, block_rows
from eigenveil.noise.source import RandomSource, SeededSource
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.mechanisms import MECHANISMS
from eigenveil.tables.scales import rows_needed

_MOST_ROWS = 20_000
_MOST_FEATURES = 800
_MOST_FEATURES_OF_DIRECTIONS = 300
# Of the variance, by as many components as stand above a noise that is not known yet.
_MOST_SHARE = 0.9
# Public ranges are taken to be so many deviations to either side.
_RANGE = 3.0

# Runs the rounds of a fit on synthetic rows.
Drive = Callable[[Generator[Round, Answers, Factors], FloatArray, RandomSource], Factors]


@dataclass(frozen=True)
class Prediction:
    """What one mechanism would give.

    Attributes
    ----------
    captured_energy : float or None
        Predicted fraction of the exact subspace's energy; ``None`` where it is not predicted.
    note : str
        Why not, or what went wrong in the simulation.
    released_values, memory_bytes : int
        Numbers in the released moment, and peak memory beyond the input.
    noise_rows : float
        Size of the moment's noise, in rows' largest contributions.
    """

    captured_energy: float | None
    note: str
    released_values: int
    memory_bytes: int
    noise_rows: float


def parse_spectrum(text: str, features: int) -> NDArray[np.float64]:
    """Eigenvalues of a covariance, shape (features,), descending, from a description.

    ``power:a``: ``j**-a``. ``exponential:t``: ``exp(-j / t)``. ``spike:k:s``: k equal directions
    that hold the share s of the energy, the rest spread evenly. A comma-separated list of numbers
    gives the leading eigenvalues themselves; the others are 0.

    Raises
    ------
    DataError
        When the text is none of these.
    """
    index = np.arange(1, features + 1, dtype=np.float64)
    kind, _, rest = text.partition(":")
    try:
        match kind:
            case "power":
                values = index ** -float(rest)
            case "exponential":
                values = np.exp(-index / float(rest))
            case "spike":
                count_text, _, share_text = rest.partition(":")
                count, share = int(count_text), float(share_text)
                if not (1 <= count < features and 0 < share < 1):
                    raise ValueError(text)
                values = np.full(features, (1 - share) / (features - count))
                values[:count] = share / count
            case _:
                leading = np.sort([float(part) for part in text.split(",")])[::-1]
                values = np.zeros(features)
                values[: leading.size] = leading[:features]
    except (ValueError, OverflowError, ZeroDivisionError):
        raise _bad_spectrum(text) from None
    if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
        raise _bad_spectrum(text)
    return values


def _bad_spectrum(text: str) -> DataError:
    return DataError(
        f"spectrum = {text!r} is not understood.",
        hint="Give power:1.0, exponential:20, spike:5:0.8, or eigenvalues such as 5,3,1,0.5.",
        code="bad-spectrum",
    )


def predict(
    plan: Plan,
    spectrum: NDArray[np.float64],
    *,
    rows: int,
    mean_norm: float = 0.0,
    seed: int = 0,
    louder: Mapping[Step, float] | None = None,
    drive: Drive | None = None,
) -> Prediction:
    """Run the plan on synthetic rows; deterministic for a seed.

    Parameters
    ----------
    plan : Plan
    spectrum : array of shape (features,)
        Eigenvalues of the covariance, up to a factor.
    rows : int
    mean_norm : float
        Norm of the rows' mean, in units of the root mean square norm of a centred row. A far-off
        mean costs more noise to remove.
    louder : mapping of step to float, optional
        Factors on the noise of steps, for parties that draw more together than one curator would.
    drive : callable, optional
        Runs the rounds, for parties that answer them each in its own way.
    """
    note, energy = "", None
    try:
        energy = _simulate(
            plan, spectrum, rows, mean_norm, seed, louder or {}, drive or _of_all_rows
        )
    except PrivacyError as error:
        note = error.message
    except _NotPredictedError as reason:
        note = str(reason)
    needed = rows_for_scales(plan)
    if needed > rows:
        note = "; ".join(filter(None, [note, f"scales of columns take about {needed:.2g} rows"]))
    values = released_values(plan)
    return Prediction(
        captured_energy=energy,
        note=note,
        released_values=values,
        memory_bytes=memory_bytes(plan),
        noise_rows=_noise_rows(plan.budgets()["moment"]),
    )


def components_expected(plan: Plan, spectrum: NDArray[np.float64]) -> int:
    """How many components exact PCA would have; fewer than the features, where they are counted."""
    if plan.variance_share is None:
        return plan.n_components
    shares = np.cumsum(np.sort(spectrum)[::-1]) / np.sum(spectrum)
    count = int(np.searchsorted(shares, min(plan.variance_share, _MOST_SHARE))) + 1
    return max(1, min(count, plan.n_components, plan.features - 1))


def rows_for_scales(plan: Plan) -> float:
    """Rows with which columns' scales are usually found; 0 where none are looked for."""
    if not plan.finds_scales:
        return 0.0
    records = {record.name: record for record in rehearse(plan, plan.budgets(), {})}
    return rows_needed(records[COLUMN_RANGES])


def released_values(plan: Plan) -> int:
    """Numbers in the released second moment: what a site would send."""
    return plan.way.largest(plan)


def memory_bytes(plan: Plan) -> int:
    """Peak memory of a fit beyond its input, counted from the arrays it makes.

    The D x D route: sum, 64-bit total, noise, release and its copy for the solver, and the rows
    that wait for a product; a sketch has D x R in their place. Of two releases the first is kept,
    with the matrix of the second, its integers and its directions.
    """
    d = plan.features
    rows = 2 * max(4096, block_rows(d)) * d * 8
    width = plan.way.columns(plan)
    if width is not None:
        return 6 * 8 * d * width + 4 * block_rows(d) * d * 8
    more = 5 if plan.way.seen_columns(plan) else 0
    return (5 + more) * 8 * d * d + rows * (2 if more else 1)


class _NotPredictedError(Exception):
    """No prediction, and why."""


def _of_all_rows(
    rounds: Generator[Round, Answers, Factors], rows: FloatArray, source: RandomSource
) -> Factors:
    return run_rounds(rounds, ArrayRows(rows), source).factors


def _simulate(
    plan: Plan,
    spectrum: NDArray[np.float64],
    rows: int,
    mean_norm: float,
    seed: int,
    louder: Mapping[Step, float],
    drive: Drive,
) -> float:
    if plan.way is DIRECTIONS and plan.features > _MOST_FEATURES_OF_DIRECTIONS:
        raise _NotPredictedError(f"not simulated beyond {_MOST_FEATURES_OF_DIRECTIONS} features")
    features = min(plan.features, _MOST_FEATURES)
    if plan.n_components > features // 2 and features < plan.features:
        raise _NotPredictedError(f"not simulated beyond {features // 2} components")
    drawn = min(rows, _MOST_ROWS)
    leading = np.sort(spectrum)[::-1][:features]
    small = plan.model_copy(
        update={
            "n_components": components_expected(plan, leading),
            "variance_share": None,
            "features": features,
            "sketch_columns": min(plan.sketch_columns, features),
            "rows": drawn if plan.rows is not None else None,
            "row_bound": None if plan.row_bound is None else 2.0,
            "row_norm": plan.row_norm if isinstance(plan.row_norm, str) else 2.0,
            "variables": min(plan.variables, features),
            "covariates": (),  # of rows without their effects
        }
    )
    rng = np.random.default_rng(seed)
    synthetic = rng.standard_normal((drawn, features), dtype=np.float32)
    synthetic *= np.sqrt(leading / leading.sum()).astype(np.float32)  # mean squared norm 1
    preparation = AS_IT_IS
    if plan.scaled != "no" or plan.ranged:  # the spectrum is that of columns of equal variance
        basis = np.linalg.qr(rng.standard_normal((features, features)))[0].astype(np.float32)
        synthetic = synthetic @ basis
        deviations = synthetic.std(axis=0)
        synthetic /= deviations * np.float32(math.sqrt(features))
        public = np.full(features, 1.0 / math.sqrt(features))
        if plan.ranged:
            preparation = Preparation(np.zeros(features), _RANGE * public, limit=1.0)
        elif plan.scaled == "public":
            preparation = Preparation(scale=public)
    exact = (synthetic.T @ synthetic).astype(np.float64)
    if plan.centered == "private":
        direction = rng.standard_normal(features)
        synthetic += (mean_norm * direction / np.linalg.norm(direction)).astype(np.float32)
    budgets = _scaled_budgets(plan, rows / drawn, features)
    rounds = private_pca(
        small,
        stored_single=True,
        public_center=np.zeros(features) if plan.centered == "public" else None,
        preparation=preparation,
        max_norm=None if plan.row_norm != "max" else float(np.linalg.norm(synthetic, axis=1).max()),
        budgets={step: _times(b, 1.0 / louder.get(step, 1.0)) for step, b in budgets.items()},
    )
    factors = drive(rounds, synthetic, SeededSource(rng))
    if factors.stopped and not factors.usable.any():
        raise _NotPredictedError(factors.stopped)
    return captured_energy(exact, factors.components)


def _scaled_budgets(plan: Plan, more_rows: float, features: int) -> dict[Step, StepBudget]:
    """Budgets under which fewer rows and features meet noise of the same relative size."""
    budgets = {step: _times(b, more_rows) for step, b in plan.budgets().items()}
    fewer = features / plan.features
    noise = MECHANISMS[plan.kind("moment")]
    growth = noise.growth(features, plan.features, plan.way.columns(plan))
    budgets["moment"] = _times(budgets["moment"], growth)
    if "center" in budgets:
        budgets["center"] = _times(budgets["center"], math.sqrt(fewer) if not plan.pure else fewer)
    if "columns" in budgets:
        budgets["columns"] = _times(budgets["columns"], fewer if plan.pure else math.sqrt(fewer))
    return budgets


def _times(budget: StepBudget, factor: float) -> StepBudget:
    if budget.mu is not None:
        return StepBudget(mu=budget.mu * factor)
    assert budget.epsilon is not None
    return StepBudget(epsilon=budget.epsilon * factor)


def _noise_rows(budget: StepBudget) -> float:
    loss = budget.mu if budget.mu is not None else budget.epsilon
    assert loss is not None
    return 1.0 / loss
