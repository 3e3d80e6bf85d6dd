"""Files with named columns: Parquet and Arrow (delimited text is in ``text``)."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import NDArray

from eigenveil.checks import first_twice
from eigenveil.errors import DataError
from eigenveil.files import Place
from eigenveil.io.files import MOST_UNPACKED, check_unpacked, reading, source_of
from eigenveil.io.formats.arrow_sizes import batch_sizes
from eigenveil.io.formats.named import Named
from eigenveil.models.inputs import check_names, check_width
from eigenveil.moments.source import part_rows
from eigenveil.origins import FileOrigin
from eigenveil.tables.entries import INFINITE, NUMBER, TRUTHS

if TYPE_CHECKING:
    from eigenveil.io.encode import RowEncoder

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
        with reading(path):
            fields = self._fields()
        check_width(str(path), len(fields))
        names = [name for name, _ in fields if _ROW_LABELS.fullmatch(name) is None]
        twice = first_twice(names)
        if twice is not None:
            check_names(FileOrigin(str(path)), [name for name, _ in fields])
            raise DataError(
                f"{path} has more than one column {twice!r}.",
                hint="Rename one of them; a text file needs a first line with the names.",
                code="duplicate-column",
            )
        self.columns: Sequence[str] = tuple(names)
        """The columns, less row labels that nobody requested."""
        self.malformed = 0
        """Rows that were no rows when all were read last: too many cells, or few."""
        self.types: dict[str, Any] = dict(fields)
        self.flags: frozenset[str] = frozenset()
        """Columns of a text that hold truth values, as far as its first lines tell."""
        self.nan = "nan"
        """What an entry that is not a number was, for messages."""

    def origin_of_malformed(self) -> FileOrigin:
        """Where the rows are that were no rows."""
        return self.origin()

    def text_columns(self, names: Sequence[str]) -> set[str]:
        """Those of these columns that are not numeric."""
        return {name for name in names if not is_numeric(self.types[name])}

    def require_numeric(self, name: str) -> None:
        """Raise a DataError that names the column unless it is numeric, or has no entry at all."""
        if not is_numeric(self.types[name]) and not pa.types.is_null(self.types[name]):
            raise self.not_numeric(name, f"is {self.types[name]}, not numeric")

    def not_numeric(self, name: str, what: str) -> DataError:
        """Make the error about a column that cannot be used."""
        return DataError(
            f"{self.path}: column {name!r} {what}.",
            hint="Leave it out (--exclude), or state in a schema that it is a category, date or "
            "boolean (eigenveil schema new drafts one).",
            code="not-numeric",
        )

    def check_types(self, encoder: RowEncoder) -> None:
        """Refuse columns that cannot be what a schema says of them."""
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
    """Batches of one schema as one."""
    if len(batches) == 1:
        return batches[0]
    (found,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return found


class ParquetTable(Table):
    """Apache Parquet, mapped into memory: pages are unpacked as they are reached.

    Of a store's file the wanted columns of one row group are fetched at a time.
    """

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
        del texts  # cells have types
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
        """Refuse what a few bytes unpack to."""
        self._read: Place = self.path
        with self.path.open("rb") as file:
            packed = any(each.packed for each in batch_sizes(file))
        if not packed:
            return
        if not isinstance(self.path, Path):  # sizes stand before each buffer, all over the file
            self._read = Path(os.fspath(self.path))
        with self._read.open("rb") as file:
            for number, each in enumerate(batch_sizes(file)):
                check_unpacked(self.path, each.unpacked, f"batch {number + 1}")

    def _batches(self, columns: Sequence[str], texts: Collection[str]) -> Iterator[Any]:
        del texts  # cells have types
        # most columns unwanted: leave those packed; but to pick columns copies them, packed or not
        few = 2 * len(columns) < len(self._place)
        fields = [self._place[name] for name in columns] if few else None
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        with (
            source_of(self._read) as source,
            pa.ipc.open_file(source, options=options) as file,
        ):
            for index in range(file.num_record_batches):
                yield file.get_batch(index)


HELD_BY_SINGLE = frozenset(
    [pa.bool_(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.float16(), pa.float32()]
)


def is_numeric(kind: Any) -> bool:
    """Whether an Arrow type is a number or a truth value."""
    types = pa.types
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
    )


def _cells(column: Any) -> NDArray[np.float64]:
    """Values of cells of text, each by itself; NaN for what is no number."""
    values = np.full(len(column), np.nan)
    numeric = pa.compute.fill_null(pa.compute.match_substring_regex(column, NUMBER), False)
    text = column.filter(numeric).cast(pa.string())
    bare = pa.compute.ascii_ltrim(pa.compute.ascii_trim(text, " \t"), "+")
    values[numeric.to_numpy(zero_copy_only=False)] = bare.cast(pa.float64()).to_numpy()
    infinite = pa.compute.fill_null(pa.compute.match_substring_regex(column, INFINITE), False)
    negative = pa.compute.fill_null(pa.compute.match_substring(column, "-"), False)
    values[infinite.to_numpy(zero_copy_only=False)] = np.inf
    values[pa.compute.and_(infinite, negative).to_numpy(zero_copy_only=False)] = -np.inf
    for value, words in TRUTHS.items():
        found = pa.compute.is_in(column, pa.array(words, pa.binary()))
        values[found.to_numpy(zero_copy_only=False)] = value
    return values


def numbers_of(column: Any) -> NDArray[Any]:
    """Values of an Arrow column, NaN for a null and for a cell of text that is no number."""
    if pa.types.is_binary(column.type):
        return _cells(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(column.type):
        # by way of text: Arrow's own conversion is off by a last digit now and then, and the same
        # number must come out of every format
        column = column.cast(pa.string()).cast(pa.float64())
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values
