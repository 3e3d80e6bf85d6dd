"""A private PCA or covariance beside the exact one of the rows themselves. Not private."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse.linalg import svds

from eigenveil.models.beside import BesideExact, count_notes, finite, held
from eigenveil.models.intervals.asked import intervals_of
from eigenveil.models.intervals.bars import Array, Intervals, numbered
from eigenveil.models.result import Result, reciprocal

# Beyond so many columns leading directions are found without the whole second moment.
_WHOLE = 4096
_ROUNDING = 2.0**-44
_MEANS = "distance of the means, in deviations of a row"
# Pairs of columns that are shown of a covariance: those that correlate most.
_PAIRS = 12

_OF_COMPONENTS = {
    "share": "released part of the variance",
    "lower": "and its 95 % interval",
    "upper": "and its 95 % interval",
    "as_prepared": "the exact part along this component, of the rows shortened as in the fit",
    "whole_rows": "the same of whole rows",
    "exact": "part along the exact component of that rank, of whole rows",
    "degrees": "angle to that exact component",
    "score_correlation": "correlation of the scores with the exact ones",
    "captured": "energy of the first components, as a part of that of as many exact ones",
}
_OF_PAIRS = {
    "released": "released correlation",
    "lower": "95 % interval about the released moment's own, not always about the published one",
    "upper": "the same",
    "as_prepared": "exact correlation of the rows shortened as in the fit",
    "whole_rows": "exact correlation of whole rows",
}


@dataclass(frozen=True)
class ExactRows:
    """Rows about the released mean, in released scales, less what covariates explain."""

    about: Array  # (n, D)
    apart: tuple[int, ...] = ()  # Columns that are not shortened, and of no row's length

    @property
    def count(self) -> int:
        return int(self.about.shape[0])

    def shortened(self, bound: float) -> Array:
        """Shortened to this length, which is 1 then; divided by their lengths where it is 0."""
        others = np.delete(self.about, self.apart, axis=1)
        lengths = np.maximum(np.linalg.norm(others, axis=1), np.finfo(float).tiny)
        found = self.about / np.maximum(lengths, bound)[:, None]
        found[:, self.apart] = self.about[:, self.apart] / bound if self.apart else 0.0
        return np.asarray(found)

    @cached_property
    def away(self) -> Array:
        """About their own mean."""
        return _centred(self.about)

    @property
    def total(self) -> float:
        return float(np.sum(self.away**2)) / self.count

    @property
    def mean_off(self) -> float | None:
        """How far the released mean is from the exact one, in deviations of a row."""
        return _part(np.linalg.norm(self.about.mean(axis=0)), np.sqrt(self.total))

    def leading(self, count: int) -> tuple[Array, Array]:
        """Largest variances, and their directions as rows."""
        if self.away.shape[1] <= _WHOLE:
            return _leading(self.away.T @ self.away / self.count, count)
        count = min(count, min(self.away.shape) - 1)
        _, values, vectors = svds(self.away, k=count, random_state=0)
        return values[::-1] ** 2 / self.count, vectors[::-1]


def _part(value: Any, whole: Any) -> float | None:
    """A quotient; of rows that are all alike there is none."""
    return float(value / whole) if whole > np.finfo(float).eps * value else None


def _leading(moment: Array, count: int) -> tuple[Array, Array]:
    values, vectors = np.linalg.eigh(moment)
    return np.maximum(values[::-1][:count], 0.0), vectors.T[::-1][:count]


def _moment(rows: Array) -> Array:
    away = _centred(rows)
    return np.asarray(away.T @ away / rows.shape[0])


def _centred(rows: Array) -> Array:
    """About their mean; 0 in columns that differ by no more than rounding."""
    away, size = rows - rows.mean(axis=0), np.max(np.abs(rows), axis=0)
    away[:, np.max(np.abs(away), axis=0) <= _ROUNDING * size] = 0.0
    return np.asarray(away)


def beside_pca(model: Any, given: Any) -> BesideExact:
    """A PCA beside that of the rows themselves, whole and as they were prepared."""
    result: Result = model._check_fitted()
    whole, left = finite(given)
    rows, found = ExactRows(_about(model, whole)), intervals_of(model)
    components, count = model.components_, model.components_.shape[0]
    scores = rows.away @ components.T
    along = np.var(scores, axis=0)
    values, vectors = rows.leading(count)
    known = values.size
    cosines = np.vecdot(components[:known], vectors)
    shared = np.mean(scores[:, :known] * (rows.away @ vectors.T), axis=0)
    across = shared / np.sqrt(np.maximum(along[:known] * values, np.finfo(float).tiny))
    captured = np.cumsum(along)[:known] / np.maximum(np.cumsum(values), np.finfo(float).tiny)
    exact = {} if not _prepared_alike(result) else dict(_exact_of_pca(model, rows, found))
    total = max(rows.total, np.finfo(float).tiny)
    columns: dict[str, Any] = {
        "share": model.explained_variance_ratio_,
        "as_prepared": exact.get("explained_variance_ratio", np.full(count, np.nan)),
        "whole_rows": along / total,
        "exact": values / total,
        "degrees": _degrees(np.abs(cosines)),
        "score_correlation": np.abs(across),
        "captured": captured,
    }
    if not isinstance(found, str):
        ratio = found["explained_variance_ratio"]
        columns |= {"lower": ratio.lower, "upper": ratio.upper}
    lines = [
        {"component": name, "usable": bool(usable)}
        | {name: _number(columns.get(name), place) for name in _OF_COMPONENTS}
        for place, (name, usable) in enumerate(zip(numbered(count), model.usable_, strict=True))
    ]
    together = np.linalg.svd(components @ vectors.T, compute_uv=False)
    measures = {
        "energy captured, of that of as many exact components": float(captured[-1]),
        "largest angle between all components and as many exact ones, in degrees": float(
            _degrees(together[min(count, known) - 1])
        ),
        _MEANS: rows.mean_off,
    }
    whole_rows = BesideExact(
        result.spec.estimator, whole.shape[0], left, tuple(lines), _OF_COMPONENTS, measures
    )
    return _with_intervals(whole_rows, result, found, exact)


def _exact_of_pca(model: Any, rows: ExactRows, found: Intervals | str) -> Iterator[Any]:
    """What each interval is to hold: of the rows as they were prepared."""
    components, bound = model.components_, model.variance_bound_
    if bound > 0:
        longer = rows.shortened(bound)
        along = np.mean((longer @ components.T) ** 2, axis=0)
        total = max(float(np.mean(np.sum(longer**2, axis=1))), np.finfo(float).tiny)
        yield "explained_variance", along * bound**2
        yield "explained_variance_ratio", along / total
        yield "cumulative_ratio", np.cumsum(along) / total
    if components.shape[1] > _WHOLE or isinstance(found, str):
        return
    moment = _moment(rows.shortened(model.row_bound_))
    count = found["eigenvalue"].estimate.size
    values, vectors = _leading(moment, count)
    yield "eigenvalue", values * (model.row_bound_ or 1.0) ** 2
    yield "component", vectors * np.sign(np.vecdot(components, vectors))[:, None]
    yield "angle", _degrees(np.abs(np.vecdot(components, vectors)))
    together = np.linalg.svd(components @ vectors.T, compute_uv=False)
    yield "subspace_angle", _degrees(together[-1])
    best = max(float(np.sum(values)), np.finfo(float).tiny)
    lost = 1.0 - float(np.sum((components @ moment) * components)) / best
    yield "lost_energy", np.array(max(0.0, lost))


def beside_covariance(model: Any, given: Any) -> BesideExact:
    """A covariance beside that of the rows themselves."""
    result: Result = model._check_fitted()
    whole, left = finite(given)
    scale = model.scale_
    inverse = reciprocal(scale)
    apart = () if result.plan.apart is None else tuple(result.plan.apart.columns)
    rows = ExactRows((whole - model.location_) * inverse, apart)
    found = intervals_of(model)
    units = np.multiply.outer(scale, scale)
    covariance = rows.away.T @ rows.away / rows.count * units
    exact: dict[str, Array] = {}
    if _prepared_alike(result) and model.row_bound_ > 0:
        moment = _moment(rows.shortened(model.row_bound_)) * units * model.row_bound_**2
        exact = {"covariance": moment, "correlation": _correlations(moment)}
    released, true = model.correlation_, _correlations(covariance)
    away, size = (np.linalg.norm(each) for each in (model.covariance_ - covariance, covariance))
    both = ~np.isnan(released) & ~np.isnan(true)
    measures = {
        "distance of the covariances, as a part of the exact one's size": _part(away, size),
        "largest difference of two correlations": float(
            np.max(np.abs(released - true)[both], initial=0.0)
        ),
        _MEANS: rows.mean_off,
    }
    columns: dict[str, Any] = {"released": released, "whole_rows": true}
    if exact:
        columns["as_prepared"] = exact["correlation"]
    if not isinstance(found, str):
        columns |= {"lower": found["correlation"].lower, "upper": found["correlation"].upper}
    names = result.labels
    lines = [
        {"column": names[i], "other": names[j]}
        | {name: _number(columns.get(name), i, j) for name in _OF_PAIRS}
        for i, j in _strongest(true)
    ]
    whole_rows = BesideExact(
        result.spec.estimator, whole.shape[0], left, tuple(lines), _OF_PAIRS, measures
    )
    return _with_intervals(whole_rows, result, found, exact)


def _strongest(correlations: Array) -> list[tuple[int, int]]:
    """Pairs of columns, the exact correlation of which is largest."""
    above = np.triu(np.nan_to_num(np.abs(correlations)), 1)
    order = np.argsort(above, axis=None)[::-1][:_PAIRS]
    rows, columns = np.unravel_index(order, above.shape)
    return [(int(i), int(j)) for i, j in zip(rows, columns, strict=True) if above[i, j] > 0]


def _correlations(covariance: Array) -> Array:
    variances = np.diag(covariance)
    inverse = 1.0 / np.sqrt(np.where(variances > 0, variances, np.nan))
    return np.asarray(covariance * np.multiply.outer(inverse, inverse))


def _about(model: Any, rows: Array) -> Array:
    """As the fit has them before they are shortened."""
    away = rows - model.mean_
    if model.covariate_effects_ is not None:
        covariates = model._covariates
        away -= away[:, covariates] @ model.covariate_effects_.T
        away[:, covariates] = 0.0
    return np.asarray(away * model._inverse_scale)


def _prepared_alike(result: Result) -> bool:
    """Whether the rows' preparation is known from the result alone, row by row."""
    plan: Any = result.plan
    return plan.unit is None and getattr(plan, "winsorize", None) is None


def _with_intervals(
    beside: BesideExact, result: Result, found: Intervals | str, exact: Mapping[str, Array]
) -> BesideExact:
    notes = tuple(count_notes(found, beside.rows, result.plan.unit))
    # intervals are of the rows that were fitted: of others they need hold nothing
    counts = {} if notes or isinstance(found, str) else held(found, exact)
    return replace(beside, held=counts, notes=notes)


def _number(values: Any, *place: int) -> float | None:
    if values is None or any(i >= size for i, size in zip(place, values.shape, strict=True)):
        return None
    value = float(values[place])
    return None if np.isnan(value) else value


def _degrees(cosines: Any) -> Array:
    return np.asarray(np.degrees(np.arccos(np.minimum(cosines, 1.0))))
