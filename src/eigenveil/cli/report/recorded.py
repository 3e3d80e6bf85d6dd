"""What a presenter prints on a terminal, as HTML: one account of a result for both."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from eigenveil.cli.presenters.screen import Screen
from eigenveil.markup import Node, node, table


class RecordingScreen(Screen):
    """A screen that prints nothing: tables and lines become elements of a page."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.parts: list[Node] = []

    def print(self, *objects: Any, **how: Any) -> None:
        """Keep texts and tables."""
        del how
        line: list[Node | str] = []
        for each in objects:
            if isinstance(each, Table):
                self.parts.append(scrolled(html_table(each)))
            else:
                line.append(_text(each) if not line else node("span", " ", _text(each)))
        if line:
            self.parts.append(node("p", *line))


def _text(value: Any) -> Node | str:
    """A text; what was bold stays bold."""
    if isinstance(value, Text):
        return node("strong", value.plain) if "bold" in str(value.style) else value.plain
    return str(value)


def _plain(value: Any) -> str:
    return value.plain if isinstance(value, Text) else str(value)


def html_table(found: Table) -> Node:
    """A table as it is printed."""
    cells = [[_plain(cell) for cell in column.cells] for column in found.columns]
    return table(
        [_plain(column.header) for column in found.columns],
        list(zip(*cells, strict=True)),
        caption=None if found.title is None else _plain(found.title),
        right=[column.justify == "right" for column in found.columns],
    )


def scrolled(made: Node) -> Node:
    """A table that moves sideways on a narrow screen, also by the keyboard."""
    caption = made.findtext("caption") or "table"
    return node("div", made, class_="scroll", role="region", aria_label=caption, tabindex="0")
