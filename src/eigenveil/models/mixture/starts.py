"""The start of a mixture from a released histogram of scores, as rounds ask for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eigenveil.models.mixture.cells import Cells, CellShape
from eigenveil.models.mixture.covariances import Covariances, SphericalCovariances
from eigenveil.models.mixture.em import MixtureComponents
from eigenveil.models.mixture.plan import CELLS_OF_A_LINE, SCORES, SIDES_OF_A_PLANE, MixturePlan
from eigenveil.models.mixture.scores import InCells, Known, ScoreGrid, components_of, known_from
from eigenveil.models.mixture.shrinkage import Spectrum
from eigenveil.models.rounds import RoundState, SumQuery
from eigenveil.models.score_query import score_query
from eigenveil.models.tensors.whitening import PairMoment, shown
from eigenveil.moments.rows import RowRule

# What is shown of a variance is not less, in units of prepared rows.
LEAST_VARIANCE = 1e-9

State = RoundState[MixturePlan]


@dataclass(frozen=True)
class PlacedRows:
    """Where rows are taken from, and how long they may be from there.

    ``offset`` is the rows' mean from there, in units of the bound, where it is known.
    """

    origin: NDArray[np.float64]
    bound: float
    offset: NDArray[np.float64] | None


def finest(rule: RowRule) -> RowRule:
    """Rows as they are prepared for sums of expectation maximisation."""
    return replace(rule, precision="double", extra_bits=0)


@dataclass(frozen=True)
class Start:
    """Components, which of them pay for themselves, and how well they are known."""

    components: MixtureComponents
    there: NDArray[np.bool_]
    known: Known


def query_of_scores(state: State, grid: ScoreGrid, rule: RowRule) -> SumQuery:
    """For the histogram of the rows' scores about their centre."""
    seen = replace(finest(rule), center=state.center, basis=grid.basis, clip=grid.clip)
    return score_query(state, SCORES, seen, line=CELLS_OF_A_LINE, plane=SIDES_OF_A_PLANE)


def in_cells(
    state: State, pair: PairMoment, about: PairMoment, grid: ScoreGrid, cells: Cells
) -> InCells | None:
    """What the cells show, where rows differ in no more directions than these."""
    plan, directions = state.plan, grid.factors.size
    if plan.features > directions and not (shown(about) and about.above <= directions):
        return None
    return components_of(
        cells,
        CellShape(round=plan.shape.by_moments, shared=plan.shape.shared),
        count=plan.n_components,
        auto=plan.auto_components,
        least=max(1, _by_moments(plan, pair) if plan.auto_components else 1),
    )


def _by_moments(plan: MixturePlan, pair: PairMoment) -> int:
    """Components that the moments show clearly: as many more stand out by chance as not."""
    return min(pair.core.shape[0], pair.above) if plan.shape.by_moments else 0


def starts_in_cells(plan: MixturePlan, pair: PairMoment, seen: InCells) -> bool:
    """Whether cells show more components than moments, or candidates, would."""
    count, by_moments = seen.found.weights.size, _by_moments(plan, pair)
    if plan.shape.by_moments:
        return count != by_moments if plan.auto_components else count > by_moments
    if plan.auto_components:  # if cells are too few to tell, candidates do
        return seen.paying < seen.most or seen.most == plan.n_components
    return count == plan.n_components


def lifted(
    state: State,
    place: PlacedRows,
    pair: PairMoment,
    about: PairMoment,
    grid: ScoreGrid,
    seen: InCells,
) -> Start:
    """Components of the plane, among rows as sums have them."""
    plan, found, rows = state.plan, seen.found, state.rows or 1.0
    center = np.zeros(plan.features) if state.center is None else state.center
    inside = found.means @ grid.directions.T
    means = (center - place.origin) / place.bound + inside
    count = found.weights.size
    if plan.noise_variance is not None:
        variance = plan.noise_variance / place.bound**2
    elif plan.features > grid.factors.size:
        variance = about.bulk / rows
    else:
        variance = float(found.weights @ np.mean(np.diagonal(found.covariances, 0, 1, 2), axis=1))
    variance = max(variance, LEAST_VARIANCE)
    covariances: Covariances
    if plan.shape.by_moments:
        covariances = SphericalCovariances(np.full(count, variance), count, plan.features)
    else:
        spectrum = Spectrum.of(pair, rows)
        covariances = plan.shape.within(spectrum, inside, found.weights)
    components = MixtureComponents(
        means=means, weights=found.weights, covariances=covariances, counts=found.weights * rows
    )
    return Start(components, seen.there, known_from(grid, found, about, rows))
