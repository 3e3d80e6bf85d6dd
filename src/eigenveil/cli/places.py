"""Where a command's rows are, as it is typed: files, stores and databases; of sites, too.

A database's URL may stand wherever a file may; ``--sql`` says which of its rows are meant, and
``--from URL`` is another way to name the database of one data set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from eigenveil.cli.options import WantedColumns, WrongOption
from eigenveil.errors import DataError, OutputError
from eigenveil.files import Place
from eigenveil.io import FileRows, Query, WorkerFiles
from eigenveil.io.query import is_database

Sql = Annotated[
    str | None,
    typer.Option(
        "--sql", help="A query whose answer has the rows; with a database's URL, or --from."
    ),
]
SitesSql = Annotated[
    str | None,
    typer.Option(
        "--sql",
        help="A query that each site's database answers with its rows: --site NAME=URL.",
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="With --sql: the database, such as postgresql://host/name or sqlite:///file.db. Leave "
        "the password to the database's own files.",
    ),
]
SITE_HELP = (
    "NAME=FILE of a site that keeps its rows; repeat for each file. With --sql also NAME=URL of "
    "its database."
)

Files = Sequence[str | Place]


def read_places(
    files: Sequence[str] | None, sql: str | None, database: str | None, *, needed: bool = True
) -> list[str | Place]:
    """The places of one data set's rows."""
    texts = list(files or ())
    if database is not None:
        if sql is None:
            raise WrongOption(
                "--sql and --from belong together.", hint="Give the query and the database."
            )
        if texts:
            raise WrongOption(
                "--from names a database, and files are given, too.",
                hint="Leave the files out, or --from.",
            )
        return [Query(sql, database)]
    found = [_place(text, sql) for text in texts]
    if sql is not None and not any(isinstance(place, Query) for place in found):
        raise WrongOption(
            "--sql is a query, and no database is named.",
            hint="Name one: --from postgresql://host/name, or its URL in place of a file.",
        )
    if needed and not found:
        raise WrongOption("There are no files.", hint="Give files with rows, or --sql and --from.")
    return found


def read_sites(texts: Sequence[str], sql: str | None = None) -> dict[str, list[str | Place]]:
    """The places of each site's rows, from ``NAME=PLACE``; a name given again adds places."""
    found: dict[str, list[str | Place]] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        if not (name and equals and place):
            scheme, between, _ = text.partition("://")  # a URL may have a password
            raise DataError(
                f"--site {f'{scheme}{between}...' if between else text!r} is not NAME=FILE.",
                hint="For example: --site north=a.parquet.",
            )
        found.setdefault(name, []).append(_place(place, sql))
    every = [place for places in found.values() for place in places]
    if sql is not None and not any(isinstance(place, Query) for place in every):
        raise WrongOption(
            "--sql is a query, and no site names a database.",
            hint="Name each site's: --site NAME=postgresql://host/name.",
        )
    return found


def _place(text: str, sql: str | None) -> str | Place:
    """A place: what a database answers to the query, or what is typed."""
    if not is_database(text):
        return text
    if sql is None:
        raise WrongOption(
            f"{Query('SELECT 1', text).database} is a database: which rows are meant?",
            hint="Give --sql 'SELECT ...'.",
        )
    return Query(sql, text)


def open_sites(
    places: Mapping[str, Files], wanted: WantedColumns
) -> dict[str, FileRows | WorkerFiles]:
    """Rows of each site; columns by name, those of the first site where none are given."""
    found: dict[str, FileRows | WorkerFiles] = {}
    seen: dict[Any, str] = {}
    for name, own in places.items():
        try:
            rows = wanted.rows_like(own)
        except (DataError, OutputError) as error:
            raise type(error)(
                f"site {name}: {error.message}", hint=error.hint, code=error.code
            ) from None
        for file in rows.paths:
            if (first := seen.setdefault(file.resolve(), name)) != name:
                raise DataError(
                    f"site {name}: {file} is given to site {first}, too.",
                    hint="Give each file once: rows that count twice break the privacy guarantee.",
                    code="file-twice",
                )
        if found and rows.features != next(iter(found.values())).features:
            first, other = next(iter(found.items()))
            raise DataError(
                f"site {name} has {rows.features} columns, site {first} {other.features}.",
                hint="All sites must have the same columns.",
                code="other-features",
            )
        found[name] = rows
        chosen = (wanted.columns, wanted.names, wanted.schema)
        if chosen == (None, None, None) and rows.names is not None:
            wanted = replace(wanted, columns=list(rows.names), exclude=())
    return found
