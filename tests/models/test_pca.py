"""PrivatePCA as scikit-learn users meet it."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from eigenveil import PrivacyError, PrivatePCA
from eigenveil.linalg.subspace import captured_energy

DIGITS = load_digits().data


def exact_moment(rows):
    centered = rows - rows.mean(axis=0)
    return centered.T @ centered


@pytest.mark.parametrize("precision", ["double", "single"])
def test_result_is_close_to_the_exact_subspace(precision):
    # measured 0.951 on average with a spread below 0.01
    model = PrivatePCA(10, epsilon=1.0, delta=1e-5, precision=precision).fit(DIGITS)
    assert captured_energy(exact_moment(DIGITS), model.components_) > 0.85


def test_much_budget_recovers_ordinary_pca():
    model = PrivatePCA(5, epsilon=200.0, delta=1e-3, row_norm="auto").fit(DIGITS)
    plain = PCA(5).fit(DIGITS)
    assert captured_energy(exact_moment(DIGITS), model.components_) > 0.99
    assert np.allclose(model.mean_, DIGITS.mean(axis=0), atol=0.5)
    assert np.allclose(model.explained_variance_ratio_, plain.explained_variance_ratio_, rtol=0.25)
    assert model.n_samples_ == pytest.approx(len(DIGITS), abs=20)


@pytest.mark.parametrize(
    "mechanism", ["gaussian", "wishart", "vector", "bingham", "power", "sketch"]
)
def test_every_mechanism_gives_orthonormal_components(mechanism):
    model = PrivatePCA(3, epsilon=8.0, delta=1e-5, mechanism=mechanism, adjacency="replace-one")
    model.fit(DIGITS)
    assert np.allclose(model.components_ @ model.components_.T, np.eye(3), atol=1e-9)
    assert captured_energy(exact_moment(DIGITS), model.components_) > 0.3


def test_largest_norm_is_for_reproductions_only():
    model = PrivatePCA(3, row_norm="max").fit(DIGITS)
    assert not model.guarantee_.certified
    assert "largest norm" in str(model.guarantee_)


def test_public_center_is_used_as_it_is():
    center = DIGITS.mean(axis=0)
    model = PrivatePCA(2, center=center).fit(DIGITS)
    assert np.array_equal(model.mean_, center)
    assert "center" not in {r.name for r in model.certificate_.releases}


def test_a_data_set_too_small_for_the_budget_ends_after_the_first_release():
    """It has nothing usable, says what would do, and the rest of the budget is not spent.

    In one fit of 200 the noise looks like rows; 5 of 9 do with chance 4e-10.
    """
    fits = [PrivatePCA(2, epsilon=0.1, delta=1e-6).fit(DIGITS[:50]) for _ in range(9)]
    ended = [m for m in fits if [r.name for r in m.certificate_.releases] == ["scale"]]
    assert len(ended) >= 5
    model = ended[0]
    assert not any(each.usable_.any() for each in fits)
    assert model.guarantee_.epsilon < 0.1
    assert model.components_.shape == (2, 64)


def test_bingham_says_where_it_is_hopeless():
    rows = np.random.default_rng(0).standard_normal((50, 3000))
    with pytest.raises(PrivacyError, match="auto"):
        PrivatePCA(100, delta=0, mechanism="bingham", row_bound=1.0).fit(rows)


def test_a_public_centre_far_off_costs_no_digits_in_single_precision():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((5000, 6)) * np.array([4.0, 2, 1, 1, 1, 1])

    def fit(precision):
        model = PrivatePCA(
            2, epsilon=5.0, delta=1e-5, center=np.full(6, 2.0**22), precision=precision,
            random_state=0,
        )  # fmt: skip
        return model.fit(rows + 2.0**22)

    far = fit("single")
    near = PrivatePCA(
        2, epsilon=5.0, delta=1e-5, center=np.zeros(6), precision="single", random_state=0
    ).fit(rows + 2.0**22 - 2.0**22)
    assert far.usable_.all()
    assert np.array_equal(far.components_, near.components_)
    assert np.abs(far.components_ @ fit("double").components_.T) == pytest.approx(
        np.eye(2), abs=0.05
    )
