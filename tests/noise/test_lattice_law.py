"""The lattice sampler: its law computed exactly, and the draws it makes."""

import math

import mpmath
import numpy as np
import pytest

from eigenveil.noise import lattice
from eigenveil.noise.lattice import lattice_noise
from eigenveil.noise.source import SecureSource, SeededSource
from eigenveil.privacy.mechanisms.base import lattice_error
from statistics_tools import FALSE_ALARM, REJECTED, chi_square, mutant

# of one coordinate, without what the grid adds: docs/proofs/release-grid.md
LOG_RATIO, DISTANCE = lattice_error(1, steps_a_scale=2.0**60)


class Scripted:
    """A source whose first words are given; all later ones are zero."""

    secure = False

    def __init__(self, words):
        self._words = words

    def words(self, count):
        given, self._words = self._words, np.zeros(0, dtype=np.uint64)
        return given if given.size else np.zeros(count, dtype=np.uint64)


def table_of(scale, power):
    """The alias table that the sampler uses at this scale."""
    used, make = [], lattice._alias_table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice, "_alias_table", lambda *key: used.append(make(*key)) or used[-1])
        lattice_noise(1, scale=scale, power=power, source=SecureSource())
    return used[0]


def implied_law(scale, power):
    """Chances (integers, up to a common factor) of all values, read off the sampler itself.

    The chance of a cell follows from the alias table; the chance that a point is kept is found by
    bisection: which acceptance words does ``_candidates`` keep it for?
    """
    bits = math.floor(math.log2(scale / lattice._CELLS_A_SCALE[power]))
    table = table_of(scale, power)
    chance = [0] * table.other.size
    for slot, columns in enumerate(zip(*(column.tolist() for column in table), strict=True)):
        high, low, other = columns
        chance[slot] += (high << 63) + low
        chance[other] += (1 << 126) - (high << 63) - low
    cells = np.flatnonzero((table.high > 0) | (table.low > 0) | (table.other == range(len(chance))))
    cell, offset, negative = (
        part.ravel() for part in np.meshgrid(cells, np.arange(1 << bits), [0, 1], indexing="ij")
    )
    value = np.where(negative == 1, -1, 1) * ((cell << bits) + offset) - negative
    place = (negative << 63) | (cell << 51) | offset
    low = np.zeros(value.size, dtype=np.int64)  # accepted
    high = np.full(value.size, 1 << 53)  # refused; the count of accepted words in the end
    zero = np.zeros(value.size, dtype=np.uint64)
    while np.any(high - low > 1):
        middle = (low + high) >> 1
        words = np.concatenate([zero, place.view(np.uint64), middle.astype(np.uint64) << 11])
        drawn = lattice._candidates(value.size, scale, power, Scripted(words))
        kept = np.isin(value, drawn, assume_unique=True, kind="table")
        low, high = np.where(kept, middle, low), np.where(kept, high, middle)
    order = np.argsort(value)
    assert np.all(np.diff(value[order]) == 1), "every value has one place"
    weights = [chance[c] * n for c, n in zip(cell.tolist(), high.tolist(), strict=True)]
    return value[order], [weights[i] for i in order]


def ideal_law(values, scale, power):
    """The ideal chances in units of 2**-400, then those of all values beyond, from above."""
    one = mpmath.mpf(2) ** 400
    if power == 1:
        ratio = int(one * mpmath.exp(-1 / mpmath.mpf(scale)))
        half = [1 << 400]
        for _ in range(int(values[-1]) + 1):
            half.append(half[-1] * ratio >> 400)
    else:
        scale = mpmath.mpf(scale)
        half = [int(one * mpmath.exp(-((z / scale) ** 2) / 2)) for z in range(int(values[-1]) + 2)]
    beyond = 2 * half[-1] * half[-2] // (half[-2] - half[-1])  # geometric
    return [*(half[abs(z)] for z in values.tolist()), beyond]


def hockey_sticks(drawn, ideal):
    """sup over events of ``P(S) - exp(LOG_RATIO) Q(S)``, for the drawn and the ideal law as P."""
    drawn = [*drawn, 0]
    p_total, q_total, one = sum(drawn), sum(ideal), 1 << 200
    factor = int(mpmath.exp(LOG_RATIO) * one)
    unit = mpmath.mpf(p_total) * q_total * one
    p, q = [w * q_total for w in drawn], [w * p_total for w in ideal]
    return [
        sum(max(0, a * one - factor * b) for a, b in zip(first, second, strict=True)) / unit
        for first, second in ((p, q), (q, p))
    ]


@pytest.mark.parametrize(
    ("scale", "power"),
    [(1024.0, 2), pytest.param(1500.3, 2, marks=pytest.mark.thorough), (1091.7, 1)],
)
def test_drawn_law_is_the_ideal_one_up_to_the_stated_bound(scale, power):
    with mpmath.workprec(500):
        values, drawn = implied_law(scale, power)
        ideal = ideal_law(values, scale, power)
        assert max(hockey_sticks(drawn, ideal)) < DISTANCE
        # and value by value, as far as six scales
        center = int(np.flatnonzero(values == 0)[0])
        for i in np.flatnonzero(np.abs(values) < 6 * scale)[::5]:
            ratio = mpmath.mpf(drawn[i]) * ideal[center] / (mpmath.mpf(drawn[center]) * ideal[i])
            assert abs(mpmath.log(ratio)) < LOG_RATIO
        # a law whose scale is one part in a million off is told apart
        wrong = ideal_law(values, scale * (1 + 1e-6), power)
        assert min(hockey_sticks(drawn, wrong)) > 1e-9


@pytest.mark.parametrize(
    ("part", "copies"),
    [(1.0, 2), (math.sqrt(1 / 2), 2), (1.0, 6), (math.sqrt(1 / 3), 6), (math.sqrt(1 / 6), 6)],
    ids=["diagonal", "off-diagonal", "iii", "iij", "ijk"],
)
def test_gaussian_on_the_grid_is_the_rounded_gaussian_up_to_the_stated_bound(part, copies):
    """Also where a coordinate's own scale is sqrt(2) or sqrt(6) smaller than the record's."""
    steps = 1024.0 * copies
    s, root2 = mpmath.mpf(steps * part), mpmath.sqrt(2)
    bound = lattice_error(1, steps_a_scale=steps, copies=copies).log_ratio - LOG_RATIO
    normaliser = s * mpmath.sqrt(2 * mpmath.pi)  # of the discrete law, to exp(-2 pi^2 s^2)
    holds_to, largest = 0.0, 0.0
    for scales in np.arange(0.0, lattice._TAIL[2], 0.05):
        z = int(scales * s)
        discrete = mpmath.exp(-((z / s) ** 2) / 2) / normaliser
        edges = [mpmath.erfc((z + half) / s / root2) for half in (-0.5, 0.5)]
        log_ratio = abs(mpmath.log(discrete / (edges[0] - edges[1]) * 2))
        if log_ratio > bound:
            break
        holds_to, largest = scales, max(largest, log_ratio)
    assert mpmath.erfc(holds_to / root2) < DISTANCE / 2
    if part == math.sqrt(1 / copies):
        assert largest > 0.9 * bound, "the bound is what happens"
        too_small = lattice_error(1, steps_a_scale=steps, copies=copies - 1).log_ratio - LOG_RATIO
        assert largest > too_small


@pytest.mark.parametrize("power", [1, 2])
def test_values_beyond_the_table_have_less_than_the_stated_mass(power):
    tail = lattice._TAIL[power]
    mass = mpmath.exp(-tail) if power == 1 else mpmath.erfc(tail / mpmath.sqrt(2))
    assert mass < DISTANCE / 100


def empirical(scale, power, *, drawn_at=None):
    """p-value of four million draws against the exact law, in bins of 8 values and zero alone."""
    z = lattice_noise(4_000_000, scale=drawn_at or scale, power=power, source=SecureSource())
    reach = 8 * int(3 * scale / 8)
    grid = np.arange(-60 * int(scale), 60 * int(scale) + 1)
    pmf = np.exp(-(np.abs(grid / scale) ** power) / power)
    edges = np.concatenate([[-(10**9)], np.arange(-reach, 0, 8), [0, 1], np.arange(8, reach, 8)])
    bins = np.append(edges, 10**9) - 0.5
    return chi_square(np.histogram(z, bins)[0], np.histogram(grid, bins, weights=pmf)[0])


# at the second, cells are wider than those that their table is for
SCALES = [1024.0, 1030.7]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("power", [1, 2])
def test_draws_follow_the_exact_law(scale, power):
    assert empirical(scale, power) > FALSE_ALARM


@pytest.mark.parametrize("factor", [1.3, 1.01])
def test_another_scale_is_rejected(factor):
    assert empirical(1030.7, 2, drawn_at=factor * 1030.7) < REJECTED


@pytest.mark.parametrize(
    ("power", "old", "new"),
    [
        (2, "+ offset) ^ negative", "+ offset) * (2 * negative + 1)"),
        (2, "t *= t * 0.5 + cell * width", "t *= t * 0.5"),
        (2, "t *= t * 0.5 + cell * width", "t *= 0.0"),
        (2, "(width + table_width)", "0.0"),
        (1, "cell * (width - table_width)", "0.0"),
        (2, "slot, table.other[slot])", "slot, 0)"),
        (2, "words[2 * count :]", "words[count : 2 * count]"),
    ],
    ids=[
        "zero twice",
        "edge forgotten",
        "never rejects",
        "width of the table",
        "width of the table, Laplace",
        "one alias",
        "one word twice",
    ],
)
def test_mutants_of_the_sampler_are_rejected(power, old, new, monkeypatch):
    monkeypatch.setattr(lattice, "_candidates", mutant(lattice._candidates, old, new))
    assert empirical(1030.7, power) < REJECTED


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
    same_sign = np.where(np.arange(z.size) % 50 == 1, np.abs(z) * np.sign(np.roll(z, 1)), z)
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
        largest = math.nextafter(2.0**56, 0)
        z = lattice_noise(200_000, scale=largest, power=power, source=SecureSource())
        assert np.abs(z.astype(float)).max() < 1.1 * lattice._TAIL[power] * largest < 2.0**63


def test_a_source_that_rejects_everything_is_reported():
    class Broken:
        secure = False

        def words(self, count):
            return np.full(count, 2**64 - 1, dtype=np.uint64)

    with pytest.raises(RuntimeError, match="broken"):
        lattice_noise(10, scale=1024.0, power=2, source=Broken())
