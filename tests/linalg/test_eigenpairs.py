"""Leading eigenpairs under noise, against LAPACK's full decomposition in double precision."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eigenveil.linalg import eigen
from eigenveil.linalg.eigen import fix_signs, leading_eigenpairs, left_singular, orthonormal_basis
from eigenveil.linalg.subspace import captured_energy

# LAPACK's subset driver; Lanczos for the last two
SIZES = [(1, 1), (6, 2), (64, 64), (784, 60), (640, 3), (784, 20)]


def noise(size):
    z = np.random.default_rng().standard_normal((size, size))
    return (z + z.T) / 2


def with_signal(size, count):
    """Noise and ``count`` directions well above its edge, sqrt(2 size)."""
    q, _ = np.linalg.qr(np.random.default_rng().standard_normal((size, count)))
    strengths = np.sqrt(2 * size) * np.linspace(3, 9, count)
    return noise(size) + (q * strengths) @ q.T


def exact(matrix, count):
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1][:count], vectors[:, ::-1][:, :count].T


def checked(matrix, count):
    values, vectors = leading_eigenpairs(matrix, count)
    assert values.shape == (count,)
    assert vectors.shape == (count, matrix.shape[0])
    assert np.all(np.diff(values) <= 0)
    assert np.allclose(vectors @ vectors.T, np.eye(count), atol=1e-12)
    return values, vectors


@pytest.mark.parametrize(("size", "count"), SIZES)
def test_signal_is_found_to_the_last_digits(size, count):
    matrix = with_signal(size, count)
    values, vectors = checked(matrix, count)
    true_values, true_vectors = exact(matrix, count)
    assert np.allclose(values, true_values, rtol=1e-10)
    # sine of the largest angle to the true subspace; found in single precision first
    missed = vectors - vectors @ true_vectors.T @ true_vectors
    assert np.linalg.norm(missed, 2) < 1e-5


@pytest.mark.parametrize(("size", "count"), SIZES)
def test_noise_alone_without_any_gap_keeps_all_its_energy(size, count):
    matrix = noise(size)
    values, vectors = checked(matrix, count)
    true_values, _ = exact(matrix, count)
    # without a gap neighbours may be mixed: costs the square of Lanczos' 1e-4, or a little more
    assert np.allclose(values, true_values, atol=1e-6 * np.abs(true_values).max())
    residual = matrix @ vectors.T - vectors.T * values
    assert np.abs(residual).max() < 1e-3 * np.sqrt(2 * size)
    assert np.trace(vectors @ matrix @ vectors.T) == pytest.approx(true_values.sum(), rel=1e-6)


def test_algebraically_largest_are_found_where_the_most_negative_are_larger():
    for size in (20, 650):
        matrix = with_signal(size, 4)
        values, _ = checked(-matrix, 3)
        assert np.allclose(values, exact(-matrix, 3)[0], atol=1e-6)


@pytest.mark.parametrize("scale", [1e-200, 1e-40, 1e40, 1e200])
def test_scales_beyond_single_precision_are_no_hindrance(scale):
    matrix = with_signal(30, 4)
    values, vectors = checked(matrix * scale, 4)
    assert np.allclose(values / scale, exact(matrix, 4)[0], rtol=1e-10)
    assert np.allclose(vectors, leading_eigenpairs(matrix, 4)[1], atol=1e-5)


def test_the_matrix_is_left_unchanged_and_the_answer_repeats():
    matrix = noise(640)
    before = matrix.copy()
    first = leading_eigenpairs(matrix, 5)
    second = leading_eigenpairs(matrix, 5)
    assert np.array_equal(matrix, before)
    assert np.array_equal(first[0], second[0])
    assert np.array_equal(first[1], second[1])


def test_a_randomised_solver_would_lose_energy_where_there_is_no_gap():
    """The mutant that the noise-only test is there for: a range finder with two power steps."""
    matrix = noise(640)
    sample = np.random.default_rng().standard_normal((640, 15))
    for _ in range(3):
        sample = orthonormal_basis(matrix @ sample)
    seen = np.linalg.eigvalsh(sample.T @ matrix @ sample)[::-1][:5]
    assert seen.sum() < 0.95 * exact(matrix, 5)[0].sum()


MATRICES = arrays(
    np.float64,
    st.tuples(st.integers(0, 5), st.integers(1, 6)),
    elements=st.floats(-10, 10) | st.just(0.0),
)


@given(MATRICES, st.data())
def test_signs_are_fixed_once_and_whatever_they_were(components, data):
    fixed = fix_signs(components)
    assert np.array_equal(fix_signs(fixed), fixed)
    assert np.array_equal(np.abs(fixed), np.abs(components))
    flips = data.draw(arrays(np.float64, len(components), elements=st.sampled_from([-1.0, 1.0])))
    assert np.array_equal(fix_signs(components * flips[:, None]), fixed)
    if fixed.size:
        largest = np.take_along_axis(fixed, np.abs(fixed).argmax(axis=1)[:, None], axis=1)
        assert np.all(largest >= 0)


@given(st.integers(1, 12), st.data())
def test_captured_energy_is_a_fraction_and_one_for_the_exact_subspace(size, data):
    count = data.draw(st.integers(1, size))
    seed = data.draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((size + 3, size))
    moment = rows.T @ rows
    other = orthonormal_basis(rng.standard_normal((size, count))).T
    assert 0 <= captured_energy(moment, other) <= 1 + 1e-9
    assert captured_energy(moment, exact(moment, count)[1]) == pytest.approx(1.0, abs=1e-9)
    turned = np.linalg.qr(rng.standard_normal((count, count)))[0] @ other
    assert captured_energy(moment, turned) == pytest.approx(captured_energy(moment, other))
    assert captured_energy(np.diag([8.0, 2.0, 1.0]), np.eye(3)[1:]) == pytest.approx(0.3)


def test_left_singular_vectors_of_a_tall_matrix():
    matrix = np.random.default_rng().standard_normal((40, 7)) * np.arange(1, 8)
    values, vectors = left_singular(matrix, 3)
    assert np.allclose(values**2, exact(matrix @ matrix.T, 3)[0])
    assert np.allclose(np.abs(np.sum(vectors * exact(matrix @ matrix.T, 3)[1], axis=1)), 1.0)
    assert np.array_equal(fix_signs(vectors), vectors)


def test_basis_spans_the_columns():
    matrix = np.random.default_rng().standard_normal((9, 4))
    basis = orthonormal_basis(matrix)
    assert np.allclose(basis.T @ basis, np.eye(4))
    assert np.allclose(basis @ (basis.T @ matrix), matrix)


def test_sizes_above_reach_both_solvers():
    lanczos = [size >= eigen._LANCZOS_FROM and count < size // 25 for size, count in SIZES]
    assert lanczos == [False, False, False, False, True, True]


# LAPACK's subset driver gave up on it in single precision, which ended a fit after its release.
OF_VERY_DIFFERENT_SIZE = [
    [3.050654478429558e-22, -1.0036610876541472e-30, 4.258673683891573e-11, -2.188220181943905e-07],
    [-1.0036610876541472e-30, 8.399300487029747e-15, 2.5917133466739237e-08, 5.240360531369819e-10],
    [
        4.258673683891573e-11,
        2.5917133466739237e-08,
        -1.0829563362861705e-29,
        -5.044306978652556e-10,
    ],
    [-2.188220181943905e-07, 5.240360531369819e-10, -5.044306978652556e-10, -1.0],
]


@pytest.mark.parametrize(
    "matrix",
    [OF_VERY_DIFFERENT_SIZE, np.zeros((4, 4)), np.eye(4), np.diag([2.0, 2.0, 0.0, 0.0])],
    ids=["of very different size", "zeros", "equal", "two equal"],
)
def test_a_matrix_that_is_hard_to_take_apart_does_not_break(matrix):
    for count in range(1, 5):
        values, _ = checked(np.array(matrix), count)
        assert np.allclose(values, exact(matrix, count)[0], atol=1e-6)


@pytest.mark.parametrize("size", [6, 640])
def test_a_driver_that_gives_up_is_replaced(size, monkeypatch):
    def gives_up(*_, **__):
        raise np.linalg.LinAlgError("Internal Error.")

    monkeypatch.setattr(eigen, "_rough_vectors", gives_up)
    checked(with_signal(size, 2), 2)
