"""Which columns, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from eigenveil.errors import DataError
from eigenveil.io.tabular import Table


def select(
    tables: Sequence[Table],
    columns: Sequence[str] | None,
    exclude: Sequence[str],
    *,
    of_words: bool = False,
) -> Sequence[str]:
    """Name the columns wanted of every table: ``columns`` or those of the first table.

    Parameters
    ----------
    of_words : bool
        ``columns`` are words of a vocabulary, which may be numbers.

    Raises
    ------
    DataError
        Naming the file and the column that is missing, unexpected or not numeric; its position
        only, where its name reads as a value.
    """
    for name in exclude:
        # a slip here could let in the very column that must stay out
        if not any(name in table.types for table in tables):
            tables[0].check_names()  # before they are listed
            raise DataError(
                f"{tables[0].path} has no column {name!r} to leave out, nor has any other file.",
                hint=_known(tables[0]),
                code="missing-column",
            )
    names = [n for n in (tables[0].columns if columns is None else columns) if n not in exclude]
    if not names:
        raise DataError(
            f"No column of {tables[0].path} is left.",
            hint=_known(tables[0]),
            code="no-columns",
        )
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise DataError(
            f"Column {twice!r} is asked for twice.", hint="Name it once.", code="duplicate-column"
        )
    for table in tables:
        found = all(name in table.types for name in names)
        table.check_names(names if found else None, of_words=of_words)
        _check(table, names, exclude, extra_allowed=columns is not None, first=tables[0])
    return tuple(names)


def _check(
    table: Table,
    names: Sequence[str],
    exclude: Sequence[str],
    *,
    extra_allowed: bool,
    first: Table,
) -> None:
    for name in names:
        if name not in table.types:
            raise DataError(
                f"{table.path} has no column {name!r}.", hint=_known(table), code="missing-column"
            )
    if not extra_allowed:
        wanted = {*names, *exclude}
        extra = next((name for name in table.columns if name not in wanted), None)
        if extra is not None:
            raise DataError(
                f"{table.path} has a column {extra!r} that {first.path} has not.",
                hint="Name the wanted columns (--columns) or leave this one out (--exclude).",
                code="extra-column",
            )
    for name in names:
        table.require_numeric(name)


def _known(table: Table) -> str:
    shown = ", ".join(repr(name) for name in table.columns[:20])
    more = f" and {len(table.columns) - 20} more" if len(table.columns) > 20 else ""
    return f"Its columns are {shown}{more}."
