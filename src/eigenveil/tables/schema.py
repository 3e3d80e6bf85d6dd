"""The schema of a table: what is public about its columns (tables.md, section 5).

Its owner writes it, and all sites of a study share it. Names, levels and ranges come out with every
result, so they must be known without looking at rows. What 'eigenveil schema new' read from values
is marked ``confirmed = false`` and must be confirmed as public before a fit takes it.

How a file is written (:class:`~eigenveil.tables.reading.Dialect`) is in the same file, and is no
part of what sites agree on: each has its own, whose rows mean the same.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from eigenveil.checks import first_twice, is_number
from eigenveil.errors import DataError, nearest, short_name
from eigenveil.files import read_toml, replacing, toml_comment, toml_value
from eigenveil.privacy.certificate import plan_hash
from eigenveil.tables.kinds import KINDS, ColumnKind, day_of
from eigenveil.tables.reading import PLAIN, Dialect

FORMAT = "eigenveil-schema-1"
Role = Literal["feature", "unit", "identifier", "covariate", "target", "ignore"]
ROLES: tuple[str, ...] = get_args(Role)
FIRST_DAY = datetime.date(1970, 1, 1)
"""The day from which dates count where a column does not say another."""
_READ = ("feature", "covariate", "target")
OF_READING = ("na", "date_format", "true_words", "false_words")
"""What a column may say of how it is written."""
PLAIN_FIELDS = ("unit_of_measure", "label", "other", "since", "until")
"""What of a column is a text of any kind."""


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    name: str  # As in the files
    kind: str | None = None  # Needed of features, covariates and targets
    # `unit` says whose row it is; identifiers are carried along by `transform`; a target is what
    # others are to tell: a covariance reads it, and nothing else does
    role: str = "feature"
    unit_of_measure: str = ""  # Of numbers, such as `"mmHg"`
    range: tuple[Any, Any] | None = None  # Public smallest and largest value of a number or date
    levels: tuple[str, ...] = ()  # Public values of a category
    origin: datetime.date = FIRST_DAY  # Of dates: the day that counts as 0
    label: str = ""  # What it is, for people
    # Whether range and levels are public; `False` for those that were read from rows
    confirmed: bool = True
    other: str = ""  # Of a category: the name of all levels that are not in `levels`
    since: str = ""  # Of years: the column with the first date, such as birth
    until: str = ""  # And the one with the last
    # How its own cells are written, as of `Dialect`: beside, or in place of, what all columns have
    na: tuple[str, ...] = ()
    date_format: str | None = None
    true_words: tuple[str, ...] = ()
    false_words: tuple[str, ...] = ()

    @property
    def read(self) -> bool:
        """Whether its values become columns of the rows."""
        return self.role in _READ

    @property
    def sources(self) -> tuple[str, ...]:
        """The table's columns that it is read from."""
        return (self.since, self.until) if self.since else (self.name,)

    def read_as(self, reading: Dialect) -> Column:
        """The same, with what is said of all columns of a file where it says nothing itself."""
        words = self if self.true_words else reading
        return replace(
            self,
            na=tuple(dict.fromkeys((*reading.na, *self.na))),
            date_format=self.date_format or reading.date_format,
            true_words=tuple(words.true_words),
            false_words=tuple(words.false_words),
        )

    @property
    def of_kind(self) -> ColumnKind:
        """Its kind; that of numbers where none is needed."""
        return KINDS[self.kind or "number"]

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """Names of what it becomes: of a category ``name=level``, one column a level."""
        return self.of_kind.names(self)

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest value of each of its encoded columns; NaN where none is public."""
        return self.of_kind.bounds(self)

    def as_dict(self) -> dict[str, Any]:
        """What differs from the defaults, as plain values (dates as ``YYYY-MM-DD``)."""
        names = sorted(_USUAL, key=lambda name: name == "confirmed")  # last, of what stands above
        found = {name: getattr(self, name) for name in names}
        return {name: _plain(each) for name, each in found.items() if each != _USUAL[name]}


_USUAL = {field.name: field.default for field in fields(Column)}
_OWN_MATTERS = ("label", "confirmed", *OF_READING)


def levels_among(category: object, names: Sequence[str]) -> tuple[int, ...]:
    """Places of the columns that a category's levels became, among encoded columns' names."""
    return tuple(place for place, name in enumerate(names) if name.startswith(f"{category}="))


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in the order of the result; made by :func:`parse_schema`."""

    columns: tuple[Column, ...]
    reading: Dialect = PLAIN  # How files are written: their owner's own matter

    @cached_property
    def read(self) -> tuple[Column, ...]:
        """The columns that become numbers, in order."""
        return tuple(column for column in self.columns if column.read)

    @cached_property
    def targets(self) -> tuple[Column, ...]:
        """The columns that others are to tell, in order."""
        return tuple(column for column in self.columns if column.role == "target")

    @cached_property
    def categories(self) -> tuple[Column, ...]:
        """The targets of which rows of each level are counted apart."""
        return tuple(column for column in self.targets if column.of_kind.levelled)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Of each category among the targets, the places of its levels among encoded columns."""
        place = {name: number for number, name in enumerate(self.names)}
        return tuple(tuple(place[name] for name in c.encoded_names) for c in self.categories)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(name for column in self.read for name in column.encoded_names)

    @property
    def unit(self) -> str | None:
        """Name of the column that says which unit a row belongs to."""
        return next((column.name for column in self.columns if column.role == "unit"), None)

    @property
    def identifiers(self) -> tuple[str, ...]:
        """Names of the columns that are carried along beside scores: the unit's first."""
        others = tuple(column.name for column in self.columns if column.role == "identifier")
        return others if self.unit is None else (self.unit, *others)

    def public_ranges(self) -> NDArray[np.float64]:
        """Smallest and largest value of each encoded column, shape (D, 2); NaN if none is public.

        In the column's units: days since ``origin`` of dates, 0 and 1 of levels and truth values.
        """
        bounds = [column.bounds for column in self.read for _ in column.encoded_names]
        return np.array(bounds).reshape(-1, 2)

    def variable_numbers(self) -> NDArray[np.float64]:
        """The variable that each encoded column belongs to, shape (D,): a row has one level of it.

        For histograms of columns, of which a category has one (tables.md, section 2).
        """
        counts = [len(column.encoded_names) for column in self.read]
        return np.repeat(np.arange(len(self.read), dtype=np.float64), counts)

    def as_dict(self) -> dict[str, Any]:
        """The schema as plain values; :func:`parse_schema` makes the same of it."""
        reading = {name: _plain(value) for name, value in self.reading.said().items()}
        columns = [column.as_dict() for column in self.columns]
        return {"format": FORMAT} | ({"reading": reading} if reading else {}) | {"columns": columns}

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON of what sites agree on."""
        return plan_hash(self.agreed().as_dict())

    def agreed(self) -> Schema:
        """What sites agree on: without how a file is written."""
        usual: dict[str, Any] = {name: _USUAL[name] for name in OF_READING}
        return Schema(tuple(replace(column, **usual) for column in self.columns))

    def written_as(self, own: Schema) -> Schema:
        """The same columns of a file that is written as its owner's schema says."""
        columns, there = [], dict.fromkeys(column.name for column in self.columns)
        for column in self.columns:
            theirs = own.column(column.name) or column
            columns.append(replace(column, **{n: getattr(theirs, n) for n in OF_READING}))
        needed = {name for column in self.read for name in column.sources}
        columns += [c for c in own.columns if c.name in needed and c.name not in there]
        return Schema(tuple(columns), own.reading)

    def column(self, name: str) -> Column | None:
        """A column by its name."""
        return next((column for column in self.columns if column.name == name), None)

    def check_usable(self, whose: str) -> None:
        """Refuse a schema with what a fit cannot take."""
        seen = [column.name for column in self.read if not column.confirmed]
        if seen:
            raise DataError("unconfirmed-schema", whose=whose, columns=_listed(seen))
        if aside := [column.name for column in self.columns if column.role == "covariate"]:
            raise DataError("no-covariates", whose=whose, columns=_listed(aside))
        if flat := [c.name for c in self.categories if len(c.encoded_names) == 1]:
            raise DataError("target-one-level", whose=whose, columns=_listed(flat))

    def check_targets(self, whose: str, *, taken: bool) -> None:
        """Refuse targets where a fit takes none."""
        if self.targets and not taken:
            names = [column.name for column in self.targets]
            raise DataError("no-target", whose=whose, columns=_listed(names))

    def difference(self, other: Schema) -> str:
        """Where another schema reads a table otherwise, in words; empty if it does not.

        Labels and the order of columns do not count.
        """
        for column in (*self.columns, *other.columns):
            mine, theirs = self.column(column.name), other.column(column.name)
            if mine is None or theirs is None:
                if column.role == "ignore":
                    continue
                return f"column {column.name!r} is in only one of them"
            for field in (name for name in _USUAL if name not in _OWN_MATTERS):
                pair = getattr(mine, field), getattr(theirs, field)
                if pair[0] != pair[1]:
                    shown = [short_name(shown_value(value)) for value in pair]
                    return f"column {column.name!r}: {field} is {shown[0]} and {shown[1]}"
        return ""

    def check_same(self, other: Schema, whose: str) -> None:
        """Refuse another schema that reads a table otherwise."""
        if differs := self.difference(other):
            raise DataError("other-schema", whose=whose, differs=differs)

    def confirmed(self) -> Schema:
        """The same with everything confirmed as public."""
        return replace(self, columns=tuple(replace(each, confirmed=True) for each in self.columns))

    def only(self, names: Collection[str]) -> Schema:
        """The columns that become those of these names: for rows that are only transformed."""
        wanted = set(names)
        return self.having([c for c in self.read if not wanted.isdisjoint(c.encoded_names)])

    def having(self, columns: Sequence[Column]) -> Schema:
        """These columns, and how those that they are read from are written."""
        needed = {name for column in columns for name in column.sources}
        needed -= {column.name for column in columns}
        dates = (replace(c, role="ignore") for c in self.columns if c.name in needed)
        return replace(self, columns=(*columns, *dates))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(short_name(name)) for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"column{'s' if len(names) > 1 else ''} {shown}{more}"


def shown_value(value: Any) -> str:
    """A field's value for people."""
    plain = _plain(value)
    return "not given" if plain in (None, "", []) else str(plain)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.date):
        return value.isoformat()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


# -- Files.


def read_schema(path: str | Path) -> Schema:
    """The schema in a TOML file.

    Raises
    ------
    DataError
        Naming the file, and the column and the key that cannot be.
    """
    found = read_toml(path, hint="'eigenveil schema new' writes a schema")
    return parse_schema(found, origin=str(path))


def schema_text(schema: Schema) -> str:
    """The schema as a commented TOML file; :func:`read_schema` makes the same schema of it."""
    lines = [
        "# What is public about a table: its columns, their kinds, levels and ranges.",
        "# All of this may come out with a result, so it must be known without looking at rows.",
        "# Take out a line 'confirmed = false' once what stands above it is known to be public.",
        *toml_comment(f"kind: {', '.join(KINDS)}. role: {', '.join(ROLES)}."),
        *toml_comment("[reading] says how the file is written: each site's own matter."),
        "",
        *schema_lines(schema, "columns"),
    ]
    return "\n".join(lines) + "\n"


def schema_lines(schema: Schema, table: str) -> list[str]:
    """The format and the columns as lines of TOML, where the columns' table has this name."""
    lines = [f"format = {toml_value(FORMAT)}"]
    if reading := schema.as_dict().get("reading"):  # a study's has none
        lines += ["", "[reading]", *(f"{key} = {toml_value(reading[key])}" for key in reading)]
    for column in schema.columns:
        lines += ["", f"[[{table}]]"]
        for name, value in column.as_dict().items():
            note = "  # seen in the data: is it public?" if name == "confirmed" else ""
            lines.append(f"{name} = {toml_value(value)}{note}")
    return lines


def write_schema(schema: Schema, path: Path) -> None:
    """Write the schema as :func:`schema_text` has it, whole or not at all."""
    with replacing(path) as scratch:
        scratch.write_text(schema_text(schema), encoding="utf-8")
        if all(column.confirmed for column in schema.columns):
            scratch.chmod(0o644)  # made to be passed around; a draft shows rows


# -- What a schema cannot be, in words, with the way out.


def parse_schema(found: Any, *, origin: str = "schema") -> Schema:
    """A schema from plain values; ``origin`` is named in messages."""
    if isinstance(found, Schema):
        return found
    if not isinstance(found, Mapping):
        raise _bad(origin, f"is {type(found).__name__}, not a table of columns")
    _known_keys(origin, found, ("format", "reading", "columns"))
    if found.get("format") != FORMAT:
        raise _bad(origin, f"format = {found.get('format')!r:.40} is not {FORMAT!r}")
    columns = found.get("columns")
    if not isinstance(columns, list | tuple) or not columns:
        raise _bad(origin, "there is no column ([[columns]])")
    reading = found.get("reading", {})
    if not isinstance(reading, Mapping):
        raise _bad(origin, "reading is not a table ([reading])")
    read = tuple(_column(origin, n, each) for n, each in enumerate(columns, start=1))
    schema = Schema(read, _reading(f"{origin}: reading", reading))
    _check_whole(origin, schema)
    return schema


# What a key is, by the type of its default.
_TYPES: dict[type, tuple[type, str]] = {
    bool: (bool, "true or false"),
    tuple: (list, "a list of texts"),
}


def _check_type(where: str, key: str, value: Any, usual: type) -> None:
    kind, what = _TYPES.get(usual, (str, "a text"))
    parts = value if isinstance(value, list) else []
    if not isinstance(value, kind) or not all(isinstance(part, str) for part in parts):
        raise _bad(where, f"{key} = {value!r:.40} is not {what}")


def _reading(where: str, given: Mapping[str, Any]) -> Dialect:
    _known_keys(where, given, [field.name for field in fields(Dialect)])
    values = dict(given)
    for name, value in given.items():
        usual = getattr(PLAIN, name)
        if isinstance(usual, tuple) and isinstance(value, list | tuple):
            # 999 as a number is the same code
            values[name] = value = [str(v) if is_number(v) else v for v in value]
        _check_type(where, name, value, type(usual))
    try:
        return Dialect(**values)
    except DataError as error:
        message = f"{where}: {error.message}"
        raise DataError.relayed(message, hint=error.hint, code=error.code) from None


def _check_whole(origin: str, schema: Schema) -> None:
    for what, names in (
        ("column", [column.name for column in schema.columns]),
        ("encoded column", list(schema.names)),
    ):
        twice = first_twice(names)
        if twice is not None:
            raise _bad(origin, f"{what} {short_name(twice)!r} is there twice")
    for column in schema.read:
        if code := next((c for c in (*schema.reading.na, *column.na) if c in column.levels), None):
            raise _bad(origin, f"column {column.name!r}: {code!r} is a level and a code in na")
        for name in column.sources:
            source = schema.column(name)
            if source not in (None, column) and source.kind and not source.of_kind.of_days:
                raise _bad(origin, f"column {column.name!r}: {name!r} is no date")
    units = [column.name for column in schema.columns if column.role == "unit"]
    if len(units) > 1:
        raise DataError("two-units", where=origin, columns=_listed(units))
    if not any(column.role == "feature" for column in schema.columns):
        raise _bad(origin, "no column has role 'feature'")


def _column(origin: str, number: int, given: Any) -> Column:
    where = f"{origin}: column {number}"
    if not isinstance(given, Mapping):
        raise _bad(where, f"is {given!r:.40}, not a table with a name")
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise _bad(where, 'has no name (name = "...")')
    where = f"{origin}: column {short_name(name)!r}"
    _known_keys(where, given, list(_USUAL))
    kind = _choice(where, "kind", given.get("kind"), KINDS)
    role = _choice(where, "role", given.get("role", "feature"), ROLES)
    plain = {key: given[key] for key in (*PLAIN_FIELDS, "confirmed") if key in given}
    for key, value in plain.items():
        _check_type(where, key, value, type(_USUAL[key]))
    read = _reading(where, {key: given[key] for key in OF_READING if key in given})
    column = Column(
        name,
        kind,
        role or "feature",
        range=_range(where, kind, given.get("range")),
        levels=_levels(where, given.get("levels", ())),
        origin=day_of(where, "origin", given.get("origin", FIRST_DAY)),
        **plain,
        **{key: getattr(read, key) for key in OF_READING},
    )
    if column.read or column.role == "target":
        _check_kind(where, column)
    return column


def _check_kind(where: str, column: Column) -> None:
    """What a column that is read must and cannot have, by its kind."""
    if column.kind is None:
        raise DataError("column-without-kind", where=where, kinds=", ".join(KINDS))
    if not column.of_kind.complete(column):
        raise column.of_kind.incomplete(where)
    if column.other in column.levels:
        raise _bad(where, f"other = {column.other!r} is one of its levels")
    of_all = ("name", "kind", "role", "label", "confirmed", "na")
    for key in (key for key in _USUAL if key not in of_all):
        if key not in column.of_kind.own and getattr(column, key) != _USUAL[key]:
            raise _bad(where, f"{key} has no meaning for kind {column.kind!r}")


def _range(where: str, kind: str | None, given: Any) -> tuple[Any, Any] | None:
    if given is None:
        return None
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise _bad(where, f"range = {given!r:.60} is not [smallest, largest]")
    low, high = KINDS[kind or "number"].limits(where, given)
    if low >= high:
        raise DataError("range-reversed", where=where, low=low, high=high)
    return low, high


def _levels(where: str, given: Any) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise _bad(where, f"levels = {given!r:.60} is not a list of texts")
    if "" in given:
        raise DataError("empty-level", where=where)
    twice = first_twice(given)
    if twice is not None:
        raise _bad(where, f"level {short_name(twice)!r} is there twice")
    return tuple(given)


def _choice(where: str, key: str, given: Any, choices: Collection[str]) -> str | None:
    if given is None or given in choices:
        return None if given is None else str(given)
    raise _bad(where, f"{key} = {given!r:.40} is not one of {', '.join(choices)}")


def _known_keys(where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    unknown = next((key for key in given if key not in known), None)
    if unknown is not None:
        raise DataError(
            "unknown-key-of-schema",
            where=where,
            key=short_name(unknown),
            near=nearest(unknown, known),
        )


def _bad(where: str, what: str) -> DataError:
    return DataError("bad-schema", where=where, what=what)
