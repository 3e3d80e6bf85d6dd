"""The experiments by name."""

import pytest
from toy_experiment import TOY

from eigenveil.errors import DataError
from eigenveil_papers.reproduction import data, page
from eigenveil_papers.reproduction.experiment import Settings

NAMES = (
    *("000-fig1", "000-fig2", "000-orders"),
    *("001-fig2", "001-fig3", "001-fig4", "001-fig5", "001-bounds", "001-costs", "001-unequal"),
    *("002-fig2", "002-fig3", "002-fig4", "002-lemma2"),
    *("003-fig1", "003-fig2", "003-table1", "003-theorem2"),
)


def test_there_is_an_experiment_for_every_figure_table_and_computable_theorem():
    assert tuple(page.EXPERIMENTS) == NAMES
    for name, experiment in page.EXPERIMENTS.items():
        assert experiment.name == name
        assert name.startswith(experiment.paper)
        assert experiment.about
        assert not experiment.title.endswith(".")
        assert set(experiment.datasets) <= {*data.NAMES, "synthetic"}


@pytest.mark.parametrize("name", NAMES)
def test_tasks_have_keys_of_their_own_at_every_scale(name):
    experiment = page.EXPERIMENTS[name]
    for scale in ("full", "fast", "toy"):
        tasks = experiment.tasks(Settings(scale=scale))
        assert tasks
        assert len({task.key for task in tasks}) == len(tasks)
        assert all(task.cost > 0 for task in tasks)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_one_data_set_has_tasks(name):
    experiment = page.EXPERIMENTS[name]
    for known in experiment.datasets:
        if known == "synthetic" or data.at_hand(known, Settings()):
            assert experiment.tasks(Settings(scale="toy", data=known))


def test_names_are_chosen_once_and_all_are_those_with_the_data(monkeypatch):
    other = type(TOY)(**{**vars(TOY), "name": "000-other", "datasets": ("good",)})
    monkeypatch.setattr(page, "EXPERIMENTS", {e.name: e for e in (TOY, other)})
    assert page.choose(["000-other", "all"], Settings()) == [other, TOY]
    assert page.choose(["all"], Settings(data="bad")) == [TOY]
    with pytest.raises(DataError, match="good, bad"):
        page.choose(["all"], Settings(data="mnist"))
    with pytest.raises(DataError, match="Did you mean 000-toy") as raised:
        page.choose(["000-tyo"], Settings())
    assert raised.value.exit_status == 2
