"""Frames in memory: of pandas and Polars, Arrow tables, and whatever else narwhals knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Self

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.tables.adapters.array import tried
from eigenveil.tables.adapters.base import Adapter
from eigenveil.tables.adapters.unusable import NotNumbersError, dates_refused
from eigenveil.tables.units import exact

# Types of columns of texts, and all that do not say what their entries are.
_TEXTS = (nw.String, nw.Categorical, nw.Enum)
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

    def ids(self, unit: str) -> NDArray[Any]:
        return exact(self.frame[unit].to_native()) if unit in self.labels else super().ids(unit)

    def without(self, unit: str | None) -> FrameTable:
        if unit is None or unit not in self.labels:
            return self
        return FrameTable(self.frame.drop(unit))

    def numbers(self) -> FrameTable:
        """Columns of objects and texts, each entry by itself."""
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

    def check_kind(self) -> None:
        self.refuse_texts()
        if any(kind.is_temporal() for kind in self.frame.schema.values()):
            dates_refused(self)

    def refuse_texts(self) -> None:
        """Refuse columns that Arrow or Polars declares to be of texts; pandas infers that."""
        if self.frame.implementation.is_pandas_like():
            return
        for name, kind in self.frame.schema.items():
            if kind in _TEXTS:
                raise NotNumbersError("column-no-numbers", column=name, kind=kind)

    def column_names(self) -> list[str]:
        return [str(name) for name in self.labels]

    def columns(self) -> Iterator[tuple[int, NDArray[Any]]]:
        for index, name in enumerate(self.labels):
            yield index, np.asarray(self.frame[name].to_numpy())
