"""What follows from a released covariance: the exact numbers where there is no noise, and laws."""

import inspect
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom
from sklearn.base import clone
from sklearn.cross_decomposition import CCA
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

from eigenveil import (
    FederatedCovariance,
    NoisyResultWarning,
    PrivateCovariance,
    load_derived,
    plots,
)
from eigenveil.app.results import presenter_of
from eigenveil.errors import DataError
from eigenveil.models.derived.kinds import DERIVED, derive
from eigenveil.models.derived.linear import COLLINEAR, DerivedRegression
from eigenveil.models.derived.options import TITLES, options_of_kind
from eigenveil.models.derived.structure import IN_UNITS, varimax

RNG = np.random.default_rng(11)
COUNT, NAMES = 4000, ["a", "b", "c", "d", "e", "f"]


def rows(count=COUNT, rng=RNG):
    hidden = rng.standard_normal((count, 2))
    mixed = hidden @ rng.standard_normal((2, 6)) + 0.7 * rng.standard_normal((count, 6))
    return mixed + np.arange(6.0)


TABLE = pd.DataFrame(rows(), columns=NAMES)
GROUP = RNG.integers(3, size=COUNT)
GROUPED = pd.DataFrame(
    RNG.standard_normal((COUNT, 4)) + 1.5 * RNG.standard_normal((3, 4))[GROUP], columns=NAMES[:4]
).assign(**{f"g={level}": (level == GROUP) * 1.0 for level in "012" for level in [int(level)]})


def fitted(table=TABLE, epsilon=1e4, **options):
    """Nearly without noise: rows are not shortened, and numbers are exact to two digits."""
    options = {"row_bound": 16.0, "center": False, "random_state": 1} | options
    with warnings.catch_warnings(action="ignore", category=NoisyResultWarning):
        return PrivateCovariance(epsilon=epsilon, delta=1e-5, **options).fit(table)


EXACT = fitted(center=True)
GROUPS = fitted(GROUPED, center=True)
OPTIONS = {
    "pca": {"n_components": 2},
    "factors": {"n_components": 2},
    "partial-correlation": {},
    "regression": {"target": "f"},
    "cca": {"left": ["a", "b"], "right": ["d", "e", "f"], "n_components": 2},
    "discriminant": {"group": "g"},
}


def derived(kind):
    return derive(GROUPS if kind == "discriminant" else EXACT, kind, **OPTIONS[kind])


def test_regression_is_least_squares():
    for target in ("f", ["f", "e"]):
        model = EXACT.regression(target, ["a", "c", "d"], ridge=0)
        exact = LinearRegression().fit(TABLE[["a", "c", "d"]], TABLE[target])
        np.testing.assert_allclose(model.coef_, exact.coef_, atol=0.05)
        np.testing.assert_allclose(model.intercept_, exact.intercept_, atol=0.1)
        part = exact.score(TABLE[["a", "c", "d"]], TABLE[target])
        assert model.score(TABLE, TABLE[target]) == pytest.approx(part, abs=0.01)
        assert np.mean(model.r2_) == pytest.approx(part, abs=0.02)


def test_coefficients_are_in_the_data_units():
    scaled = TABLE * [1.0, 100.0, 1.0, 1.0, 1.0, 0.01]
    units = np.array([1.0, 100.0, 1.0, 1.0, 1.0, 0.01])
    ranges = np.outer(units, [-9.0, 14.0])
    model = fitted(scaled, center=True, row_bound=None, ranges=ranges).regression("f", ["a", "b"])
    exact = LinearRegression().fit(scaled[["a", "b"]], scaled["f"])
    np.testing.assert_allclose(model.coef_, exact.coef_, rtol=0.1)


def test_components_are_those_of_scikit_learn():
    model, exact = EXACT.pca(2), PCA(2).fit(TABLE)
    cosines = np.abs(np.vecdot(model.components_, exact.components_))
    assert cosines.min() > 0.999
    np.testing.assert_allclose(
        model.explained_variance_ratio_, exact.explained_variance_ratio_, atol=0.01
    )
    np.testing.assert_allclose(
        model.inverse_transform(model.transform(TABLE)).mean(axis=0), TABLE.mean(), atol=0.05
    )
    scaled = PCA(2).fit((TABLE - TABLE.mean()) / TABLE.std())
    found = EXACT.pca(2, correlations=True)
    assert np.abs(np.vecdot(found.components_, scaled.components_)).min() > 0.999


def test_factors_are_those_of_maximum_likelihood():
    model = EXACT.factors(2, rotation="none")
    root = np.sqrt(6.0) * np.linalg.cholesky(np.corrcoef(TABLE.T)).T
    standard = np.vstack([root, -root])  # few rows of the same mean and correlations
    exact = FactorAnalysis(2, tol=1e-8, max_iter=5000, svd_method="lapack").fit(standard)
    own = model.loadings_ @ model.loadings_.T
    np.testing.assert_allclose(own, exact.components_.T @ exact.components_, atol=0.03)
    assert model.score(TABLE) == pytest.approx(exact.score(standard), abs=0.02)
    turned = EXACT.factors(2).loadings_
    np.testing.assert_allclose(turned @ turned.T, own, atol=1e-8)


def test_varimax_finds_a_simple_structure():
    simple = np.kron(np.eye(3), np.ones((4, 1)))
    turn = np.linalg.qr(RNG.standard_normal((3, 3)))[0]
    found = np.abs(varimax(simple @ turn))
    np.testing.assert_allclose(np.sort(found, axis=1)[:, -1], 1.0, atol=1e-6)


def test_partial_correlations_are_those_of_residuals():
    found = EXACT.partial_correlation(["a", "b", "c"], ridge=0).partial_correlation_
    left = [
        TABLE[name] - LinearRegression().fit(TABLE[["c"]], TABLE[name]).predict(TABLE[["c"]])
        for name in "ab"
    ]
    assert found[0, 1] == pytest.approx(np.corrcoef(*left)[0, 1], abs=0.02)


def test_canonical_correlations_are_those_of_scikit_learn():
    model = EXACT.cca(["a", "b"], ["d", "e", "f"], 2)
    exact = CCA(2, max_iter=5000).fit(TABLE[["a", "b"]], TABLE[["d", "e", "f"]])
    scores = exact.transform(TABLE[["a", "b"]], TABLE[["d", "e", "f"]])
    wanted = [
        np.corrcoef(one, other)[0, 1] for one, other in zip(*(s.T for s in scores), strict=True)
    ]
    np.testing.assert_allclose(model.correlations_, wanted, atol=0.02)
    columns = TABLE[["a", "b", "d", "e", "f"]]
    assert model.score(columns) == pytest.approx(np.mean(wanted), abs=0.02)
    assert model.transform(columns)[0].var(axis=0) == pytest.approx([1, 1], rel=0.1)


def test_the_discriminant_is_that_of_scikit_learn():
    features = GROUPED[NAMES[:4]]
    exact = LinearDiscriminantAnalysis().fit(features, GROUP)
    model = GROUPS.discriminant("g")
    assert list(model.classes_) == ["0", "1", "2"]
    same = model.predict(GROUPED) == exact.predict(features).astype(str)
    assert np.mean(same) > 0.98
    assert model.score(GROUPED, GROUP) == pytest.approx(exact.score(features, GROUP), abs=0.01)
    np.testing.assert_allclose(model.means_, exact.means_, atol=0.1)
    np.testing.assert_allclose(model.predict_proba(GROUPED).sum(axis=1), 1.0)


def test_three_groups_are_told_apart_in_private():
    """2,000 rows at epsilon 1: within 3 points of the exact discriminant, mean of four fits."""
    rng = np.random.default_rng(3)
    group = rng.integers(3, size=2000)
    features = rng.standard_normal((2000, 5)) + 2.0 * rng.standard_normal((3, 5))[group]
    dummies = (group[:, None] == np.arange(3)) * 1.0
    exact = LinearDiscriminantAnalysis().fit(features, group).score(features, group)
    parts = []
    for seed in range(4):
        model = fitted(
            np.hstack([features, dummies]), 1.0, center=True, row_bound=None, random_state=seed
        ).discriminant([5, 6, 7])
        parts.append(model.score(features, group + 5))
    assert np.mean(parts) > exact - 0.03


@pytest.mark.parametrize("kind", DERIVED)
def test_every_kind_is_kept_and_says_the_same(kind, tmp_path):
    model = derived(kind)
    model.save(tmp_path)
    again = load_derived(tmp_path)
    assert repr(again.lines()) == repr(model.lines())
    assert again.certificate_.model_dump() == model.certificate_.model_dump()
    assert again.guarantee_ == model.guarantee_
    assert {**again.get_params()} == {**model.get_params()}
    table = GROUPED if kind == "discriminant" else TABLE
    if kind != "partial-correlation":
        values = model.new_values(table[list(model.labels_)])
        np.testing.assert_array_equal(again.new_values(table), values)
        assert values.shape == (COUNT, len(model.new_names()))
        model.score(
            table[list(model.labels_)],
            *[GROUP] * (kind == "discriminant"),
            *[TABLE["f"]] * (kind == "regression"),
        )
    json.dumps(model.intervals().as_dict(), allow_nan=False)
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize("kind", DERIVED)
def test_intervals_of_the_population_are_not_shown(kind):
    for quantity in derived(kind).intervals(of="population").values():
        assert not quantity.shown.any()
        assert quantity.not_shown()


def coverage(make, truth, name, fits=150):
    """Of intervals at several fits: held, and shown."""
    held = shown = 0
    for seed in range(fits):
        quantity = make(seed).intervals()[name]
        mask = quantity.shown
        if name == "partial_correlation":
            mask = np.tril(mask, -1)
        inside = (quantity.lower <= truth) & (truth <= quantity.upper)
        held, shown = held + int(np.sum(inside & mask)), shown + int(np.sum(mask))
    return held, shown


def moderate(seed):
    return fitted(TABLE, 4.0, center=True, random_state=seed)


FOUR = ["a", "b", "c"]
EXACT_COVARIANCE = TABLE.cov(ddof=0)


@pytest.mark.parametrize("on", [["a"], FOUR])
def test_coefficients_are_held_as_often_as_said(on):
    """Wrong with chance 1e-9 at 92 % or more of 150 fits; by half the width it is caught."""
    block = EXACT_COVARIANCE.loc[on, on].to_numpy()
    truth = np.linalg.solve(block, EXACT_COVARIANCE.loc[on, ["f"]].to_numpy())
    held, shown = coverage(lambda s: moderate(s).regression("f", on), truth, "coefficient")
    assert shown >= 140
    fits = shown // len(on)  # coefficients of one fit share its noise
    assert binom.cdf(held // len(on), fits, 0.92) > 1e-9
    assert held < shown  # not as wide as can be


def test_partial_correlations_are_held_as_often_as_said():
    inverse = np.linalg.inv(EXACT_COVARIANCE.loc[FOUR, FOUR])
    root = np.sqrt(np.diag(inverse))
    truth = -inverse / np.multiply.outer(root, root)
    held, shown = coverage(
        lambda s: moderate(s).partial_correlation(FOUR), truth, "partial_correlation"
    )
    assert shown >= 300
    assert binom.cdf(held // 3, shown // 3, 0.92) > 1e-9
    assert held < shown


def test_sites_derive_what_a_table_does():
    parts = {"north": TABLE[:2500], "south": TABLE[2500:]}
    model = FederatedCovariance(epsilon=30.0, delta=1e-5, random_state=2).fit(parts)
    exact = LinearRegression().fit(TABLE[["a", "c"]], TABLE["f"])
    np.testing.assert_allclose(model.regression("f", ["a", "c"]).coef_, exact.coef_, atol=0.15)


BAD = {
    "derive-no-column": lambda: EXACT.regression("nobody"),
    "derive-column-twice": lambda: EXACT.regression("f", ["a", "f"]),
    "derive-no-columns": lambda: EXACT.regression([]),
    "derive-no-groups": lambda: EXACT.discriminant("a"),
    "unknown-choice": lambda: derive(EXACT, "lasso"),
    "derive-options": lambda: derive(EXACT, "regression", alpha=1.0),
    "components": lambda: EXACT.pca(7),
    "out-of-range": lambda: EXACT.regression("f", ridge=-1.0),
    "frame-without-column": lambda: EXACT.regression("f", ["a"]).predict(TABLE[["b"]]),
    "other-features": lambda: EXACT.regression("f", ["a"]).predict(np.ones((2, 3))),
    "derive-no-values": lambda: EXACT.partial_correlation().new_values(TABLE),
    "derive-no-comparison": lambda: EXACT.pca(1).compare(TABLE),
    "not-exportable": lambda: EXACT.pca(1).to_sklearn(),
    "bad-level": lambda: EXACT.regression("f").intervals(1.0),
    "derive-hidden": lambda: fitted(TABLE.assign(a=1.0), 1.0, center=True).factors(1, ["a", "b"]),
    "derive-of-nothing": lambda: fitted(TABLE[:20], 0.01, row_bound=None).pca(1),
}


@pytest.mark.parametrize("code", BAD)
def test_what_cannot_follow_is_refused_with_a_sentence(code):
    with pytest.raises(DataError) as caught:
        BAD[code]()
    assert caught.value.code == code


def test_options_that_lack_are_named():
    with pytest.raises(DataError, match=r"cca needs right\.") as caught:
        derive(EXACT, "cca", left=["a"])
    assert "n_components" in caught.value.hint
    with pytest.raises(DataError, match="pca needs n_components"):
        derive(EXACT, "pca", correlations=True)
    with pytest.raises(DataError, match="regression has no option alpha"):
        derive(EXACT, "regression", alpha=1.0)


def test_components_of_scaled_columns_say_whose_come_first():
    scaled = fitted(TABLE, 1e4, center=True, scale=np.full(TABLE.shape[1], 2.0))
    assert IN_UNITS in scaled.pca(2).notes_
    assert IN_UNITS not in scaled.pca(2, correlations=True).notes_ + EXACT.pca(2).notes_


@pytest.mark.parametrize("given", [True, None, np.nan, np.inf, "1"])
def test_ridges_that_are_no_numbers_are_refused(given):
    with pytest.raises(DataError):
        EXACT.regression("f", ridge=given)


def test_collinear_columns_have_finite_coefficients():
    table = TABLE.assign(b=TABLE["a"])
    for ridge in (0.0, 1.0):
        model = fitted(table, 2.0, center=True).regression("f", ["a", "b"], ridge=ridge)
        assert np.isfinite(model.coef_).all()
        assert (COLLINEAR in model.notes_) == (ridge == 0)
        found = model.intervals()["coefficient"]
        assert not found.shown.any()


def test_nothing_follows_before_a_fit():
    with pytest.raises(NotFittedError):
        DerivedRegression("f").predict(TABLE)
    with pytest.raises(NotFittedError):
        PrivateCovariance().regression("f")


def test_much_that_was_shortened_is_said():
    assert not EXACT.pca(1).notes_
    tight = fitted(TABLE, 1e3, center=True, row_bound=None)
    assert tight.clipped_energy_ is not None
    noted = bool(tight.pca(1).notes_)
    assert noted == (tight.clipped_energy_ > 0.03)
    cut = fitted(TABLE, 1e3, center=True, row_bound=None, row_quantile=0.5)
    assert cut.clipped_energy_ > 0.03
    assert "row_quantile=.95" in cut.regression("f").notes_[0]
    whole = fitted(TABLE, 1e3, center=True, row_bound=None, row_quantile=1.0)
    assert not whole.regression("f").notes_
    assert cut.row_bound_ < whole.row_bound_


@pytest.mark.parametrize("kind", DERIVED)
def test_options_are_declared_as_the_models_take_them(kind):
    taken = inspect.signature(DERIVED[kind]).parameters
    usual = {name: None if each.default is each.empty else each.default
             for name, each in taken.items()}  # fmt: skip
    assert {each.name: each.default for each in options_of_kind(kind)} == usual
    assert list(TITLES) == list(DERIVED)


@pytest.mark.parametrize("kind", [*DERIVED, "regression of two"])
def test_every_kind_is_drawn_and_told(kind):
    two = kind not in DERIVED
    model = EXACT.regression(["e", "f"], ["a", "b"]) if two else derived(kind)
    axes = plots.plot_derived(model)
    assert plots.figure_bytes(axes) == plots.figure_bytes(plots.plot_derived(model))
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [str(name) for name in model.labels_]
    parts = presenter_of(model).parts(model)
    told = [part if isinstance(part, str) else part.title for part in parts]
    assert told[0].startswith(TITLES[model.kind])
    assert any("interval" in text for text in told[1:])
    if two:
        scale = np.sqrt(np.diag(EXACT.covariance_))
        drawn = [line.get_xdata() for line in axes.lines if line.get_marker() == "o"]
        assert_allclose(drawn, model.coef_ * scale[:2] / scale[4:6, None])


def test_the_command_derives_shows_and_predicts(tmp_path, run):
    TABLE.to_csv(tmp_path / "v.csv", index=False)
    words = ("fit", tmp_path / "v.csv", "--task", "covariance", "--epsilon", "5", "--no-ledger")
    result, out = tmp_path / "result", tmp_path / "out"
    assert run(*words, "--one-row-per-person", "--out", result, "--quiet")[0] == 0
    words = ("derive", result, "regression", "--target", "f", "--on", "a,b", "--out", out)
    assert "nothing was charged" in run.done(*words)
    assert run("show", out)[0] == 0
    assert json.loads(run("show", out, "--json")[1])["kind"] == "regression"
    assert run("certify", out)[0] == 0
    assert run("report", out)[0] == 0
    assert run("transform", out, tmp_path / "v.csv", "--out", tmp_path / "p.csv")[0] == 0
    assert pd.read_csv(tmp_path / "p.csv").shape == (COUNT, 1)
    assert run(*words)[0] != 0  # a folder that exists
    error = run.fails("derive", out, "pca", "--components", "1", "--out", tmp_path / "no")
    assert "no covariance" in error
    assert not (tmp_path / "no").exists()
