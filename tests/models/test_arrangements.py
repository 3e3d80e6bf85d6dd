"""Mixtures whose means are on a line, in a plane, or more than there are columns.

Rows and noise have seeds, so that a fit here gives one result: nothing fails by chance.
"""

import dataclasses
import functools
import warnings

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from eigenveil import FederatedGaussianMixture, NoisyResultWarning, PrivateGaussianMixture
from eigenveil.models.mixture import cells as cells_module
from eigenveil.models.mixture.cells import Cells, CellShape, InPlane, hides_halves, paths, price
from eigenveil.models.mixture.scores import Known
from statistics_tools import mutant

CIRCLE = 4.0 * np.exp(2j * np.pi * np.arange(6) / 6)
MEANS = {
    "line": np.pad([[-3.0], [0.0], [3.0]], [(0, 0), (0, 3)]),
    "oblique line": np.outer([-3.0, 0.0, 3.0], np.full(10, 10**-0.5)),
    "plane": np.pad([[a, b] for a in (-4.0, 0, 4) for b in (-2.0, 2)], [(0, 0), (0, 3)]),
    "circle": np.stack([CIRCLE.real, CIRCLE.imag], axis=1),
    "column": np.array([[-4.0], [0.0], [4.0]]),
}
TYPES = ["spherical", "tied", "diag", "full"]


def drawn(name, rows=20_000, seed=0):
    rng = np.random.default_rng(seed)
    means = MEANS[name]
    labels = rng.integers(len(means), size=rows)
    return means[labels] + rng.standard_normal((rows, means.shape[1])), labels


def fitted(rows, count="auto", **options):
    asked = {"epsilon": 1.0, "delta": 1e-5, "random_state": 0} | options
    with warnings.catch_warnings(action="ignore"):
        return PrivateGaussianMixture(count, **asked).fit(rows)


def agreement(model, rows, labels):
    return adjusted_rand_score(labels, model.predict(rows))


@functools.cache
def without_privacy(name):
    rows, labels = drawn(name)
    exact = GaussianMixture(len(MEANS[name]), covariance_type="spherical", random_state=0)
    return rows, labels, agreement(exact.fit(rows), rows, labels)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", MEANS)
def test_groups_are_found_as_without_privacy(name, kind):
    rows, labels, exact = without_privacy(name)
    count, wanted = len(MEANS[name]), 0.95 * exact
    for asked in (count, "auto"):
        model = fitted(rows, asked, covariance_type=kind)
        assert model.n_components_ == count
        assert model.usable_.all()
        assert agreement(model, rows, labels) >= wanted


@pytest.mark.parametrize(
    "options",
    [
        {"delta": 0.0},
        {"noise_variance": 1.0},
        {"row_bound": 8.0},
        {"precision": "single"},
        {"pair": "sketch"},
        {"center": False},
    ],
    ids=str,
)
def test_on_every_way_of_a_fit(options):
    rows, labels = drawn("line")
    model = fitted(rows, 3, **options)
    assert agreement(model, rows, labels) > 0.7


def test_of_sites_and_of_persons():
    rows, labels = drawn("line")
    sites = {"a": rows[:7000], "b": rows[7000:15_000], "c": rows[15_000:]}
    model = FederatedGaussianMixture("auto", epsilon=1.0, delta=1e-5, random_state=0).fit(sites)
    assert agreement(model, rows, labels) > 0.7
    people = np.arange(20_000) // 2
    one = PrivateGaussianMixture(
        3, epsilon=2.0, delta=1e-5, random_state=0, unit="who", max_rows_per_unit=2
    )
    assert agreement(one.fit(rows, groups=people), rows, labels) > 0.7


@pytest.mark.parametrize("rows", [5000, 20_000])
def test_noisy_sums_do_not_replace_a_better_start(rows):
    """At epsilon .1 a sum about three means of ten columns has more noise than the start."""
    table, labels = drawn("oblique line", rows)
    epsilon = 0.15 * 20_000 / rows
    assert agreement(fitted(table, 3, epsilon=epsilon), table, labels) > 0.65


def test_what_cells_may_hide_is_said():
    rows, _ = drawn("circle", 5000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NoisyResultWarning)
        PrivateGaussianMixture("auto", epsilon=1.0, delta=1e-5, random_state=0).fit(rows)
    assert "There may be more components" in "".join(str(each.message) for each in caught)
    rows, _ = drawn("circle", 100_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoisyResultWarning)
        PrivateGaussianMixture("auto", epsilon=1.0, delta=1e-5, random_state=0).fit(rows)


# Bad input


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("count", [1, 3, 32, "auto"])
@pytest.mark.parametrize(
    "rows",
    [
        np.full((3000, 1), 7.0),
        np.full((3000, 2), 7.0),
        np.zeros((3000, 3)),
        np.random.default_rng(0).standard_normal((10, 2)),
        np.tile(np.random.default_rng(0).standard_normal((1500, 2)), (2, 1)),
        np.repeat([[0.0, 0.0], [1.0, 1e9]], 1500, axis=0),
    ],
    ids=["one column", "two columns", "zeros", "few rows", "twice the same", "two points"],
)
def test_whatever_rows_are_a_fit_ends(rows, count, kind):
    model = fitted(rows, count, covariance_type=kind)
    assert np.isfinite(model.means_).all()
    assert np.isfinite(model.covariances_).all()
    assert model.weights_.sum() == pytest.approx(1.0)
    assert 1 <= model.n_components_ <= 32
    assert np.isfinite(model.score_samples(rows)).all()


@pytest.mark.parametrize("kind", TYPES)
def test_one_cluster_is_not_cut(kind):
    rows = np.random.default_rng(3).standard_normal((20_000, 2))
    assert fitted(rows, covariance_type=kind).n_components_ == 1


# The fit to cells


def cells_of(found, rows=20_000.0, noise=16.0, side=20):
    """The cells of a mixture itself, without noise: of what there is no more to learn."""
    edges = np.linspace(-7.0, 7.0, side + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    places = np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1).reshape(-1, 2)
    empty = Cells(np.zeros(len(places)), places, np.full(2, edges[1] - edges[0]), noise, rows)
    return dataclasses.replace(empty, counts=cells_module._expected(empty, found)[0])


SHAPES = {
    "own variances": CellShape(round=True, shared=False),
    "one covariance": CellShape(round=False, shared=True),
    "own covariances": CellShape(round=False, shared=False),
}


def some_components(shape):
    roots = np.array([[[1.2, 0.0], [0.3, 0.8]], [[0.9, 0.0], [-0.2, 1.1]]])
    if shape.round:
        roots = np.array([1.2, 0.8])[:, None, None] * np.eye(2)
    if shape.shared:
        roots[1] = roots[0]
    return InPlane(np.array([0.6, 0.4]), np.array([[-1.0, 0.5], [2.0, -0.5]]), roots)


def slopes_agree(shape):
    """Against differences along steps as the fit makes them."""
    found = some_components(shape)
    cells = cells_of(found)
    expected, each, scaled = cells_module._expected(cells, found)
    slopes = cells_module._slopes(found, shape, each, scaled)
    size, tiny = slopes.shape[1], 1e-6
    for place in range(size):
        step = np.where(np.arange(size) == place, tiny, 0.0)
        moved = cells_module._stepped(found, shape, step, np.zeros(2))
        change = (cells_module._expected(cells, moved)[0] - expected) / tiny
        if not np.allclose(change, slopes[:, place], atol=1e-3 * np.abs(slopes).max()):
            return False
    return True


@pytest.mark.parametrize("name", SHAPES)
def test_slopes_are_those_of_the_expected_counts(name):
    assert slopes_agree(SHAPES[name])


@pytest.mark.parametrize(
    ("old", "new"), [("kji,kmpj", "kij,kmpj"), ("- (rows == columns)", "+ 0.0")]
)
def test_other_slopes_are_found_out(old, new, monkeypatch):
    changed = mutant(cells_module._slopes, old, new)
    monkeypatch.setattr(cells_module, "_slopes", changed)
    assert not slopes_agree(SHAPES["own covariances"])


@pytest.mark.parametrize("name", SHAPES)
def test_the_components_of_cells_without_noise_are_found_exactly(name):
    shape = SHAPES[name]
    found = some_components(shape)
    cells = cells_of(found)
    one, two = paths(cells, shape, 2)
    order = np.argsort(two.means[:, 0])
    assert two.means[order] == pytest.approx(found.means, abs=0.05)
    assert two.covariances[order] == pytest.approx(found.covariances, abs=0.1)
    assert two.cost + price(cells, shape, 2) < one.cost + price(cells, shape, 1)


def test_errors_are_those_of_many_draws():
    """Means' standard deviations in 60 draws against the predicted: within 40 %, of which 4 sigma
    of a deviation of 60 draws are 37 %."""
    shape, rng = SHAPES["own variances"], np.random.default_rng(0)
    found = some_components(shape)
    exact = cells_of(found)
    draws, predicted = [], []
    for _ in range(60):
        counts = rng.poisson(exact.counts) + exact.noise * rng.standard_normal(exact.counts.size)
        _, two = paths(dataclasses.replace(exact, counts=counts), shape, 2)
        order = np.argsort(two.means[:, 0])
        draws.append(two.means[order].ravel())
        errors = np.sqrt(np.diagonal(two.error)[2:]).reshape(2, 2)
        predicted.append(errors[order].ravel())
    assert np.std(draws, axis=0) == pytest.approx(np.median(predicted, axis=0), rel=0.4)


def test_halves_are_hidden_where_noise_is_large_only():
    shape = SHAPES["own variances"]
    one = InPlane(np.ones(1), np.zeros((1, 2)), 1.5 * np.eye(2)[None])
    assert hides_halves(cells_of(one, noise=5.0), one, shape) == 0.0
    assert hides_halves(cells_of(one, rows=500.0, noise=16.0), one, shape) == 1.0


def test_a_step_is_taken_by_what_is_known():
    basis = np.eye(4)[:, :1]
    known = Known(basis, np.full((2, 1, 1), 4.0), np.array([1.0, 1.0]), np.array([0.1, 0.1]))
    shifts = np.ones((2, 4))
    taken, part = known.kept(shifts, np.array([1e-6, 1e6]))
    assert taken[0] == pytest.approx(1.0)
    assert taken[1] == pytest.approx(0.0, abs=1e-9)
    assert part == pytest.approx([1.0, 0.0], abs=1e-9)
    taken, _ = known.kept(shifts, np.array([2.0, 1.0]))
    assert taken[0] == pytest.approx([0.5, 0.2, 0.2, 0.2])
    weights = known.weighed(np.array([0.5, 0.5]), np.array([0.7, 0.3]), np.array([0.1, 0.1]))
    assert weights == pytest.approx([0.6, 0.4])


# What scikit-learn's mixture has


@pytest.mark.parametrize("kind", TYPES)
def test_criteria_on_rows_are_those_of_scikit_learn(kind):
    rows, _ = drawn("line", 3000)
    model = fitted(rows, 3, covariance_type=kind, epsilon=3.0)
    exact = model.to_sklearn()
    assert model.bic(rows) == pytest.approx(exact.bic(rows))
    assert model.aic(rows) == pytest.approx(exact.aic(rows))


def test_a_fit_predicts_its_rows():
    rows, _ = drawn("line", 3000)
    model = PrivateGaussianMixture(3, epsilon=3.0, delta=1e-5, random_state=0)
    assert np.array_equal(model.fit_predict(rows), model.predict(rows))


def test_released_criteria_are_least_at_the_number_that_is_found(tmp_path):
    rows, _ = drawn("circle")
    model = fitted(rows)
    assert int(np.argmin(model.criteria_)) + 1 == model.n_components_ == 6
    model.save(tmp_path / "m.npz")
    again = PrivateGaussianMixture.load(tmp_path / "m.npz")
    assert np.array_equal(again.criteria_, model.criteria_)
    many = np.eye(6)[np.arange(20_000) % 6] * 9.0 + np.random.default_rng(0).normal(
        size=(20_000, 6)
    )
    assert fitted(many, 6).criteria_.size == 0


@pytest.mark.parametrize("seed", [4, 102, 274])
def test_a_start_beside_a_cluster_reaches_it(seed):
    """One mean of four began between the clusters.

    Rows are shortened about it, so that squares less the step left no variance, the next step was
    shorter, and the fit ended with a variance of a quarter, as 8 of 300 fits of this kind did.
    """
    rng = np.random.default_rng(seed)
    weights = np.linspace(1, 2, 4) / 6.0
    rows = 6.0 * np.eye(4)[rng.choice(4, size=20_000, p=weights)]
    rows = rows + rng.standard_normal((20_000, 4))
    model = fitted(rows, 4, epsilon=2.0, delta=1e-6, random_state=seed)
    assert model.covariances_ == pytest.approx(1.0, abs=0.1)
