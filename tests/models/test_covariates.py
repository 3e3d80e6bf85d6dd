"""Effects of covariates: what is released of them, taken off rows, and refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil import FederatedPCA, PrivatePCA
from eigenveil.errors import DataError
from eigenveil.models.certify import check_against_plan, plan_of
from eigenveil.models.pca.covariates import effects_of
from eigenveil.models.pca.plan import COVARIATES, JOINT_SCALE
from eigenveil.moments.preparation import Effects, Preparation
from eigenveil.moments.rows import Block, RowRule
from eigenveil.privacy.releases import ALONE

D, AGE = 6, 2
SEEDS = st.integers(0, 2**32 - 1)
EFFECTS = np.array([3.0, -3.0, 0.0, 0.0, 1.0, 0.0])  # of a unit of age
NEXT = np.array([0.5, 0.5, 0.0, 0.5, 0.0, -0.5])


def table(seed=0, rows=6000, unit=1.0):
    """Age, about 5, makes most of the variance; without it there is one direction of variance 4."""
    rng = np.random.default_rng(seed)
    age = rng.standard_normal(rows)
    X = np.outer(age, EFFECTS) + 2.0 * np.outer(rng.standard_normal(rows), NEXT)
    X += 0.3 * rng.standard_normal((rows, D))
    X[:, AGE] = age
    return 5.0 + X * np.where(np.arange(D) == AGE, unit, 1.0)


def along(pca, direction):
    direction = direction / np.linalg.norm(direction)
    return abs(float(pca.components_[0] @ direction))


def fitted(X=None, **options):
    options = {"epsilon": 4.0, "random_state": 0, "covariates": [AGE]} | options
    return PrivatePCA(2, **options).fit(table() if X is None else X)


# -- effects


def test_effects_are_those_of_least_squares():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((50, D)) @ rng.standard_normal((D, D))
    columns = [1, 4]
    sizes, error = effects_of(rows.T @ rows, columns, 0.0)
    wanted = np.linalg.lstsq(rows[:, columns], rows)[0].T
    wanted[columns] = 0.0
    assert sizes == pytest.approx(wanted)
    assert error == 0.0


def test_noise_in_effects_gives_no_more_energy_than_a_quarter_of_the_edge():
    """Also where the covariate has none of its own: then the effects are drawn towards 0."""
    d, edge = 200, 1.0
    for energy in (0.0, 0.1, 1.0, 10.0, 1e6):
        matrix = np.zeros((d, d))
        matrix[0, 0] = energy
        error = effects_of(matrix, [0], edge)[1]
        assert error <= 0.25 * edge + 1e-12
    matrix[1, 0] = matrix[0, 1] = 0.5 * energy
    assert effects_of(matrix, [0], edge)[0][1, 0] == pytest.approx(0.5)
    assert effects_of(matrix, [0], 2 * energy)[0][1, 0] == pytest.approx(0.25)


@given(seed=SEEDS, precision=st.sampled_from(["single", "double"]))
def test_what_is_left_of_a_row_does_not_depend_on_its_neighbours(seed, precision):
    rng = np.random.default_rng(seed)
    dtype = np.float32 if precision == "single" else np.float64
    X = (rng.standard_normal((17, D)) * 10.0 ** rng.integers(-9, 9, (17, 1))).astype(dtype)
    preparation = Preparation(effects=Effects((0, 3), rng.standard_normal((D, 2))))
    rows, norms = Block(X).residuals(np.ones(D), precision, preparation)
    assert (rows[:, [0, 3]] == 0).all()
    for place in range(17):
        alone, norm = Block(X[place : place + 1]).residuals(np.ones(D), precision, preparation)
        assert (alone[0] == rows[place]).all()
        assert norm[0] == norms[place]


@pytest.mark.parametrize("precision", ["single", "double"])
def test_rows_that_are_not_valid_are_zero_rows_and_large_ones_are_not(precision):
    dtype = np.float32 if precision == "single" else np.float64
    largest = np.finfo(dtype).max
    X = np.ones((5, D), dtype)
    X[1, 0], X[2, AGE] = np.inf, np.nan
    X[3] = [largest, -largest, largest, -largest, 1.0, 0.0]
    X[4, AGE] = -np.inf
    block = Block(X)
    sizes = np.full((D, 1), 1e6)
    rule = RowRule(precision=precision, preparation=Preparation(effects=Effects((AGE,), sizes)))
    rows, squares = rule(block)
    assert np.isfinite(rows).all()
    assert squares.max() <= 4.0**rule.bits
    assert (squares[[1, 2, 4]] == 0).all()
    assert (squares[[0, 3]] > 0).all()
    assert block.invalid == 3
    assert block.first_invalid.row == 1


# -- fits


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"delta": 0.0},
        {"delta": 0.0, "mechanism": "vector"},
        {"row_norm": "auto"},
        {"n_components": 0.6},
        {"center": np.full(D, 5.0)},
        {"center": np.full(D, 5.0), "row_bound": 12.0},
        {"adjacency": "replace-one"},
        {"budget_split": {"scale": 0.05, "center": 0.15, "covariates": 0.3, "moment": 0.5}},
        {"precision": "single", "covariates": [np.int64(AGE)]},
    ],
    ids=str,
)
def test_the_direction_beside_age_is_found(options):
    """Noise is below a thirtieth of the gap, and a cosine of 0.95 takes a third of it.

    The spectral norm of noise exceeds its edge 2 s sqrt(D) by t s with probability exp(-t^2 / 2):
    10 times the edge is far below 1e-8. (Of pure noise likewise, with exp(-t).)
    """
    count = options.get("n_components", 2)
    options = {name: value for name, value in options.items() if name != "n_components"}
    with_age = PrivatePCA(count, epsilon=4.0, random_state=0, **_without(options)).fit(table())
    assert along(with_age, EFFECTS + (np.arange(D) == AGE)) > 0.95
    pca = PrivatePCA(
        count, **{"epsilon": 4.0, "random_state": 0, "covariates": [AGE]} | options
    ).fit(table())
    assert along(pca, NEXT) > 0.95
    assert pca.usable_[0]
    assert (pca.components_[:, AGE] == 0).all()
    assert pca.covariate_effects_ == pytest.approx(EFFECTS[:, None], abs=0.8)
    assert pca.covariate_effects_[AGE] == 0
    if "budget_split" not in options:  # without a share, variances are of unit rows
        assert 2.0 < pca.explained_variance_[0] < 8.0
    plan = plan_of(pca.certificate_)
    view = pca.certificate_.target.view
    check_against_plan(pca.certificate_, plan, view=view, sharing=lambda _: ALONE)
    assert pca.guarantee_.epsilon == pytest.approx(4.0, rel=1e-3)


def _without(options):
    options = {name: value for name, value in options.items() if name != "covariates"}
    split = options.get("budget_split")
    if split is None:
        return options
    return options | {"budget_split": {s: f for s, f in split.items() if s != "covariates"}}


def test_scales_are_those_of_what_is_left():
    """Age in days: rows are all age, but for columns' scales. False alarms as above."""
    X = table(unit=3650.0, rows=20000)
    pca = fitted(X, scale="private")
    left = X - X.mean(axis=0)
    left -= np.outer(left[:, AGE] / left[:, AGE].var(), left[:, AGE] @ left / len(X))
    left[:, AGE] = 0.0
    deviations = left.std(axis=0)
    deviations[AGE] = 1.0
    exact = np.linalg.eigh((left / deviations).T @ (left / deviations))[1][:, -1]
    assert along(pca, exact) > 0.95
    assert (pca.components_[:, AGE] == 0).all()
    assert pca.covariate_effects_[:, 0] * 3650.0 == pytest.approx(EFFECTS, abs=0.5)
    assert pca.total_variance_ == pytest.approx(D - 1)


def test_scores_are_of_what_is_left(tmp_path):
    X = table()
    pca = fitted(X)
    rest = X - pca.mean_
    rest -= np.outer(rest[:, AGE], pca.covariate_effects_[:, 0])
    scores = pca.transform(X)
    assert scores == pytest.approx(rest @ pca.components_.T)
    assert abs(np.corrcoef(scores[:, 0], X[:, AGE])[0, 1]) < 0.2
    assert np.isfinite(pca.score_samples(X)).all()
    assert (pca.get_covariance()[AGE] == 0).all()
    pca.save(tmp_path / "model.npz")
    again = PrivatePCA.load(tmp_path / "model.npz")
    assert again.transform(X) == pytest.approx(scores)
    assert list(again.covariates) == [AGE]
    assert fitted(X, covariates=None).covariate_effects_ is None


def test_a_frame_names_its_covariates():
    pd = pytest.importorskip("pandas")
    names = ["height", "weight", "age", "pulse", "sugar", "iron"]
    frame = pd.DataFrame(table(), columns=names)
    pca = fitted(frame, covariates=["age"])
    assert pca.plan_.covariates == (AGE,)
    assert pca.components_ == pytest.approx(fitted().components_)
    with pytest.raises(DataError, match="names column 'agee'"):
        fitted(frame, covariates=["agee"])


def test_without_a_private_centre_norms_are_released_before():
    pca = fitted(center=np.full(D, 5.0))
    names = [record.name for record in pca.certificate_.releases]
    assert names[:2] == [JOINT_SCALE, COVARIATES]


# -- refused, before anything is charged


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"missing": "zero"}, "missing='zero'"),
        ({"missing": "pairs"}, "missing='pairs'"),
        ({"row_norm": "max"}, "row_norm='max'"),
        ({"mechanism": "sketch"}, "mechanism='sketch'"),
        ({"mechanism": "power"}, "mechanism='power'"),
        ({"mechanism": "bingham", "delta": 0.0}, "mechanism='bingham'"),
        ({"covariates": list(range(D))}, "all columns"),
        ({"covariates": [D]}, f"names column {D}"),
        ({"covariates": list(range(D - 1))}, "more than the 1 columns"),
    ],
)
def test_what_cannot_be_is_refused(options, said, tmp_path):
    ledger = tmp_path / "spent.db"
    with pytest.raises(DataError, match=said):
        fitted(ledger=ledger, data_set="a", **options)
    assert not ledger.exists()


# -- sites


def test_sites_release_what_one_table_does():
    """As near as two fits of one table: see above."""
    X = table()
    sites = {"a": X[:2000], "b": X[2000:4000], "c": X[4000:]}
    options = {"epsilon": 4.0, "random_state": 0, "covariates": [AGE]}
    together = FederatedPCA(2, protocol="auto", **options).fit(sites)
    assert together.study_.protocol == "cape"
    alone = fitted()
    assert together.plan_.schedule == alone.plan_.schedule
    assert along(together, NEXT) > 0.95
    assert together.covariate_effects_ == pytest.approx(EFFECTS[:, None], abs=0.8)
    assert together.transform(X) == pytest.approx(alone.transform(X), abs=2.0)


@pytest.mark.parametrize("protocol", ["full", "dpdispca", "sketch"])
def test_protocols_without_one_whole_moment_are_refused(protocol):
    with pytest.raises(DataError, match="covariates"):
        FederatedPCA(2, covariates=[AGE], protocol=protocol).fit({"a": table(), "b": table(1)})
