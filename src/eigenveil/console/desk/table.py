"""One table, for an analyst alone: its columns, what a fit would give and cost, and its ledger."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from eigenveil.app.ledger_place import usual_ledger
from eigenveil.app.plan import PlanRequest
from eigenveil.app.rows import WantedColumns
from eigenveil.app.schema import SeenColumns, draft, with_public
from eigenveil.checks import MOST_WHOLE
from eigenveil.console.desk.ledger import Budgets, LedgerPages
from eigenveil.console.desk.results import Results
from eigenveil.console.desk.ways import ONE_ROW, Kind, kinds, point_of_table
from eigenveil.console.settings import READING, Rows
from eigenveil.errors import DataError, short_name
from eigenveil.federation.ledger.fits import Foreseen, foreseen
from eigenveil.federation.ledger.store import open_store
from eigenveil.io import Dialect, FileRows, ReadOptions, read_schema
from eigenveil.io.files import expand, state_of
from eigenveil.io.formats.registry import format_of
from eigenveil.io.formats.text import check_encoding
from eigenveil.io.open import open_tables
from eigenveil.models.driver import FitTerms
from eigenveil.privacy.certificate import plan_hash
from eigenveil.tables.names import looks_like_identifier
from eigenveil.tables.schema import Column, Schema, parse_schema, write_schema

# Tables of more columns are read as they are drafted: a form of so many fields is nobody's.
MOST_ASKED = 200


class TableDesk(Results, Budgets):
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._place = usual_ledger() if rows.ledger is None else rows.ledger
        self._pages = _pages_of(self._place)

    def table(self) -> dict[str, Any]:
        """What is public of it: its columns' names, in order; no row is read."""
        wanted = columns_of(self._rows)
        schema, texts = wanted.schema, _texts(self._rows)
        self._check_encoding(wanted)
        found: dict[str, Any] = {"files": list(self._rows.data), "schema": self._rows.schema}
        found["is_text"] = bool(texts)
        if schema is not None:
            names = list(schema.names)
            return found | {"columns": names, "unit": schema.unit, "persons": []}
        try:
            (first, *_) = open_tables(self._rows.data, read=wanted.read)
            first.check_names()
            names = list(first.columns)
        except DataError as error:
            if error.code not in ("no-names", "not-a-table"):
                raise
            opened = wanted.open(self._rows.data)
            names = list(opened.names or (f"column {n + 1}" for n in range(opened.features)))
        persons = [name for name in names if looks_like_identifier(name)]
        return found | {"columns": names, "unit": None, "persons": persons}

    def _check_encoding(self, wanted: WantedColumns) -> None:
        """Refuse what the owner says of the files' encoding where they are in another."""
        if (encoding := wanted.read.dialect.encoding) is not None:
            for place in _texts(self._rows):
                _check_encoding(place, encoding, state_of(place))

    def guessed(self) -> dict[str, str] | None:
        """How a text is written as its line of names looks; ``None`` where nothing is to say."""
        if self._rows.schema is not None or not _texts(self._rows):
            return None
        try:
            (first, *_) = open_tables(self._rows.data)
        except DataError:  # so guessed it is no table
            first = None
        written = None if first is None else first.written
        if written is None:
            return dict.fromkeys(READING, "")
        decimal = "." if (self._rows.separator or written.separator) == "," else ".,"
        return {**written.said(), "decimal": decimal}

    def kinds(self) -> list[dict[str, str]]:
        """What can be fitted: every task, and the ways of those that have others."""
        found = (each for each in kinds() if each.way.takes(self._rows))
        return [
            {"name": each.name, "title": each.title, "about": each.task.about} for each in found
        ]

    def form(self, kind: str) -> dict[str, Any]:
        return self._kind(kind).form()

    def _kind(self, name: str) -> Kind:
        found = Kind(name)
        if not found.way.takes(self._rows):
            raise DataError("no-such-fit", name=short_name(name))
        return found

    # -- its columns, as their owner says they are

    def seen(self) -> dict[str, Any]:
        """What is in each column, and how it would be read: for the owner of the rows."""
        looked = drafted(self._rows)
        found = looked.columns
        asked = found if len(found) <= MOST_ASKED else ()
        columns = [
            {
                "name": each.column.name,
                "role": each.column.role,
                "kind": each.column.kind or "number",
                "levels": ", ".join(each.column.levels),
                "why": each.why,
            }
            for each in asked
        ]
        reading = ", ".join(f"{name} {value!r}" for name, value in looked.reading.said().items())
        unit = next((each.column.name for each in found if each.column.role == "unit"), None)
        return {"columns": columns, "unit": unit, "count": len(found), "reading": reading}

    def settle(self, given: dict[str, str], unit: str | None, folder: str, kind: str) -> str:
        """Write what the columns are, as the owner says; the name of the file."""
        looked = drafted(self._rows)
        columns = tuple(_said(each.column, given, unit) for each in looked.columns)
        if not any(each.role == "feature" for each in columns):
            raise DataError("no-column-used")
        schema = parse_schema(Schema(columns, looked.reading).as_dict(), origin="The columns")
        schema.check_targets("The table", taken=self._kind(kind).task.takes_targets)
        name = plan_hash(schema.as_dict())[:32]  # of all of it: its own hash has no reading
        write_schema(schema, Path(folder) / f"{name}.toml")
        return name

    # -- a fit of it

    def _open(self, values: dict[str, Any]) -> FileRows:
        return columns_of(self._rows).with_unit(values.get("unit")).open(self._rows.data)

    def _request(self, found: Kind, given: dict[str, str]) -> tuple[PlanRequest, FileRows]:
        """Nobody says how many rows there are: as many as can be."""
        values = found.values(given)
        rows = self._open(values)
        return PlanRequest(found.task, values, rows.features, MOST_WHOLE, names=rows.names), rows

    def check(self, kind: str, given: dict[str, str]) -> str:
        """What was chosen, in a line; checked as its plan is, without the rows."""
        found = self._kind(kind)
        wanted, unit = columns_of(self._rows), found.values(given).get("unit")
        wanted.whose_rows(unit, one=found.own(given)[ONE_ROW.name])
        request, rows = self._request(found, given)
        if rows.schema is not None:
            rows.schema.check_usable("The table")
            rows.schema.check_targets("The table", taken=found.task.takes_targets)
        _ = found.way.plan(request).budgets
        return found.summary(given)

    def point(self, kind: str, given: dict[str, str], rows: int, epsilon: float) -> dict[str, Any]:
        """What a fit would give at an epsilon, simulated without the data."""
        found = self._kind(kind)
        features = self._open(found.values(given)).features
        return point_of_table(found, given, features, rows, epsilon)

    def cost(self, kind: str, given: dict[str, str]) -> list[dict[str, Any]]:
        """What a fit would be charged to, and what is left there before and after it."""
        found = self._kind(kind)
        request, rows = self._request(found, given)
        terms = FitTerms.of(found.way.plan(request), by="")
        return [_cost(each) for each in foreseen(open_store(self._place), rows.paths, terms)]

    def ledger(self, page: int, only: str = "") -> dict[str, Any]:
        return self._pages.page(page, only, {})


def columns_of(rows: Rows) -> WantedColumns:
    """What is read of rows, as their schema and their owner say."""
    said = {name: text for name in READING if (text := getattr(rows, name))}
    schema = None if rows.schema is None else read_schema(rows.schema)
    return WantedColumns(schema=schema, read=ReadOptions(Dialect(**said)))


def _texts(rows: Rows) -> list[Any]:
    """Those of the files that are delimited text."""
    found = (each.place for each in expand(rows.data))
    return [each for each in found if (of := format_of(each)) and of.name in ("text", "txt")]


@lru_cache(8)
def _check_encoding(place: Any, encoding: str, state: object) -> None:
    del state
    check_encoding(place, encoding)


@cache
def _pages_of(place: str) -> LedgerPages:
    return LedgerPages(lambda: place)


def drafted(rows: Rows) -> SeenColumns:
    """Columns as they would be read; rows are read once as long as the files are the same."""
    state = tuple(state_of(each.place) for each in expand(rows.data))
    return _drafted(rows.data, columns_of(replace(rows, schema=None)).read, state)


@lru_cache(8)
def _drafted(files: tuple[str, ...], read: ReadOptions, state: object) -> SeenColumns:
    del state
    return draft(files, read=read)


def _said(column: Column, given: dict[str, str], unit: str | None) -> Column:
    """A column as its owner says: what was read from rows is public only where that is said."""
    name, is_key = column.name, column.role in ("unit", "identifier")
    if name == unit:
        return Column(name, role="unit")
    unsaid = column.of_kind.levelled and not column.confirmed
    role = given.get(f"role {name}") or ("ignore" if unsaid else column.role)
    if role in ("unit", "identifier", "ignore"):
        return Column(name, role="identifier" if is_key else "ignore")
    kind = given.get(f"kind {name}") or column.kind or "number"
    found = Column(name, kind, role)
    typed = given.get(f"public {name}", "")
    if parts := [part.strip() for part in typed.split(",") if part.strip()]:
        found = with_public(found, parts)
    # levels that a person typed are said to be public by that, and those read from rows are not
    if kind == column.kind and column.of_kind.levelled and not given.get(f"sure {name}"):
        raise DataError("levels-not-public", column=short_name(name))
    return replace(found, confirmed=True)


def _cost(each: Foreseen) -> dict[str, Any]:
    of = each.before.budget
    return {
        "data_set": of.data_set,
        "epsilon": of.epsilon,
        "delta": of.delta,
        "unit": of.unit,
        "before": each.before.left_epsilon,
        "after": None if each.after is None else each.after.left_epsilon,
        "is_new": each.is_new,
        "problem": each.problem,
    }
