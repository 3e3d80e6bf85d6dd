"""PrivateGaussianMixture as scikit-learn users meet it.

Noise is secure unless reproducibility itself is tested. Three clusters six standard deviations from
each other are far above the noise. Measured in 300 fits of 20000 rows at epsilon = 2: the farthest
mean is off by 0.11 (median) to 0.21 (largest), a weight by 0.025 and the noise variance by 0.03 at
the most. A fit that has found them (``recovered``) may be off by three times that; one that missed
a cluster is off by 3 or more. So tests of recovery fail by chance less than once in a million.
"""

import math

import numpy as np
import pytest
import scipy.sparse
from sklearn.mixture import GaussianMixture

from eigenveil import DataError, PrivateGaussianMixture
from eigenveil.federation.protocol.certificates import check
from matching_tools import matched
from results_tools import with_factors
from statistics_tools import FALSE_ALARM, at_least, chi_square, isotropic

FAR = 6.0  # of a cluster's mean from the origin, in standard deviations


class Clusters:
    """Rows about K means on as many axes; the last cluster has twice the rows of the first."""

    def __init__(self, count=3, features=6, rows=20_000, deviation=1.0):
        rng = np.random.default_rng()
        self.means = FAR * np.eye(count, features)
        self.weights = np.linspace(1, 2, count) / np.linspace(1, 2, count).sum()
        self.labels = rng.choice(count, size=rows, p=self.weights)
        self.deviation = deviation
        self.rows = self.means[self.labels]
        self.rows += deviation * rng.standard_normal((rows, features))

    def moved(self, by):
        self.rows, self.means = self.rows + by, self.means + by
        return self

    def scaled(self, factor):
        self.rows, self.means = self.rows * factor, self.means * factor
        self.deviation *= factor
        return self


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def assert_recovered(model, data, *, near=0.6, weights=0.08):
    """All means within ``near``, in units of a sixth of their distance from the origin."""
    size = np.ptp(data.means) / FAR
    order, distances = matched(model.means_, data.means)
    assert distances.max() < near * size
    assert np.allclose(model.weights_, data.weights[order], atol=weights)
    assert model.noise_variance_ == pytest.approx(data.deviation**2, abs=0.15 * size**2)
    assert np.mean(order[model.predict(data.rows)] == data.labels) > 0.998


def recovered(model, data):
    try:
        assert_recovered(model, data)
    except AssertionError:
        return False
    return True


# Recovery


WIDE = {"rows": 40_000}  # six features and as many columns: a sketch is the moment with other noise
KINDS_OF_FITS = [
    (Clusters, {}),
    (lambda: Clusters().moved(100.0), {}),
    (lambda: Clusters().scaled(1e-6), {}),
    (lambda: Clusters().scaled(1e6), {}),
    (Clusters, {"center": False}),
    (Clusters, {"center": np.full(6, -1.0)}),
    (Clusters, {"center": [0.5] * 6}),
    (Clusters, {"noise_variance": 1.0}),
    (Clusters, {"row_bound": 9.0}),
    (Clusters, {"precision": "single"}),
    (lambda: Clusters(deviation=0.0), {}),
    (lambda: Clusters(deviation=0.0), {"noise_variance": 0.0}),
    (lambda: Clusters(4, 4, rows=30_000), {}),
    (lambda: Clusters(4, 4, rows=30_000), {"center": False, "noise_variance": 1.0}),
    *(
        (lambda: Clusters(**WIDE), {"epsilon": 4.0, "delta": 0.0, "mechanism": kind, "pair": pair})
        for kind in ("auto", "vector")
        for pair in ("full", "sketch")
    ),
]


@pytest.mark.parametrize(("made", "options"), KINDS_OF_FITS)
def test_clusters_are_found_whatever_is_asked(made, options):
    data = made()

    def fitted():
        return PrivateGaussianMixture(len(data.means), **{"epsilon": 2.0} | options).fit(data.rows)

    model = fitted()
    if len(data.means) < data.means.shape[1]:
        assert_recovered(model, data)
    else:  # of as many columns as means, one fit in a hundred is off: false alarm below 1e-8
        assert at_least(2, (recovered(fitted(), data) for _ in range(7)))
    assert model.usable_.tolist() == [True] * len(data.means)
    assert model.converged_
    assert model.n_samples_ == pytest.approx(len(data.rows), rel=0.1)
    assert model.weights_ @ model.covariances_ == pytest.approx(model.noise_variance_)
    assert list(model.weights_) == sorted(model.weights_, reverse=True)
    assert model.weights_.sum() == pytest.approx(1.0)
    assert np.isfinite(model.score_samples(data.rows)).all()
    if options.get("noise_variance"):
        assert model.noise_variance_ == pytest.approx(1.0, rel=1e-12)
    released = {record.name for record in model.certificate_.releases}
    assert ("center" in released) == ("center" not in options)
    if "row_bound" in options:
        assert not {"scale", "scale of centered rows"} & released
    assert (model.guarantee_.mu is None) == (options.get("delta") == 0.0)


def test_standardised_rows_with_dependent_means_are_found():
    data = Clusters()
    middle, size = data.rows.mean(axis=0), data.rows.std()
    data.moved(-middle).scaled(1 / size)
    assert np.allclose(data.weights @ data.means, 0.0, atol=0.1)  # three means, two directions
    assert_recovered(PrivateGaussianMixture(3, epsilon=2.0).fit(data.rows), data)


def test_a_public_bound_leaves_out_the_scale_but_not_the_count():
    data = Clusters()
    centered = PrivateGaussianMixture(3, epsilon=2.0, row_bound=9.0).fit(data.rows)
    plain = PrivateGaussianMixture(3, epsilon=2.0, row_bound=9.0, center=False).fit(data.rows)
    for model in (centered, plain):
        assert_recovered(model, data)
        # the count's noise is below 50 rows
        assert model.n_samples_ == pytest.approx(len(data.rows), abs=500)
        assert model.n_samples_ != len(data.rows)
    assert plain.row_bound_ == 9.0


def test_a_sketch_finds_what_the_full_moment_finds():
    """Of 300 features: means off by 0.43 (full) and 1.03 (sketch), at most 1.40 in 130 fits.

    A sketch's weights are off by 0.03, 0.07 in one fit of ten and at most 0.10: 0.25 is nine times
    the median.
    """
    data = Clusters(features=300)
    full = PrivateGaussianMixture(3, epsilon=4.0, pair="full").fit(data.rows)
    sketch = PrivateGaussianMixture(3, epsilon=4.0, pair="sketch").fit(data.rows)
    assert_recovered(full, data, near=1.0)
    assert_recovered(sketch, data, near=2.5, weights=0.25)
    sizes = {r.statistic: r.noise.size for r in sketch.certificate_.releases}
    assert sizes["sketch"] == 300 * 12
    assert "second-moment" not in sizes


# What rows may be


def test_whole_numbers_and_sparse_rows_are_rows_too():
    data = Clusters().scaled(10.0)
    whole = np.rint(data.rows).astype(np.int32)
    model = PrivateGaussianMixture(3, epsilon=2.0).fit(whole)
    assert_recovered(model, data)
    for kind in (scipy.sparse.csr_array, scipy.sparse.csc_matrix, scipy.sparse.coo_array):
        assert np.allclose(model.predict_proba(kind(whole)), model.predict_proba(whole), atol=1e-9)
        assert np.allclose(model.score_samples(kind(whole)), model.score_samples(whole))


# How many components


@pytest.mark.parametrize("count", [1, 3])
def test_auto_finds_how_many_there_are(count):
    """Noise exceeds a floor about once in a hundred fits; 2 of 600 fits were wrong.

    Six of ten are wrong less than once in a million unless more than one in 25 is.
    """

    def right():
        data = Clusters(count)
        model = PrivateGaussianMixture(epsilon=2.0).fit(data.rows)
        if model.n_components_ == count:
            assert_recovered(model, data)
            assert model.means_.shape == (count, 6)
            assert check(model.certificate_).holds
        return model.n_components_ == count

    assert at_least(5, (right() for _ in range(10)))


def test_components_that_do_not_stand_above_the_noise_are_left_out():
    """Two of twenty. In 150 fits 2 to 5 were seen; all twenty must be to fail."""
    data = Clusters(2, 40, rows=10_000)
    model = PrivateGaussianMixture(20, epsilon=2.0).fit(data.rows)
    assert 2 <= model.n_components_ <= 10
    assert model.means_.shape == (model.n_components_, 40)
    assert np.isfinite(model.means_).all()
    assert (model.weights_ >= 0).all()
    assert model.weights_.sum() == pytest.approx(1.0)
    # the bulk is not taken for components: what is left of it shows the same variance
    assert model.noise_variance_ == pytest.approx(1.0, abs=0.1)
    assert model.certificate_.stopped is None
    assert check(model.certificate_).holds


def test_both_of_two_components_are_usable_where_no_third_is_found():
    """In 80 fits 56 had both; that none of 18 has is a chance below 1e-9."""
    fits = (
        PrivateGaussianMixture(20, epsilon=2.0).fit(Clusters(2, 40, rows=10_000).rows)
        for _ in range(18)
    )
    assert any(model.usable_.sum() == 2 for model in fits)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("value", [0.0, 7.0])
def test_constant_rows_have_at_most_one_component(value, center):
    rows = np.full((5000, 4), value)

    def is_one():
        model = PrivateGaussianMixture(3, epsilon=2.0, center=center).fit(rows)
        assert np.isfinite(model.means_).all()
        assert np.isfinite(model.score_samples(rows)).all()
        assert check(model.certificate_).holds
        return model.n_components_ == 1

    # two of noise may show as much as it does on average, but not in all of twenty fits
    assert at_least(1, (is_one() for _ in range(20)))


# Errors

FEW = np.random.default_rng(0).standard_normal((20, 6))
EVEN = {"scale": 1, "center": 1, "scores": 1, "moment": 1, "tensor": 1, "sums": 1}


@pytest.mark.parametrize("options", [{}, {"center": False}, {"delta": 0.0}])
def test_a_data_set_too_small_for_the_budget_ends_early_and_spends_no_more(options):
    """Noise passes for rows in 7 of 1000 fits, Laplace noise in 17 of 100 (600 fits each).

    Fewer than 5 of 20 fits that stop here have chance below 1e-8.
    """
    fits = [PrivateGaussianMixture(1, epsilon=0.1, **options).fit(FEW) for _ in range(20)]
    stopped = [m for m in fits if "histogram" in (m.certificate_.stopped or "")]
    assert len(stopped) >= 5
    for model in stopped:
        assert model.means_.shape == (1, 6)
        assert not model.usable_.any()
        assert 0 < model.guarantee_.epsilon < 0.1
        assert model.guarantee_.delta <= options.get("delta", 1e-6)
        verdict = check(model.certificate_)
        assert verdict.holds
        assert "The fit ended after" in verdict.explanation


# The fitted model


@pytest.fixture(scope="module")
def fitted():
    data = Clusters()
    return PrivateGaussianMixture(3, epsilon=2.0).fit(data.rows), data


def exact_twin(model):
    """scikit-learn's mixture with the same parameters."""
    twin = GaussianMixture(model.n_components_, covariance_type="spherical")
    twin.weights_, twin.means_ = model.weights_, model.means_
    twin.covariances_ = model.covariances_
    twin.precisions_cholesky_ = 1 / np.sqrt(model.covariances_)
    return twin


@pytest.mark.parametrize("origin", [0.0, 1e6])
@pytest.mark.parametrize("length", [1.0, 1e-9])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_prediction_is_that_of_scikit_learn_with_the_same_parameters(fitted, origin, length, kind):
    model, data = fitted
    moved = with_factors(
        model,
        means=length * (model.means_ + origin),
        noise_variance=length**2 * model.noise_variance_,
    )
    rows = (length * (data.rows[:2000] + origin)).astype(kind)
    # the twin forgets the digits of far rows, so it is asked about the origin
    twin = exact_twin(moved)
    twin.means_ = moved.means_ - length * origin
    seen = rows.astype(np.float64) - length * origin
    assert np.array_equal(moved.predict(rows), twin.predict(seen))
    assert np.allclose(moved.predict_proba(rows), twin.predict_proba(seen), atol=1e-6)
    assert np.allclose(moved.score_samples(rows), twin.score_samples(seen), rtol=1e-6)
    assert moved.score(rows) == pytest.approx(twin.score(seen), rel=1e-6)


def test_probabilities_add_up_and_choose(fitted):
    model, data = fitted
    chances = model.predict_proba(data.rows)
    assert np.allclose(chances.sum(axis=1), 1.0)
    assert (chances >= 0).all()
    assert np.array_equal(chances.argmax(axis=1), model.predict(data.rows))
    far = np.full((1, 6), 1e9)  # no density is left, but there is a likeliest component
    assert np.isfinite(model.score_samples(far)).all()
    assert model.predict_proba(far).sum() == pytest.approx(1.0)


def test_samples_follow_the_mixture(fitted):
    model, _ = fitted
    rows, labels = model.sample(20_000)
    assert rows.shape == (20_000, 6)
    assert chi_square(np.bincount(labels, minlength=3), model.weights_) > FALSE_ALARM
    about = rows - model.means_[labels]
    assert isotropic(about, math.sqrt(model.noise_variance_)) > FALSE_ALARM
    again = [model.sample(5, random_state=1)[0] for _ in range(2)]
    assert np.array_equal(*again)
    with pytest.raises(DataError, match="n_samples = 0"):
        model.sample(0)


# Privacy


def test_a_larger_share_is_a_smaller_noise():
    rows = Clusters().rows

    def noise(split):
        model = PrivateGaussianMixture(3, epsilon=2.0, budget_split=split).fit(rows)
        return {record.name: record.mu() for record in model.certificate_.releases}

    even, tilted = noise(EVEN), noise({**EVEN, "tensor": 5})
    assert even["triple moment"] == pytest.approx(even["pair moment"])
    assert tilted["triple moment"] == pytest.approx(math.sqrt(5) * tilted["pair moment"])
    assert tilted["triple moment"] > even["triple moment"]
    assert tilted["center"] < even["center"]
