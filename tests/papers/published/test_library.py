"""The published library as a whole: what every function returns, claims and refuses."""

import math

import numpy as np
import pytest

import eigenveil_papers.published as published
from eigenveil.errors import DataError, EigenveilError, PrivacyError
from eigenveil_papers.published.result import (
    CLASSIC,
    LARGEST_NORM,
    MARKOV_CHAIN,
    ONE_ENTRY,
    PLAIN_NOISE,
    ROUNDS,
    SPECTRAL_NORM,
    WISHART,
)

ROWS = np.random.default_rng(0).standard_normal((60, 6)) * np.linspace(3, 1, 6)
SITES = np.split(ROWS, 3)
BUDGET = {"epsilon": 0.5, "delta": 0.05}
PURE = {"epsilon": 0.5}
WIDE = {"intermediate": 4}

ONE_SET = {
    "analyze_gauss": BUDGET,
    "wishart_sn": PURE,
    "mod_sulq": BUDGET,
    "private_power": BUDGET,
    "ppca": PURE,
}
MANY_SITES = {
    "dpdispca": BUDGET | WIDE,
    "djica": BUDGET | WIDE,
    "full": BUDGET,
    "local": BUDGET,
    "pooled": BUDGET,
    "capepca": BUDGET,
}
REASONS = {
    "analyze_gauss": {SPECTRAL_NORM},
    "wishart_sn": {WISHART},
    "private_power": {ONE_ENTRY, ROUNDS},
    "ppca": {MARKOV_CHAIN},
    **{name: {SPECTRAL_NORM} for name in MANY_SITES},
}


def call(name, rows=None, **options):
    one = name in ONE_SET
    settings = {"n_components": 2, "random_state": 0} | (ONE_SET | MANY_SITES)[name]
    given = (ROWS if one else SITES) if rows is None else rows
    return getattr(published, name)(given, **(settings | options))


EVERY = [*ONE_SET, *MANY_SITES]


def test_all_that_is_promised_is_there_and_says_what_it_is():
    promised = [*EVERY, "dispca", "cape", "agn", "avn", "capeagn", "fpca", "second_moment"]
    assert set(promised) <= set(published.__all__)
    assert published.__all__ == sorted(published.__all__)
    for name in published.__all__:
        assert getattr(published, name).__doc__


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("bound", [None, 30.0])
def test_every_result_has_directions_and_a_claim_that_is_not_certified(name, bound):
    made = call(name, row_bound=bound)
    assert made.as_published
    np.testing.assert_allclose(made.components @ made.components.T, np.eye(2), atol=1e-9)
    assert made.strengths.shape == (2,)
    assert made.row_bound == (bound or pytest.approx(np.linalg.norm(ROWS, axis=1).max()))
    claim = made.claim
    assert not claim.certified
    assert claim.epsilon == 0.5
    assert claim.delta == (ONE_SET | MANY_SITES)[name].get("delta", 0.0)
    assert claim.adjacency == "replace-one"
    assert set(claim.caveats) >= REASONS.get(name, set()) | {PLAIN_NOISE}
    assert (LARGEST_NORM in claim.caveats) is (bound is None)
    assert "NOT CERTIFIED" in str(claim)


@pytest.mark.parametrize("name", EVERY)
def test_second_moments_made_once_give_the_same_result(name):
    make = published.second_moment if name in ONE_SET else published.second_moments
    for bound in (None, 30.0):
        once = make(ROWS if name in ONE_SET else SITES, row_bound=bound)
        first, second = call(name, row_bound=bound), call(name, once)
        np.testing.assert_array_equal(first.components, second.components)
        assert first.claim == second.claim
        assert first.row_bound == second.row_bound


@pytest.mark.parametrize("name", EVERY)
def test_a_seed_repeats_a_run_and_another_one_does_not(name):
    first, second, other = (call(name, random_state=seed).components for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", ["analyze_gauss", *MANY_SITES])
def test_an_epsilon_above_1_is_told_where_the_calibration_is_the_classic_one(name):
    assert CLASSIC in call(name, epsilon=1.5).claim.caveats
    assert CLASSIC not in call(name, epsilon=1.0).claim.caveats


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"delta": -0.1},
        {"delta": 1.0},
        {"delta": math.nan},
    ],
)
def test_what_is_no_guarantee_is_refused_with_a_way_out(name, wrong):
    if "delta" in wrong and name in ("wishart_sn", "ppca"):
        return  # these have none
    with pytest.raises(PrivacyError) as raised:
        call(name, **wrong)
    assert raised.value.hint


@pytest.mark.parametrize("name", EVERY)
def test_rows_that_cannot_be_used_are_refused_with_a_way_out(name):
    one = name in ONE_SET
    broken = ROWS.copy()
    broken[0, 0] = np.nan
    wrong = [np.zeros((0, 3)), np.zeros((4, 3)), broken, ROWS[0], "rows", [[1.0], [1.0, 2.0]]]
    for rows in wrong if one else [[each] for each in wrong]:
        with pytest.raises(DataError) as raised:
            call(name, rows)
        assert raised.value.hint
    for options in ({"n_components": 0}, {"n_components": 7}, {"n_components": 1.5}):
        with pytest.raises(DataError, match="components"):
            call(name, **options)
    for bound in (0.1, -1.0, 0.0, math.nan):
        with pytest.raises(DataError, match=r"longer|divided"):
            call(name, row_bound=bound)


@pytest.mark.parametrize("name", [*MANY_SITES, "dispca"])
def test_sites_that_do_not_fit_together_are_refused(name):
    settings = {"n_components": 2} | MANY_SITES.get(name, WIDE)
    made = published.second_moments(SITES)
    other = published.second_moments(SITES, row_bound=40.0)
    for sites, message in (
        ([], "no site"),
        ([SITES[0], SITES[1][:, :5]], "features"),
        ([made[0], SITES[1]], "second moment"),
        ([made[0], other[1]], "row_bound"),
    ):
        with pytest.raises(DataError, match=message):
            getattr(published, name)(sites, **settings)
    with pytest.raises(DataError, match="already"):
        getattr(published, name)(made, row_bound=50.0, **settings)


@pytest.mark.parametrize("name", ["dpdispca", "djica", "dispca"])
@pytest.mark.parametrize("wrong", [0, 7])
def test_messages_without_columns_or_with_too_many_are_refused(name, wrong):
    settings = {"n_components": 1} | (BUDGET if name != "dispca" else {})
    with pytest.raises(EigenveilError, match="intermediate"):
        getattr(published, name)(SITES, intermediate=wrong, **settings)


# The second moment


def test_the_second_moment_is_that_of_the_scaled_rows():
    made = published.second_moment(ROWS, row_bound=20.0)
    np.testing.assert_allclose(made.total, ROWS.T @ ROWS / 400, rtol=1e-12)
    np.testing.assert_allclose(
        made.spectrum, np.linalg.svd(ROWS / 20, compute_uv=False) ** 2 / 60, rtol=1e-9
    )
    assert (made.rows, made.features, made.public_bound) == (60, 6, True)
    assert published.second_moment(made) is made
    assert not published.second_moment(ROWS).public_bound


def test_sites_are_divided_by_the_largest_norm_of_all():
    made = published.second_moments(SITES)
    assert {each.row_bound for each in made} == {np.linalg.norm(ROWS, axis=1).max()}
    assert not any(each.public_bound for each in made)
