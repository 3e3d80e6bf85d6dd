"""The terminal: the one place that makes consoles, so that data is shown as it is.

Names and sentences may come from files and from other parties.  Rich would read ``[red]`` in them
as markup and ``:AB:`` as an emoji, and a terminal obeys escape sequences: here neither happens.
What is bold or coloured is said by :func:`bold` and :func:`coloured`, never within a text.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from rich.console import Console
from rich.progress import TextColumn
from rich.protocol import is_renderable
from rich.text import Text

from eigenveil.errors import LONGEST_TEXT, printable


class Screen(Console):
    """Standard output or standard error; every text is made :func:`~eigenveil.errors.printable`.

    Parameters
    ----------
    quiet : bool
        Print nothing.
    errors : bool
        Standard error: what is for the owner of the rows only, such as progress.
    """

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
    """None on a terminal (its own width); wide elsewhere, so that tables are not cut in files."""
    return None if os.isatty(stream) else 110


def say(text: object, *, most: int | None = LONGEST_TEXT) -> None:
    """Print a line on standard output at once, cut where it is longer."""
    print(printable(text, most=most), flush=True)


def tell(text: object) -> None:
    """Print a line on standard error at once: for the owner of the rows only."""
    print(printable(text), file=sys.stderr, flush=True)
