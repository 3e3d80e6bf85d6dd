"""Units of rows: counted over all blocks, weighed in every pass, and missing ones left out."""

import math

import numpy as np
import pytest

from eigenveil.errors import DataError
from eigenveil.models.driver import rows_for
from eigenveil.moments.rows import Block
from eigenveil.moments.source import ArrayRows, RowSource
from eigenveil.tables.schema import FORMAT, parse_schema
from eigenveil.tables.units import LabelledRows, StreamUnits, UnitRows, unit_ids, whose_rows
from plan_tools import plan_of
from refusal_tools import refuses


class Changing(RowSource):
    """Rows of which there are more in every pass: a file that somebody writes to."""

    features, names, single = 1, None, True

    def __init__(self):
        self.passes = 0

    def blocks(self):
        self.passes += 1
        for _ in range(self.passes):
            yield Block(np.ones((5, 1)), units=np.array([1, 1, 2, 1, 3]))


def weights(rows):
    found = [
        np.divide(1.0, b.weights.divisors, out=np.zeros(5), where=b.weights.divisors > 0)
        for b in rows.blocks()
    ]
    return np.concatenate(found)


def labelled(ids, most=1):
    ids = unit_ids(ids, len(ids))
    return UnitRows(LabelledRows(ArrayRows(np.ones((len(ids), 1)), rows_a_block=5), ids), most)


def test_every_unit_counts_one():
    found = weights(labelled([1, 1, 2, 3, 3, 3, 3, 1, 4, 4]))
    assert found == pytest.approx(
        [1 / 3, 1 / 3, 1, 1 / 4, 1 / 4, 1 / 4, 1 / 4, 1 / 3, 1 / 2, 1 / 2]
    )


def test_rows_count_alike_up_to_a_number():
    found = weights(labelled([1, 1, 2, 3, 3, 3, 3, 1, 4, 4], most=3))
    assert found == pytest.approx([1 / 3] * 3 + [1 / 4] * 4 + [1 / 3] * 3)


def test_a_plan_s_number_of_rows_is_that_of_its_weights():
    plan = plan_of("pca", features=1, epsilon=1.0, delta=1e-6, n_components=1, unit="who",
                   max_rows_per_unit=3)  # fmt: skip
    rows = LabelledRows(ArrayRows(np.ones((5, 1))), unit_ids([1, 1, 2, 3, 3], 5))
    assert weights(rows_for(plan, rows)) == pytest.approx([1 / 3] * 5)


def test_rows_that_came_since_the_count_do_not_count():
    rows = UnitRows(Changing())
    assert rows.count().rows == 5
    for _ in range(3):
        found = [b.weights for b in rows.blocks()]
        for unit in (1, 2, 3):
            own = np.array([1, 1, 2, 1, 3]) == unit
            weight = sum((1 / w.divisors[own][w.divisors[own] > 0]).sum() for w in found)
            assert weight == pytest.approx(1)


@pytest.mark.parametrize(
    "ids",
    [
        [1.0, math.nan, 2.0, 1.0, math.nan],
        ["a", None, "b", "a", None],
        ["a", "", "b", "a", ""],
        np.array(["a", None, "b", "a", math.nan], dtype=object),
    ],
)
def test_rows_without_an_identifier_do_not_count(ids):
    rows = labelled(ids)
    assert weights(rows) == pytest.approx([0.5, 0, 1, 0.5, 0])
    assert (rows.count().units, rows.count().without) == (2, 2)


@pytest.mark.parametrize("groups", [[1, 2], [[1], [2], [3]], 7, "patient"])
def test_units_are_one_a_row(groups):
    with refuses("bad-groups") as error:
        unit_ids(groups, 3)
    assert "column is unit=" in error.value.hint


def test_rows_that_no_unit_was_read_with_are_refused():
    with refuses("no-units"):
        UnitRows(ArrayRows(np.ones((3, 1)))).count()


def streamed(units, ids):
    blocks = list(units.weighted(iter([Block(np.ones((len(ids), 1)), units=np.array(ids))])))
    return blocks[0].weights.divisors.tolist()


def test_of_a_stream_the_first_rows_of_a_unit_count():
    units = StreamUnits(2)
    assert streamed(units, [1, 1, 1, 2]) == [2, 2, 0, 2]
    units.keep()
    assert streamed(units, [2, 1, 2, 3]) == [2, 0, 0, 2]
    assert streamed(units, [2, 1, 2, 3]) == [2, 0, 0, 2], "a block that was not kept is not seen"


def test_streams_that_share_a_unit_are_not_merged():
    one, two, three = StreamUnits(1), StreamUnits(1), StreamUnits(1)
    for units, ids in ((one, [1, 2]), (two, [3]), (three, [2])):
        streamed(units, ids)
        units.keep()
    one.merge(two)
    assert streamed(one, [1, 3, 4]) == [0, 0, 1]
    with refuses("unit-twice", "1 units have rows in both"):
        one.merge(three)


UNIT = parse_schema(
    {
        "format": FORMAT,
        "columns": [{"name": "a", "kind": "number"}, {"name": "who", "role": "unit"}],
    }
)


@pytest.mark.parametrize(
    ("unit", "one_row", "schema", "wanted"),
    [
        ("id", False, None, "id"),
        (None, False, UNIT, "who"),
        (None, True, None, None),
        (None, True, UNIT.only(UNIT.names), None),
        (None, False, None, "whose-rows"),
        (None, False, UNIT.only(UNIT.names), "whose-rows"),
        ("id", True, None, "whose-rows-twice"),
        (None, True, UNIT, "whose-rows-twice"),
    ],
)
def test_whose_each_row_is_must_be_said_once(unit, one_row, schema, wanted):
    try:
        found = whose_rows(unit, one_row_per_person=one_row, schema=schema)
    except DataError as error:
        found = error.code
    assert found == wanted
