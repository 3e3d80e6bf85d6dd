"""The schema's file: it comes back as written, and what it cannot be is said in a sentence."""

import datetime
import json

import numpy as np
import pytest

from eigenveil.errors import DataError
from eigenveil.tables.kinds import KINDS
from eigenveil.tables.schema import (
    FORMAT,
    ROLES,
    Column,
    Schema,
    parse_schema,
    read_schema,
    write_schema,
)
from eigenveil.tables.schema_format import json_schema
from refusal_tools import refuses

DAY = datetime.date(2000, 1, 1)
WHOLE = Schema(
    (
        Column("patient_id", role="unit"),
        Column("visit", role="identifier"),
        Column("age", "number", unit_of_measure="years", range=(0, 120), label="Age at visit"),
        Column("bmi", "number"),
        Column("stage", "category", levels=("I", "II", "III")),
        Column("smokes", "boolean"),
        Column("born", "date", range=(DAY, datetime.date(2000, 1, 11)), origin=DAY),
        Column('a note, with "quotes" and ü', role="ignore"),
        Column("site", "category", role="covariate", levels=("a",), confirmed=False),
    )
)


def schema_of(*columns):
    return parse_schema({"format": FORMAT, "columns": list(columns)}, origin="s.toml")


def test_a_schema_comes_back_from_its_file_and_from_its_plain_values(tmp_path):
    write_schema(WHOLE, tmp_path / "s.toml")
    assert read_schema(tmp_path / "s.toml") == WHOLE
    plain = json.loads(json.dumps(WHOLE.as_dict()))
    assert parse_schema(plain) == WHOLE
    assert parse_schema(plain).hash == WHOLE.hash
    assert "confirmed = false  # seen in the data" in (tmp_path / "s.toml").read_text()


def test_native_days_of_toml_are_days(tmp_path):
    (tmp_path / "s.toml").write_text(
        f'format = "{FORMAT}"\n[[columns]]\nname = "d"\nkind = "date"\n'
        "origin = 2000-01-01\nrange = [2000-01-01, 2000-01-11]\n"
    )
    (column,) = read_schema(tmp_path / "s.toml").columns
    assert column.bounds == (0.0, 10.0)


def test_encoded_columns_their_variables_and_public_ranges():
    assert WHOLE.names == (
        *("age", "bmi", "stage=I", "stage=II", "stage=III", "smokes", "born", "site=a"),
    )
    low, high = WHOLE.public_ranges().T
    np.testing.assert_array_equal(low, [0, np.nan, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(high, [120, np.nan, 1, 1, 1, 1, 10, 1])
    assert WHOLE.variable_numbers().tolist() == [0, 1, 2, 2, 2, 3, 4, 5]
    assert WHOLE.unit == "patient_id"
    assert WHOLE.identifiers == ("patient_id", "visit")


GOOD = {"name": "a", "kind": "number"}


def test_what_was_seen_must_be_confirmed_and_covariates_are_not_taken_yet():
    with refuses("unconfirmed-schema", r"rows.csv: .* column 'site' was read from rows"):
        WHOLE.check_usable("rows.csv")
    with refuses("no-covariates", "'site' has role 'covariate'"):
        WHOLE.confirmed().check_usable("rows.csv")
    schema_of({"name": "a", "kind": "number"}).check_usable("rows.csv")


def test_targets_are_read_and_refused_where_a_fit_takes_none():
    asked = schema_of(GOOD, {"name": "died", "kind": "boolean", "role": "target"})
    assert asked.names == ("a", "died")
    asked.check_usable("rows.csv")
    asked.check_targets("rows.csv", taken=True)
    with refuses("no-target", "'died': the role 'target'"):
        asked.check_targets("rows.csv", taken=False)
    group = {"name": "g", "kind": "category", "levels": ["x"], "role": "target"}
    with refuses("target-one-level", "'g' is a target of one level"):
        schema_of(GOOD, group).check_usable("rows.csv")


BAD = {
    "no column": ([], "there is no column"),
    "unknown key": ([GOOD | {"rang": [0, 1]}], "column 'a': there is no key 'rang'"),
    "no name": ([{"kind": "number"}], "column 1: has no name"),
    "not a table": (["a"], "column 1: is 'a'"),
    "no kind": ([{"name": "a"}], "column 'a': has no kind"),
    "unknown kind": ([GOOD | {"kind": "float"}], "column 'a': kind = 'float' is not one of"),
    "unknown role": ([GOOD | {"role": "id"}], "column 'a': role = 'id' is not one of"),
    "reversed": ([GOOD | {"range": [5, 1]}], r"column 'a': range = \[5, 1\] is reversed or empty"),
    "empty range": ([GOOD | {"range": [5, 5]}], "reversed or empty"),
    "half a range": ([GOOD | {"range": [5]}], "is not .smallest, largest"),
    "range of texts": ([GOOD | {"range": ["a", "b"]}], "is not two finite numbers"),
    "endless range": ([GOOD | {"range": [0, float("inf")]}], "is not two finite numbers"),
    "reversed days": (
        [{"name": "d", "kind": "date", "range": ["2001-01-01", "2000-01-01"]}],
        "column 'd': range = .* is reversed",
    ),
    "no day": ([{"name": "d", "kind": "date", "origin": "2000-02-30"}], "origin = .* is not a day"),
    "levels missing": ([{"name": "c", "kind": "category"}], "'c': is a category without levels"),
    "levels twice": (
        [{"name": "c", "kind": "category", "levels": ["x", "x"]}],
        "column 'c': level 'x' is there twice",
    ),
    "empty level": ([{"name": "c", "kind": "category", "levels": [""]}], "has an empty level"),
    "levels of numbers": (
        [{"name": "c", "kind": "category", "levels": [1, 2]}],
        "is not a list of texts",
    ),
    "levels of a number": ([GOOD | {"levels": ["x"]}], "levels has no meaning for kind 'number'"),
    "range of a category": (
        [{"name": "c", "kind": "category", "levels": ["x"], "range": [0, 1]}],
        "range has no meaning for kind 'category'",
    ),
    "unit of a date": (
        [{"name": "d", "kind": "date", "unit_of_measure": "kg"}],
        "unit_of_measure has no meaning",
    ),
    "twice": ([GOOD, GOOD], "column 'a' is there twice"),
    "encoded twice": (
        [{"name": "c", "kind": "category", "levels": ["x"]}, GOOD | {"name": "c=x"}],
        "encoded column 'c=x' is there twice",
    ),
    "two units": (
        [GOOD, {"name": "p", "role": "unit"}, {"name": "q", "role": "unit"}],
        "columns 'p', 'q' both have role 'unit'",
    ),
    "no feature": ([{"name": "p", "role": "unit"}], "no column has role 'feature'"),
    "confirmed": ([GOOD | {"confirmed": "no"}], "confirmed = 'no' is not true or false"),
    "label": ([GOOD | {"label": 3}], "label = 3 is not a text"),
}


OWN_CODE = {
    "unknown key": "unknown-key-of-schema",
    "no kind": "column-without-kind",
    "reversed": "range-reversed",
    "empty range": "range-reversed",
    "reversed days": "range-reversed",
    "no day": "not-a-day",
    "levels missing": "category-without-levels",
    "empty level": "empty-level",
    "two units": "two-units",
}


@pytest.mark.parametrize("name", BAD)
def test_what_a_schema_cannot_be_names_file_and_column(name):
    columns, message = BAD[name]
    with pytest.raises(DataError, match=message) as caught:
        schema_of(*columns)
    assert caught.value.message.startswith("s.toml: ")
    assert caught.value.code == OWN_CODE.get(name, "bad-schema")
    assert caught.value.hint


@pytest.mark.parametrize("text", ["format = ", "[[columns]]\nname = 3", 'format = "x"', "a = 1"])
def test_a_file_that_is_no_schema(text, tmp_path):
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(DataError, match=r"s\.toml"):
        read_schema(tmp_path / "s.toml")
    with pytest.raises(DataError, match="does-not-exist"):
        read_schema(tmp_path / "does-not-exist")


def test_where_two_schemas_differ_is_named():
    mine = schema_of(GOOD | {"range": [0, 1]}, {"name": "n", "role": "ignore"})
    same = schema_of(GOOD | {"range": [0, 1], "label": "A"})
    assert mine.difference(same) == same.difference(mine) == ""
    mine.check_same(same, "site north")
    other = schema_of(GOOD | {"range": [0, 2]})
    assert mine.difference(other) == "column 'a': range is [0, 1] and [0, 2]"
    grams = schema_of(GOOD | {"unit_of_measure": "g", "range": [0, 1]})
    assert "unit_of_measure is not given and g" in mine.difference(grams)
    assert "'b' is in only one" in mine.difference(
        schema_of(mine.columns[0].as_dict(), {"name": "b", "kind": "date"})
    )
    with refuses("other-schema", r"site north: its schema .* column 'a'"):
        mine.check_same(other, "site north")


def test_the_json_schema_knows_every_key_kind_and_role():
    found = json_schema()["properties"]["columns"]["items"]["properties"]
    assert set(found) == set(Column.__dataclass_fields__)
    assert found["kind"]["enum"] == list(KINDS)
    assert found["role"]["enum"] == list(ROLES)
    json.dumps(json_schema())
