"""One table, for an analyst alone: its columns, what a fit would give, and its ledger."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from eigenveil.app.ledger_place import usual_ledger
from eigenveil.app.plan import PlanRequest
from eigenveil.app.rows import WantedColumns
from eigenveil.checks import MOST_WHOLE
from eigenveil.console.desk.ledger import LedgerPages
from eigenveil.console.desk.results import Results
from eigenveil.console.desk.ways import ONE_ROW, Kind, kinds, point_of_table
from eigenveil.console.settings import Rows
from eigenveil.errors import DataError, short_name
from eigenveil.io import read_schema


class TableDesk(Results):
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._pages = LedgerPages(usual_ledger() if rows.ledger is None else rows.ledger)

    @cached_property
    def _columns(self) -> list[str]:
        found = columns_of(self._rows).open(self._rows.data)
        if found.names is None:
            return [f"column {number + 1}" for number in range(found.features)]
        return list(found.names)

    def table(self) -> dict[str, Any]:
        """The names of its columns, in order; no row is read."""
        return {"files": list(self._rows.data), "columns": self._columns}

    def kinds(self) -> list[dict[str, str]]:
        """What can be fitted: every task, and the ways of those that have others."""
        found = (each for each in kinds() if each.way.takes(self._rows))
        return [{"name": each.name, "title": each.title} for each in found]

    def form(self, kind: str) -> dict[str, Any]:
        return self._kind(kind).form()

    def _kind(self, name: str) -> Kind:
        found = Kind(name)
        if not found.way.takes(self._rows):
            raise DataError("no-such-fit", name=short_name(name))
        return found

    def check(self, kind: str, given: dict[str, str]) -> str:
        """What was chosen, in a line; checked as its plan is, without the rows."""
        found = self._kind(kind)
        values = found.values(given)
        wanted = columns_of(self._rows)
        wanted.whose_rows(values.get("unit"), one=found.own(given)[ONE_ROW.name])
        rows = wanted.with_unit(values.get("unit")).open(self._rows.data)
        # nobody says how many rows there are: as many as can be
        request = PlanRequest(found.task, values, rows.features, MOST_WHOLE, names=rows.names)
        _ = found.way.plan(request).budgets
        return found.summary(given)

    def point(self, kind: str, given: dict[str, str], rows: int, epsilon: float) -> dict[str, Any]:
        """What a fit would give at an epsilon, simulated without the data."""
        return point_of_table(self._kind(kind), given, len(self._columns), rows, epsilon)

    def ledger(self, page: int, only: str = "") -> dict[str, Any]:
        return self._pages.page(page, only, {})


def columns_of(rows: Rows) -> WantedColumns:
    return WantedColumns(schema=None if rows.schema is None else read_schema(rows.schema))
