"""The terminal: the one place that makes consoles, so that data is shown as it is.

Names and sentences may come from files and from other parties.  Rich would read ``[red]`` in them
as markup and ``:AB:`` as an emoji, and a terminal obeys escape sequences: here neither happens.
What is bold or coloured is marked by :func:`bold` and :func:`coloured`, never within a text.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

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
from rich.text import Text

from eigenveil.errors import LONGEST_TEXT, printable

if TYPE_CHECKING:  # the command line's help needs none of the libraries
    from eigenveil.models.driver import RoundProgress


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

    def next(self, *words: object) -> None:
        """The command that may follow, as it is typed: in one line, however narrow the screen.

        A path is quoted where a shell needs it.
        """
        typed = (quote(str(each)) if isinstance(each, Path) else str(each) for each in words)
        self.print("next: eigenveil", *typed, soft_wrap=True)


def bold(text: object) -> Text:
    """A text in bold letters."""
    return coloured(text, "bold")


def coloured(text: object, style: str) -> Text:
    """A text in a style of Rich's, such as a colour."""
    return Text(printable(text), style=style)


def description() -> TextColumn:
    """What a bar of progress is of."""
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


# -- Progress of a fit: one bar a pass over the rows.


@contextmanager
def fit_progress(*, quiet: bool) -> Iterator[RoundProgress | None]:
    """A progress callback: bars on a terminal, a line a pass elsewhere, nothing when quiet."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bars() as advance:
            yield advance
    else:
        lines = _Lines()
        yield lines
        lines.finish()


@contextmanager
def _bars() -> Iterator[RoundProgress]:
    columns = (
        description(),
        BarColumn(),
        TextColumn("{task.completed:,.0f} rows", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Screen(errors=True)) as progress:
        tasks: dict[str, TaskID] = {}
        total: float | None = None

        def advance(what: str, rows: int) -> None:
            nonlocal total
            if what not in tasks:
                for task in progress.tasks:  # a pass has read all rows when the next begins
                    total = task.completed
                    progress.update(task.id, total=total)
                tasks[what] = progress.add_task(printable(what), total=total)
            progress.advance(tasks[what], rows)

        yield advance
        for task in progress.tasks:
            progress.update(task.id, total=task.completed)


class _Lines:
    """One line when a pass ends, for logs."""

    def __init__(self) -> None:
        self._what, self._rows, self._start = "", 0, time.monotonic()

    def __call__(self, what: str, rows: int) -> None:
        if what != self._what:
            self.finish()
            self._what, self._rows, self._start = what, 0, time.monotonic()
        self._rows += rows

    def finish(self) -> None:
        """Say what the last pass was."""
        if self._what:
            seconds = time.monotonic() - self._start
            notify(f"{self._what}: {self._rows:,} rows, {seconds:.2f} s")


@contextmanager
def counted(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A callback ``(done, total)``: a bar on a terminal, nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    columns = (
        description(),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Screen(errors=True)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
