"""Fits of mixtures and topics to rows of every kind: none may fail once something was released."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil import FederatedGaussianMixture, FederatedTopicModel
from eigenveil.errors import DataError, EigenveilError, PrivacyError
from eigenveil.federation.protocol.certificates import check
from eigenveil.models.driver import certified_fit, rounds_of, rows_for
from eigenveil.models.result import EstimatorSpec
from eigenveil.moments.source import ArrayRows
from eigenveil.noise.source import SecureSource
from plan_tools import plan_of
from soak_tools import times

COUNTS = [0, 1, 2, 3, 5, 20, 300]
SIZES = [0.0, 1e-300, 1e-12, 1.0, 1e12, 1e150]
COMMON = {
    "seed": st.integers(0, 1 << 30),
    "count": st.sampled_from(COUNTS),
    "epsilon": st.sampled_from([1e-4, 1e-2, 1.0, 40.0]),
    "delta": st.sampled_from([0.0, 1e-9, 1e-2]),
    "adjacency": st.sampled_from(["add-remove", "replace-one"]),
    "pair": st.sampled_from(["full", "sketch"]),
    "components": st.sampled_from(["auto", 1, 2, 4]),
}


class Watched:
    """Counts the releases that the generator of rounds has got."""

    def __init__(self, rounds):
        self.rounds, self.released = rounds, 0

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.rounds)

    def send(self, answers):
        self.released += len(answers)
        return self.rounds.send(answers)


def check_fit(plan, rows, task, public=None):
    """The fit fails before its first release, or gives a result and a certificate that holds."""
    try:
        rounds = Watched(rounds_of(plan, public_center=public))
        kept = []
        certified_fit(
            plan,
            rounds,
            rows_for(plan, ArrayRows(rows)),
            SecureSource(),
            spec=EstimatorSpec("test", {}),
            keep=kept.append,
        )
        (run,) = kept
    except (PrivacyError, DataError) as error:
        spent = rounds.released, getattr(error, "released", ())
        assert spent == (0, ())
        return None
    verdict = check(run.certificate)
    assert verdict.holds, verdict.explanation
    factors = run.factors
    found = factors.means if task == "gaussian-mixture" else factors.topics
    assert np.isfinite(found).all()
    assert np.isfinite(factors.weights).all()
    assert factors.weights.sum() == pytest.approx(1.0)
    assert factors.usable.shape == factors.weights.shape
    assert 1 <= factors.weights.size <= plan.n_components
    if factors.weights.size < plan.n_components and not plan.auto_components:
        assert factors.advice
    if factors.stopped:
        assert not factors.usable.any()
        assert factors.advice
        assert "ended after" in verdict.explanation
        assert len(run.certificate.releases) < len(plan.schedule)
    return factors


def rounds_or_refused(task, **options):
    try:
        plan = plan_of(task, **options)
        plan.check_budget()
    except EigenveilError:
        return None
    return plan


@settings(max_examples=times(500))
@given(
    size=st.sampled_from(SIZES),
    groups=st.booleans(),
    row_bound=st.sampled_from([None, 1e-6, 3.0, 1e6]),
    center=st.sampled_from([True, False, "public"]),
    noise_variance=st.sampled_from([None, 0.0, 1.0]),
    **COMMON,
)
def test_a_fit_of_a_mixture_never_fails_after_a_release(
    seed, count, epsilon, delta, adjacency, pair, components, size, groups, row_bound, center,
    noise_variance,
):  # fmt: skip
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, 5)) * size
    if groups:
        X += 10.0 * size * np.eye(5)[rng.integers(0, 2, count)]
    public = np.zeros(5) if center == "public" else None
    plan = rounds_or_refused(
        "gaussian-mixture",
        features=5,
        n_components=components,
        epsilon=epsilon,
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
    if plan is not None:
        check_fit(plan, X, "gaussian-mixture", public)


@settings(max_examples=times(400))
@given(
    length=st.sampled_from([3, 4, 20, 5000]),
    words=st.sampled_from(["one", "even", "topics"]),
    clip=st.booleans(),
    alpha0=st.sampled_from([0.0, 1.0, 50.0, "auto"]),
    **COMMON,
)
def test_a_fit_of_topics_never_fails_after_a_release(
    seed, count, epsilon, delta, adjacency, pair, components, length, words, clip, alpha0
):
    rng = np.random.default_rng(seed)
    topics = {
        "one": np.eye(6)[[0, 0]],
        "even": np.full((2, 6), 1 / 6),
        "topics": rng.dirichlet(np.full(6, 0.2), size=2),
    }[words]
    X = np.array([rng.multinomial(length, topics[i % 2]) for i in range(count)], dtype=float)
    plan = rounds_or_refused(
        "topic-model",
        features=6,
        n_components=components,
        epsilon=epsilon,
        delta=delta,
        mechanism="auto",
        adjacency=adjacency,
        pair=pair,
        budget_split=None,
        sketch_size=None,
        clip_documents=clip,
        alpha0=alpha0,
    )
    if plan is not None:
        check_fit(plan, X.reshape(count, 6), "topic-model")


@settings(max_examples=times(75))
@given(
    seed=st.integers(0, 1 << 30),
    counts=st.tuples(*[st.sampled_from([0, 1, 5, 60])] * 2),
    epsilon=st.sampled_from([1e-4, 0.1, 30.0]),
    delta=st.sampled_from([0.0, 1e-6]),
    topics=st.booleans(),
    components=st.sampled_from(["auto", 3]),
)
def test_sites_never_fail_after_a_release(seed, counts, epsilon, delta, topics, components):
    rng = np.random.default_rng(seed)
    parts = [
        rng.integers(1, 4, size=(count, 5)).astype(float)
        if topics
        else rng.standard_normal((count, 5))
        for count in counts
    ]
    made = FederatedTopicModel if topics else FederatedGaussianMixture
    model = made(components, epsilon=epsilon, delta=delta, protocol="cape")
    rows = {f"s{number}": ArrayRows(part) for number, part in enumerate(parts)}
    try:
        model.fit_rows(rows)
    except EigenveilError as error:
        spent = getattr(error, "released", ()), getattr(error, "spent", None)
        assert spent == ((), None)
        return
    verdict = check(model.certificate_)
    assert verdict.holds, verdict.explanation
    assert np.isfinite(model.weights_).all()
