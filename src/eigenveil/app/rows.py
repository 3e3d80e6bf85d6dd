"""Which rows are read: places as they are typed, of one table and of sites, and their columns.

A database's URL may stand wherever a file may; ``--sql`` says which of its rows are meant, and
``--from URL`` is another way to name the database of one data set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError, OutputError, WrongOption
from eigenveil.files import Place
from eigenveil.io import (
    Dialect,
    FileRows,
    Query,
    ReadOptions,
    WorkerFiles,
    on_workers,
    open_rows,
    read_vocabulary,
)
from eigenveil.io import read_schema as read_schema
from eigenveil.io.files import absolute as absolute
from eigenveil.io.formats.registry import USUAL
from eigenveil.io.query import is_database
from eigenveil.moments.dask_tasks import DaskTasks, SchedulerAt
from eigenveil.moments.spark_tasks import SparkTasks
from eigenveil.tables.schema import Schema
from eigenveil.tables.units import whose_rows

if TYPE_CHECKING:
    from eigenveil.federation.study.study import Study

Files = Sequence[str | Place]


def read_options(
    *, layer: Any, mask: Any, regions: bool, variants: Any, sheet: Any, na: Any, **text: Any
) -> ReadOptions:
    """How files are read: the fields of a dialect, and those of other formats."""
    return ReadOptions(Dialect(na=na or (), **text), layer, mask, variants, regions, sheet)


def read_center(text: str) -> bool | NDArray[np.float64]:
    """``private``, ``none``, or a .npy file with a public centre."""
    if text in ("private", "none"):
        return text == "private"
    try:
        return np.asarray(np.load(text, allow_pickle=False), dtype=np.float64)
    except (OSError, ValueError) as error:
        raise DataError("unknown-center", center=text, error=error) from None


def read_places(
    files: Sequence[str] | None, sql: str | None, database: str | None, *, needed: bool = True
) -> list[str | Place]:
    """The places of one data set's rows."""
    texts = list(files or ())
    if database is not None:
        if sql is None:
            raise WrongOption("query-and-database")
        if texts:
            raise WrongOption("database-and-files")
        return [Query(sql, database)]
    found = [_place(text, sql) for text in texts]
    if sql is not None and not any(isinstance(place, Query) for place in found):
        raise WrongOption("query-without-database")
    if needed and not found:
        raise WrongOption("no-rows-given", way="--sql and --from")
    return found


def read_sites(texts: Sequence[str], sql: str | None = None) -> dict[str, list[str | Place]]:
    """The places of each site's rows, from ``NAME=PLACE``; a name given again adds places."""
    found: dict[str, list[str | Place]] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        if not (name and equals and place):
            scheme, between, _ = text.partition("://")  # a URL may have a password
            raise DataError("bad-site-option", given=f"{scheme}{between}..." if between else text)
        found.setdefault(name, []).append(_place(place, sql))
    every = [place for places in found.values() for place in places]
    if sql is not None and not any(isinstance(place, Query) for place in every):
        raise WrongOption("query-of-no-site")
    return found


def _place(text: str, sql: str | None) -> str | Place:
    """A place: what a database answers to the query, or what is typed."""
    if not is_database(text):
        return text
    if sql is None:
        raise WrongOption("database-without-query", database=Query("SELECT 1", text).database)
    return Query(sql, text)


@dataclass(frozen=True)
class WantedColumns:
    """The values of ``--columns``, ``--exclude``, ``--vocabulary``, ``--schema``, and of text.

    ``names`` are all columns' names, also of files without any; ``read`` is how files are read;
    ``unit`` is the column with each row's unit; ``cluster`` reads the files.
    """

    columns: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    names: Sequence[str] | None = None
    read: ReadOptions = USUAL
    schema: Schema | None = None
    unit: str | None = None
    cluster: DaskTasks | SparkTasks | None = None

    @classmethod
    def of_study(cls, study: Study, own: WantedColumns) -> WantedColumns:
        """What a study reads of a site's files, whose owner may have a schema of its own."""
        if own.schema is not None and study.table_schema is not None:
            study.table_schema.check_same(own.schema, "--schema")
        elif own.schema is not None:
            raise DataError("study-without-schema")
        if study.columns is None:
            return replace(own, schema=None, unit=study.unit)
        if study.table_schema is not None:
            schema = study.table_schema
            schema = schema if own.schema is None else schema.written_as(own.schema)
            return cls(schema=schema, read=own.read, cluster=own.cluster)
        return cls(list(study.columns), read=own.read, unit=study.unit, cluster=own.cluster)

    def with_unit(self, unit: str | None) -> WantedColumns:
        if self.schema is None:
            return replace(self, unit=unit)
        if unit not in (None, self.schema.unit):
            raise WrongOption(
                "unit-of-schema-differs",
                unit=unit,
                column="no column" if self.schema.unit is None else repr(self.schema.unit),
            )
        return self

    def whose_rows(self, unit: str | None, *, one: bool, usual: bool = False) -> None:
        """Refuse rows of which nobody says whose they are: the answer decides what is protected.

        ``usual`` is the answer where neither a unit nor ``one`` is.
        """
        named = unit is not None or (self.schema is not None and self.schema.unit is not None)
        whose_rows(unit, one_row_per_person=one or (usual and not named), schema=self.schema)

    def open(self, files: Sequence[str | Place]) -> FileRows:
        return open_rows(
            files,
            columns=self.columns,
            exclude=self.exclude,
            names=self.names,
            read=self.read,
            schema=self.schema,
            unit=self.unit,
        )

    def open_like(self, files: Sequence[str | Place]) -> FileRows:
        """The same; files without names have the columns in this order."""
        if self.names is None and self.columns is not None:
            try:
                return self.open(files)
            except DataError as error:
                if error.code != "no-names":
                    raise
            return open_rows(files, read=self.read)
        return self.open(files)

    def like(self, rows: FileRows | WorkerFiles) -> WantedColumns:
        """The columns that rows have, where nothing else says which are wanted."""
        chosen = (self.columns, self.names, self.schema)
        if chosen != (None, None, None) or rows.names is None:
            return self
        return replace(self, columns=list(rows.names), exclude=())

    def rows(self, files: Sequence[str | Place]) -> FileRows | WorkerFiles:
        return self._where(self.open(files))

    def rows_like(self, files: Sequence[str | Place]) -> FileRows | WorkerFiles:
        """The same; files without names have the columns in this order."""
        return self._where(self.open_like(files))

    def _where(self, opened: FileRows) -> FileRows | WorkerFiles:
        return opened if self.cluster is None else on_workers(opened, self.cluster, read=self.read)


def open_sites(
    places: Mapping[str, Files], wanted: WantedColumns
) -> dict[str, FileRows | WorkerFiles]:
    """Rows of each site; columns by name, those of the first site where none are given."""
    found: dict[str, FileRows | WorkerFiles] = {}
    seen: dict[Any, str] = {}
    for name, own in places.items():
        try:
            rows = wanted.rows_like(own)
        except (DataError, OutputError) as error:
            raise type(error).relayed(
                f"site {name}: {error.message}", hint=error.hint, code=error.code
            ) from None
        for file in rows.paths:
            if (first := seen.setdefault(file.resolve(), name)) != name:
                raise DataError("file-at-two-sites", site=name, file=file, given=first)
        if found and rows.features != next(iter(found.values())).features:
            first, other = next(iter(found.items()))
            raise DataError(
                "other-features",
                whose=f"site {name}",
                features=rows.features,
                wanted=other.features,
            )
        found[name] = rows
        wanted = wanted.like(rows)
    return found


def read_columns(
    columns: Sequence[str] | None,
    exclude: Sequence[str] | None,
    vocabulary: Path | None = None,
    schema: Path | None = None,
    *,
    read: ReadOptions,
    dask: str | None = None,
    spark: str | None = None,
) -> WantedColumns:
    """The wanted columns, of which only one of these may say which they are."""
    named = columns is not None or exclude is not None
    if None not in (dask, spark):
        raise WrongOption("two-clusters")
    cluster: DaskTasks | SparkTasks | None = None
    if dask is not None:
        cluster = SchedulerAt(dask)
    elif spark is not None:
        cluster = SparkTasks(spark)
    if schema is not None:
        if named or vocabulary is not None:
            raise WrongOption("schema-and-other-columns")
        return WantedColumns(schema=read_schema(schema), read=read, cluster=cluster)
    if vocabulary is None:
        return WantedColumns(columns, exclude or (), read=read, cluster=cluster)
    if named:
        raise WrongOption("vocabulary-and-columns")
    return WantedColumns(names=read_vocabulary(vocabulary), read=read, cluster=cluster)
