"""One table, for an analyst alone: its columns, what a fit would give, and its ledger."""

from __future__ import annotations

from typing import Any

from eigenveil.app.ledger_place import usual_ledger
from eigenveil.checks import MOST_WHOLE
from eigenveil.cli.commands.plan import plan
from eigenveil.console.desk.curves import point_of_table
from eigenveil.console.desk.forms import command_fields, fields_of
from eigenveil.console.desk.ledger import LedgerPages
from eigenveil.console.desk.ways import Kind, kinds_of
from eigenveil.console.settings import Rows
from eigenveil.errors import OutputError
from eigenveil.io import FileRows, open_rows, read_schema


class TableDesk:
    """What the pages of an analyst need."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._pages = LedgerPages(usual_ledger() if rows.ledger is None else rows.ledger)
        self._columns: list[str] | None = None

    def table(self) -> dict[str, Any]:
        """The names of its columns, in order; no row is read."""
        if self._columns is None:
            found = self._open()
            names = found.names
            self._columns = (
                [f"column {number + 1}" for number in range(found.features)]
                if names is None
                else list(names)
            )
        return {"files": list(self._rows.data), "columns": self._columns}

    def _open(self, unit: str | None = None) -> FileRows:
        """The files; no row is read."""
        schema = None if self._rows.schema is None else read_schema(self._rows.schema)
        return open_rows(
            list(self._rows.data), schema=schema, unit=unit if schema is None else None
        )

    @property
    def _width(self) -> int:
        return len(self.table()["columns"])

    def kinds(self) -> list[dict[str, str]]:
        """What can be fitted to the files: every task, and the ways of those that have others."""
        return [{"name": each.name, "title": each.title} for each in kinds_of(self._rows)]

    def form(self, kind: str) -> dict[str, Any]:
        """The fields of a fit and of its plan, as they are declared once for everything."""
        found = Kind(kind, self._rows)
        return {
            "name": found.name,
            "title": found.title,
            "quality": found.task.quality,
            "options": fields_of(found.options),
            "own": command_fields(found.task, found.way.command, found.way.own),
            "expected": command_fields(found.task, plan, found.task.command_options),
        }

    def words(self, kind: str, given: dict[str, str]) -> dict[str, Any]:
        """The command that fits with what was typed; checked as its plan is, without the rows."""
        found = Kind(kind, self._rows)
        values = found.values(given)
        rows = self._open(unit=values.get("unit"))
        # nobody says how many rows there are: as many as can be
        spec = found.way.spec(
            found.task, values, features=rows.features, rows=MOST_WHOLE, names=rows.names
        )
        found.way.plan(spec).check_budget()
        return {"words": found.words(given), "title": found.summary(given)}

    def point(self, kind: str, given: dict[str, str], rows: int, epsilon: float) -> dict[str, Any]:
        """What a fit would give at an epsilon, simulated without the data."""
        return point_of_table(Kind(kind, self._rows), given, self._width, rows, epsilon)

    def ledger(self, page: int, only: str = "") -> dict[str, Any]:
        """A page of the ledger's entries, and where its accounts stand; empty where none is yet."""
        try:
            found = self._pages.page(page, only=only)
            return found | {"accounts": self._pages.accounts(), "names": self._pages.names()}
        except OutputError as error:
            if error.code != "no-ledger":
                raise
        return {
            "entries": [],
            "page": 1,
            "pages": 1,
            "count": 0,
            "accounts": [],
            "names": {},
            "last": "",
            "ledger": self._pages.name,
        }
