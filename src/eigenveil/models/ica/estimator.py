"""``PrivateICA``, and what every fitted ICA can do: sources of rows, and rows of sources."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from eigenveil.errors import DataError, NoisyResultWarning, callers_level, listed
from eigenveil.models.driver import LedgerPlace
from eigenveil.models.ica.intervals import of_ica
from eigenveil.models.ica.plan import ICAFactors, ICAPlan
from eigenveil.models.intervals.bars import Kind, Quantity
from eigenveil.models.result import Result, View, of_factors, read_only, reciprocal
from eigenveil.models.stored import StoredModel
from eigenveil.models.table_fit import TableFit


class FittedICA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, StoredModel):  # type: ignore[misc]
    """Released independent components; ``FittedICA.load`` reads any estimator's."""

    _FAMILY = ("PrivateICA", "FederatedICA")
    _PLAN = ICAPlan
    _FACTORS = ICAFactors

    mean_: View[NDArray[np.float64]] = of_factors("mean")
    scale_: View[NDArray[np.float64]] = of_factors("scale")
    kurtosis_: View[NDArray[np.float64]] = of_factors("kurtosis")
    kurtosis_error_: View[float] = of_factors("kurtosis_error")
    usable_: View[NDArray[np.bool_]] = of_factors("usable")
    noise_floor_: View[float] = of_factors("noise_floor")
    n_samples_: View[float] = of_factors("rows")
    row_bound_: View[float] = of_factors("row_bound")
    unscaled_: View[NDArray[np.bool_]] = View(lambda result: read_only(result.factors.scale == 0))
    n_components_ = View(lambda result: int(result.factors.unmixing.shape[0]))
    components_: View[NDArray[np.float64]] = View(
        lambda result: read_only(result.factors.unmixing * reciprocal(result.factors.scale))
    )
    mixing_: View[NDArray[np.float64]] = View(
        lambda result: read_only(
            np.linalg.pinv(result.factors.unmixing) * result.factors.scale[:, None]
        )
    )

    def _quantities(self, result: Result, level: float, of: Kind) -> Iterator[Quantity]:
        yield from of_ica(result, level, of)

    def transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Sources of the rows of ``X``, shape (n_samples, n_components), of variance 1 or so.

        Rows with NaN are refused, as by scikit-learn. A ``NoisyResultWarning`` names sources that
        are not usable.
        """
        rows = self._new_rows(X)
        self.warn_of_noise()
        offset = (self.components_ @ self.mean_).astype(rows.dtype, copy=False)
        return np.asarray(rows @ self.components_.T.astype(rows.dtype, copy=False) - offset)

    def warn_of_noise(self) -> None:
        """Warn where sources cannot be told from others."""
        if hidden := [str(place + 1) for place in np.flatnonzero(~self.usable_)]:
            text = f"Sources {listed(hidden)} cannot be told from others (usable_)."
            warnings.warn(text, NoisyResultWarning, stacklevel=callers_level())

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Rows of sources ``X``, shape (n_samples, n_features)."""
        self._check_fitted()
        sources = np.asarray(X)
        if sources.ndim != 2 or sources.shape[1] != self.n_components_:
            raise DataError("bad-scores", shape=sources.shape, columns=self.n_components_)
        return np.asarray(sources @ self.mixing_.T + self.mean_)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


# -- PrivateICA: the scikit-learn estimator of one data set.


class PrivateICA(TableFit, FittedICA):
    """Differentially private independent component analysis.

    The second moment of the rows is released as by :class:`eigenveil.PrivateCovariance`; rows are
    seen through its leading directions, whitened, and all products of four of what is seen are
    released once. A joint diagonaliser of their cumulants (JADE) finds the directions in which the
    rows are independent. No start, no number of steps and nothing about the rows has to be known.

    Sources that are Gaussian cannot be told apart, by any method: a warning names those of which no
    excess kurtosis is seen above the noise.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Unmixing: sources are these times rows less ``mean_``. Those of most variance first; the
        entry of largest magnitude of each column of ``mixing_`` is positive.
    mixing_ : ndarray of shape (n_features, n_components)
        The maps of the sources, in the data's units.
    mean_, scale_, unscaled_ : ndarray of shape (n_features,)
        As of :class:`eigenveil.PrivatePCA`.
    kurtosis_ : ndarray of shape (n_components,)
        Excess kurtosis of each source: 3 of a Laplace law, -1.2 of a uniform one, less what
        shortening rows takes.
    kurtosis_error_ : float
        Standard error that noise, and the sampling of Gaussian rows, give it.
    usable_ : ndarray of bool, shape (n_components,)
        Which sources can be told from the others: their excess kurtosis exceeds what noise shows of
        as many directions (three standard errors, of five or more 1.5 times the root of their
        number), or all others' does.
    n_components_ : int
        No more than directions that stand above the noise.
    noise_floor_ : float
        Variance that noise alone would show along a direction; in squared ``scale_``.
    row_bound_ : float
    n_samples_ : float
        Released (noisy) number of rows; those that are left out are not in it.
    guarantee_, certificate_, released_
        As of :class:`eigenveil.PrivatePCA`.

    References
    ----------
    Cardoso, Souloumiac (1993), IEE Proceedings F 140(6). Documents 000, 001 and 004 have joint ICA
    of sites as their purpose.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenveil import PrivateICA
    >>> rng = np.random.default_rng(0)
    >>> sources = rng.laplace(size=(20000, 3))
    >>> X = sources @ rng.standard_normal((3, 8))
    >>> ica = PrivateICA(n_components=3, epsilon=2.0, delta=1e-6).fit(X)
    >>> ica.transform(X).shape
    (20000, 3)
    >>> found = np.abs(np.corrcoef(ica.transform(X).T, sources.T)[:3, 3:])
    >>> bool(found.max(axis=1).min() > 0.95)
    True
    """

    _TASK = "ica"

    def __init__(
        self,
        n_components: int = 2,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        mechanism: str = "auto",
        adjacency: str = "add-remove",
        unit: str | None = None,
        max_rows_per_unit: int = 1,
        row_bound: float | None = None,
        center: bool | ArrayLike = True,
        scale: str | ArrayLike | None = None,
        ranges: ArrayLike | None = None,
        winsorize: float | None = None,
        budget_split: dict[str, float] | None = None,
        precision: str = "double",
        noise: str = "secure",
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
        ledger: LedgerPlace | None = None,
        data_set: str | None = None,
    ) -> None:
        self._take(locals())
