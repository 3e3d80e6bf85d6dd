"""A fit releases what its plan's schedule says: names, order, statistics and losses, no other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil.errors import DataError, PrivacyError
from eigenveil.models.driver import rounds_of, rows_for, run_rounds
from eigenveil.models.pca.plan import MECHANISMS
from eigenveil.models.pca.rounds import private_pca
from eigenveil.models.streaming.plan import stream_queries
from eigenveil.moments.source import ArrayRows
from eigenveil.noise.source import SeededSource
from plan_tools import plan_of
from soak_tools import times

ADJACENCY = st.sampled_from(["add-remove", "replace-one"])
DELTA = st.sampled_from([0.0, 1e-6])
FEATURES = 5


def check_records(plan, records, *, stopped=False):
    """The records are those of the schedule, and each spends just what the schedule gives it."""
    schedule, budgets = plan.schedule, plan.budgets
    names = [r.name for r in records]
    if stopped:
        assert names == [p.name for p in schedule][: len(names)]
        assert not schedule[len(names)].beside
    else:
        assert names == [p.name for p in schedule]
    assert len({p.name for p in schedule}) == len(schedule)
    for record, planned in zip(records, schedule, strict=not stopped):
        assert record.statistic == planned.statistic
        assert record.draws == planned.draws
        assert record.noise.kind == plan.noises[planned.step].name
        budget = budgets[planned.step].scaled(planned.fraction)
        spent = record.epsilon() if budget.is_pure else record.mu()
        requested = budget.epsilon if budget.is_pure else budget.mu
        # what the sampler's arithmetic costs a pure release comes on top of its noise
        error = 4.0 * record.sampling_error().log_ratio if budget.is_pure else 0.0
        assert spent == pytest.approx(requested - error, rel=1e-9)
        assert spent <= requested
    for step in plan.fractions:  # nothing is paid for that is not released
        assert sum(p.fraction for p in schedule if p.step == step) == pytest.approx(1.0)


def rows_of(seed, count, size):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((count, FEATURES)) * size + rng.standard_normal(FEATURES)


def fitted(plan, X, *, public=None, max_norm=None, task="pca"):
    if max_norm is not None:
        rounds = private_pca(plan, public_center=public, max_norm=max_norm)
    else:
        rounds = rounds_of(plan, public_center=public)
    source = SeededSource(np.random.default_rng(0))
    return run_rounds(rounds, rows_for(plan, ArrayRows(X)), source)


def check_run(plan, X, **options):
    run = fitted(plan, X, **options)
    check_records(plan, run.records, stopped=run.factors.stopped is not None)


@settings(max_examples=times(200))
@given(
    seed=st.integers(0, 1 << 30),
    count=st.sampled_from([3, 20, 400]),
    size=st.sampled_from([0.0, 1e-3, 1.0]),
    precision=st.sampled_from(["double", "single"]),
    epsilon=st.sampled_from([1e-4, 0.05, 1.0, 30.0]),
    delta=DELTA,
    mechanism=st.sampled_from(["auto", *MECHANISMS]),
    adjacency=ADJACENCY,
    row_norm=st.sampled_from(["unit", "auto", "max", 2.0]),
    row_bound=st.sampled_from([None, 3.0]),
    center=st.sampled_from([True, False, "public"]),
    split=st.sampled_from([None, (1, 1, 8, 0), (1, 1, 8, 1)]),
    power_rounds=st.sampled_from([None, 1, 2]),
)
def test_a_fit_of_pca_releases_its_schedule(
    seed, count, size, precision, epsilon, delta, mechanism, adjacency, row_norm, row_bound,
    center, split, power_rounds,
):  # fmt: skip
    X = rows_of(seed, count, size)
    public = np.zeros(FEATURES) if center == "public" else None
    try:
        plan = plan_of(
            "pca",
            features=FEATURES,
            n_components=2,
            epsilon=epsilon,
            delta=delta,
            mechanism=mechanism,
            adjacency=adjacency,
            row_norm=row_norm,
            row_bound=row_bound,
            precision=precision,
            center=public if center == "public" else center,
            budget_split=None
            if split is None
            else dict(zip(("scale", "center", "moment", "variance"), split, strict=True)),
            sketch_size=None,
            power_rounds=power_rounds,
        )
        plan.check_budget()
    except (DataError, PrivacyError):  # choices that do not go together
        return
    max_norm = 3.0 if row_norm == "max" else None
    try:
        run = fitted(plan, X, public=public, max_norm=max_norm)
    except PrivacyError as error:
        if error.released:
            raise
        return
    if run.factors.stopped:  # ended early: the first of them
        names = [planned.name for planned in plan.schedule]
        assert [record.name for record in run.records] == names[: len(run.records)]
        return
    check_records(plan, run.records)


@given(
    adjacency=ADJACENCY,
    delta=DELTA,
    row_norm=st.sampled_from(["unit", 2.0]),
    center=st.booleans(),
    sketch_size=st.sampled_from([None, 4]),
    horizon=st.sampled_from([None, 1, 5]),
)
def test_a_stream_releases_its_schedule(adjacency, delta, row_norm, center, sketch_size, horizon):
    public = np.zeros(FEATURES) if center else None
    try:
        plan = plan_of(
            "pca",
            path="stream",
            features=FEATURES,
            n_components=2,
            epsilon=1.0,
            delta=delta,
            adjacency=adjacency,
            row_norm=row_norm,
            center=False if public is None else public,
            sketch_size=sketch_size,
            publish="end" if horizon is None else "continual",
            horizon=horizon,
        )
    except (DataError, PrivacyError):
        assert delta == 0
        return
    check_records(plan, [query.record for query in stream_queries(plan, public_center=public)])
    assert [p.beside for p in plan.schedule] == [False, True]


@settings(max_examples=times(60))
@given(
    seed=st.integers(0, 1 << 30),
    count=st.sampled_from([40, 2000]),
    delta=DELTA,
    adjacency=ADJACENCY,
    pair=st.sampled_from(["full", "sketch"]),
    row_bound=st.sampled_from([None, 3.0]),
    center=st.sampled_from([True, False, "public"]),
    auto=st.booleans(),
    noise_variance=st.sampled_from([None, 0.2]),
)
def test_a_fit_of_a_mixture_releases_its_schedule(
    seed, count, delta, adjacency, pair, row_bound, center, auto, noise_variance
):
    rng = np.random.default_rng(seed)
    means = 4.0 * np.eye(FEATURES)[:2]
    X = means[rng.integers(0, 2, count)] + 0.3 * rng.standard_normal((count, FEATURES))
    public = np.zeros(FEATURES) if center == "public" else None
    plan = plan_of(
        "gaussian-mixture",
        features=FEATURES,
        n_components="auto" if auto else 2,
        epsilon=20.0,
        delta=delta,
        mechanism="auto",
        adjacency=adjacency,
        pair=pair,
        row_bound=row_bound,
        center=public if center == "public" else center,
        budget_split=None,
        sketch_size=None,
        noise_variance=noise_variance,
    )
    check_run(plan, X, public=public, task="gaussian-mixture")


@settings(max_examples=times(50))
@given(
    seed=st.integers(0, 1 << 30),
    count=st.sampled_from([40, 2000]),
    delta=DELTA,
    adjacency=ADJACENCY,
    pair=st.sampled_from(["full", "sketch"]),
    clip=st.booleans(),
    alpha0=st.sampled_from([0.0, 1.0]),
)
def test_a_fit_of_topics_releases_its_schedule(seed, count, delta, adjacency, pair, clip, alpha0):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(8, 0.2), size=2)
    X = np.array([rng.multinomial(12, topics[i % 2]) for i in range(count)], dtype=float)
    plan = plan_of(
        "topic-model",
        features=8,
        n_components=2,
        epsilon=20.0,
        delta=delta,
        mechanism="auto",
        adjacency=adjacency,
        pair=pair,
        budget_split=None,
        sketch_size=None,
        clip_documents=clip,
        alpha0=alpha0,
    )
    check_run(plan, X, task="topic-model")
