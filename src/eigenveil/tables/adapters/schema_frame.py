"""Frames in memory, read with a schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.moments.rows import Block, FloatArray
from eigenveil.moments.source import RowSource, block_rows, rechunk
from eigenveil.tables.adapters.frame import FrameTable
from eigenveil.tables.encode import RowEncoder
from eigenveil.tables.entries import numbers, text
from eigenveil.tables.ids import identifier
from eigenveil.tables.names import check_names
from eigenveil.tables.schema import Schema

_WHOSE = "The frame"


def read_frame(frame: Any, schema: Schema) -> FrameRows:
    """The rows of a frame of any library as its schema says, for ``fit_rows``.

    They are those of a file with the same columns: see :func:`eigenveil.io.open_rows`.

    Parameters
    ----------
    frame : frame of pandas or Polars (lazy too), Arrow table, relation of DuckDB
        Or what else narwhals knows; what is lazy is computed.
    schema : Schema
        From :func:`eigenveil.tables.schema.read_schema`.

    Raises
    ------
    DataError
        When it is no frame, a column is not there or twice, has a type that cannot be of its kind,
        or the schema has what was not confirmed. Of a column of objects each entry is read by
        itself.
    """
    return FrameRows(frame, schema)


class FrameRows(RowSource):
    """Rows of a frame; made by :func:`read_frame`."""

    def __init__(self, frame: Any, schema: Schema) -> None:
        schema.check_usable(_WHOSE)
        table = FrameTable.of(frame)
        if table is None:
            raise DataError("not-a-frame", kind=type(frame).__name__)
        found = table.frame
        self.schema, self._encoder, self._frame = schema, RowEncoder.of_schema(schema), found
        self.unit, self.names = schema.unit, self._encoder.names
        self.features, self.variables = len(self.names), schema.variable_numbers()
        self._table = _arrow(found, self._encoder)
        types = dict(zip(self._table.schema.names, self._table.schema.types, strict=True))
        whole = {name: pa.null() for name in types if _is_of_objects(found[name])}
        self._encoder.check_types(_WHOSE, types | whole)

    def blocks(self) -> Iterator[Block]:
        step, first_row = block_rows(self.features), 0
        for part, *units in rechunk(self._parts(step), step):
            yield Block(part, first_row=first_row, units=units[0] if units else None)
            first_row += part.shape[0]

    def encoded(self) -> Any:
        """The encoded columns as a frame of the same library, for ``transform`` and ``predict``."""
        parts = [block.values for block in self.blocks()]
        values: FloatArray = np.concatenate([*parts, np.empty((0, self.features))])
        columns = dict(zip(self._encoder.names, values.T, strict=True))
        made = nw.from_dict(columns, backend=self._frame.implementation).to_native()
        if (index := getattr(self._frame.to_native(), "index", None)) is not None:
            made.index = index  # pandas
        return made

    def _parts(self, step: int) -> Iterator[tuple[NDArray[Any], ...]]:
        for batch in self._table.to_batches(max_chunksize=step):
            rows, units = self._encoder(batch)
            yield (rows,) if units is None else (rows, units)


def _arrow(frame: nw.DataFrame[Any], encoder: RowEncoder) -> Any:
    """The needed columns as an Arrow table."""
    there = [str(name) for name in frame.columns]
    check_names(_WHOSE, there)
    for name in encoder.columns:
        if name not in there:
            raise DataError(
                "column-of-schema-missing", column=name, known=", ".join(map(repr, there[:20]))
            )
    return pa.table({name: _cells_of(frame[name], encoder, name) for name in encoder.columns})


def _cells_of(column: nw.Series[Any], encoder: RowEncoder, name: str) -> Any:
    """A column as Arrow has it; of entries of no one type numbers or texts, each by itself."""
    if not _is_of_objects(column):
        try:
            return column.to_arrow()
        except (pa.ArrowException, UnicodeError):  # a text that has no UTF-8
            pass
    if name not in encoder.texts:
        return pa.array(numbers(column.to_list()))
    read = identifier if name == encoder.unit else text
    return pa.array([read(entry) for entry in column.to_list()], pa.string())


def _is_of_objects(column: nw.Series[Any]) -> bool:
    kind: Any = getattr(column.to_native(), "dtype", None)
    kind = getattr(getattr(kind, "categories", None), "dtype", kind)
    return column.dtype == nw.Object or bool(getattr(kind, "hasobject", False))
