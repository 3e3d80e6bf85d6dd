"""The plan says how often a fit shows nothing, and what it takes to reach a quality."""

import math
import re
import warnings

import numpy as np
import pytest

from eigenveil import DataError, PrivacyError, PrivatePCA
from eigenveil.models.task import TASKS
from eigenveil.planning.predict import parse_spectrum, predict, try_pca
from eigenveil.planning.quality import epsilons, row_counts, smallest
from eigenveil.planning.simulated import SIMULATORS, try_covariance, try_mixture, try_topics
from eigenveil.planning.trials import Scenario, Simulation, Trials
from plan_tools import plan_of
from soak_tools import some
from statistics_tools import ended_early

ROWS, FEATURES = 3000, 12
FLAT = np.ones(FEATURES)
LAW = parse_spectrum("power:1.0", FEATURES)


def pca(**options):
    options = {"n_components": 3, "epsilon": 1.0, "delta": 1e-6} | options
    return plan_of("pca", features=FEATURES, **options)


# -- the probability that a fit shows nothing


@pytest.mark.thorough
def test_the_probability_is_that_of_real_fits():
    # at a budget where either happens. Shares of two times 200 fits of one chance differ by more
    # than 0.31 with probability 2 exp(-200 * 0.31**2) < 1e-8 (Hoeffding)
    rng = np.random.default_rng()
    spectrum, rows, fits = parse_spectrum("spike:1:0.5", FEATURES), 500, 200
    made = pca(n_components=1, epsilon=0.7)
    trials = try_pca(made, Scenario(rows, spectrum), Simulation(fits))
    assert 0.2 < trials.probability < 0.8
    nothing = 0
    with warnings.catch_warnings(action="ignore"):  # of fits that show nothing
        for _ in range(fits):
            table = rng.standard_normal((rows, FEATURES)) * np.sqrt(spectrum)
            model = PrivatePCA(1, epsilon=0.7, delta=1e-6).fit(table)
            nothing += not model.usable_.any()
    assert abs(nothing / fits - trials.probability) < 0.31


def simulated(task, rows, fits=3):
    """Simulated fits of data that have what is looked for."""
    features = 60 if task == "topic-model" else FEATURES
    counted = {"n_components": 3} if TASKS[task].counted else {}
    made = plan_of(task, features=features, epsilon=1.0, delta=1e-6, **counted)
    data = Scenario(rows, parse_spectrum("power:1.0", features), distance=4.0, topic_words=10)
    return SIMULATORS[task](made, data, Simulation(fits))


@pytest.mark.parametrize("task", sorted(TASKS))
def test_many_rows_show_something_and_few_show_nothing(task):
    many, few = simulated(task, 1_000_000), simulated(task, 40)
    assert (many.nothing, many.fits) == (0, 3)
    assert many.quality > 0.9
    assert (few.nothing, few.fits) == (3, 3)
    assert few.quality < many.quality - 0.2


def test_an_error_is_said_of_none_and_of_all():
    for nothing in (0, 20):
        trials = Trials((0.5,) * 20, nothing)
        assert 0.02 < trials.probability_error < 0.1
    assert Trials((0.5,) * 20, 10).probability_error == pytest.approx(0.104, abs=1e-3)
    # one of twenty: (k + 1) / (n + 2) with n + 3 in place of n
    assert Trials((0.5,) * 20, 1).as_json() == {
        "probability": 0.05,
        "standard_error": pytest.approx(math.sqrt(2 / 22 * 20 / 22 / 23)),
        "simulated_fits": 20,
    }
    assert Trials(note="why").as_json() is None


def test_fits_that_stop_count_as_nothing():
    plan, scenario = pca(epsilon=0.3), Scenario(60, LAW)
    for trials in ended_early(
        lambda: try_pca(plan, scenario, Simulation(4)), lambda it: it.stopped == 4
    ):
        assert (trials.nothing, trials.quality) == (4, 0.0)
    ended_early(
        lambda: predict(plan, LAW, rows=60, fits=4), lambda found: found.captured_energy is None
    )


def test_fewer_features_are_drawn_of_wide_mixtures_and_topics():
    wide = {"epsilon": 1.0, "delta": 1e-6, "n_components": 2}
    mixture = plan_of("gaussian-mixture", features=800, **wide)
    assert try_mixture(mixture, Scenario(200_000, FLAT, distance=8.0), Simulation(2)).quality > 0.9
    topics = plan_of("topic-model", features=5000, **wide)
    assert try_topics(topics, Scenario(200_000, FLAT, topic_words=10), Simulation(2)).quality > 0.9
    mixed = plan_of("topic-model", features=5000, alpha0=1.0, **wide)
    assert try_topics(mixed, Scenario(200_000, FLAT, topic_words=10), Simulation(2)).quality > 0.9
    spread = Scenario(200_000, FLAT, topic_words=4000)
    assert "not simulated" in try_topics(topics, spread).note
    covariance = plan_of("covariance", features=5000, epsilon=1.0, delta=1e-6)
    assert try_covariance(covariance, Scenario(200_000, np.ones(5000))).fits == 0


# -- what it takes


def find(wanted, sought="epsilon", rows=ROWS, fits=5, **options):
    """The answer for PCA; and what is predicted of any value."""

    def try_at(value, seed=0, rows=rows):
        rows = int(value) if sought == "rows" else rows
        epsilon = {"epsilon": value} if sought == "epsilon" else {}
        return try_pca(pca(**(options | epsilon)), Scenario(rows, LAW), Simulation(fits, seed))

    candidates = epsilons() if sought == "epsilon" else row_counts(3)
    more = (lambda value: try_at(value, rows=10**9)) if sought == "epsilon" else None
    return smallest(wanted, sought, candidates, try_at, with_more_rows=more), try_at


@pytest.mark.parametrize(
    ("wanted", "options"),
    some(
        [
            (0.95, {}),
            (0.95, {"delta": 0.0}),
            (0.9, {"adjacency": "replace-one"}),
            (0.9, {"unit": "person", "max_rows_per_unit": 2}),
            (0.9, {"scale": "private"}),
            (0.95, {"mechanism": "sketch"}),
        ],
        step=5,
    ),
    ids=str,
)
def test_the_answer_is_the_smallest_epsilon(wanted, options):
    answer, try_at = find(wanted, **options)
    assert try_at(answer.value).quality == answer.trials.quality >= wanted
    assert try_at(0.9 * answer.value).quality < wanted
    # other random numbers agree, to ten standard errors of both
    error = math.hypot(answer.verified.quality_error, answer.trials.quality_error)
    assert answer.verified.qualities != answer.trials.qualities
    assert abs(answer.verified.quality - answer.trials.quality) < 10 * error
    assert len(answer.tried) < 12


def test_the_answer_is_the_fewest_rows():
    answer, try_at = find(0.95, "rows", epsilon=0.5, fits=3)
    assert try_at(answer.value).quality >= 0.95
    assert try_at(0.9 * answer.value).quality < 0.95
    assert answer.value == int(answer.value)


def test_the_noise_is_shared_between_candidates():
    # with noise of its own, neighbours would differ by luck as often as not
    def qualities(epsilon):
        return np.array(
            try_pca(pca(epsilon=epsilon), Scenario(ROWS, LAW), Simulation(12)).qualities
        )

    less, more = qualities(0.6), qualities(0.606)
    # a choice between candidates may turn over in a fit or two
    assert np.median(np.abs(more - less)) < 0.3 * np.std(less)
    assert np.mean(more > less) > 0.9


def test_nothing_found_is_said_with_its_reason():
    answer, _ = find(0.995, rows=50)
    assert answer.value is None
    assert answer.verified is None
    assert answer.reason.startswith("not reached at epsilon = 40: 0.")
    assert "rows are too few" in answer.reason
    # a sketch of 3 columns does not release what is missing, whatever epsilon and rows are
    answer, _ = find(0.9999, mechanism="sketch", sketch_size=3)
    assert answer.value is None
    assert "not hidden by noise" in answer.reason


def test_what_is_not_simulated_has_no_answer():
    answer = smallest(0.9, "epsilon", epsilons(), lambda *_: Trials(note="too wide"))
    assert answer.value is None
    assert answer.reason == "nothing can be predicted: too wide"


def test_too_small_an_epsilon_for_any_plan_is_not_reached():
    def try_at(value, seed):
        if value < 1.0:
            raise PrivacyError.relayed(
                "below what arithmetic can promise", hint="more", code="epsilon-below-resolution"
            )
        return Trials((0.99,))

    answer = smallest(0.9, "epsilon", epsilons(), try_at)
    assert 1.0 <= answer.value < 1.06


def test_an_answer_whose_fits_show_nothing_says_so():
    answer = smallest(0.5, "epsilon", epsilons(), lambda value, _: Trials((value / 40,) * 4, 3))
    assert answer.value == pytest.approx(20, rel=0.06)
    assert "not above the noise" in answer.reason


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.5, 1.5, math.nan, math.inf])
def test_a_quality_is_a_share(wrong):
    with pytest.raises(DataError, match="quality"):
        smallest(wrong, "epsilon", epsilons(), lambda *_: Trials((1.0,)))


def test_a_plan_says_in_how_many_fits_columns_were_left_out():
    """It named a number of rows by a rule, fewer than those of fits that left columns out."""
    spectrum = parse_spectrum("power:1.0", FEATURES)
    notes = {}
    for rows in (100, 800, 20_000):
        plan = pca(n_components=2, scale="private", epsilon=1.2)
        notes[rows] = try_pca(plan, Scenario(rows, spectrum), Simulation(5)).note
    assert "above its noise" in notes[100]
    assert re.search("in [1-5] of 5 fits noise hid the scale of some columns", notes[800])
    assert not notes[20_000]
