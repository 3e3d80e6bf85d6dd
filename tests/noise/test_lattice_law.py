"""The lattice sampler: its law computed exactly, and the draws it makes."""

import math
from functools import lru_cache

import mpmath
import numpy as np
import pytest
from statistics_tools import FALSE_ALARM, REJECTED, chi_square, mutant

from eigenveil.noise import lattice
from eigenveil.noise.lattice import lattice_noise
from eigenveil.noise.source import SecureSource, SeededSource

# docs/proofs/release-grid.md; eigenveil.privacy.releases.gaussian_sampling_error
LOG_RATIO, DISTANCE = 2.0**-45, 2.0**-62


class Scripted:
    """A source whose words are given."""

    secure = False

    def __init__(self, words):
        self._words = words

    def words(self, count):
        assert count == self._words.size
        return self._words


@lru_cache
def implied_law(scale, power):
    """Chances (integers, up to a common factor) of all values, read off the sampler itself.

    The chance of a cell follows from the alias table; the chance that a point is kept is found by
    bisection: which acceptance words does ``_candidates`` keep it for?
    """
    bits = math.floor(math.log2(scale / 32))
    keep, other = lattice._alias_table(math.ldexp(1.0, bits) / scale, power)
    chance = [0] * keep.size
    for slot, (mine, target) in enumerate(zip(keep.tolist(), other.tolist(), strict=True)):
        chance[slot] += mine
        chance[target] += (1 << 63) - mine
    cells = np.flatnonzero(keep > 0)
    cell, offset, negative = (
        part.ravel()
        for part in np.meshgrid(cells, np.arange(1 << bits), [0, 1], indexing="ij")
    )
    magnitude = (cell << bits) + offset
    value = np.where(negative == 1, -1 - magnitude, magnitude)
    place = (negative << 63) | (cell << 51) | offset
    low = np.zeros(value.size, dtype=np.int64)  # accepted
    high = np.full(value.size, 1 << 53)  # refused; the count of accepted words in the end
    zero = np.zeros(value.size, dtype=np.uint64)
    while np.any(high - low > 1):
        middle = (low + high) >> 1
        words = np.concatenate([zero, place.view(np.uint64), middle.astype(np.uint64) << 11])
        drawn = lattice._candidates(value.size, scale, power, Scripted(words))
        kept = np.isin(value, drawn)
        low, high = np.where(kept, middle, low), np.where(kept, high, middle)
    assert np.unique(value).size == value.size
    order = np.argsort(value)
    weights = [chance[c] * n for c, n in zip(cell.tolist(), high.tolist(), strict=True)]
    return value[order], [weights[i] for i in order]


def hockey_sticks(drawn, ideal):
    """sup over events of ``P(S) - e^r Q(S)`` for the drawn and the ideal law, both ways.

    Unnormalised weights; ``ideal`` ends with the mass beyond the values, which is never drawn.
    """
    factor = mpmath.exp(LOG_RATIO)
    p_total, q_total = mpmath.mpf(sum(drawn)), mpmath.fsum(ideal)
    p = [w / p_total for w in drawn] + [mpmath.mpf(0)]
    q = [w / q_total for w in ideal]
    return (
        mpmath.fsum(max(0, a - factor * b) for a, b in zip(p, q, strict=True)),
        mpmath.fsum(max(0, b - factor * a) for a, b in zip(p, q, strict=True)),
    )


@pytest.fixture(autouse=True)
def _high_precision():
    with mpmath.workprec(200):
        yield


def ideal_law(values, scale, power):
    """Weights of the values, then of everything beyond them (by geometric bounds, from above)."""
    scale = mpmath.mpf(scale)
    half = [mpmath.exp(-((z / scale) ** power) / power) for z in range(int(values[-1]) + 2)]
    weights = [half[abs(z)] for z in values.tolist()]
    ratio = half[-1] / half[-2]
    return [*weights, 2 * half[-1] / (1 - ratio)]


@pytest.mark.parametrize(("scale", "power"), [(1024.0, 2), (1500.3, 2), (1024.0, 1)])
def test_drawn_law_is_the_ideal_one_up_to_the_stated_bound(scale, power):
    values, drawn = implied_law(scale, power)
    ideal = ideal_law(values, scale, power)
    assert max(hockey_sticks(drawn, ideal)) < DISTANCE
    near = np.flatnonzero(np.abs(values) < 5 * scale)
    base = int(np.flatnonzero(values == 0)[0])
    for i in near[:: near.size // 2000]:
        ratio = mpmath.mpf(drawn[i]) / drawn[base] * ideal[base] / ideal[i]
        assert abs(mpmath.log(ratio)) < LOG_RATIO
    # the law of a scale one part in a million off is told apart
    assert min(hockey_sticks(drawn, ideal_law(values, scale * (1 + 1e-6), power))) > 1e6 * DISTANCE


@pytest.mark.parametrize("coordinate", [1.0, math.sqrt(0.5)], ids=["diagonal", "off-diagonal"])
def test_gaussian_on_the_grid_is_the_rounded_gaussian_up_to_the_stated_bound(coordinate):
    """``7 / steps**2`` covers the off-diagonal entries too, whose own scale is sqrt(2) finer."""
    steps = 2048.0  # in a scale of the record
    s = mpmath.mpf(steps * coordinate)
    bound = mpmath.mpf(7) / mpmath.mpf(steps) ** 2
    normaliser = s * mpmath.sqrt(2 * mpmath.pi)  # of the discrete law, to 1e-8000000 (theta function)
    worst, outside = mpmath.mpf(0), mpmath.mpf(0)
    for scales in np.arange(0.0, 12.0, 0.05):
        z = int(scales * s)
        discrete = mpmath.exp(-((z / s) ** 2) / 2) / normaliser
        rounded = (
            mpmath.erfc((z - 0.5) / s / mpmath.sqrt(2)) - mpmath.erfc((z + 0.5) / s / mpmath.sqrt(2))
        ) / 2
        log_ratio = abs(mpmath.log(discrete / rounded))
        if log_ratio <= bound:
            worst = max(worst, log_ratio)
        else:
            outside = mpmath.erfc((scales - 0.05) / mpmath.sqrt(2))
            break
    assert outside < DISTANCE / 2
    assert worst > bound / 10, "the bound is not far from what happens"


@pytest.mark.parametrize("power", [1, 2])
def test_values_beyond_the_table_have_less_than_the_stated_mass(power):
    tail = lattice._TAIL[power]
    mass = mpmath.exp(-tail) if power == 1 else mpmath.erfc(tail / mpmath.sqrt(2))
    assert mass < DISTANCE / 4


def empirical(scale, power, draw=lattice_noise):
    """p-value of four million draws against the exact law, in bins of 8 values and zero alone."""
    z = draw(4_000_000, scale=scale, power=power, source=SecureSource())
    reach = 3 * 1024
    grid = np.arange(-40 * 1024, 40 * 1024 + 1)
    pmf = np.exp(-(np.abs(grid / 1024.0) ** power) / power)
    edges = np.concatenate([[-(10**9)], np.arange(-reach, 0, 8), [0, 1], np.arange(8, reach, 8)])
    bins = np.append(edges, 10**9) - 0.5
    return chi_square(np.histogram(z, bins)[0], np.histogram(grid, bins, weights=pmf)[0])


@pytest.mark.parametrize("power", [1, 2])
def test_draws_follow_the_exact_law(power):
    assert empirical(1024.0, power) > FALSE_ALARM


@pytest.mark.parametrize("scale", [1024 * 0.7, 1024 * 1.3, 1024 * 1.01])
def test_another_scale_is_rejected(scale):
    def draw(size, *, scale, power, source):  # scales below 1024 are refused: draw finer, then round
        return np.rint(lattice_noise(size, scale=64 * scale, power=power, source=source) / 64)

    assert empirical(scale, 2, draw) < REJECTED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ offset) ^ negative", "+ offset) * (2 * negative + 1)"),
        ("t *= t * 0.5 + cell * width", "t *= t * 0.5"),
        ("t *= t * 0.5 + cell * width", "t *= 0.0"),
        ("keep[slot], slot, other[slot]", "keep[slot], slot, slot"),
        ("words[2 * count :]", "words[:count]"),
    ],
    ids=["zero twice", "edge forgotten", "never rejects", "no alias", "one word twice"],
)
def test_mutants_of_the_sampler_are_rejected(old, new, monkeypatch):
    monkeypatch.setattr(lattice, "_candidates", mutant(lattice._candidates, old, new))
    assert empirical(1024.0, 2) < REJECTED


def independence(z):
    """p-value of (sign, size) of a value and of its neighbour against the product law."""
    size = np.searchsorted(np.array([0.32, 0.67, 1.15]) * 2.0**40, np.abs(z))
    kind = 4 * (z < 0) + size
    pairs = np.bincount(8 * kind[0::2] + kind[1::2], minlength=64)
    cuts = [math.erf(c / math.sqrt(2)) for c in (0, 0.32, 0.67, 1.15)] + [1.0]
    one = np.tile(np.diff(cuts) / 2, 2)
    return chi_square(pairs, np.outer(one, one).ravel())


def test_sign_size_and_neighbouring_draws_are_independent():
    z = lattice_noise(2_000_000, scale=2.0**40, power=2, source=SecureSource())
    assert independence(z) > FALSE_ALARM
    same_sign = np.where(np.arange(z.size) % 200 == 1, np.abs(z) * np.sign(np.roll(z, 1)), z)
    assert independence(same_sign) < REJECTED
    larger_if_positive = np.where((z > 0) & (np.arange(z.size) % 50 == 0), 2 * z, z)
    assert independence(larger_if_positive) < REJECTED


@pytest.mark.parametrize("size", [0, 1, 1 << 14, (1 << 14) + 1, 100_000])
def test_a_seed_repeats_the_draws_and_any_size_is_served(size):
    def draw(seed):
        return lattice_noise(size, scale=5000.0, power=2, source=SeededSource(seed))

    assert draw(1).shape == (size,)
    assert np.array_equal(draw(1), draw(1))
    assert size < 2 or not np.array_equal(draw(1), draw(2))


@pytest.mark.parametrize("scale", [1023.9, 2.0**56 * 1.01, math.nan, -1.0])
def test_scales_outside_the_proof_are_refused(scale):
    with pytest.raises(ValueError, match="lattice units"):
        lattice_noise(1, scale=scale, power=2, source=SecureSource())


def test_the_largest_scale_stays_in_64_bits():
    for power in (1, 2):
        z = lattice_noise(200_000, scale=2.0**56, power=power, source=SecureSource())
        assert np.abs(z.astype(float)).max() < lattice._TAIL[power] * 2.0**56 < 2.0**62


def test_a_source_that_rejects_everything_is_reported():
    class Broken:
        secure = False

        def words(self, count):
            return np.full(count, 2**64 - 1, dtype=np.uint64)

    with pytest.raises(RuntimeError, match="broken"):
        lattice_noise(10, scale=1024.0, power=2, source=Broken())
