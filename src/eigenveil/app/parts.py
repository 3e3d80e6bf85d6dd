"""What is said of a result, in sentences and tables: a terminal, a page and a report show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from eigenveil.markup import Node, node, table


@dataclass(frozen=True)
class Strong:
    text: str
    style: str = "bold"  # Or a colour, on a terminal


@dataclass(frozen=True)
class Sentence:
    """Words with blanks between; ``whole`` ones stay on one line, to be copied."""

    words: tuple[object, ...]
    whole: bool = False


@dataclass(frozen=True)
class TablePart:
    """Rows of texts under headings, those of some columns at the right."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str | Strong]]
    right: Sequence[str] = ()
    headed: bool = True
    overflow: Literal["fold", "ellipsis"] = "ellipsis"  # What becomes of long texts on a terminal

    def plain_rows(self) -> list[list[str]]:
        return [[plain(cell) for cell in row] for row in self.rows]


Part: TypeAlias = str | Sentence | TablePart


def strongly(word: str, *words: object) -> Sentence:
    return Sentence((Strong(word), *words))


def whole(text: str) -> Sentence:
    """A sentence that stays on one line."""
    return Sentence((text,), whole=True)


def plain(text: str | Strong) -> str:
    return text.text if isinstance(text, Strong) else text


def bytes_text(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def as_nodes(parts: Iterable[Part]) -> Iterator[Node]:
    for part in parts:
        if isinstance(part, TablePart):
            right = [heading in part.right for heading in part.headings]
            rows = part.plain_rows()
            yield scrolled(table(part.headings, rows, caption=part.title, right=right))
        else:
            words = part.words if isinstance(part, Sentence) else (part,)
            first, *others = (
                node("strong", word.text) if isinstance(word, Strong) else str(word)
                for word in words
            )
            yield node("p", first, *(node("span", " ", other) for other in others))


def scrolled(made: Node) -> Node:
    """A table that moves sideways on a narrow screen, also by the keyboard."""
    caption = made.findtext("caption") or "table"
    return node("div", made, class_="scroll", role="region", aria_label=caption, tabindex="0")
