"""Forms of every task in the registry: what is typed is what is run, or refused beside the form."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from console_tools import FakeDesk, Visitor, hidden

from eigenveil.cli.commands.fit import fit
from eigenveil.console.desk.forms import declared, fields_of
from eigenveil.console.desk.lead import LeadDesk
from eigenveil.console.desk.table import TableDesk
from eigenveil.console.desk.ways import Kind, kinds_of
from eigenveil.console.settings import Rows
from eigenveil.errors import EigenveilError
from eigenveil.models.options import options_of
from eigenveil.models.task import TASKS

ROWS = Rows(data=("t.csv",))
KINDS = [kind.name for kind in kinds_of(ROWS)]


@pytest.fixture
def desk(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,b,c\n1,2,3\n4,5,6\n")
    return TableDesk(Rows(data=(str(table),), ledger=str(tmp_path / "t.ledger")))


def test_every_task_can_be_fitted_and_drafted():
    assert {name.partition(":")[0] for name in KINDS} == set(TASKS)
    assert [each["name"] for each in LeadDesk.kinds()] == list(TASKS)
    parquet = [kind.name for kind in kinds_of(Rows(data=("t.parquet",)))]
    assert "pca:stream" in KINDS
    assert "pca:stream" not in parquet  # 'eigenveil watch' reads text


def test_a_task_that_is_new_in_the_registry_appears(monkeypatch, tmp_path):
    new = replace(TASKS["covariance"], name="news", title="what is new")
    monkeypatch.setitem(TASKS._tasks, "news", new)
    found = Visitor(tmp_path)
    found.client = found.browser("ann")
    for page in ("/fit", "/plan"):
        assert f"{page}?kind=news" in found.client.get(page).text
    assert "Fit: What is new" in found.client.get("/fit?kind=news").text


@pytest.mark.parametrize("name", KINDS)
def test_what_is_shown_is_what_is_declared_and_every_choice_can_be_taken(name):
    kind = Kind(name, ROWS)
    fields = {field["name"]: field for field in fields_of(kind.options)}
    assert {"epsilon", "delta"} <= fields.keys()
    declared_ = options_of(kind.task.name, kind.way.path)
    assert all(field["help"] in {each.help for each in declared_.values()}
               for field in fields.values())  # fmt: skip
    as_shown = {name: field["default"] for name, field in fields.items()}
    assert kind.values(as_shown) == {}
    for field in fields.values():
        for choice in field["choices"]:
            assert len(kind.values({field["name"]: choice})) == (choice != field["default"])


@pytest.mark.parametrize("task", TASKS)
def test_a_fit_lacks_no_option_that_can_be_typed(task):
    kept = {"random_state", "ledger", "data_set"}  # of one machine
    arrays = {"noise", "ranges"}  # one value alone, and what a schema says
    missing = options_of(task, "table").keys() - declared(TASKS[task], "table", fit).keys()
    assert missing <= kept | arrays


def test_numbers_are_run_as_they_were_typed():
    typed = {"epsilon": "0.1234567891", "whiten": "yes", "center": "no",
             "budget_split": "moment=0.98765432", "covariates": "a, b"}  # fmt: skip
    words = Kind("pca", ROWS).words(typed)
    wanted = {"--epsilon=0.1234567891", "--whiten", "--center=none",
              "--budget-split=moment=0.98765432", "--covariates=a,b"}  # fmt: skip
    assert set(words[5:]) == wanted


def test_a_stream_is_always_private():
    assert "--epsilon=1" in Kind("pca:stream", ROWS).words({})


WRONG = [
    ("pca", "epsilon", "much", "must be a float"),
    ("pca", "components", "7", "number of features"),
    ("pca", "center", "/etc/passwd", "center"),
    ("pca", "covariates", "nobody", "nobody"),
    ("pca", "unit", "nobody", "no column 'nobody'"),
    ("pca:stream", "publish", "continual", "horizon"),
    ("pca:stream", "block_size", "0", "at least 1"),
    ("gaussian-mixture", "covariance_type", "round", "spherical"),
    ("topic-model", "alpha0", "-1", "alpha0"),
    ("covariance", "budget_split", "moment", "step=share"),
]


@pytest.mark.parametrize(("kind", "name", "text", "why"), WRONG)
def test_a_wrong_value_is_refused_before_anything_is_made(desk, kind, name, text, why, tmp_path):
    with pytest.raises(EigenveilError, match=why):
        desk.words(kind, {name: text})
    assert not (tmp_path / "t.ledger").exists()


def test_a_refusal_is_beside_the_form_with_what_was_typed(desk, tmp_path):
    found = Visitor(
        tmp_path,
        desk=FakeDesk(kinds=desk.kinds, form=desk.form, words=desk.words, ledger=desk.ledger),
    )
    found.client = found.browser("ann")
    page = found.client.get("/fit?kind=gaussian-mixture")
    form = {name: hidden(page.text, name) for name in ("csrf", "number", "kind")}
    form |= {"epsilon": "much", "components": "3", "noise_variance": "0.5"}
    page = found.client.post("/fit", data=form)
    assert page.status_code == 400
    assert "epsilon = &#39;much&#39; must be a float" in page.text
    assert all(f'value="{text}"' in page.text for text in ("much", "3", "0.5"))
    assert "<details open>" in page.text  # what was typed is not folded away
    assert list(found.console.jobs.folder.iterdir()) == []
    form |= {"number": hidden(page.text, "number"), "epsilon": "0.5"}
    started = []

    async def start(kind, title, words, *, who, about=""):
        started.append(words)
        return SimpleNamespace(name="20300101000000-0badcafe", title=title)

    found.console.jobs.start = start
    assert found.client.post("/fit", data=form).status_code == 303  # corrected
    assert started[0][-3:] == ["--components=3", "--epsilon=0.5", "--noise-variance=0.5"]
