"""Rows from files, stores and databases in blocks, and tables written whole or not at all."""

from eigenveil.io.formats.cells import annotate, read_cells
from eigenveil.io.formats.images import write_maps
from eigenveil.io.formats.registry import ReadOptions
from eigenveil.io.formats.tenx import read_vocabulary
from eigenveil.io.open import FileRows, open_rows
from eigenveil.io.query import Query
from eigenveil.io.workers import WorkerFiles, on_workers
from eigenveil.io.write import write_blocks, write_columns, write_table
from eigenveil.tables.adapters import read_frame
from eigenveil.tables.reading import Dialect
from eigenveil.tables.schema import read_schema

__all__ = [
    "Dialect",
    "FileRows",
    "Query",
    "ReadOptions",
    "WorkerFiles",
    "annotate",
    "on_workers",
    "open_rows",
    "read_cells",
    "read_frame",
    "read_schema",
    "read_vocabulary",
    "write_blocks",
    "write_columns",
    "write_maps",
    "write_table",
]
