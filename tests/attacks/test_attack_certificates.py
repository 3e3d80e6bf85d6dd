"""One edit of a certificate, or one and the plan's hash made anew.

Before certificates were checked against the plan's schedule this found: releases dropped though the
plan lists them (0.933 told for 1.0), another target than the plan's, a smaller weight of the rows,
"seeded" relabelled, a claim of no releases, ``row_norm="max"`` with its reason struck out.
"""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import get_args

import numpy as np
import pytest
from pydantic import ValidationError

from eigenveil import (
    FederatedGaussianMixture,
    FederatedPCA,
    FederatedTopicModel,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateStreamingPCA,
    PrivateTopicModel,
)
from eigenveil.federated.tree import simulate_tree
from eigenveil.federation.protocol.certificates import check
from eigenveil.federation.tree.private import make_tree_study
from eigenveil.federation.tree.tree import MergeTree
from eigenveil.privacy.certificate import Certificate, plan_hash
from eigenveil.privacy.mechanisms import MECHANISMS
from eigenveil.privacy.releases import NoiseSource
from eigenveil.privacy.statistics import STATISTICS

D, ROWS = 5, 2000


def rows():
    rng = np.random.default_rng(3)
    return rng.standard_normal((ROWS, D)) * [5, 4, 1, 1, 1] + 1


def mixed():
    rng = np.random.default_rng(4)
    means = 8.0 * np.eye(D)[:2]
    return means[rng.integers(0, 2, ROWS)] + 0.3 * rng.standard_normal((ROWS, D))


def documents():
    rng = np.random.default_rng(5)
    topics = rng.dirichlet(np.full(8, 0.2), size=2)
    return np.array([rng.multinomial(12, topics[i % 2]) for i in range(ROWS)], dtype=float)


def pca(**options):
    return PrivatePCA(n_components=2, **{"epsilon": 4.0} | options).fit(rows()).certificate_


def stream(**options):
    model = PrivateStreamingPCA(n_components=2, epsilon=4.0, **options)
    for block in np.split(rows(), 4):
        model.partial_fit(block)
    return model.release().certificate_


def sites(estimator, data, **options):
    parts = np.split(data[:1998], 3)
    return estimator(n_components=2, epsilon=20.0, **options).fit(parts).certificate_


def tree(**options):
    shape = MergeTree(fan_out=2, depth=2)
    study = make_tree_study(shape, features=D, n_components=2, epsilon=4.0, delta=1e-6, **options)
    return simulate_tree(study, rows=50, workers=1).outcome.certificate


RUNS = {
    "gaussian": lambda: pca(),
    "no variance": lambda: pca(budget_split={"scale": 1, "center": 1, "moment": 8}),
    "not centred": lambda: pca(center=False),
    "row bound": lambda: pca(row_bound=20.0),
    "pure": lambda: pca(delta=0.0),
    "vector": lambda: pca(delta=0.0, mechanism="vector"),
    "bingham": lambda: pca(delta=0.0, mechanism="bingham"),
    "power": lambda: pca(mechanism="power"),
    "sketch": lambda: pca(mechanism="sketch", sketch_size=4),
    "auto": lambda: pca(row_norm="auto"),
    "replace-one": lambda: pca(adjacency="replace-one"),
    "largest norm": lambda: pca(row_norm="max"),
    "seeded": lambda: pca(random_state=1),
    "stream": lambda: stream(),
    "continual": lambda: stream(publish="continual", horizon=8),
    "stream, replace-one": lambda: stream(adjacency="replace-one"),
    "mixture": lambda: PrivateGaussianMixture(2, epsilon=20.0).fit(mixed()).certificate_,
    "mixture, sketch": lambda: (
        PrivateGaussianMixture("auto", epsilon=20.0, pair="sketch", sketch_size=4)
        .fit(mixed())
        .certificate_
    ),
    "mixture, pure": lambda: (
        PrivateGaussianMixture(2, epsilon=40.0, delta=0.0).fit(mixed()).certificate_
    ),
    "topics": lambda: PrivateTopicModel(2, epsilon=20.0).fit(documents()).certificate_,
    "topics, sketch": lambda: (
        PrivateTopicModel(2, epsilon=20.0, pair="sketch").fit(documents()).certificate_
    ),
    "sites": lambda: sites(FederatedPCA, rows(), protocol="cape"),
    "sites, pure": lambda: sites(FederatedPCA, rows(), protocol="cape", delta=0.0),
    "sites, sketch": lambda: sites(FederatedPCA, rows(), protocol="sketch", dropouts=1),
    "sites, full": lambda: sites(FederatedPCA, rows(), protocol="full"),
    "sites, targets": lambda: sites(
        FederatedPCA, rows(), protocol="cape", site_epsilon={"site1": 5.0}
    ),
    "sites, replace-one": lambda: sites(
        FederatedPCA, rows(), protocol="cape", adjacency="replace-one"
    ),
    "sites, collusion": lambda: sites(FederatedPCA, rows(), protocol="cape", collusion=1),
    "sites, pairwise": lambda: sites(FederatedPCA, rows(), protocol="cape", masks="pairwise"),
    "sites, mixture": lambda: sites(FederatedGaussianMixture, mixed(), protocol="cape"),
    "sites, topics": lambda: sites(FederatedTopicModel, documents(), protocol="cape"),
    "one site": lambda: sites(FederatedPCA, rows(), protocol="local"),
    "tree": lambda: tree(lost=1),
    "tree, aggregators": lambda: tree(protect="aggregators"),
}
BROKEN = {"seeded", "largest norm"}
LABELS = (
    tuple(MECHANISMS),
    get_args(NoiseSource),
    tuple(STATISTICS),
    ("add-remove", "replace-one"),
    ("unit", "auto", "max"),
    ("private", "public", "no"),
    ("end", "continual"),
    ("gaussian", "wishart", "vector", "bingham", "power", "sketch"),
    ("full", "sketch", "cape", "local", "dpdispca"),
    ("none", "modular", "pairwise", "helper"),
    ("outsider", "aggregator", "aggregator at level 1"),
    ("pca", "gaussian-mixture", "topic-model"),
)
# What a single edit can change without any number of the claim becoming wrong for its target, and
# that only the party that wrote it knows: see docs/certificates.md.
NOT_CHECKED = {
    "software": "which version ran is its own word",
    "stopped": "why a run ended is text; that it ended early is checked",
    "federation.taking_part": "how many sites' messages arrived is the aggregator's word",
    "tree.leaves": "how many leaves there were is the root's word",
    "tree.least": "how many leaves were in a message is the nodes' word",
}
# What is true in one run only, or made of plan and hash together.
NOT_CHECKED_IN = {
    ("largest norm", "hash.plan.row_norm"): "plan and hash were made anew together",
    ("tree, aggregators", "target.view"): "a true claim, against those who see the result alone",
}


@cache
def made(name):
    return RUNS[name]()


def places(value, path=()):
    """Every place of a JSON value, containers and leaves."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from places(value[index], (*path, index))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def edits(value):
    """Other values in a place; ``DROP`` takes it away."""
    yield DROP
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value * 0.5, value * 2, value + 1, -value, None)
        if isinstance(value, int) and value > 1:
            yield value // 2
    elif isinstance(value, str):
        alike = {label for group in LABELS if value in group for label in group}
        yield from sorted((alike | {"anything"}) - {value})
    elif value is None:
        yield from (1, 0.5, "anything")
    elif isinstance(value, list) and value:
        yield value[::-1]
        yield [*value, value[0]]
        yield value[:-1]
        yield []


DROP = object()


def edited(certificate, path, new):
    value = holder = copy.copy(certificate)  # copied along the path only
    for key in path[:-1]:
        holder[key] = copy.copy(holder[key])
        holder = holder[key]
    if new is DROP:
        del holder[path[-1]]
    else:
        holder[path[-1]] = new
    return value


def attacks(certificate):
    """Every single edit; those of the plan also with its hash made anew."""
    for path in places(certificate):
        for new in edits(at(certificate, path)):
            value = edited(certificate, path, new)
            if value == certificate:
                continue
            yield path, new, value
            if path[0] == "plan" and len(path) > 1:
                yield ("hash", *path), new, value | {"plan_hash": plan_hash(value["plan"])}


def succeeds(value, before):
    """Whether an edited certificate makes a better claim than the one it was made from."""
    try:
        certificate = Certificate.model_validate_json(json.dumps(value))
    except ValidationError:  # read_certificate makes a DataError of it
        return None
    verdict = check(certificate)
    if not verdict.holds:
        assert verdict.explanation
        return None
    if not before.holds:
        return f"now {verdict.word}: {verdict.explanation}"
    old, new = before.guarantee, verdict.guarantee
    same = (new.delta, new.adjacency, new.view) == (old.delta, old.adjacency, old.view)
    if same and new.epsilon >= old.epsilon * (1 - 1e-12):
        return None
    return f"{old} became {new}"


@pytest.mark.parametrize("name", RUNS)
def test_an_honest_certificate_stands(name):
    verdict = check(Certificate.model_validate_json(made(name).model_dump_json()))
    assert verdict.word == ("NOT CERTIFIED" if name in BROKEN else "VALID"), verdict.explanation


@pytest.mark.parametrize("name", RUNS)
def test_no_single_edit_makes_a_better_claim(name):
    certificate = made(name)
    before = check(certificate)
    value = json.loads(certificate.model_dump_json())
    found = []
    for path, new, forged in attacks(value):
        dotted = ".".join(str(part) for part in path)
        if any(dotted.startswith(known) for known in NOT_CHECKED):
            continue
        if (name, dotted) in NOT_CHECKED_IN:
            continue
        if problem := succeeds(forged, before):
            found.append(f"{dotted} -> {'dropped' if new is DROP else new!r}: {problem}")
    assert not found, "\n".join(found)


def first_release_gone(value):
    del value["releases"][0]


def last_release_gone(value):
    del value["releases"][-1]


def one_twice(value):
    value["releases"].insert(1, value["releases"][0])


def other_order(value):
    value["releases"][0], value["releases"][1] = value["releases"][1], value["releases"][0]


def one_more(value):
    value["releases"].append(value["releases"][0] | {"name": "another"})


def none(value):
    value["releases"] = []


def ended_early(value):
    value["stopped"] = "nothing was found"
    del value["releases"][-1]


def ended_with_everything(value):
    value["stopped"] = "nothing was found"


def ended_within_a_round(value):
    value["stopped"] = "nothing was found"
    names = [release["name"] for release in value["releases"]]
    del value["releases"][names.index("second moment") + 1 :]


def seeded_relabelled_in_the_plan(value):
    value["plan"]["noise_source"] = "seeded"
    value["plan_hash"] = plan_hash(value["plan"])


def smaller_wish(value):
    value["target"]["epsilon"] = 1.0


def smaller_weight(value):
    value["releases"][0]["weight"] = 0.5


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (first_release_gone, "'scale' is missing"),
        (last_release_gone, "'explained variance' is missing"),
        (one_twice, "'scale' is recorded 2 times"),
        (other_order, "another order"),
        (one_more, "'another' is recorded, which the plan does not have"),
        (none, "No release is recorded"),
        (ended_with_everything, "all its releases are recorded"),
        (ended_within_a_round, "made together with 'second moment'"),
        (seeded_relabelled_in_the_plan, "sources of the noise do not agree"),
        (smaller_wish, "epsilon = 1.0"),
        (smaller_weight, "weight = 0.5"),
    ],
)
def test_what_does_not_fit_is_named(edit, said):
    value = json.loads(made("gaussian").model_dump_json())
    edit(value)
    verdict = check(Certificate.model_validate(value))
    assert verdict.word == "NOT VALID"
    assert said in verdict.explanation


def test_a_run_that_ended_early_says_so_and_what_it_spent():
    value = json.loads(made("gaussian").model_dump_json())
    ended_early(value)
    verdict = check(Certificate.model_validate(value))
    assert verdict.holds
    assert "The fit ended after 9 of 10 releases: nothing was found." in verdict.explanation
    assert verdict.guarantee.epsilon < 4.0


@pytest.mark.parametrize("name", ["sites", "topics", "continual"])
def test_a_number_that_nothing_can_have_is_no_other_error(name):
    value = json.loads(made(name).model_dump_json())
    found = [path for path in places(value["releases"]) if type(at(value["releases"], path)) is int]
    assert any(path[-1] == "grid" for path in found)
    for path in found:
        for number in (10**400, -(10**6)):
            forged = edited(value, ("releases", *path), number)
            try:
                certificate = Certificate.model_validate(forged)
            except ValidationError:  # read_certificate makes a DataError of it
                continue
            assert check(certificate).word == "NOT VALID", (path, number)
