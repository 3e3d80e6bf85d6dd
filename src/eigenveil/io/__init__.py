"""Rows from files, a block at a time, and tables written whole or not at all."""

from eigenveil.io.formats.counts import read_vocabulary
from eigenveil.io.open import FileRows, open_rows
from eigenveil.io.write import write_columns, write_table

__all__ = ["FileRows", "open_rows", "read_vocabulary", "write_columns", "write_table"]
