"""Progress of a fit: one bar a pass over the rows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from eigenveil.cli.screen import Screen, description, tell
from eigenveil.errors import printable
from eigenveil.estimators.driver import RoundProgress


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
            tell(f"{self._what}: {self._rows:,} rows, {seconds:.2f} s")


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
