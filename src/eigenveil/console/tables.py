"""The tables of one analyst: the files that the console was started with, or those of a folder.

What a table's columns are is a file of its own by its content, and never changed: a page's address
names it, so that two tabs, and the button back, each have their own.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from eigenveil.console.settings import Rows, Settings, is_name
from eigenveil.errors import DataError, short_name
from eigenveil.files import replacing

_SCHEMA = re.compile(r"[0-9a-f]{32}")
_PIECE = 1 << 20


class ConsoleTables:
    def __init__(self, settings: Settings) -> None:
        self._rows = settings.rows
        self.schemas = settings.state / "schemas"
        self.folder = None if self._rows.tables is None else Path(self._rows.tables)

    def names(self) -> list[str]:
        """Files in the folder, by name."""
        if self.folder is None or not self.folder.is_dir():
            return []
        found = (each for each in self.folder.iterdir() if each.is_file())
        return sorted(each.name for each in found if is_name(each.name))

    def rows(self, table: str = "", schema: str = "", **reading: str) -> Rows:
        """A table by its name, read by a schema that was made here; else what there is usually.

        ``reading`` says how it is written, where no schema of the console's owner does.
        """
        rows = self._rows
        if rows.party is not None:  # its pages have other fields of these names
            return rows
        if self.folder is not None and table:
            if table not in self.names():
                raise DataError("no-such-table", table=short_name(table))
            rows = replace(rows, data=(str(self.folder / table),))
        if rows.schema is None:
            said: dict[str, Any] = dict(reading)
            rows = replace(rows, **said)
        if schema and rows.schema is None:
            file = self.schemas / f"{schema}.toml"
            if not (_SCHEMA.fullmatch(schema) and file.is_file()):
                raise DataError("no-such-columns")
            rows = replace(rows, schema=str(file))
        return rows

    def save(self, name: str, file: IO[bytes]) -> str:
        """Keep a file that was sent, under its name; no other is replaced."""
        name = re.split(r"[/\\]", name)[-1].strip()
        if self.folder is None or not is_name(name):
            raise DataError("bad-table-name", table=short_name(name))
        if (self.folder / name).exists():
            raise DataError("table-exists", table=short_name(name))
        with replacing(self.folder / name) as scratch, scratch.open("wb") as out:
            while piece := file.read(_PIECE):
                out.write(piece)
        return name

    def forget(self, name: str) -> None:
        """Delete a table of the folder."""
        Path(self.rows(name).data[0]).unlink()
