"""Edits of certificates and models: whatever stays valid stands in a short list here."""

from __future__ import annotations

import copy
import json
import operator
import re
import warnings
from functools import cache
from typing import get_args

import numpy as np
import pandas as pd
import pytest

from eigenveil import (
    FederatedCovariance,
    FederatedGaussianMixture,
    FederatedPCA,
    FederatedTopicModel,
    PrivateCovariance,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateStreamingPCA,
    PrivateTopicModel,
)
from eigenveil.app.certify import other_model
from eigenveil.federated.tree_fit import fit_tree
from eigenveil.federation.protocol.certificates import NOT_VALID, check
from eigenveil.federation.tree.private import make_tree_study
from eigenveil.federation.tree.tree import MergeTree
from eigenveil.models.result import frozen, made_of, model_digest
from eigenveil.privacy.certificate import certificate_from, plan_hash
from eigenveil.privacy.mechanisms import MECHANISMS
from eigenveil.privacy.releases import NoiseSource
from eigenveil.privacy.statistics import STATISTICS
from eigenveil.tables.adapters.base import array_rows
from soak_tools import count as count_tried

D, ROWS = 5, 2000
PERSONS = np.arange(ROWS) // 2


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


def pca(data=None, groups=None, **options):
    data = rows() if data is None else data
    return PrivatePCA(**{"n_components": 2, "epsilon": 4.0} | options).fit(data, groups=groups)


def stream(**options):
    model = PrivateStreamingPCA(n_components=2, epsilon=4.0, **options)
    for block in np.split(rows(), 4):
        model.partial_fit(block)
    return model.release()


def sites(estimator, data, groups=None, **options):
    parts = np.split(data[:1998], 3)
    options = {"n_components": 2, "epsilon": 20.0} | options
    asked = {name: value for name, value in options.items() if value is not None}
    return estimator(**asked).fit(parts, groups=groups)


def tree(**options):
    shape = MergeTree(fan_out=2, depth=2)
    study = make_tree_study(shape, features=D, n_components=2, epsilon=4.0, delta=1e-6, **options)
    parts = np.split(rows(), 4)
    return fit_tree(study, {f"site{n}": array_rows(part, None) for n, part in enumerate(parts)})


RUNS = {
    "gaussian": lambda: pca(),
    "no variance": lambda: pca(budget_split={"scale": 1, "center": 1, "moment": 8}),
    "not centred": lambda: pca(center=False),
    "row bound": lambda: pca(row_bound=20.0),
    "scales": lambda: pca(scale="private", epsilon=20.0),
    "public scales": lambda: pca(scale=(5.0, 4.0, 1.0, 1.0, 1.0), center=(1.0,) * D),
    "covariates": lambda: pca(covariates=(0,), epsilon=20.0),
    "holes": lambda: pca(missing="pairs", epsilon=20.0),
    "persons": lambda: pca(groups=PERSONS),
    "persons, some rows": lambda: pca(groups=PERSONS, max_rows_per_unit=2),
    "column of persons": lambda: pca(
        pd.DataFrame(rows(), columns=[*"abcde"]).assign(person=PERSONS), unit="person"
    ),
    "covariance, persons": lambda: PrivateCovariance(epsilon=4.0).fit(rows(), groups=PERSONS),
    "mixture, persons": lambda: PrivateGaussianMixture(2, epsilon=20.0).fit(
        mixed(), groups=PERSONS
    ),
    "topics, persons": lambda: PrivateTopicModel(2, epsilon=20.0).fit(documents(), groups=PERSONS),
    "too few rows": lambda: pca(rows()[:20], epsilon=0.5),
    "no norms": lambda: pca(rows()[:20], epsilon=0.5, center=False),
    "pure": lambda: pca(delta=0.0),
    "vector": lambda: pca(delta=0.0, mechanism="vector"),
    "bingham": lambda: pca(delta=0.0, mechanism="bingham"),
    "power": lambda: pca(mechanism="power"),
    "sketch": lambda: pca(mechanism="sketch", sketch_size=4),
    "auto": lambda: pca(row_norm="auto"),
    "components found": lambda: pca(n_components="auto", epsilon=20.0),
    "replace-one": lambda: pca(adjacency="replace-one"),
    "largest norm": lambda: pca(row_norm="max"),
    "seeded": lambda: pca(random_state=1),
    "covariance": lambda: PrivateCovariance(epsilon=4.0).fit(rows()),
    "stream": lambda: stream(),
    "continual": lambda: stream(publish="continual", horizon=8),
    "blocks": lambda: stream(publish="blocks"),
    "stream, replace-one": lambda: stream(adjacency="replace-one"),
    "mixture": lambda: PrivateGaussianMixture(2, epsilon=20.0).fit(mixed()),
    "mixture, full": lambda: PrivateGaussianMixture(
        2, epsilon=20.0, covariance_type="full", delta=1e-5
    ).fit(mixed()),
    "mixture, sketch": lambda: PrivateGaussianMixture(
        "auto", epsilon=20.0, pair="sketch", sketch_size=4
    ).fit(mixed()),
    "mixture, pure": lambda: PrivateGaussianMixture(2, epsilon=40.0, delta=0.0).fit(mixed()),
    "mixture, nothing found": lambda: PrivateGaussianMixture(2, epsilon=0.5).fit(rows()[:400]),
    "topics": lambda: PrivateTopicModel(2, epsilon=20.0).fit(documents()),
    "topics, sketch": lambda: PrivateTopicModel(2, epsilon=20.0, pair="sketch").fit(documents()),
    "topics, nothing found": lambda: PrivateTopicModel(2, epsilon=0.1).fit(documents()[:200]),
    "sites": lambda: sites(FederatedPCA, rows(), protocol="cape"),
    "sites, pure": lambda: sites(FederatedPCA, rows(), protocol="cape", delta=0.0),
    "sites, sketch": lambda: sites(FederatedPCA, rows(), protocol="sketch", dropouts=1),
    "sites, full": lambda: sites(FederatedPCA, rows(), protocol="full"),
    "sites, targets": lambda: sites(
        FederatedPCA, rows(), protocol="cape", site_epsilon={"site1": 5.0}
    ),
    "sites, weights": lambda: sites(
        FederatedPCA, rows(), protocol="cape", weights={"site1": 2, "site2": 1, "site3": 3}
    ),
    "sites, within": lambda: sites(FederatedPCA, rows(), protocol="cape", within_sites=True),
    "sites, persons": lambda: sites(
        FederatedPCA, rows(), groups=np.split(PERSONS[:1998], 3), protocol="cape"
    ),
    "sites, replace-one": lambda: sites(
        FederatedPCA, rows(), protocol="cape", adjacency="replace-one"
    ),
    "sites, collusion": lambda: sites(FederatedPCA, rows(), protocol="cape", collusion=1),
    "sites, pairwise": lambda: sites(FederatedPCA, rows(), protocol="cape", masks="pairwise"),
    "sites, covariance": lambda: sites(FederatedCovariance, rows(), n_components=None),
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
    ("end", "continual", "blocks"),
    ("gaussian", "wishart", "vector", "bingham", "power", "sketch", "adaptive"),
    ("full", "sketch", "cape", "local", "dpdispca"),
    ("none", "modular", "pairwise", "helper"),
    ("outsider", "aggregator", "aggregator at level 1"),
    ("pca", "gaussian-mixture", "topic-model", "covariance"),
    ("spherical", "diag", "full", "tied"),
    ("zero", "error", "independent", "pairs"),
)
DROP = object()


class Made:
    """A certificate and its model, as trees of JSON and arrays."""

    def __init__(self, name, folder):
        with warnings.catch_warnings(action="ignore"):
            model = RUNS[name]()
        self.file, self.factors = folder / "model.npz", type(model._result.factors)
        model.save(self.file)
        with np.load(self.file) as stored:
            header = json.loads(str(stored["header"]))
            arrays = {each: stored[each] for each in stored.files if each != "header"}
        certificate = header.pop("certificate")
        self.tree = {"certificate": certificate, "model": header | {"arrays": arrays}}

    def rehashed(self, tree):
        """With the hashes of plan, study and model that follow from the rest, where any do."""
        certificate = dict(tree["certificate"])
        for part in ("plan", "study"):
            if isinstance(certificate.get(part), dict) and f"{part}_hash" in certificate:
                certificate[f"{part}_hash"] = plan_hash(certificate[part])
        try:
            model = tree["model"]
            factors = made_of(self.factors, model["arrays"] | model["numbers"])
            of = {name: model[name] for name in ("features", "names")}
            certificate["model"] = model_digest(frozen(factors), **of)
        except (TypeError, KeyError, ValueError, AttributeError):
            pass
        return tree | {"certificate": certificate}

    def stands(self, tree):
        """Whether ``eigenveil certify`` would call these valid; the verdict where it would."""
        try:
            certificate = certificate_from(json.loads(json.dumps(tree["certificate"])))
        except (ValueError, RecursionError):
            return None
        verdict = check(certificate)
        if verdict.word == NOT_VALID:
            assert verdict.explanation
            return None
        header = {each: value for each, value in tree["model"].items() if each != "arrays"}
        header["certificate"] = tree["certificate"]
        with self.file.open("wb") as file:
            arrays = tree["model"].get("arrays") or {}
            np.savez(file, header=np.array(json.dumps(header)), **arrays)
        return verdict if other_model(self.file, certificate) is None else None


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
    match value:
        case bool():
            yield from (not value, int(value), None, "")
        case int() | float():
            yield from (value + 1, -value, value * 0.5, value * 2, str(value), None, True)
            yield from (value // 2, float(value)) if isinstance(value, int) else ()
        case str():
            alike = {label for group in LABELS if value in group for label in group}
            yield from sorted((alike | {"anything", ""}) - {value})
            yield from (None, 1, [value])
        case None:
            yield from (1, 0.5, "anything", "", True, [], {})
        case list():
            yield from ([], None, value[::-1])
            for place in range(len(value)):
                yield [*value[: place + 1], *value[place:]]
        case dict():
            yield from ({}, None, value | {"anything": 1})
        case np.ndarray():
            more = value.astype(float).copy()
            more.flat[:1] += 0.25
            yield from (more, -value.astype(float), value[..., None], value.astype("U8"), value[:0])
            yield from (np.concatenate([value[:1], value]), value.astype(complex))


def edited(tree, path, new):
    value = holder = dict(tree)
    for key in path[:-1]:
        holder[key] = type(holder[key])(holder[key])
        holder = holder[key]
    if new is DROP:
        del holder[path[-1]]
    else:
        holder[path[-1]] = new
    return value


def same(first, second):
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    return type(first) is type(second) and first == second


def written_otherwise(path, new, old):
    """1.0 or true for 1, in parameters or a study: they make the same plan."""
    parameter = path[:2] in (("model", "parameters"), ("certificate", "study")) and new is not DROP
    return parameter and isinstance(new, bool | int | float) and new == old


def all_edits(tree):
    return [
        (path, new)
        for path in places(tree)
        if len(path) > 1
        for new in edits(at(tree, path))
        if not same(new, at(tree, path)) and not written_otherwise(path, new, at(tree, path))
    ]


# What stays valid and why it is harmless, by the place (regular expressions; [] is any entry).
# Whoever ran the software is trusted with that it was run, and with nothing that can be computed.
OF_THE_RUN = "the word of whoever ran the software; no number of the guarantee follows from it"
OF_RELEASES = (
    "made of released values, of which nothing but their noise is recorded: with its digest made "
    "anew it is another model (WHAT_IT_CANNOT_SHOW)"
)
HARMLESS = {
    r"certificate\.(software|counted|cluster|dependent|newlines_in_cells)": OF_THE_RUN,
    r"certificate\.target\.view": "where leaves of a tree draw all of the noise: as true, of "
    "those who see the result alone",
    r"certificate\.releases\[\]\.noise\.grid": "the sampler's error, and with it the loss, is "
    "computed from it, and must be what the plan gives",
    r"certificate\.releases\[\]\.noise\.size": "as many components as sums can be of; the loss is "
    "computed from it, and must be what the plan gives",
    r"certificate\.releases\[\]\.(clip|gain|variance|count_weight)": "within what the plan "
    "allows; the loss is computed from it, and must be what the plan gives",
    r"certificate\.federation\.taking_part": "no guarantee rests on it",
    r"certificate\.study\.(name|purpose|requested_by|expected_rows)": "texts and hopes; the sites "
    "sign the hash of their study",
    r"certificate\.study\.sites(\[\](\.name)?)?": "names of parties: signatures show who they were",
    r"certificate\.study\.(clip_documents|whiten|columns.*|features)": "says nothing of noise",
    r"certificate\.tree\.(leaves|fan_out|refused)": "the root's word: bounds on messages, and "
    "further leaves that nothing arrived of, about whom more is said",
    r"certificate\.tree\.least": "a level more, at which nobody is",
    r"certificate\.tree\.least\[\]": "of levels above the first, within what the tree allows: the "
    "nodes' word",
    r"model\.(arrays|numbers|names)(\..*|\[\])?": OF_RELEASES,
    r"model\.kept": "how many of the components are shown, after the fit: the first ones",
    r"model\.parameters\.whiten": "how scores are scaled, after the fit",
    r"model\.parameters\.expected_rows": "a hope",
}


def found_valid(made, before, tree, path, new):
    """Why an edit is wrong to stand, or ``None``: it does not, or is harmless."""
    place = re.sub(r"\.\d+", "[]", ".".join(map(str, path)))
    change = f"{place} -> {'dropped' if new is DROP else repr(new)[:60]}"
    forged = edited(tree, path, new)
    for which in (forged, made.rehashed(forged)):
        if all(same(which[part], tree[part]) for part in tree if part != "model") and (
            path[0] != "model"
        ):
            continue  # the hash that was edited, made anew
        verdict = made.stands(which)
        if verdict is None:
            continue
        if not any(re.fullmatch(known, place) for known in HARMLESS):
            return f"{change}: {verdict.word}: {verdict.explanation}"
        told = verdict.guarantee.epsilon / before.views[verdict.guarantee.view].epsilon
        if told < 1.0 - 1e-9 or (
            before.word != verdict.word == "VALID" and path[-1] != "dependent"
        ):
            return f"{change}: {before.guarantee} became {verdict.guarantee}"
    return None


def walked(name, folder, count):
    """What edits of a run, ``count`` of them or all, are wrong to stand."""
    made = Made(name, folder)
    before = made.stands(made.tree)
    assert before.word == ("NOT CERTIFIED" if name in BROKEN else "VALID"), before.explanation
    every = all_edits(made.tree)
    step = 1 if count is None else len(every) // count
    first = sum(map(ord, name)) % step  # of each run another part
    edits = every[first::step]
    found = (found_valid(made, before, made.tree, *each) for each in edits)
    wrong = [problem for problem in found if problem is not None]
    count_tried("edited", "certificates and their models", len(edits), len(wrong))
    return wrong


@pytest.mark.parametrize("name", RUNS)
def test_no_edit_of_certificate_or_model_stands(name, tmp_path):
    assert not walked(name, tmp_path, 6)


@pytest.mark.thorough
@pytest.mark.parametrize("name", RUNS)
def test_no_edit_of_any_entry_stands(name, tmp_path):
    assert not walked(name, tmp_path, None)


# -- Edits of several entries together.


@cache
def made(name):
    with warnings.catch_warnings(action="ignore"):
        return RUNS[name]().certificate_


def verdict_of(name, edit):
    value = json.loads(made(name).model_dump_json())
    edit(value)
    value["plan_hash"] = plan_hash(value["plan"])
    return check(certificate_from(value))


ENDED = (("stopped",), "nothing was found")
NAME = operator.itemgetter("name")
CHANGES = {
    "'scale' is missing": [(("releases", 0), DROP)],
    "'explained variance' is missing": [(("releases", -1), DROP)],
    "'scale' is recorded 2 times": [(("releases",), lambda found: [found[0], *found])],
    "another order": [(("releases",), lambda found: [found[1], found[0], *found[2:]])],
    "'another' is recorded, which the plan does not have": [
        (("releases",), lambda found: [*found, found[0] | {"name": "another"}])
    ],
    "No release is recorded": [(("releases",), [])],
    "all its releases are recorded": [ENDED],
    "made together with 'second moment'": [
        ENDED,
        (("releases",), lambda found: found[: [*map(NAME, found)].index("second moment") + 1]),
    ],
    "no run of the plan ends there": [ENDED, (("releases", -1), DROP)],
    "no bound on them can be chosen": [ENDED, (("releases",), lambda found: found[:1])],
    "sources of the noise do not agree": [(("plan", "noise_source"), "seeded")],
    "epsilon = 1.0": [(("target", "epsilon"), 1.0)],
    "weight = 0.5": [(("releases", 0, "weight"), 0.5)],
    "unit = None": [(("plan", "unit"), "person")],
}


@pytest.mark.parametrize("said", CHANGES)
def test_what_does_not_fit_is_named(said):
    def edit(value):
        for path, new in CHANGES[said]:
            value |= edited(value, path, new(at(value, path)) if callable(new) else new)

    verdict = verdict_of("gaussian", edit)
    assert verdict.word == NOT_VALID
    assert said in verdict.explanation


def cut_off(value):
    """The first release alone, as a run that found no bound would have it."""
    value["stopped"] = made("too few rows").stopped
    del value["releases"][1:]
    value["proofs"] = list(made("too few rows").proofs)


def relabelled(value):
    """The rows' plan, claim and proofs, as if each person's rows had been one unit."""
    value["plan"]["unit"] = value["target"]["unit"] = "person"
    value["proofs"] = sorted([*value["proofs"], "units.md"])


def test_the_model_contradicts_a_certificate_that_agrees_with_itself(tmp_path):
    """Alone it stands: whoever ran the software could have had that run."""
    assert verdict_of("gaussian", cut_off).word == "VALID"
    whole = Made("gaussian", tmp_path)
    cut_off(whole.tree["certificate"])
    assert whole.stands(whole.rehashed(whole.tree)) is None


def test_parameters_of_another_shape_are_no_other_error(tmp_path):
    public = Made("public scales", tmp_path)
    for name in ("center", "scale"):
        for value in ([], [[1.0]], [1.0] * (D + 1)):
            forged = copy.deepcopy(public.tree)
            assert name in forged["model"]["parameters"]
            forged["model"]["parameters"][name] = value
            assert public.stands(forged) is None


@pytest.mark.parametrize("name", ["gaussian", "not centred", "covariance"])
def test_counts_of_rows_are_no_counts_of_persons(name):
    """Parts of rows, of which a person's are one together, have a finer grid."""
    verdict = verdict_of(name, relabelled)
    assert verdict.word == NOT_VALID
    assert "where counts of parts of rows have" in verdict.explanation


def test_a_run_that_ended_early_says_so_and_what_it_spent():
    verdict = check(made("too few rows"))
    assert verdict.holds
    assert "The fit ended after 1 of 10 releases: the released histogram" in verdict.explanation
    assert verdict.guarantee.epsilon < 0.5


def test_more_sites_or_leaves_make_no_better_claim():
    """How many there were is the word of one party: no claim rests on it, or it is bounded."""
    told = made("sites, sketch")
    assert (told.federation.taking_part, told.federation.fewest) == (3, 2)
    value = json.loads(told.model_dump_json())
    value["federation"]["taking_part"] = 2
    assert check(certificate_from(value)).views == check(told).views
    for least in ([4, 4], [2, 2], [1, 4], [1, 3], [2, 1]):
        value = json.loads(made("tree").model_dump_json())
        value["tree"]["least"] = least
        with pytest.raises(ValueError, match="leaves"):
            certificate_from(value)


@pytest.mark.parametrize("name", ["sites", "topics", "continual"])
def test_a_number_that_nothing_can_have_is_no_other_error(name):
    value = json.loads(made(name).model_dump_json())
    found = [path for path in places(value["releases"]) if type(at(value["releases"], path)) is int]
    assert any(path[-1] == "grid" for path in found)
    for path in found:
        for number in (10**400, -(10**6)):
            forged = edited(value, ("releases", *path), number)
            try:
                certificate = certificate_from(forged)
            except ValueError:  # read_certificate makes a DataError of it
                continue
            assert check(certificate).word == NOT_VALID, (path, number)
