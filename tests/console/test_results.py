"""Results of every task in the registry: tables, figures, and two beside each other."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from eigenveil.app.results import presenter_of, write_result
from eigenveil.console import running
from eigenveil.console.desk.results import Results
from eigenveil.console.settings import Rows
from eigenveil.errors import DataError
from eigenveil.models.derived.options import TITLES
from eigenveil.models.task import TASKS

rng = np.random.default_rng(0)
# Names of columns that must be no formula in a spreadsheet.
FORMULAS = ["=HYPERLINK(1)", "+SUM(A1)", "-a", "@a", "\tb", "plain"]
CENTERS = np.eye(3, 6)[rng.integers(3, size=4000)]


def rows_of(task):
    """Rows of three groups, or documents of three topics."""
    if task.takes_documents:
        words = np.kron(CENTERS[:, :3], np.ones(2)) + 0.02
        return rng.multinomial(30, words / words.sum(axis=1, keepdims=True))
    return 6.0 * CENTERS + rng.normal(size=CENTERS.shape)


def fitted(task, folder, seed, *, figures=False, **options):
    counted = {"n_components": 3} if task.counted else {}
    model = task.estimator("table")(
        epsilon=10.0, random_state=seed, ledger=None, **counted, **options
    )
    model.fit(pd.DataFrame(rows_of(task), columns=FORMULAS))
    folder.mkdir()
    write_result(model, folder, figures=figures)
    return model


@pytest.mark.parametrize("name", TASKS)
def test_a_result_has_figures_and_can_be_compared(name, tmp_path):
    task = TASKS[name]
    fitted(task, tmp_path / "a", 1, figures=True)
    fitted(task, tmp_path / "b", 2)
    found = Results().result(str(tmp_path / "a"))
    assert task.title.startswith(found["title"][:1].lower() + found["title"][1:])
    assert any(part["title"] and part["rows"] for part in found["parts"])
    assert found["figures"]
    assert all((tmp_path / "a" / each["file"]).is_file() for each in found["figures"])
    json.dumps(found, allow_nan=False)
    assert found["above"] is not None
    same = Results().compare([str(tmp_path / "a")] * 2)
    apart = Results().compare([str(tmp_path / "a"), str(tmp_path / "b")])
    assert len(same["headings"]) == len(same["lines"][0])
    assert same["lines"] != apart["lines"]
    assert [len(line) for line in same["lines"]] == [len(line) for line in apart["lines"]]
    files = (file.open(newline="") for file in (tmp_path / "a").glob("*.csv"))
    cells = [cell for file in files for line in csv.reader(file) for cell in line]
    assert {f"'{each}" for each in FORMULAS[:5]} | {"plain"} <= set(cells)
    for cell in cells:
        assert not cell.startswith(("=", "+", "-", "@", "\t")) or float(cell) < 0


def derive(folder, name, kind, given):
    """By the process of a run, as the console starts it."""
    running.derive(
        Rows(), {"folder": str(folder / "a"), "kind": kind, "given": given}, folder / name, None
    )
    return Results().result(str(folder / name))


def test_what_follows_from_a_covariance_is_a_result_of_its_own(tmp_path):
    fitted(TASKS["covariance"], tmp_path / "a", 1)
    desk, folder = Results(), str(tmp_path / "a")
    assert [each["name"] for each in desk.result(folder)["follows"]] == list(TITLES)
    given = {"target": "plain", "on": "-a, @a", "ridge": "1"}
    assert desk.derived_form(folder, "regression")["form"]["columns"][-1] == "plain"
    title = desk.check_derived(folder, "regression", given)
    assert title == "Linear regression, target plain, on -a, @a"
    found = derive(tmp_path, "b", "regression", given)
    assert (found["title"], found["follows"]) == ("Linear regression", [])
    assert found["guarantee"] == desk.result(folder)["guarantee"]
    assert [each["file"] for each in found["figures"]] == ["regression.svg"]
    wrong = {"derive-no-column": {"on": "nobody"}, "derive-column-twice": {"on": "plain"},
             "bad-option": {"ridge": "-1"}, "derive-no-target": {"target": ""}}  # fmt: skip
    for code, change in wrong.items():
        with pytest.raises(DataError) as refused:
            desk.check_derived(folder, "regression", given | change)
        assert refused.value.code == code
    for act in (desk.derived_form, lambda folder, kind: desk.check_derived(folder, kind, given)):
        with pytest.raises(DataError, match="no covariance"):
            act(str(tmp_path / "b"), "regression")
    with pytest.raises(DataError, match="different tasks"):
        desk.compare([folder, str(tmp_path / "b")])
    with pytest.raises(DataError, match="not worked out"):
        desk.compare([str(tmp_path / "b")] * 2)


def test_the_same_components_in_another_order_are_the_same(tmp_path):
    task = TASKS["gaussian-mixture"]
    one = fitted(task, tmp_path / "a", 1)
    presenter = presenter_of(one)
    names = ("means_", "weights_", "variances_")
    moved = SimpleNamespace(**{name: np.roll(getattr(one, name), 1, axis=0) for name in names})
    found = presenter.compare(one, moved)
    assert {line[2] for line in found.lines} == {"0.000"}


def test_results_of_other_tasks_or_columns_are_not_compared(tmp_path):
    fitted(TASKS["pca"], tmp_path / "a", 1)
    fitted(TASKS["covariance"], tmp_path / "b", 1)
    with pytest.raises(DataError, match="different tasks"):
        Results().compare([str(tmp_path / "a"), str(tmp_path / "b")])
