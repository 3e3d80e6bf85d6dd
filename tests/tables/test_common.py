"""What the schemas of several sites share, and where they differ."""

import pytest

from eigenveil.errors import DataError
from eigenveil.tables.common import common_schema
from eigenveil.tables.schema import FORMAT, parse_schema


def schema(*columns):
    return parse_schema({"format": FORMAT, "columns": list(columns)})


def number(name, **fields):
    return {"name": name, "kind": "number"} | fields


AGE = number("age", range=[0, 100], label="years")


def test_same_schemas_have_no_difference_and_are_kept_whole():
    one = schema(AGE, {"name": "who", "role": "unit"}, {"name": "x", "role": "ignore"})
    found, differences = common_schema(
        {"a": one, "b": schema({"name": "who", "role": "unit"}, AGE)}
    )
    assert differences == ()
    assert [c.name for c in found.columns] == ["age", "who"]
    assert found.unit == "who"
    assert one.difference(found) == ""  # a site that reads by its own schema takes the study


def test_each_difference_is_named_by_column_and_site():
    stage = {"name": "stage", "kind": "category"}
    a = schema(
        AGE, number("bmi", unit_of_measure="kg/m2"), stage | {"levels": ["I", "II"]},
        number("only a"), number("free", range=[0, 1]), number("role"),
    )  # fmt: skip
    b = schema(
        number("age", range=[-1, 90], label="other words"), number("bmi", unit_of_measure="lb/in2"),
        stage | {"levels": ["II", "III"]}, number("free"), {"name": "role", "role": "identifier"},
        {"name": "only a", "role": "ignore"},
    )  # fmt: skip
    found, differences = common_schema({"a": a, "b": b})
    assert [c.name for c in found.columns] == ["age", "stage", "free"]
    assert found.column("age").range == (-1, 100)
    assert found.column("stage").levels == ("I", "II", "III")
    assert found.column("free").range is None  # nobody has declared one for both
    told = {(each.column, each.field): each for each in differences}
    assert set(told) == {
        ("age", "range"), ("bmi", "unit_of_measure"), ("stage", "levels"), ("only a", "column"),
        ("free", "range"), ("role", "role"), ("role", "kind"),
    }  # fmt: skip
    assert told["only a", "column"].values == {"a": "there", "b": "ignored"}
    assert str(told["bmi", "unit_of_measure"]) == (
        "column 'bmi', unit_of_measure: a: kg/m2; b: lb/in2. Common: left out."
    )
    assert told["free", "range"].taken == "not given"


def test_nothing_in_common_is_refused():
    with pytest.raises(DataError) as error:
        common_schema({"a": schema(number("x")), "b": schema(number("y"))})
    assert error.value.code == "no-common-columns"
