"""Progress of fits in Python: bars in a terminal and in a notebook.

>>> from eigenveil import PrivatePCA
>>> from eigenveil.progress import show_progress
>>> with show_progress():  # doctest: +SKIP
...     PrivatePCA(5).fit(X)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eigenveil.cli.presenters.screen import fit_progress
from eigenveil.markup import Node, fragment, html_of, node, table
from eigenveil.models.driver import told_to

_PAUSE = 0.2  # seconds between two changes of a notebook's output


@contextmanager
def show_progress() -> Iterator[None]:
    """Show the progress of the fits in the block: a bar or line a pass over the rows.

    A terminal has bars, a notebook a table that changes, a file one line a pass. Progress counts
    rows, without noise: it is for their owner only. A notebook's table is taken away at the end, so
    that what is saved has no such count.
    """
    if _in_notebook():
        bars = _NotebookBars()
        try:
            with told_to(bars):
                yield
        finally:
            bars.close()
        return
    with fit_progress(quiet=False) as advance, told_to(advance):
        yield


def _in_notebook() -> bool:
    """Whether output goes to a notebook: an IPython that is no terminal."""
    interactive: Any = sys.modules.get("IPython")
    shell = None if interactive is None else interactive.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class _NotebookBars:
    """A table in a notebook, a line a pass, that is taken away at the end."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html = HTML
        self._counts: dict[str, int] = {}
        self._shown = 0.0
        self._handle = display(HTML("..."), display_id=True)

    def __call__(self, what: str, count: int) -> None:
        self._counts[what] = self._counts.get(what, 0) + count
        if time.monotonic() - self._shown >= _PAUSE:
            self._show()

    def _show(self) -> None:
        self._shown = time.monotonic()
        most = max(self._counts.values(), default=1) or 1  # a pass reads as many as the last
        rows = [(what, _bar(count, most), f"{count:,}") for what, count in self._counts.items()]
        made = table(("pass", "", "done"), rows, right=(False, False, True), style=True)
        self._handle.update(self._html(html_of(fragment("Fitting", made))))

    def close(self) -> None:
        """Leave nothing that counts rows in the notebook."""
        self._handle.update(self._html(html_of(fragment("Fit ended"))))


def _bar(count: int, most: int) -> Node:
    return node("progress", value=count, max=most, aria_label="progress")
