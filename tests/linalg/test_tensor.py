"""Components of symmetric tensors, against the ones they were made of, and against tensorly."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eigenveil.errors import DataError
from eigenveil.linalg import tensor as subject
from eigenveil.linalg.tensor import cubes, identity_terms, multilinear, power_iteration
from matching_tools import matched
from statistics_tools import FALSE_ALARM, mutant

SIZES = st.integers(1, 7)
SEEDS = st.integers(0, 2**32)
# As many components as the tensor has rows, of equal and of different strength.
STRENGTHS = {
    "equal": np.ones,
    "weights of the paper": lambda n: np.sqrt(10 * n / np.linspace(1, 10 * n, n)),
}


def empty():
    return np.random.default_rng()


def orthonormal(rng, count, size):
    return np.linalg.qr(rng.standard_normal((size, size)))[0][:count]


def symmetric_noise(rng, size):
    """Every unique entry N(0, 1)."""
    entries = rng.standard_normal((size, size, size))
    unique = np.sort(np.indices(entries.shape).reshape(3, -1), axis=0)
    return entries[tuple(unique)].reshape(entries.shape)


def assert_components(found, values, vectors, tolerance=1e-7):
    """The same components come first, whatever the order of equal values."""
    scale, count = np.max(values), len(values)
    mine, own = found.values[:count], found.vectors[:count]
    order, distances = matched(mine[:, None] * own, values[:, None] * vectors)
    assert np.max(distances) <= tolerance * scale
    assert np.allclose(mine, values[order], rtol=0, atol=tolerance * scale)
    away = np.linalg.norm(own - vectors[order], axis=1)
    assert np.max(away) <= tolerance * np.max(scale / values)


def assert_in_form(found, tensor):
    """What the attributes promise of every answer."""
    assert np.all(found.values >= 0)
    assert np.all(np.diff(found.values) <= 0)
    assert np.allclose(np.linalg.norm(found.vectors, axis=1), 1.0, atol=1e-12)
    rest = tensor - cubes(found.values, found.vectors)
    whole = np.linalg.norm(tensor)
    assert found.residual == pytest.approx(np.linalg.norm(rest) / whole if whole else 0, abs=1e-12)


# The building blocks


@given(SIZES, SIZES, SIZES, SEEDS)
def test_a_tensor_seen_through_matrices_one_after_the_other(size, first, second, seed):
    rng = np.random.default_rng(seed)
    tensor = rng.standard_normal((size, size, size))  # no symmetry: modes must keep their places
    w, v = rng.standard_normal((size, first)), rng.standard_normal((first, second))
    seen = multilinear(tensor, w)
    assert np.allclose(seen, np.einsum("abc,ai,bj,ck->ijk", tensor, w, w, w))
    assert np.allclose(multilinear(seen, v), multilinear(tensor, w @ v))
    assert np.allclose(multilinear(tensor, np.eye(size)), tensor)


@given(SIZES, SIZES, SIZES, SEEDS)
def test_cubes_are_seen_as_cubes_of_the_seen_vectors(count, size, seen, seed):
    rng = np.random.default_rng(seed)
    weights, vectors = rng.standard_normal(count), rng.standard_normal((count, size))
    tensor = cubes(weights, vectors)
    expected = np.einsum("k,ka,kb,kc->abc", weights, vectors, vectors, vectors)
    assert np.allclose(tensor, expected)
    matrix = rng.standard_normal((size, seen))
    assert np.allclose(multilinear(tensor, matrix), cubes(weights, vectors @ matrix))
    mixed = rng.permutation(count)
    assert np.allclose(tensor, cubes(weights[mixed], vectors[mixed]))


@given(SIZES, SEEDS)
def test_identity_terms_are_what_spherical_noise_adds_to_a_third_moment(size, seed):
    """Noise of +-sqrt(D) e_d with equal chances has the moments 0, I, 0 exactly."""
    mean = np.random.default_rng(seed).standard_normal(size)
    rows = mean + np.sqrt(size) * np.concatenate([np.eye(size), -np.eye(size)])
    moment = cubes(np.full(len(rows), 1 / len(rows)), rows)
    assert np.allclose(moment - identity_terms(mean), cubes(np.ones(1), mean[None]))


# Exact decompositions


@given(SIZES, SEEDS, st.data())
def test_orthogonal_components_are_recovered_and_the_rest_is_nothing(size, seed, data):
    """Also of equal values, whose order is free, of none, and of negative ones.

    Those are positive ones seen from behind.
    """
    rank = data.draw(st.integers(0, size))
    count = data.draw(st.integers(max(1, rank), size))
    sizes = st.floats(0.1, 10) | st.sampled_from([1.0, 2.0, -2.0]) | st.floats(-10, -0.1)
    values = np.array(data.draw(st.lists(sizes, min_size=rank, max_size=rank)))
    rng = np.random.default_rng(seed)
    vectors = orthonormal(rng, rank, size)
    tensor = cubes(values, vectors)
    found = power_iteration(tensor, count, rng=rng)
    assert_in_form(found, tensor)
    assert np.all(found.converged)
    assert found.residual < 1e-7
    if rank:
        assert_components(found, np.abs(values), np.sign(values)[:, None] * vectors)
    # the components that are not there
    assert not np.any(found.values[rank:])
    assert not np.any(found.iterations[rank:])
    assert np.allclose(found.vectors @ found.vectors.T, np.eye(count), atol=1e-6)


@pytest.mark.parametrize("strengths", STRENGTHS)
@pytest.mark.parametrize("size", [20, 50])
def test_many_components_are_recovered(size, strengths):
    rng = empty()
    values, vectors = STRENGTHS[strengths](size), orthonormal(rng, size, size)
    tensor = cubes(values, vectors)
    found = power_iteration(tensor, size, rng=rng)
    assert_in_form(found, tensor)
    assert np.all(found.converged)
    assert_components(found, values, vectors)


def test_the_strongest_are_found_first():
    # All starts must miss the strongest left, which draws more than half of them (each value is a
    # third of the one before): a chance below 3 * 2^-30.
    rng = empty()
    values, vectors = 3.0 ** -np.arange(6), orthonormal(rng, 6, 9)
    found = power_iteration(cubes(values, vectors), 3, rng=rng)
    assert_components(found, values[:3], vectors[:3])
    assert found.residual == pytest.approx(np.linalg.norm(values[3:]) / np.linalg.norm(values))


# Laws

# The strongest component left draws a tenth of the starts or more, so it is taken first but for a
# chance below 0.9^300 < 2e-14, and the answer is the same whatever the starts.
PLENTY = 300


def noisy(rng, size=6, noise=0.1):
    """Components of values 1, 2, ..., which noise exchanges with chance below 1e-10."""
    clean = cubes(np.arange(1.0, size + 1), orthonormal(rng, size, size))
    return clean + noise / np.sqrt(size) * symmetric_noise(rng, size)


def twisted(rng, tensor):
    other = rng.standard_normal(tensor.shape)
    return tensor + other - sum(other.transpose(modes) for modes in permutations(range(3))) / 6


def test_components_turn_with_the_tensor_of_which_only_the_symmetric_part_counts():
    rng = empty()
    tensor, turn, order = noisy(rng), orthonormal(rng, 6, 6), rng.permutation(6)
    plain = power_iteration(tensor, 6, rng=rng, restarts=PLENTY)
    for changed, vectors in (
        (multilinear(tensor, turn), plain.vectors @ turn),
        (tensor[np.ix_(order, order, order)], plain.vectors[:, order]),
        (twisted(rng, tensor), plain.vectors),
    ):
        found = power_iteration(changed, 6, rng=rng, restarts=PLENTY)
        assert_components(found, plain.values, vectors, tolerance=1e-6)


@pytest.mark.parametrize("factor", [2.0**-600, 0.5, -(2.0**40), 2.0**900])
def test_values_scale_with_the_tensor_to_the_last_digit(factor):
    tensor = noisy(empty())
    plain = power_iteration(tensor, 6, rng=np.random.default_rng(1))
    scaled = power_iteration(tensor * factor, 6, rng=np.random.default_rng(1))
    assert np.array_equal(scaled.values, plain.values * abs(factor))
    assert np.array_equal(scaled.vectors, plain.vectors * np.sign(factor))
    assert scaled.residual == plain.residual


def test_the_answer_follows_from_the_arguments_alone():
    tensor = noisy(empty())
    before, state = tensor.copy(), np.random.get_state()[1].copy()
    first = power_iteration(tensor, 4, rng=np.random.default_rng(3))
    second = power_iteration(tensor, 4, rng=np.random.default_rng(3))
    assert np.array_equal(tensor, before)
    assert np.array_equal(np.random.get_state()[1], state)
    assert np.array_equal(first.values, second.values)
    assert np.array_equal(first.vectors, second.vectors)
    assert np.array_equal(first.iterations, second.iterations)


# Under noise


def noise_bounds(size, sigma, tests):
    """How far noise moves a component of value 1, and its value: to first order, and half more.

    Noise E moves v by ``P E(I, v, v) / value``, P orthogonal to v, and its value by ``E(v, v, v)``.
    An entry counts up to six times in the tensor, so ``E(x, v, v)``, which is E's product with a
    tensor of norm 1/sqrt(3) for x orthogonal to v and 1 for v, has variance at most 2 sigma^2 for
    x and 6 sigma^2 for v. Exceeded, to first order, with chance ``FALSE_ALARM`` in ``tests`` tests
    of each; the half is for terms of higher order, a quarter of the first at most (measured).
    """
    each = FALSE_ALARM / 2 / tests
    moved = sigma * np.sqrt(2 * stats.chi2.isf(each, size - 1))
    return 1.5 * moved, 1.5 * np.sqrt(6) * sigma * stats.norm.isf(each / 2)


@pytest.mark.parametrize("strengths", STRENGTHS)
@pytest.mark.parametrize(("size", "count"), [(6, 6), (20, 20), (20, 3), (40, 5), (50, 50)])
def test_noise_moves_components_no_farther_than_it_must(size, count, strengths):
    rng, sigma = empty(), 0.05 / np.sqrt(size)
    values, vectors = STRENGTHS[strengths](count), orthonormal(rng, count, size)
    tensor = cubes(values, vectors) + sigma * symmetric_noise(rng, size)
    found = power_iteration(tensor, count, rng=rng)
    assert_in_form(found, tensor)
    assert np.all(found.converged)
    order, distances = matched(found.vectors, vectors)
    most_moved, most_changed = noise_bounds(size, sigma, count)
    assert most_moved < 0.35  # far from what another component's vector would show, sqrt(2)
    assert np.max(distances * values[order]) <= most_moved
    assert np.max(np.abs(found.values - values[order])) <= most_changed


def test_without_deflation_the_same_component_would_be_found_again():
    lazy = mutant(power_iteration, "left -= cubes(", "cubes(")
    values, vectors = np.linspace(1, 2, 6), orthonormal(empty(), 6, 6)
    found = lazy(cubes(values, vectors), 6, rng=empty())
    assert np.max(matched(found.vectors, vectors)[1]) > 0.5


def test_starts_from_the_positive_orthant_would_miss_the_strongest_component():
    """A strong component across the orthant, and one along its middle that draws all such starts.

    A start u goes to the strong one when 3 |u1 - u2| / sqrt(2) > 2 sum(u) / sqrt(60). For u with
    uniform entries that takes a sum of 60 below 8.3, of mean 30 and deviation 2.2: a chance below
    1e-20 (Chernoff). A Gaussian start goes there with chance 2 atan(3/2) / pi = 0.63.
    """
    size = 60
    across = np.zeros(size)
    across[:2] = np.sqrt(0.5), -np.sqrt(0.5)
    middle = np.full(size, 1 / np.sqrt(size))
    tensor = cubes(np.array([3.0, 2.0]), np.stack([across, middle]))
    found = power_iteration(tensor, 1, rng=empty())
    assert found.values == pytest.approx([3.0])
    assert np.allclose(found.vectors[0], across)
    orthant = mutant(power_iteration, "rng.standard_normal(", "rng.random(")
    assert orthant(tensor, 1, rng=empty()).values == pytest.approx([2.0])


@pytest.mark.parametrize(
    ("most", "tolerance", "enough"),
    [(1, 1e-9, False), (3, 1e-9, False), (1000, 1e-9, True), (1000, 1e-3, True)],
)
def test_convergence_is_what_it_says(most, tolerance, enough):
    rng = empty()
    tensor = noisy(rng, size=12)
    found = power_iteration(tensor, 1, rng=rng, iterations=most, tolerance=tolerance)
    assert_in_form(found, tensor)
    (value,), (vector,), (steps,) = found.values, found.vectors, found.iterations
    off = np.linalg.norm(tensor @ vector @ vector - value * vector)
    assert bool(off <= tolerance * value * (1 + 1e-4)) == enough
    assert found.converged.tolist() == [enough]
    assert steps < most if enough else steps == most


def bent(y, z):
    """``T(u, u, u) = u_x^3 + 3 y u_x u_y^2 + 3 z u_x u_z^2``.

    From near (1, 0, 0), a power step multiplies the other coordinates by 2 y and 2 z; there is a
    maximum where both are below 1.
    """
    tensor = np.zeros((3, 3, 3))
    tensor[0, 0, 0] = 1.0
    for i, bend in ((1, y), (2, z)):
        tensor[0, i, i] = tensor[i, 0, i] = tensor[i, i, 0] = bend
    return tensor


def polished(tensor, start, *, most):
    return subject._polished(tensor, np.array(start) / np.linalg.norm(start), most, 1e-12)


def test_a_maximum_is_reached_where_power_steps_swing_away_or_creep():
    tensor, start = bent(-0.9, 0.48), np.array([1.0, 0.1, 0.1])
    value, vector, converged, steps = polished(tensor, start, most=20)
    assert converged
    assert steps <= 6
    assert value == pytest.approx(1.0)
    assert np.allclose(vector, [1.0, 0.0, 0.0])
    after = tensor @ start @ start
    assert np.allclose((after / after[0])[1:], [-0.18, 0.096], rtol=0.03)


def height(tensor, u):
    return tensor @ u @ u @ u / np.linalg.norm(u) ** 3


def test_a_step_climbs_where_a_power_step_or_a_newton_step_would_fall():
    tensor, start = bent(-0.9, 0.6), np.array([1.0, 0.3, 0.0])
    assert height(tensor, tensor @ start @ start) < height(tensor, start)
    value, vector, converged, steps = polished(tensor, start, most=1)
    assert value == pytest.approx(height(tensor, vector))
    assert value > height(tensor, start)
    assert (converged, steps) == (False, 1)
    bold = mutant(subject._polished, "climbed = seen[1] >= value * (1.0 - 1e-12)", "climbed = True")
    tensor, start = bent(0.0, 0.0), np.array([1.0, 0.5, 0.5])
    unit = start / np.linalg.norm(start)
    assert height(tensor, bold(tensor, unit, 1, 1e-12)[1]) < height(tensor, start)
    assert polished(tensor, start, most=1)[0] > height(tensor, start)


def test_a_start_at_a_minimum_is_a_maximum_seen_from_behind():
    value, vector, converged, _ = polished(bent(0.0, 0.0), [-1.0, 0.0, 0.0], most=0)
    assert (value, vector.tolist(), converged) == (1.0, [1.0, 0.0, 0.0], True)


@given(st.integers(1, 6), SEEDS)
def test_polishing_ends_at_a_fixed_point_of_power_steps(size, seed):
    rng = np.random.default_rng(seed)
    tensor = symmetric_noise(rng, size)
    start = rng.standard_normal(size)
    start /= np.linalg.norm(start)
    value, vector, converged, steps = polished(tensor, start, most=1000)
    assert np.linalg.norm(vector) == pytest.approx(1.0)
    assert value == pytest.approx(height(tensor, vector))
    assert value >= 0
    assert converged or steps == 1000
    if converged:
        assert np.allclose(tensor @ vector @ vector, value * vector, atol=1e-9)


# Against tensorly, which starts in the positive orthant (enough where every component is asked for)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_all_components_agree_with_tensorly(noise):
    decomposition = pytest.importorskip("tensorly.decomposition")
    rng = empty()
    tensor = noisy(rng, size=8, noise=noise)
    values, vectors = decomposition.symmetric_parafac_power_iteration(
        tensor, rank=8, n_repeat=30, n_iteration=20
    )
    found = power_iteration(tensor, 8, rng=rng)
    # deflation in another order leaves differences of the second order in the noise
    assert_components(found, values, vectors.T, tolerance=1e-6 + 8 * noise**2)


# Refusals

CUBE = np.ones((3, 3, 3))
BROKEN = CUBE.copy()
BROKEN[2, 0, 1] = np.nan


def decomposed(tensor, count, **options):
    return power_iteration(tensor, count, rng=empty(), **options)


@pytest.mark.parametrize(
    ("call", "given", "options", "code", "statement"),
    [
        (decomposed, (np.ones((3, 3)), 1), {}, "not-cubic", "(3, 3)"),
        (decomposed, (np.ones((0, 0, 0)), 1), {}, "not-cubic", "(0, 0, 0)"),
        (decomposed, (BROKEN, 1), {}, "not-finite", "(2, 0, 1)"),
        (decomposed, (CUBE * np.inf, 1), {}, "not-finite", "(0, 0, 0)"),
        (decomposed, (CUBE, 0), {}, "component-count", "not 0"),
        (decomposed, (CUBE, 4), {}, "component-count", "1 to 3"),
        (decomposed, (CUBE, 1), {"restarts": 0}, "out-of-range", "restarts = 0"),
        (decomposed, (CUBE, 1), {"iterations": 0}, "out-of-range", "iterations = 0"),
        (decomposed, (CUBE, 1), {"tolerance": 0.0}, "out-of-range", "tolerance = 0"),
        (multilinear, (np.ones((2, 2, 3)), np.ones((2, 1))), {}, "not-cubic", "(2, 2, 3)"),
        (multilinear, (CUBE, np.ones((2, 3))), {}, "tensor-shape", "(2, 3)"),
        (multilinear, (CUBE, np.ones(3)), {}, "tensor-shape", "(3,)"),
    ],
)
def test_what_cannot_be_decomposed_or_seen_is_refused(call, given, options, code, statement):
    with pytest.raises(DataError) as refused:
        call(*given, **options)
    assert refused.value.code == code
    assert statement in refused.value.message
