"""A private covariance: its plan, and its rounds."""

from __future__ import annotations

import math
import operator
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from eigenveil.errors import DataError
from eigenveil.models.explained import Array, shrunk, strength_floor
from eigenveil.models.options import Options
from eigenveil.models.pca.plan import OF_SITES, POWER_ROUNDS, Plan
from eigenveil.models.pca.rounds import release_moment
from eigenveil.models.pca.second_moment import Factorised
from eigenveil.models.pca.variances import (
    ALL_HIDDEN,
    in_data_units,
    is_rounding,
    offset_left,
    site_means,
)
from eigenveil.models.pca.ways import MOMENT
from eigenveil.models.plan import BasePlan, check_pure, fields_of, fractions_of
from eigenveil.models.rounds import Answers, Factors, Round, RoundState
from eigenveil.models.scale import NormScale
from eigenveil.models.schedule import COUNTS_OF_HOLES, Step
from eigenveil.moments.preparation import Apart
from eigenveil.privacy.statistics import STATISTICS

# More for the norms than PCA's, for rows that the bound cuts off are lost; none for variances:
# the moment's eigenvalues are the variances here.
_FRACTIONS: dict[Step, float] = {
    "missing": 0.03,
    "columns": 0.43,
    "scale": 0.08,
    "center": 0.10,
    "moment": 0.82,
}
_PURE_FRACTIONS: dict[Step, float] = {
    "missing": 0.08,
    "columns": 0.67,
    "scale": 0.12,
    "center": 0.16,
    "moment": 0.72,
}

# Of a prepared row's squared norm, what all categories' levels have together; and the most
# categories that have any.
_APART, MOST_GROUPS = 0.4, 16


class WholeMomentPlan(Plan):
    """A plan built on PCA's rounds up to a second moment whose rows keep their lengths.

    ``row_norm`` is the public ``row_bound``, or "auto".
    """

    @cached_property
    def refines_scales(self) -> bool:
        """Columns keep the scales that were found: what they are divided by is multiplied again."""
        return False

    def context(self) -> dict[str, Any]:
        return BasePlan.context(self)

    def choose_bound(self, scale: NormScale, *, edge: float) -> float:
        """The bound with the smallest error: energy that is cut off against the noise.

        Cutting rows at b takes no more than the lost mean square off the covariance (Frobenius);
        noise of largest eigenvalue ``edge`` adds about ``edge b^2 / rows``. Never 0: rows divided
        by their norms have no covariance.
        """
        square = scale.mean_square()
        errors = [
            np.hypot(square - scale.mean_energy(bound) * bound**2, edge * bound**2 / scale.rows)
            for bound in map(float, scale.edges)
        ]
        return float(scale.edges[int(np.argmin(errors))])


class CovariancePlan(WholeMomentPlan):
    """Everything about a fit of a covariance that is decided before data is touched.

    ``n_components`` is the number of features.
    """

    task: Literal["covariance"] = "covariance"
    groups: tuple[tuple[int, ...], ...] = Field(default=(), exclude_if=operator.not_)
    row_quantile: float | None = Field(default=None, exclude_if=operator.not_)

    @cached_property
    def apart(self) -> Apart | None:
        """Targets that are categories, in whole sixteenths, which every grid of rows has."""
        if not self.groups:
            return None
        return Apart(self.groups, math.floor(16.0 * math.sqrt(_APART / len(self.groups))) / 16.0)

    def context(self) -> dict[str, Any]:
        return super().context() | ({"groups": self.groups} if self.groups else {})

    def choose_bound(self, scale: NormScale, *, edge: float) -> float:
        if self.row_quantile is not None:
            return scale.quantile(self.row_quantile)
        return super().choose_bound(scale, edge=edge / self.kept)


def make_covariance_plan(
    options: Options, *, features: int, groups: tuple[tuple[int, ...], ...] = (), **context: Any
) -> CovariancePlan:
    if groups and options.missing in COUNTS_OF_HOLES:
        raise options.refused("missing", "holes-of-groups", missing=options.missing)
    if len(groups) > MOST_GROUPS:
        raise DataError("too-many-groups", groups=len(groups), most=MOST_GROUPS)
    quantile = options.row_quantile
    if None not in (quantile, options.row_bound):
        raise options.refused("row_quantile", "quantile-and-bound", bound=options.row_bound)
    fields, usual = fields_of_whole_moment(options, features=features, **context)
    fields |= {"groups": groups, "row_quantile": None if quantile is None else float(quantile)}
    fractions = fractions_of(options, usual)
    return CovariancePlan(n_components=features, fractions=fractions, **fields)


def fields_of_whole_moment(
    options: Options,
    *,
    features: int,
    noise_draws: int = 1,
    variables: int | None = None,
    sites: int = 0,
) -> tuple[dict[str, Any], dict[Step, float]]:
    """Settled fields of such a plan, and the usual shares of its steps."""
    pure, mechanism = options.delta == 0, options.mechanism
    if mechanism == "auto":
        mechanism = STATISTICS["second-moment"].usual(pure=pure).name
    check_pure("second-moment", mechanism, options.delta)
    fields = fields_of(options, features=features, noise_draws=noise_draws, variables=variables)
    fields["sites"] = sites
    bound = fields["row_bound"]
    fields |= {
        "mechanism": mechanism,
        "row_norm": "auto" if bound is None else bound,
        "sketch_columns": features,
        "power_rounds": POWER_ROUNDS,
    }
    return fields, _steps(options, fields)


def _steps(options: Options, fields: Mapping[str, Any]) -> dict[Step, float]:
    """The usual shares of the steps up to a second moment."""
    usual = dict(_PURE_FRACTIONS if options.delta == 0 else _FRACTIONS)
    if options.get("missing", "leave-out") not in COUNTS_OF_HOLES:
        del usual["missing"]
    if not (fields["scaled"] == "private" and not fields["ranged"]):
        del usual["columns"]
    if fields["sites"]:
        usual["center"] *= OF_SITES
    if fields["centered"] != "private":
        del usual["center"]
        usual["scale"] /= 2  # there is one histogram then
    if fields["row_bound"] is not None and fields["centered"] == "private":
        del usual["scale"]
    return usual


# -- Private mean and covariance as a generator of rounds: PCA's up to the second moment.
#
# Nothing else is released, so that nothing new is to be proved. What follows is post-processing:
# the eigenvalues are freed of noise and the matrix is put together again.


@dataclass(frozen=True)
class CovarianceFactors(Factors):
    """The result: everything in it is computed from releases."""

    covariance: Array  # Symmetric, positive semidefinite, in the data's units squared
    mean: Array
    mean_error: Array  # Deviations of its noise; 0 where it is public
    usable: NDArray[np.bool_]  # Which eigenvectors, by descending eigenvalue, stand above the noise
    # Variance that noise, and what is left of the centre's error, show in all but one of a hundred
    # fits; in squared scales
    noise_floor: float
    scale: Array  # What columns were divided by; 0 of those that were left out
    rows: float
    rows_error: float  # Deviation of its noise
    row_bound: float  # Norm at which centred rows were shortened
    # Share of the rows' variance that this took away, by the released norms that stand out from the
    # noise: what is longer and rarer is not in it. `None` where none were released.
    clipped_energy: float | None
    site_means: Array | None = None  # What the rows of each site were centred by
    # Why the fit ended before its last release, and what would do; empty where it did not
    stopped: str = ""
    advice: str = ""

    @property
    def hidden(self) -> NDArray[np.bool_]:
        """Which columns' variance is no larger than what noise alone shows of it."""
        found = np.diag(self.covariance) <= self.noise_floor * self.scale**2
        return np.asarray(found | (self.scale == 0))


def private_covariance(
    plan: CovariancePlan,
    *,
    public_center: Array | None = None,
    variables: Array | None = None,
    **begun: Any,
) -> Generator[Round, Answers, CovarianceFactors]:
    state = RoundState(plan, **begun)
    if plan.apart is not None and not plan.finds_scales:
        state.preparation = plan.apart.left_out(state.preparation, plan.features)
    found = yield from release_moment(state, public_center, variables=variables)
    clipped = None if found is None else found.clipped_energy
    if found is not None:  # what a prepared row of norm 1 is, beside its levels
        found = replace(found, row_bound=found.row_bound / math.sqrt(plan.kept))
    values, floor = released_variances(state, found)
    vectors = found.components if found is not None else np.eye(plan.features)
    usable = (values > floor) & (found is not None and not is_rounding(state, found.scale))
    covariance = (vectors.T * values) @ vectors
    units = in_data_units(state)
    if plan.apart is not None and found is not None:
        units |= _of_levels(state, plan.apart, found, units)
    covariance *= np.multiply.outer(units["scale"], units["scale"])
    made = CovarianceFactors(
        covariance=0.5 * (covariance + covariance.T),
        **units,
        site_means=site_means(state, units),
        usable=usable,
        noise_floor=floor,
        row_bound=found.row_bound if found is not None else 0.0,
        clipped_energy=clipped,
        stopped=state.stopped,
        advice=state.advice if usable.any() or state.advice else ALL_HIDDEN,
    )
    return made if made.advice or not made.hidden.any() else replace(made, advice=_of_hidden(made))


def _of_levels(
    state: RoundState[CovariancePlan], apart: Apart, found: Factorised, units: dict[str, Any]
) -> dict[str, Any]:
    """Mean and scale with those of categories' levels: parts of the rows, by exact counts."""
    places, release = apart.columns, found.answers[MOMENT]
    names = ("mean", "mean_error", "scale")
    mean, error, scale = (np.array(units[name]) for name in names)
    counts = np.diag(release.values)[places] / apart.length**2
    noise = release.record.noise.deviation(state.plan.features) / apart.length**2
    rows = float(units["rows"])
    mean[places] = np.clip(counts / rows, 0.0, 1.0)
    error[places] = np.hypot(noise, mean[places] * units["rows_error"]) / rows
    scale[places] = 1.0 / (apart.length * found.row_bound) if found.row_bound > 0 else 0.0
    return dict(zip(names, (mean, error, scale), strict=True))


def _of_hidden(made: CovarianceFactors) -> str:
    """What would do where noise hides columns' variances."""
    count = int(np.count_nonzero(made.hidden))
    which = "a column" if count == 1 else f"{count} columns"
    scaled = bool(np.any(made.scale != 1.0))
    more = (
        "" if scaled else "scale='private' or ranges=, which give every column its own scale, or "
    )
    return (
        f"Noise hides the variance of {which}, of which correlation_ is NaN. Use {more}a larger "
        "epsilon, or leave such columns out."
    )


def released_variances(state: RoundState[Any], found: Factorised | None) -> tuple[Array, float]:
    """Variances along the eigenvectors in the data's units, and the floor that noise shows."""
    if found is None or found.row_bound <= 0:  # the norms show nothing: rows were divided by theirs
        return np.zeros(state.plan.n_components), 0.0
    assert state.rows is not None
    assert found.strengths is not None
    unit = found.row_bound**2 / state.rows
    offset = offset_left(state, found, (found.total or 0.0) * unit) * state.rows
    floor = strength_floor(found.edge, offset, size=state.plan.features)
    return shrunk(found.strengths, found.edge) * unit, floor * unit
