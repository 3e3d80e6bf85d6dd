"""Intervals hold what they are said to hold, follow from the saved result, and say why not.

Statistical tests have fixed seeds; the chance that a right implementation fails one with another
seed is 1e-9 or less: bounds are six standard errors, or binomial quantiles of that chance.
"""

import csv
import json
import math
import time
from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from eigenveil import (
    FederatedCovariance,
    FederatedPCA,
    PrivateCovariance,
    PrivatePCA,
    PrivateStreamingPCA,
    plots,
)
from eigenveil.cli.app import main
from eigenveil.models.explained import MeanLeft
from eigenveil.models.intervals import moment as known
from eigenveil.models.intervals.bars import Bars, deviations
from eigenveil.models.intervals.moment import NoisyEnergies, NoisyMoment
from eigenveil.models.pca import intervals as released
from eigenveil.models.pca.adaptive import UNIT_ROWS, WHOLE_ROWS
from eigenveil.privacy.mechanisms.gaussian import Gaussian

WIDTH = deviations(0.95)
BUDGET = {"epsilon": 2.0, "delta": 1e-5}
pytestmark = pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")


def enough(held, trials):
    """Whether so many of independent intervals hold, as of 95 % ones they would."""
    least, most = binom.ppf([5e-10, 1 - 5e-10], trials, 0.95)
    return least <= held <= most


@cache
def rows_of(long=False):
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    rows = rng.standard_normal((3000, 8)) / np.sqrt(np.arange(1, 9)) @ turn
    if long:
        rows[::20] = 6.0 * np.roll(rows[::20], 3, axis=1)
    return rows


def noise_of(rng, size, error):
    drawn = rng.standard_normal((size, size)) * error
    lower = np.tril(drawn, -1) / math.sqrt(2.0)
    return lower + lower.T + np.diag(np.diag(drawn))


def facts_of(matrix, error, **more):
    edge = error * math.sqrt(2.0 * matrix.shape[0])
    return NoisyMoment(matrix, error, edge, 1000.0, 0.0, **more)


def spiked(size, strengths, seed=0):
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]
    return (turn[:, : len(strengths)] * strengths) @ turn[:, : len(strengths)].T, turn.T


# -- The laws


def test_entries_have_the_law_of_the_noise_and_of_the_mean_that_was_taken_off():
    rng, size, rows = np.random.default_rng(1), 12, 1000
    mean, drawn = 400.0 * rng.standard_normal(size), []
    exact = np.diag(np.linspace(200.0, 20.0, size))
    for _ in range(150):
        left = MeanLeft(mean + 60.0 * rng.standard_normal(size), 60.0, rows, None)
        whole = exact + np.multiply.outer(mean, mean) / rows + noise_of(rng, size, 5.0)
        facts = facts_of(whole - left.outer(), 5.0, left=left)
        drawn.append(((facts.matrix - exact) / np.sqrt(facts.of_entries))[np.tri(size, dtype=bool)])
    squares = np.mean(np.square(drawn))
    # what the mean adds is shared by the entries: as many are independent as it has, at least
    assert abs(squares - 1.0) < 6.0 * math.sqrt(2.0 / (np.size(drawn) / size))
    # without the mean's part it would not be so
    bare = facts_of(facts.matrix, 5.0)
    assert np.mean(facts.of_entries / bare.of_entries) > 1.5


def test_the_number_of_rows_is_in_the_intervals_of_what_is_divided_by_it():
    matrix = np.diag([500.0, 100.0])
    sure, counted = facts_of(matrix, 1.0), NoisyMoment(matrix, 1.0, 2.0, 1000.0, 30.0)
    one, other = known.covariances(sure, WIDTH), known.covariances(counted, WIDTH)
    wide = (other.upper - other.lower) / (one.upper - one.lower)
    assert wide[0, 0] == pytest.approx(math.hypot(1.0, 15.0))
    assert wide[0, 1] == pytest.approx(1.0)


def test_what_noise_lifts_is_taken_off_eigenvalues_and_entries_of_directions_are_not_shrunk():
    """Not far above the noise's edge of 200 columns an eigenvalue is lifted by many deviations."""
    size, error, rng = 200, 1.0, np.random.default_rng(2)
    edge = error * math.sqrt(2.0 * size)
    exact, turn = spiked(size, [1.6 * edge, 1.2 * edge])
    scores, entries, lifted = [], [], []
    for _ in range(40):
        facts = facts_of(exact + noise_of(rng, size, error), error)
        assert facts.spectrum.clear[:2].all()
        strengths = np.array([1.6, 1.2]) * edge
        scores.append((facts.spectrum.true[:2] - strengths) / facts.spectrum.errors[:2])
        lifted.append((facts.spectrum.values[:2] - strengths) / facts.spectrum.errors[:2])
        bars = known.loadings(facts, turn[:2], WIDTH)
        entries.append((bars.estimate - turn[:2]) / (0.5 * (bars.upper - bars.lower) / WIDTH))
    count = np.size(scores)
    assert abs(np.mean(scores)) < 6.0 / math.sqrt(count)
    assert abs(np.mean(np.square(scores)) - 1.0) < 6.0 * math.sqrt(2.0 / count)
    assert np.mean(lifted) > 2.0  # as they are seen they miss
    assert abs(np.mean(np.square(entries)) - 1.0) < 0.1  # 16,000 entries, nearly independent


def test_correlations_with_scores_have_the_law_of_entry_eigenvalue_and_variance_together():
    size, rng, scores, alone = 6, np.random.default_rng(8), [], []
    exact, turn = spiked(size, [400.0, 60.0, 30.0, 20.0, 20.0, 20.0])
    true = turn[:1] * math.sqrt(400.0) / np.sqrt(np.diag(exact))
    for _ in range(400):
        facts = facts_of(exact + noise_of(rng, size, 2.0), 2.0)
        bars = known.correlated(facts, turn[:1], WIDTH)
        assert bars.shown.all()
        off, plain = bars.estimate - true, known.loadings(facts, turn[:1], WIDTH)
        unit = bars.estimate / plain.estimate
        scores.append(off / (0.5 * (bars.upper - bars.lower) / WIDTH))
        alone.append(off / (0.5 * unit * (plain.upper - plain.lower) / WIDTH))
    least = 6.0 * math.sqrt(2.0 / 400)  # of the numbers of one draw each by itself
    found, bare = (np.mean(np.square(each), axis=0)[0] for each in (scores, alone))
    assert np.abs(found - 1.0).max() < least
    assert np.abs(bare - 1.0).max() > least  # errors of the entries alone would not do


def test_bounds_of_angles_hold_what_they_say():
    rng, size, error, trials = np.random.default_rng(3), 30, 1.0, 200
    exact, turn = spiked(size, [60.0, 40.0])
    held = np.zeros((2, 2))
    lost = angle = shown = 0
    for seed in range(trials):
        facts = facts_of(exact + noise_of(rng, size, error), error, seed=seed)
        found = facts.spectrum.vectors[:2]
        bars = known.angles(facts, found, 0.95)
        off = np.degrees(np.arccos(np.minimum(1.0, np.abs(np.vecdot(found, turn[:2])))))
        held += bars.upper >= off
        together, least = known.subspace(facts, found, 0.95)
        shown += bool(together.shown)
        cosines = np.linalg.svd(found @ turn[:2].T, compute_uv=False)
        angle += bool(math.degrees(math.acos(min(1.0, cosines[-1]))) <= together.upper)
        lost += bool(1.0 - np.sum((found @ exact) * found) / 100.0 <= least.upper)
    assert shown == trials
    assert all(enough(count, trials) for count in (*held[0], angle, lost))


def test_shares_of_released_energies_are_exact_also_where_the_total_is_noisy():
    rng, trials = np.random.default_rng(4), 2000
    exact = np.array([300.0, 60.0, 20.0, 100.0])
    held = np.zeros((2, 3))
    for _ in range(trials):
        drawn = exact + 50.0 * rng.standard_normal(4)
        facts = NoisyEnergies(drawn[:3], float(drawn[3]), 50.0, 500.0, 0.0, 4.0)
        for place, summed in enumerate((False, True)):
            bars = known.energy_shares(facts, WIDTH, summed=summed)
            parts = np.cumsum(exact[:3]) if summed else exact[:3]
            held[place] += (bars.lower <= parts / 480.0) & (parts / 480.0 <= bars.upper)
    assert all(enough(count, trials) for count in held.ravel())


def test_eigenvalues_that_noise_hides_have_weyls_bound_alone():
    rng, size = np.random.default_rng(5), 20
    exact, _ = spiked(size, [100.0, 3.0, 2.0])
    for _ in range(200):
        facts = facts_of(exact + noise_of(rng, size, 1.0), 1.0)
        bars = known.eigenvalues(facts, size, WIDTH, 0.95)
        hidden = facts.spectrum.values <= facts.edge
        true = np.sort(np.append([100.0, 3.0, 2.0], np.zeros(17)))[::-1] / 1000.0
        assert ((bars.lower <= true) & (true <= bars.upper))[hidden].all()
        assert bars.shown[hidden].all()
    assert known.HIDDEN in known.angles(facts, facts.spectrum.vectors[:2], 0.95).reasons


def test_nothing_is_shown_near_the_noise_or_near_a_neighbour():
    size, error = 10, 1.0
    edge = error * math.sqrt(2.0 * size)
    for strengths, reason in (
        ([1.1 * edge], known.BORDERLINE),
        ([20.0, 17.0], known.NEIGHBOURS),
        ([0.5 * edge], known.HIDDEN),
    ):
        facts = facts_of(spiked(size, strengths)[0], error)
        bars = known.loadings(facts, facts.spectrum.vectors[: len(strengths)], WIDTH)
        assert not bars.shown.any()
        assert set(np.array(bars.reasons)[bars.why.ravel()]) == {reason}
        assert np.isnan(bars.estimate).all()
    weak = known.correlations(facts_of(np.diag([100.0, 3.9]), 1.0), WIDTH)
    assert weak.shown.tolist() == [[True, False], [False, False]]
    assert not known.precisions(facts_of(np.diag([100.0, 7.9]), 1.0), WIDTH).shown.any()
    assert known.precisions(facts_of(np.diag([100.0, 8.1]), 1.0), WIDTH).shown.all()


def test_a_mean_that_may_be_left_is_not_taken_for_a_direction():
    """Of noise, and a released mean that its own noise makes most of: as a centre leaves it."""
    size, error, rows, noise = 20, 1.0, 100, 20.0
    rng, found = np.random.default_rng(7), []
    for _ in range(20):
        mean = 20.0 * rng.standard_normal(size)
        left = MeanLeft(mean + noise * rng.standard_normal(size), noise, rows, Gaussian())
        whole = np.multiply.outer(mean, mean) / rows + noise_of(rng, size, error)
        facts = NoisyMoment(
            whole - left.outer(), error, error * math.sqrt(2.0 * size), rows, 0.0, left
        )
        found.append(facts.spectrum.values[0] / facts.edge)
        assert not facts.spectrum.clear.any()
    assert max(found) > 1.25  # the noise's edge alone would not do


# -- The released facts


def prepared_moment(model, rows):
    mean = getattr(model, "mean_", None)
    about = (rows - (model.location_ if mean is None else mean)) / model.scale_
    length = np.linalg.norm(about, axis=1)
    bound = model.row_bound_
    about /= (length if bound == 0 else np.maximum(length, bound))[:, None]
    away = about - about.mean(axis=0)
    return away.T @ away


SITES = {"a": slice(1000), "b": slice(1000, 2000), "c": slice(2000, 3000)}
FITS = {
    "two releases": lambda **fixed: PrivatePCA(2, **BUDGET, **fixed),
    "one release": lambda **fixed: PrivatePCA(
        2, mechanism="gaussian", row_norm=2.0, **BUDGET, **fixed
    ),
    "rows with their lengths": lambda **fixed: PrivatePCA(2, row_norm="auto", **BUDGET, **fixed),
    "covariance": lambda **fixed: PrivateCovariance(**BUDGET, **fixed),
    "covariance in scales": lambda **fixed: PrivateCovariance(scale="private", **BUDGET, **fixed),
    "pure": lambda **fixed: PrivateCovariance(epsilon=8.0, delta=0.0, **fixed),
    "sites": lambda **fixed: FederatedPCA(2, protocol="cape", **BUDGET, **fixed),
    "sites, one colluding": lambda **fixed: FederatedPCA(
        2, protocol="cape", collusion=1, mechanism="gaussian", **BUDGET, **fixed
    ),
    "sites' own moments": lambda **fixed: FederatedPCA(2, protocol="full", **BUDGET, **fixed),
    "sites, one may be missing": lambda **fixed: FederatedCovariance(dropouts=1, **BUDGET, **fixed),
}  # fmt: skip


@pytest.mark.parametrize("name", FITS)
def test_the_facts_of_a_fit_are_those_of_its_rows_and_its_noise(name):
    """z scores of all entries of all fits: 36 in each, independent but for the mean's share."""
    long = name == "rows with their lengths"
    rows, fits = rows_of(long), 10
    table = {site: rows[part] for site, part in SITES.items()} if "sites" in name else rows
    scores = []
    for seed in range(fits):
        model = FITS[name](random_state=seed).fit(table)
        facts = released.moment_of(model._result)
        off = facts.matrix - prepared_moment(model, rows)
        scores.append((off / np.sqrt(facts.of_entries))[np.tri(8, dtype=bool)])
    spread = 6.0 * math.sqrt(2.0 / np.size(scores)) * (1.0 if name != "pure" else 1.5)
    assert abs(np.mean(np.square(scores)) - 1.0) < spread


def test_of_two_releases_the_one_of_the_results_rows_is_taken():
    kinds = {PrivatePCA(2, row_norm="auto", random_state=s, **BUDGET).fit(rows_of(True)).adapted_
             for s in range(6)}  # fmt: skip
    assert kinds >= {UNIT_ROWS, WHOLE_ROWS}  # both are among the fits above
    same = PrivatePCA(2, random_state=0, **BUDGET).fit(rows_of())
    facts = released.moment_of(same._result)
    (record,) = (each for each in same.certificate_.releases if each.name == "second moment")
    assert facts.error == pytest.approx(record.noise.scale / math.sqrt(2.0))


def test_variances_are_held_by_their_own_release():
    rows, trials, held = rows_of(), 100, np.zeros(2)
    for seed in range(trials):
        model = PrivatePCA(2, random_state=seed, **BUDGET).fit(rows)
        about = rows - model.mean_
        longest = np.maximum(np.linalg.norm(about, axis=1) / model.variance_bound_, 1.0)
        along = np.mean((about / longest[:, None] @ model.components_.T) ** 2, axis=0)
        found = model.intervals()["explained_variance"]
        held += (found.lower <= along) & (along <= found.upper)
    assert all(enough(count, trials) for count in held)


def test_means_are_held_in_the_data_s_units():
    rng, trials, held = np.random.default_rng(6), 150, np.zeros(3)
    rows = rng.uniform(-1.0, 1.0, (2000, 3)) * [1.0, 10.0, 0.1] + [5.0, 0.0, 1.0]
    options = {"row_bound": 25.0, "epsilon": 1.0, "delta": 1e-5}  # nothing is shortened
    for seed in range(trials):
        found = PrivateCovariance(random_state=seed, **options).fit(rows).intervals()["mean"]
        held += (found.lower <= rows.mean(0)) & (rows.mean(0) <= found.upper)
    assert all(enough(count, trials) for count in held)


def test_of_the_population_means_alone_are_shown_and_are_wider():
    model = PrivateCovariance(random_state=0, **BUDGET).fit(rows_of())
    table, population = model.intervals(), model.intervals(of="population")
    assert population.keys() == table.keys()
    wide = population["mean"].upper - population["mean"].lower
    narrow = table["mean"].upper - table["mean"].lower
    rows = rows_of().std(axis=0) * 2 * WIDTH / math.sqrt(3000)
    assert np.allclose(wide, np.hypot(narrow, rows), rtol=0.1)
    assert not any(population[name].shown.any() for name in population if name != "mean")
    assert population["covariance"].why(0, 1) == released.NO_KURTOSIS
    public = PrivateCovariance(center=np.zeros(8), random_state=0, **BUDGET).fit(rows_of())
    assert public.intervals()["mean"].why(0) == released.PUBLIC


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mechanism": "sketch"}, released.NOT_WHOLE),
        ({"scale": "private"}, released.REFINED),
        ({"missing": "pairs"}, released.WITH_HOLES),
    ],
)
def test_what_is_not_validated_is_not_shown_but_what_is_exact_is(options, reason):
    model = PrivatePCA(2, random_state=0, **options, **BUDGET).fit(rows_of())
    found = model.intervals()
    assert found["component"].why(0, 0) == found["angle"].why(0) == reason
    exact = reason != released.WITH_HOLES
    assert found["explained_variance_ratio"].shown.all() == exact
    if options.get("scale"):
        assert np.allclose(
            found["explained_variance"].upper, 8 * found["explained_variance_ratio"].upper
        )


def test_of_a_stream_that_publishes_again_and_again_nothing_is_shown():
    options = {"horizon": 4, "publish": "continual", "random_state": 0, **BUDGET}
    model = PrivateStreamingPCA(2, **options)
    for block in np.split(rows_of(), 4):
        model.partial_fit(block)
    found = model.intervals()
    assert not any(each.shown.any() for each in found.values())
    assert found["rows"].why() == found["angle"].why(0) == released.OF_STREAM


# -- What is asked


def test_intervals_follow_from_the_saved_result_alone(tmp_path):
    model = PrivatePCA(3, random_state=0, **BUDGET).fit(rows_of())
    assert model._result.later == {}  # nothing was computed by the fit
    found = model.intervals()
    assert model.intervals(0.95, of="table") is found
    assert model.intervals(0.9)["mean"].upper[0] < found["mean"].upper[0]
    model.save(tmp_path / "model.npz")
    again = PrivatePCA.load(tmp_path / "model.npz").intervals()
    assert json.dumps(again.as_dict()) == json.dumps(found.as_dict())


@pytest.mark.parametrize("kind", [PrivatePCA, PrivateCovariance])
def test_of_nothing_usable_and_of_a_fit_that_ended_early_reasons_are_given(kind):
    few = np.random.default_rng(0).standard_normal((12, 4))
    model = kind(epsilon=0.1, delta=1e-6, random_state=0).fit(few)
    assert not model.usable_.any()
    assert model.certificate_.stopped
    found = model.intervals()
    assert all(np.isnan(each.estimate).all() for name, each in found.items() if name != "rows")
    assert released.ENDED in found["eigenvalue"].bars.reasons
    weak = kind(epsilon=0.05, delta=1e-6, random_state=0, row_bound=4.0).fit(few)
    assert "noise" in str(weak.intervals())


def test_one_component_has_intervals_of_its_own():
    found = PrivatePCA(1, random_state=0, **BUDGET).fit(rows_of()).intervals()
    assert found["component"].estimate.shape == (1, 8)
    assert found["cumulative_ratio"].lower == found["explained_variance_ratio"].lower
    assert found["angle"].shown.all()


def test_a_hundred_columns_take_less_than_two_seconds():
    rows = np.random.default_rng(0).standard_normal((4000, 100)) / np.sqrt(np.arange(1, 101))
    model = PrivatePCA(10, random_state=0, epsilon=8.0, delta=1e-5).fit(rows)
    start = time.process_time()
    model.intervals()
    assert time.process_time() - start < 2.0


# -- How they are told


def test_quantities_are_columns_text_and_plain_values():
    found = PrivateCovariance(random_state=0, **BUDGET).fit(rows_of()).intervals()
    columns = found["covariance"].columns()
    assert list(columns) == ["feature", "other", "estimate", "lower", "upper", "why"]
    assert {len(each) for each in columns.values()} == {64}
    assert columns["feature"][9], columns["other"][9] == ("1", "1")
    plain = json.loads(json.dumps(found.as_dict()))
    assert plain["level"] == 0.95
    assert plain["quantities"]["rows"]["lower"] < 3000 < plain["quantities"]["rows"]["upper"]
    text = str(found)
    assert "and 52 more" in text
    assert "Shortening rows is no noise" in text


def test_bars_keep_the_first_reason_and_stay_within_what_can_be():
    bars = Bars.about(np.array([0.2, 0.9]), np.array([0.5, 0.5]), within=(0.0, 1.0))
    assert bars.lower.tolist() == [0.0, 0.4]
    assert bars.upper.tolist() == [0.7, 1.0]
    first = bars.but(np.array([True, False]), "one").but(np.array([True, True]), "two")
    assert [first.reasons[code] for code in first.why] == ["one", "two"]
    assert bars.but(np.array([False, False]), "one") is bars


def test_commands_show_them(tmp_path, capsys):
    names = [f"x{i}" for i in range(8)]
    table = tmp_path / "rows.csv"
    np.savetxt(table, rows_of(), delimiter=",", header=",".join(names), comments="")
    for task, file in (("pca", "components.csv"), ("covariance", "covariance.csv")):
        out = tmp_path / task
        words = ["--task", task, "--epsilon", "8", "--no-ledger", "--one-row-per-person"]
        with pytest.raises(SystemExit) as ended:
            main(["fit", str(table), *words, "--no-plots", "--out", str(out)])
        assert ended.value.code == 0
        assert "95 % intervals" in capsys.readouterr().out
        with pytest.raises(SystemExit):
            main(["show", str(out), "--json"])
        plain = json.loads(capsys.readouterr().out)["intervals"]
        assert plain["of"] == "table"
        assert (out / file).exists()
    with (tmp_path / "pca" / "components.csv").open() as lines:
        for line in csv.DictReader(lines):
            assert float(line["PC1 lower"]) <= float(line["PC1 upper"])


def test_the_scree_plot_has_bars(monkeypatch):
    model = PrivatePCA(3, random_state=0, epsilon=8.0, delta=1e-5).fit(rows_of())
    axes = plots.plot_scree(model)
    assert any("95 % interval" in text.get_text() for text in axes.get_legend().get_texts())
    assert any("together" in text.get_text() for text in axes.get_legend().get_texts())
    (right,) = (each for each in axes.figure.axes if each is not axes)
    (band,) = right.collections
    corners = band.get_paths()[0].vertices
    together = model.intervals()["cumulative_ratio"]
    for ends in (together.lower, together.upper):
        assert all(np.isclose(corners[:, 1], 100 * end).any() for end in ends)
    monkeypatch.setattr("eigenveil.models.intervals.asked.version", lambda _: "9.9")
    axes = plots.plot_scree(model)
    assert not any("interval" in text.get_text() for text in axes.get_legend().get_texts())
