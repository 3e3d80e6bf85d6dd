"""Sums of expectation maximisation: their definition, exactness, and what a row can add."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sums_tools import SEEDS, by_unit, mixture_of, nasty_rows

from eigenveil.moments import em
from eigenveil.moments.em import EMSums, Mixture, coordinates_of, exponential
from eigenveil.moments.rows import Block, RowRule
from eigenveil.privacy import statistics

D = 4
SQUARES = ("none", "trace", "diag", "full", "tied")
every_kind = pytest.mark.parametrize("squares", SQUARES)


def sums(squares, *, weighted=False, bound=1.0, mixture=None):
    mixture = mixture_of(D, squares) if mixture is None else mixture
    return EMSums(RowRule(bound=bound), mixture, squares=squares, weighted=weighted)


def values(total):
    return np.ldexp(total.integers().astype(float), total.grid)


def formula(rows, mixture, squares):
    """In floating point: responsibilities, places, sums."""
    apart = rows[:, None] - mixture.means
    factors = mixture.factors
    seen = np.einsum("nkd,kdl->nkl", apart, factors) if factors.ndim == 3 else apart * factors
    scores = mixture.logs - 0.5 * np.sum(seen**2, axis=2)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    lengths = np.maximum(np.linalg.norm(apart, axis=2), mixture.reaches)
    places = apart / lengths[:, :, None]
    products = em.SQUARE_WEIGHT * np.einsum("nk,nki,nkj->kij", shares, places, places)
    lower, diagonal = np.tri(D, dtype=bool), np.arange(D)
    released = products * np.where(np.eye(D) > 0, 1.0, 1.4)
    found = {
        "none": np.empty(0),
        "trace": np.trace(products, axis1=1, axis2=2),
        "diag": products[:, diagonal, diagonal].ravel(),
        "full": np.concatenate([each[lower] for each in released]),
        "tied": released.sum(axis=0)[lower],
    }[squares]
    means = np.einsum("nk,nkd->kd", shares, places).ravel()
    return np.concatenate([means, em.COUNT_WEIGHT * shares.sum(axis=0), found])


@every_kind
def test_sums_are_those_of_the_formula(squares):
    """Rounding leaves less than 2**-9 a row."""
    rows = np.random.default_rng(0).standard_normal((50, D)) * 0.3
    total = sums(squares, bound=3.0, mixture=mixture_of(D, squares))
    total.update(Block(3.0 * rows))
    wanted = formula(rows, mixture_of(D, squares), squares)
    assert total.shape == wanted.shape == (coordinates_of(squares, 3, D),)
    assert np.abs(values(total) - wanted).max() < 50 * 2.0**-9


def random_mixture(seed, count, squares="full"):
    """Of any scales, also such that responsibilities are all but even, or that no row is near."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((count, D, D)) * 2.0 ** rng.integers(-8, 9, (count, 1, 1))
    reaches = np.full(count, 2.0 ** rng.integers(-6, 1))
    return Mixture(rng.standard_normal((count, D)), rng.normal(0, 9, count), factors, reaches)


@given(seed=SEEDS, count=st.integers(1, 30), most=st.sampled_from([1, 7]))
def test_responsibilities_never_exceed_a_rows_share(seed, count, most):
    rows = nasty_rows(12, D, seed)
    for weighted in (False, True):
        total = sums("full", weighted=weighted, mixture=random_mixture(seed, count))
        whole = 1 << total._share_bits
        blocks = by_unit(rows, [1] * 5 + [2] * 7, most) if weighted else [Block(rows)]
        for block in blocks:
            prepared, _ = total.rule(block, weighting="none")
            shares = block.weights.shares(whole) if weighted else None
            held = total._responsibilities(prepared, shares)
            assert (held >= 0).all()
            assert (held == np.rint(held)).all()
            assert (held.sum(axis=0) <= (whole if shares is None else shares)).all()


def length(total, row):
    one = total.empty()
    one.update(Block(row[None]))
    moved = one.integers().astype(object)
    return float(np.sqrt(float(sum(int(v) ** 2 for v in moved)))) * 2.0**one.grid


def longest(squares, mixture, rows):
    total = sums(squares, mixture=mixture)
    claimed = statistics.em_sums("add-remove", **total.parameters)
    return max(length(total, row) for row in rows) / claimed


@every_kind
@given(seed=SEEDS, count=st.integers(1, 30))
def test_no_row_adds_more_than_claimed(squares, seed, count):
    assert longest(squares, random_mixture(seed, count), nasty_rows(10, D, seed)) <= 1 + 1e-12


# many equal components, none of which has a whole number of a share's units
EVEN = Mixture(np.zeros((300, D)), np.zeros(300), np.ones((300, 1)), np.full(300, 0.5))


def test_unfloored_responsibilities_are_found_out(monkeypatch):
    """They are no whole numbers, so sums of them would be rounded, by neighbours too."""
    total = sums("none", mixture=EVEN)
    prepared, _ = total.rule(Block(np.eye(D)[:1]), weighting="none")
    held = total._responsibilities(prepared, None)
    assert held.sum() == 1 << total._share_bits
    assert np.array_equal(held, np.rint(held))
    monkeypatch.setattr(em.np, "floor", lambda numbers: numbers)
    held = total._responsibilities(prepared, None)
    assert not np.array_equal(held, np.rint(held))


def test_the_exponential_is_that_of_the_library():
    given_values = np.concatenate([np.linspace(-40, 0, 10_001), [-40.5, -1e9, -0.0]])
    found, wanted = exponential(given_values), np.exp(given_values)
    assert np.abs(found / np.maximum(wanted, 1e-300) - 1.0)[:10_001].max() < 2.0**-38
    assert found[10_001] == found[10_002] == 0.0
    assert found[10_003] == 1.0


def test_a_zero_row_adds_nothing():
    total = sums("full")
    total.update(Block(np.zeros((3, D))))
    assert not np.any(total.integers())


def test_a_moved_mean_is_within_reach_of_every_row():
    """Rows far off are shortened to the reach, not left out."""
    mixture = Mixture(np.zeros((1, D)), np.zeros(1), np.ones((1, 1)), np.full(1, 0.25))
    total = sums("none", mixture=mixture)
    total.update(Block(np.array([[9.0, 0, 0, 0], [0.125, 0, 0, 0]])))
    assert values(total)[0] == pytest.approx(1.5, abs=1e-3)
