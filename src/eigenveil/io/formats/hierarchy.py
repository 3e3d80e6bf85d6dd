"""Stores of arrays in groups, HDF5 files and Zarr folders, under one way of reading."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.checks import library
from eigenveil.errors import DataError
from eigenveil.files import Place
from eigenveil.io.files import MOST_UNPACKED, too_large, unreadable

# An array that is read whole may become so many times what is stored of it, beyond so many bytes.
_MOST_GROWTH, _ALWAYS_READ = 1 << 12, 1 << 26
_MOST_CHUNK = MOST_UNPACKED // 4  # those of several arrays are unpacked together


@contextmanager
def opened(path: Place, *, write: bool = False) -> Iterator[Any]:
    """The root group of a store, for reading, or to be changed."""
    if isinstance(path, Path) and path.is_dir():
        zarr = library("zarr", extra="cells", what="A .zarr folder")
        yield zarr.open_group(str(path), mode="r")
        return
    h5py = library("h5py", extra="cells", what=f"A {path.suffix} file")
    path.open("rb").close()  # the system's own words for what is wrong
    with h5py.File(path, "r+" if write else "r", locking="best-effort") as file:
        yield file


def is_array(element: Any) -> bool:
    return hasattr(element, "shape")


def child(path: Place, group: Any, name: str, *, array: bool = False) -> Any:
    found = group[name] if not is_array(group) and name in group else None
    if found is None or (array and not is_array(found)):
        what = "array" if array else "element"
        raise unreadable(path, f"it has no {what} {name!r}")
    if is_array(found):
        _check_chunk(path, name, found)
    return found


def whole(path: Place, group: Any, name: str) -> NDArray[Any]:
    """All of an array of one dimension; bytes as texts."""
    found = child(path, group, name, array=True)
    _check_growth(path, name, found)
    entries = np.asarray(found[...])
    if entries.ndim != 1:
        raise unreadable(path, f"{name!r} has shape {entries.shape}")
    return as_texts(entries)


def as_texts(entries: NDArray[Any]) -> NDArray[Any]:
    """Entries whose bytes are decoded; numbers as they are."""
    if entries.dtype.kind in "SOUT":
        texts = [
            each.decode("utf-8", "replace") if isinstance(each, bytes) else each
            for each in entries.tolist()
        ]
        return np.fromiter(texts, np.object_)
    return entries


def _check_chunk(path: Place, name: str, array: Any) -> None:
    chunks = getattr(array, "chunks", None)
    size = 0 if not chunks else math.prod(chunks) * array.dtype.itemsize
    if size > _MOST_CHUNK:
        raise too_large(
            path, f"a chunk of its array {name!r} has {size:,} bytes, more than {_MOST_CHUNK:,}"
        )


def _check_growth(path: Place, name: str, array: Any) -> None:
    size = math.prod(array.shape) * array.dtype.itemsize
    if size <= _ALWAYS_READ:
        return
    hdf5 = getattr(array, "id", None)
    stored = int(array.nbytes_stored() if hdf5 is None else hdf5.get_storage_size())
    if size > _MOST_GROWTH * stored:
        raise too_large(path, f"of its array {name!r}, {size:,} bytes are to be made of {stored:,}")


# -- Compressed matrices in them.


_POINTERS = 1 << 16  # that are read together
_ENTRIES = 1 << 22  # of a part, more only where one row has more
# Sorted entries up to so many bytes stay in memory; more are written to a temporary file.
_IN_MEMORY = 1 << 28


@dataclass(frozen=True)
class Compressed:
    """The three arrays of a compressed matrix, which are read in slices."""

    path: Place  # Named in messages
    data: Any
    indices: Any
    pointers: Any
    shape: tuple[int, int]
    by_rows: bool  # Whether rows are compressed; else columns are
    entry_type: np.dtype[Any]  # Of the values as they are read

    @classmethod
    def of_group(
        cls,
        path: Place,
        group: Any,
        *,
        shape: tuple[int, int],
        by_rows: bool,
        entry_type: np.dtype[Any],
    ) -> Compressed:
        names = ("data", "indices", "indptr")
        data, indices, pointers = (child(path, group, name, array=True) for name in names)
        return cls(path, data, indices, pointers, shape, by_rows, entry_type)

    def __post_init__(self) -> None:
        wanted = self.shape[0 if self.by_rows else 1] + 1
        found = (self.data.shape, self.indices.shape, self.pointers.shape)
        if found[0] != found[1] or found[2] != (wanted,):
            raise self._damaged("its arrays do not have the lengths of its shape")

    def parts(self, step: int) -> Iterator[Any]:
        rows, width = self.shape
        before = 0
        for first in range(0, rows, _POINTERS):
            last = min(first + _POINTERS, rows)
            ends = self.pointers[first : last + 1].astype(np.int64)
            self._check_pointers(ends, before)
            before = int(ends[-1])
            for start, stop in _cuts(ends, step):
                begin, end = int(ends[start]), int(ends[stop])
                values = self.data[begin:end].astype(self.entry_type)
                places = self.indices[begin:end]
                part = scipy.sparse.csr_array(
                    (values, places, ends[start : stop + 1] - begin), shape=(stop - start, width)
                )
                part.check_format(full_check=True)  # an index out of range writes out of range
                yield part

    def _check_pointers(self, ends: NDArray[np.int64], before: int) -> None:
        if ends[0] != before or np.any(np.diff(ends) < 0) or ends[-1] > self.data.shape[0]:
            raise self._damaged("its pointers are not in order, or beyond its entries")
        if self.by_rows and np.any(np.diff(ends) > self.shape[1]):
            raise self._damaged("a row has more entries than there are columns")

    def _damaged(self, why: str) -> DataError:
        return unreadable(self.path, why)

    # -- columns

    def sorted_by_row(self) -> SortedEntries:
        """Entries of compressed columns in order of rows, by groups that fit into memory."""
        rows, width = self.shape
        ends = self.pointers[:].astype(np.int64)
        self._check_pointers(ends, 0)
        entries = int(ends[-1])
        counts = np.zeros(rows, dtype=np.int64)
        slices = [(a, min(a + _ENTRIES, entries)) for a in range(0, entries, _ENTRIES)]
        for begin, end in slices:
            places = self.indices[begin:end]
            if places.min() < 0 or places.max() >= rows:
                raise self._damaged("an index is out of range")
            counts += np.bincount(places, minlength=rows)
        totals = np.append(0, np.cumsum(counts))
        bounds = np.array([0, *(stop for _, stop in _cuts(totals, max(rows, 1)))])
        offsets = totals[bounds]
        kind = np.dtype([("row", np.int64), ("column", np.int32), ("value", self.entry_type)])
        filled = offsets.copy()
        file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - kept
        for begin, end in slices:
            found = np.empty(end - begin, dtype=kind)
            found["row"] = self.indices[begin:end]
            found["column"] = np.searchsorted(ends, np.arange(begin, end), side="right") - 1
            found["value"] = self.data[begin:end]
            groups = np.searchsorted(bounds, found["row"], side="right") - 1
            order = np.argsort(groups, kind="stable")
            edges = np.searchsorted(groups[order], np.arange(bounds.size))
            for group in np.unique(groups).tolist():
                own = found[order[edges[group] : edges[group + 1]]]
                file.seek(int(filled[group]) * kind.itemsize)
                file.write(own.tobytes())
                filled[group] += own.size
        return SortedEntries(file, kind, bounds, offsets, width)


@dataclass(frozen=True)
class SortedEntries:
    """Entries of a matrix in groups of neighbouring rows."""

    file: Any
    kind: np.dtype[Any]
    bounds: NDArray[np.int64]
    offsets: NDArray[np.int64]
    width: int

    def parts(self, step: int) -> Iterator[Any]:
        for group in range(self.bounds.size - 1):
            first, last = int(self.bounds[group]), int(self.bounds[group + 1])
            begin, end = int(self.offsets[group]), int(self.offsets[group + 1])
            self.file.seek(begin * self.kind.itemsize)
            found = np.frombuffer(self.file.read((end - begin) * self.kind.itemsize), self.kind)
            places = (found["row"] - first, found["column"])
            shape = (last - first, self.width)
            rows = scipy.sparse.coo_array((found["value"], places), shape=shape).tocsr()
            for start in range(0, rows.shape[0], step):
                yield rows[start : start + step]


def _cuts(ends: NDArray[np.int64], step: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows with at most ``_ENTRIES`` entries each, unless one row has more."""
    start, rows = 0, ends.size - 1
    while start < rows:
        stop = int(np.searchsorted(ends, ends[start] + _ENTRIES, side="right")) - 1
        stop = min(max(stop, start + 1), start + step, rows)
        yield start, stop
        start = stop
