"""Files of bare arrays: NumPy's two formats and scipy's sparse one."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.checks import first_twice
from eigenveil.errors import DataError
from eigenveil.files import Place
from eigenveil.io.files import check_unpacked, reading
from eigenveil.io.formats.tabular import Named
from eigenveil.moments.source import block_rows
from eigenveil.origins import FileOrigin
from eigenveil.tables.names import MOST_COLUMNS, MOST_SPARSE_COLUMNS, check_width


@dataclass(frozen=True)
class Header:
    """What the first bytes of a stored array tell."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) == 2 and self.dtype.kind in "biuf"

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}"


class ArrayFile(ABC):
    """Rows of an array, without names."""

    most_columns = MOST_COLUMNS

    def __init__(self, path: Place) -> None:
        self.path = path
        self.files: Sequence[Place] = (path,)
        with reading(path):
            self._stored = self._header()
        if not self._stored.is_matrix or self._stored.shape[1] == 0:
            raise DataError("not-numeric", what=f"{path} contains {self._stored}")
        self.rows, self.features = self._stored.shape
        check_width(str(path), self.features, most=self.most_columns)

    def origin(self) -> FileOrigin:
        return FileOrigin(str(self.path))

    @abstractmethod
    def parts(self, step: int) -> Iterator[NDArray[Any]]:
        """Read all rows in order, in parts of at most ``step`` rows and of any numeric type."""

    @abstractmethod
    def _header(self) -> Header:
        """Shape and type of the matrix."""


class SparseArrayFile(ArrayFile):
    """An array of which only the entries that are not 0 are stored: dense a block at a time."""

    most_columns = MOST_SPARSE_COLUMNS
    # entries at the same place add up: in this, whatever they are stored in
    _entry_type: ClassVar[np.dtype[Any]] = np.dtype(np.float64)

    def parts(self, step: int) -> Iterator[NDArray[Any]]:
        for part in self.sparse_parts(step):
            yield part.toarray()

    @abstractmethod
    def sparse_parts(self, step: int) -> Iterator[Any]:
        """Read all rows in order, in compressed rows of at most ``step`` each."""


class NamedArrayFile(Named, ArrayFile):
    """An array whose columns have names, and whose rows may have labels such as persons."""

    def __init__(self, path: Place) -> None:
        super().__init__(path)
        with reading(path):
            columns = tuple(self._names())
        twice = first_twice(columns)
        if twice is not None:
            raise DataError("duplicate-column", path=path, column=twice)
        self.columns = columns
        self.types = dict.fromkeys(columns, self._stored.dtype)

    @abstractmethod
    def _names(self) -> Sequence[str]:
        """The columns' names, in order."""

    @abstractmethod
    def row_labels(self, name: str) -> Sequence[Any] | NDArray[Any]:
        """A label of every row, in order: one of ``label_names``; None where it is missing."""


class NamedSparseFile(NamedArrayFile, SparseArrayFile):
    """Sparse rows with names and labels, of which many are read at once where blocks are small."""

    def parts(self, step: int) -> Iterator[NDArray[Any]]:
        for part in self.sparse_parts(max(step, block_rows(1))):
            for start in range(0, part.shape[0], step):
                yield part[start : start + step].toarray()


class NpyFile(ArrayFile):
    """A ``.npy`` file, mapped into memory."""

    def parts(self, step: int) -> Iterator[NDArray[Any]]:
        yield from slices(np.lib.format.open_memmap(self.path, mode="r"), step)

    def _header(self) -> Header:
        with self.path.open("rb") as file:
            return _read_header(file)


class NpzFile(ArrayFile):
    """One array of an ``.npz`` archive, unpacked as it is reached.

    Rows of an array in Fortran order are spread over the whole of it, so that such an array is
    unpacked into an unnamed temporary file for the time it is read.
    """

    def __init__(self, path: Place, key: str) -> None:
        self._key = key
        super().__init__(path)

    def parts(self, step: int) -> Iterator[NDArray[Any]]:
        rows, width = self._stored.shape
        with _Member(self.path, self._key) as member:
            if not self._stored.fortran:
                for start in range(0, rows, step):
                    count = min(step, rows - start)
                    yield member.take(count * width).reshape(count, width)
            elif rows > 0:
                with tempfile.TemporaryFile() as copy:
                    _check_room(self.path, rows * width * self._stored.dtype.itemsize)
                    shutil.copyfileobj(member.file, copy)
                    shape = (rows, width)
                    yield from slices(
                        np.memmap(copy, self._stored.dtype, "r", shape=shape, order="F"), step
                    )

    def _header(self) -> Header:
        with _Member(self.path, self._key) as member:
            return member.header


class SparseFile(SparseArrayFile):
    """scipy's own ``.npz`` of a sparse matrix; loaded whole unless rows are in order."""

    def sparse_parts(self, step: int) -> Iterator[Any]:
        if self._format == "csr":
            yield from self._compressed_rows(step)
            return
        check_unpacked(self.path, sum(_sizes(self.path).values()), f"a {self._format} matrix")
        matrix = scipy.sparse.load_npz(self.path).astype(self._entry_type).tocsr()
        yield from slices(matrix, step)

    def _compressed_rows(self, step: int) -> Iterator[Any]:
        rows, width = self._stored.shape
        with (
            _Member(self.path, "data") as data,
            _Member(self.path, "indices") as indices,
            _Member(self.path, "indptr") as pointers,
        ):
            begin = pointers.take(1)
            for start in range(0, rows, step):
                count = min(step, rows - start)
                ends = np.concatenate([begin, pointers.take(count)])
                begin, entries = ends[-1:], int(ends[-1] - ends[0])
                check_unpacked(self.path, 16 * entries, "a block of sparse rows")
                values = data.take(entries).astype(self._entry_type)
                places = indices.take(entries)
                part = scipy.sparse.csr_array(
                    (values, places, ends - ends[0]), shape=(count, width)
                )
                part.check_format(full_check=True)  # an index out of range writes out of range
                yield part

    def _header(self) -> Header:
        sizes = _sizes(self.path)
        for key in ("shape", "format"):
            if sizes.get(key, 0) > _FEW_BYTES:
                raise ValueError(f"its {key} is no few numbers")
        with np.load(self.path, allow_pickle=False) as archive:
            shape = tuple(int(n) for n in archive["shape"])
            self._format = archive["format"].item().decode()
        with _Member(self.path, "data") as data:
            return Header(shape, fortran=False, dtype=data.header.dtype)


def open_archive(path: Place) -> ArrayFile:
    """Find the rows in an ``.npz``: a sparse matrix, the array ``X``, or the only matrix."""
    with reading(path):
        with zipfile.ZipFile(path) as archive:
            keys = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
        if {"format", "shape", "data"} <= set(keys):
            return SparseFile(path)
        if "X" in keys:
            return NpzFile(path, "X")
        headers = {}
        for key in keys:
            with _Member(path, key) as member:
                headers[key] = member.header
    matrices = [key for key, header in headers.items() if header.is_matrix]
    if len(matrices) != 1:
        held = "; ".join(f"{key!r}: {header}" for key, header in headers.items()) or "nothing"
        raise DataError("ambiguous-array", path=path, matrices=len(matrices), held=held)
    return NpzFile(path, matrices[0])


_FEW_BYTES = 1 << 16


def _sizes(path: Place) -> dict[str, int]:
    with zipfile.ZipFile(path) as archive:
        return {each.filename.removesuffix(".npy"): each.file_size for each in archive.infolist()}


def _check_room(path: Place, size: int) -> None:
    """Refuse what would fill the disk for temporary files."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if size > free:
        raise DataError("no-room-for-copy", path=path, mebibytes=size >> 20, free=free >> 20)


class _Member:
    """An array within an archive, read from its beginning."""

    def __init__(self, path: Place, key: str) -> None:
        self._archive = zipfile.ZipFile(path)
        try:
            self.file: IO[bytes] = self._archive.open(f"{key}.npy")
            self.header = _read_header(self.file)
        except BaseException:
            self._archive.close()
            raise

    def __enter__(self) -> _Member:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self._archive.close()

    def take(self, entries: int) -> NDArray[Any]:
        wanted = max(entries, 0) * self.header.dtype.itemsize
        stored = self.file.read(wanted)
        if len(stored) != wanted:
            raise EOFError("an array is shorter than its header states")
        return np.frombuffer(stored, self.header.dtype)


def _read_header(file: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return Header(*np.lib.format.read_array_header_1_0(file))
    if version == (2, 0):
        return Header(*np.lib.format.read_array_header_2_0(file))
    # version 3 is for field names beyond latin-1, which no matrix has
    raise ValueError(f"an array in version {version} of the format has named fields")


def slices(array: Any, step: int) -> Iterator[Any]:
    plain = np.asarray(array) if isinstance(array, np.ndarray) else array
    for start in range(0, plain.shape[0], step):
        yield plain[start : start + step]
