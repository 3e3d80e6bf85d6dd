"""All kinds of models that follow from a released covariance, and the way to them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from eigenveil.errors import DataError
from eigenveil.models.derived.base import DerivedModel
from eigenveil.models.derived.linear import DerivedCCA, DerivedDiscriminant, DerivedRegression
from eigenveil.models.derived.options import options_of_kind
from eigenveil.models.derived.structure import (
    DerivedFactors,
    DerivedPartialCorrelation,
    DerivedPCA,
)

DERIVED: Mapping[str, type[DerivedModel]] = {
    kind.kind: kind
    for kind in (
        DerivedPCA,
        DerivedFactors,
        DerivedPartialCorrelation,
        DerivedRegression,
        DerivedCCA,
        DerivedDiscriminant,
    )
}


def derive(covariance: Any, kind: str, **options: Any) -> DerivedModel:
    """What follows from a fitted covariance.

    Parameters
    ----------
    covariance : fitted PrivateCovariance or FederatedCovariance
    kind : {"pca", "factors", "partial-correlation", "regression", "cca", "discriminant"}
    **options
        Those of the kind: of :class:`DerivedRegression`, and so on.

    Raises
    ------
    DataError
        ``unknown-choice``; ``derive-options`` where the kind has no such option, or needs one.
    """
    if kind not in DERIVED:
        raise DataError("unknown-choice", option="kind", given=kind, known=", ".join(DERIVED))
    try:
        made = DERIVED[kind](**options)
    except TypeError:
        known = [each.name for each in options_of_kind(kind)]
        other = [name for name in options if name not in known]
        given = inspect.signature(DERIVED[kind]).parameters
        needed = [
            n for n in known if n not in options and given[n].default is inspect.Parameter.empty
        ]
        why = f"has no option {other[0]}" if other else f"needs {' and '.join(needed)}"
        raise DataError("derive-options", kind=kind, why=why, known=", ".join(known)) from None
    return made.fit(covariance)


class Derives:
    """What follows from a covariance without more of the budget, each a fitted model."""

    def pca(self, n_components: int, on: Any = None, *, correlations: bool = False) -> DerivedPCA:
        """Principal components: :class:`~eigenveil.models.derived.structure.DerivedPCA`."""
        return DerivedPCA(n_components, on, correlations=correlations).fit(self)

    def factors(
        self, n_components: int, on: Any = None, *, rotation: str = "varimax"
    ) -> DerivedFactors:
        """Factors: :class:`~eigenveil.models.derived.structure.DerivedFactors`."""
        return DerivedFactors(n_components, on, rotation=rotation).fit(self)

    def partial_correlation(
        self, on: Any = None, *, ridge: float = 1.0
    ) -> DerivedPartialCorrelation:
        """:class:`~eigenveil.models.derived.structure.DerivedPartialCorrelation`."""
        return DerivedPartialCorrelation(on, ridge=ridge).fit(self)

    def regression(
        self, target: Any = None, on: Any = None, *, ridge: float = 1.0
    ) -> DerivedRegression:
        """Least squares: :class:`~eigenveil.models.derived.linear.DerivedRegression`."""
        return DerivedRegression(target, on, ridge=ridge).fit(self)

    def cca(
        self, left: Any, right: Any, n_components: int = 1, *, ridge: float = 1.0
    ) -> DerivedCCA:
        """Canonical correlations: :class:`~eigenveil.models.derived.linear.DerivedCCA`."""
        return DerivedCCA(left, right, n_components, ridge=ridge).fit(self)

    def discriminant(
        self, group: Any = None, on: Any = None, *, ridge: float = 1.0
    ) -> DerivedDiscriminant:
        """Groups told apart: :class:`~eigenveil.models.derived.linear.DerivedDiscriminant`."""
        return DerivedDiscriminant(group, on, ridge=ridge).fit(self)
