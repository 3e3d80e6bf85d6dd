"""Frames in memory: of pandas and Polars, Arrow tables, and whatever else narwhals knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.moments.norms import FloatArray
from eigenveil.moments.rows import Block
from eigenveil.moments.source import RowSource, block_rows, rechunk
from eigenveil.origins import Origin
from eigenveil.tables.adapters.array import tried
from eigenveil.tables.adapters.base import Adapter, NotNumbersError, dates_refused
from eigenveil.tables.encode import RowEncoder
from eigenveil.tables.entries import identifier, numbers, text
from eigenveil.tables.names import check_identifiers, check_names
from eigenveil.tables.schema import Column, Schema
from eigenveil.tables.units import exact

# Types of columns of texts, and all that do not say what their entries are.
_DECLARED = (nw.Categorical, nw.Enum)
_TEXTS = (nw.String, *_DECLARED)
_OF_ENTRIES = (nw.Object, *_TEXTS, nw.Decimal)


class FrameTable(Adapter):
    """A frame; one that is lazy, as a Polars query or a relation of DuckDB, is computed."""

    def __init__(self, frame: nw.DataFrame[Any]) -> None:
        super().__init__(frame.to_native())
        self.frame = frame
        self.labels = list(frame.columns)

    @classmethod
    def of(cls, X: Any) -> Self | None:
        try:
            found = nw.from_native(X, pass_through=True)
        except DuplicateError:
            names = Counter(str(name) for name in X.columns)
            twice = next(name for name, count in names.items() if count > 1)
            raise DataError("duplicate-column", path="The frame", column=twice) from None
        if isinstance(found, nw.LazyFrame):
            found = found.collect()
        return cls(found) if isinstance(found, nw.DataFrame) else None

    @property
    def index_name(self) -> str | None:
        """The name of a pandas frame's index, which may say whose each row is."""
        name = getattr(getattr(self.given, "index", None), "name", None)
        return None if name in (None, "index") else str(name)

    def split(self, unit: str | None, groups: Any = None) -> tuple[Adapter, Any]:
        if unit is None and groups is None and self.index_name is not None:
            check_identifiers("The index of the frame", [self.index_name])
        return super().split(unit, groups)

    def ids(self, unit: str) -> NDArray[Any]:
        if unit in self.labels:
            return exact(self.frame[unit].to_native())
        return exact(self.given.index) if unit == self.index_name else super().ids(unit)

    def without(self, unit: str | None) -> FrameTable:
        if unit is None or unit not in self.labels:
            return self
        return FrameTable(self.frame.drop(unit))

    def numbers(self) -> FrameTable:
        self.refuse_texts()
        frame = self.frame
        made = [
            nw.new_series(
                name, tried(repr(name), frame[name].to_list()), backend=frame.implementation
            )
            for name, kind in frame.schema.items()
            if kind in _OF_ENTRIES
        ]
        return FrameTable(frame.with_columns(*made)) if made else self

    def in_order(self, names: Sequence[str] | None) -> FrameTable:
        if names is None or set(self.labels) != set(names):
            return self
        return FrameTable(self.frame.select(*names))

    def by_schema(self, schema: Schema, names: Sequence[str]) -> FrameTable:
        """Each variable of its own column; as it stands where it is encoded already."""
        columns: list[Column] = []
        there, wanted = set(self.labels), set(names)
        if not any(isinstance(label, str) for label in there):
            return self  # columns go by their places
        for column in schema.read:
            own = [name for name in column.encoded_names if name in wanted]
            encoded = there.issuperset(own) and (
                not there.issuperset(column.sources)
                or (column.of_kind.of_days and self.frame.schema[column.name].is_numeric())
            )
            if own:
                columns += [Column(name, "number") for name in own] if encoded else [column]
        rows = FrameRows(self.given, schema.having(columns))
        return FrameTable(nw.from_native(rows.encoded())).chosen(names, (), 0)

    def chosen(self, names: Sequence[str] | None, places: Sequence[int], of: int) -> FrameTable:
        if names is None:
            whole = len(self.labels) == of
            names = [self.labels[place] for place in places] if whole else self.labels
        check_there(names, self.labels)
        return FrameTable(self.frame.select(*names))

    def check_kind(self) -> None:
        self.refuse_texts()
        if any(kind.is_temporal() for kind in self.frame.schema.values()):
            dates_refused(self)

    def refuse_texts(self) -> None:
        """Refuse columns declared to be of categories or of texts; the latter pandas infers."""
        kinds = _DECLARED if self.frame.implementation.is_pandas_like() else _TEXTS
        for name, kind in self.frame.schema.items():
            if kind in kinds:
                raise NotNumbersError("column-no-numbers", column=name, kind=kind)

    def column_names(self) -> list[str]:
        return [str(name) for name in self.labels]

    def columns(self) -> Iterator[tuple[int, NDArray[Any]]]:
        for index, name in enumerate(self.labels):
            yield index, np.asarray(self.frame[name].to_numpy())


# -- Frames read with a schema.


_WHOSE = "The frame"


class BatchRows(RowSource):
    """Rows that an encoder makes of Arrow's batches, of which ``batches`` gives all of a pass.

    It is told how many rows one may have, if it asks for that.
    """

    def __init__(
        self,
        encoder: RowEncoder,
        batches: Callable[[int], Iterable[Any]],
        origin: Origin | str = "",
    ) -> None:
        self._encoder, self._batches, self._origin = encoder, batches, origin
        self.unit, self.names, self.schema = encoder.unit, encoder.names, encoder.schema
        self.features = len(encoder.names)
        self.variables = None if self.schema is None else self.schema.variable_numbers()

    def blocks(self) -> Iterator[Block]:
        step, first_row = block_rows(self.features), 0
        for part, *units in rechunk(self._parts(step), step):
            found = units[0] if units else None
            yield Block(part, origin=self._origin, first_row=first_row, units=found)
            first_row += part.shape[0]

    def _parts(self, step: int) -> Iterator[tuple[NDArray[Any], ...]]:
        for batch in self._batches(step):
            rows, units = self._encoder(batch)
            yield (rows,) if units is None else (rows, units)


class FrameRows(BatchRows):
    """Rows of a frame; made by :func:`~eigenveil.tables.adapters.read_frame`."""

    def __init__(self, frame: Any, schema: Schema) -> None:
        schema.check_usable(_WHOSE)
        table = FrameTable.of(frame)
        if table is None:
            raise DataError("not-a-frame", kind=type(frame).__name__)
        found, encoder = table.frame, RowEncoder.of_schema(schema)
        check_columns(encoder, [str(name) for name in found.columns])
        cells = pa.table({name: _cells_of(found[name], encoder, name) for name in encoder.columns})
        types = dict(zip(cells.schema.names, cells.schema.types, strict=True))
        whole = {name: pa.null() for name in types if _is_of_objects(found[name])}
        encoder.check_types(_WHOSE, types | whole)
        super().__init__(encoder, lambda step: cells.to_batches(max_chunksize=step))
        self._frame = found

    def encoded(self) -> Any:
        """The encoded columns as a frame of the same library, for ``transform`` and ``predict``."""
        parts = [block.values for block in self.blocks()]
        values: FloatArray = np.concatenate([*parts, np.empty((0, self.features))])
        columns = dict(zip(self._encoder.names, values.T, strict=True))
        made = nw.from_dict(columns, backend=self._frame.implementation).to_native()
        if (index := getattr(self._frame.to_native(), "index", None)) is not None:
            made.index = index  # pandas
        return made


def check_columns(encoder: RowEncoder, there: Sequence[str]) -> None:
    """Refuse a frame without a column that its schema has."""
    check_names(_WHOSE, there)
    check_there(encoder.columns, there)


def check_there(names: Iterable[str], there: Sequence[str]) -> None:
    """Refuse a frame without one of these columns."""
    for name in names:
        if name not in there:
            raise DataError(
                "frame-without-column", column=name, known=", ".join(map(repr, there[:20]))
            )


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
