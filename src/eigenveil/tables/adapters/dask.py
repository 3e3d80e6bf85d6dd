"""Rows of Dask's arrays and frames: read by the workers that have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.validation import _get_feature_names, check_array

from eigenveil.errors import DataError
from eigenveil.models.inputs import (
    MOST_COLUMNS,
    MOST_SPARSE_COLUMNS,
    array_rows,
    check_names,
    check_width,
    has_units,
    is_collection,
    less_units,
    of_numbers,
    usable,
)
from eigenveil.moments.dask_rows import CurrentCluster, DaskRows
from eigenveil.moments.source import RowSource
from eigenveil.tables.units import unit_ids


def collection_rows(
    X: Any,
    *,
    unit: str | None = None,
    groups: Any = None,
    names: Sequence[str] | None = None,
    at_least: int = 0,
) -> DaskRows:
    """Rows of a Dask array or frame; nothing is computed yet."""
    kind = type(X)  # whose delayed objects have any attribute
    table = (hasattr(kind, "rechunk") or hasattr(kind, "map_partitions")) and X.ndim == 2
    if table and hasattr(kind, "map_partitions"):
        return _frame_rows(X, unit=unit, groups=groups, order=names)
    if not table:
        raise _unusable(
            f"A Dask {type(X).__name__} is not a table of rows and columns",
            "Give a two-dimensional dask.array.Array, or a dask.dataframe.DataFrame.",
        )
    has_units(X, unit, groups=groups)
    return _array_rows(X, groups=groups, at_least=at_least)


def _array_rows(X: Any, *, groups: Any, at_least: int) -> DaskRows:
    if np.isnan(X.shape[1]):
        raise _unusable(
            "The number of columns of the Dask array is unknown",
            "Call its compute_chunk_sizes() first.",
        )
    if X.shape[0] < at_least:  # not where it is unknown: NaN
        raise DataError(
            f"The Dask array has {X.shape[0]} rows.", hint="Give at least one row.", code="no-rows"
        )
    if X.dtype.kind not in "biuf":
        raise DataError(
            f"The Dask array holds {X.dtype}, not numbers.",
            hint="Convert it first: X.astype(float).",
            code="not-numeric",
        )
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
    opener = _Opener(features, None, None)
    return _rows(opener, parts, ids)


def _frame_rows(X: Any, *, unit: str | None, groups: Any, order: Sequence[str] | None) -> DaskRows:
    own = unit if has_units(X, unit, groups=groups) else None
    meta = less_units(X._meta, own)
    if order is not None and set(meta.columns) == set(order):
        meta = meta[list(order)]
    names = _get_feature_names(meta)
    names = None if names is None else [str(name) for name in names]
    for column, dtype in zip(meta.columns, meta.dtypes, strict=True):
        if getattr(dtype, "kind", "O") not in "biuf":
            raise DataError(
                f"Column {str(column)!r} of the frame holds {dtype}, not numbers.",
                hint="Leave it out, or convert it first.",
                code="not-numeric",
            )
    check_names("The frame", names)
    features = int(meta.shape[1])
    if features == 0:
        raise _unusable("The frame has no column of numbers", "Give at least one.")
    check_width("The frame", features)
    parts = list(X.to_delayed())
    ids = _groups_of(groups, len(parts), None)
    return _rows(_Opener(features, names, own), parts, ids)


def _rows(opener: _Opener, parts: Sequence[Any], ids: Sequence[Any] | None) -> DaskRows:
    values = [[part, None if ids is None else ids[at]] for at, part in enumerate(parts)]
    return DaskRows(
        values,
        opener,
        features=opener.features,
        names=opener.names,
        cluster=CurrentCluster(),
    )


@dataclass(frozen=True)
class _Opener:
    """Makes rows of a block or a frame on a worker."""

    features: int
    names: Sequence[str] | None
    unit: str | None

    def __call__(self, value: tuple[Any, Any], number: int) -> RowSource:
        """The rows of a part, as one machine would have them."""
        part, ids = value
        where = f"partition {number}"
        if self.unit is not None:
            ids, part = part[self.unit], less_units(part, self.unit)
        try:
            if self.names is not None:
                part = part[list(self.names)]
            part = of_numbers(part)
            with usable(part):
                array = _checked(part)
        except DataError as error:
            raise DataError(f"{where}: {error.message}", hint=error.hint, code=error.code) from None
        except KeyError as error:
            raise DataError(f"{where}: {error}", hint="Correct that partition.") from None
        if array.shape[1] != self.features:
            raise _unusable(
                f"{where} has {array.shape[1]} columns, and the collection states {self.features}",
                "Give the right meta where the collection is made.",
            )
        given = None if ids is None else unit_ids(ids, int(array.shape[0]))
        return array_rows(array, self.names, given, origin=where)


def _checked(part: Any) -> Any:
    """Entries as numbers."""
    return check_array(
        part,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,  # such rows are left out
        ensure_min_samples=0,
    )


def _groups_of(groups: Any, parts: int, chunks: Sequence[float] | None) -> list[Any] | None:
    """The units of each partition's rows."""
    if groups is None:
        return None
    known = chunks is not None and not np.isnan(chunks).any()
    if is_collection(groups):
        if known and hasattr(groups, "rechunk") and groups.shape == (sum(chunks or ()),):
            groups = groups.rechunk((tuple(chunks or ()),))
        found = list(np.ravel(groups.to_delayed()))
        if getattr(groups, "ndim", 1) == 1 and len(found) == parts:
            return found
        raise DataError(
            f"groups has {len(found)} partitions, and the rows have {parts}.",
            hint="Partition groups as the rows are; or make it a column of a frame, and name it: "
            "unit=.",
            code="bad-groups",
        )
    if not known or chunks is None:
        raise DataError(
            "groups is an array, and it is unknown how many rows each partition has.",
            hint="Make it a column of the frame, and name it: unit=; or call the array's "
            "compute_chunk_sizes() first.",
            code="bad-groups",
        )
    ids = unit_ids(groups, int(sum(chunks)))
    ends = np.cumsum([0, *chunks]).astype(int).tolist()
    return [ids[start:end] for start, end in pairwise(ends)]


def _unusable(what: str, hint: str) -> DataError:
    return DataError(f"{what}.", hint=hint, code="dask-collection")
