"""Parts of noise: any ``noise_parts`` of them add up to the noise of one."""

import math
from functools import partial

import mpmath
import numpy as np
import pytest
from scipy import special, stats
from test_vector_law import law as vector_law
from test_wishart_law import law as wishart_law

from eigenveil.moments import release as release_module
from eigenveil.moments.accumulators import RowSum, SecondMoment
from eigenveil.moments.histograms import NormHistogram
from eigenveil.moments.rows import RowRule
from eigenveil.noise import draws, gaussian, laplace, vector, wishart
from eigenveil.noise import lattice as gamma_module
from eigenveil.noise.entries import from_coordinates
from eigenveil.noise.lattice import exponential, gamma
from eigenveil.noise.source import SecureSource, SeededSource
from eigenveil.privacy.accountant import NEGLIGIBLE
from eigenveil.privacy.mechanisms import base as sampling
from eigenveil.privacy.releases import Noise, ReleaseRecord
from soak_tools import times
from statistics_tools import (
    FALSE_ALARM,
    OFF_BY_30_PERCENT,
    REJECTED,
    chi_square,
    isotropic,
    kolmogorov,
    mutant,
    svec,
)

GRID = -30
RULE = RowRule(bound=1.0)
SHARES = [2, 3, 7]


def record_of(accumulator, kind, noise_parts, grid=GRID):
    noise = Noise(kind=kind, scale=1.0, size=accumulator.size, grid=grid, noise_parts=noise_parts)
    return ReleaseRecord(
        name="a",
        statistic=accumulator.statistic,
        adjacency="add-remove",
        noise=noise,
        **accumulator.parameters,
    )


def sums(count, accumulator, kind, noise_parts):
    """``count`` sums of as many shares as make the noise, at unit scale."""
    record, source = record_of(accumulator, kind, noise_parts), SecureSource()
    total = [
        sum(release_module.noise_integers(accumulator, record, source) for _ in range(noise_parts))
        for _ in range(count)
    ]
    total = [from_coordinates(accumulator.layout, accumulator.shape, each) for each in total]
    return np.ldexp(np.array(total).astype(float), GRID)


# The law of the whole: p-values at unit scale of so many sums of so many parts

GAUSSIANS = max(500, times(1500))


def gaussian_law(noise_parts, accumulator=None, count=GAUSSIANS):
    drawn = sums(count, accumulator or SecondMoment(RULE, features=3), "gaussian", noise_parts)
    return isotropic(svec(drawn) if drawn.ndim == 3 else drawn, 1.0)


# One column more than these the parties do not share evenly; (features, sums)
MANY = max(1500, times(3000))
FEATURES = {1: (4, MANY), 2: (4, MANY), 3: (4, 2 * MANY // 3), 7: (12, 400)}


def parts_of_wishart_law(noise_parts):
    features, count = FEATURES[noise_parts]
    drawn = sums(count, SecondMoment(RULE, features=features), "wishart", noise_parts)
    return wishart_law(drawn, noise_parts * math.ceil((features + 1) / noise_parts))


def parts_of_vector_law(noise_parts, features=3, count=2500):
    drawn = sums(count, RowSum(RULE, features=features, count_weight=0.0), "vector", noise_parts)
    if features == 1:  # where vector noise is Laplace noise
        return kolmogorov(drawn.ravel(), stats.laplace.cdf)
    return vector_law(drawn)


def laplace_law(noise_parts, factor=1.0):
    histogram = NormHistogram(None, precision="double")
    drawn = sums(100, histogram, "laplace", noise_parts).ravel()
    return kolmogorov(factor * drawn, stats.laplace.cdf)


def nightly(*case):
    return pytest.param(*case, marks=pytest.mark.thorough)


@pytest.mark.parametrize(
    ("law", "noise_parts"),
    [
        *[(gaussian_law, n) for n in SHARES],
        *[(laplace_law, n) for n in SHARES],
        (parts_of_vector_law, 2),
        nightly(parts_of_vector_law, 3),
        nightly(parts_of_vector_law, 7),
        (parts_of_wishart_law, 1),
        (parts_of_wishart_law, 2),
        nightly(parts_of_wishart_law, 3),
        nightly(parts_of_wishart_law, 7),
    ],
)
def test_parts_add_up_to_the_noise(law, noise_parts):
    assert law(noise_parts) > FALSE_ALARM


def test_parts_of_other_arrays_add_up_to_the_noise():
    plain = RowSum(RULE, features=4, count_weight=0.0)
    assert gaussian_law(3, plain) > FALSE_ALARM
    assert vector_law(svec(sums(2000, SecondMoment(RULE, features=2), "vector", 2))) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert laplace_law(3, factor) < REJECTED


SIGMA = (gaussian.GaussianSampler, "entries")
COLUMNS = (wishart, "wishart_difference")
DEGREES = (vector, "_mixed_sigma", "(size + 1) / (2.0 * noise_parts)")
GAMMAS = (laplace, "laplace")
IN_ONE = partial(parts_of_vector_law, features=1, count=5000)


@pytest.mark.parametrize(
    ("where", "name", "old", "new", "law", "noise_parts"),
    [
        (*COLUMNS, "math.ldexp(scale,", "math.ldexp(scale / noise_parts,", parts_of_wishart_law, 3),
        nightly(*DEGREES, "size / (2.0 * noise_parts)", IN_ONE, 2),
        nightly(*DEGREES, "(size + 2) / (2.0 * noise_parts)", IN_ONE, 2),
        nightly(*DEGREES, "size / (2.0 * noise_parts)", IN_ONE, 7),
        *[
            nightly(*SIGMA, 'math.sqrt(how["noise_parts"])', new, gaussian_law, n)
            for new in ("1", "how['noise_parts']")
            for n in SHARES
        ],
        *[
            nightly(
                *COLUMNS,
                "-(-(size + 1) // noise_parts)",
                "(size + 1) // noise_parts",
                parts_of_wishart_law,
                n,
            )
            for n in SHARES
        ],
        *[
            nightly(*GAMMAS, old, new, laplace_law, n)
            for old, new in (
                ("shape=1.0 / noise_parts", "shape=0.5 / noise_parts"),
                ("shape=1.0 / noise_parts", "shape=1.0"),
                ("up - down", "up"),
            )
            for n in SHARES
        ],
    ],
)
def test_other_parts_are_rejected(where, name, old, new, law, noise_parts, monkeypatch):
    """Of another size, too few columns, another number of degrees, another shape, one side."""
    monkeypatch.setattr(where, name, mutant(getattr(where, name), old, new))
    assert law(noise_parts) < REJECTED


# What hides the arithmetic


PURE = {
    "laplace": NormHistogram(None, precision="double"),
    "wishart": SecondMoment(RULE, features=9),
    "vector": RowSum(RULE, features=3, count_weight=0.0),
}


@pytest.mark.parametrize("kind", PURE)
def test_shares_without_smoothing_noise_cannot_be_drawn(kind, monkeypatch):
    """A vector's share has next to no variance in most of 300 shares.

    That none of them has is less likely than 1e-30.
    """
    monkeypatch.setattr(wishart, "SMOOTHING", 1e15)
    for module in (laplace, vector):
        monkeypatch.setattr(module, "SHARE_SMOOTHING", 1e30)
    with pytest.raises(ValueError, match="lattice units"):
        sums(1, PURE[kind], kind, 300)


@pytest.mark.parametrize("kind", PURE)
@pytest.mark.parametrize("noise_parts", [7, 1000])
def test_low_bits_of_a_share_are_uniform(kind, noise_parts):
    record, source = record_of(PURE[kind], kind, noise_parts), SecureSource()
    shares = [
        release_module.noise_integers(PURE[kind], record, source)
        for _ in range(8000 // PURE[kind].size + 1)
    ]
    counts = np.bincount(np.concatenate(shares) & 7, minlength=8)
    assert chi_square(counts, np.ones(8)) > FALSE_ALARM


FRACTIONS = [1, 5, 100, 255]  # of 256


def ups(rounded, below):
    """How often was rounded up; asserts that nothing but the two neighbours occurs."""
    up = rounded - below
    assert np.all((up == 0) | (up == 1))
    return int(np.count_nonzero(up))


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("below", [-3, 0, 2**40])
def test_roundings_leave_the_mean_as_it_is(fraction, below):
    """An exact binomial test of both kinds of rounding; rounding down always is rejected."""
    n, chance = 400, fraction / 256
    matrix = np.full((n, n), 256 * below + fraction)
    rounded = wishart._shifted_at_random(matrix.copy(), 8, SecureSource())
    assert np.array_equal(rounded, rounded.T)
    count = n * (n + 1) // 2
    tries = [
        (ups(rounded[np.tril_indices(n)], below), count),
        (ups(laplace._rounded_at_random(matrix.ravel() / 256, SecureSource()), below), n * n),
    ]
    for up, of in tries:
        assert stats.binomtest(up, of, chance).pvalue > FALSE_ALARM
        assert stats.binomtest(0, of, chance).pvalue < REJECTED


def test_what_needs_no_rounding_is_not_rounded():
    values = np.array([0.0, -5.0, 2.0**52 + 1, -(2.0**60)])
    assert np.array_equal(laplace._rounded_at_random(values, SecureSource()), values)
    matrix = np.array([[2**62, -7], [-7, 0]])
    assert np.array_equal(wishart._shifted_at_random(matrix.copy(), 0, SecureSource()), matrix)


@pytest.mark.parametrize("noise_parts", [1, *SHARES])
@pytest.mark.parametrize(("scale", "grid"), [(0.7, -20), (1.9, -46), (3e-7, -50)])
def test_a_wishart_share_is_exact_in_integers(noise_parts, scale, grid):
    """Made again from the same words with Python's own integers."""
    size, source = 5, SeededSource(11)
    drawn = wishart.wishart_difference(
        size, scale=scale, grid=grid, source=SeededSource(11), noise_parts=noise_parts
    )
    unit = math.floor(math.log2(scale)) - 46
    sigma = scale * math.sqrt(2 * (size + 1) / noise_parts) / 64
    noise = draws.isometric_symmetric(size, sigma=sigma, grid=grid, source=source)
    shape = (size, math.ceil((size + 1) / noise_parts))
    deviation = math.sqrt(scale * 2.0 ** (54 - unit))
    g, h = (wishart._exact_gram(shape, deviation, source).astype(object) for _ in range(2))
    words = [int(w) % 2 ** (grid - unit) for w in source.words(size * (size + 1) // 2)]
    on, below = iter(words[:size]), iter(words[size:])
    for i in range(size):
        for j in range(i):
            expected = (g[i, j] - h[i, j] + next(below)) // 2 ** (grid - unit) + int(noise[i, j])
            assert drawn[i, j] == drawn[j, i] == expected
        whole = (g[i, i] - h[i, i] + next(on)) // 2 ** (grid - unit)
        assert drawn[i, i] == whole + int(noise[i, i])


# The bounds of docs/proofs/shares.md


@pytest.mark.parametrize("scales", [[1.0, 1.0], [1.0, 1.0, 1.3], [1.0] * 7, [1.0, 3.0]])
def test_lattice_gaussians_add_up_to_one_with_the_stated_error(scales):
    """Claim 1, at scales so small that the error can be seen."""
    z = np.arange(-60, 61)
    pmf = np.ones(1)
    for s in scales:
        one = np.exp(-((z / s) ** 2) / 2)
        pmf = np.convolve(pmf, one / one.sum())
    at = np.arange(pmf.size) - pmf.size // 2
    whole = math.hypot(*scales)
    ideal = np.exp(-((at / whole) ** 2) / 2)
    near = np.abs(at) < 5 * whole
    error = np.abs(np.log(pmf[near] / (ideal[near] / ideal.sum())))
    bound = 5 * (len(scales) - 1) * math.exp(-(math.pi**2) * min(scales) ** 2)
    assert error.max() <= bound
    if scales == [1.0, 1.0]:
        assert error.max() > bound / 4, "the bound is not far from what happens"


def rounding_log_ratio(fractions, x, deviation, *, biased=False):
    """Of roundings at random beside a lattice Gaussian, against the Gaussian without them."""
    errors, chances = np.zeros(1), np.ones(1)
    for f in fractions:
        up = 0.0 if biased else f
        errors = np.concatenate([errors - f, errors + 1 - f])
        chances = np.concatenate([chances * (1 - up), chances * up])
    exponent = (np.outer(x, errors) - errors**2 / 2) / deviation**2
    return np.log1p(np.expm1(exponent) @ chances)


@pytest.mark.parametrize("fractions", [[0.5] * 3, [0.1, 0.9, 0.37], [1e-3] * 3, [0.5] * 8])
def test_rounding_at_random_costs_what_is_stated(fractions):
    """Claim 2, outcome by outcome; rounding down costs hundreds of times more."""
    deviation = 1024.0
    t = np.linspace(-13.5, 13.5, 541)
    bound = len(fractions) * np.maximum(t * t, 1.0) / (8 * deviation**2)
    found = np.abs(rounding_log_ratio(fractions, t * deviation, deviation))
    assert np.all(found <= bound * (1 + 1e-9))
    if set(fractions) == {0.5}:
        assert np.max(found / bound) > 0.9, "the bound is what happens"
        down = np.abs(rounding_log_ratio(fractions, t * deviation, deviation, biased=True))
        assert np.max(down) > 100 * np.max(bound)


@pytest.mark.parametrize("size", [1, 6, 323, 307_720])
def test_tails_are_below_their_stated_chances(size):
    """Of the squares of all coordinates, and of all Gamma variables of Laplace shares."""
    assert stats.chi2.logsf(sampling._longest(size), size) < -91
    total = 2 * size + math.sqrt(364 * size) + 91
    assert stats.gamma.logsf(total, 2 * size) < -91


@pytest.mark.parametrize("shape", [1e-3, 0.1, 1.0, 16.0, 100.0, 196.0, 400.0, 1e4])
def test_logarithms_of_gamma_variables_are_within_their_stated_range(shape):
    """Claim 3: what a rounding of the shape is multiplied with."""
    off = (91 + 14 * math.sqrt(shape)) / shape
    with mpmath.workdps(60):
        a = mpmath.mpf(shape)
        chances = [mpmath.gammainc(a, 0, a * mpmath.exp(-off), regularized=True)]
        if off < 50:  # no Gamma variable is larger
            chances.append(mpmath.gammainc(a, a * mpmath.exp(off), regularized=True))
        assert sum(chances) < mpmath.mpf(2) ** -130


UNIT = 2.0**-53


@pytest.mark.parametrize("shape", [16.0, 20.5, 300.0, 1e6])
def test_roundings_of_a_gamma_candidate_are_below_their_bounds(shape):
    """Claim 3: of the cube, relative; of the log-chance to keep it, in units of d."""
    d = shape - 1 / 3
    x = np.concatenate([np.linspace(-13.4, 13.4, 401), np.linspace(-1e-6, 1e-6, 21)])
    root, log_chance = gamma_module._proposal(x, d)
    assert np.all(log_chance < 2.0**-45 * d)
    with mpmath.workdps(50):
        for at, w, log_c in zip(x.tolist(), root.tolist(), log_chance.tolist(), strict=True):
            exact = 1 + mpmath.mpf(at) / (3 * mpmath.sqrt(d))
            if exact < 0.1:
                assert w < 0.1 + 1e-12
                continue
            cube = d * (w * w * w)
            assert abs(cube / (d * exact**3) - 1) < 128 * UNIT
            ideal = mpmath.mpf(at) ** 2 / 2 + d * (1 - exact**3 + 3 * mpmath.log(exact))
            assert ideal <= 0
            assert abs(log_c - ideal) < 204 * d * UNIT


def test_a_gamma_candidate_and_its_chance_make_the_gamma_density():
    shape = 17.3
    x = np.linspace(-8, 12, 2001)
    root, log_chance = gamma_module._proposal(x, shape - 1 / 3)
    drawn = (shape - 1 / 3) * root**3
    log_slope = np.log(3 * (shape - 1 / 3) * root**2 / (3 * math.sqrt(shape - 1 / 3)))
    density = stats.norm.logpdf(x) + log_chance - log_slope
    assert np.ptp(density - stats.gamma.logpdf(drawn, shape)) < 1e-10
    wrong = density - stats.gamma.logpdf(drawn, shape + 1 / 3)
    assert np.ptp(wrong) > 0.01


@pytest.mark.parametrize("shape", [16.0, 17.3, 1000.0])
def test_candidates_below_a_tenth_have_no_chance(shape):
    """Claim 3: the chance of a cube root under 0.1, over that of being kept."""
    d = shape - 1 / 3
    with mpmath.workdps(30):
        below = mpmath.gammainc(d + mpmath.mpf(1) / 3, 0, d / 1000, regularized=True)
        assert below < mpmath.mpf(2) ** -130
    assert stats.norm.logpdf(13.5) + math.log(0.98) < -90  # x itself is cut there


@pytest.mark.parametrize("shape", [1e-3, 0.02, 0.5, 3.3, 15.5])
def test_roundings_of_small_gamma_variables_are_below_their_bound(shape, monkeypatch):
    """Claim 3: the powers of uniform variables, relative as long as they are above exp(-40)."""
    extra = math.ceil(16 - shape)
    log_u = np.random.default_rng().exponential(size=(extra, 300)) * min(1.0, 20 * shape)
    monkeypatch.setattr(gamma_module, "exponential", lambda size, source: log_u.ravel())
    monkeypatch.setattr(gamma_module, "_large", lambda size, shape, source: np.ones(size))
    drawn = gamma(300, shape=shape, source=SecureSource())
    with mpmath.workdps(50):
        for column, factor in zip(log_u.T.tolist(), drawn.tolist(), strict=True):
            exponent = mpmath.fsum(e / (mpmath.mpf(shape) + i) for i, e in enumerate(column))
            off = abs(factor / mpmath.exp(-exponent) - 1)
            assert exponent > 40 or off < 760 * UNIT


# The Gamma sampler


GAMMA_SHAPES = [0.02, 0.3, 1.0, 7.5, 400.0]


def gamma_law(shape, drawn):
    return kolmogorov(drawn, lambda v: special.gammainc(shape, v))


@pytest.mark.parametrize("shape", GAMMA_SHAPES)
def test_gamma_variables_follow_their_law(shape):
    drawn = gamma(60_000, shape=shape, source=SecureSource())
    assert gamma_law(shape, drawn) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert gamma_law(factor * shape, drawn) < REJECTED


@pytest.mark.parametrize(
    ("function", "old", "new", "shapes"),
    [
        ("gamma", "log_u / roots", "log_u / (1 + roots)", [0.02, 0.3, 1.0, 7.5]),
        ("gamma", "shape + extra, source", "shape + extra + 1, source", [7.5]),
        ("_large", "shape - 1.0 / 3.0", "shape + 1.0", [7.5, 400.0]),
        ("_proposal", "3.0 * math.sqrt(d)", "4.0 * math.sqrt(d)", [7.5, 400.0]),
    ],
    ids=["roots", "whole", "mean", "spread"],
)
def test_mutants_of_the_gamma_sampler_are_rejected(function, old, new, shapes, monkeypatch):
    changed = mutant(getattr(gamma_module, function), old, new)
    for shape in shapes:
        monkeypatch.setattr(gamma_module, function, changed)
        drawn = gamma_module.gamma(60_000, shape=shape, source=SecureSource())
        assert gamma_law(shape, drawn) < REJECTED


def kept(source):
    """p-value of how many of a million candidates of shape 16 are kept."""
    x = np.linspace(-11, 13.5, 200_001)
    root, log_chance = gamma_module._proposal(x, 16 - 1 / 3)
    chance = np.trapezoid(np.where(root > 0.1, np.exp(log_chance), 0) * stats.norm.pdf(x), x)
    assert 0.98 < chance < 0.9995
    found = gamma_module._gamma_candidates(1_000_000, 16 - 1 / 3, source).size
    return stats.binomtest(found, 1_000_000, chance).pvalue


def test_candidates_are_refused_as_often_as_they_should_be(monkeypatch):
    assert kept(SecureSource()) > FALSE_ALARM
    always = mutant(gamma_module._gamma_candidates, "> -log_chance", "> 0 * log_chance - 1")
    monkeypatch.setattr(gamma_module, "_gamma_candidates", always)
    assert kept(SecureSource()) < REJECTED


def test_exponential_deviates_are_exactly_geometric_on_their_grid(monkeypatch):
    """At a thousand steps, where it can be seen: zero has its full chance."""
    monkeypatch.setattr(gamma_module, "_STEPS", 1024.0)
    drawn = exponential(2_000_000, SecureSource()) * 1024 - 0.5
    assert np.array_equal(drawn, np.rint(drawn))
    edges = np.array([0, 1, 2, 3, 10, 100, 1000, 3000, math.inf])
    chances = -np.diff(np.exp(-edges / 1024))
    counts = np.histogram(drawn, edges)[0]
    assert chi_square(counts, chances) > FALSE_ALARM
    merged = counts + np.array([-counts[0] // 2, counts[0] // 2, 0, 0, 0, 0, 0, 0])
    assert chi_square(merged, chances) < REJECTED, "zero counted once"


def test_a_source_that_rejects_everything_is_reported(monkeypatch):
    monkeypatch.setattr(gamma_module, "_gamma_candidates", lambda count, d, source: np.zeros(0))
    with pytest.raises(RuntimeError, match="broken"):
        gamma(3, shape=20.0, source=SecureSource())


# What is recorded


def error(kind, size, noise_parts, grid=-26):
    statistic = {"gaussian": "second-moment", "laplace": "norm-histogram", "vector": "row-sum"}
    noise = Noise(kind=kind, scale=1.0, size=size, grid=grid, noise_parts=noise_parts)
    return ReleaseRecord(
        name="a",
        statistic=statistic.get(kind, "second-moment"),
        adjacency="add-remove",
        noise=noise,
    ).sampling_error()


MOMENT = 784 * 785 // 2


@pytest.mark.parametrize(
    ("kind", "size", "noise_parts", "below"),
    [
        ("gaussian", MOMENT, 10, 2e-7),
        ("gaussian", MOMENT, 1000, 2e-5),
        ("wishart", MOMENT, 1, 3e-6),
        ("wishart", MOMENT, 10, 4e-6),
        ("wishart", MOMENT, 1000, 2e-4),
        ("vector", MOMENT, 10, 3e-7),
        ("vector", 785, 10, 1e-9),
        ("vector", 1, 2, 1e-10),
        ("laplace", 323, 10, 2e-7),
        ("laplace", 323, 1000, 2e-6),
        ("laplace", 1, 2, 1e-8),
    ],
)
def test_errors_of_shares_are_small(kind, size, noise_parts, below):
    found = error(kind, size, noise_parts)
    assert 0 < found.log_ratio < below
    assert 0 < found.distance < NEGLIGIBLE / 1024


@pytest.mark.parametrize("features", [8, 784, 5000])
@pytest.mark.parametrize("noise_parts", [1, 100, 1000])
def test_wishart_shares_stay_far_below_what_they_promise(features, noise_parts):
    found = error("wishart", features * (features + 1) // 2, noise_parts)
    assert found.log_ratio < 5e-3
    assert found.distance < NEGLIGIBLE


@pytest.mark.parametrize(
    ("kind", "size", "noise_parts", "grid"),
    [
        ("gaussian", 6, 3, -11),  # 2048 steps, off the diagonal of a share 836
        ("gaussian", 6, 10**12, -26),
        ("wishart", 6, 1, -23),
        ("wishart", 6, 10**7, -26),
        ("vector", 6, 2, -14),
        ("vector", 6, 10**9, -26),
        ("laplace", 6, 2, -24),
        ("laplace", 6, 10**9, -26),
    ],
)
def test_too_few_steps_in_a_share_are_not_proved(kind, size, noise_parts, grid):
    assert error(kind, size, noise_parts, grid) == (math.inf, math.inf)


def test_one_share_is_the_noise_itself():
    """Errors are those of the lattice, and draws are those of the whole."""
    assert Noise(kind="laplace", scale=1.0, size=6, grid=-26).noise_parts == 1
    assert error("gaussian", 6, 1) == sampling.lattice_error(6, steps_a_scale=2.0**26)
    assert error("laplace", 6, 1) == sampling.lattice_error(6, steps_a_scale=2.0**26)
    assert error("vector", 6, 1) == sampling.lattice_error(13, steps_a_scale=math.inf)
    whole, one = (
        laplace.laplace((6,), scale=1.0, grid=-26, source=SeededSource(1), **more)
        for more in ({}, {"noise_parts": 1})
    )
    assert np.array_equal(whole, one)


def test_a_total_of_misplaced_noise_is_below_its_bound():
    """Claim 2 for all coordinates together, at outcomes as far out as they come."""
    rng = np.random.default_rng()
    size, noise_parts, deviation, off = 400, 5, 2048.0, 0.01
    bound = sampling.hidden_error(size, off=off, smoothing=deviation, noise_parts=noise_parts)
    for length in (0.0, math.sqrt(size), math.sqrt(sampling._longest(size))):
        x = rng.standard_normal(size)
        x *= length * deviation / np.linalg.norm(x)
        rounding = [rounding_log_ratio(rng.random(noise_parts), at[None], deviation)[0] for at in x]
        # misplaced in the worst direction, that of the outcome
        middle = x * (off * deviation / max(np.linalg.norm(x), 1e-300))
        moved = np.sum(x * middle - middle**2 / 2) / deviation**2
        assert abs(math.fsum(rounding)) + abs(moved) < bound
    assert bound < 1.01 * (off * length + noise_parts * length**2 / (8 * deviation**2))
