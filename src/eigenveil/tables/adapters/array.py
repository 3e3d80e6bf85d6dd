"""Arrays, lists of rows, and scipy's sparse matrices."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.errors import DataError, InvalidRowsWarning, callers_level
from eigenveil.origins import Origin
from eigenveil.tables.adapters.base import NUMBERS_ONLY, Adapter, dates_refused
from eigenveil.tables.entries import numbers, rows_of_numbers


class ArrayTable(Adapter):
    """An array, or whatever NumPy makes one of: what is of no other kind."""

    @classmethod
    def of(cls, X: Any) -> Self:
        return cls(X)

    @property
    def is_one_table(self) -> bool:  # type: ignore[override]
        """Whether it is no list, and no stack of tables."""
        return isinstance(self.given, np.ndarray) and self.given.ndim != 3

    def numbers(self) -> ArrayTable:
        X = self.given
        if isinstance(X, np.ma.MaskedArray) and X.dtype.kind in "biuf":
            filled = X if X.dtype.kind == "f" else X.astype(np.float64)
            return ArrayTable(np.ma.filled(filled, np.nan))
        if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUS":
            columns = [tried(f"index {at} (from 0)", list(column)) for at, column in enumerate(X.T)]
            return ArrayTable(np.array(columns, dtype=np.float64).T.reshape(X.shape))
        if isinstance(X, list | tuple) or (isinstance(X, np.ndarray) and X.dtype.kind == "O"):
            try:
                known = np.array(X)
            except (ValueError, OverflowError):
                known = np.array(None)
            if known.ndim != 2 or known.dtype.kind not in "biuf":
                found = rows_of_numbers(list(X)) if known.ndim < 3 else None
                return self if found is None else ArrayTable(found)
        return self

    def chosen(self, names: Sequence[str] | None, places: Sequence[int], of: int) -> ArrayTable:
        whole = self.shape[1:] == (of,)
        return ArrayTable(np.asarray(self.given)[:, list(places)]) if whole else self

    def check_kind(self) -> None:
        X = self.given
        if isinstance(X, np.ndarray) and X.dtype.kind in "mM":
            dates_refused(self)
        if np.ma.is_masked(X):
            raise DataError("masked-entries")

    @property
    def array(self) -> NDArray[Any]:
        """An array of anything; of what is none without a dimension, of uneven rows with one."""
        if isinstance(self.given, np.ndarray):
            return self.given
        try:
            return np.array(self.given, dtype=object)
        except ValueError:  # rows of several lengths, deeper down
            return np.array([None, *self.given], dtype=object)[1:]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def columns(self) -> Iterator[tuple[int, NDArray[Any]]]:
        return enumerate(self.array.T)


def tried(column: str, entries: list[Any]) -> NDArray[np.float64]:
    """A column's entries as numbers; its owner is told where most are other texts."""
    found = numbers(entries)
    pairs = zip(entries, found, strict=True)
    texts = sum(isinstance(entry, str | bytes) and bool(np.isnan(value)) for entry, value in pairs)
    if 2 * texts > len(entries):
        warnings.warn(
            f"Column {column}: {texts:,} of {len(entries):,} entries are texts that are no "
            f"numbers, and count as missing. {NUMBERS_ONLY}",
            InvalidRowsWarning,
            stacklevel=callers_level(),
        )
    return found


class SparseTable(Adapter):
    """A scipy sparse matrix."""

    @classmethod
    def of(cls, X: Any) -> Self | None:
        return cls(X) if scipy.sparse.issparse(X) else None

    def first(self, is_wrong: Callable[[NDArray[Any]], Any]) -> str | None:
        found = scipy.sparse.coo_array(self.given)
        at = next(iter(np.flatnonzero(is_wrong(found.data))), None)
        return None if at is None else Origin().cell(int(found.row[at]), int(found.col[at]))
