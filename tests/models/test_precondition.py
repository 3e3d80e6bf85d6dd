"""What the second of two releases of a second moment looks at, and what both say together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from eigenveil.models.pca.precondition import (
    ONE_RELEASE,
    Preconditioner,
    candidates,
    merged,
    precondition,
)

Array = NDArray[np.float64]


def noise(rng: np.random.Generator, size: int, error: float) -> Array:
    drawn = rng.standard_normal((size, size)) * error
    return (drawn + drawn.T) / 2


def unit_rows(rng: np.random.Generator, rows: int, spectrum: Array) -> Array:
    found = rng.standard_normal((rows, spectrum.size)) * np.sqrt(spectrum)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def seen(rows: Array, how: Preconditioner) -> Array:
    through = rows @ how.basis
    norms = np.linalg.norm(through, axis=1, keepdims=True)
    return np.asarray(through / (np.maximum(norms, how.bound) if how.bound else norms))


def identity(size: int) -> Preconditioner:
    return Preconditioner(
        basis=np.eye(size),
        vectors=np.eye(size),
        weights=np.ones(size),
        bound=1.0,
        energies=np.ones(size),
        resolved=0,
        rows=1.0,
    )


@settings(deadline=None, max_examples=40)
@given(
    size=st.integers(1, 7),
    components=st.integers(0, 8),
    power=st.sampled_from([-320, -200, -20, 0, 20, 200, 300]),
    error=st.sampled_from([0.0, 1e-300, 1e-9, 1.0, 1e9, 1e300]),
    rows=st.sampled_from([-5.0, 0.0, 0.3, 100.0, 1e30]),
    rank=st.integers(0, 7),
    seed=st.integers(0, 1000),
)
def test_no_input_makes_it_fail(
    size: int, components: int, power: int, error: float, rows: float, rank: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((size, min(rank, size)))
    first = half @ half.T * 10.0**power
    with np.errstate(over="ignore", under="ignore"):
        choice = precondition(first, error, error, components=components, rows=rows)
        assert next(iter(choice.losses)) == ONE_RELEASE
        assert all(0.0 <= loss <= 1.0 for loss in choice.losses.values())
        assert (choice.how is None) == (choice.chosen == ONE_RELEASE)
        _, made = candidates(first, error, error, components=components, rows=rows)
        for how in made.values():
            assert np.all(np.isfinite(how.basis))
            assert float(np.max(np.linalg.norm(how.basis, axis=0))) <= 1.0 + 1e-12
            np.testing.assert_allclose(how.vectors.T @ how.vectors, np.eye(size), atol=1e-9)
            for second in (np.zeros((size, size)), np.eye(size), -np.eye(size)):
                both = merged(first, error, how, second, error)
                assert np.all(np.isfinite(both.matrix))
                assert math.isfinite(both.edge)
                np.testing.assert_array_equal(both.matrix, both.matrix.T)


def test_without_weights_both_are_averaged_by_precision() -> None:
    rng = np.random.default_rng(3)
    first, second = noise(rng, 6, 2.0), noise(rng, 6, 3.0)
    both = merged(first, 2.0, identity(6), second, 3.0)
    np.testing.assert_allclose(both.matrix, (first / 4 + second / 9) / (1 / 4 + 1 / 9), rtol=1e-12)
    error = 1 / math.sqrt(1 / 4 + 1 / 9)
    assert both.edge == pytest.approx(error * math.sqrt(2 * 6))


def test_noise_without_rows_is_one_release() -> None:
    rng = np.random.default_rng(4)
    assert precondition(noise(rng, 40, 1.0), 1.0, 1.0, components=5, rows=100.0).how is None
    assert precondition(np.zeros((4, 4)), 1.0, 1.0, components=2, rows=0.0).how is None


def test_signs_and_order_of_columns_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    rows = unit_rows(rng, 4000, 1.0 / np.arange(1, 21) ** 2)
    first = rows.T @ rows + noise(rng, 20, 30.0)
    turn = np.eye(20)[rng.permutation(20)] * rng.choice([-1.0, 1.0], 20)
    one = precondition(first, 30.0, 30.0, components=4, rows=4000.0)
    other = precondition(turn.T @ first @ turn, 30.0, 30.0, components=4, rows=4000.0)
    assert one.how is not None
    assert other.how is not None
    assert one.chosen == other.chosen
    outer = one.how.basis @ one.how.basis.T
    np.testing.assert_allclose(
        turn.T @ outer @ turn, other.how.basis @ other.how.basis.T, atol=1e-4 * outer.max()
    )
