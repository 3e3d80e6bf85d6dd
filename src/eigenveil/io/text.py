"""Delimited text: CSV and TSV, gzipped or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from eigenveil.io.files import ending
from eigenveil.io.tabular import Table

# Bytes read at a time; a line must fit.
_READ_BYTES = 1 << 23


class TextTable(Table):
    """Lines of values under a line of names.

    Columns are read as doubles whatever their first lines look like; a column of words for true and
    false is read as such. Empty cells and the usual words for a missing value are NaN.
    """

    def __init__(self, path: Path) -> None:
        kind = ending(path) or ""
        self._delimiter = "\t" if kind.startswith(".tsv") else ","
        self._compression = "gzip" if kind.endswith(".gz") else None
        super().__init__(path)

    def single(self, columns: Sequence[str] | None) -> bool:
        """Never: text has no precision of its own."""
        return False

    def require_numeric(self, name: str) -> None:
        """Raise a DataError that names the column unless it is numeric."""
        kind = self.types[name]
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            raise self._bad_cell([name])
        super().require_numeric(name)

    def _fields(self) -> list[tuple[str, Any]]:
        with self._open(pa.csv.ConvertOptions()) as reader:
            return [
                (field.name, field.type if not pa.types.is_null(field.type) else pa.float64())
                for field in reader.schema
            ]

    def _batches(self, columns: Sequence[str], step: int) -> Iterator[Any]:
        try:
            with self._open(self._conversion(columns)) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            if "conversion error" not in str(error):
                raise
            raise self._bad_cell(columns) from None

    def _conversion(self, columns: Sequence[str]) -> Any:
        return pa.csv.ConvertOptions(
            include_columns=list(columns), column_types={name: self._kind(name) for name in columns}
        )

    def _kind(self, name: str) -> Any:
        # the first lines may look like whole numbers where later ones have decimals
        return pa.bool_() if pa.types.is_boolean(self.types[name]) else pa.float64()

    def _open(self, convert: Any) -> Any:
        return pa.csv.open_csv(
            pa.input_stream(str(self.path), compression=self._compression),
            read_options=pa.csv.ReadOptions(block_size=_READ_BYTES),
            parse_options=pa.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            convert_options=convert,
        )

    def _bad_cell(self, columns: Sequence[str]) -> Exception:
        """The error for the first cell that is no number.

        pyarrow does not tell the row, so the file is read again, as text. The message names the
        place and not the content: it may end up where the owner's data must not.
        """
        convert = pa.csv.ConvertOptions(
            include_columns=list(columns),
            column_types=dict.fromkeys(columns, pa.string()),
            strings_can_be_null=True,
            check_utf8=False,
        )
        first_row = 0
        with self._open(convert) as reader:
            for batch in reader:
                found = [
                    (row, name)
                    for name in columns
                    if (row := _first_failure(batch.column(name), self._kind(name))) is not None
                ]
                if found:
                    row, name = min(found, key=lambda place: place[0])
                    return self.not_numeric(
                        name, f"is not numeric: row {first_row + row} holds something else"
                    )
                first_row += batch.num_rows
        return self.not_numeric(columns[0], "or another one is not numeric")


def _first_failure(column: Any, kind: Any) -> int | None:
    """Row of the first text that is not of this type."""
    trimmed = pa.compute.ascii_trim_whitespace(column)
    low, high = 0, len(trimmed)
    if _converts(trimmed, kind):
        return None
    while high - low > 1:  # the first failure is within [low, high)
        middle = (low + high) // 2
        if _converts(trimmed.slice(low, middle - low), kind):
            low = middle
        else:
            high = middle
    return low


def _converts(column: Any, kind: Any) -> bool:
    try:
        column.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True
