"""Settings and claims written as tables: every line is read, and no word is passed over."""

import pytest

from eigenveil_papers.reproduction import page, tables
from eigenveil_papers.reproduction.numbers import Measured, Numbers
from eigenveil_papers.reproduction.rule import ClaimPart, Measure

NUMBERS = Numbers(
    Measured("p", series, x, value + x + run / 1e3, run)
    for series, value in (("a", 1.0), ("b", 0.5))
    for x in (1.0, 2.0)
    for run in range(4)
)
MEASURE = Measure(unit="points", margin=0.1)


@pytest.mark.parametrize(("name", "cells"), [("claims.md", 7), ("given.md", 4)])
def test_lines_have_all_cells(name, cells):
    found = tables.read_tables(name)
    assert {len(line) for lines in found.values() for line in lines} == {cells}
    assert min(map(len, found.values())) > 2
    if name == "claims.md":
        assert found.keys() <= page.EXPERIMENTS.keys()


def made(monkeypatch, *lines):
    monkeypatch.setattr(
        tables, "read_tables", lambda name: {"f": [line.split("|") for line in lines]}
    )
    parts = {"own part": [ClaimPart("", (), "better")]}
    words = {"ratio": {"level": 1.8}, "word": 7}
    return tables.claims_of("f", NUMBERS, MEASURE, {"all": ["p"]}, parts, **words)


def test_each_way_of_asking_gives_its_verdict(monkeypatch):
    found = made(
        monkeypatch,
        "figure 1|all|better|a|b||says {word}",
        "figure 1|all|better|b|a||says",
        "figure 1|all|same|a|b||says",
        "figure 1|all|no worse|a|b||says",
        "figure 1|all|rises|a b|||says",
        "figure 1|all|reaches|a||2.5|says",
        "figure 1|all|reaches here|b||9|says",
        "eigenveil|all|needs at least|a|b|1.1|says",
        "eigenveil|all|needs at most|a|b|1.1|says",
        "eigenveil||own part||||says",
    )
    assert found[0].statement == "says 7"
    assert [claim.verdict.outcome for claim in found] == [
        *("shown", "contradicted", "contradicted", "shown", "shown", "shown", "contradicted"),
        *("shown", "contradicted", "not tested"),
    ]
    assert [claim.where for claim in found] == ["figure 1"] * 7 + ["eigenveil"] * 3


@pytest.mark.parametrize(
    "line",
    [
        "figure 1|every|better|a|b||a word that no panels have",
        "figure 1|all|betters|a|b||a way of asking that there is not",
        "figure 1|all|better|a|b||{another} word",
        "figure 1|all|reaches|a|||no level",
    ],
)
def test_what_a_table_says_wrongly_is_an_error(monkeypatch, line):
    with pytest.raises((KeyError, ValueError)):
        made(monkeypatch, line)


def test_what_is_said_of_a_figure_is_filled_in_and_none_of_it_is_left_out():
    texts = tables.read_texts("about.md")
    whole = {name: page.EXPERIMENTS[name].about for name in texts if name in page.EXPERIMENTS}
    assert len(whole) > 12
    assert not any("{" in text for text in whole.values())
    shared = [text for name, text in texts.items() if name not in whole]
    assert all(any(text in of for of in whole.values()) for text in shared)
    with pytest.raises(KeyError):
        tables.about("002-changing")
