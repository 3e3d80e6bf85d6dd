"""Data sets of K and K - 1 rows, of 1 and of 0, and blocks and sites without rows."""

from __future__ import annotations

import numpy as np
import pytest

from eigenveil import FederatedPCA, PrivatePCA, PrivateStreamingPCA
from eigenveil.io import open_rows
from eigenveil.moments.accumulators import RowSum, SecondMoment
from eigenveil.moments.release import capacity, noise_integers, noisy_integers, release_sum
from eigenveil.moments.rows import Block, RowRule
from eigenveil.noise.entries import from_coordinates
from eigenveil.noise.source import SeededSource
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.calibration import calibrated_record

D, K = 4, 3
ROWS = np.random.default_rng(2).standard_normal((40, D))
PCA = {"row_bound": 3.0, "epsilon": 20.0, "random_state": 5}


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("mechanism", ["gaussian", "sketch", "power", "bingham"])
@pytest.mark.parametrize("count", [1, K - 1, K])
def test_one_table(count, mechanism, center):
    delta = {"delta": 0.0} if mechanism == "bingham" else {}
    asked = PCA | delta | {"center": center, "mechanism": mechanism}
    assert PrivatePCA(K, **asked).fit(ROWS[:count]).components_.shape == (K, D)


def test_an_array_without_rows_is_refused_as_scikit_learn_has_it():
    """The one public assumption: who calls fit(X) says that there is a row."""
    for model in (PrivatePCA(2), PrivateStreamingPCA(2)):
        with pytest.raises(ValueError, match="0 sample"):
            model.fit(ROWS[:0])


@pytest.mark.parametrize("count", [0, 1, K - 1])
def test_files(count, tmp_path):
    paths = [tmp_path / "a.csv", tmp_path / "b.npy"]
    paths[0].write_text("a,b,c,d\n" + "".join(f"{','.join(map(str, r))}\n" for r in ROWS[:count]))
    np.save(paths[1], ROWS[:count])
    for path in paths:
        rows = open_rows([path])
        assert PrivatePCA(K, **PCA).fit_rows(rows).components_.shape == (K, D)


@pytest.mark.parametrize("publish", [{}, {"publish": "continual", "horizon": 4}])
@pytest.mark.parametrize("count", [0, 1, K])
def test_streams(count, publish):
    stream = PrivateStreamingPCA(K, epsilon=20.0, random_state=5, **publish)
    stream.partial_fit(ROWS[:0]).partial_fit(ROWS[:count]).release()
    assert stream.blocks_ == 2
    assert stream.components_.shape == (K, D)


@pytest.mark.parametrize("dropouts", [0, 1])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("count", [0, 1])
def test_a_site_with_few_rows_takes_part(count, adjacency, dropouts):
    asked = PCA | {"protocol": "cape", "dropouts": dropouts, "adjacency": adjacency}
    found = FederatedPCA(2, **asked).fit({"a": ROWS[:count], "b": ROWS[:20], "c": ROWS[20:]})
    assert found.missing_ == {}
    assert found.certificate_.federation.taking_part == 3


def record_for(sums, mu=1.0):
    budget = StepBudget(mu=mu)
    return calibrated_record(sums, name="a", adjacency="add-remove", kind="gaussian", budget=budget)


def filled(rows):
    """A second moment with the settled sums of this many equal rows: nobody can add so many."""
    rule = RowRule(bound=1.0)
    made = SecondMoment(rule, features=2)
    one = SecondMoment(rule, features=2)
    one.update(Block(np.array([[0.8, 0.6]])))
    part = one.integers()
    left, total = rows, made._sum
    total._flush()
    while left:
        some = min(left, 1 << 25)
        total._settled.add(part * some, some)
        left -= some
    return made, part.astype(object) * rows


def whole(made, entries):
    return from_coordinates(made.layout, made.shape, entries)


@pytest.mark.parametrize("rows", [2**25, 2**26 - 1, 2**26, 2**26 + 1, 2**27, 2**29 + 12345])
def test_a_release_is_one_function_of_sum_and_noise_for_any_number_of_rows(rows):
    made, exact = filled(rows)
    for mu in (1.0, 2.0**14):  # the second has a grid of its own, finer than the sum's
        record = record_for(made, mu)
        shift = made.grid - record.noise.grid
        noise = whole(made, noise_integers(made, record, SeededSource(7))).astype(object)
        noisy = (exact << shift) + noise
        known = np.array([float(int(v)) for v in noisy.ravel()]).reshape(2, 2)
        found = release_sum(made, record, SeededSource(7)).values
        assert np.array_equal(found, known * 2.0**record.noise.grid)
        # parties' sums are the same modulo 2**64, and nothing is refused
        wrapped = whole(made, noisy_integers(made, record, SeededSource(7)))
        assert wrapped.dtype == np.int64
        assert np.array_equal(wrapped.astype(object) % 2**64, noisy % 2**64)
        if rows <= capacity(record):
            assert np.array_equal(wrapped.astype(object), noisy)
    assert capacity(record_for(made)) >= 2**25


def test_counts_beyond_64_bits():
    made = RowSum(RowRule(bound=1.0, extra_bits=2), features=2, count_weight=0.25)
    made._count = 2**60 * made._count_unit
    found = release_sum(made, record_for(made), SeededSource(1)).values
    assert abs(found[-1] - 2.0**58) < 2.0**10
