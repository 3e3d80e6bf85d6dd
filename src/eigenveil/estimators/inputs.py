"""Rows from what the caller of an estimator gives."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike
from sklearn.utils.validation import validate_data

from eigenveil.errors import DataError, InvalidRowsWarning
from eigenveil.headers import check_names
from eigenveil.moments.engine import InvalidRows
from eigenveil.moments.source import ArrayRows, RowSource
from eigenveil.moments.sparse import SparseRows


def rows_of(estimator: Any, X: ArrayLike) -> tuple[RowSource, int]:
    """Rows of an array, frame or sparse matrix, and their number; sets the estimator's features."""
    array = validate_data(
        estimator,
        X,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,  # found while reading, with row and column
    )
    columns = frame_names(estimator)
    if scipy.sparse.issparse(array):
        return SparseRows(array, names=columns), int(array.shape[0])
    return ArrayRows(array, names=columns), int(array.shape[0])


def frame_names(estimator: Any) -> list[str] | None:
    """Names that an estimator took from a frame, checked.

    Raises
    ------
    DataError
        Where one reads as a value: the frame's first row may have been taken for names.
    """
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return None
    columns = [str(name) for name in names]
    check_names("The frame", columns)
    return columns


def take_names(estimator: Any, rows: RowSource, *, of_words: bool = False) -> None:
    """Set the estimator's features from rows that are read; words of a vocabulary may be numbers.

    Raises
    ------
    DataError
        Where a name reads as a value.
    """
    check_names("The source of rows", rows.names, of_words=of_words)
    for name in ("feature_names_in_", "n_features_in_"):
        if hasattr(estimator, name):
            delattr(estimator, name)
    estimator.n_features_in_ = rows.features
    if rows.names is not None:
        estimator.feature_names_in_ = np.array(rows.names, dtype=object)


def public_rows(rows: RowSource, adjacency: str) -> int | None:
    """The number of rows where it is public: a pass of its own."""
    if adjacency != "replace-one":
        return None
    return sum(int(block.values.shape[0]) for block in rows.blocks())


def tell_owner(invalid: InvalidRows | None, *, where: str = "") -> None:
    """Warn whoever called about rows that are not valid; nothing of it is kept."""
    if invalid is not None:
        warnings.warn(f"{where}{invalid}.", InvalidRowsWarning, stacklevel=4)


def check_noise(noise: str) -> None:
    """Raise where noise of another kind than there is was asked for."""
    if noise != "secure":
        raise DataError(
            f"noise = {noise!r} is not 'secure'.",
            hint="Use noise='secure'; give random_state for a reproducible, uncertified run.",
        )
