"""Studies of mixtures and topics: what they may say, their plans, weights and protocols."""

import math
import re
import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil import PrivacyError
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.checks import coarse_weights
from eigenveil.federation.study.file import template
from eigenveil.federation.study.study import WEIGHT_BITS, Study, make_study, parse_study
from eigenveil.models.mixture.plan import MixturePlan
from eigenveil.models.options import study_options, tasks_with
from eigenveil.models.topics.plan import TopicPlan
from eigenveil.planning.forecast import forecast, pooled
from eigenveil.planning.protocol import choose_protocol
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.mechanisms.base import lattice_error
from eigenveil.privacy.statistics import tensor_size
from soak_tools import times

WHOLE = 1 << WEIGHT_BITS
TENSORS = ["gaussian-mixture", "topic-model"]
MIXTURE, TOPICS = TENSORS


def named(count):
    return [{"name": f"site-{i}"} for i in range(count)]


def study(task=MIXTURE, **changes):
    usual = {"name": "trial", "task": task, "features": 8, "components": 2, "sites": named(5)}
    return make_study(**(usual | changes))


# -- studies that can be


@st.composite
def tensor_studies(draw):
    task = draw(st.sampled_from(TENSORS))
    width = draw(st.integers(2, 60))
    components = draw(st.just("auto") | st.integers(1, min(width - 1, 20)))
    delta = draw(st.sampled_from([0.0, 1e-9, 1e-6, 0.01]))
    names = [f"s{i}" for i in range(draw(st.integers(1, 12)))]
    collusion = draw(st.integers(0, len(names) - 1))
    dropouts = draw(st.integers(0, (len(names) - collusion - 1) // 2))
    mechanism = draw(st.sampled_from(["vector"] if delta == 0 else ["auto", "gaussian", "vector"]))
    masks = ["modular"] if dropouts or mechanism == "vector" else ["modular", "pairwise", "helper"]
    steps = ["scale", "center", "moment", "tensor"]
    clip = {}
    if task == TOPICS:
        clip = {"clip_documents": draw(st.booleans()), "alpha0": draw(st.sampled_from([0.0, 2.5]))}
        steps = ["moment", "tensor"]
        steps += ["scale"] * clip["clip_documents"] + ["center"] * (clip["alpha0"] > 0)
    else:
        steps.append("sums")
    if task == MIXTURE:
        steps.append("scores")
    optional = {
        "budget_split": st.fixed_dictionaries({step: st.floats(0.01, 1.0) for step in steps})
    }
    if task == MIXTURE:
        variances = st.just(0.0) | st.floats(1e-100, 1e6)
        optional |= {"noise_variance": variances, "row_bound": st.floats(1e-3, 1e6)}
    epsilon = draw(st.floats(0.1, 20.0))
    return make_study(
        name="drawn",
        task=task,
        features=width,
        components=components,
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism,
        protocol=draw(
            st.sampled_from(["auto", "cape", "local"] + ["sketch"] * (mechanism != "vector"))
        ),
        adjacency=draw(st.sampled_from(["add-remove", "replace-one"])),
        masks=draw(st.sampled_from(masks)),
        collusion=collusion,
        dropouts=dropouts,
        sites=[
            {"name": name, "epsilon": draw(st.none() | st.floats(epsilon / 20, epsilon))}
            for name in names
        ],
        **draw(st.fixed_dictionaries({}, optional=optional)),
        **clip,
    )


@given(tensor_studies())
@settings(max_examples=times(100))
def test_plan_takes_the_study_over(made):
    plan = made.plan(made.width)
    assert isinstance(plan, MixturePlan if made.task == MIXTURE else TopicPlan)
    assert plan.task == made.task
    assert (plan.features, plan.epsilon, plan.delta) == (made.width, made.epsilon, made.delta)
    assert plan.auto_components == (made.components == "auto")
    assert plan.n_components == made.most_components
    assert plan.rank <= plan.sketch_columns <= made.width
    assert plan.pair == ("sketch" if made.protocol == "sketch" else "full")
    usual = "vector" if made.delta == 0 else "gaussian"
    assert plan.mechanism == (usual if made.mechanism == "auto" else made.mechanism)
    assert plan.noise_draws >= (1 if made.protocol == "local" else len(made.sites))
    # every round that the plan can have is within what a session reserves
    terms = settle(made)
    assert set(plan.fractions) <= {"scale", "center", "scores", "moment", "tensor", "sums"}
    assert all(terms.reservation(name).epsilon(made.delta) <= made.epsilon for name in terms.names)


@pytest.mark.parametrize("task", ["pca", *TENSORS])
def test_a_file_has_the_fields_of_its_task(task):
    text = template(study(task))
    assert parse_study(tomllib.loads(text)) == study(task)
    for field in Study.model_fields:
        found = re.search(rf"^(# )?(\[\[)?{field}( =|\]\])", text, re.M)
        meant = field in study_options(task) or not tasks_with(field, "sites")
        # a schema is written where a study has one
        assert bool(found) == (meant and field != "table_schema"), field
    # the example of a split that is commented out is one that could be taken
    split = re.search(r"^# (budget_split = .*)$", text, re.M).group(1)
    assert study(task, **tomllib.loads(split)).plan(8).budgets


def test_auto_takes_a_sketch_of_any_size():
    made = study(components="auto", features=60, sketch_size=4, protocol="sketch")
    assert made.plan(60).rank == made.plan(60).sketch_columns == 4


# -- weights


def wishing(task, part, **changes):
    epsilon = changes.get("epsilon", 1.0)
    sites = [{"name": "a"}, {"name": "b", "epsilon": part * epsilon}]
    return study(task, sites=sites, **changes)


@given(
    st.sampled_from(TENSORS),
    st.floats(0.02, 1.0),
    st.floats(0.1, 30.0),
    st.sampled_from([0.0, 1e-9, 1e-5]),
)
@settings(max_examples=times(100))
def test_weights_give_each_site_its_wish_in_few_bits(task, part, epsilon, delta):
    made = wishing(task, part, epsilon=epsilon, delta=delta)
    weights = made.weights()
    exact = study("pca", sites=list(made.sites), epsilon=epsilon, delta=delta).weights()
    assert weights["a"] == WHOLE
    assert 15 / 16 * exact["b"] - 1 <= weights["b"] <= exact["b"] + 1
    terms = settle(made)
    assert weights["b"] % (1 << (WEIGHT_BITS - terms.weight_bits)) == 0
    # 16 parts or more lose at most one
    assert terms.weight_bits <= max(5, math.ceil(math.log2(16 * WHOLE / weights["b"])))
    assert terms.reservation("b").epsilon(delta) <= part * epsilon * (1 + 1e-12)


def test_coarse_weights_are_those_that_lose_little():
    assert coarse_weights({"a": 1024, "b": 513}, bits=10) == {"a": 1024, "b": 512}
    assert coarse_weights({"a": 1024, "b": 95}, bits=10) == {"a": 1024, "b": 92}
    assert coarse_weights({"a": 1024, "b": 3, "c": 1}, bits=10) == {"a": 1024, "b": 3, "c": 1}
    assert coarse_weights({"a": 1024}, bits=10) == {"a": 1024}


def test_a_wish_is_met_by_mixed_noise_too():
    made = wishing(TOPICS, 0.5, mechanism="vector")
    plan = made.plan(8)
    assert plan.mixed
    weight = made.weights()["b"] / WHOLE
    assert 0.4 < weight < 0.6
    budgets = plan.budgets
    error = lattice_error(plan.released_values(), steps_a_scale=2.0**26, draws=plan.noise_draws)

    def cost(at):
        mu = math.hypot(*(budgets[step].mu for step in ("scale", "moment")))
        pure = budgets["tensor"].epsilon
        return Loss((at * mu) ** 2, at * pure, *error).epsilon(made.delta)

    assert cost(weight) <= 0.5
    assert cost(weight + 3 / 64) > 0.5  # what coarseness and the sampler's room may take
    with pytest.raises(PrivacyError, match=r"site 'b'.*count less"):
        wishing(TOPICS, 1e-4, mechanism="vector")


# -- protocols and forecasts


@pytest.mark.parametrize("task", TENSORS)
def test_the_columns_choose_the_protocol(task):
    small = choose_protocol(study(task), 8)
    assert small.protocol == "cape"
    most = study(task).plan(8).full_up_to
    assert f"{most:,}" in small.reason
    assert "288 B" in small.reason
    at = study(task, features=most)
    assert choose_protocol(at, most).protocol == "cape"
    wide = study(task, features=50_000, epsilon=0.01, sites=named(60))
    large = choose_protocol(wide, 50_000)
    assert large.protocol == "sketch"
    assert "9.31 GiB" in large.reason
    assert wide.settled().plan(50_000).pair == wide.plan(50_000).pair == "sketch"
    pure = study(task, features=2 * most, delta=0.0)
    assert choose_protocol(pure, 2 * most).protocol == "cape"
    assert pure.plan(2 * most).pair == "full"
    # one site alone does as it would without a study
    assert study(task, features=2 * most, protocol="local").plan(2 * most).pair == "sketch"


@pytest.mark.parametrize("task", TENSORS)
def test_sizes_are_counted_and_nothing_else_is_forecast(task):
    d, k = 60, 20
    for protocol, values in (("cape", d * (d + 1) // 2), ("sketch", d * d)):
        found = forecast(study(task, features=d, components=k, protocol=protocol), d, 10_000)
        assert found.captured_energy is None
        assert "only the sizes" in found.note
        assert found.message_bytes == 8 * max(values, tensor_size(k))
        sums = 4 * k * (d + 2) + 32 * 32 if task == MIXTURE else 0  # and cells
        assert 0 <= found.round_bytes - 8 * (values + tensor_size(k) + sums) < 12_000
        assert found.memory_bytes > found.message_bytes
    assert pooled(study(task), 8, 100).captured_energy is None
    auto = forecast(study(task, features=d, components="auto", protocol="cape"), d, None)
    assert auto.message_bytes == 8 * tensor_size(32)


def test_a_public_center_is_an_array():
    made = study(center=[float(i) for i in range(8)])
    assert np.array_equal(made.public_center, np.arange(8.0))
    assert made.plan(8).centered == "public"
