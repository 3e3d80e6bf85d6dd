"""Stores of arrays in groups, HDF5 files and Zarr folders, under one way of reading."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.files import Place
from eigenveil.io.files import MOST_UNPACKED, too_large, unreadable
from eigenveil.io.formats.extras import library

"""The hint where a store does not have what its format has."""
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
    """Whether it is an array, and no group."""
    return hasattr(element, "shape")


def child(path: Place, group: Any, name: str, *, array: bool = False) -> Any:
    """What a group has under a name."""
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
