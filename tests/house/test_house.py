"""The house gets no larger: lines, long files, fragments, switches; calls between its rooms."""

import ast
from pathlib import Path

import crossings
import pytest

import house

LONG = "def f():\n" + "    x = 1\n" * 60
WITH_MANY = "def f(a, b, c, d, e, f, g, h): ..."
FOUND = [
    ("comparisons_with_protocols", 'study.protocol == "cape"'),
    ("comparisons_with_protocols", 'x = protocol in ("full", other)'),
    ("comparisons_with_protocols", 'match study.protocol:\n    case "cape": ...'),
    ("comparisons_with_masks", 'if plan.masks != "helper": ...'),
    ("comparisons_with_tasks", 'task == "pca"'),
    ("comparisons_with_mechanisms", 'noise.kind == "gaussian"'),
    ("long_functions", LONG),
    ("functions_of_many_arguments", WITH_MANY),
    ("imports_in_functions", "def f():\n    import os"),
    ("texts_against_layers", 'x = "cli.app:main"'),
    ("names_of_two_classes", "class A: ..."),
]


@pytest.mark.parametrize("walk", crossings.WALKS)
def test_calls_between_rooms_stay_within_their_budget(walk):
    found, releases = crossings.of_walk(walk)
    assert found.total() <= house.budgets()["crossings"][walk] * releases, found.most_common(10)


@pytest.mark.parametrize(("count", "source"), FOUND)
def test_each_count_finds_what_it_counts(count, source, monkeypatch):
    both = ["eigenveil.models.one", "eigenveil.models.two"]
    parsed = [(module, node) for module in both for node in ast.walk(ast.parse(source))]
    monkeypatch.setattr(house, "everything", lambda: parsed)
    assert len(list(house.COUNTED[count]())) == (1 if count == "names_of_two_classes" else 2)
    monkeypatch.setattr(house, "everything", lambda: [("eigenveil.a", ast.parse("x = 1"))])
    assert not list(house.COUNTED[count]())


def test_a_number_above_its_budget_is_told_and_new_budgets_are_written(tmp_path, monkeypatch):
    place = tmp_path / "pyproject.toml"
    place.write_text(Path(house.PROJECT).read_text())
    monkeypatch.setattr(house, "PROJECT", place)
    found = {section: dict.fromkeys(names, 7) for section, names in house.budgets().items()}
    house.write(found)
    assert house.budgets() == found
    assert place.read_text().count("[tool.") == house.ROOT.joinpath(place.name).read_text().count(
        "[tool."
    )
    found["lines"] |= {"eigenveil/models": 8, "a new room": 1}
    told = list(house.too_many(found, house.budgets()))
    assert [text.split(":")[0] for text in told] == ["lines eigenveil/models", "lines a new room"]
