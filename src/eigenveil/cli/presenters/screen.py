"""The terminal: the one place that makes consoles, so that data is shown as it is.

Names and sentences may come from files and from other parties.  Rich would read ``[red]`` in them
as markup and ``:AB:`` as an emoji, and a terminal obeys escape sequences: here neither happens.
What is bold or coloured is marked by :func:`bold` and :func:`coloured`, never within a text.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.protocol import is_renderable
from rich.table import Table
from rich.text import Text

from eigenveil.app.events import FitEvent, Tell, Told
from eigenveil.app.parts import Part, Sentence, Strong, TablePart
from eigenveil.errors import LONGEST_TEXT, all_printable, printable


class Advance(Protocol):
    def __call__(self, what: str, count: int, sites: int | None = None) -> None:
        """So many more."""


class Screen(Console):
    """Standard output or standard error; every text is made :func:`~eigenveil.errors.printable`."""

    def __init__(self, *, quiet: bool = False, errors: bool = False) -> None:
        super().__init__(
            width=terminal_width(2 if errors else 1),
            quiet=quiet,
            stderr=errors,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def render_str(self, text: str, **how: Any) -> Text:
        """A text of ours or of others, as titles and cells of tables too."""
        return super().render_str(printable(text), **how)

    def print(self, *objects: Any, **how: Any) -> None:
        """Print texts, tables and other values, with blanks between."""
        super().print(*(each if is_renderable(each) else str(each) for each in objects), **how)

    def show(self, parts: Iterable[Part]) -> None:
        for part in parts:
            if isinstance(part, TablePart):
                self.print(_table(part))
            elif isinstance(part, Sentence):
                self.print(*map(_word, part.words), soft_wrap=part.whole)
            else:
                self.print(part)

    def next(self, *words: object) -> None:
        """The command that may follow, as it is typed: in one line, however narrow the screen.

        A path is quoted where a shell needs it.
        """
        typed = (quote(str(each)) if isinstance(each, Path) else str(each) for each in words)
        self.print("next: eigenveil", *typed, soft_wrap=True)


def _table(part: TablePart) -> Table:
    table = Table(title=part.title, show_header=part.headed)
    for name, heading in zip(part.headings, all_printable(part.headings), strict=True):
        table.add_column(
            Text(heading), justify="right" if name in part.right else "left", overflow=part.overflow
        )
    words = [word for row in part.rows for word in row if not isinstance(word, Strong)]
    texts = map(Text, all_printable(words))  # now, rather than each time that Rich measures it
    for row in part.rows:
        table.add_row(*(_word(each) if isinstance(each, Strong) else next(texts) for each in row))
    return table


def _word(word: Any) -> Any:
    return coloured(word.text, word.style) if isinstance(word, Strong) else word


def bold(text: object) -> Text:
    return coloured(text, "bold")


def coloured(text: object, style: str) -> Text:
    return Text(printable(text), style=style)


def description() -> TextColumn:
    return TextColumn("{task.description}", markup=False)


def terminal_width(stream: int = 1) -> int | None:
    """None on a terminal (its own width), or where COLUMNS says it.

    Wide elsewhere, so that tables are not cut in files.
    """
    return None if os.isatty(stream) or os.environ.get("COLUMNS", "").isdigit() else 110


def say(text: object, *, most: int | None = LONGEST_TEXT) -> None:
    """Print a line on standard output at once, cut where it is longer."""
    print(printable(text, most=most), flush=True)


def notify(text: object) -> None:
    """Print a line on standard error at once: for the owner of the rows only."""
    print(printable(text), file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Print one JSON object on standard output: the one encoder of all commands."""
    print(json.dumps(plain_values(value), indent=2))


def plain_values(value: object) -> Any:
    """A value of dataclasses, mappings and sequences, as JSON has it."""
    if hasattr(value, "as_json"):
        return plain_values(value.as_json())
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain_values(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain_values(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(each) for each in value]
    return str(value) if isinstance(value, Path | datetime) else value


class Presentable(Protocol):
    """What a use case returns, as it can be shown to people."""

    def parts(self) -> Iterable[Part]:
        """In tables and sentences."""


def present(found: Presentable, *, json: bool = False, quiet: bool = False) -> Screen:
    """Show what a use case returned, as one JSON object or to people; the screen for what follows.

    That screen shows nothing beside JSON.
    """
    if json:
        print_json(found)
    screen = Screen(quiet=json or quiet)
    if not screen.quiet:
        screen.show(found.parts())
    return screen


# -- What is told while a fit goes on: one bar a step.


@contextmanager
def listening(*, quiet: bool) -> Iterator[Tell]:
    """Show the events of a fit: bars on a terminal, a line a step elsewhere.

    When ``quiet``, only what is warned of.
    """
    with fit_progress(quiet=quiet) as advance:

        def tell(event: FitEvent) -> None:
            if isinstance(event, Told):
                if isinstance(advance, _StepLines):
                    advance.finish()
                if not (quiet and event.kind in ("ledger", "no ledger")):
                    show_told(event)
            elif advance is not None:
                advance(event.what, event.count, event.sites)

        yield tell


def show_told(event: FitEvent) -> None:
    if isinstance(event, Told):
        notify(f"{event.kind}: {event.text}")


@contextmanager
def fit_progress(*, quiet: bool) -> Iterator[Advance | None]:
    """A progress callback: bars on a terminal, a line a step elsewhere, nothing when quiet."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bars() as advance:
            yield advance
    else:
        lines = _StepLines()
        yield lines
        lines.finish()


@contextmanager
def _bars() -> Iterator[Advance]:
    columns = (
        description(),
        BarColumn(),
        TextColumn("{task.completed:,.0f} {task.fields[unit]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Screen(errors=True)) as progress:
        tasks: dict[str, TaskID] = {}
        total: float | None = None

        def advance(what: str, count: int, sites: int | None = None) -> None:
            nonlocal total
            if what not in tasks:
                for task in progress.tasks if sites is None else ():
                    total = task.completed  # a pass has read all rows when the next begins
                    progress.update(task.id, total=total)
                unit = "rows" if sites is None else f"of {sites} sites"
                known = total if sites is None else sites
                tasks[what] = progress.add_task(printable(what), total=known, unit=unit)
            progress.advance(tasks[what], count)

        yield advance
        for task in progress.tasks:
            progress.update(task.id, total=task.completed)


class _StepLines:
    """One line when a step ends, for logs: a pass over the rows, or a step of all sites."""

    def __init__(self) -> None:
        self._what, self._rows, self._start = "", 0, time.monotonic()
        self._answered: dict[str, int] = {}

    def __call__(self, what: str, count: int, sites: int | None = None) -> None:
        if sites is not None:
            self._answered[what] = self._answered.get(what, 0) + count
            if self._answered[what] == sites:
                notify(f"{what}: {sites} site{'' if sites == 1 else 's'} answered")
            return
        if what != self._what:
            self.finish()
            self._what, self._rows, self._start = what, 0, time.monotonic()
        self._rows += count

    def finish(self) -> None:
        if self._what:
            seconds = time.monotonic() - self._start
            notify(f"{self._what}: {self._rows:,} rows, {seconds:.2f} s")
        self._what = ""


@contextmanager
def counted(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A callback ``(done, total)``: a bar on a terminal, nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    columns = (description(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Screen(errors=True)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
