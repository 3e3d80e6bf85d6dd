"""Spark's DataFrames: read by the executors that have them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self, cast

import pyarrow as pa

from eigenveil.errors import DataError
from eigenveil.moments.cluster_rows import ClusterRows
from eigenveil.moments.source import RowSource
from eigenveil.moments.spark_tasks import SparkTasks, explained
from eigenveil.tables.adapters.base import Adapter, Asked
from eigenveil.tables.adapters.frame import BatchRows, FrameTable, check_columns
from eigenveil.tables.encode import RowEncoder, is_numeric
from eigenveil.tables.names import check_names, check_width
from eigenveil.tables.schema import Schema

_WHOSE = "The frame"


class SparkTable(Adapter):
    """A ``DataFrame``: as rows it stays where it is, and for all else it is collected."""

    @classmethod
    def of(cls, X: Any) -> Self | None:
        sql = sys.modules.get("pyspark.sql")
        return None if sql is None or not isinstance(X, sql.DataFrame) else cls(X)

    def split(self, unit: str | None, groups: Any = None) -> tuple[Adapter, Any]:
        return _in_memory(self.given.toArrow()).split(unit, groups)

    def without(self, unit: str | None) -> Adapter:
        return _in_memory(self.given.toArrow()).without(unit)

    def rows(self, asked: Asked) -> ClusterRows:
        if asked.groups is not None:
            raise DataError("groups-of-unknown-length")
        types = self._types()
        table, _ = _in_memory(types.empty_table()).split(asked.unit)
        names = cast("FrameTable", table.in_order(asked.like)).column_names()
        if not names:
            raise _unusable("The frame has no column of numbers", "Give at least one.")
        for name in names:
            if not is_numeric(types.field(name).type):
                kind = self.given.schema[name].dataType.simpleString()
                raise DataError("not-numeric", what=f"Column {name!r} of the frame holds {kind}")
        check_names(_WHOSE, names)
        check_width(_WHOSE, len(names))
        return self._read_by(RowEncoder.of_numbers(names, unit=asked.unit), types)

    def rows_by(self, schema: Schema) -> ClusterRows:
        """The rows as a schema says."""
        schema.check_usable(_WHOSE)
        return self._read_by(RowEncoder.of_schema(schema), self._types())

    def _types(self) -> Any:
        """The columns and their types, of a frame that can be read several times."""
        X = self.given
        if not hasattr(X, "_jdf"):
            raise _unusable(
                "A DataFrame of Spark Connect does not say how it is computed",
                "Fit in the driver's own session, or write Parquet and fit its files.",
            )
        with explained():
            if X.isStreaming:
                raise _unusable(
                    "A streaming DataFrame has no end, and is not read twice",
                    "Write what has come to Parquet, and fit that; or use partial_fit.",
                )
            if not X._jdf.queryExecution().withCachedData().deterministic():
                raise _unusable(
                    "The DataFrame is computed with something random, such as rand() or uuid(): "
                    "each pass could read other rows",
                    "Write it to Parquet and read that; or use its checkpoint().",
                )
            found = pa.schema([(field.name, _arrow_type(field.dataType)) for field in X.schema])
        _in_memory(found.empty_table())  # names that occur twice are refused
        return found

    def _read_by(self, encoder: RowEncoder, types: Any) -> ClusterRows:
        check_columns(encoder, types.names)
        encoder.check_types(_WHOSE, dict(zip(types.names, types.types, strict=True)))
        with explained():  # by position: Spark reads dots and backticks in names as more than that
            frame = self.given.toDF(*(f"c{place}" for place in range(len(types))))
            frame = frame.select(*(f"c{types.get_field_index(name)}" for name in encoder.columns))
        names, cluster = encoder.names, SparkTasks(self.given.sparkSession)
        rows = ClusterRows(
            frame, _BatchOpener(encoder), features=len(names), names=names, cluster=cluster
        )
        if encoder.schema is not None:
            rows.schema, rows.unit = encoder.schema, encoder.unit
            rows.variables = encoder.schema.variable_numbers()
        return rows


@dataclass(frozen=True)
class _BatchOpener:
    """Makes rows of a partition's batches on an executor, once: they come, and are gone."""

    encoder: RowEncoder

    def __call__(self, batches: Iterable[Any], number: int) -> RowSource:
        left = [map(self._named, batches)]
        return BatchRows(self.encoder, lambda _: left.pop(), origin=f"partition {number}")

    def _named(self, batch: Any) -> Any:
        """A batch with the columns' own names, and times as files have them: not in a zone."""
        cells = [
            column.cast(pa.timestamp(column.type.unit, "UTC"))
            if pa.types.is_timestamp(column.type) and column.type.tz
            else column
            for column in batch.columns
        ]
        return pa.RecordBatch.from_arrays(cells, names=list(self.encoder.columns))


def _arrow_type(kind: Any) -> Any:
    """What executors hand on; null for what they cannot."""
    types = import_module("pyspark.sql.pandas.types")
    if kind.typeName() == "timestamp":
        return pa.timestamp("us", "UTC")
    try:
        return types.to_arrow_type(kind)
    except Exception:  # errors of Spark's own
        return pa.null()


def _in_memory(table: Any) -> FrameTable:
    return cast("FrameTable", FrameTable.of(table))


def _unusable(what: str, hint: str) -> DataError:
    return DataError("spark-frame", what=what, way_out=hint)
