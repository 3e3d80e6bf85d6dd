"""One table, for an analyst alone: its columns, what a fit would give, and its ledger."""

from __future__ import annotations

from typing import Any

from eigenveil.cli.ledger_place import usual_ledger
from eigenveil.cli.options import option_name
from eigenveil.console.desk.curves import curve_of_plan
from eigenveil.console.desk.ledger import LedgerPages
from eigenveil.console.settings import Rows
from eigenveil.errors import OutputError
from eigenveil.io import open_rows, read_schema
from eigenveil.models.options import Choice, Name, Number, Option, Text, Whole, options_of
from eigenveil.models.task import TASKS

_FIRST = ("epsilon", "delta", "n_components")


class TableDesk:
    """What the pages of an analyst need.

    Parameters
    ----------
    rows : Rows
        Its files and ledger.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._pages = LedgerPages(usual_ledger() if rows.ledger is None else rows.ledger)
        self._columns: list[str] | None = None

    def table(self) -> dict[str, Any]:
        """The names of its columns, in order; no row is read."""
        if self._columns is None:
            schema = None if self._rows.schema is None else read_schema(self._rows.schema)
            found = open_rows(list(self._rows.data), schema=schema)
            names = found.names
            self._columns = (
                [f"column {number + 1}" for number in range(found.features)]
                if names is None
                else list(names)
            )
        return {"files": list(self._rows.data), "columns": self._columns}

    def options(self) -> list[dict[str, Any]]:
        """The options of a fit that a form can have, as they are declared once for everything."""
        return [
            {
                "name": one.name,
                "option": "--" + option_name(one.name).replace("_", "-"),
                "label": option_name(one.name).replace("_", " "),
                "help": one.help,
                "unit": one.unit,
                "choices": list(one.choices) if _only_choices(one) else [],
                "default": "" if one.default is None else f"{one.default}",
                "first": one.name in _FIRST,
            }
            for one in options_of("pca", "table").values()
            if not one.local and _can_be_typed(one)
        ]

    def curve(self, options: dict[str, str], rows: int, spectrum: str) -> dict[str, Any]:
        """Captured energy against epsilon, simulated without the data."""
        task = TASKS["pca"]
        declared = options_of("pca", "table")
        values = {name: _typed(declared[name], text) for name, text in options.items()}
        features = len(self.table()["columns"])
        return curve_of_plan(
            lambda epsilon: task.make_plan(
                task.options("table", **(values | {"epsilon": epsilon})),
                features=features,
                rows=rows,
            ),
            features,
            rows,
            spectrum,
        )

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


_TYPED = (Whole, Number, Choice, Text, Name)


def _can_be_typed(option: Option) -> bool:
    return any(isinstance(each, _TYPED) for each in option.values)


def _only_choices(option: Option) -> bool:
    return all(isinstance(each, Choice) for each in option.values)


def _typed(option: Option, text: str) -> Any:
    """A value as it was typed in a form, checked."""
    found: Any = text.strip()
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if option.has(value):
            return value
    option.check(found)
    return found
