"""What a caller gave in Python as rows: its kind is asked here, once; an adapter answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eigenveil.moments.source import RowSource
from eigenveil.tables.adapters.anndata import CellTable
from eigenveil.tables.adapters.array import ArrayTable, SparseTable
from eigenveil.tables.adapters.base import Adapter
from eigenveil.tables.adapters.dask import DaskTable
from eigenveil.tables.adapters.frame import FrameTable

KINDS: tuple[type[Adapter], ...] = (DaskTable, CellTable, SparseTable, FrameTable, ArrayTable)
"""In the order in which they are tried; the last takes whatever NumPy makes an array of."""


def adapter(X: Any) -> Adapter:
    """The adapter of an array, list, frame, sparse matrix, ``AnnData`` or collection of Dask."""
    return next(found for kind in KINDS if (found := kind.of(X)) is not None)


def rows_of(X: Any, *, unit: str | None = None, groups: Any = None, **asked: Any) -> RowSource:
    """The rows of any of them: see :meth:`Adapter.rows`."""
    return adapter(X).rows(unit=unit, groups=groups, **asked)


def validated(
    estimator: Any,
    X: Any,
    *,
    unit: str | None = None,
    genes: Sequence[str] | None = None,
    **checks: Any,
) -> Any:
    """What scikit-learn's ``validate_data`` makes of it, less a column of units."""
    return adapter(X).without(unit).matrix(estimator, genes=genes, **checks)
