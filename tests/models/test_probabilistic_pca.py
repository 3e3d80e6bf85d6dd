"""What a fitted PCA gives beside its components, at no cost: covariance, density, loadings, scores.

Noise is seeded where a number is compared, so that these tests do not fail by chance.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

from eigenveil import FederatedPCA, NoisyResultWarning, PrivatePCA, PrivateStreamingPCA
from eigenveil.cli.app import main
from eigenveil.models.pca.derived import ProbabilisticPCA
from eigenveil.models.pca.estimator import FittedPCA
from results_tools import with_factors

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20_000, 6)) @ RNG.standard_normal((6, 6)) + 5.0
STRONG = {"epsilon": 60.0, "delta": 1e-3, "row_norm": "auto", "random_state": 0}
WHOLE = ["get_covariance", "get_precision", "score", "score_samples", "noise_variance_"]


@pytest.mark.parametrize("count", [1, 3, 5, 6])
def test_as_scikit_learns_where_noise_is_small(count):
    """The released total is off by 0.009 (a deviation), all of it in the noise variance."""
    model, plain = PrivatePCA(count, **STRONG).fit(X), PCA(count).fit(X)
    exact = plain.get_covariance()
    np.testing.assert_allclose(model.get_covariance(), exact, atol=0.02 * np.abs(exact).max())
    assert model.noise_variance_ == pytest.approx(plain.noise_variance_, rel=0.05, abs=0.06)
    assert model.score(X) == pytest.approx(plain.score(X), abs=0.02)
    found = model.get_covariance() @ model.get_precision()
    np.testing.assert_allclose(found, np.eye(6), atol=1e-9)
    np.testing.assert_allclose(model.score_samples(X[:9]).shape, (9,))
    columns, scores = X - X.mean(axis=0), plain.transform(X)
    exact = np.corrcoef(columns.T, scores.T)[:6, 6:]
    if count >= 5:  # then the model's covariance is that of the rows
        signs = np.sign(np.sum(exact * model.loadings_, axis=0))
        np.testing.assert_allclose(model.loadings_, exact * signs, atol=0.06)


@given(
    seed=st.integers(0, 1 << 30),
    features=st.integers(1, 6),
    count=st.integers(1, 6),
    more=st.floats(0.0, 10.0),
    zero=st.booleans(),
)
def test_a_gaussian_of_any_released_variances(seed, features, count, more, zero):
    rng = np.random.default_rng(seed)
    count = min(count, features)
    components = np.linalg.qr(rng.standard_normal((features, features)))[0][:count]
    variance = np.sort(rng.exponential(size=count))[::-1]
    variance[-1] *= not zero
    scale = rng.uniform(0.1, 10.0, features)
    total = float(variance.sum()) + more
    found = ProbabilisticPCA(components, variance, total, scale)
    covariance, precision = found.covariance(), found.precision()
    np.testing.assert_array_equal(covariance, covariance.T)
    plain = covariance / np.multiply.outer(scale, scale)
    assert np.linalg.eigvalsh(plain)[0] >= -1e-12 * total
    np.testing.assert_allclose(
        plain @ (precision * np.multiply.outer(scale, scale)) @ plain, plain, atol=1e-9 * total
    )
    if more > 1e-3 or count == features:
        raised = np.maximum(variance, found.rest)
        whole = raised.sum() + (features - count) * found.rest
        assert np.trace(plain) == pytest.approx(whole)
    loadings = found.loadings()
    assert np.abs(loadings).max() <= 1.0
    squared = np.sum(loadings**2, axis=1)
    assert (squared <= 1 + 1e-9).all()
    if count == features and not zero:
        np.testing.assert_allclose(squared, 1.0)
    rows = rng.standard_normal((5, features))
    density = found.log_density(rows)
    if found.singular:
        assert (density == -np.inf).all()
    elif np.linalg.cond(plain) < 1e8:
        exact = multivariate_normal(np.zeros(features), covariance).logpdf(rows)
        np.testing.assert_allclose(density, exact, rtol=1e-6, atol=1e-6)


def test_where_nothing_was_found_there_is_no_density():
    nothing = {"noise_floor": 0.0, "total_variance": 0.0, "explained_variance": np.zeros(2)}
    model = with_factors(PrivatePCA(2, **STRONG).fit(X), **nothing)
    with pytest.warns(NoisyResultWarning, match="minus infinity"):
        assert model.score(X[:9]) == -np.inf


def test_a_column_that_was_left_out_has_no_variance_and_does_not_count():
    components = np.eye(3)[:1]
    part = ProbabilisticPCA(components[:, :2], np.array([3.0]), 4.0, np.array([2.0, 1.0]))
    whole = ProbabilisticPCA(components, np.array([3.0]), 4.0, np.array([2.0, 1.0, 0.0]))
    np.testing.assert_allclose(whole.covariance()[:2, :2], part.covariance())
    assert not whole.covariance()[2].any()
    assert not whole.loadings()[2].any()
    rows = np.array([[1.0, 2.0, 9.0], [np.nan, 0.0, 0.0]])
    np.testing.assert_allclose(whole.log_density(rows), part.log_density(rows[:, :2]))
    assert np.isnan(whole.log_density(rows)[1])


@pytest.mark.parametrize("count", [0.9, "auto", 6, 7])
def test_in_the_data_s_units_where_columns_are_scaled(count):
    """A seventh column is constant: it has no scale, no variance and no say."""
    rows = np.hstack([X * np.array([1.0, 10.0, 0.1, 3.0, 1.0, 100.0]), np.full((len(X), 1), 3.0)])
    with warnings.catch_warnings(action="ignore"):
        model = PrivatePCA(count, scale="private", **STRONG).fit(rows)
    deviation = rows.std(axis=0)[:6]
    found = model.get_covariance()
    assert model.unscaled_.tolist() == [False] * 6 + [True]
    assert not found[6].any()
    near = 0.3 if count == 0.9 else 0.05
    np.testing.assert_allclose(
        found[:6, :6] / np.outer(deviation, deviation), np.corrcoef(rows.T[:6]), atol=near
    )
    exact = np.corrcoef(rows.T[:6], model.transform(rows).T[:4])[:6, 6:]
    np.testing.assert_allclose(model.loadings_[:6, :4], exact, atol=near)
    assert not model.loadings_[6].any()
    plain = PCA(model.n_components_ if count == 0.9 else 6).fit(rows[:, :6] / deviation)
    density = plain.score_samples(rows[:9, :6] / deviation) - np.log(deviation).sum()
    np.testing.assert_allclose(model.score_samples(rows[:9]), density, atol=2.0)
    scores = (
        PrivatePCA(3, scale="private", whiten=True, **STRONG)
        .fit(rows[:, :6])
        .transform(rows[:, :6])
    )
    np.testing.assert_allclose(scores.std(axis=0), 1.0, atol=0.05)


def test_released_noise_leaves_a_covariance_positive_semidefinite():
    """Twelve random fits that noise rules: no chance, whatever the noise."""
    for _ in range(12):
        with warnings.catch_warnings(action="ignore"):
            model = PrivatePCA(3, epsilon=0.05).fit(X[:200])
        covariance = model.get_covariance()
        assert np.linalg.eigvalsh(covariance)[0] >= -1e-12 * np.trace(covariance)
        assert np.abs(model.loadings_).max() <= 1.0
        assert not np.isnan(model.score(X[:10]))


@pytest.mark.parametrize("mechanism", ["sketch", "power", "bingham"])
def test_there_where_less_was_released_and_the_variances(mechanism):
    model, plain = PrivatePCA(2, **STRONG, mechanism=mechanism).fit(X), PCA(2).fit(X)
    exact = plain.get_covariance()
    np.testing.assert_allclose(model.get_covariance(), exact, atol=0.04 * np.abs(exact).max())
    assert model.noise_variance_ == pytest.approx(plain.noise_variance_, rel=0.05, abs=0.06)
    assert model.score(X) == pytest.approx(plain.score(X), abs=0.04)
    assert np.abs(model.loadings_).max() <= 1.0


@pytest.mark.parametrize("mechanism", ["sketch", "power"])
def test_not_there_where_neither_moment_nor_variances_were_released(mechanism):
    split = {"scale": 1.0, "center": 3.0, "moment": 12.0}
    model = PrivatePCA(2, epsilon=5.0, mechanism=mechanism, budget_split=split).fit(X)
    for name in (*WHOLE, "loadings_"):
        assert not hasattr(model, name)
    with pytest.raises(AttributeError, match="has no attribute 'get_covariance'") as caught:
        model.get_covariance()
    assert mechanism in str(caught.value.__cause__)
    with pytest.raises(AttributeError, match=f"neither the whole .*{mechanism}"):
        _ = model.loadings_


def test_before_a_fit():
    model = PrivatePCA()
    with pytest.raises(NotFittedError):
        model.get_covariance()
    with pytest.raises(AttributeError, match="not fitted"):
        _ = model.noise_variance_
    assert np.isfinite(cross_val_score(PrivatePCA(2, epsilon=5.0), X, cv=2)).all()


def test_other_kinds_of_fits_and_a_loaded_one_have_it_too(tmp_path):
    exact = np.cov(X.T)
    near = {"atol": 0.1 * np.abs(exact).max()}
    sites = FederatedPCA(6, **STRONG | {"epsilon": 20.0}).fit({"a": X[:9000], "b": X[9000:]})
    np.testing.assert_allclose(sites.get_covariance(), exact, **near)
    stream = PrivateStreamingPCA(
        6, epsilon=20.0, row_norm=15.0, center=X.mean(axis=0), random_state=0
    )
    np.testing.assert_allclose(stream.fit(X).get_covariance(), exact, **near)
    sites.save(tmp_path / "model.npz")
    again = FittedPCA.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.get_covariance(), sites.get_covariance())


# -- whitening


def test_whitened_scores_have_variance_1_and_lead_back():
    model = PrivatePCA(4, whiten=True, **STRONG).fit(X)
    scores = model.transform(X)
    np.testing.assert_allclose(scores.std(axis=0), 1.0, atol=0.03)
    plain = PrivatePCA(4, **STRONG).fit(X)
    np.testing.assert_allclose(scores * np.sqrt(model.explained_variance_), plain.transform(X))
    np.testing.assert_allclose(
        model.inverse_transform(scores), plain.inverse_transform(plain.transform(X))
    )
    np.testing.assert_array_equal(model.get_covariance(), plain.get_covariance())
    assert model.transform(X[:3].astype(np.float32)).dtype == np.float32


def test_a_component_without_variance_has_scores_of_zero():
    model = PrivatePCA(2, whiten=True, **STRONG).fit(X)
    none = with_factors(model, explained_variance=np.array([1.0, 0.0]))
    scores = none.transform(X[:5])
    assert not scores[:, 1].any()
    assert np.isfinite(none.inverse_transform(scores)).all()


def test_what_was_asked_at_the_fit_holds(tmp_path):
    sites = {"a": X[:9000], "b": X[9000:]}
    for model in (
        FederatedPCA(2, whiten=True, **STRONG | {"epsilon": 20.0}).fit(sites),
        PrivateStreamingPCA(2, whiten=True, epsilon=20.0, row_norm=15.0).fit(X - X.mean(axis=0)),
    ):
        model.save(tmp_path / "model.npz")
        scores = model.transform(X)
        np.testing.assert_allclose(scores.std(axis=0), 1.0, atol=0.1)
        model.set_params(whiten=False)
        np.testing.assert_array_equal(model.transform(X), scores)
        np.testing.assert_array_equal(FittedPCA.load(tmp_path / "model.npz").transform(X), scores)


@pytest.mark.parametrize("options", [["--whiten"], ["--missing", "zero"]])
def test_the_command_gives_the_scores_of_transform(tmp_path, options):
    rows, made, result = X[:3000].copy(), tmp_path / "rows.npy", tmp_path / "result"
    rows[5, 2] = np.nan if "--missing" in options else 0.0
    np.save(made, rows)
    for words in (
        ["fit", made, "--epsilon", "9", "--no-plots", "--out", result, *options],
        ["transform", result, made, "--out", tmp_path / "scores.csv"],
    ):
        with pytest.raises(SystemExit) as ended:
            main([*map(str, words)])
        assert ended.value.code == 0
    scores = np.genfromtxt(tmp_path / "scores.csv", delimiter=",", skip_header=1)
    model = FittedPCA.load(result / "model.npz")
    np.testing.assert_allclose(scores, model.transform(rows), rtol=1e-9, atol=1e-12)
