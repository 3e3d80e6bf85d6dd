"""What a caller gave in Python as rows: its kind is asked here, once; an adapter answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import eigenveil
from eigenveil.errors import DataError
from eigenveil.moments.source import RowSource
from eigenveil.tables.adapters.anndata import CellTable
from eigenveil.tables.adapters.array import ArrayTable, SparseTable
from eigenveil.tables.adapters.base import Adapter, Asked
from eigenveil.tables.adapters.dask import DaskTable
from eigenveil.tables.adapters.frame import FrameRows, FrameTable
from eigenveil.tables.adapters.spark import SparkTable
from eigenveil.tables.schema import Schema

KINDS: tuple[type[Adapter], ...] = (
    *(DaskTable, SparkTable, CellTable),
    *(SparseTable, FrameTable, ArrayTable),
)
"""In the order in which they are tried; the last takes whatever NumPy makes an array of."""


def adapter(X: Any) -> Adapter:
    """The adapter of an array, list, frame, sparse matrix, ``AnnData``, of Dask or Spark."""
    if isinstance(X, Adapter):
        return X
    return next(found for kind in KINDS if (found := kind.of(X)) is not None)


def rows_of(X: Any, *, unit: str | None = None, groups: Any = None, **asked: Any) -> RowSource:
    """The rows of any of them, as :class:`Asked` says, or of the files of a path."""
    if isinstance(X, str | os.PathLike):
        if groups is not None:
            raise DataError("groups-beside-files", path=X)
        found: RowSource = eigenveil.open_rows([X], unit=unit)  # type: ignore[list-item]
        return found
    return adapter(X).rows(Asked(unit, groups, **asked))


def read_frame(frame: Any, schema: Schema) -> RowSource:
    """The rows of a frame of any library as its schema says, for ``fit_rows``.

    They are those of a file with the same columns: see :func:`eigenveil.io.open_rows`.

    Parameters
    ----------
    frame : frame of pandas or Polars (lazy too), Arrow table, relation of DuckDB, of Spark
        Or what else narwhals knows; what is lazy is computed. Of Spark executors read it.
    schema : Schema
        From :func:`eigenveil.tables.schema.read_schema`.

    Raises
    ------
    DataError
        When it is no frame, a column is not there or twice, has a type that cannot be of its kind,
        or the schema has what was not confirmed. Of a column of objects each entry is read by
        itself.
    """
    table = SparkTable.of(frame)
    return FrameRows(frame, schema) if table is None else table.rows_by(schema)


def validated(
    estimator: Any,
    X: Any,
    *,
    unit: str | None = None,
    names: Sequence[str] | None = None,
    schema: Schema | None = None,
    places: Sequence[int] | None = None,
    of: int = 0,
    **checks: Any,
) -> Any:
    """What scikit-learn's ``validate_data`` makes of it, less a column of units.

    Of a frame the columns ``names``, which a ``schema`` makes of the table's own. Of rows that have
    all columns, ``of`` in number, those at ``places``, where it is not by name.
    """
    table = adapter(X).without(unit)
    if schema is not None and names is not None:
        table = table.by_schema(schema, names)
    if places is not None:
        table = table.chosen(names, places, of)
    return table.matrix(estimator, genes=names, **checks)
