"""A sum described in plain values is the same sum elsewhere, and no other is ever built."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sums_tools import (
    COUNT_WEIGHT,
    DOCUMENT_SUMS,
    KINDS,
    PRECISIONS,
    SEEDS,
    make,
    nasty_rows,
    random_basis,
)

from eigenveil.errors import ProtocolError
from eigenveil.moments.accumulators import (
    ComponentEnergy,
    RowSum,
    SecondMoment,
    Sketch,
    share_rules,
)
from eigenveil.moments.describe import Description, describe, rebuild
from eigenveil.moments.documents.pairs import DocumentPairs
from eigenveil.moments.documents.sums import DocumentNorms
from eigenveil.moments.documents.triples import DocumentTriples
from eigenveil.moments.histograms import NormHistogram
from eigenveil.moments.rows import LARGEST_ASKED, SMALLEST_ASKED, Block, RowRule
from eigenveil.moments.third import ThirdMoment
from soak_tools import times

BOUNDS = st.sampled_from([0.0, 1.0, 0.3, SMALLEST_ASKED, LARGEST_ASKED])


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
        np.array_equal(mine, theirs)
        for mine, theirs in zip(one.merge_key(), other.merge_key(), strict=True)
    )


@st.composite
def sums(draw):
    """An empty sum of every kind, and its number of features."""
    features = draw(st.integers(1, 6))
    kind, precision = draw(st.sampled_from(KINDS)), draw(st.sampled_from(PRECISIONS))
    center = None
    if draw(st.booleans()):
        center = np.random.default_rng(draw(SEEDS)).standard_normal(features)
    coarser = draw(st.integers(-3, 0))
    return make(kind, features, precision, center, draw(BOUNDS), coarser), features


def is_rebuilt(accumulator, features, rows):
    """Whether what arrives elsewhere is the same sum, of the same rows."""
    found = sent(accumulator, features)
    assert alike(found, accumulator)
    for name in ("statistic", "grid", "shape", "size", "parameters"):
        assert getattr(found, name) == getattr(accumulator, name)
    for each in (accumulator, found):
        each.update(Block(rows))
    assert np.array_equal(found.integers(), accumulator.integers())
    found.merge(accumulator)  # of one kind: sums of both may be added


@given(sums(), SEEDS)
@settings(max_examples=times(100))
def test_a_described_sum_is_rebuilt(drawn, seed):
    accumulator, features = drawn
    is_rebuilt(accumulator, features, nasty_rows(20, features, seed, "single"))


MADE = {name: make for name, make in DOCUMENT_SUMS.items() if not name.startswith("norms")}
MADE |= {
    "fine nuclear pairs": lambda d: DocumentPairs(d, clip=2.0**-20, nuclear=True, extra_bits=-3),
    "triples of units": lambda d: DocumentTriples(random_basis(d, 2), weighted=True),
}


@pytest.mark.parametrize("kind", MADE)
def test_a_described_sum_over_documents_is_rebuilt(kind):
    counts = np.random.default_rng().integers(1, 50, (20, 4)).astype(float)
    is_rebuilt(MADE[kind](4), 4, counts)
    is_rebuilt(DocumentNorms(MADE[kind](4), weighted="units" in kind), 4, counts)


def test_the_basis_of_triples_travels_as_it_was_given():
    """Rounded twice, it could be another."""
    basis = random_basis(40, 3)
    sent_basis = describe(DocumentTriples(basis), 40)[1]["basis"]
    assert np.array_equal(sent_basis, basis)


@given(st.floats(0, 1), st.floats(2.0**-20, 1))
def test_a_third_moment_keeps_its_clip_and_its_rounded_variance(variance, clip):
    third = ThirdMoment(RowRule(bound=3.0), random_basis(4, 2), clip=clip, variance=variance)
    found = sent(third, 4)
    assert alike(found, third)
    assert (found.clip, found.variance) == (clip, third.variance)


@pytest.mark.parametrize("bound", [0.0, 2.5])
def test_a_histogram_through_a_basis_and_one_without(bound):
    for basis in (None, random_basis(4, 2)):
        histogram = NormHistogram(np.ones(4), precision="single", basis=basis, bound=bound)
        found = sent(histogram, 4)
        assert alike(found, histogram)
        assert (found.basis is None) == (basis is None)


def test_a_rebuilt_sum_does_not_share_the_messages_memory():
    rule = RowRule(center=np.zeros(3))
    accumulator = Sketch(rule, random_basis(3, 2), clip=0.5)
    description, arrays = describe(accumulator, 3)
    found = rebuild(description, arrays)
    assert not np.shares_memory(found.basis, arrays["basis"])
    assert not np.shares_memory(found.rule.center, arrays["center"])


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
        {"variance": -0.1},
        {"variance": 1.1},
        {"variance": math.nan},
        {"variance": math.inf},
        {"sensitivity": 1.0},
    ],
)
def test_impossible_numbers_are_refused(fields):
    with pytest.raises(ValidationError):
        described(**fields)


def refused(description, **arrays):
    with pytest.raises(ProtocolError) as caught:
        rebuild(description, arrays)
    assert caught.value.code == "bad-query"


WITH_BASIS = ["sketch", "component-energy", "third-moment", "document-triples"]


@pytest.mark.parametrize("kind", [*WITH_BASIS, "norm-histogram"])
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


@pytest.mark.parametrize("kind", [*WITH_BASIS, "norm-histogram"])
def test_columns_that_rounding_made_a_little_long_are_taken(kind):
    basis = random_basis(3, 2) * (1 + 1e-9)
    assert rebuild(described(kind=kind, columns=2), {"basis": basis}).size


@pytest.mark.parametrize("kind", [*WITH_BASIS, "document-sketch", "norm-histogram"])
@pytest.mark.parametrize("columns", [0, 4])
def test_no_columns_and_more_than_features_are_refused(kind, columns):
    basis = {} if kind == "document-sketch" else {"basis": np.zeros((3, columns))}
    if kind == "norm-histogram" and columns == 0:  # that of the rows themselves
        assert rebuild(described(kind=kind), {}).basis is None
    else:
        refused(described(kind=kind, columns=columns), **basis)


@pytest.mark.parametrize("kind", ["third-moment", "document-triples"])
def test_tensors_too_large_to_hold_are_refused(kind):
    basis = np.eye(400)[:, :257]
    refused(described(kind=kind, features=400, columns=257), basis=basis)
    assert rebuild(described(kind=kind, features=400, columns=4), {"basis": basis[:, :4]}).size
    assert described(kind="sketch", features=400, columns=257)


@pytest.mark.parametrize("kind", ["second-moment", "document-pairs", *WITH_BASIS])
@pytest.mark.parametrize("extra_bits", [1, 2])
def test_products_of_finer_entries_are_refused(kind, extra_bits):
    basis = {"basis": np.eye(3)[:, :1]} if kind in WITH_BASIS else {}
    refused(described(kind=kind, extra_bits=extra_bits, columns=len(basis)), **basis)


@pytest.mark.parametrize(
    ("precision", "extra_bits"), [("single", -9), ("single", -17), ("double", -17)]
)
@pytest.mark.parametrize("kind", ["row-sum", "second-moment", "document-pairs"])
def test_entries_without_bits_are_refused(kind, precision, extra_bits):
    if precision == "double":  # one bit is left
        assert rebuild(described(kind=kind, extra_bits=extra_bits), {}).size
    else:
        refused(described(kind=kind, precision=precision, extra_bits=extra_bits))


@pytest.mark.parametrize("value", [1e308, -1e308, math.nan, math.inf])
@pytest.mark.parametrize("kind", ["norm-histogram", "row-sum", "second-moment"])
def test_a_center_outside_the_arithmetic_is_refused(kind, value):
    refused(described(kind=kind, centered=True), center=np.array([0.0, value, 0.0]))


@pytest.mark.parametrize("value", [5e-324, 5.6e-309, 1e-151, -1.0, 1e151, math.nan, math.inf])
def test_a_scale_that_nothing_can_be_divided_by_is_refused(value):
    for scale in (np.array([0.0, value, 1.0]), np.array([1.0, 1.0, value])):
        refused(described(scaled=True), scale=scale)
    assert rebuild(described(scaled=True), {"scale": np.array([0.0, SMALLEST_ASKED, 1.0])}).size


@pytest.mark.parametrize("fields", [{"bound": 5e-324}, {"bound": 1e151}, {"limit": 1e31}], ids=str)
def test_a_bound_or_a_limit_out_of_all_range_is_refused(fields):
    refused(described(**fields))


def test_a_center_outside_single_precision_is_refused():
    center = np.array([0.0, 3e38, 0.0])
    refused(described(precision="single", centered=True), center=center)
    assert rebuild(described(centered=True), {"center": center}).size


@pytest.mark.parametrize("kind", ["norm-histogram", "second-moment", "document-pairs"])
@pytest.mark.parametrize("of", ["second-moment", "norm-histogram", "row-sum", "document-pairs"])
def test_only_norms_of_sums_over_documents_are_taken(kind, of):
    description = described(kind=kind, of=of)
    assert description.shapes() == {}
    if (kind, of) == ("norm-histogram", "document-pairs"):
        assert rebuild(description, {}).of.features == 3
    else:
        refused(description)


def test_norms_are_refused_with_what_they_are_of():
    triples = described(kind="norm-histogram", of="document-triples", columns=2)
    assert triples.shapes() == {"basis": (3, 2)}
    assert rebuild(triples, {"basis": np.eye(3)[:, :2]}).of.basis.shape == (3, 2)
    refused(triples, basis=np.ones((3, 2)))
    sketch = described(kind="norm-histogram", of="document-sketch", columns=2)
    assert sketch.shapes() == {}
    assert rebuild(sketch, {}).of.columns == 2
    refused(described(kind="norm-histogram", of="document-sketch"))
    refused(described(kind="norm-histogram", of="document-sketch", columns=4))
    refused(described(kind="norm-histogram", of="document-pairs", extra_bits=1))
    refused(described(kind="norm-histogram", of="bingham-vectors"))


def test_directions_are_not_a_sum():
    refused(described(kind="bingham-vectors"))


@given(SEEDS, st.integers(1, 5), st.booleans())
@settings(max_examples=times(100))
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


def test_sums_of_rows_that_are_prepared_alike_share_what_a_pass_prepares():
    """Each was described by itself, so that their arrays are equal and not the same."""
    rows, basis = np.random.default_rng(0).standard_normal((50, 4)), random_basis(4, 4)
    rule = RowRule(center=np.ones(4), basis=basis, clip=2.0**-20)
    made = [SecondMoment(rule, features=4), RowSum(rule, features=4, count_weight=0.0)]
    apart, together = ([sent(each, 4) for each in made] for _ in range(2))
    share_rules(together)
    block = Block(rows)
    for one, other in zip(apart, together, strict=True):
        one.update(Block(rows))
        other.update(block)
        assert np.array_equal(one.integers(), other.integers())
    assert apart[0].rule is not apart[1].rule
    assert len(block.prepared) == 2  # the rows, and what is seen of them
    bare = SecondMoment(RowRule(), features=4)
    share_rules([*together, bare])
    assert bare.rule is not together[0].rule
