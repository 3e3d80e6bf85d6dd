"""Texts, settings and claims that are written in Markdown: the latter as tables, a line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from eigenveil_papers.reproduction.experiment import Claim
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.rule import ClaimPart, Measure, Scope, decide


@cache
def read_texts(name: str) -> dict[str, str]:
    """What a file has below each of its headings."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    parts = [part.partition("\n") for part in text.split("\n## ")[1:]]
    return {heading: below.strip() for heading, _, below in parts}


def about(name: str, **words: object) -> str:
    """What about.md says of a figure: in braces are ``words``, or what another heading has."""
    texts = read_texts("about.md")
    return texts[name].format_map(texts | words)


@cache
def read_tables(name: str) -> dict[str, list[list[str]]]:
    """The cells of a file's tables without their heads, by the headings above them."""
    tables = {
        heading: [line for line in below.splitlines() if line.startswith("| ")]
        for heading, below in read_texts(name).items()
    }
    return {
        heading: [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]
        for heading, lines in tables.items()
    }


Panels = Sequence[str]
Place = Panels | tuple[Numbers, Panels]


def claims_of(
    figure: str,
    numbers: Numbers,
    measure: Measure,
    places: Mapping[str, Place],
    parts: Mapping[str, Iterable[ClaimPart]],
    *,
    ratio: Mapping[str, Any] | None = None,
    others: Mapping[str, Measure] | None = None,
    asides: Mapping[str, str] | None = None,
    **words: object,
) -> list[Claim]:
    """The claims of a figure, as claims.md has them, in its order.

    ``places`` are the panels of the table's words, with numbers of their own where they have some;
    ``parts`` those of claims that no method of :class:`Scope` makes; ``others`` are measures, by
    what is asked or by place; ``ratio`` says where epsilons are compared
    (:meth:`Scope.epsilon_ratios`); ``words`` are filled into statements.
    """
    made, at_which = [], ratio or {}
    for where, place, asks, first, second, at, statement in read_tables("claims.md")[figure]:
        panels: Any = places[place] if place else ()
        found, panels = panels if panels and isinstance(panels[0], Numbers) else (numbers, panels)
        of_place = (others or {}).get(place, measure)
        scope = Scope(found, where, panels, (others or {}).get(asks, of_place))
        said, one, two = statement.format_map(words), first.split(), second.split()
        aside = (asides or {}).get(first if asks.startswith("reaches") else asks, "")
        match asks:
            case "better" | "no worse" | "same":
                ask = {"better": scope.better, "no worse": scope.no_worse, "same": scope.same}[asks]
                made.append(ask(said, one, two))
            case "rises":
                made.append(scope.rises(said, one))
            case "reaches" | "reaches here":
                beyond = asks == "reaches"
                made.append(scope.reaches(said, one, float(at), beyond=beyond, aside=aside))
            case "needs at least":
                made.append(scope.epsilon_ratios(said, first, second, least=float(at), **at_which))
            case "needs at most":
                made.append(scope.epsilon_ratios(said, first, second, most=float(at), **at_which))
            case _:
                made.append(decide(said, where, parts[asks], scope.measure, aside=aside))
    return made
