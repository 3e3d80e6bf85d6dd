"""Rows from files, a block at a time, and tables written whole or not at all."""

from eigenveil.io.formats.counts import read_vocabulary
from eigenveil.io.formats.dialect import Dialect
from eigenveil.io.formats.registry import ReadOptions
from eigenveil.io.frames import read_frame
from eigenveil.io.open import FileRows, open_rows
from eigenveil.io.workers import WorkerFiles, on_workers
from eigenveil.io.write import write_columns, write_table
from eigenveil.tables.schema import read_schema

__all__ = [
    "Dialect",
    "FileRows",
    "ReadOptions",
    "WorkerFiles",
    "on_workers",
    "open_rows",
    "read_frame",
    "read_schema",
    "read_vocabulary",
    "write_columns",
    "write_table",
]
