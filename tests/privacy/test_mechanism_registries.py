"""Every mechanism and every statistic is complete: proof, audit, sampler, codec, documentation."""

import re
from pathlib import Path

import numpy as np
import pytest

from eigenveil.audit import all_cases
from eigenveil.audit.releases import exact, summed
from eigenveil.audit.sound import ATTACKS
from eigenveil.models.shapes import SHAPES
from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.describe import ACCUMULATORS, Description, describe, rebuild
from eigenveil.moments.documents.documents import DocumentBlock
from eigenveil.moments.documents.sums import ClippedSum, DocumentNorms
from eigenveil.moments.rows import Block
from eigenveil.noise.sampler import ChoiceSampler, NoiseSampler, sampler_of
from eigenveil.privacy.calibration import record_of
from eigenveil.privacy.guarantee import ADJACENCIES
from eigenveil.privacy.mechanisms import MECHANISMS
from eigenveil.privacy.mechanisms.base import Mechanism
from eigenveil.privacy.releases import Noise
from eigenveil.privacy.statistics import STATISTICS

ROOT = Path(__file__).parents[2]
PROOFS = ROOT / "docs" / "proofs"
SOURCES = ROOT / "src" / "eigenveil"
every_mechanism = pytest.mark.parametrize("name", MECHANISMS)
every_statistic = pytest.mark.parametrize("name", STATISTICS)
every_sum = pytest.mark.parametrize("name", ACCUMULATORS)
COVERED = {pair for case in all_cases().values() for pair in case.covers if "/" in pair}


def classes(kind):
    """All that the package defines, found or forgotten."""
    found = set()
    for each in kind.__subclasses__():
        found |= {each} | classes(each)
    return {each for each in found if each.__module__.startswith("eigenveil.")}


def test_no_statistic_is_without_a_shape():
    assert set(SHAPES) == set(STATISTICS)


def test_no_mechanism_is_forgotten():
    assert {type(each) for each in MECHANISMS.values()} == classes(Mechanism)
    files = {path.stem for path in (SOURCES / "privacy" / "mechanisms").glob("*.py")}
    assert files - {"__init__", "base"} == set(MECHANISMS)


@every_mechanism
def test_a_mechanism_has_a_file_a_sampler_and_a_proof_of_its_own(name):
    mechanism = MECHANISMS[name]
    assert mechanism.name == name
    assert type(mechanism).__module__ == f"eigenveil.privacy.mechanisms.{name}"
    sampler = sampler_of(name)
    assert isinstance(sampler, NoiseSampler if mechanism.added else ChoiceSampler)
    assert type(sampler).__module__ == f"eigenveil.noise.{name}"
    assert "proof" in (PROOFS / mechanism.proof).read_text(encoding="utf-8").lower()
    if mechanism.pure and mechanism.adds_up:
        assert name.capitalize() in (PROOFS / "shares.md").read_text(encoding="utf-8")
    assert sum(each.proof == mechanism.proof for each in MECHANISMS.values()) == 1


@every_mechanism
def test_a_mechanism_is_audited_and_documented(name):
    mechanism = MECHANISMS[name]
    hides = [each.name for each in STATISTICS.values() if mechanism in each.mechanisms]
    assert hides
    assert {f"{statistic}/{name}" for statistic in hides} <= COVERED
    assert mechanism.test
    assert 0 < mechanism.audited <= 1
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert any(re.search(rf"\b{name}\b", page.read_text("utf-8"), re.I) for page in pages)


@every_mechanism
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_what_is_known_of_a_mechanism_is_in_proportion_to_its_scale(name, scale):
    mechanism = MECHANISMS[name]
    one, other = (Noise(kind=name, scale=s, size=55, grid=-30) for s in (1.0, scale))
    assert mechanism.deviation(other, 10) == pytest.approx(scale * mechanism.deviation(one, 10))
    assert mechanism.edge(other, 10, 10) == pytest.approx(scale * mechanism.edge(one, 10, 10))
    spread = mechanism.spread(scale, 55, 10)
    assert spread == pytest.approx(scale * mechanism.spread(1.0, 55, 10))
    assert mechanism.growth(10, 10, None) == mechanism.growth(10, 10, 4) == 1.0
    assert mechanism.parts_drawn(6, 3, 10) >= 2.0 - 1e-12


def test_no_statistic_is_forgotten():
    sums = {name for name, each in STATISTICS.items() if any(m.added for m in each.mechanisms)}
    assert set(ACCUMULATORS) == sums
    concrete = {
        each
        for each in classes(Accumulator)
        if not each.__abstractmethods__ and not each.__module__.startswith("eigenveil.audit")
    }
    assert {*ACCUMULATORS.values(), DocumentNorms} == concrete


@every_statistic
def test_a_statistic_has_a_sensitivity_for_all_noise_that_may_hide_it(name):
    statistic = STATISTICS[name]
    assert statistic.name == name
    assert statistic.mechanisms
    assert {f"{name}/{each.name}" for each in statistic.mechanisms} <= COVERED
    assert {each.norm for each in statistic.mechanisms} == set(statistic.bounds)
    assert statistic.usual(pure=True).pure
    assert all(1.0 <= statistic.replacing_ratio(norm) <= 2.0 for norm in statistic.bounds)
    proofs = [statistic.proof or each.proof for each in statistic.mechanisms]
    text = "".join((PROOFS / page).read_text(encoding="utf-8") for page in proofs)
    wanted = name if statistic.usual(pure=True).added else "directions"
    assert wanted.replace("-", "_") in text or wanted.replace("-", " ") in text


def described(name):
    """A small sum of each kind: every field of its own is other than its default."""
    columns = 2 if STATISTICS[name].needs_basis or STATISTICS[name].layout == "matrix" else 0
    of_documents = STATISTICS[name].of_documents
    common = {"kind": name, "features": 3, "columns": columns}
    if not of_documents and name not in ("column-counts", "pair-counts"):
        common |= {"bound": 0.5, "precision": "single", "centered": True}
    own = {
        "norm-histogram": {"weighted": True},
        "column-histogram": {
            "bound": 0.0,
            "centered": False,
            "offset": True,
            "scaled": True,
            "limit": 1.0625,
            "holes": True,
            "categories": True,
            "weighted": True,
        },
        "row-sum": {"count_weight": 0.25, "extra_bits": 2},
        "second-moment": {"extra_bits": -2},
        "score-histogram": {"clip": 0.5, "cells": 4, "columns": 2, "weighted": True},
        "sketch": {"clip": 0.5},
        "component-energy": {"count_weight": 0.25},
        "third-moment": {"clip": 0.5, "variance": 0.125},
        "em-sums": {
            "weighted": True,
            "mixture": {"components": 2, "squares": "diag", "form": "full"},
        },
        "column-counts": {"holes": True, "weighted": True},
        "pair-counts": {"holes": True},
        "document-pairs": {"clip": 0.5, "extra_bits": -2, "nuclear": False},
        "word-shares": {"clip": 0.5},
        "document-sketch": {"clip": 0.5},
        "document-triples": {"clip": 0.5, "weighted": True},
    }
    return Description.model_validate({"precision": "double"} | common | own[name])


def arrays_of(description):
    arrays = {"center": np.array([0.5, 0.0, -1.0]), "basis": np.linalg.qr(np.eye(3) + 0.3)[0]}
    arrays |= {"offset": np.ones(3), "scale": np.array([2.0, 0.0, 1.0]), "variables": np.zeros(3)}
    arrays |= {"means": np.eye(2, 3), "logs": np.zeros(2), "reaches": np.array([1.0, 0.5])}
    arrays["factors"] = np.concatenate([np.eye(3), 2.0 * np.eye(3)])
    return {name: arrays[name][: shape[0], : shape[-1]] if len(shape) == 2 else arrays[name]
            for name, shape in description.shapes().items()}  # fmt: skip


def rows_for(total):
    if isinstance(total, ClippedSum | DocumentNorms):
        return DocumentBlock(np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 1.0]]))
    return Block(np.array([[3.0, 1.0, -2.0], [0.25, 0.5, 1.0]]))


@every_sum
def test_an_accumulators_codec_round_trips(name):
    description = described(name)
    arrays = arrays_of(description)
    first = rebuild(description, arrays)
    assert type(first) is ACCUMULATORS[name]
    assert first.layout == STATISTICS[name].layout
    again, others = describe(first, 3)
    assert again == description
    second = rebuild(again, others)
    assert second.parameters == first.parameters
    second.update(rows_for(second))
    first.merge(second)  # refused for sums of other kinds
    first.flush()
    assert np.any(first.integers())
    assert np.array_equal(first.integers(), second.integers())


@every_sum
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_every_pair_of_a_statistic_and_its_noise_has_a_record(name, adjacency):
    """Of what was rebuilt, so that a site's own sum says how large its sensitivity is."""
    description = described(name)
    for mechanism in STATISTICS[name].mechanisms:
        if mechanism.norm == "nuclear":
            description = description.model_copy(update={"clip": 1.0})
        total = rebuild(description, arrays_of(description))
        known = {"name": "a", "adjacency": adjacency, "kind": mechanism.name}
        record = record_of(total, scale=2.0, grid=-30, **known)
        assert record.sensitivity() > 0
        assert mechanism.loss(record) > 0


def length(moved, norm):
    side = round(moved.size**0.5)
    return {
        "l2": lambda: np.linalg.norm(moved),
        "l1": lambda: np.abs(moved).sum(),
        "nuclear": lambda: np.linalg.svd(moved.reshape(side, side))[1].sum(),
        "score": lambda: np.abs(np.linalg.eigvalsh(moved.reshape(side, side))).max(),
    }[norm]()


@pytest.mark.parametrize("name", ATTACKS)
def test_the_worst_neighbours_move_a_sum_as_far_as_its_sensitivity(name):
    """No further, and so far but for rounding; each statistic with each noise has some.

    What a score's exponent is divided by counts a changed row twice: it is no distance.
    """
    attack = ATTACKS[name]
    record = attack.record()
    moved = exact(summed(attack.rows, attack.make)) - exact(summed(attack.other, attack.make))
    found = length(moved, record.mechanism.norm) / record.sensitivity()
    assert (0.49 if record.mechanism.norm == "score" else 0.99) < found <= 1.0 + 1e-9
