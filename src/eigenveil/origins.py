"""Where a row or a column stands, as every message about rows says it.

Of an array, frame or matrix given in Python: the index that the caller writes, from 0. Of a text
file: the line that an editor shows, from 1, the line of names counted. Of any other file: the row,
from 1. A column goes by its name, and where it has none by its index from 0 in Python, and by its
number from 1 in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_FROM_0 = " (from 0)"


@dataclass(frozen=True)
class Origin:
    """Rows given in Python."""

    name: str = ""  # The site, partition or argument that has the rows, for messages; often nothing

    def row(self, index: int) -> str:
        """What a row is called; ``index`` counts from 0, whatever the origin."""
        return f"row index {index}{_FROM_0}"

    def column(self, index: int, names: Sequence[str] | None = None) -> str:
        """What a column is called: by its name, where it has one."""
        return self._unnamed(index) if names is None else f"column {str(names[index])!r}"

    def cell(self, row: int, column: int | None = None, names: Sequence[str] | None = None) -> str:
        """A row, and a column of it, with the origin's name before them: begins a sentence."""
        where = self.row(row)
        if column is not None:
            at = self.column(column, names)
            if at.endswith(_FROM_0):  # said once of both
                where = where.removesuffix(_FROM_0)
            where = f"{where}, {at}"
        return f"{self.name}: {where}" if self.name else where

    def _unnamed(self, index: int) -> str:
        return f"column index {index}{_FROM_0}"


@dataclass(frozen=True)
class FileOrigin(Origin):
    """Rows of a file or a query; ``name`` is its path."""

    def row(self, index: int) -> str:
        return f"row {index + 1}"

    def _unnamed(self, index: int) -> str:
        return f"column {index + 1}"


@dataclass(frozen=True)
class TextOrigin(FileOrigin):
    """Rows of a file of text."""

    # The line of a row, from 1; `None` where it cannot be told
    line_of: Callable[[int], int | None] = lambda index: index + 1

    def row(self, index: int) -> str:
        line = self.line_of(index)
        return super().row(index) if line is None else f"line {line}"
