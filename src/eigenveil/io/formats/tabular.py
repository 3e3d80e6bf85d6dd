"""Files with named columns: Parquet and Arrow (delimited text is in ``text``)."""

from __future__ import annotations

import os
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from eigenveil.checks import first_twice
from eigenveil.errors import DataError
from eigenveil.files import Place
from eigenveil.io.files import MOST_UNPACKED, check_unpacked, reading, source_of
from eigenveil.moments.source import part_rows
from eigenveil.origins import FileOrigin
from eigenveil.tables.encode import RowEncoder, is_numeric
from eigenveil.tables.names import check_identifiers, check_names, check_width
from eigenveil.tables.reading import Dialect


class Named:
    """Columns by name, and errors about them."""

    path: Place  # Named in messages as it was given
    files: Sequence[Place]  # What is read: the same, or several that are one
    columns: Sequence[str]  # The columns that can be features, in order
    types: Mapping[str, Any]  # What each stored column holds, in the order stored
    # What is stored about rows beside the columns, such as the person of each cell
    label_names: Sequence[str] = ()

    def origin(self) -> FileOrigin:
        return FileOrigin(str(self.path))

    def check_names(self, names: Sequence[str] | None = None, *, of_words: bool = False) -> None:
        wanted = self.columns if names is None else names
        place = {name: index for index, name in enumerate(self.types)}
        check_names(
            FileOrigin(str(self.path)),
            wanted,
            places=[place[name] for name in wanted],
            of_words=of_words,
        )

    def check_identifiers(self, names: Sequence[str]) -> None:
        check_identifiers(str(self.path), names, text=self.text_columns(names))

    def has(self, name: str) -> bool:
        return name in self.types or name in self.label_names

    def require(self, name: str, why: str = "", *, of_rows: bool = False) -> None:
        """Raise unless there is such a column, or with ``of_rows`` such a label of rows."""
        if name not in self.types and not (of_rows and name in self.label_names):
            raise DataError(
                "missing-column",
                path=self.path,
                column=name,
                why=f", {why}" if why else "",
                known=self.known,
            )

    @property
    def known(self) -> str:
        """The columns that there are, in a sentence."""
        shown = ", ".join(repr(name) for name in self.columns[:20])
        more = f" and {len(self.columns) - 20} more" if len(self.columns) > 20 else ""
        labels = ", ".join(repr(name) for name in self.label_names[:20])
        beside = f" Its rows have {labels}." if labels else ""
        return f"Its columns are {shown}{more}.{beside}"

    def require_numeric(self, name: str) -> None:
        """Raise a DataError that names the column unless it is numeric; here all are."""

    def text_columns(self, names: Sequence[str]) -> set[str]:
        return set()


_MAGIC = b"ARROW1"
_CONTINUES = 0xFFFFFFFF
_BLOCK, _BUFFER = 24, 16  # bytes of these structs
# Numbers of fields: of Footer, Message, DictionaryBatch and RecordBatch.
_DICTIONARIES, _BATCHES = 2, 3
_HEADER_TYPE, _HEADER = 1, 2
_DATA = 1
_BUFFERS, _COMPRESSION = 2, 3
_OF_DICTIONARY = 2  # a message's header type


def batch_sizes(file: IO[bytes]) -> Iterator[int | None]:
    """Bytes that the buffers of each batch, and dictionary, become; ``None``: it is not packed."""
    for place in _places(file):
        yield _size_of(file, *place)


class _Table:
    """A table of a FlatBuffer."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, _number("<I", data, 0))

    def _field(self, number: int) -> int | None:
        entries = self._at - _number("<i", self._data, self._at)
        slot = 4 + 2 * number
        if slot >= _number("<H", self._data, entries):
            return None
        offset = _number("<H", self._data, entries + slot)
        return self._at + offset if offset else None

    def byte(self, number: int) -> int:
        place = self._field(number)
        return 0 if place is None else _number("<B", self._data, place)

    def has(self, number: int) -> bool:
        return self._field(number) is not None

    def table(self, number: int) -> _Table | None:
        place = self._field(number)
        return None if place is None else _Table(self._data, self._target(place))

    def structs(self, number: int, size: int) -> Iterator[int]:
        """The places of a vector's structs."""
        place = self._field(number)
        if place is None:
            return
        start = self._target(place)
        count = _number("<I", self._data, start)
        if count * size > len(self._data):
            raise ValueError("a list in its metadata is longer than they are")
        yield from range(start + 4, start + 4 + count * size, size)

    def _target(self, place: int) -> int:
        return place + _number("<I", self._data, place)


def _number(kind: str, data: bytes, at: int) -> int:
    try:
        if at < 0:  # which would count from the end
            raise ValueError("a place in its metadata is before their beginning")
        found: int = struct.unpack_from(kind, data, at)[0]
    except struct.error:
        raise ValueError("a place in its metadata is behind their end") from None
    return found


def _read(file: IO[bytes], at: int, size: int) -> bytes:
    if at < 0 or size < 0:
        raise ValueError("a place in its metadata is before the file")
    file.seek(at)
    found = file.read(size)
    if len(found) < size:
        raise ValueError("its metadata point behind its end")
    return found


def _places(file: IO[bytes]) -> list[tuple[int, int]]:
    end = file.seek(0, 2)
    tail = _read(file, end - len(_MAGIC) - 4, len(_MAGIC) + 4)
    length = _number("<i", tail, 0)
    start = end - len(tail) - length
    footer = _read(file, start, length if start >= 0 else -1)
    table, found = _Table.root(footer), []
    for kind in (_DICTIONARIES, _BATCHES):
        for at in table.structs(kind, _BLOCK):
            found.append((_number("<q", footer, at), _number("<i", footer, at + 8)))
    return found


def _size_of(file: IO[bytes], offset: int, length: int) -> int | None:
    """The size of a batch whose metadata, before its body, have this offset and length."""
    metadata = _read(file, offset, length)
    begins = 8 if _number("<I", metadata, 0) == _CONTINUES else 4
    message = _Table.root(metadata[begins:])
    batch = message.table(_HEADER)
    if batch is not None and message.byte(_HEADER_TYPE) == _OF_DICTIONARY:
        batch = batch.table(_DATA)
    if batch is None or not batch.has(_COMPRESSION):
        return None
    body, unpacked = offset + length, 0
    for at in batch.structs(_BUFFERS, _BUFFER):
        place = _number("<q", metadata, begins + at)
        size = _number("<q", metadata, begins + at + 8)
        if size >= 8:
            stated = _number("<q", _read(file, body + place, 8), 0)
            unpacked += size - 8 if stated == -1 else max(stated, 0)  # -1: it stayed as it was
    return unpacked


# How much smaller than its content a row group of Parquet is that is no data.
_BOMB = 1000
# Row labels that pandas (and R, in text) write beside the data unrequested.
_ROW_LABELS = re.compile(r"|__index_level_\d+__")


class Table(Named, ABC):
    """Rows with named columns, read by name."""

    newlines_in_cells = False
    """Whether a quote that is not closed takes in other rows."""

    def __init__(self, path: Place) -> None:
        self.path = path
        self.files = (path,)
        self.labels: Mapping[str, Mapping[Any, str]] = {}
        """What a file says that values of its columns are called."""
        with reading(path):
            fields = self._fields()
        check_width(str(path), len(fields))
        names = [name for name, _ in fields if _ROW_LABELS.fullmatch(name) is None]
        twice = first_twice(names)
        if twice is not None:
            check_names(FileOrigin(str(path)), [name for name, _ in fields])
            raise DataError("duplicate-column", path=path, column=twice)
        self.columns: Sequence[str] = tuple(names)
        """The columns, less row labels that nobody requested."""
        self.malformed = 0
        """Rows that were no rows when all were read last: too many cells, or few."""
        self.types: dict[str, Any] = dict(fields)
        self.flags: frozenset[str] = frozenset()
        """Columns of a text that hold truth values, as far as its first lines tell."""
        self.written: Dialect | None = None
        """How a text is written, as was said and as its line of names shows."""
        self.nan = "nan"
        """What an entry that is not a number was, for messages."""

    def origin_of_malformed(self) -> FileOrigin:
        return self.origin()

    def text_columns(self, names: Sequence[str]) -> set[str]:
        return {name for name in names if not is_numeric(self.types[name])}

    def require_numeric(self, name: str) -> None:
        if not is_numeric(self.types[name]) and not pa.types.is_null(self.types[name]):
            raise self.not_numeric(name, f"is {self.types[name]}, not numeric")

    def not_numeric(self, name: str, what: str) -> DataError:
        return DataError("not-a-feature", path=self.path, column=name, what=what)

    def check_types(self, encoder: RowEncoder) -> None:
        encoder.check_types(str(self.path), self.kinds)

    @property
    def kinds(self) -> Mapping[str, Any]:
        """The Arrow types of columns, as far as they bind what their cells are."""
        return self.types

    def batches(
        self, columns: Sequence[str], step: int, *, texts: Collection[str] = ()
    ) -> Iterator[Any]:
        """Read all rows of these columns, in order, in Arrow batches of at most ``step`` rows."""
        for batch in _gathered(self._batches(columns, texts), step):
            # a slice is no copy, so that a batch as large as its file is not made dense at once
            for start in range(0, batch.num_rows, step):
                yield batch.slice(start, step)

    @abstractmethod
    def _fields(self) -> list[tuple[str, Any]]:
        """Name and Arrow type of each column."""

    @abstractmethod
    def _batches(self, columns: Sequence[str], texts: Collection[str]) -> Iterator[Any]:
        """Arrow record batches with at least these columns."""


def _gathered(batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """The same rows in batches of at least so many, as far as those in a row have one type."""
    waiting: list[Any] = []
    count = 0
    for batch in batches:
        if waiting and (count >= rows or waiting[0].schema != batch.schema):
            yield _as_one(waiting)
            waiting, count = [], 0
        if batch.num_rows:
            waiting.append(batch)
            count += batch.num_rows
    if waiting:
        yield _as_one(waiting)


def _as_one(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    (found,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return found


class ParquetTable(Table):
    """Apache Parquet, mapped into memory; of a store's file one row group is fetched at a time."""

    def _open(self) -> Any:
        local = isinstance(self.path, Path)
        return pa.parquet.ParquetFile(source_of(self.path), pre_buffer=not local)

    def _fields(self) -> list[tuple[str, Any]]:
        with self._open() as file:
            self._check_groups(file.metadata)
            return [(field.name, field.type) for field in file.schema_arrow]

    def _check_groups(self, found: Any) -> None:
        """Refuse what a few bytes unpack to; a page is of two GiB at most."""
        for number in range(found.num_row_groups):
            group = found.row_group(number)
            if group.total_byte_size > MOST_UNPACKED:
                columns = (group.column(place) for place in range(group.num_columns))
                packed = sum(column.total_compressed_size for column in columns)
                if group.total_byte_size > _BOMB * packed:
                    check_unpacked(self.path, group.total_byte_size, f"row group {number + 1}")

    def _batches(self, columns: Sequence[str], texts: Collection[str]) -> Iterator[Any]:
        with self._open() as file:
            rows, names = part_rows(len(columns)), list(columns)
            if isinstance(self.path, Path):
                yield from file.iter_batches(rows, columns=names)
                return
            for group in range(file.num_row_groups):
                yield from file.iter_batches(rows, row_groups=[group], columns=names)


class ArrowTable(Table):
    """Arrow's file format, which Feather (version 2) is too.

    A record batch is used where it lies, but unpacked whole if it is compressed; a store's file
    with such batches is copied for the time it is read.
    """

    def _fields(self) -> list[tuple[str, Any]]:
        with source_of(self.path) as source, pa.ipc.open_file(source) as file:
            fields = [(field.name, field.type) for field in file.schema]
        self._check_batches()
        self._place = {name: index for index, (name, _) in enumerate(fields)}
        return fields

    def _check_batches(self) -> None:
        self._read: Place = self.path
        with self.path.open("rb") as file:
            packed = any(each is not None for each in batch_sizes(file))
        if not packed:
            return
        if not isinstance(self.path, Path):  # sizes stand before each buffer, all over the file
            self._read = Path(os.fspath(self.path))
        with self._read.open("rb") as file:
            for number, each in enumerate(batch_sizes(file)):
                check_unpacked(self.path, each or 0, f"batch {number + 1}")

    def _batches(self, columns: Sequence[str], texts: Collection[str]) -> Iterator[Any]:
        # most columns unwanted: leave those packed; but to pick columns copies them, packed or not
        few = 2 * len(columns) < len(self._place)
        fields = [self._place[name] for name in columns] if few else None
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        with source_of(self._read) as source, pa.ipc.open_file(source, options=options) as file:
            for index in range(file.num_record_batches):
                yield file.get_batch(index)
