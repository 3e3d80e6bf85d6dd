"""Tables in parts: a file, and the columns that the folders around it say, as in ``year=2024/``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from eigenveil.errors import DataError
from eigenveil.io.formats.tabular import Table
from eigenveil.origins import FileOrigin


class PartTable(Table):
    """A file of a table in parts, after its own columns those of its folders."""

    def __init__(self, file: Table, keys: Mapping[str, Any]) -> None:
        self._file, self.path, self.files = file, file.path, file.files
        twice = next((name for name in keys if name in file.types), None)
        if twice is not None:
            raise DataError("column-in-folder", path=file.path, column=twice)
        self._values = dict(keys)
        self.columns = (*file.columns, *keys)
        self.types = {**file.types, **{name: each.type for name, each in self._values.items()}}
        self.flags, self.nan, self.written = file.flags, file.nan, file.written
        self.labels = file.labels

    @property
    def malformed(self) -> int:  # type: ignore[override]
        return self._file.malformed

    def origin(self) -> FileOrigin:
        return self._file.origin()

    def origin_of_malformed(self) -> FileOrigin:
        return self._file.origin_of_malformed()

    def require_numeric(self, name: str) -> None:
        if name in self._values:
            super().require_numeric(name)
        else:
            self._file.require_numeric(name)

    @property
    def kinds(self) -> Mapping[str, Any]:
        return {**self._file.kinds, **{name: each.type for name, each in self._values.items()}}

    def batches(
        self, columns: Sequence[str], step: int, *, texts: Collection[str] = ()
    ) -> Iterator[Any]:
        own = [name for name in columns if name not in self._values]
        for batch in self._file.batches(own or self._file.columns[:1], step, texts=texts):
            cells = [
                pa.repeat(self._values[name], batch.num_rows)
                if name in self._values
                else batch.column(batch.schema.get_field_index(name))
                for name in columns
            ]
            yield pa.RecordBatch.from_arrays(cells, list(columns))

    def _fields(self) -> list[tuple[str, Any]]:
        return list(self.types.items())

    def _batches(self, columns: Sequence[str], texts: Collection[str]) -> Iterator[Any]:
        return self.batches(columns, 1 << 20, texts=texts)
