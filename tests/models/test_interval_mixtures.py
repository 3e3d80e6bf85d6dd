"""Intervals of mixtures hold what the rows say of the components, and follow from the result alone.

Seeds are fixed; the chance that a right implementation fails a statistical test with other seeds is
1e-9: bounds are binomial quantiles of that chance.
"""

import csv
import json

import numpy as np
import pytest
from benchmarks.interval_mixtures import mixture_truths
from scipy.stats import binom

from eigenveil import FederatedGaussianMixture, PrivateGaussianMixture
from eigenveil.cli.app import main
from eigenveil.models.intervals import replayed
from eigenveil.models.mixture import intervals as released
from soak_tools import SOAK

BUDGET = {"epsilon": 2.0, "delta": 1e-5}
pytestmark = pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")


def rows_of(count=2000, seed=0):
    rng = np.random.default_rng(seed)
    own = rng.choice(3, count, p=[0.5, 0.3, 0.2])
    widths = np.array([[1.0, 0.6, 1.2, 0.8], [0.7, 1.1, 1.0, 0.9], [1.3, 0.8, 0.7, 1.0]])
    return 6.0 * np.eye(3, 4)[own] + rng.standard_normal((count, 4)) * widths[own] + 2.0


def enough(held, trials):
    least, most = binom.ppf([5e-10, 1 - 5e-10], trials, 0.95)
    return least <= held <= most


def sites_of(rows):
    return {str(place): part for place, part in enumerate(np.array_split(rows, 4))}


FITS = {
    "spherical": (PrivateGaussianMixture, {}, 20),
    "diag": (PrivateGaussianMixture, {"covariance_type": "diag"}, 40),
    "full": (PrivateGaussianMixture, {"covariance_type": "full"}, 40),
    "tied": (PrivateGaussianMixture, {"covariance_type": "tied"}, 40),
    "sites": (FederatedGaussianMixture, {"covariance_type": "diag"}, 20),
    "sites, one may be missing": (
        FederatedGaussianMixture,
        {"covariance_type": "diag", "dropouts": 1},
        20,
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_they_hold_what_rows_say_of_the_components(name):
    make, options, fits = FITS[name]
    fits = fits if SOAK >= 1 else fits * 2 // 5
    rows, held, shown = rows_of(), {}, {}
    for seed in range(fits):
        model = make(3, random_state=seed, **BUDGET, **options)
        model.fit(sites_of(rows) if "sites" in name else rows)
        found = model.intervals()
        for quantity, true in mixture_truths(model, rows):
            each, slack = found[quantity], 1e-4 * np.abs(true)
            holds = (each.lower - slack <= true) & (true <= each.upper + slack)
            # of a symmetric matrix each number once
            once = np.tri(4, dtype=bool) if true.shape[-2:] == (4, 4) else True
            where = each.shown & once
            held[quantity] = held.get(quantity, 0) + np.count_nonzero(holds & where)
            shown[quantity] = shown.get(quantity, 0) + np.count_nonzero(where)
    # parts add up to 1, so that three of them are about two
    assert enough(held["mean"], shown["mean"])
    assert enough(held["covariance"], shown["covariance"])
    assert held["weight"] / shown["weight"] > 0.8
    assert shown["mean"] > 0.7 * fits * 12


def test_they_follow_from_the_saved_result_alone_and_say_where_it_does_not_follow(tmp_path):
    model = PrivateGaussianMixture(3, random_state=0, **BUDGET).fit(rows_of())
    assert model._result.later == {}
    found = model.intervals()
    model.save(tmp_path / "model.npz")
    again = PrivateGaussianMixture.load(tmp_path / "model.npz").intervals()
    assert json.dumps(again.as_dict()) == json.dumps(found.as_dict())
    model = PrivateGaussianMixture(3, random_state=0, **BUDGET).fit(rows_of())
    object.__setattr__(model._result.factors, "means", model.means_ + 1.0)
    other = model.intervals()
    assert not any(each.shown.any() for each in other.values())
    assert other["mean"].why(0, 0) == replayed.ANOTHER


def test_where_a_public_centre_or_variance_was_given_and_where_nothing_was_found():
    center = np.full(4, 2.0)
    options = {"noise_variance": 1.0, "center": center, "random_state": 0} | BUDGET
    found = PrivateGaussianMixture(3, **options).fit(rows_of()).intervals()
    assert found["mean"].shown.all()
    assert found["covariance"].why(0) == released.PUBLIC
    ended = PrivateGaussianMixture(3, random_state=0, epsilon=0.01, delta=1e-6).fit(rows_of(300))
    assert ended.certificate_.stopped
    assert ended.intervals()["weight"].why(0) == released.NO_SUMS


def test_of_the_population_means_are_wider_where_columns_variances_were_released():
    spherical = PrivateGaussianMixture(3, random_state=0, **BUDGET).fit(rows_of())
    population = spherical.intervals(of="population")
    assert population["mean"].why(0, 0) == released.NOT_BY_COLUMN
    assert population["covariance"].why(0) == released.NO_FOURTH
    options = {"covariance_type": "full", "random_state": 0, "epsilon": 8.0, "delta": 1e-5}
    model = PrivateGaussianMixture(3, **options).fit(rows_of())
    table, population = model.intervals(), model.intervals(of="population")
    wide = population["mean"].upper - population["mean"].lower
    narrow = table["mean"].upper - table["mean"].lower
    deviations = np.sqrt(np.diagonal(model.covariances_, axis1=1, axis2=2))
    counts = model.weights_[:, None] * model.n_samples_
    assert np.allclose(wide, np.hypot(narrow, 3.92 * deviations / np.sqrt(counts)), rtol=0.1)
    parts = population["weight"].upper - population["weight"].lower
    assert (parts > table["weight"].upper - table["weight"].lower).all()


def test_commands_show_them(tmp_path, capsys):
    table, out = tmp_path / "rows.csv", tmp_path / "out"
    np.savetxt(table, rows_of(), delimiter=",", header="a,b,c,d", comments="")
    words = ["--task", "gaussian-mixture", "--components", "3", "--epsilon", "4"]
    more = ["--no-ledger", "--one-row-per-person", "--no-plots", "--out", str(out)]
    with pytest.raises(SystemExit) as ended:
        main(["fit", str(table), *words, *more])
    assert ended.value.code == 0
    assert "95 % intervals" in capsys.readouterr().out
    with (out / "means.csv").open() as lines:
        found = list(csv.DictReader(lines))
    assert [each["feature"] for each in found] == ["a", "b", "c", "d"]
    assert all(float(each["component1 lower"]) < float(each["component1 upper"]) for each in found)
