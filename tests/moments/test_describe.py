"""A sum described in plain values is the same sum elsewhere, and no other is ever built."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sums_tools import COUNT_WEIGHT, KINDS, PRECISIONS, SEEDS, make, nasty_rows, random_basis

from eigenveil.errors import ProtocolError
from eigenveil.moments.accumulators import ComponentEnergy, NormHistogram, Sketch
from eigenveil.moments.describe import Description, describe, rebuild
from eigenveil.moments.rows import Block, RowRule

BOUNDS = st.sampled_from([0.0, 1.0, 0.3, 1e-300, 1e300, 5e-324])


def sent(accumulator, features):
    """What arrives elsewhere: the description over JSON, arrays as bytes."""
    description, arrays = describe(accumulator, features)
    text = json.dumps(description.model_dump(mode="json"))
    received = Description.model_validate(json.loads(text))
    assert received == description
    shapes = received.shapes()
    assert arrays.keys() == shapes.keys()
    assert {name: array.shape for name, array in arrays.items()} == shapes
    return rebuild(
        received,
        {name: np.frombuffer(a.tobytes()).reshape(a.shape) for name, a in arrays.items()},
    )


def alike(one, other):
    return type(one) is type(other) and all(
        np.array_equal(mine, theirs) for mine, theirs in zip(one.kind(), other.kind(), strict=True)
    )


@st.composite
def sums(draw):
    """An empty sum of every kind, and its number of features."""
    features = draw(st.integers(1, 6))
    kind, precision = draw(st.sampled_from(KINDS)), draw(st.sampled_from(PRECISIONS))
    centre = None
    if draw(st.booleans()):
        centre = np.random.default_rng(draw(SEEDS)).standard_normal(features)
    coarser = draw(st.integers(-3, 0))
    return make(kind, features, precision, centre, draw(BOUNDS), coarser), features


@given(sums(), SEEDS)
@settings(max_examples=60)
def test_a_described_sum_is_rebuilt(drawn, seed):
    accumulator, features = drawn
    found = sent(accumulator, features)
    assert alike(found, accumulator)
    assert found.statistic == accumulator.statistic
    assert (found.grid, found.shape, found.size) == (
        accumulator.grid,
        accumulator.shape,
        accumulator.size,
    )
    assert found.parameters == accumulator.parameters
    rows = nasty_rows(20, features, seed, "single")
    for each in (accumulator, found):
        each.update(Block(rows))
    assert np.array_equal(found.integers(), accumulator.integers())
    found.merge(accumulator)  # of one kind: sums of both may be added


@pytest.mark.parametrize("with_count", [False, True])
def test_histograms_with_and_without_count(with_count):
    histogram = NormHistogram(None, precision="double", with_count=with_count)
    assert alike(sent(histogram, 4), histogram)


def test_a_rebuilt_sum_does_not_share_the_messages_memory():
    rule = RowRule(centre=np.zeros(3))
    accumulator = Sketch(rule, random_basis(3, 2), clip=0.5)
    description, arrays = describe(accumulator, 3)
    found = rebuild(description, arrays)
    assert not np.shares_memory(found.basis, arrays["basis"])
    assert not np.shares_memory(found.rule.centre, arrays["centre"])


def described(**fields):
    return Description.model_validate(
        {"kind": "second-moment", "features": 3, "precision": "double"} | fields
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "anything"},
        {"features": 0},
        {"features": -1},
        {"precision": "half"},
        {"bound": -1.0},
        {"bound": math.nan},
        {"bound": math.inf},
        {"extra_bits": 3},
        {"extra_bits": -18},
        {"count_weight": -0.5},
        {"count_weight": 1.5},
        {"count_weight": 1e308},
        {"count_weight": math.nan},
        {"clip": 0.0},
        {"clip": 5e-324},
        {"clip": 1.5},
        {"clip": math.nan},
        {"columns": -1},
        {"sensitivity": 1.0},
    ],
)
def test_impossible_numbers_are_refused(fields):
    with pytest.raises(ValidationError):
        described(**fields)


def refused(description, **arrays):
    with pytest.raises(ProtocolError) as caught:
        rebuild(description, arrays)
    assert caught.value.code == "bad-ask"


@pytest.mark.parametrize("kind", ["sketch", "component-energy"])
@pytest.mark.parametrize(
    "basis",
    [
        np.full((3, 2), 1.0),  # longer than 1
        np.eye(3)[:, :2] * 1.01,
        np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.1]]),
        np.full((3, 2), 1e200),  # its squares leave the arithmetic
        np.full((3, 2), np.nan),
    ],
)
def test_long_columns_are_refused(kind, basis):
    refused(described(kind=kind, columns=2), basis=basis)


@pytest.mark.parametrize("kind", ["sketch", "component-energy"])
def test_columns_that_rounding_made_a_little_long_are_taken(kind):
    basis = random_basis(3, 2) * (1 + 1e-9)
    assert rebuild(described(kind=kind, columns=2), {"basis": basis}).size


@pytest.mark.parametrize("kind", ["sketch", "component-energy"])
@pytest.mark.parametrize("columns", [0, 4])
def test_no_columns_and_more_than_features_are_refused(kind, columns):
    refused(described(kind=kind, columns=columns), basis=np.zeros((3, columns)))


@pytest.mark.parametrize("kind", ["second-moment", "sketch", "component-energy"])
@pytest.mark.parametrize("extra_bits", [1, 2])
def test_products_of_finer_entries_are_refused(kind, extra_bits):
    basis = {} if kind == "second-moment" else {"basis": np.eye(3)[:, :1]}
    refused(described(kind=kind, extra_bits=extra_bits, columns=len(basis)), **basis)


@pytest.mark.parametrize(
    ("precision", "extra_bits"), [("single", -9), ("single", -17), ("double", -17)]
)
@pytest.mark.parametrize("kind", ["row-sum", "second-moment"])
def test_entries_without_bits_are_refused(kind, precision, extra_bits):
    if precision == "double":  # one bit is left
        assert rebuild(described(kind=kind, extra_bits=extra_bits), {}).size
    else:
        refused(described(kind=kind, precision=precision, extra_bits=extra_bits))


@pytest.mark.parametrize("value", [1e308, -1e308, math.nan, math.inf])
@pytest.mark.parametrize("kind", ["norm-histogram", "row-sum", "second-moment"])
def test_a_centre_outside_the_arithmetic_is_refused(kind, value):
    refused(described(kind=kind, centred=True), centre=np.array([0.0, value, 0.0]))


def test_a_centre_outside_single_precision_is_refused():
    centre = np.array([0.0, 3e38, 0.0])
    refused(described(precision="single", centred=True), centre=centre)
    assert rebuild(described(centred=True), {"centre": centre}).size


def test_directions_are_not_a_sum():
    refused(described(kind="bingham-vectors"))


@given(SEEDS, st.integers(1, 5), st.booleans())
@settings(max_examples=40)
def test_the_gain_is_worked_out_from_whatever_columns_came(seed, features, single):
    """No row adds more than the gain, even where columns are unit but far from orthogonal."""
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(1, features + 1))
    basis = rng.standard_normal((features, 1)) + 0.1 * rng.standard_normal((features, columns))
    basis /= np.linalg.norm(basis, axis=0)
    description = described(
        kind="component-energy",
        features=features,
        columns=columns,
        precision="single" if single else "double",
        count_weight=COUNT_WEIGHT,
    )
    energy = rebuild(description, {"basis": basis})
    assert isinstance(energy, ComponentEnergy)
    worst = np.linalg.svd(basis)[0][:, 0]
    energy.update(Block(worst[None, :]))
    added = energy.integers()[:-1] * 2.0**energy.grid
    assert added.min() >= 0
    assert added.sum() <= energy.parameters["gain"]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("clip", [2.0**-20, 1e-3, 1.0])
def test_a_zero_row_adds_nothing_to_the_sharpest_sketch(precision, clip):
    sketch = rebuild(
        described(kind="sketch", columns=2, clip=clip, precision=precision),
        {"basis": random_basis(3, 2)},
    )
    sketch.update(Block(np.zeros((2, 3))))
    assert not np.any(sketch.integers())
    sketch.update(Block(np.ones((1, 3))))
    moved = sketch.integers() * 2.0**sketch.grid
    assert np.linalg.norm(moved) <= 1.0
