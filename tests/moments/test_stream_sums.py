"""Prefix sums of a stream: exact but for a bounded rounding, under noise of the stated law.

Statistical tests state their chance of false alarm in ``statistics_tools``.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sums_tools import record_of

from eigenveil.errors import PrivacyError
from eigenveil.moments import stream_sums
from eigenveil.moments.accumulators import SecondMoment, Sketch
from eigenveil.moments.histograms import NormHistogram
from eigenveil.moments.rows import Block, RowRule
from eigenveil.moments.stream_sums import PrefixSum, _Mechanism, _product
from eigenveil.noise.source import SecureSource
from eigenveil.privacy.releases import Sharing
from eigenveil.privacy.streams import PARTS, StreamFactor, best_factor
from statistics_tools import FALSE_ALARM, REJECTED, isotropic, mutant, svec

D = 3
RULE = RowRule(bound=1.0)


def stream_of(accumulator, blocks, *, mu=1.0):
    made = record_of(accumulator, loss=mu, sharing=Sharing(stream=best_factor(blocks)))
    return PrefixSum(accumulator, made, SecureSource()), made


def summed(accumulator, *blocks):
    """The sum of blocks of rows, and the number of rows."""
    total = accumulator.empty()
    for block in blocks:
        total.update(Block(block))
    return total, sum(len(block) for block in blocks)


@given(
    values=st.lists(st.integers(-(2**62) + 1, 2**62 - 1), min_size=1, max_size=5),
    part=st.integers(1, PARTS - 1),
)
def test_products_are_exact(values, part):
    got = _product(np.array(values, dtype=np.int64), part)
    assert [int(value) for value in got] == [(value * part) // PARTS for value in values]


@given(
    blocks=st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=30),
    weights=st.lists(st.integers(1, PARTS - 1), min_size=2, max_size=2),
    losses=st.lists(st.integers(1, PARTS - 1), min_size=2, max_size=2),
)
def test_rounding_stays_within_its_bound(blocks, weights, losses):
    """Against exact fractions: what a step is off by lies in an interval of the stated length."""
    factor = StreamFactor(blocks=len(blocks), weights=tuple(weights), losses=tuple(losses))
    mechanism = _Mechanism(factor, 1)
    kept = [Fraction(0), Fraction(0)]
    off = [Fraction(0)]
    for block in blocks:
        got = int(mechanism.mixed(np.array([block]))[0])
        exact = block + sum(Fraction(w, PARTS) * k for w, k in zip(weights, kept, strict=True))
        kept = [k * (1 - Fraction(x, PARTS)) + block for k, x in zip(kept, losses, strict=True)]
        off.append(got - exact)
    assert max(off) - min(off) <= factor.rounding() + 1e-6


@pytest.mark.parametrize("blocks", [1, 5, 60])
def test_without_noise_a_prefix_is_the_sum_so_far(blocks, monkeypatch):
    monkeypatch.setattr(
        stream_sums, "noise_integers", lambda kind, record, source: np.zeros(kind.size, np.int64)
    )
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(blocks, 7, D))
    stream, made = stream_of(SecondMoment(RULE, features=D), blocks)
    so_far = SecondMoment(RULE, features=D)
    for block in rows:
        so_far.update(Block(block))
        exact = np.ldexp(so_far.integers().astype(float), so_far.grid)
        found = stream.release(summed(SecondMoment(RULE, features=D), block)[0])
        np.testing.assert_allclose(found.values, exact, atol=1e-6)
        assert found.record.noise.scale >= made.noise.scale * 0.999


def noise_of_prefixes(blocks, n, make=PrefixSum):
    """Noise of every prefix in isometric coordinates, shape (n, blocks, size), over its scale."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(blocks, 4, D))
    found = np.empty((n, blocks, D * (D + 1) // 2))
    for turn in range(n):
        moment = SecondMoment(RULE, features=D)
        stream = make(moment, stream_of(moment, blocks)[1], SecureSource())
        so_far = SecondMoment(RULE, features=D)
        for place, block in enumerate(rows):
            so_far.update(Block(block))
            release = stream.release(summed(moment, block)[0])
            exact = np.ldexp(so_far.integers().astype(float), so_far.grid)
            found[turn, place] = svec(release.values - exact) / release.record.noise.scale
    return found


def test_prefix_noise_has_the_stated_law():
    """Each prefix by itself is isometric noise of the deviation that its record says."""
    found = noise_of_prefixes(6, 200)
    for place in range(6):
        assert isotropic(found[:, place], 1.0) > FALSE_ALARM / 6


def test_halved_noise_is_rejected(monkeypatch):
    drawn = stream_sums.noise_integers
    monkeypatch.setattr(stream_sums, "noise_integers", lambda *given: drawn(*given) // 2)
    assert isotropic(noise_of_prefixes(3, 200)[:, 2], 1.0) < REJECTED


def test_a_deaf_inverse_is_rejected(monkeypatch):
    """Prefixes that leave the factor in: their noise is not what is said (nor their sum)."""
    wrong = mutant(_Mechanism.prefix, "kept * (weight / PARTS)", "0.0 * kept")
    monkeypatch.setattr(_Mechanism, "prefix", wrong)
    assert isotropic(noise_of_prefixes(6, 200)[:, 5], 1.0) < REJECTED


@pytest.mark.parametrize(
    "accumulator",
    [NormHistogram(None, precision="double"), Sketch(RULE, np.eye(D)[:, :2], clip=0.8)],
    ids=["histogram", "sketch"],
)
def test_other_sums_are_followed_too(accumulator):
    rows = np.random.default_rng(1).normal(size=(40, 5, D))
    stream, made = stream_of(accumulator, 40, mu=50.0)
    whole = accumulator.empty()
    for block in rows:
        whole.update(Block(block))
        found = stream.release(summed(accumulator, block)[0])
    exact = np.ldexp(whole.integers().astype(float), whole.grid)
    assert found.values.shape == exact.shape
    # false alarm 1e-9 a coordinate: six deviations
    assert np.abs(found.values - exact).max() < 6.2 * found.record.noise.scale
    assert made.mu() == pytest.approx(50.0, rel=1e-9)


def test_the_horizon_is_the_end():
    stream, _ = stream_of(SecondMoment(RULE, features=D), 2)
    for _ in range(2):
        stream.release(summed(SecondMoment(RULE, features=D), np.ones((1, D)))[0])
    with pytest.raises(PrivacyError, match="horizon of 2 blocks is over") as caught:
        stream.check_room()
    assert caught.value.code == "horizon-over"
    with pytest.raises(PrivacyError):
        stream.release(summed(SecondMoment(RULE, features=D))[0])
    assert stream.blocks == 2


def test_any_number_of_rows_goes_through_the_mechanism_exactly():
    """Blocks of 2**30 rows leave 64 bits; what is released is the same function of them."""
    factor = best_factor(8)
    large, small = (_Mechanism(factor, 2) for _ in range(2))
    rng = np.random.default_rng(5)
    for _ in range(4):
        block = rng.integers(-(2**20), 2**20, 2)
        found = large.mixed(block * 2**30, 30)
        assert found.dtype == object
        mine = small.mixed(block, 30)
        assert mine.dtype == np.int64
        assert max(abs(int(v)) for v in found) > 2**64
        # the small one's floors are 2**30 times as coarse
        worst = (int(factor.rounding()) + 2) << 30
        assert max(abs(int(a) - (int(b) << 30)) for a, b in zip(found, mine, strict=True)) <= worst


def test_wide_arithmetic_is_the_same_function():
    """Forced from the beginning, Python's integers give what 64 bits give."""
    factor = best_factor(8)
    narrow, wide = (_Mechanism(factor, 3) for _ in range(2))
    wide._most = 2.0**62
    rng = np.random.default_rng(6)
    for _ in range(8):
        block = rng.integers(-(2**45), 2**45, 3)
        one, other = narrow.mixed(block.copy(), 3), wide.mixed(block.copy(), 3)
        assert (one.dtype, other.dtype) == (np.int64, object)
        assert np.array_equal(one.astype(object), other)
