"""Released moments to components: exact without noise, and noise told from components.

Random tests state what was simulated and fail by chance less than once in a million.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eigenveil.linalg.tensor import cubes, multilinear
from eigenveil.models.tensors import whitening
from eigenveil.models.tensors.whitening import (
    Bulk,
    PairMoment,
    Recovered,
    _off_the_others,
    full_pair,
    recover,
    sketched_pair,
    standing,
    usable,
)
from eigenveil.moments.documents.pairs import public_signs
from eigenveil.privacy.releases import Noise
from statistics_tools import clopper_pearson

NEXT_TO_NOTHING = 1e-9
FALSE_ALARM = 1e-8


def gaussian(size, scale=1.0):
    return Noise(kind="gaussian", scale=scale, size=size, grid=-40)


def of_matrix(features, scale=1.0):
    return gaussian(features * (features + 1) // 2, scale)


def isometric(features, rng):
    """Gaussian noise of deviation 1 in isometric coordinates."""
    noise = rng.standard_normal((features, features))
    return (noise + noise.T) / 2


def directions(features, count, rng):
    return np.linalg.qr(rng.standard_normal((features, count)))[0]


def spiked(features, energies, bulk, rng):
    """A matrix with these eigenvalues above a common one, and its leading directions."""
    basis = directions(features, len(energies), rng)
    return (basis * energies) @ basis.T + bulk * np.eye(features), basis


class Moments:
    """Exact moments of components that are independent, not orthogonal."""

    def __init__(self, features, count, bulk=0.0):
        rng = np.random.default_rng()
        self.components = directions(features, count, rng).T * rng.uniform(0.5, 2.0, (count, 1))
        self.components += rng.standard_normal((count, features)) / (8 * math.sqrt(features))
        self.counts = np.sort(rng.uniform(2000, 10_000, count))[::-1]
        self.bulk = bulk
        self.pair = (self.components.T * self.counts) @ self.components + bulk * np.eye(features)
        self.total = self.counts @ self.components

    def triple(self, basis):
        return cubes(self.counts, self.components @ basis)

    @property
    def rows(self):
        return float(self.counts.sum())


def assert_exact(found, pair, moments, *, near=1e-6):
    components = found.seen @ pair.basis.T
    assert np.allclose(components, moments.components, atol=near)
    assert np.allclose(found.counts, moments.counts, rtol=near)
    assert found.converged


# Without noise


@pytest.fixture
def exact_eigenpairs(monkeypatch):
    """Without noise the bulk is one eigenvalue many times, and single precision may miss some."""

    def eigenpairs(matrix, count):
        values, vectors = np.linalg.eigh(matrix)
        return values[::-1][:count].copy(), np.ascontiguousarray(vectors.T[::-1][:count])

    monkeypatch.setattr(whitening, "leading_eigenpairs", eigenpairs)


@pytest.mark.usefixtures("exact_eigenpairs")
@pytest.mark.parametrize(("features", "count"), [(3, 1), (6, 3), (30, 8), (5, 4)])
@pytest.mark.parametrize("bulk", [0.0, 700.0])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("with_total", [True, False])
def test_exact_moments_give_exact_components(features, count, bulk, known, with_total):
    moments = Moments(features, count, bulk)
    noise = of_matrix(features, NEXT_TO_NOTHING)
    pair = full_pair(
        moments.pair, noise, Bulk(bulk if known else None), components=count, most=count
    )
    assert pair.bulk == pytest.approx(bulk, abs=1e-6 * moments.rows)
    assert pair.above == count
    assert standing(pair) == count
    total = moments.total if with_total else None
    found = recover(pair, moments.triple(pair.basis), rows=moments.rows, total=total)
    assert_exact(found, pair, moments)


@pytest.mark.usefixtures("exact_eigenpairs")
def test_as_many_components_as_features_are_exact_about_their_mean():
    """About it they span one direction less, and there the bulk is alone."""
    moments = Moments(4, 4, bulk=700.0)
    bulk = Bulk(None, rows=moments.rows, offset=moments.total / moments.rows)
    pair = full_pair(moments.pair, of_matrix(4, NEXT_TO_NOTHING), bulk, components=4, most=4)
    assert pair.bulk == pytest.approx(700.0, rel=1e-6)
    found = recover(pair, moments.triple(pair.basis), rows=moments.rows, total=moments.total)
    assert_exact(found, pair, moments)
    nowhere = Bulk(None, rows=moments.rows)
    with pytest.raises(AssertionError, match="a defect"):
        full_pair(moments.pair, of_matrix(4), nowhere, components=4, most=4)


@pytest.mark.parametrize(("features", "count", "columns"), [(8, 3, 3), (40, 5, 20), (12, 3, 12)])
def test_a_sketch_without_noise_is_as_good_as_the_moment(features, count, columns):
    moments = Moments(features, count)
    noise = gaussian(features * columns, NEXT_TO_NOTHING)
    for test in (
        directions(features, columns, np.random.default_rng()),
        public_signs(features, columns),
    ):
        pair = sketched_pair(
            moments.pair @ test, test, noise, Bulk(0.0), components=count, most=count
        )
        assert pair.above == count
        found = recover(pair, moments.triple(pair.basis), rows=moments.rows, total=moments.total)
        assert_exact(found, pair, moments)


@pytest.mark.parametrize("components", [3, None])
def test_the_bulk_of_a_whole_sketch_is_found_beside_a_weaker_component(components):
    """Half of the trace is the components': the mean eigenvalue is far above the bulk."""
    rng = np.random.default_rng()
    whole, basis = spiked(8, [3000.0, 2000.0, 400.0], 500.0, rng)
    test = directions(8, 8, rng)
    pair = sketched_pair(
        whole @ test, test, gaussian(64, 1.0), Bulk(None), components=components, most=7
    )
    assert pair.bulk == pytest.approx(500.0, rel=0.01)
    assert pair.core.shape == (3, 3)
    assert np.allclose(np.linalg.svd(basis.T @ pair.basis)[1], 1.0, atol=1e-3)
    assert np.linalg.eigvalsh(pair.core)[::-1] == pytest.approx([3000, 2000, 400], rel=0.01)


def test_the_sum_of_rows_corrects_a_weak_components_length():
    """Off by d in the pair moment, a component is off by about d/2 with it, and 3 d/2 without."""
    rng = np.random.default_rng()
    components = directions(6, 3, rng).T
    counts = np.array([5000.0, 3000.0, 500.0])
    basis = components.T
    core = np.diag(counts * [1.0, 1.0, 1.2])
    pair = PairMoment(basis, core, 0.0, np.diag(core), np.zeros(3), np.zeros(3), 1.0)
    triple = cubes(counts, np.eye(3))
    errors = {}
    for name, total in (("with", counts @ components), ("without", None)):
        found = recover(pair, triple, rows=counts.sum(), total=total)
        errors[name] = abs(np.log(found.counts[2] / counts[2]))
        assert np.allclose(found.counts[:2], counts[:2])
    assert errors["without"] == pytest.approx(3 * math.log(1.2))
    assert errors["with"] < 0.1 * errors["without"]


@pytest.mark.usefixtures("exact_eigenpairs")
@pytest.mark.parametrize("factor", [-1.0, 0.0, 100.0])
def test_a_sum_of_rows_that_cannot_be_is_left_out(factor):
    moments = Moments(6, 3)
    pair = full_pair(moments.pair, of_matrix(6, NEXT_TO_NOTHING), Bulk(0.0), components=3, most=3)
    triple = moments.triple(pair.basis)
    found = recover(pair, triple, rows=moments.rows, total=factor * moments.total)
    assert_exact(found, pair, moments)


@pytest.mark.usefixtures("exact_eigenpairs")
def test_the_most_rows_come_first():
    moments = Moments(9, 6)
    pair = full_pair(moments.pair, of_matrix(9, NEXT_TO_NOTHING), Bulk(0.0), components=6, most=6)
    found = recover(pair, moments.triple(pair.basis), rows=None)
    assert list(found.counts) == sorted(found.counts, reverse=True)
    assert_exact(found, pair, moments)


# Noise


def exceeded(features, runs, *, scale=1.0, bulk=0.0, energies=(), columns=None):
    """How often noise exceeds its floor and its average, beside components far above it."""
    rng = np.random.default_rng()
    count = len(energies)
    clear = average = 0
    for _ in range(runs):
        whole, _ = spiked(features, energies, 5.0, rng)
        known = Bulk(None if bulk is None else 5.0)
        asked = {"components": max(1, count), "most": count + 1}
        if columns is None:
            values = whole + isometric(features, rng)
            pair = full_pair(values, of_matrix(features, scale), known, **asked)
        else:
            test = directions(features, columns, rng)
            values = whole @ test + rng.standard_normal((features, columns))
            noise = gaussian(features * columns, scale)
            pair = sketched_pair(values, test, noise, known, **asked)
        clear += pair.strengths[count] > pair.floors[count]
        average += pair.strengths[count] > pair.typical[count]
    return clear, average


THOUSAND = 1000, 0.015, 0.3, 0.5


@pytest.mark.parametrize(
    ("options", "runs", "clear_most", "low", "high"),
    [
        ({"features": 40}, *THOUSAND),
        ({"features": 40, "bulk": None}, *THOUSAND),
        ({"features": 10}, *THOUSAND),
        ({"features": 40, "energies": (60.0, 50.0, 40.0)}, *THOUSAND),
        ({"features": 40, "energies": (60.0, 50.0, 40.0), "bulk": None}, *THOUSAND),
        ({"features": 40, "columns": 10}, *THOUSAND),
        ({"features": 40, "columns": 10, "bulk": None}, *THOUSAND),
        ({"features": 100}, 200, 0.01, 0.47, 0.47),
        # the noise of a square sketch is not symmetric: both of its singular vectors are free.
        # With the matrix's edge floor and average were exceeded every time
        ({"features": 40, "columns": 40}, 500, 0.005, 0.0, 0.65),
    ],
    ids=str,
)
def test_noise_exceeds_its_floor_seldom_and_its_average_about_half_the_time(
    options, runs, clear_most, low, high
):
    """Simulated: floors 1 to 8 times in a thousand, averages 3 to 6 times in ten."""
    clear, average = exceeded(runs=runs, **options)
    assert clopper_pearson(clear, runs, FALSE_ALARM)[0] < clear_most
    least, most = clopper_pearson(average, runs, FALSE_ALARM)
    assert least < high
    assert most > low


@pytest.mark.parametrize("scale", [0.8, 1.25])
@pytest.mark.parametrize("columns", [None, 10, 40])
def test_noise_of_another_size_is_noticed(scale, columns):
    """A floor for noise of 4/5 is exceeded always, the average of 5/4 never."""
    clear, average = exceeded(40, 200, scale=scale, columns=columns)
    if scale < 1:
        assert clear > 100
    else:
        assert average < 20


@pytest.mark.parametrize("components", [3, None])
def test_bulk_and_strengths_are_found_under_noise(components):
    """The bulk of 40 features with a deviation of 0.17, strengths with 2 to 4 % of them."""
    rng = np.random.default_rng()
    whole, _ = spiked(40, [60.0, 50.0, 40.0], 5.0, rng)
    pair = full_pair(
        whole + isometric(40, rng), of_matrix(40), Bulk(None), components=components, most=12
    )
    assert pair.bulk == pytest.approx(5.0, abs=1.5)
    assert pair.above >= 3
    assert pair.deviation == 1.0
    assert np.allclose(pair.basis.T @ pair.basis, np.eye(pair.core.shape[0]), atol=1e-9)
    seen = pair.basis[:, :3].T @ (whole - 5.0 * np.eye(40)) @ pair.basis[:, :3]
    assert np.diag(pair.core)[:3] == pytest.approx(np.diag(seen), rel=0.3)
    # a noisy eigenvalue is larger than what is left along its direction
    assert (np.diag(pair.core) < pair.strengths[: pair.core.shape[0]]).all()


def test_what_noise_adds_to_an_eigenvalue_is_taken_off():
    """The edge is 9, the component 13; means over 200 matrices have deviations of 0.007.

    What is left is right (-0.008); the eigenvalue itself is too large by a quarter (0.26).
    """
    rng = np.random.default_rng()
    kept, raw = [], []
    for _ in range(200):
        whole, _ = spiked(40, [13.0], 5.0, rng)
        pair = full_pair(whole + isometric(40, rng), of_matrix(40), Bulk(5.0), components=1, most=1)
        (along,) = np.diag(pair.basis.T @ whole @ pair.basis) - 5.0
        kept.append(pair.core[0, 0] / along - 1)
        raw.append(pair.strengths[0] / along - 1)
    assert abs(np.mean(kept)) < 0.05
    assert np.mean(raw) > 0.2


def test_noise_asked_for_as_components_is_told_from_components():
    """Two of five among eight features pass in 6 of 100 (simulated), as three times half would.

    In 36 of 100, when the bulk was the mean of what five had left: then it was too small, by the
    three largest values of the noise.
    """
    rng = np.random.default_rng()
    passed, bulks = 0, []
    for _ in range(600):
        whole, _ = spiked(8, [40.0, 40.0], 5.0, rng)
        pair = full_pair(whole + isometric(8, rng), of_matrix(8), Bulk(None), components=5, most=5)
        bulks.append(pair.bulk)
        passed += standing(pair) == 5
    assert clopper_pearson(passed, 600, FALSE_ALARM)[0] < 0.08
    # 4.58 with a deviation of 0.72; 3.2 before
    assert np.mean(bulks) > 4.58 - 6 * 0.72 / math.sqrt(600)


@pytest.mark.parametrize("count", [1, 3, 7])
def test_auto_counts_components_far_above_the_noise(count):
    """99 in 100 fits are right (simulated): 40 of 60 are, but for one in a million."""
    rng = np.random.default_rng()
    right = 0
    for _ in range(60):
        whole, _ = spiked(30, np.linspace(60, 90, count), 5.0, rng)
        pair = full_pair(
            whole + isometric(30, rng), of_matrix(30), Bulk(None), components=None, most=29
        )
        right += pair.core.shape[0] == count
    assert right >= 40


def test_auto_stays_within_the_most_it_may_find():
    rng = np.random.default_rng()
    whole, _ = spiked(10, np.full(6, 1e4), 5.0, rng)
    for most in (1, 4, 6):
        pair = full_pair(whole, of_matrix(10), Bulk(5.0), components=None, most=most)
        assert pair.core.shape == (most, most)
        assert pair.strengths.shape == pair.floors.shape == pair.typical.shape == (most,)
        test = directions(10, 8, rng)
        pair = sketched_pair(
            whole @ test, test, gaussian(80), Bulk(5.0), components=None, most=most
        )
        assert pair.core.shape == (most, most)


def test_noise_alone_is_never_no_component():
    """There is always one to go on with, and none above the noise."""
    values = isometric(20, np.random.default_rng())
    pair = full_pair(0.01 * values, of_matrix(20), Bulk(0.0), components=None, most=5)
    assert pair.core.shape == (1, 1)
    assert pair.above == 0


numbers = st.floats(-1e6, 1e6, allow_subnormal=False)


@given(
    values=st.integers(2, 6).flatmap(lambda d: arrays(np.float64, (d, d), elements=numbers)),
    known=st.sampled_from([None, 0.0, 100.0]),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    wanted=st.sampled_from([None, 1, 2]),
    columns=st.integers(2, 6),
    kind=st.sampled_from(["gaussian", "vector", "wishart"]),
)
def test_whatever_was_released_can_be_whitened(values, known, scale, wanted, columns, kind):
    size = len(values)
    if wanted == size and known is None:
        wanted = 1
    bulk = Bulk(known, sampling=0.5, rows=1000.0)
    noise = Noise(kind=kind, scale=scale, size=size * (size + 1) // 2, grid=-40)
    asked = {"components": wanted, "most": size - 1}
    pairs = [full_pair((values + values.T) / 2, noise, bulk, **asked)]
    if kind != "wishart":
        test = public_signs(size, min(size, columns))
        pairs.append(sketched_pair(values @ test, test, noise, bulk, **asked))
    for pair in pairs:
        count = len(pair.core)
        assert np.linalg.eigvalsh(pair.core).min() > 0
        assert np.allclose(pair.basis.T @ pair.basis, np.eye(count), atol=1e-9)
        assert pair.bulk >= 0
        assert (np.diff(pair.floors) <= 0).all()
        assert (pair.floors >= pair.typical).all()
        found = recover(pair, multilinear(np.full((size,) * 3, 2.0), pair.basis), rows=1000.0)
        assert np.isfinite(found.seen).all()
        assert (found.counts > 0).all()
        assert (found.counts <= 1000.0 * (1 + 1e-9)).all()


# What is said where components are missing


def moment(strengths, typical, floors):
    count = len(strengths)
    strengths, typical, floors = (np.array(v, dtype=float) for v in (strengths, typical, floors))
    return PairMoment(np.eye(5)[:, :count], np.eye(count), 0.0, strengths, floors, typical, 1.0)


def test_missing_components_are_counted_against_the_average_of_noise():
    pair = moment([90.0, 40.0, 8.0], [7.0, 6.5, 6.0], [12.0, 11.0, 10.0])
    assert pair.above == 2
    assert pair.floor == 10.0
    assert standing(pair) == 3  # the third is above what noise shows on average


@pytest.mark.parametrize(
    ("strengths", "count"),
    [([90.0, 40.0, 5.0], 2), ([90.0, 5.0, 40.0], 1), ([5.0, 4.0, 3.0], 0), ([90.0, 4.0, 3.5], 1)],
)
def test_those_that_stand_are_counted_up_to_the_first_that_does_not(strengths, count):
    assert standing(moment(strengths, [7.0, 6.5, 6.0], [12.0, 11.0, 10.0])) == count


def test_a_component_must_stand_off_the_plane_of_the_others():
    """The first two are along their own axes and strong, the third adds what noise could have."""
    pair = moment([90.0, 40.0, 8.0], [7.0, 6.5, 6.0], [12.0, 11.0, 10.0])
    pair = replace(pair, core=np.diag([90.0, 40.0, 8.0]))
    assert pair.above == 2
    apart = Recovered(np.diag(np.sqrt([0.9, 0.4, 0.08])), np.full(3, 100.0), converged=True)
    assert _off_the_others(pair, apart).tolist() == [True, True, False]
    # two that differ only in what noise could have made cannot be told apart
    twins = np.sqrt(0.4) * np.array([[1.0, 0.0, 0.1], [1.0, 0.0, -0.1], [0.0, 1.0, 0.0]])
    near = Recovered(twins, np.full(3, 100.0), converged=True)
    assert _off_the_others(pair, near).tolist() == [False, False, True]
    clear = moment([90.0, 40.0, 30.0], [7.0, 6.5, 6.0], [12.0, 11.0, 10.0])
    assert _off_the_others(clear, near).all()
    noise = moment([9.0, 8.0, 7.5], [7.0, 6.5, 6.0], [12.0, 11.0, 10.0])
    assert not _off_the_others(noise, apart).any()


def test_a_component_is_usable_when_noise_drawn_anew_shows_it_again():
    pair = moment([90.0, 40.0, 30.0], [7.0, 6.5, 6.0], [12.0, 11.0, 10.0])
    pair = replace(pair, deviation=1e-3)
    found = Recovered(np.diag(np.sqrt([0.9, 0.4, 0.3])), np.full(3, 100.0), converged=True)
    assert usable(pair, found, triple_noise=1e-3).all()
    assert not usable(pair, found, triple_noise=1e3).any()
    assert not usable(replace(pair, deviation=1e3), found, triple_noise=1e-3).any()
    # the same answer every time: its noise is public
    middling = [usable(pair, found, triple_noise=4.0).tolist() for _ in range(3)]
    assert middling[0] == middling[1] == middling[2]


def test_a_mean_of_several_that_were_not_told_apart_is_not_usable():
    """Half of the way to the next or to nothing, the three make 22.5, 10 and 7.5."""
    pair = moment([90.0, 40.0, 30.0], [7.0, 6.5, 6.0], [12.0, 11.0, 10.0])
    found = Recovered(np.diag(np.sqrt([0.9, 0.4, 0.3])), np.full(3, 100.0), converged=True)
    for hidden, wanted in ((7.0, 3), (9.0, 2), (15.0, 1), (23.0, 0)):
        seen = usable(replace(pair, hidden=hidden), found, triple_noise=0.0, repeats=0)
        assert seen.tolist() == [True] * wanted + [False] * (3 - wanted)


def test_what_is_hidden_is_what_shows_beyond_the_components_or_noise():
    whole, _ = spiked(20, [90.0, 60.0], 0.0, np.random.default_rng())
    one, two, three = (
        full_pair(whole, of_matrix(20), Bulk(0.0), components=count, most=3) for count in (1, 2, 3)
    )
    assert one.hidden == pytest.approx(one.strengths[1])
    assert two.hidden == pytest.approx(two.floors[2])
    assert three.hidden == 0.0


def test_the_edge_is_that_of_the_recorded_noise():
    """Vector and Wishart noise as Gaussian noise of the same edge."""
    rng = np.random.default_rng()
    whole, _ = spiked(20, [90.0], 0.0, rng)
    size = 210
    kinds = [of_matrix(20), Noise(kind="vector", scale=1 / math.sqrt(size), size=size, grid=-40)]
    kinds.append(Noise(kind="wishart", scale=math.sqrt(40) / (3.3302 * 20), size=size, grid=-40))
    pairs = [full_pair(whole, noise, Bulk(0.0), components=1, most=3) for noise in kinds]
    for noise, pair in zip(kinds, pairs, strict=True):
        assert noise.edge(20, 20) == pytest.approx(math.sqrt(40), rel=1e-4)
        assert pair.floors == pytest.approx(pairs[0].floors, rel=1e-4)
