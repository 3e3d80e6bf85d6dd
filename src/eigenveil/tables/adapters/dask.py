"""Dask's arrays and frames: read by the workers that have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import scipy.sparse
from sklearn.utils.validation import _get_feature_names

from eigenveil.errors import DataError
from eigenveil.moments.cluster_rows import ClusterRows
from eigenveil.moments.dask_tasks import CurrentCluster
from eigenveil.moments.source import RowSource
from eigenveil.tables.adapters.array import ArrayTable, SparseTable
from eigenveil.tables.adapters.base import Adapter, Asked
from eigenveil.tables.adapters.frame import FrameTable
from eigenveil.tables.names import MOST_COLUMNS, MOST_SPARSE_COLUMNS, check_names, check_width
from eigenveil.tables.units import unit_ids


class DaskTable(Adapter):
    """A collection of Dask: as rows it stays where it is, and for all else it is computed."""

    is_one_table = False

    @classmethod
    def of(cls, X: Any) -> Self | None:
        """Of an array, a frame, or another collection, which is refused later."""
        return cls(X) if _is_collection(X) else None

    def split(self, unit: str | None, groups: Any = None) -> tuple[Adapter, Any]:
        return _in_memory(self.given.compute()).split(unit, groups)

    def without(self, unit: str | None) -> Adapter:
        return _in_memory(self.given.compute()).without(unit)

    def rows(self, asked: Asked) -> ClusterRows:
        X = self.given
        kind = type(X)  # whose delayed objects have any attribute
        is_frame = hasattr(kind, "map_partitions")
        if not (is_frame or hasattr(kind, "rechunk")) or X.ndim != 2:
            raise _unusable(
                f"A Dask {kind.__name__} is not a table of rows and columns",
                "Give a two-dimensional dask.array.Array, or a dask.dataframe.DataFrame.",
            )
        if is_frame:
            return _frame_rows(X, unit=asked.unit, groups=asked.groups, order=asked.like)
        super().split(asked.unit, asked.groups)  # an array names no units
        return _array_rows(X, groups=asked.groups, at_least=asked.fewest)


def _is_collection(X: Any) -> bool:
    return hasattr(X, "__dask_graph__") and not isinstance(X, np.ndarray)


def _in_memory(part: Any) -> Adapter:
    return SparseTable.of(part) or FrameTable.of(part) or ArrayTable(part)


def _array_rows(X: Any, *, groups: Any, at_least: int) -> ClusterRows:
    if np.isnan(X.shape[1]):
        raise _unusable(
            "The number of columns of the Dask array is unknown",
            "Call its compute_chunk_sizes() first.",
        )
    if X.shape[0] < at_least:  # not where it is unknown: NaN
        raise DataError("no-rows", path="the Dask array")
    if X.dtype.kind not in "biuf":
        raise DataError("not-numeric", what=f"The Dask array holds {X.dtype}")
    features, sparse = int(X.shape[1]), scipy.sparse.issparse(X._meta)
    if not sparse and type(X._meta) is not np.ndarray:
        raise _unusable(
            f"The blocks of the Dask array are {type(X._meta).__name__}, not NumPy's or scipy's",
            "Convert them first: X.map_blocks(numpy.asarray).",
        )
    if features == 0:
        raise _unusable("The Dask array has no column", "Give at least one column.")
    check_width("The Dask array", features, most=MOST_SPARSE_COLUMNS if sparse else MOST_COLUMNS)
    if X.numblocks[1] > 1:  # a row must be whole where it is prepared
        X = X.rechunk({1: -1})
    parts = list(X.to_delayed().ravel())
    ids = _groups_of(groups, len(parts), X.chunks[0])
    opener = _PartOpener(features, None, None)
    return _rows(opener, parts, ids)


def _frame_rows(
    X: Any, *, unit: str | None, groups: Any, order: Sequence[str] | None
) -> ClusterRows:
    table, _ = _in_memory(X._meta).split(unit, groups)
    meta = table.in_order(order).given
    names = _get_feature_names(meta)
    names = None if names is None else [str(name) for name in names]
    for column, dtype in zip(meta.columns, meta.dtypes, strict=True):
        if getattr(dtype, "kind", "O") not in "biuf":
            raise DataError(
                "not-numeric", what=f"Column {str(column)!r} of the frame holds {dtype}"
            )
    check_names("The frame", names)
    features = int(meta.shape[1])
    if features == 0:
        raise _unusable("The frame has no column of numbers", "Give at least one.")
    check_width("The frame", features)
    parts = list(X.to_delayed())
    ids = _groups_of(groups, len(parts), None)
    return _rows(_PartOpener(features, names, None if ids is not None else unit), parts, ids)


def _rows(opener: _PartOpener, parts: Sequence[Any], ids: Sequence[Any] | None) -> ClusterRows:
    values = [[part, None if ids is None else ids[at]] for at, part in enumerate(parts)]
    return ClusterRows(
        values, opener, features=opener.features, names=opener.names, cluster=CurrentCluster()
    )


@dataclass(frozen=True)
class _PartOpener:
    """Makes rows of a block or a frame on a worker."""

    features: int
    names: Sequence[str] | None
    unit: str | None

    def __call__(self, value: tuple[Any, Any], number: int) -> RowSource:
        part, groups = value
        where = f"partition {number}"
        try:
            asked = Asked(self.unit, groups, self.names, origin=where, fewest=0)
            rows = _in_memory(part).rows(asked)
        except DataError as error:
            said = error.message if where in error.message else f"{where}: {error.message}"
            raise DataError.relayed(said, hint=error.hint, code=error.code) from None
        if rows.features != self.features:
            raise _unusable(
                f"{where} has {rows.features} columns, and the collection states {self.features}",
                "Give the right meta where the collection is made.",
            )
        if self.names is not None and list(rows.names or ()) != list(self.names):
            raise _unusable(
                f"{where} has other columns than the collection states",
                "Give the right meta where the collection is made.",
            )
        return rows


def _groups_of(groups: Any, parts: int, chunks: Sequence[float] | None) -> list[Any] | None:
    if groups is None:
        return None
    known = chunks is not None and not np.isnan(chunks).any()
    if _is_collection(groups):
        if known and hasattr(groups, "rechunk") and groups.shape == (sum(chunks or ()),):
            groups = groups.rechunk((tuple(chunks or ()),))
        found = list(np.ravel(groups.to_delayed()))
        if getattr(groups, "ndim", 1) == 1 and len(found) == parts:
            return found
        raise DataError("groups-partitions", found=len(found), parts=parts)
    if not known or chunks is None:
        raise DataError("groups-of-unknown-length")
    ids = unit_ids(groups, int(sum(chunks)))
    ends = np.cumsum([0, *chunks]).astype(int).tolist()
    return [ids[start:end] for start, end in pairwise(ends)]


def _unusable(what: str, hint: str) -> DataError:
    return DataError("dask-collection", what=what, way_out=hint)
