"""Forms of every task in the registry: what is typed is what is run, or refused beside the form."""

import sys
from dataclasses import replace

import pytest
from console_tools import Visitor
from hypothesis import given, settings
from hypothesis import strategies as st

import soak_tools
from eigenveil.console.desk.forms import fields_of, read, read_values, typed
from eigenveil.console.desk.lead import LeadDesk
from eigenveil.console.desk.table import TableDesk
from eigenveil.console.desk.ways import WAYS, Kind, kinds
from eigenveil.console.settings import Rows
from eigenveil.errors import DataError, EigenveilError
from eigenveil.models.option_words import OPTION_WORDS, words_of
from eigenveil.models.options import OPTIONS, options_of
from eigenveil.models.task import TASKS

KINDS = [kind.name for kind in kinds()]


def test_every_task_can_be_fitted_and_drafted():
    assert {name.partition(":")[0] for name in KINDS} == set(TASKS)
    assert [each["name"] for each in LeadDesk.kinds()] == list(TASKS)
    for file, there in (("t.csv", True), ("t.parquet", False)):  # a stream is read of text
        desk = TableDesk(Rows(data=(file,)))
        assert ("pca:stream" in {each["name"] for each in desk.kinds()}) == there
    with pytest.raises(DataError):
        desk.form("pca:stream")


def test_a_task_that_is_new_in_the_registry_appears(monkeypatch, tmp_path):
    new = replace(TASKS["covariance"], name="news", title="what is new")
    found = [each for each in sys.modules.values() if vars(each).get("TASKS") is TASKS]
    for module in found:
        monkeypatch.setattr(module, "TASKS", {**TASKS, "news": new})
    browser = Visitor(tmp_path).browser("ann")
    assert "/rows?kind=news" in browser.get("/task").text
    assert "Fit: What is new" in browser.get("/fit?kind=news").text


@pytest.mark.parametrize("name", KINDS)
def test_what_is_shown_is_what_is_declared_and_every_choice_can_be_taken(name):
    kind = Kind(name)
    form = kind.form()
    fields = {field["name"]: field for field in form["options"]}
    assert {"epsilon", "delta"} <= fields.keys()
    declared = options_of(kind.task.name, kind.way.path)
    for name, field in fields.items():
        assert field["help"] == words_of(name).help or field["help"] == declared[name].help
    assert kind.values({name: field["default"] for name, field in fields.items()}) == {}
    for field in fields.values():
        for choice in field["choices"]:
            assert len(kind.values({field["name"]: choice})) == (choice != field["default"])


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("path", ["table", "sites"])
def test_a_form_lacks_no_option_that_can_be_typed(task, path):
    own = {"random_state", "ledger", "data_set"}  # of one machine
    arrays = {"noise", "ranges", "vocabulary"}  # one value alone; a schema's; names of columns
    found = options_of(task, path)
    shown = {field["name"] for field in fields_of(found.values())}
    assert found.keys() - shown <= own | arrays


def test_choices_are_in_words_and_words_are_of_what_is_declared():
    """No select shows a value of the programs, and no word is left of an option that is gone."""
    declared = [*OPTIONS, *(each for way in WAYS.values() for each in way.own)]
    fields = fields_of(declared)
    values = {name: set() for name in OPTION_WORDS}
    for field in fields:
        values.setdefault(field["name"], set()).update(field["choices"])
        unworded = {value for value, text in field["choices"].items() if value == text}
        if field["name"] != "missing" or "refuse" not in field["choices"]:  # in no form
            assert unworded <= {"yes", "no"}, field
    for name, words in OPTION_WORDS.items():
        assert name in {field["name"] for field in fields}
        assert set(words.choices) <= values[name], name
    page = {field["name"]: field for field in Kind("pca").form()["options"]}
    assert page["missing"]["label"] == "Rows with missing values"
    assert page["missing"]["choices"]["leave-out"] == "Leave them out"
    assert "ranges" not in page  # pairs of numbers cannot be typed here; columns have theirs


def test_whose_rows_scales_and_missing_values_are_asked_first():
    found = fields_of(options_of("pca", "table").values())
    first = {field["name"] for field in found if field["first"]}
    assert {"epsilon", "unit", "scale", "missing"} <= first


SHOWN = [option for option in OPTIONS if fields_of([option])]


@settings(max_examples=soak_tools.times(1000))
@given(st.sampled_from(SHOWN), st.text(max_size=30) | st.from_regex(r"-?[0-9.eE+=,a-z ]{0,12}"))
def test_whatever_is_typed_is_an_allowed_value_or_refused(option, text):
    try:
        value = read(option, text)
    except EigenveilError:
        return
    assert option.has(value)
    values = read_values([option], {option.name: text})
    assert values in ({}, {option.name: read(option, text.strip())})


@settings(max_examples=soak_tools.times(1000))
@given(st.sampled_from(SHOWN), st.floats(1e-6, 1e6) | st.integers(1, 1000) | st.booleans())
def test_a_value_is_read_back_as_it_was_typed(option, value):
    if not option.has(value) or any(name in typed(value) for name in option.choices):
        return
    text = repr(value) if isinstance(value, float) else typed(value)
    found = read(option, text)
    assert found == value
    assert isinstance(found, bool) == isinstance(value, bool)


def test_numbers_are_fitted_as_they_were_typed():
    given = {"epsilon": "0.1234567891", "whiten": "yes", "center": "no",
             "budget_split": "moment=0.98765432", "covariates": "a, b"}  # fmt: skip
    wanted = {"epsilon": 0.1234567891, "whiten": True, "center": False,
              "budget_split": {"moment": 0.98765432}, "covariates": ("a", "b")}  # fmt: skip
    assert Kind("pca").values(given) == wanted
    by = Kind("pca").summary({"scores": "yes", "scores_by": "a,b", "one_row_per_person": "yes"})
    assert "scores by a, b" in by


WRONG = [
    ("pca", "epsilon", "much", "must be a float"),
    ("pca", "epsilon", "-1", "Got -1|= -1"),
    ("pca", "n_components", "7", "number of features"),
    ("pca", "center", "/etc/passwd", "center"),
    ("pca", "covariates", "nobody", "nobody"),
    ("pca", "one_row_per_person", "no", "whose each row is"),
    ("pca:stream", "one_row_per_person", "", "whose each row is"),
    ("pca", "unit", "nobody", "no column 'nobody'"),
    ("pca:stream", "publish", "continual", "horizon"),
    ("gaussian-mixture", "covariance_type", "round", "spherical"),
    ("topic-model", "alpha0", "-1", "alpha0"),
    ("covariance", "budget_split", "moment", "fractions"),
    ("pca:tree", "epsilon", "1", "cannot be fitted"),
]


@pytest.mark.parametrize(("kind", "name", "text", "why"), WRONG)
def test_a_wrong_value_is_refused_before_anything_is_made(kind, name, text, why, tmp_path):
    table, ledger = tmp_path / "t.csv", tmp_path / "t.ledger"
    table.write_text("a,b,c\n1,2,3\n4,5,6\n")
    desk = TableDesk(Rows(data=(str(table),), ledger=str(ledger)))
    with pytest.raises(EigenveilError, match=why):
        desk.check(kind, {"one_row_per_person": "no" if name == "unit" else "yes", name: text})
    assert not ledger.exists()


def test_a_run_is_called_by_what_its_form_says():
    assert Kind("ica").summary({"n_components": "3"}) == "Independent components, components 3"
