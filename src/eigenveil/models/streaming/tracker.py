"""``StreamingPCA``: the leading directions of a stream in bounded memory, not private."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from eigenveil.errors import DataError
from eigenveil.linalg.eigen import fix_signs
from eigenveil.linalg.subspace import Subspace
from eigenveil.models.constraints import Configured
from eigenveil.models.holes import scores_of_observed
from eigenveil.models.streaming.tracking import Rule, Tracked, Tracker
from eigenveil.origins import Origin
from eigenveil.tables.adapters import validated
from eigenveil.tables.names import check_identifiers, check_names

FLOATS = (np.float64, np.float32)
_CHUNK = 4096


def usable(rows: NDArray[Any], missing: str, names: Sequence[str] | None = None) -> NDArray[Any]:
    """Rows that can be tracked: of those with missing entries the ones that are to be filled.

    Raises for infinite and overflowing values, and for NaN where these are refused; one pass
    without a copy where nothing is missing.
    """
    if _are_finite(rows):
        return rows
    holes = np.isnan(rows)
    if missing != "refuse" and holes.any():
        left_out = holes.any(axis=1) if missing == "leave-out" else holes.all(axis=1)
        check_finite(np.where(holes, 0, rows), names)
        return np.asarray(rows[~left_out])
    check_finite(rows, names)
    return rows


def _are_finite(rows: NDArray[Any]) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        total = sum(
            float(np.vdot(rows[start : start + _CHUNK], rows[start : start + _CHUNK]))
            for start in range(0, rows.shape[0], _CHUNK)
        )
    return bool(np.isfinite(total))


def check_finite(rows: NDArray[Any], names: Sequence[str] | None = None) -> None:
    """Raise for rows with NaN, infinite or overflowing values."""
    if _are_finite(rows):
        return
    bad = np.argwhere(~np.isfinite(rows))
    if bad.size:
        row, column = (int(place) for place in bad[0])
        place = f"The block's {Origin().cell(row, column, names)}"
        if np.isnan(rows[row, column]):
            raise DataError("missing-value", place=place)
        raise DataError("not-finite", place=place, value=rows[row, column])
    if rows.dtype == np.float64:  # else only the check in single precision overflowed
        raise DataError("overflow")


def check_alike(mine: Rule, theirs: Rule) -> None:
    """Raise where two states were not folded by the same centre and forgetting."""
    for name in ("center", "forgetting", "missing"):
        own, other = getattr(mine, name), getattr(theirs, name)
        if own != other:
            raise DataError("merge-settings", name=name, own=own, other=other)


def check_features(mine: Any, theirs: Any) -> None:
    """Raise where two estimators saw other features."""
    if mine.n_features_in_ != theirs.n_features_in_:
        raise DataError(
            "merge-features",
            n_features_in=mine.n_features_in_,
            n_features_in_2=theirs.n_features_in_,
        )
    own, other = (getattr(side, "feature_names_in_", None) for side in (mine, theirs))
    if own is not None and other is not None and not np.array_equal(own, other):
        raise DataError("merge-names", own=list(own[:5]), other=list(other[:5]))


# -- StreamingPCA: the leading directions of a stream in bounded memory, not private (paper 002).

_BLOCK = 25


class StreamingPCA(
    Configured,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Principal components of rows that arrive over time or at many places. Not private.

    Rows are folded in block by block with the paper's SSVD_r (Grammenos et al., "Federated
    Principal Component Analysis", algorithms 2 and 3 without masks), after which AdjustRank may
    change the rank; states merge with Merge_r, in any order. Where ``n_components`` is at least
    the rank of the rows, everything is exact (lemma 1). Memory is O(D (r + b)) for blocks of b
    rows of D features, however long the stream. The result does not depend on how rows were cut
    into calls of :meth:`partial_fit`, nor on when results were read.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    components_ : ndarray of shape (r, n_features)
        Orthonormal rows; the entry of largest magnitude of each is positive. All attributes are
        there once a row was seen.
    singular_values_ : ndarray of shape (r,)
        Of all rows (weighted, where rows are forgotten), descending.
    explained_variance_ : ndarray of shape (r,)
        Variance along each component (mean square where not centred), in squared units of rows.
    explained_variance_ratio_ : ndarray of shape (r,)
        The same as a share of the total, which is tracked beside and is exact.
    mean_ : ndarray of shape (n_features,)
        What :meth:`transform` subtracts; zero where not centred.
    n_components_ : int
        The current rank; less than ``n_components`` while fewer rows were seen.
    n_samples_seen_ : int
        Number of rows seen, also through :meth:`merge`.
    subspace_ : Subspace
        Directions as columns, and their strengths.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from eigenveil import StreamingPCA
    >>> X, _ = load_digits(return_X_y=True)
    >>> north, south = StreamingPCA(5), StreamingPCA(5)
    >>> for start in range(0, 900, 90):
    ...     north = north.partial_fit(X[start : start + 90])
    >>> both = north.merge(south.partial_fit(X[900:]))
    >>> both.transform(X).shape, both.n_samples_seen_
    ((1797, 5), 1797)
    """

    _TASK, _PATH = "pca", "tracking"

    n_features_in_: int
    feature_names_in_: NDArray[Any]
    _tracker: Tracker

    def __init__(
        self,
        n_components: int = 2,
        *,
        block_size: int | None = None,
        adaptive_rank: tuple[float, float] | None = None,
        forgetting: float = 1.0,
        n_oversamples: int = 10,
        center: bool = False,
        missing: str = "refuse",
    ) -> None:
        self._take(locals())

    def fit(self, X: ArrayLike, y: object = None, **others: object) -> Self:
        """Forget what was tracked and start anew with the rows ``X``, (n_samples, n_features).

        Raises
        ------
        DataError
            As for :meth:`partial_fit`.
        """
        del y
        self._refuse_others(others)
        self.__dict__.pop("_tracker", None)
        rule = self._rule()
        rows = self._validated(X, rule, reset=True)
        self._tracker = self._new_tracker(rows.shape[1], rule)
        self._tracker.push(rows)
        return self

    def partial_fit(self, X: ArrayLike, y: object = None, **others: object) -> Self:
        """Take further rows, (n_samples, n_features), dense, one or more.

        Raises
        ------
        DataError
            When the rows cannot be used: none at all, another number of features, NaN or infinite
            values (``missing`` says what becomes of NaN), sparse; or when a setting is out of
            range. Nothing was taken then.
        """
        self._refuse_others(others)
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y)
        if (
            type(X) is np.ndarray
            and X.dtype in FLOATS
            and X.ndim == 2
            and X.shape[0] > 0
            and X.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")
        ):  # scikit-learn's own checks take longer than folding a small block
            rows = usable(X, self._tracker.rule.missing)
        else:
            rows = self._validated(X, self._tracker.rule, reset=False)
        self._tracker.push(rows)
        return self

    def merge(self, other: StreamingPCA) -> Self:
        """Fold in what another one tracked (Merge_r); the other stays as it is.

        Exact where ``n_components`` is at least the rank of all rows together (lemma 1). Neither
        side is forgotten. Rows that do not fill a block yet on the other side wait here next. The
        two may differ in ``n_components`` and ``block_size``: one's own count. With
        ``adaptive_rank`` the larger of the two ranks is kept, until the next block adjusts it.

        Raises
        ------
        DataError
            When the other is no StreamingPCA, or differs in features, their names, ``center``,
            ``forgetting`` or ``missing``.
        """
        if not isinstance(other, StreamingPCA):
            raise DataError("merge-kind", kind=type(other).__name__, own="StreamingPCA")
        check_alike(self._rule_in_force(), other._rule_in_force())
        if not other.__sklearn_is_fitted__():
            return self
        if self.__sklearn_is_fitted__():
            check_features(self, other)
        else:
            tracker = self._new_tracker(other.n_features_in_, self._rule())
            self.n_features_in_ = other.n_features_in_
            if hasattr(other, "feature_names_in_"):
                self.feature_names_in_ = other.feature_names_in_
            self._tracker = tracker
        self._tracker.absorb(other._tracker)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Scores of the rows of ``X`` along the components, shape (n_samples, r).

        With ``missing="fill"`` by least squares on the entries that a row has.
        """
        check_is_fitted(self)
        holes = "allow-nan" if self._tracker.rule.missing == "fill" else True
        array = validated(self, X, dtype=FLOATS, reset=False, ensure_all_finite=holes)
        components = self.components_.astype(array.dtype, copy=False)
        offset = (self.mean_ @ self.components_.T).astype(array.dtype, copy=False)
        scores = np.asarray(array @ components.T - offset)
        holed = np.isnan(scores).any(axis=1)
        if holed.any():
            residuals = array[holed].astype(np.float64) - self.mean_
            scores[holed] = scores_of_observed(residuals, self.components_)
        return scores

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Rows in the original space of scores ``X``, shape (n_samples, n_features)."""
        components = self.components_
        scores = np.asarray(X)
        if scores.ndim != 2 or scores.shape[1] != components.shape[0]:
            raise DataError("bad-scores", shape=scores.shape, columns=components.shape[0])
        return np.asarray(scores @ components + self.mean_)

    @property
    def components_(self) -> NDArray[np.float64]:
        """Orthonormal rows, (r, n_features)."""
        return fix_signs(np.ascontiguousarray(self._read().released.basis.T))

    @property
    def singular_values_(self) -> NDArray[np.float64]:
        """Singular values of all rows, (r,)."""
        return self._read().released.strengths.copy()

    @property
    def explained_variance_(self) -> NDArray[np.float64]:
        """Variance along each component, (r,)."""
        tracked = self._read()
        # unbiased about a tracked mean, also for weighted rows; n - 1 where nothing is forgotten
        lost = tracked.weight_of_pairs / tracked.weight if self._tracker.rule.center else 0.0
        return _shares(tracked, tracked.weight - lost)

    @property
    def explained_variance_ratio_(self) -> NDArray[np.float64]:
        """Share of the total variance along each component, (r,)."""
        tracked = self._read()
        return _shares(tracked, tracked.energy)

    @property
    def mean_(self) -> NDArray[np.float64]:
        """The tracked mean, or zero, (n_features,)."""
        return self._read().mean.copy()

    @property
    def n_components_(self) -> int:
        """The current rank."""
        return self._read().released.rank

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows seen."""
        check_is_fitted(self)
        return self._tracker.rows

    @property
    def subspace_(self) -> Subspace:
        """Directions as columns of shape (n_features, r), with fixed signs, and strengths."""
        return Subspace(self.components_.T, self.singular_values_)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_tracker")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.allow_nan = self.missing == "fill"
        return tags

    def _read(self) -> Tracked:
        check_is_fitted(self)
        return self._tracker.read()

    def _rule(self) -> Rule:
        options = self._options()
        block_size, adaptive = options.block_size, options.adaptive_rank
        return Rule(
            max(_BLOCK, int(options.n_components)) if block_size is None else int(block_size),
            int(options.n_oversamples),
            None if adaptive is None else (float(adaptive[0]), float(adaptive[1])),
            float(options.forgetting),
            bool(options.center),
            options.missing,
        )

    def _rule_in_force(self) -> Rule:
        """The settings at the first row; what was set later counts from the next ``fit`` on."""
        return self._tracker.rule if self.__sklearn_is_fitted__() else self._rule()

    def _new_tracker(self, features: int, rule: Rule) -> Tracker:
        if self.n_components > features:
            raise DataError(
                "more-components-than-features", components=self.n_components, features=features
            )
        return Tracker(features=features, rank=int(self.n_components), rule=rule)

    def _validated(self, X: ArrayLike, rule: Rule, *, reset: bool) -> NDArray[Any]:
        if scipy.sparse.issparse(X):
            raise DataError("sparse-rows")
        rows = validated(self, X, dtype=FLOATS, reset=reset, ensure_all_finite=False)
        if reset:
            names = getattr(self, "feature_names_in_", None)
            check_names("The frame", names)
            check_identifiers("The frame", None if names is None else [str(n) for n in names])
        found = usable(rows, rule.missing, getattr(self, "feature_names_in_", None))
        return np.asarray(found)


def _shares(tracked: Tracked, total: float) -> NDArray[np.float64]:
    squares = tracked.released.strengths**2
    return np.asarray(squares / total) if total > 0 else np.zeros_like(squares)
