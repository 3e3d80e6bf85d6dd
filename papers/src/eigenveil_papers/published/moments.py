"""Noise on the unique entries of symmetric arrays, as the papers draw it, and ranks as they take.

The papers draw every unique entry with the same deviation. The isometric choice, off-diagonal
entries sqrt(2) smaller, has the same guarantee (:mod:`eigenveil.noise`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from numbers import Integral
from typing import Literal

import numpy as np
import scipy.sparse.linalg
from numpy.typing import ArrayLike, NDArray

from eigenveil.errors import DataError
from eigenveil.linalg.eigen import fix_signs, leading_eigenpairs, small_matrix_threads
from eigenveil_papers.published.result import FloatArray

RankBy = Literal["magnitude", "value"]

_LANCZOS_FROM = 600  # below, all eigenpairs at once are as fast


def unique_entries(size: int, modes: int) -> int:
    """Unique entries of a symmetric array with ``modes`` modes of ``size``."""
    return math.comb(size + modes - 1, modes)


def mirrored(entries: FloatArray, size: int, modes: int) -> FloatArray:
    """Symmetric arrays (..., size, ..., size) with these unique entries, along the last axis."""
    return np.asarray(entries[..., _places(size, modes)])


@lru_cache(maxsize=8)
def _places(size: int, modes: int) -> NDArray[np.intp]:
    """Which unique entry stands where: ``i + j(j+1)/2 + k(k+1)(k+2)/6`` for ``i <= j <= k``."""
    ordered = np.sort(np.indices((size,) * modes), axis=0)
    places = np.zeros((size,) * modes, dtype=np.intp)
    for mode, index in enumerate(ordered):
        rising = math.prod((index + step for step in range(mode + 1)), start=np.ones_like(index))
        places += rising // math.factorial(mode + 1)
    return places


def with_gaussian(moment: FloatArray, tau: float, rng: np.random.Generator) -> FloatArray:
    """The symmetric array with independent N(0, tau^2) on every unique entry."""
    size, modes = moment.shape[0], moment.ndim
    entries = rng.normal(scale=tau, size=unique_entries(size, modes))
    return moment + mirrored(entries, size, modes)


def leading(
    matrix: FloatArray, count: int, *, rank_by: RankBy = "magnitude"
) -> tuple[FloatArray, FloatArray]:
    """The leading singular values, descending, and singular vectors as rows (count, D).

    As published: the papers take the SVD of a noisy symmetric matrix, so that a negative eigenvalue
    counts by its absolute value. ``rank_by="value"`` gives the leading eigenpairs instead, which is
    better under much noise: only directions with positive eigenvalues can be the data's.
    """
    if rank_by == "value":
        return leading_eigenpairs(matrix, count)
    size = len(matrix)
    with small_matrix_threads(size):
        if size >= _LANCZOS_FROM and count <= size // 12:
            start = np.random.default_rng(0).standard_normal(size)  # public; any will do
            values, vectors = scipy.sparse.linalg.eigsh(
                matrix, count, which="LM", v0=start, ncv=min(size, 2 * count + 20), tol=1e-8
            )
        else:
            values, vectors = np.linalg.eigh(matrix)
    order = np.argsort(-np.abs(values), kind="stable")[:count]
    return np.abs(values[order]), fix_signs(np.ascontiguousarray(vectors[:, order].T))


# -- The second moment that most of the papers' algorithms start from: once for many runs.
#
# Every function that takes rows takes a :class:`PublishedMoment` of them as well; one that takes
# sites takes one for each site: an experiment makes them once and runs all algorithms on them.


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedMoment:
    """The mean of ``x x'`` over rows that were divided by a bound. Exact: not private."""

    mean: FloatArray  # `X'X / n` of the rows divided by `row_bound`
    rows: int  # n
    row_bound: float  # What the rows were divided by
    public_bound: bool  # Whether that is a public number and not the largest norm found

    @property
    def features(self) -> int:
        """D."""
        return int(self.mean.shape[0])

    @property
    def total(self) -> FloatArray:
        """``X'X``: the sum over rows that paper 003 works with."""
        return np.asarray(self.mean * self.rows)

    @cached_property
    def spectrum(self) -> FloatArray:
        """Eigenvalues of ``mean``, descending, shape (D,), none below 0."""
        return np.asarray(np.maximum(np.linalg.eigvalsh(self.mean)[::-1], 0.0))


Rows = ArrayLike | PublishedMoment
Sites = Sequence[ArrayLike | PublishedMoment]


def second_moment(X: Rows, *, row_bound: float | None = None) -> PublishedMoment:
    """The second moment of rows; one that was made before is returned as it is.

    Parameters
    ----------
    X : array of shape (n, D), or SecondMoment
        Not centred: centre the rows by something public if they need it.
    row_bound : float or None
        A public bound on the rows' norms, by which they are divided: the papers take norms up to 1.
        Without one it is the largest norm found, which is not private.
    """
    if isinstance(X, PublishedMoment):
        if row_bound not in (None, X.row_bound):
            raise DataError("divided-already", bound=X.row_bound, other=row_bound)
        return X
    rows = finite_rows(X)
    bound = largest_norm(rows) if row_bound is None else row_bound
    return _of_rows(rows, bound, public=row_bound is not None)


def second_moments(sites: Sites, *, row_bound: float | None = None) -> list[PublishedMoment]:
    """The second moment of each site's rows, all divided by one bound.

    Parameters
    ----------
    sites : sequence of arrays of shape (n_s, D), or of SecondMoment
        One for each site.
    row_bound : float or None
        As in :func:`second_moment`; without one it is the largest norm found at any site.
    """
    given = list(sites)
    if not given:
        raise DataError("no-sites")
    made = [each for each in given if isinstance(each, PublishedMoment)]
    rows = [finite_rows(each) for each in given if not isinstance(each, PublishedMoment)]
    if made and rows:
        raise DataError("moments-of-other-sites", made=len(made), rows=len(rows))
    if rows:
        check_alike([each.shape[1] for each in rows], "features")
        common = max(map(largest_norm, rows)) if row_bound is None else row_bound
        made = [_of_rows(each, common, public=row_bound is not None) for each in rows]
    check_alike([each.features for each in made], "features")
    check_alike([each.row_bound for each in made], "row_bound")
    return [second_moment(each, row_bound=row_bound) for each in made]


def pooled_moment(sites: Sequence[PublishedMoment]) -> PublishedMoment:
    """The second moment of all sites' rows together."""
    rows = sum(site.rows for site in sites)
    return PublishedMoment(
        mean=np.asarray(sum(site.mean * (site.rows / rows) for site in sites)),
        rows=rows,
        row_bound=sites[0].row_bound,
        public_bound=all(site.public_bound for site in sites),
    )


def finite_rows(X: ArrayLike) -> FloatArray:
    """The rows as a matrix (n, D)."""
    try:
        exact = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise _no_matrix("that are no table of numbers") from error
    if exact.ndim != 2 or exact.size == 0 or not np.all(np.isfinite(exact)):
        raise _no_matrix(f"of shape {exact.shape}")
    return exact


def _no_matrix(what: str) -> DataError:
    return DataError("rows-matrix", what=what)


def largest_norm(rows: FloatArray) -> float:
    """The largest norm of a row."""
    return math.sqrt(float(np.einsum("nd,nd->n", rows, rows).max()))


def rows_within(X: ArrayLike, row_bound: float | None) -> tuple[FloatArray, float]:
    """Rows divided by the public bound, or by the largest norm found (not private), and that."""
    exact = finite_rows(X)
    largest = largest_norm(exact)
    bound = largest if row_bound is None else row_bound
    if not (bound > 0 and math.isfinite(bound)):
        raise DataError("no-division", bound=bound)
    if largest > bound * (1 + 1e-9):
        raise DataError("row-bound", bound=bound)
    return exact / bound, bound


def check_components(wanted: int, features: int, *, name: str = "components") -> None:
    """Raise unless ``1 <= wanted <= features``."""
    if not (isinstance(wanted, Integral) and 1 <= wanted <= features):
        raise DataError("components", features=features, wanted=wanted, what=name)


def _of_rows(rows: FloatArray, bound: float, *, public: bool) -> PublishedMoment:
    scaled, _ = rows_within(rows, bound)
    mean = scaled.T @ scaled / len(scaled)
    return PublishedMoment(mean=mean, rows=len(scaled), row_bound=bound, public_bound=public)


def check_alike(values: Sequence[float], name: str) -> None:
    if len(set(values)) > 1:
        raise DataError("sites-differ", what=name, values=", ".join(map(repr, values)))
