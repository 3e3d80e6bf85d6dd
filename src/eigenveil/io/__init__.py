"""Rows from files, a block at a time, and tables written whole or not at all."""

from eigenveil.io.open import open_rows
from eigenveil.io.write import write_table

__all__ = ["open_rows", "write_table"]
