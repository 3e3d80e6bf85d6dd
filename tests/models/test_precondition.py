"""What the second of two releases of a second moment looks at, and what both say together."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from eigenveil.models.explained import strength_floor
from eigenveil.models.pca.adaptive import merged
from eigenveil.models.pca.precondition import ONE_RELEASE, Preconditioner, candidates, precondition
from soak_tools import times

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
        vectors=np.eye(size),
        weights=np.ones(size),
        bound=1.0,
        energies=np.ones(size),
        resolved=0,
        rows=1.0,
    )


@settings(deadline=None, max_examples=times(150))
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
                both = merged(first, error, how, second, error, components=components)
                assert np.all(np.isfinite(both.matrix))
                assert math.isfinite(both.edge)
                np.testing.assert_array_equal(both.matrix, both.matrix.T)


def test_without_weights_both_are_averaged_by_precision() -> None:
    rng = np.random.default_rng(3)
    first, second = noise(rng, 6, 2.0), noise(rng, 6, 3.0)
    both = merged(first, 2.0, identity(6), second, 3.0, components=2)
    np.testing.assert_allclose(both.mean, (first / 4 + second / 9) / (1 / 4 + 1 / 9), rtol=1e-12)
    alike = merged(first, 2.0, None, second, 3.0, components=2)
    np.testing.assert_allclose(alike.mean, both.mean, rtol=1e-12)
    np.testing.assert_allclose(alike.matrix, both.matrix, atol=1e-12)
    error = 1 / math.sqrt(1 / 4 + 1 / 9)
    assert both.edge == pytest.approx(error * math.sqrt(2 * 6))


def test_noise_without_rows_is_one_release() -> None:
    rng = np.random.default_rng(4)
    assert precondition(noise(rng, 40, 1.0), 1.0, 1.0, components=5, rows=100.0).how is None
    assert precondition(np.zeros((4, 4)), 1.0, 1.0, components=2, rows=0.0).how is None


def test_signs_and_order_of_columns_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    rows = unit_rows(rng, 4000, 1.0 / np.arange(1, 21) ** 2)
    rows = rows @ np.linalg.qr(rng.standard_normal((20, 20)))[0]  # columns alone say little
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


def test_a_turned_average_of_alike_releases_is_the_turned_average() -> None:
    rng = np.random.default_rng(6)
    first, second = noise(rng, 8, 1.0), noise(rng, 8, 1.0)
    turn, _ = np.linalg.qr(rng.standard_normal((8, 8)))
    one = merged(first, 1.0, identity(8), second, 1.0, components=2).mean
    how = replace(identity(8), vectors=turn)
    other = merged(turn @ first @ turn.T, 1.0, how, second, 1.0, components=2).mean
    np.testing.assert_allclose(other, turn @ one @ turn.T, atol=1e-12)


def test_both_releases_are_in_the_same_units() -> None:
    # Noise is a thousandth of what would blur anything: no false alarms.
    rng = np.random.default_rng(7)
    rows = unit_rows(rng, 20000, 1.0 / np.arange(1, 13) ** 2)
    exact = rows.T @ rows
    first = exact + noise(rng, 12, 60.0)
    _, made = candidates(first, 60.0, 0.06, components=3, rows=20000.0)
    for how in made.values():
        through = seen(rows, how)
        second = through.T @ through + noise(rng, 12, 0.06)
        both = merged(first, 60.0, how, second, 0.06, components=3).mean
        right = np.linalg.norm(both - exact) / np.linalg.norm(exact)
        assert right < 0.05
        # one that forgets the weights is found out
        forgotten = replace(how, weights=np.sqrt(how.weights))
        wrong = merged(first, 60.0, forgotten, second, 0.06, components=3).mean
        assert np.linalg.norm(wrong - exact) / np.linalg.norm(exact) > 2 * right


def test_predicted_losses_are_those_that_are_measured() -> None:
    """To a factor of 1.5 in the mean of 20 fits: measured 1.02 and 1.06, of standard error 0.04."""
    rng = np.random.default_rng()
    rows = unit_rows(rng, 20000, 1.0 / np.arange(1, 31) ** 1.5)
    exact, size, k, error = rows.T @ rows, 30, 4, 60.0
    best = float(np.sum(np.linalg.eigvalsh(exact)[-k:]))
    predicted, measured = [], []
    for _ in range(20):
        first, later = exact + noise(rng, size, error), noise(rng, size, error)
        losses, made = candidates(first, error, error, components=k, rows=20000.0)
        through = seen(rows, made["searched"])
        found = []
        for how, second in ((None, exact), (made["searched"], through.T @ through)):
            both = merged(first, error, how, second + later, error, components=k).mean
            vectors = np.linalg.eigh(both)[1][:, -k:]
            found.append(1.0 - float(np.sum(vectors * (exact @ vectors))) / best)
        predicted.append((losses[ONE_RELEASE], losses["searched"]))
        measured.append(found)
    ratio = np.mean(measured, axis=0) / np.mean(predicted, axis=0)
    assert np.all((ratio > 1 / 1.5) & (ratio < 1.5))
    assert np.mean(measured, axis=0)[1] < np.mean(measured, axis=0)[0]


@pytest.mark.parametrize("preconditioned", [False, True])
def test_noise_alone_stays_below_the_edge(preconditioned: bool) -> None:
    """The floor is passed once in a hundred times; 10 in 50 are, by chance, less than 1e-9."""
    rng = np.random.default_rng()
    size, fits, passed = 16, 50, 0
    rows = unit_rows(rng, 3000, np.array([1.0, 0.5] + [0.0] * (size - 2)))
    exact = rows.T @ rows if preconditioned else np.zeros((size, size))
    for _ in range(fits):
        first, second, how = exact + noise(rng, size, 25.0), exact, None
        if preconditioned:
            _, made = candidates(first, 25.0, 25.0, components=3, rows=3000.0)
            how = next(iter(made.values()))
            second = seen(rows, how).T @ seen(rows, how)
        both = merged(first, 25.0, how, second + noise(rng, size, 25.0), 25.0, components=3)
        floor = strength_floor(both.edge, 0.0, size=size)
        signals = 2 if preconditioned else 0
        shown = (np.linalg.eigvalsh(each)[-1 - signals] for each in (both.mean, both.matrix))
        passed += bool(max(shown) > floor)
    assert binom.sf(9, fits, 0.01) < 1e-9
    assert passed < 10


def test_columns_without_energy_are_denoised() -> None:
    """Half of the columns hold nothing: a quarter of the loss goes at least, of 20 fits' mean."""
    rng = np.random.default_rng()
    spectrum = np.concatenate([1.0 / np.arange(1, 41), np.zeros(40)])
    rows = unit_rows(rng, 4000, spectrum)
    exact, losses = rows.T @ rows, []
    best = float(np.sum(np.linalg.eigvalsh(exact)[-8:]))
    for _ in range(20):
        both = merged(
            exact + noise(rng, 80, 20.0),
            20.0,
            None,
            exact + noise(rng, 80, 20.0),
            20.0,
            components=8,
        )
        found = [np.linalg.eigh(each)[1][:, -8:] for each in (both.mean, both.matrix)]
        losses.append([1 - float(np.sum(v * (exact @ v))) / best for v in found])
    raw, clean = np.mean(losses, axis=0)
    assert clean < raw / 1.3


def test_few_directions_that_stand_out_leave_the_energy_to_those_that_do_not_yet() -> None:
    """A third of K stands out: a share of .1 for them captures more than .3 does, in all 4 fits.

    By .0075 in their mean, of standard deviation .0017; noise and rows are the same in every run.
    """
    rng = np.random.default_rng(11)
    rows = unit_rows(rng, 6000, 1.0 / np.arange(1, 101))
    exact, size, k, error = rows.T @ rows, 100, 30, 9.0
    best, gains = float(np.sum(np.linalg.eigvalsh(exact)[-k:])), []
    for _ in range(4):
        first, later = exact + noise(rng, size, error), noise(rng, size, error)
        how = candidates(first, error, error, components=k, rows=6000.0)[1]["inverse"]
        r, found = how.resolved, []
        assert 0 < r < k
        parts = how.weights**2 * how.energies
        assert np.sum(parts[:r]) / np.sum(parts) == pytest.approx(0.5 * (r / k) ** 1.5)
        more = how.weights.copy()
        more[:r] *= math.sqrt(0.3 / 0.7 * np.sum(parts[r:]) / np.sum(parts[:r]))
        for each in (how, replace(how, weights=more / np.max(more))):
            second = seen(rows, each).T @ seen(rows, each) + later
            both = merged(first, error, each, second, error, components=k).mean
            vectors = np.linalg.eigh(both)[1][:, -k:]
            found.append(float(np.sum(vectors * (exact @ vectors))) / best)
        gains.append(found[0] - found[1])
    assert min(gains) > 0.0
