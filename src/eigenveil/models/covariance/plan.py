"""What a fit of a covariance is asked to do: PCA's plan of a whole second moment."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np

from eigenveil.models.options import Options
from eigenveil.models.pca.plan import POWER_ROUNDS, Plan
from eigenveil.models.plan import BasePlan, check_pure, fields_of, fractions_of
from eigenveil.models.scale import NormScale
from eigenveil.models.schedule import COUNTS_OF_HOLES, Step
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


class CovariancePlan(Plan):
    """Everything about a fit of a covariance that is decided before data is touched.

    ``n_components`` is the number of features; ``row_norm`` is the public ``row_bound``, or "auto".
    """

    task: Literal["covariance"] = "covariance"

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


def make_covariance_plan(
    options: Options, *, features: int, noise_draws: int = 1, variables: int | None = None
) -> CovariancePlan:
    pure, mechanism = options.delta == 0, options.mechanism
    if mechanism == "auto":
        mechanism = STATISTICS["second-moment"].usual(pure=pure).name
    check_pure("second-moment", mechanism, options.delta)
    fields = fields_of(options, features=features, noise_draws=noise_draws, variables=variables)
    bound, center = fields["row_bound"], fields["centered"]
    usual = dict(_PURE_FRACTIONS if pure else _FRACTIONS)
    if options.missing not in COUNTS_OF_HOLES:
        del usual["missing"]
    if not (fields["scaled"] == "private" and not fields["ranged"]):
        del usual["columns"]
    if center != "private":
        del usual["center"]
        usual["scale"] /= 2  # there is one histogram then
    if bound is not None and center == "private":
        del usual["scale"]
    return CovariancePlan(
        n_components=features,
        mechanism=mechanism,
        row_norm="auto" if bound is None else bound,
        fractions=fractions_of(options, usual),
        sketch_columns=features,
        power_rounds=POWER_ROUNDS,
        **fields,
    )
