"""HTML from names and numbers: built as a tree, so that no text can become markup.

Names of columns, sites and studies may come from files and from other parties. Every text is made
:func:`~eigenveil.errors.printable` and escaped by the standard library's serialiser.
"""

from __future__ import annotations

import xml.etree.ElementTree as Tree
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from eigenveil.errors import LONGEST_TEXT, printable

Node: TypeAlias = Tree.Element
Part: TypeAlias = "Node | str | float | int | None"

# Fragments in a notebook: colours of the notebook, whatever its theme.
_FRAGMENT = "font-family:system-ui,sans-serif;font-size:0.95em;margin:0.4em 0;max-width:60em"
_CELL = "padding:0.15em 0.7em;border-bottom:1px solid currentColor;vertical-align:top;"


def node(tag: str, *parts: Part, most: int | None = LONGEST_TEXT, **attributes: object) -> Node:
    """An element with texts and elements inside; ``None`` among them is left out."""
    made = Tree.Element(tag)
    for name, value in attributes.items():
        if value is not None:
            made.set(name.rstrip("_").replace("_", "-"), printable(value, most=None))
    last: Node | None = None
    for part in parts:
        if part is None:
            continue
        if isinstance(part, Tree.Element):
            made.append(part)
            last = part
            continue
        text = printable(part, most=most)
        if last is None:
            made.text = (made.text or "") + text
        else:
            last.tail = (last.tail or "") + text
    return made


def block(tag: str, text: str, **attributes: object) -> Node:
    """An element whose text keeps its lines, such as ``pre``; each line is made printable."""
    made = node(tag, most=None, **attributes)
    made.text = "\n".join(printable(line, most=None) for line in text.split("\n"))
    return made


def table(
    heading: Sequence[Part],
    rows: Iterable[Sequence[Part]],
    *,
    caption: str | None = None,
    right: Sequence[bool] | None = None,
    style: bool = False,
) -> Node:
    """A table with a row of headings."""
    right = [False] * len(heading) if right is None else right

    def cells(tag: str, parts: Sequence[Part]) -> list[Node]:
        made = []
        for part, end in zip(parts, right, strict=True):
            look = _CELL + f"text-align:{'right' if end else 'left'}" if style else None
            scope = "col" if tag == "th" else None
            made.append(node(tag, part, class_="number" if end else None, style=look, scope=scope))
        return made

    head = node("thead", node("tr", *cells("th", heading)))
    body = node("tbody", *(node("tr", *cells("td", row)) for row in rows))
    title = None if caption is None else node("caption", caption)
    return node("table", title, head, body, style="border-collapse:collapse" if style else None)


def fragment(title: str, *parts: Part) -> Node:
    """A part of a notebook's output with a title."""
    return node("div", node("strong", title), *parts, style=_FRAGMENT)


def listing(items: Iterable[Part]) -> Node:
    return node("ul", *(node("li", item) for item in items))


def html_of(element: Node) -> str:
    return Tree.tostring(element, encoding="unicode", method="html")
