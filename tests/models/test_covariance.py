"""Private covariance: an honest matrix of one table, of sites, of the command line.

Noise is seeded where a number is compared, so that these tests do not fail by chance.
"""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.covariance import EmpiricalCovariance
from sklearn.exceptions import NotFittedError

from eigenveil import DataError, FederatedCovariance, NoisyResultWarning, PrivateCovariance
from eigenveil.cli.app import main
from eigenveil.federation.study.file import read_study, schema
from eigenveil.models.covariance.presenter import _percent
from eigenveil.models.explained import shrunk
from eigenveil.models.scale import NormScale
from eigenveil.models.task import TASKS
from eigenveil.network.results import read_result_files, write_result_files
from refusal_tools import refuses
from soak_tools import times
from statistics_tools import ended_early

MANY, FEW = 40_000, 400
MIX = np.array([[3.0, 1.0, 0.0, 0.5], [0.0, 1.5, 0.4, 0.0], [0.0, 0.0, 1.0, 0.3], [0, 0, 0, 0.7]])
MEAN = np.array([10.0, -4.0, 0.5, 2.0])
X = MEAN + np.random.default_rng(0).standard_normal((MANY, 4)) @ MIX
EXACT = np.cov(X.T, bias=True)
STRONG = {"epsilon": 40.0, "delta": 1e-5, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")


def run(arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code or 0


def error(found, exact=EXACT):
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def is_semidefinite(matrix):
    values = np.linalg.eigvalsh(matrix)
    return bool(values[0] >= -1e-12 * max(1e-300, abs(values[-1])))


@pytest.fixture(scope="module")
def strong():
    return PrivateCovariance(**STRONG).fit(X)


# -- what is found


def test_it_agrees_with_the_exact_one_where_there_is_next_to_no_noise(strong):
    assert error(strong.covariance_) < 0.01
    assert np.linalg.norm(strong.location_ - MEAN) < 0.05
    assert strong.usable_.all()
    assert strong.n_samples_ == pytest.approx(MANY, abs=50)
    assert strong.clipped_energy_ < 0.01
    correlation = np.corrcoef(X.T)
    assert error(strong.correlation_, correlation) < 0.02
    assert error(strong.precision_, np.linalg.inv(EXACT)) < 0.05


@pytest.mark.parametrize(
    "options",
    [
        {"delta": 0.0},
        {"mechanism": "vector"},
        {"adjacency": "replace-one"},
        {"row_bound": 40.0},
        {"row_bound": 30.0, "center": MEAN},
        {"row_bound": 30.0, "center": MEAN, "adjacency": "replace-one"},
        {"center": MEAN},
    ],
    ids=str,
)
def test_every_way_to_release_it_agrees(options):
    model = PrivateCovariance(**STRONG | options).fit(X)
    assert error(model.covariance_) < 0.1
    assert model.n_samples_ == pytest.approx(MANY, rel=0.01)
    assert is_semidefinite(model.covariance_)


def test_without_a_centre_it_is_the_second_moment_about_zero():
    model = PrivateCovariance(center=False, **STRONG).fit(X)
    assert error(model.covariance_, X.T @ X / MANY) < 0.02
    assert not model.location_.any()


@given(
    st.integers(2, 7),
    st.integers(1, 60),
    st.floats(0.01, 20.0),
    st.floats(1e-6, 1e6),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=times(200), deadline=None)
def test_it_is_always_positive_semidefinite_and_in_order(features, rows, epsilon, unit, seed):
    rng = np.random.default_rng(seed)
    data = unit * rng.standard_cauchy((rows, features))
    model = PrivateCovariance(epsilon=epsilon, delta=1e-5, random_state=seed).fit(data)
    assert np.array_equal(model.covariance_, model.covariance_.T)
    assert is_semidefinite(model.covariance_)
    seen = ~np.isnan(np.diag(model.correlation_))
    assert np.array_equal(np.isnan(model.correlation_), ~np.logical_and.outer(seen, seen))
    known = model.correlation_[np.ix_(seen, seen)]
    assert not seen.any() or is_semidefinite(known)
    assert np.all(np.diag(known) == 1.0)
    assert np.all(np.abs(known) <= 1.0 + 1e-12)
    assert np.isfinite(model.precision_).all()
    assert np.all(model.mahalanobis(data) >= 0.0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(0.0, 1e6))
def test_eigenvalues_are_freed_of_noise_in_order_and_never_negative(values, edge):
    strengths = np.sort(values)[::-1]
    found = shrunk(strengths, edge)
    assert np.all(found >= 0.0)
    assert np.all(np.diff(found) <= 1e-9 * max(1.0, found[0]))
    assert np.all(found <= np.maximum(strengths, found[-1]) + 1e-9 * max(1.0, abs(strengths[0])))
    if edge == 0.0:
        assert np.allclose(found, np.maximum(strengths, 0.0))


def test_shrinking_beats_cutting_negative_eigenvalues_off():
    # the mean over 200 symmetric noise matrices of edge 2, about a spike of 3 on a level of 0.5;
    # the gain is some 30 deviations of that mean
    rng, size = np.random.default_rng(1), 30
    exact = np.diag(np.r_[3.0, np.full(size - 1, 0.5)])
    better, plain = [], []
    for _ in range(200):
        noise = rng.standard_normal((size, size)) / np.sqrt(2 * size)
        values, vectors = np.linalg.eigh(exact + noise + noise.T)
        descending = values[::-1]
        for errors, kept in ((better, shrunk(descending, 2.0)), (plain, descending.clip(0))):
            errors.append(np.linalg.norm((vectors * kept[::-1]) @ vectors.T - exact))
    assert np.mean(better) < 0.8 * np.mean(plain)


def test_it_is_equivariant_under_permutations_isometries_and_units(strong):
    order = np.array([2, 0, 3, 1])
    turned = PrivateCovariance(**STRONG).fit(X[:, order])
    assert error(turned.covariance_, strong.covariance_[np.ix_(order, order)]) < 0.01
    assert np.allclose(turned.location_, strong.location_[order], atol=0.05)
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((4, 4)))[0]
    turned = PrivateCovariance(**STRONG).fit(X @ turn + 7.0)
    assert error(turned.covariance_, turn.T @ EXACT @ turn) < 0.01
    scaled = PrivateCovariance(**STRONG).fit(1000.0 * X)
    assert error(scaled.covariance_, 1e6 * EXACT) < 0.01
    assert scaled.row_bound_ > 1000.0


def test_a_bound_weighs_what_it_cuts_off_against_the_noise():
    plan = TASKS["covariance"].make_plan(TASKS["covariance"].options("table"), features=4)
    edges, masses = np.array([1.0, 2.0, 4.0, 8.0]), np.array([900.0, 80.0, 15.0, 5.0])
    scale = NormScale(1000.0, edges, masses)
    bounds = [plan.choose_bound(scale, edge=edge) for edge in (0.0, 1.0, 10.0, 100.0, 1e6)]
    assert bounds == sorted(bounds, reverse=True)
    assert (bounds[0], bounds[-1]) == (8.0, 1.0)
    assert len(set(bounds)) > 2


def test_what_is_cut_off_is_told():
    data = X[:5000].copy()
    data[:1000] = MEAN + 3.0 * (data[:1000] - MEAN)
    public, found = (
        PrivateCovariance(epsilon=1.0, delta=1e-5, row_bound=bound, random_state=0).fit(data)
        for bound in (5.0, None)
    )
    assert public.clipped_energy_ is None  # no norms about the centre were released
    norms = np.linalg.norm(data - found.location_, axis=1)
    exact = 1.0 - np.sum(np.minimum(norms, found.row_bound_) ** 2) / np.sum(norms**2)
    assert found.clipped_energy_ == pytest.approx(exact, abs=0.1)


def test_score_and_distances_are_those_of_a_gaussian(strong):
    law = multivariate_normal(strong.location_, strong.covariance_)
    assert strong.score(X[:500]) == pytest.approx(law.logpdf(X[:500]).mean())
    exact = EmpiricalCovariance().fit(X)
    assert strong.score(X) == pytest.approx(exact.score(X), abs=0.01)
    assert np.allclose(strong.mahalanobis(X[:50]), exact.mahalanobis(X[:50]), rtol=0.05, atol=0.1)
    for norm in ("frobenius", "spectral"):
        assert strong.error_norm(EXACT, norm=norm) == pytest.approx(
            exact.error_norm(strong.covariance_, norm=norm)
        )


def test_a_singular_covariance_scores_minus_infinity():
    flat = X.copy()
    flat[:, 3] = flat[:, 2]
    model = PrivateCovariance(**STRONG).fit(flat)
    if np.linalg.matrix_rank(model.covariance_, hermitian=True) < 4:
        assert model.score(flat) == -np.inf
    none = no_scale(random_state=0)
    assert none.score(np.ones((3, 4))) == -np.inf
    assert not none.mahalanobis(np.ones((3, 4))).any()


# -- where nothing can be found


def no_scale(random_state=None):
    with pytest.warns(NoisyResultWarning):
        return PrivateCovariance(epsilon=0.01, delta=1e-6, random_state=random_state).fit(X[:20])


def test_few_rows_give_a_result_that_says_so():
    for model in ended_early(no_scale, lambda model: model.certificate_.stopped):
        assert not model.usable_.any()
        assert not model.covariance_.any()
    with pytest.warns(NoisyResultWarning, match="stands above the noise"):
        weak = PrivateCovariance(epsilon=0.1, center=False, random_state=0).fit(X[:50])
    assert not weak.usable_.any()
    assert weak.certificate_.stopped is None


def test_correlations_of_what_noise_hides_are_not_made_up():
    rng = np.random.default_rng(5)
    data = np.c_[100.0 * rng.standard_normal(2000), 1e-3 * rng.standard_normal((2000, 5))]
    for seed in range(8):  # in about half of them all that noise hides becomes 0: rank one
        model = PrivateCovariance(epsilon=1.0, delta=1e-5, random_state=seed)
        with pytest.warns(NoisyResultWarning, match="5 columns.*Hidden: 1, 2, 3, 4 and 5 .from 0"):
            model.fit(data)
        assert model.usable_.sum() == 1
        assert np.array_equal(np.isfinite(model.correlation_), np.eye(6) * ([1] + [0] * 5) > 0)


def nine_columns(rows=8000):
    """Two that belong together, latitude and longitude, beside seven in other units."""
    rng = np.random.default_rng()
    place, other = rng.standard_normal((2, rows))
    columns = [36 + 2.1 * place, -119 - 2.0 * (0.933 * place + 0.36 * other)]
    scales = [4.0, 15.0, 2.4, 0.3, 1100.0, 1.0, 1.2e5]
    columns += [scale * (3.0 + rng.standard_normal(rows)) for scale in scales]
    return pd.DataFrame(np.column_stack(columns), columns=list("abcdefghi"))


NINE = [(26, 46), (-128, -110), *((0, most) for most in (28, 105, 17, 2.1, 7700, 7, 8.4e5))]


@pytest.mark.parametrize("epsilon", [2.0, 4.0])
@pytest.mark.parametrize(
    "options", [{}, {"scale": "private"}, {"ranges": NINE}, {"scale": "private", "ranges": NINE}]
)
def test_columns_in_other_units_hide_nothing_where_each_has_a_scale(options, epsilon):
    """In 180 fits of 8,000 rows an entry was .025 off, deviation .016: .16 is eight of them.

    Of 8,000 rows a column got no private scale in 1 of 600 fits, of 20,000 in none of 600.
    """
    table = nine_columns(20_000)
    exact = np.corrcoef(table.to_numpy().T)
    model = PrivateCovariance(epsilon=epsilon, delta=1e-6, **options)
    if not options:
        with pytest.warns(NoisyResultWarning, match="scale='private' or ranges=.*Hidden: a, b"):
            model.fit(table)
        assert np.isnan(model.correlation_[:2]).all()
        return
    model.fit(table)
    assert np.abs(model.correlation_ - exact).max() < 0.16
    assert model.covariance_ == pytest.approx(np.cov(table.T), rel=0.3, abs=1e9)
    assert np.diag(model.covariance_) == pytest.approx(table.var().to_numpy(), rel=0.3)
    assert np.abs(model.location_ - table.mean()).max() < 0.3 * 1.2e5
    assert (np.abs(model.location_ - table.mean()) < 0.3 * table.std()).all()
    assert model.guarantee_.certified
    parts = {"x": table[:8000], "y": table[8000:]}
    for _ in range(3):  # a column had no scale in one run of the tests, in none of 300 fits
        sites = FederatedCovariance(epsilon=epsilon, delta=1e-6, **options).fit(parts)
        if not np.isnan(sites.correlation_).any():
            break
    assert np.abs(sites.correlation_ - exact).max() < 0.16


def test_a_column_without_a_scale_is_left_out(tmp_path):
    """Of 4,000 rows another got none in 1 of 300 fits; of 20,000 at half of epsilon in none."""
    model = PrivateCovariance(epsilon=4.0, scale="private")
    with pytest.warns(NoisyResultWarning, match="Left out: z"):
        model.fit(nine_columns(40_000).assign(z=1.0))
    model.save(tmp_path / "model.npz")
    again = PrivateCovariance.load(tmp_path / "model.npz")
    assert again.unscaled_.tolist() == [False] * 9 + [True]
    assert np.isnan(again.correlation_[-1]).all()
    assert not np.isnan(again.correlation_[:9, :9]).any()


def test_a_column_beside_hidden_ones_has_no_correlation_to_show(tmp_path, capsys):
    big = np.random.default_rng(3).normal(0, 1e6, 4000)
    model = PrivateCovariance(**STRONG).fit(np.column_stack([big, np.sin(big)]))
    assert np.isnan(model.correlation_).tolist() == [[False, True], [True, True]]
    model.save(tmp_path / "model.npz")
    model.certificate_.write(tmp_path / "certificate.json")
    assert run(["show", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "no other shows" in shown
    assert "nan" not in shown


def test_rows_that_cannot_be_scored_are_refused(strong):
    with pytest.raises(NotFittedError):
        PrivateCovariance().score(X)
    with pytest.raises(ValueError, match="NaN"):
        strong.mahalanobis([[np.nan, 0, 0, 0]])
    with pytest.raises(ValueError, match="features"):
        strong.score(X[:, :3])
    with pytest.raises(AttributeError):
        strong.covariance_ = EXACT


# -- sites


@pytest.mark.parametrize("delta", [1e-5, 0.0])
def test_three_sites_find_what_one_would(delta):
    sites = {"a": X[:9000], "b": X[9000:20000], "c": X[20000:]}
    model = FederatedCovariance(**STRONG | {"delta": delta}).fit(sites)
    assert error(model.covariance_) < 0.05
    assert {"outsider", "aggregator"} <= set(model.views_)
    assert model.study_.protocol == "cape"
    assert model.study_.components is None
    assert model.get_params()["epsilon"] == 40.0


def test_results_between_organisations_are_read_again(tmp_path):
    from eigenveil.federated.running import run_study, site_rows
    from eigenveil.noise.source import SeededSource

    rows = site_rows({"a": X[:2000], "b": X[2000:4000]}, for_one="")
    study = FederatedCovariance(epsilon=4.0, delta=1e-5).study_of(rows)
    runs = []
    run_study(study, rows, source=SeededSource(1), keep=runs.append)
    write_result_files(runs[0], tmp_path, session="s", seconds=1.0, seconds_by_step={})
    again = read_result_files(tmp_path)
    assert type(again) is FederatedCovariance
    assert again.study_ == study.settled()
    assert again.covariance_.shape == (4, 4)


def test_a_study_of_no_components_is_written_read_and_described(tmp_path):
    file = tmp_path / "s.toml"
    made = ["study", "new", str(file), "--task", "covariance", "--site", "a", "--site", "b"]
    assert run([*made, "--features", "4", "--quiet"]) == 0
    assert "\ncomponents" not in file.read_text()
    study = read_study(file)
    assert (study.task, study.components, study.protocol) == ("covariance", None, "cape")
    file.write_text(file.read_text().replace("features = 4", "features = 4\ncomponents = 2"))
    with refuses("field-of-other-task", "components = 2 is for task 'pca'"):
        read_study(file)
    said = schema()
    assert "components" not in said["required"]
    assert said["then"] == {"required": ["components"]}
    assert "covariance" not in said["if"]["properties"]["task"]["enum"]


# -- plans


def test_a_plan_says_what_will_be_seen(capsys):
    # 20 directions of equal variance at epsilon 1: what is said is about what a fit shows
    rng = np.random.default_rng(2)
    shown = {}
    for rows in (300, 20_000):
        run(["plan", "--task", "covariance", "--rows", str(rows), "--features", "20", "--spectrum",
              ",".join(["1"] * 20), "--delta", "1e-5", "--json"])  # fmt: skip
        shown[rows] = json.loads(capsys.readouterr().out)["directions_above_noise"]
        model = PrivateCovariance(epsilon=1.0, delta=1e-5, random_state=0)
        model.fit(rng.standard_normal((rows, 20)))
        assert (model.usable_.sum() > 10) == (shown[rows] > 10)
    assert shown == {300: 0, 20_000: 20}
    assert run(["plan", "--task", "covariance", "--rows", "100", "--features", "5"]) == 0
    assert "second moment" in capsys.readouterr().out
    command = ["plan", "--task", "covariance", "--rows", "100", "--features", "5"]
    assert run([*command, "--components", "2"]) == 2


@pytest.mark.parametrize("given", [0.2, 1.5, "all", True, np.nan])
def test_quantiles_that_are_none_are_refused_before_a_fit(given):
    with pytest.raises(DataError):
        PrivateCovariance(row_quantile=given).fit(np.eye(5))


def test_a_quantile_of_norms_that_are_not_released_is_refused():
    for make, rows in (
        (PrivateCovariance, np.eye(5)),
        (FederatedCovariance, {"a": np.eye(5), "b": np.eye(5)}),
    ):
        with refuses("quantile-and-bound"):
            make(row_quantile=0.9, row_bound=2.0).fit(rows)


def test_a_part_of_the_variance_is_written_as_people_write_it():
    said = [_percent(part) for part in (0.0, 0.0456, 0.996, 1.0)]
    assert said == ["less than 0.01 %", "about 4.6 %", "about 100 %", "about 100 %"]
