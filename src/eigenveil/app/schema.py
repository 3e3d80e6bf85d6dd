"""A table's schema: drafted from files, written, and compared with files.

What is said of values here was read from rows: it is for their owner only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.app.parts import Part, TablePart
from eigenveil.app.rows import Files
from eigenveil.errors import short_name
from eigenveil.files import toml_value
from eigenveil.io import Dialect, ReadOptions
from eigenveil.io.survey import SchemaReport, as_json, check_files, look_at
from eigenveil.tables.draft import Drafted, drafted
from eigenveil.tables.kinds import KINDS
from eigenveil.tables.schema import FORMAT, Column, Schema, parse_schema, read_schema, write_schema
from eigenveil.tables.schema import ROLES as ROLES
from eigenveil.tables.schema_format import json_schema as json_schema

KINDS_ASKED = [name for name, kind in KINDS.items() if set(kind.needed) <= {kind.public}]
"""Those that a person is asked about: what is public makes them complete."""
_PRIVATE = "What is said here was read from rows: it is for their owner only."


@dataclass(frozen=True)
class SeenColumns:
    """What a schema would say of the columns of files, and why."""

    columns: Sequence[Drafted]
    reading: Dialect  # As the lines of names show, and as was said

    def parts(self) -> Iterator[Part]:
        rows = [
            (short_name(each.column.name), each.column.kind or "-", each.column.role, each.why)
            for each in self.columns
        ]
        yield TablePart("what was seen", ("column", "kind", "role", "seen"), rows)
        if said := self.reading.said():
            shown = ", ".join(f"{name} = {toml_value(value)}" for name, value in said.items())
            yield f"how it is written, as was said or as the line of names shows: {shown}"
        yield _PRIVATE


def draft(files: Files, *, read: ReadOptions) -> SeenColumns:
    seen, written = look_at(files, read=read)
    usual = Dialect(separator=",", encoding="utf-8").said().items()
    found = {name: value for name, value in written.said().items() if (name, value) not in usual}
    # what was said stays, also where it is as usual: the file may look otherwise
    return SeenColumns(drafted(seen), Dialect(**found | read.dialect.said()))


@dataclass(frozen=True)
class WrittenSchema:
    """A schema, where it was written, and what was seen of its columns."""

    schema: Schema
    out: Path
    seen: SeenColumns

    def as_json(self) -> dict[str, Any]:
        why = {each.column.name: each.why for each in self.seen.columns}
        return {"out": self.out, "seen": why, **self.schema.as_dict()}

    def parts(self) -> Iterator[Part]:
        yield f"written to {self.out}"
        unconfirmed = [column.name for column in self.schema.columns if not column.confirmed]
        if unconfirmed:
            yield (
                f"{len(unconfirmed)} of {len(self.schema.columns)} columns with levels or ranges "
                "that were seen in the data: replace them by what is public, and take out "
                "'confirmed = false'."
            )


def write(seen: SeenColumns, said: Sequence[Column] | None, out: Path) -> WrittenSchema:
    """Write what was seen, or what its owner ``said`` of the columns instead."""
    columns = list(seen.columns)
    if said is not None:
        pairs = zip(said, columns, strict=True)
        columns = [Drafted(column, each.why) for column, each in pairs]
    schema = Schema(tuple(each.column for each in columns), seen.reading)
    schema = parse_schema(schema.as_dict(), origin=str(out))
    write_schema(schema, out)
    return WrittenSchema(schema, out, SeenColumns(columns, seen.reading))


@dataclass(frozen=True)
class CheckedFiles:
    report: SchemaReport

    def as_json(self) -> Mapping[str, Any]:
        return as_json(self.report)

    def parts(self) -> Iterator[Part]:
        report, rows = self.report, []
        for each in report.columns:
            column = each.column
            found = "; ".join(each.findings)
            if column.name in report.unconfirmed:
                found = "; ".join(filter(None, (found, "not confirmed as public")))
            rows.append((short_name(column.name), column.kind or "-", f"{each.holes:,}", found))
        headings = ("column", "kind", "holes", "to mend")
        yield TablePart(f"{report.rows:,} rows", headings, rows, right=("holes",))
        if report.unit is not None:
            fewest, median, most = report.unit.rows_of_each
            yield (
                f"unit {short_name(report.unit.name)!r}: {len(report.unit.counts):,} units with "
                f"{fewest:,} to {most:,} rows each (median {median:g}); {report.unit.without:,} "
                "rows belong to none and would not count."
            )
        if report.unread:
            shown = ", ".join(repr(short_name(name)) for name in report.unread[:10])
            yield f"not in the schema, and not read: {shown}"
        if report.codes:
            counts = (
                f"{code} in {f'{n:,}' if n else 'no'} cells" for code, n in report.codes.items()
            )
            yield f"codes for missing values: {', '.join(counts)}."
        yield "Nothing is to be mended." if report.clean else "Some of this is to be mended."
        yield _PRIVATE


def check(files: Files, schema: Path, *, read: ReadOptions) -> CheckedFiles:
    return CheckedFiles(check_files(files, read_schema(schema), read=read))


def with_public(column: Any, parts: Sequence[str]) -> Any:
    """The column with what its owner says is public, checked."""
    values: dict[str, Any] = column.as_dict()
    values.pop("confirmed", None)
    values[column.of_kind.public] = column.of_kind.said(parts)
    kept = {"name": f"{column.name}.", "kind": "number"}  # a schema has some feature
    found = parse_schema({"format": FORMAT, "columns": [values, kept]}, origin="The answer")
    return found.columns[0]
