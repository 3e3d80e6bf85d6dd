"""Files that the workers of a cluster open and read, each where it is."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.errors import DataError, FileDialectWarning
from eigenveil.io.formats.registry import USUAL, ReadOptions
from eigenveil.io.open import FileRows, open_rows
from eigenveil.moments.cluster_rows import ClusterRows
from eigenveil.moments.dask_tasks import DaskTasks, SchedulerAt
from eigenveil.moments.source import RowSource
from eigenveil.moments.spark_tasks import SparkTasks
from eigenveil.tables.schema import Schema


def on_workers(rows: FileRows, cluster: Any, *, read: ReadOptions = USUAL) -> WorkerFiles:
    """The same files' rows, read by the workers of a cluster: a file is a part.

    The workers open the files by the same paths, such as those of a shared file system. No row
    leaves a worker.

    Parameters
    ----------
    rows : FileRows
        As opened here, which checks what can be checked.
    cluster : str or pyspark.sql.SparkSession
        The address of Dask's scheduler, such as ``tcp://scheduler:8786``; or a session of Spark.
    read : ReadOptions
        As the files were opened.

    Raises
    ------
    DataError
        When Dask or Spark is not installed, or the cluster does not answer.
    """
    if not isinstance(cluster, DaskTasks | SparkTasks):
        cluster = SchedulerAt(cluster) if isinstance(cluster, str) else SparkTasks(cluster)
    for path in rows.paths:
        if not isinstance(path, Path):
            raise DataError(
                "not-for-workers", why=f"{path} is read from where it is, by this process alone"
            )
    if rows.in_parts:
        raise DataError(
            "not-for-workers",
            why=f"{rows.paths[0]} lies in folders named key=value, which are columns",
        )
    cluster.check()
    return WorkerFiles(rows, cluster, read)


class WorkerFiles(ClusterRows):
    """Rows of files that workers read; made by :func:`on_workers`.

    Attributes
    ----------
    paths, schema, variables, unit
        As of :class:`~eigenveil.io.open.FileRows`.
    """

    def __init__(self, rows: FileRows, cluster: DaskTasks | SparkTasks, read: ReadOptions) -> None:
        self.paths, self.schema = rows.paths, rows.schema
        self.variables, self.unit = rows.variables, rows.unit
        self.newlines_in_cells = rows.newlines_in_cells
        super().__init__(
            [_Part(str(path.absolute()), path.stat().st_size) for path in map(Path, rows.paths)],
            _FileOpener(rows.features, rows.names, rows.schema, rows.unit, read),
            features=rows.features,
            names=rows.names,
            cluster=cluster,
        )


@dataclass(frozen=True)
class _Part:
    path: str
    size: int


@dataclass(frozen=True)
class _FileOpener:
    """Opens a file on a worker, as it was opened by the client."""

    features: int
    names: Sequence[str] | None
    schema: Schema | None
    unit: str | None
    read: ReadOptions

    def __call__(self, part: _Part, number: int) -> RowSource:
        self._check_there(part)
        with warnings.catch_warnings():  # how a text is written was said where the fit began
            warnings.simplefilter("ignore", FileDialectWarning)
            if self.schema is not None:
                rows = open_rows([part.path], read=self.read, schema=self.schema)
            else:
                rows = open_rows([part.path], names=self.names, read=self.read, unit=self.unit)
        if rows.features != self.features:
            raise _other_file(part, f"it has {rows.features} columns, not {self.features}")
        return rows

    def _check_there(self, part: _Part) -> None:
        try:
            size = Path(part.path).stat().st_size
        except OSError as error:
            raise _other_file(part, error.strerror or str(error)) from None
        if size != part.size:
            raise _other_file(part, f"it has {size:,} bytes, and {part.size:,} here")


def _other_file(part: _Part, what: str) -> DataError:
    return DataError("other-file", path=part.path, what=what)
