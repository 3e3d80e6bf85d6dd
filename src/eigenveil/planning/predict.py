"""The prediction of a fit of PCA: the fit itself, run on synthetic rows.

Rows are Gaussian with the spectrum the user expects. Where there are more rows or features than
are worth simulating, fewer are drawn and every budget is scaled so that the noise keeps its size
against them: noise of a sum shrinks relative to it as rows are added, and its largest eigenvalue
grows with the features as random-matrix theory states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.linalg.subspace import captured_energy
from eigenveil.markup import fragment, html_of, node, table
from eigenveil.models.pca.plan import Plan
from eigenveil.models.pca.rounds import private_pca
from eigenveil.models.pca.variances import PCAFactors
from eigenveil.models.pca.ways import DIRECTIONS
from eigenveil.moments.norms import FloatArray
from eigenveil.moments.preparation import AS_IT_IS, Preparation
from eigenveil.moments.source import block_rows
from eigenveil.planning.trials import ONE_CURATOR, Scenario, Simulation, Trials
from eigenveil.privacy.budget import StepBudget

_NUMBERS = ("captured energy", "shows nothing", "noise (rows)", "message", "memory")
_MEANING = (
    "Simulated on Gaussian rows: no row of yours was read. Captured energy is of the exact "
    "subspace's, ± its standard error; shows nothing is the probability that no component is "
    "usable; noise is its scale in the largest contribution a row can make."
)


def prediction_html(found: Prediction) -> str:
    """What a fit would give, as 'eigenveil plan' says it."""
    trials, energy = found.trials, "-"
    if found.captured_energy is not None:
        error = trials.quality_error
        energy = f"{found.captured_energy:.3f}" + ("" if error is None else f" ± {error:.1g}")
    sizes = (8 * found.released_values, found.memory_bytes)
    cells = (
        energy,
        trials.text(),
        f"{found.noise_rows:.3g}",
        *map(size_text, sizes),
    )
    title = f"Prediction from {trials.fits} simulated fits"
    numbers = table(_NUMBERS, [cells], right=(True,) * len(_NUMBERS), style=True)
    note = node("div", f"note: {found.note}") if found.note else None
    return html_of(fragment(title, numbers, note, node("div", _MEANING)))


def size_text(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:,.3g} GiB"


# Rows that are drawn: the same energies come out, to 0.002, as of four times as many.
MOST_ROWS = 5_000
_MOST_FEATURES = 800
_MOST_FEATURES_OF_DIRECTIONS = 300
# Of the variance, by as many components as stand above a noise that is not known yet.
_MOST_SHARE = 0.9
# Public ranges are taken to be so many deviations to either side.
_RANGE = 3.0


@dataclass(frozen=True)
class Prediction:
    """What one mechanism would give."""

    trials: Trials  # The simulated fits
    released_values: int  # Numbers in the released moment, and peak memory beyond the input
    memory_bytes: int
    noise_rows: float  # Size of the moment's noise, in rows' largest contributions

    @property
    def captured_energy(self) -> float | None:
        """Predicted fraction of the exact subspace's energy, the mean of the simulated fits.

        ``None`` where it is not predicted, or every fit stopped with nothing.
        """
        return self.trials.shown_quality

    @property
    def note(self) -> str:
        return self.trials.note

    def _repr_html_(self) -> str:
        return prediction_html(self)


def parse_spectrum(text: str, features: int) -> NDArray[np.float64]:
    """Eigenvalues of a covariance, shape (features,), descending, from a description.

    ``power:a``: ``j**-a``. ``exponential:t``: ``exp(-j / t)``. ``spike:k:s``: k equal directions
    that hold the share s of the energy, the rest spread evenly. A comma-separated list of numbers
    gives the leading eigenvalues themselves; the others are 0.
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
        raise DataError("bad-spectrum", text=text) from None
    if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
        raise DataError("bad-spectrum", text=text)
    return values


def predict(
    plan: Plan,
    spectrum: NDArray[np.float64],
    *,
    rows: int,
    mean_norm: float = 0.0,
    fits: int | None = None,
) -> Prediction:
    """Run the plan on synthetic rows; deterministic."""
    return Prediction(
        trials=try_pca(plan, Scenario(rows, spectrum, mean_norm), Simulation(fits)),
        released_values=released_values(plan),
        memory_bytes=memory_bytes(plan),
        noise_rows=_noise_rows(plan.budgets["moment"]),
    )


def components_expected(plan: Plan, spectrum: NDArray[np.float64]) -> int:
    """How many components exact PCA would have; fewer than the features, where they are counted."""
    if plan.variance_share is None:
        return plan.n_components
    shares = np.cumsum(np.sort(spectrum)[::-1]) / np.sum(spectrum)
    count = int(np.searchsorted(shares, min(plan.variance_share, _MOST_SHARE))) + 1
    return max(1, min(count, plan.n_components, plan.features - 1))


def released_values(plan: Plan) -> int:
    """Numbers in the released second moment: what a site would send."""
    return plan.way.largest(plan)


def memory_bytes(plan: Plan) -> int:
    """Peak memory of a fit beyond its input, counted from the arrays it makes."""
    # sum, 64-bit total, noise, release and its copy for the solver, and the rows that wait for a
    # product; of two releases the first is kept, with the second's matrix, integers and directions
    d, width = plan.features, plan.way.columns(plan)
    rows = 2 * max(4096, block_rows(d)) * d * 8
    if width is not None:
        return 6 * 8 * d * width + 4 * block_rows(d) * d * 8
    more = 5 if plan.way.seen_columns(plan) else 0
    return (5 + more) * 8 * d * d + rows * (2 if more else 1)


def try_pca(plan: Plan, data: Scenario, how: Simulation = ONE_CURATOR) -> Trials:
    """Simulated fits of PCA; their quality is the captured energy."""
    features = min(plan.features, _MOST_FEATURES)
    # directions that are not drawn have a part of each row's energy, and rows that are drawn have
    # norm 1 without them: the moment's noise is so much larger beside the others
    leading = np.sort(data.spectrum)[::-1][:features]
    undrawn = float(data.spectrum.sum() / leading.sum())
    moment = undrawn * how.louder.get("moment", 1.0)
    how = replace(how, louder={**how.louder, "moment": moment})
    if plan.way is DIRECTIONS and plan.features > _MOST_FEATURES_OF_DIRECTIONS:
        return Trials(note=f"not simulated beyond {_MOST_FEATURES_OF_DIRECTIONS} features")
    if plan.n_components > features // 2 and features < plan.features:
        return Trials(note=f"not simulated beyond {features // 2} components")
    drawn = min(data.rows, MOST_ROWS)
    small = _small_plan(plan, data, features)
    budgets = how.budgets(plan, data.rows / drawn, features, plan.way.columns(plan))

    def simulate(number: int) -> tuple[float, PCAFactors]:
        rows = rows_of_spectrum(plan, data, features, drawn, (how.seed, number))
        rounds = private_pca(
            small,
            public_center=np.zeros(features) if plan.centered == "public" else None,
            preparation=rows.preparation,
            max_norm=rows.longest if plan.row_norm == "max" else None,
            budgets=budgets,
        )
        factors = how.drive(rounds, rows.values, how.noise(number))
        return captured_energy(rows.moment, factors.components), factors

    return how.trials(simulate, drawn * features)


def _small_plan(plan: Plan, data: Scenario, features: int) -> Plan:
    leading = np.sort(data.spectrum)[::-1][:features]
    return plan.model_copy(
        update={
            "n_components": components_expected(plan, leading),
            "variance_share": None,
            "features": features,
            "sketch_columns": min(plan.sketch_columns, features),
            "row_bound": None if plan.row_bound is None else 2.0,
            "row_norm": plan.row_norm if isinstance(plan.row_norm, str) else 2.0,
            "variables": min(plan.variables, features),
            "covariates": (),  # of rows without their effects
            "scores_by": (),
            "sites": 0,  # of rows without sites' means
            "precision": "single",  # what it cannot show is not used, and fits take half the time
        }
    )


@dataclass(frozen=True)
class SyntheticRows:
    """Rows that were drawn: of mean squared norm 1 about their mean, or columns of variance 1/D."""

    values: FloatArray
    moment: NDArray[np.float64]  # Of the rows about their mean
    preparation: Preparation  # Of the public scales or ranges that the plan has

    @property
    def longest(self) -> float:
        return float(np.linalg.norm(self.values, axis=1).max())


def rows_of_spectrum(
    plan: Plan, data: Scenario, features: int, drawn: int, seed: tuple[int, ...]
) -> SyntheticRows:
    """Gaussian rows with the expected spectrum: the first of as many as are asked for.

    In directions drawn by chance: that a spectrum's directions were the columns is not known.
    """
    rng = np.random.default_rng((*seed, 0))  # of the rows alone: more rows begin with the same
    leading = np.sort(data.spectrum)[::-1][:features]
    synthetic = rng.standard_normal((drawn, features), dtype=np.float32)
    synthetic *= np.sqrt(leading / leading.sum()).astype(np.float32)  # mean squared norm 1
    rng = np.random.default_rng((*seed, 1))
    basis = np.linalg.qr(rng.standard_normal((features, features)))[0].astype(np.float32)
    synthetic, preparation = synthetic @ basis, AS_IT_IS
    if plan.scaled != "no" or plan.ranged:  # the spectrum is that of columns of equal variance
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
        offset = data.mean_norm * direction / np.linalg.norm(direction)
        synthetic += offset.astype(np.float32)
    return SyntheticRows(synthetic, exact, preparation)


def _noise_rows(budget: StepBudget) -> float:
    loss = budget.mu if budget.mu is not None else budget.epsilon
    assert loss is not None
    return 1.0 / loss
