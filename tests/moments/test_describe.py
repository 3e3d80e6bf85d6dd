"""A sum described in plain values is the same sum elsewhere, and no other is ever built."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sums_tools import (
    DOCUMENT_SUMS,
    KINDS,
    PRECISIONS,
    SEEDS,
    make,
    nasty_rows,
    random_basis,
)

from eigenveil.errors import DataError, ProtocolError
from eigenveil.moments.accumulators import (
    RowSum,
    SecondMoment,
    Sketch,
    share_rules,
)
from eigenveil.moments.describe import Description, describe, rebuild
from eigenveil.moments.documents.pairs import DocumentPairs
from eigenveil.moments.documents.sums import DocumentNorms
from eigenveil.moments.documents.triples import DocumentTriples
from eigenveil.moments.preparation import LARGEST_ASKED, SMALLEST_ASKED
from eigenveil.moments.rows import Block, RowRule
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
def sums(draw, kind):
    """An empty sum of a kind, and its number of features."""
    features, precision = draw(st.integers(1, 6)), draw(st.sampled_from(PRECISIONS))
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


@pytest.mark.parametrize("kind", KINDS)
@given(st.data(), SEEDS)
@settings(max_examples=times(20))
def test_a_described_sum_is_rebuilt(kind, data, seed):
    accumulator, features = data.draw(sums(kind))
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


@given(st.integers(1, 5), SEEDS)
def test_a_site_adds_to_its_own_block_rows_less_its_own_centre(count, seed):
    """What a row moves is what it moves of a sum of its own site alone."""
    rng, rows = np.random.default_rng(seed), nasty_rows(20, 3, seed, "single")
    centers = rng.standard_normal((count, 3))
    whole = RowSum(RowRule(centers, bound=2.0), features=3, count_weight=0.25, blocks=count)
    description, arrays = describe(whole, 3)
    for place, center in enumerate(centers):
        found = rebuild(description, arrays, place=place)
        alone = RowSum(RowRule(center, bound=2.0), features=3, count_weight=0.25)
        for each in (found, alone):
            each.update(Block(rows))
        assert (found.shape, found.parameters) == (whole.shape, alone.parameters)
        blocks = found.integers().reshape(count, 4)
        assert np.array_equal(blocks[place], alone.integers())
        assert np.delete(blocks, place, axis=0).size == np.sum(np.delete(blocks, place, 0) == 0)
        if place:
            with pytest.raises(DataError):
                found.merge(rebuild(description, arrays, place=0))
    for place in (None, count):
        with pytest.raises(ProtocolError):
            rebuild(description, arrays, place=place)


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


IMPOSSIBLE = {
    "kind": ["anything"],
    "features": [0, -1],
    "precision": ["half"],
    "bound": [-1.0, math.nan, math.inf],
    "extra_bits": [3, -18],
    "count_weight": [-0.5, 1.5, 1e308, math.nan],
    "clip": [0.0, 5e-324, 1.5, math.nan],
    "columns": [-1],
    "variance": [-0.1, 1.1, math.nan, math.inf],
    "sensitivity": [1.0],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in IMPOSSIBLE.items() for v in vs])
def test_impossible_numbers_are_refused(name, value):
    with pytest.raises(ValidationError):
        described(**{name: value})


def refused(description, **arrays):
    with pytest.raises(ProtocolError) as caught:
        rebuild(description, arrays)
    assert caught.value.code == "bad-query"


WITH_BASIS = ["sketch", "component-energy", "third-moment", "document-triples"]
SEEN = [*WITH_BASIS, "norm-histogram"]
EYE = np.eye(3)
TOO_LONG = [
    np.full((3, 2), 1.0),
    EYE[:, :2] * 1.01,
    np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.1]]),
    np.full((3, 2), 1e200),  # its squares leave the arithmetic
    np.full((3, 2), np.nan),
]
FAR = [1e308, -1e308, math.nan, math.inf]
NO_SCALES = [5e-324, 5.6e-309, 1e-151, -1.0, 1e151, math.nan, math.inf]
WIDE = np.eye(400)[:, :257]
MULTIPLIED = ["second-moment", "document-pairs", *WITH_BASIS]
REFUSED = [
    *[({"kind": k, "columns": 2}, {"basis": b}) for k in SEEN for b in TOO_LONG],
    *[({"kind": k, "columns": c}, {"basis": np.zeros((3, c))}) for k in WITH_BASIS for c in (0, 4)],
    ({"kind": "norm-histogram", "columns": 4}, {"basis": np.zeros((3, 4))}),
    *[({"kind": "document-sketch", "columns": c}, {}) for c in (0, 4)],
    *[
        ({"kind": k, "features": 400, "columns": 257}, {"basis": WIDE})
        for k in ("third-moment", "document-triples")  # too large to hold
    ],
    *[  # cells that are no histogram, and of what is no histogram
        ({"kind": "score-histogram", "columns": c, "cells": cells}, {"basis": np.eye(3)[:, :c]})
        for c, cells in ((2, 0), (2, 513), (3, 4), (0, 4))
    ],
    ({"kind": "score-histogram", "columns": 2, "cells": 4}, {"basis": TOO_LONG[0]}),
    ({"kind": "row-sum", "cells": 4}, {}),
    *[  # products of finer entries
        ({"kind": k, "extra_bits": b, "columns": int(k in WITH_BASIS)}, {"basis": EYE[:, :1]})
        for k in MULTIPLIED
        for b in (1, 2)
    ],
    *[  # entries without bits
        ({"kind": k, "precision": "single", "extra_bits": b}, {})
        for k in ("row-sum", "second-moment", "document-pairs")
        for b in (-9, -17)
    ],
    *[
        ({"kind": k, "centered": True}, {"center": np.array([0.0, far, 0.0])})
        for k in ("norm-histogram", "row-sum", "second-moment")
        for far in FAR
    ],
    ({"precision": "single", "centered": True}, {"center": np.array([0.0, 3e38, 0.0])}),
    *[({"scaled": True}, {"scale": np.array([0.0, value, 1.0])}) for value in NO_SCALES],
    *[({"scaled": True}, {"scale": np.array([1.0, 1.0, value])}) for value in NO_SCALES],
    *[(fields, {}) for fields in ({"bound": 5e-324}, {"bound": 1e151}, {"limit": 1e31})],
    ({"kind": "bingham-vectors"}, {}),  # directions are not a sum
    *[  # only norms of sums over documents
        ({"kind": kind, "of": of}, {})
        for kind in ("norm-histogram", "second-moment", "document-pairs")
        for of in ("second-moment", "norm-histogram", "row-sum", "document-pairs")
        if (kind, of) != ("norm-histogram", "document-pairs")
    ],
]


@pytest.mark.parametrize(("fields", "arrays"), REFUSED)
def test_what_cannot_be_added_up_exactly_is_refused(fields, arrays):
    refused(described(**fields), **arrays)


@pytest.mark.parametrize(
    ("fields", "arrays"),
    [
        # rounding made columns a little long
        *[({"kind": k, "columns": 2}, {"basis": random_basis(3, 2) * (1 + 1e-9)}) for k in SEEN],
        ({"kind": "norm-histogram"}, {}),  # of the rows themselves
        *[
            ({"kind": k, "features": 400, "columns": 4}, {"basis": WIDE[:, :4]})
            for k in ("third-moment", "document-triples")
        ],
        # one bit is left
        *[({"kind": k, "extra_bits": -17}, {}) for k in ("row-sum", "second-moment")],
        ({"kind": "document-pairs", "extra_bits": -17}, {}),
        ({"scaled": True}, {"scale": np.array([0.0, SMALLEST_ASKED, 1.0])}),
        ({"centered": True}, {"center": np.array([0.0, 3e38, 0.0])}),
        ({"kind": "norm-histogram", "of": "document-pairs"}, {}),
    ],
)
def test_what_is_just_within_is_taken(fields, arrays):
    assert rebuild(described(**fields), arrays).size
    assert described(kind="sketch", features=400, columns=257)


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
