"""Rows from what the caller of an estimator gives."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from eigenveil.errors import DataError, InvalidRowsWarning
from eigenveil.headers import check_names
from eigenveil.moments.engine import InvalidRows
from eigenveil.moments.source import ArrayRows, RowSource
from eigenveil.moments.sparse import SparseRows


class _Columns:
    """Where scikit-learn notes the columns of new rows: a fitted result's own are not changed."""

    feature_names_in_: NDArray[np.object_]

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator

    def __sklearn_tags__(self) -> Any:
        return self._estimator.__sklearn_tags__()


@contextmanager
def fits_floats() -> Iterator[None]:
    """Turn numpy's complaint about a whole number that no float holds into the package's own."""
    try:
        yield
    except OverflowError:
        raise DataError(
            "An entry is a number beyond what a float can hold.",
            hint="Give numbers up to 1e308; divide the column by a public number where it is more.",
            code="overflow",
        ) from None


def validated(estimator: Any, X: ArrayLike, /, **checks: Any) -> Any:
    """scikit-learn's ``validate_data``; a number that no float holds is a DataError."""
    with fits_floats():
        return validate_data(estimator, X, **checks)


def new_columns(
    estimator: Any, X: ArrayLike, **checks: Any
) -> tuple[NDArray[np.floating[Any]], list[str] | None]:
    """Checked entries of an array, frame or sparse matrix, and the columns' names if it has any.

    Raises
    ------
    DataError
        Where a name reads as a value: the frame's first row may have been taken for names.
    """
    columns = _Columns(estimator)
    array = validated(
        columns,
        X,
        estimator=estimator,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,  # what becomes of such rows, ``invalid`` says
        **checks,
    )
    names = getattr(columns, "feature_names_in_", None)
    if names is None:
        return array, None
    texts = [str(name) for name in names]
    check_names("The frame", texts)
    return array, texts


def rows_of(estimator: Any, X: ArrayLike) -> tuple[RowSource, int]:
    """Rows of an array, frame or sparse matrix, and their number."""
    array, columns = new_columns(estimator, X)
    if scipy.sparse.issparse(array):
        return SparseRows(array, names=columns), int(array.shape[0])
    return ArrayRows(array, names=columns), int(array.shape[0])


def public_rows(rows: RowSource, adjacency: str) -> int | None:
    """The number of rows where it is public: a pass of its own."""
    if adjacency != "replace-one":
        return None
    return sum(int(block.values.shape[0]) for block in rows.blocks())


def tell_owner(invalid: InvalidRows | None, *, where: str = "") -> None:
    """Warn whoever called about rows that are not valid; nothing of it is kept."""
    if invalid is not None:
        warnings.warn(f"{where}{invalid}.", InvalidRowsWarning, stacklevel=4)
