"""What holds of every experiment, by the registry."""

import json

import numpy as np
import pytest
from toy_experiment import TOY

from eigenveil.errors import DataError
from eigenveil_papers.reproduction import data, page
from eigenveil_papers.reproduction.experiment import RunSettings
from eigenveil_papers.reproduction.numbers import Numbers

TOY_SCALE = RunSettings(scale="toy")
PCA = ("000-fig1", "000-fig2")

NAMES = (
    *("000-fig1", "000-fig2", "000-orders"),
    *("001-fig2", "001-fig3", "001-fig4", "001-fig5", "001-bounds", "001-costs"),
    *("001-open", "001-unequal"),
    *("002-fig2", "002-fig3", "002-fig4ab", "002-fig4c", "002-fig4df"),
    *("002-changing", "002-lemma2", "002-merge"),
    *("003-fig1", "003-fig2", "003-table1", "003-theorem2"),
    "1910.12913-gain",
)


def test_there_is_an_experiment_for_every_figure_table_and_computable_theorem():
    assert tuple(page.EXPERIMENTS) == NAMES
    assert set(page.captions()) == set(NAMES)
    for name, experiment in page.EXPERIMENTS.items():
        assert experiment.name == name
        assert experiment.paper in page.PAPERS
        assert experiment.about
        assert not experiment.title.endswith(".")
        caption = page.captions()[name]
        assert 80 < len(caption) < 700
        assert caption.endswith(".")
        assert set(experiment.datasets) <= {*data.NAMES, "synthetic", "synthetic-rotated"}


@pytest.mark.parametrize("name", NAMES)
def test_tasks_are_told_apart_at_every_scale_and_of_every_data_set(name):
    experiment = page.EXPERIMENTS[name]
    for scale in ("full", "fast", "toy"):
        tasks = experiment.tasks(RunSettings(scale=scale))
        assert tasks
        assert len({task.key for task in tasks}) == len(tasks)
        assert all(task.cost > 0 for task in tasks)
        assert all(json.loads(json.dumps(t.arguments)) == t.arguments for t in tasks)
        assert len(experiment.given(RunSettings(scale=scale))) >= 2
    for known in experiment.datasets:
        if known not in data.NAMES or data.at_hand(known, RunSettings()):
            tasks = experiment.tasks(RunSettings(scale="toy", data=known))
            assert tasks
            assert {t.arguments["name"] for t in tasks if "name" in t.arguments} <= {known}


@pytest.mark.parametrize("name", NAMES)
def test_without_points_nothing_is_claimed(name):
    claims = page.EXPERIMENTS[name].claims(Numbers(), TOY_SCALE)
    # what reduces to equation 2 of paper 001, and what AVN's noise hides, needs no numbers
    computed = name in ("001-unequal", "001-fig3", "001-fig4")
    most = {"not tested", "contradicted"} if computed else {"not tested"}
    assert {claim.verdict.outcome for claim in claims} <= most
    page.EXPERIMENTS[name].draw(Numbers(), TOY_SCALE)


PANELS = {"000-fig1": 12, "000-fig2": 3, "001-fig5": None} | {"002-fig2": 12}
SLOW = {"001-fig3": None, "001-fig4": None, "002-fig3": 11, "002-fig4ab": 12, "003-table1": None}
SLOW |= {"001-fig2": 12, "002-lemma2": None, "003-fig2": None, "002-changing": 9}
LABELS = {"000-fig1": ("DPdisPCA", "dpdispca-by-value"), "001-fig2": ("capePCA", "pooled-by-value")}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.thorough) if n in SLOW else n for n in NAMES]
)
def test_what_was_measured_is_drawn_and_claimed_whole_or_in_part(name, measured):
    """A run may be interrupted, or be of one data set."""
    experiment, numbers = page.EXPERIMENTS[name], measured(name)
    figure = experiment.draw(numbers, TOY_SCALE)
    drawn = [axes for axes in figure.axes if axes.get_visible() and axes.has_data()]
    assert len(drawn) == ((PANELS | SLOW).get(name) or len(drawn)) > 0
    shown, silent = LABELS.get(name, (None, None))
    labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert shown is None or shown in labels
    assert silent not in labels
    claims = experiment.claims(numbers, TOY_SCALE)
    for claim in claims:
        assert claim.statement.rstrip(")").endswith(".")
        assert claim.measured.endswith(".")
        assert "nan" not in claim.measured
        assert claim.compared or "not measured" in claim.measured or name not in PCA
    assert {claim.verdict.outcome for claim in claims} - {"not tested"}
    for panel in numbers.panels[:6]:
        for kept in (True, False):
            part = Numbers(row for row in numbers.measured if (row.panel == panel) is kept)
            found = experiment.claims(part, TOY_SCALE)
            assert [claim.statement for claim in found] == [claim.statement for claim in claims]
            assert "nan" not in " ".join(claim.measured for claim in found)
    experiment.draw(Numbers(numbers.measured[:5]), TOY_SCALE)


@pytest.mark.parametrize("name", ["000-fig2", "001-fig4", "003-fig1"])
def test_a_task_gives_the_same_points_again(name):
    task = min(page.EXPERIMENTS[name].tasks(TOY_SCALE), key=lambda task: task.cost)
    first, again = (list(task.work(np.random.default_rng(5), **task.arguments)) for _ in range(2))
    assert repr(first) == repr(again)


def test_names_are_chosen_once_and_all_are_those_with_the_data(monkeypatch):
    other = type(TOY)(**{**vars(TOY), "name": "000-other", "datasets": ("good",)})
    monkeypatch.setattr(page, "EXPERIMENTS", {e.name: e for e in (TOY, other)})
    assert page.choose(["000-other", "all"], RunSettings()) == [other, TOY]
    assert page.choose(["all"], RunSettings(data="bad")) == [TOY]
    with pytest.raises(DataError, match="good, bad"):
        page.choose(["all"], RunSettings(data="mnist"))
    with pytest.raises(DataError, match="Did you mean 000-toy") as raised:
        page.choose(["000-tyo"], RunSettings())
    assert raised.value.exit_status == 2
