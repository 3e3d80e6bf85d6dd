"""``eigenveil schema``: what is public about a table, drafted and compared with files.

Both commands read values and say what they saw: their output, and a draft that is not confirmed,
are as private as the rows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from eigenveil.app.results import check_place
from eigenveil.app.rows import read_places
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen, notify
from eigenveil.errors import DataError, short_name
from eigenveil.files import replacing
from eigenveil.io import ReadOptions
from eigenveil.io.survey import SchemaReport, as_json, check_files, look_at
from eigenveil.tables.draft import Drafted, draft, schema_of_draft
from eigenveil.tables.schema import (
    FORMAT,
    KINDS,
    ROLES,
    Column,
    json_schema,
    parse_schema,
    read_schema,
    write_schema,
)

schema_app = typer.Typer(
    help="A table's schema: its columns, with their kinds, roles, levels and public ranges.",
    no_args_is_help=True,
    add_completion=False,
)
_PRIVATE = "What is said here was read from rows: it is for their owner only."

Files = Annotated[
    list[str] | None, typer.Argument(help="CSV, Parquet or Feather files, folders or patterns.")
]


@schema_app.command()
@options.reads_files
def new(
    out: Annotated[Path, typer.Option(help="File to write, such as schema.toml.")],
    files: Files = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing; what was seen stays unconfirmed.")
    ] = False,
    sql: options.Sql = None,
    database: options.Database = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier file.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    read: ReadOptions,
) -> None:
    """Draft a schema from names, types and values of files; on a terminal, asks about each column.

    Levels and ranges that were read from values are marked 'confirmed = false', and no fit takes
    them before their owner has confirmed that they are public.
    """
    check_place(out, overwrite=overwrite)
    drafted = draft(look_at(read_places(files, sql, database), read=read))
    asked = not (yes or json or quiet) and sys.stdin.isatty()
    screen = Screen(quiet=quiet or json)
    screen.print(_drafts(drafted))
    screen.print(_PRIVATE)
    if asked:
        drafted = [Drafted(_asked(each), each.why) for each in drafted]
    schema = parse_schema(schema_of_draft(drafted).as_dict(), origin=str(out))
    write_schema(schema, out)
    if json:
        seen = {each.column.name: each.why for each in drafted}
        options.print_json({"out": str(out), "seen": seen, **schema.as_dict()})
        return
    screen.print(f"written to {out}")
    unconfirmed = [column.name for column in schema.columns if not column.confirmed]
    if unconfirmed:
        screen.print(
            f"{len(unconfirmed)} columns have levels or ranges that were seen in the data: replace "
            "them by what is public, and take out 'confirmed = false'."
        )
    screen.next("schema check FILES --schema", out, "# once it is edited")


@schema_app.command()
@options.reads_files
def check(
    schema: Annotated[Path, typer.Option(help="The schema, as 'eigenveil schema new' writes it.")],
    files: Files = None,
    sql: options.Sql = None,
    database: options.Database = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    read: ReadOptions,
) -> int:
    """Tell the owner of files what their schema misses; status 1 if there is something to mend."""
    report = check_files(read_places(files, sql, database), read_schema(schema), read=read)
    if json:
        options.print_json(as_json(report))
    else:
        _print_report(report, Screen(quiet=quiet))
    return 0 if report.clean else 1


@schema_app.command("format")
def print_format(
    out: Annotated[Path | None, typer.Option(help="File to write instead of printing.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier file.")] = False,
) -> None:
    """Print the JSON schema of a schema's file, for editors and other programs."""
    if out is None:
        options.print_json(json_schema())
        return
    import json as json_format

    check_place(out, overwrite=overwrite)
    with replacing(out) as scratch:
        scratch.write_text(json_format.dumps(json_schema(), indent=2) + "\n", encoding="utf-8")


# -- what is printed


def _drafts(drafted: Sequence[Drafted]) -> Table:
    table = Table(title="what was seen")
    for name in ("column", "kind", "role", "seen"):
        table.add_column(name)
    for each in drafted:
        column = each.column
        table.add_row(short_name(column.name), column.kind or "-", column.role, each.why)
    return table


def _print_report(report: SchemaReport, screen: Screen) -> None:
    table = Table(title=f"{report.rows:,} rows")
    for name in ("column", "kind", "holes", "to mend"):
        table.add_column(name, justify="right" if name == "holes" else "left")
    for each in report.columns:
        column = each.column
        found = "; ".join(each.findings)
        if column.name in report.unconfirmed:
            found = "; ".join(filter(None, (found, "not confirmed as public")))
        table.add_row(short_name(column.name), column.kind or "-", f"{each.holes:,}", found)
    screen.print(table)
    if report.unit is not None:
        fewest, median, most = report.unit.rows_of_each
        screen.print(
            f"unit {short_name(report.unit.name)!r}: {len(report.unit.counts):,} units with "
            f"{fewest:,} to {most:,} rows each (median {median:g}); {report.unit.without:,} rows "
            "belong to none and would not count."
        )
    if report.unread:
        shown = ", ".join(repr(short_name(name)) for name in report.unread[:10])
        screen.print(f"not in the schema, and not read: {shown}")
    screen.print("Nothing is to be mended." if report.clean else "Some of this is to be mended.")
    screen.print(_PRIVATE)


# -- what is asked


def _asked(drafted: Drafted) -> Column:
    """The column as the owner, who is asked on a terminal, says it is."""
    column = drafted.column
    name = short_name(column.name)
    column = replace(column, role=_choice(f"{name}: role", ROLES, column.role))
    if not column.read:
        return column
    if column.kind is None:
        column = replace(column, kind=_choice("  kind", KINDS, "number"))
    if column.confirmed and (column.kind != "category" or column.levels):
        return column
    what = "levels" if column.kind == "category" else "range"
    ways = " (y: as seen; Enter: later)" if not column.confirmed else ""
    while True:
        text = f"  public {what}, with commas between{ways}"
        answer = typer.prompt(text, default="", show_default=False).strip()
        if not column.confirmed and answer in ("", "y"):
            return replace(column, confirmed=answer == "y")
        try:
            return _with_public(column, [part.strip() for part in answer.split(",")])
        except DataError as error:
            notify(f"{error.message} {error.hint}")


def _choice(question: str, choices: Sequence[str], usual: str) -> str:
    while (answer := typer.prompt(question, default=usual)) not in choices:
        notify(f"Choose one of {', '.join(choices)}.")
    return str(answer)


def _with_public(column: Column, parts: Sequence[str]) -> Column:
    """The column with what its owner says is public, checked."""
    values: dict[str, Any] = column.as_dict()
    values.pop("confirmed", None)
    if column.kind == "category":
        values["levels"] = list(parts)
    elif column.kind == "date":
        values["range"] = list(parts)
    else:
        values["range"] = [_number(part) for part in parts]
    kept = {"name": f"{column.name}.", "kind": "number"}  # a schema has some feature
    found = parse_schema({"format": FORMAT, "columns": [values, kept]}, origin="The answer")
    return found.columns[0]


def _number(text: str) -> Any:
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        return text
