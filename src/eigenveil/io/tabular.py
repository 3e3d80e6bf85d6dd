"""Files with named columns: Parquet and Arrow (delimited text is in ``text``)."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.io.reading import RowFile, reading
from eigenveil.moments.rows import FloatArray

# Row labels that pandas (and R, in text) write beside the data without being asked.
_ROW_LABELS = re.compile(r"|__index_level_\d+__")


class Table(RowFile):
    """Rows with named columns, read by name."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with reading(path):
            fields = self._fields()
        names = [name for name, _ in fields if _ROW_LABELS.fullmatch(name) is None]
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise DataError(
                f"{path} has more than one column {twice[0]!r}.",
                hint="Rename one of them; a text file needs a first line with the names.",
                code="duplicate-column",
            )
        self.columns: Sequence[str] = tuple(names)
        """The columns, less row labels that nobody asked to be written."""
        self.types: dict[str, Any] = dict(fields)

    def single(self, columns: Sequence[str] | None) -> bool:
        """Whether single precision holds every entry of these columns exactly."""
        return all(_fits_single(self.types[name]) for name in columns or self.columns)

    def require_numeric(self, name: str) -> None:
        """Raise a DataError that names the column unless it is numeric."""
        if not is_numeric(self.types[name]):
            raise self.not_numeric(name, f"is {self.types[name]}, not numeric")

    def not_numeric(self, name: str, what: str) -> DataError:
        """The error about a column that cannot be used."""
        return DataError(
            f"{self.path}: column {name!r} {what}.",
            hint="Name the wanted columns (--columns) or leave this one out (--exclude).",
            code="not-numeric",
        )

    def parts(
        self, columns: Sequence[str] | None, dtype: type, step: int
    ) -> Iterator[FloatArray | NDArray[Any]]:
        """All rows of these columns, in order, in parts of at most ``step`` rows."""
        wanted = tuple(columns or self.columns)
        for batch in self._batches(wanted, step):
            # a slice is no copy, so that a batch as large as its file is not made dense at once
            for start in range(0, batch.num_rows, step):
                yield _matrix(batch.slice(start, step), wanted, dtype)

    @abstractmethod
    def _fields(self) -> list[tuple[str, Any]]:
        """Name and Arrow type of each column."""

    @abstractmethod
    def _batches(self, columns: Sequence[str], step: int) -> Iterator[Any]:
        """Arrow record batches with at least these columns."""


class ParquetTable(Table):
    """Apache Parquet, mapped into memory: pages are unpacked as they are reached."""

    _OPTIONS: ClassVar[dict[str, bool]] = {"memory_map": True, "pre_buffer": False}

    def _fields(self) -> list[tuple[str, Any]]:
        with pa.parquet.ParquetFile(self.path, **self._OPTIONS) as file:
            return [(field.name, field.type) for field in file.schema_arrow]

    def _batches(self, columns: Sequence[str], step: int) -> Iterator[Any]:
        with pa.parquet.ParquetFile(self.path, **self._OPTIONS) as file:
            yield from file.iter_batches(step, columns=list(columns))


class ArrowTable(Table):
    """Arrow's file format, which Feather (version 2) is too."""

    def _fields(self) -> list[tuple[str, Any]]:
        with pa.memory_map(str(self.path)) as source, pa.ipc.open_file(source) as file:
            return [(field.name, field.type) for field in file.schema]

    def _batches(self, columns: Sequence[str], step: int) -> Iterator[Any]:
        # compressed columns that nobody wants stay packed
        place = {name: index for index, name in enumerate(self.types)}
        options = pa.ipc.IpcReadOptions(included_fields=[place[name] for name in columns])
        with (
            pa.memory_map(str(self.path)) as source,
            pa.ipc.open_file(source, options=options) as file,
        ):
            for index in range(file.num_record_batches):
                yield file.get_batch(index)


def is_numeric(kind: Any) -> bool:
    """Whether an Arrow type is a number or a truth value."""
    types = pa.types
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
    )


def _fits_single(kind: Any) -> bool:
    small = (pa.bool_(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.float16(), pa.float32())
    return kind in small


def _matrix(batch: Any, columns: Sequence[str], dtype: type) -> FloatArray:
    place = {name: index for index, name in enumerate(batch.schema.names)}
    matrix = np.empty((batch.num_rows, len(columns)), dtype)
    for j, name in enumerate(columns):
        matrix[:, j] = _numbers(batch.column(place[name]))
    return matrix


def _numbers(column: Any) -> NDArray[Any]:
    """Values of an Arrow column, a null as NaN."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(column.type):
        # by way of text: Arrow's own conversion is off by a last digit now and then, and the same
        # number must come out of every format
        column = column.cast(pa.string()).cast(pa.float64())
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values
