"""Explained variances, the noise floor and what to advise: the last step of a fit of PCA."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.models import rounds
from eigenveil.models.explained import (
    Explained,
    consistent_floor,
    descending,
    energy_floor,
    is_known,
    shares_of,
    strength_floor,
    weighted,
    with_eigenvalues,
)
from eigenveil.models.pca.adaptive import ENERGY_QUANTILES, energy_bound
from eigenveil.models.pca.covariates import effects_in_data_units
from eigenveil.models.pca.derived import advice_for_more, fewest
from eigenveil.models.pca.plan import ENERGIES, Plan
from eigenveil.models.pca.second_moment import Factorised
from eigenveil.models.rounds import Answers, Round, RoundState
from eigenveil.models.scale import NormScale
from eigenveil.models.shapes import COUNT_WEIGHT
from eigenveil.moments.accumulators import ComponentEnergy

# Of what shortening rows cuts off the explained variances, the part that is worth saying.
_CUT_SAID = 0.1
# What is said to lie in other directions is so many deviations apart: the sentence is to be false
# in one fit of a hundred thousand at most. A wrong choice of two estimates does no harm.
_SURELY = 5.0
# Where the centre's error may be this part of the rows' energy, nothing can be concluded from it.
_ALL = 0.9
# Rows this much shorter than the point they are taken about are its rounding.
_ROUNDING = 2.0**-48
ALL_HIDDEN = (
    "Nothing stands above the noise. Use a larger epsilon, more rows or fewer features; a public "
    "centre or a public row_bound help, too."
)
"""What would do where no component is usable."""

_State = RoundState[Plan]


@dataclass(frozen=True)
class PCAFactors(rounds.Factors):
    """The result: everything in it is computed from releases."""

    components: NDArray[np.float64]
    mean: NDArray[np.float64]
    # Deviations of its noise; 0 where it is public
    mean_error: NDArray[np.float64]
    scale: NDArray[np.float64]  # What columns are divided by; 0 of those that are left out
    # NaN where noise hides it: of components that are not usable
    explained_variance: NDArray[np.float64]
    explained_variance_ratio: NDArray[np.float64]
    total_variance: float
    rows: float
    rows_error: float  # Deviation of its noise
    # Explained variance that noise, and what is left of the centre's error, show in all but one of
    # a hundred fits
    noise_floor: float
    # Which components stand above it: those whose explained variance exceeds the floor
    usable: NDArray[np.bool_]
    row_bound: float  # Norm at which rows were shortened; 0 where all were divided by their norms
    # Norm at which rows were shortened for the explained variances; 0 where these are not released
    # beside the second moment
    variance_bound: float = 0.0
    # Why the fit ended before its last release, and what would do; empty where it did not
    stopped: str = ""
    advice: str = ""
    # Effects of the covariates on all columns; `None` where there are none
    covariate_effects: NDArray[np.float64] | None = None
    site_means: NDArray[np.float64] | None = None  # What the rows of each site were centred by
    # What the second of two releases of the second moment was of; empty where there was one
    adapted: str = ""
    # What it could have been of, and the part of the captured energy that each was predicted to
    # lose
    predicted_losses: Mapping[str, float] = field(default_factory=dict)
    # Up to where scores are counted along each component, where they are
    score_range: NDArray[np.float64] | None = None

    def first(self, count: int) -> PCAFactors:
        """Of the first components alone; from 1 to as many as there are.

        Rows that were counted by their scores along more components are not drawn by fewer.
        """
        most = len(self.components)
        if isinstance(count, bool) or not isinstance(count, Integral) or not 1 <= count <= most:
            raise DataError("bad-truncation", count=f"{count!r:.40}", most=most)
        names = ("components", "explained_variance", "explained_variance_ratio", "usable")
        seen = self.score_range
        return replace(
            self,
            score_range=None if seen is None or len(seen) > count else seen,
            **{name: getattr(self, name)[:count] for name in names},
        )


@dataclass(frozen=True)
class _Energies:
    """Energy of an average row along the components and in all, in the data's units."""

    along: NDArray[np.float64]
    total: float
    error: float | None = None  # Of each, where they were released; else prepared rows are all
    known: bool = True  # Whether the total stands above its error


def explained(state: _State, found: Factorised) -> Generator[Round, Answers, PCAFactors]:
    """Explained variance in the data's units, from a release of its own where it has a share."""
    plan, k = state.plan, state.plan.n_components
    scale = found.scale
    bound = plan.row_bound if scale is None else energy_bound(state, scale)
    if "variance" in state.budgets and bound is not None:
        energies = yield from _released_energies(state, found, bound)
    else:
        if "variance" in state.budgets:
            _stop_before_variances(state)
        energies = _prepared_energies(state, found)
    assert state.rows is not None
    known, cut, total = True, 0.0, energies.total
    if energies.error is not None:
        cut = 0.0 if scale is None or bound is None else scale.cut_off(bound)
        other, apart = (0.0, math.inf) if scale is None else scale.spread(state.center, bound)
        total, error = weighted(total, energies.error * math.sqrt(k + 1), other, apart)
        known = is_known(total, error)
    total = max(total, np.finfo(float).tiny)
    offset = offset_left(state, found, total)
    hidden = state.advice or ALL_HIDDEN
    energies = replace(energies, total=total, known=known)
    variance, stands, nominal = _standing(state, found, energies, offset, bound)
    if not known or offset > _ALL or is_rounding(state, scale):
        stands = np.zeros(k, dtype=np.bool_)
    total = max(total, float(np.sum(variance)))
    noise_floor = consistent_floor(variance, stands, nominal)
    if found.refined and known:
        before = total
        variance, total, noise_floor = _of_variance_one(state, variance, total, noise_floor)
        bound = None if bound is None else bound * math.sqrt(total / before)
    usable = np.asarray(variance > noise_floor)
    seen = np.where(usable, variance, np.nan)
    # what components of noise explain of these rows or others is nothing to advise on
    advice = state.advice or _cut_short(cut, bound) if usable.any() else hidden
    if plan.variance_share is not None:
        if usable.any():
            advice = advice or advice_for_more(variance / total, usable, plan.variance_share)
        k = fewest(variance / total, usable, plan.variance_share)
    return PCAFactors(
        components=found.components[:k],
        **data_units(state),
        explained_variance=seen[:k],
        explained_variance_ratio=seen[:k] / total,
        total_variance=total,
        noise_floor=noise_floor,
        usable=usable[:k],
        row_bound=found.row_bound,
        variance_bound=0.0 if energies.error is None or bound is None else bound,
        stopped=state.stopped,
        advice=advice,
        adapted="" if found.adapted is None else found.adapted.chosen,
        predicted_losses={} if found.adapted is None else dict(found.adapted.losses),
    )


def _released_energies(
    state: _State, found: Factorised, bound: float
) -> Generator[Round, Answers, _Energies]:
    """Of rows shortened to ``bound``, from a release of their own."""
    k, rule = state.plan.n_components, state.rule(bound)
    energy = ComponentEnergy(rule, found.components, count_weight=state.count_weight)
    release = (yield (state.query(ENERGIES, energy),))[ENERGIES]
    values = release.values
    if state.rows is None:
        state.rows = max(1.0, float(values[-1]) / COUNT_WEIGHT)
        state.rows_error = release.record.noise.deviation(k) / COUNT_WEIGHT
    unit = bound * bound / state.rows
    along, total = values[:k] * unit, float(np.sum(values[: k + 1])) * unit
    error = release.record.noise.deviation(k) * unit
    if found.mended is None:
        return _Energies(along, total, error)
    more = found.mended.seen(found.components)  # what rows with holes have less
    return _Energies(along * more, total * found.mended.seen_in_all, error * float(np.max(more)))


def _prepared_energies(state: _State, found: Factorised) -> _Energies:
    """Prepared rows are all there is: their energy, in units of the bound."""
    k = state.plan.n_components
    strengths = np.ones(k) if found.strengths is None else found.strengths
    rows = state.rows or max(1.0, found.total or float(np.sum(strengths)))
    unit = (found.row_bound or 1.0) ** 2 / rows
    if state.plan.one_pass and found.scale is not None and found.row_bound == 0.0:
        unit *= found.scale.mean_square()  # unit rows have no units of their own
    if state.plan.one_pass and found.mended is not None:
        strengths = found.mended.energies(found.components)
    along = strengths * unit
    state.rows = rows
    return _Energies(along, max((found.total or 0.0) * unit, float(np.sum(along))))


def _standing(
    state: _State, found: Factorised, energies: _Energies, offset: float, bound: float | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_], float]:
    """Variances, descending, which of them stand above the noise, and the floor of that."""
    along, total, error = energies.along, energies.total, energies.error
    if found.strengths is None:
        variance = descending(along)
        nominal = offset * total + energy_floor(along, error)
        return variance, variance > nominal, nominal
    assert state.rows is not None
    plan, scale = state.plan, found.scale
    kept = scale.mean_energy(found.row_bound) if scale is not None else 1.0  # of a prepared row
    whole = state.rows * kept
    floor = strength_floor(found.edge, offset * state.rows, size=plan.features)
    of_moment = None
    unit_rows = plan.features if found.row_bound == 0.0 and not found.refined else None
    if error is not None and found.total is not None:
        apart = energies.known and whole > 0
        if apart:
            said = Explained.released(along, total, error)
            apart = _are_of_other_rows(state, found, said, whole, unit_rows, bound)
        if not apart:
            along, of_moment = with_eigenvalues(
                along,
                total,
                error,
                found.strengths,
                found.edge,
                whole,
                unit_rows_of=unit_rows,
            )
    variance = descending(along, of_moment)
    stands = found.strengths > floor
    if error is not None and found.total is None:
        # a sketch says how much its directions have, not which: more than that may be noise
        shown = shares_of(found.strengths, found.edge, whole, unit_rows_of=unit_rows) * total
        stands &= (variance <= shown + error) | (variance >= energy_floor(along, error))
    return variance, stands, min(1.0, floor / whole) * total


def _are_of_other_rows(
    state: _State,
    found: Factorised,
    said: Explained,
    energy: float,
    unit_rows: int | None,
    longest: float | None,
) -> bool:
    """Whether the eigenvalues say something else than the released variances: the latter hold then.

    Where they surely say more, the state's advice says what to do.
    """
    assert found.strengths is not None
    other = Explained.of_strengths(found.strengths, found.edge, energy, unit_rows_of=unit_rows)
    if not other.exceeds(said, _SURELY):
        return other.exceeds(said) or said.exceeds(other)
    bound = found.row_bound
    made = f"shortened to {bound:.3g}" if bound > 0 else "divided by their norms"
    kept = "" if longest is None else f" up to {longest:.3g} (variance_bound_)"
    way = "" if state.plan.row_norm == "auto" else "'auto', or "
    state.advice = state.advice or (
        f"The components explain {other.share:.0%} of the variance of rows that are {made}, and "
        f"{said.share:.0%} of that of rows with their lengths{kept}, which is what is published: "
        f"long rows lie in other directions. Where these matter, give row_norm={way}a public "
        "number that few rows exceed."
    )
    return True


def _cut_short(cut: float, bound: float | None) -> str:
    """What to say where explained variances are of rows that lost much of theirs."""
    if cut < _CUT_SAID or bound is None:
        return ""
    return (
        f"The explained variances are those of rows shortened to {bound:.3g} (variance_bound_), "
        f"which leaves out about {cut:.0%} of the variance: few rows hold it. A larger epsilon "
        "shows more."
    )


def _of_variance_one(
    state: _State, variance: NDArray[np.float64], total: float, floor: float
) -> tuple[NDArray[np.float64], float, float]:
    """Variances whose total is the number of scaled columns; the state's scales follow."""
    first = state.preparation
    assert first.scale is not None
    count = np.count_nonzero(np.delete(first.scale, list(state.plan.aside)))
    unit = count / total
    # public ranges stay where they are, in other units
    limit = first.limit * math.sqrt(unit) if state.plan.ranged else first.limit
    state.preparation = replace(first, scale=first.scale / math.sqrt(unit), limit=limit)
    state.rescale_centers(math.sqrt(unit))
    return variance * unit, float(count), floor * unit


def _stop_before_variances(state: _State) -> None:
    """No norms were found: there is no bound to release the variances under."""
    state.stopped = state.plan.schedule[-2].ends
    state.advice = (
        f"The explained variances are those of rows of equal length: {state.stopped}. Give a "
        "public row_bound, more rows, or a larger epsilon."
    )


def offset_left(state: RoundState[Any], found: Factorised, total: float) -> float:
    """Energy that the centre's and the effects' errors give to an average prepared row, at most.

    ``total`` is the rows' whole variance, for where no norms are known.
    """
    assert state.rows is not None
    known, squared = 0.0, 0.0
    if found.left is not None:
        known = found.left.remaining() / state.rows
    elif state.plan.centered == "private":
        squared = state.longest_error(state.center_error)
    if state.effects_error > 0:
        squared += state.longest_error(state.effects_error)
    return known + (_share_of(state, found, squared, total) if squared > 0 else 0.0)


def _share_of(state: RoundState[Any], found: Factorised, squared: float, total: float) -> float:
    """Energy that an offset of this squared length gives to an average prepared row, at most."""
    if found.scale is not None:
        return found.scale.share_of_offset(squared, found.row_bound, state.center)
    return 1.0 if squared >= total else squared / total


def is_rounding(state: RoundState[Any], scale: NormScale | None) -> bool:
    """Whether rows differ from the point they are taken about by no more than its rounding."""
    if scale is None or state.center is None:
        return False
    far = float(np.linalg.norm(state.center))
    return scale.quantile(ENERGY_QUANTILES[0]) <= far * _ROUNDING


def in_data_units(state: RoundState[Any]) -> dict[str, Any]:
    """Mean and scale of columns, as whoever has rows needs them, and the number of rows."""
    d, first, error = state.plan.features, state.preparation, state.center_deviations
    scale = np.ones(d) if first.scale is None else first.scale
    mean = np.zeros(d) if state.center is None else state.center * scale
    return {
        "mean": mean if first.offset is None else mean + first.offset,
        "mean_error": np.zeros(d) if error is None else error,
        "scale": scale,
        "rows": state.rows or 1.0,
        "rows_error": state.rows_error,
    }


def site_means(state: RoundState[Any], units: Mapping[str, Any]) -> NDArray[np.float64] | None:
    """The centre of each site's rows, shape (S, D), where sites have their own."""
    if not state.plan.sites:
        return None
    if state.site_offsets is None:  # the fit ended before they were released
        return np.tile(units["mean"], (state.plan.sites, 1))
    return np.asarray(units["mean"] + state.site_offsets * units["scale"])


def data_units(state: _State) -> dict[str, Any]:
    units = in_data_units(state)
    effects = effects_in_data_units(state)
    return units | {"covariate_effects": effects, "site_means": site_means(state, units)}
