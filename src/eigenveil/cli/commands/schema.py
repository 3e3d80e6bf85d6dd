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

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen, notify, present, print_json
from eigenveil.errors import DataError, short_name

schema_app = options.group()

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
    overwrite: options.OverFile = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    read: Any,
) -> None:
    """Draft a schema from names, types and values of files; on a terminal, asks about each column.

    Levels and ranges that were read from values are marked 'confirmed = false', and no fit takes
    them before their owner has confirmed that they are public.
    """
    app.results.check_place(out, overwrite=overwrite)
    seen = app.schema.draft(app.rows.read_places(files, sql, database), read=read)
    screen = Screen(quiet=quiet or json)
    screen.show(seen.parts())
    asked = not (yes or json or quiet) and sys.stdin.isatty()
    made = app.schema.write(seen, [_asked(each) for each in seen.columns] if asked else None, out)
    present(made, json=json, quiet=quiet).next(
        "schema check FILES --schema", out, "# once it is edited"
    )


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
    read: Any,
) -> int:
    """Tell the owner of files what their schema misses; status 1 if there is something to mend."""
    found = app.schema.check(app.rows.read_places(files, sql, database), schema, read=read)
    present(found, json=json, quiet=quiet)
    return 0 if found.report.clean else 1


@schema_app.command("format")
def print_format(
    out: Annotated[Path | None, typer.Option(help="File to write instead of printing.")] = None,
    overwrite: options.OverFile = False,
) -> None:
    """Print the JSON schema of a schema's file, for editors and other programs."""
    if out is None:
        print_json(app.schema.json_schema())
    else:
        app.results.write_format(app.schema.json_schema(), out, overwrite=overwrite)


# -- what is asked


def _asked(drafted: Any) -> Any:
    """The column as the owner, who is asked on a terminal, says it is."""
    column = drafted.column
    name = short_name(column.name)
    column = replace(column, role=_choice(f"{name}: role", app.schema.ROLES, column.role))
    if not column.read:
        return column
    if column.kind is None:
        column = replace(column, kind=_choice("  kind", app.schema.KINDS_ASKED, "number"))
    if column.confirmed and column.of_kind.complete(column):
        return column
    what = column.of_kind.public
    ways = " (y: as seen; Enter: later)" if not column.confirmed else ""
    while True:
        text = f"  public {what}, with commas between{ways}"
        answer = typer.prompt(text, default="", show_default=False).strip()
        if not column.confirmed and answer in ("", "y"):
            return replace(column, confirmed=answer == "y")
        try:
            return app.schema.with_public(column, [part.strip() for part in answer.split(",")])
        except DataError as error:
            notify(f"{error.message} {error.hint}")


def _choice(question: str, choices: Sequence[str], usual: str) -> str:
    while (answer := typer.prompt(question, default=usual)) not in choices:
        notify(f"Choose one of {', '.join(choices)}.")
    return str(answer)
