"""Fits replayed on neighbours: nothing public depends on rows, and what does is found.

Noise is frozen: nothing here happens by chance.
"""

import dataclasses
import re
import warnings

import numpy as np
import pytest
from frozen_cases import plain
from replay_cases import CASES, NEIGHBOURS, NOT_PRIVATE, at, case, edited, replayed

from eigenveil import (
    FederatedPCA,
    NoisyResultWarning,
    PrivateCovariance,
    PrivatePCA,
    PrivateStreamingPCA,
)
from eigenveil.audit.replay import replay
from eigenveil.models.task import TASKS
from eigenveil.moments.release import noisy_integers
from eigenveil.privacy.statistics import STATISTICS

QUICK = [
    "pca: usual",
    "pca: bingham, pure",
    "pca: wishart, a row replaced",
    "pca: of units",
    "pca: usual, two rows",
    "covariance: vector, pure, two rows",
    "pca: missing pairs",
    "covariance: vector, pure",
    "ica: usual",
    "stream: continual, missing",
    "study: usual",
    "study: pairwise",
    "tree: missing",
]
FEW = ("the first row removed", "1e300 added", "missing added", *NEIGHBOURS["replace-one"])


@pytest.mark.parametrize("name", QUICK)
def test_nothing_that_is_public_depends_on_rows(name):
    found = replayed(name, FEW)
    assert found.findings == ()
    assert found.refused == ""
    assert 0.05 < found.moved <= 1 + 1e-9
    # what is sealed for other parties, by keys that no run repeats; answers are compared whole
    assert {each.split()[2] for each in found.unsteady} <= {"keys", "masks", "unmask"}


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in CASES if name not in QUICK])
def test_nothing_that_is_public_depends_on_rows_of_any_fit(name):
    assert replayed(name).findings == ()


def test_every_private_estimator_is_replayed():
    kinds = {task.estimator(path) for task in TASKS.values() for path in task.estimators}
    assert {case(name).kind for name in CASES} == {k for k in kinds if hasattr(k(), "epsilon")}
    assert len(CASES) > 100


# -- defects are found


def test_an_option_that_is_not_private_is_found():
    """``row_norm="max"`` divides rows by the largest norm, and is never certified."""
    for name in NOT_PRIVATE:
        told = " ".join(replayed(name, [HUGE]).findings)
        assert "made with" in told
        assert "ZeroDivisionError" not in told


ROWS = plain()
REMOVED, HUGE, INFINITE = "the first row removed", "1e300 added", "infinite added"
OTHERS = {name: edited(ROWS, NEIGHBOURS["add-remove"][name]) for name in (REMOVED, HUGE, INFINITE)}
PCA = {"n_components": 2, "epsilon": 20.0}


def found(fit, table=ROWS, others=OTHERS):
    return " / ".join(replay(fit, table, others).findings)


def test_a_sound_fit_has_no_findings():
    assert found(PrivatePCA(**PCA).fit) == ""


def test_an_exact_count_is_found():
    def fit(rows):
        model = PrivatePCA(**PCA).fit(rows)
        model.rows_seen_ = len(rows)
        return model

    assert f"{REMOVED}: rows_seen_: 900, and 899" in found(fit)


def test_a_shape_and_a_number_of_sums_that_rows_decide_are_found():
    def more_components(rows):
        return PrivatePCA(2 + (np.nanmax(rows) > 1e9), epsilon=2.0).fit(rows)

    told = found(more_components)
    assert f"{HUGE}: sum" in told
    assert REMOVED not in told

    def again(rows):
        if len(rows) > 900:
            PrivateCovariance().fit(rows)
        return PrivateCovariance().fit(rows)

    assert "sums get noise, and" in found(again)


def test_an_order_and_an_end_that_rows_decide_are_found_of_few_rows():
    """Of 900 rows one more decides neither."""
    column = "a last column added"
    few = ROWS[:2], {column: edited(ROWS[:2], NEIGHBOURS["add-remove"][column])}

    def by_variance(rows):
        model = PrivatePCA(**PCA).fit(rows)
        model.order_ = np.argsort(-np.var(np.clip(rows, -5, 5), axis=0))
        return model

    def until_it_fits(rows):
        for _ in range(round(np.mean(np.clip(rows, -5, 5) ** 2))):
            model = PrivateCovariance().fit(rows)
        return model

    assert f"{column}: order_" in found(by_variance, *few)
    assert "sums get noise, and" in found(until_it_fits, *few)


def test_noise_precision_and_bounds_that_rows_decide_are_found():
    for fit in (
        lambda rows: PrivatePCA(epsilon=len(rows) / 50, n_components=2).fit(rows),
        lambda rows: PrivatePCA(**PCA, precision="single" if len(rows) > 900 else "double").fit(
            rows
        ),
        lambda rows: PrivatePCA(**PCA, row_bound=float(np.nanmax(np.abs(rows[:1])))).fit(rows),
    ):
        assert f"{REMOVED}: sum 1" in (told := found(fit)) or f"{HUGE}: sum 1" in told


def test_warnings_and_refusals_that_rows_decide_are_found():
    def warns(rows):
        if not np.isfinite(rows).all():
            warnings.warn("some are missing", NoisyResultWarning, stacklevel=2)
        return PrivatePCA(**PCA).fit(rows)

    def refuses(rows):
        if not np.isfinite(rows).all():
            raise ValueError("not finite")
        return PrivatePCA(**PCA).fit(rows)

    assert f"{INFINITE}: warnings" in found(warns)
    assert f"{INFINITE}: raised: none, and ('ValueError', 'not finite')" in found(refuses)


@pytest.mark.parametrize("name", ["second-moment", "row-sum", "norm-histogram"])
def test_a_sensitivity_that_is_too_small_is_found(name, monkeypatch):
    true = STATISTICS[name]
    bounds = {norm: lambda record, b=b: 0.9 * b(record) for norm, b in true.bounds.items()}
    monkeypatch.setattr(
        "eigenveil.privacy.releases.STATISTICS",
        STATISTICS | {name: dataclasses.replace(true, bounds=bounds)},
    )
    told = found(PrivatePCA(**PCA, mechanism="gaussian").fit)
    assert f"moves by {1 / 0.9:.4g} of its stated sensitivity" in told


def test_a_stream_that_counts_a_row_twice_is_found():
    def twice(blocks):
        model = PrivateStreamingPCA(n_components=2, publish="continual", horizon=8, row_norm=30.0)
        for block in blocks:
            model.partial_fit(block)
            model.partial_fit(block)
        return model

    blocks = np.split(ROWS, 2)
    others = {HUGE: at(0, blocks, NEIGHBOURS["add-remove"][HUGE])}
    assert "all of a stream's releases together" in found(twice, blocks, others)


def test_a_message_of_a_site_that_tells_of_a_row_is_found(monkeypatch):
    def telling(total, *given, **named):
        return noisy_integers(total, *given, **named) + total.integers().ravel()[0] % 2

    monkeypatch.setattr("eigenveil.federation.protocol.sums.noisy_integers", telling)
    sites = np.split(ROWS, 2)
    others = {HUGE: at(0, sites, NEIGHBOURS["add-remove"][HUGE])}
    told = found(FederatedPCA(2, epsilon=4.0).fit, sites, others)
    assert re.search(f"{HUGE}: message [0-9]+: .* of site1", told)
