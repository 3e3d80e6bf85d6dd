"""Certificates of mixtures and of topics: which releases and sizes make a whole one."""

import json
from typing import get_args

import pytest

from eigenveil.privacy import certificate as certificate_module
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.certificate import (
    Certificate,
    Claim,
    check,
    make_certificate,
    plan_hash,
    read_certificate,
)
from eigenveil.privacy.releases import (
    PROOFS,
    PROOFS_OF_STATISTIC,
    Noise,
    ReleaseRecord,
    Statistic,
)

D, K = 6, 3
TRIANGLE = D * (D + 1) // 2
TENSOR = {1: 1, 2: 4, 3: 10, 4: 20}
DELTA = 1e-6


def release(statistic, size, *, kind="gaussian", **parameters):
    noise = Noise(kind=kind, scale=20.0, size=size, grid=-26)
    return ReleaseRecord(
        name=f"the {statistic}",
        statistic=statistic,
        adjacency="add-remove",
        noise=noise,
        **parameters,
    )


COUNTS = release("norm-histogram", 323)
SECOND = release("second-moment", TRIANGLE)
SKETCH = release("sketch", 2 * D, clip=0.5)
THIRD = release("third-moment", TENSOR[3], variance=0.05)
PAIRS = release("document-pairs", TRIANGLE)
PAIR_SKETCH = release("document-sketch", D, gain=1.1)
TRIPLES = release("document-triples", TENSOR[3], gain=0.4)

WHOLE = {
    "pca": ("pca", [COUNTS, SECOND]),
    "mixture": ("gaussian-mixture", [COUNTS, SECOND, THIRD]),
    "mixture, sketch": ("gaussian-mixture", [COUNTS, SKETCH, THIRD]),
    "mixture, few found": (
        "gaussian-mixture",
        [SECOND, THIRD.model_copy(update={"noise": THIRD.noise.model_copy(update={"size": 1})})],
    ),
    "topics": ("topic-model", [PAIRS, TRIPLES]),
    "topics, sketch": ("topic-model", [PAIR_SKETCH, TRIPLES]),
}


def certificate(task, releases, *, delta=DELTA):
    plan = {"features": D, "n_components": K, "task": task}
    epsilon = compose(releases, delta=delta, adjacency="add-remove").epsilon * 1.0001
    return make_certificate(
        software="eigenveil test",
        plan=plan,
        plan_hash=plan_hash(plan),
        model="00" * 32,
        secure=True,
        wish=Claim(epsilon=epsilon, delta=delta, adjacency="add-remove"),
        releases=list(releases),
        reasons_not_certified=[],
    )


@pytest.mark.parametrize("run", WHOLE)
def test_a_whole_certificate_holds_after_writing_and_reading(run, tmp_path):
    task, releases = WHOLE[run]
    path = tmp_path / "certificate.json"
    certificate(task, releases).write(path)
    verdict = check(read_certificate(path))
    assert verdict.holds, verdict.explanation
    assert verdict.guarantee.certified


@pytest.mark.parametrize("run", WHOLE)
def test_the_proofs_of_noise_and_of_statistics_are_named(run):
    task, releases = WHOLE[run]
    wanted = {PROOFS[r.noise.kind] for r in releases} | {"release-grid.md"}
    wanted |= {"mixture": {"third-moment.md"}, "topics": {"documents.md"}}.get(
        run.split(",")[0], set()
    )
    assert set(certificate(task, releases).proofs) == wanted
    assert {"third-moment.md", "documents.md"} == set(PROOFS_OF_STATISTIC.values())


def test_a_plan_without_a_task_is_one_of_pca():
    made = certificate("pca", [COUNTS, SECOND])
    plan = {key: value for key, value in made.plan.items() if key != "task"}
    old = made.model_copy(update={"plan": plan, "plan_hash": plan_hash(plan)})
    assert check(old).holds


@pytest.mark.parametrize(
    ("task", "releases", "missing"),
    [
        ("pca", [COUNTS], "second moment"),
        ("pca", [THIRD], "second moment"),
        ("pca", [PAIRS, TRIPLES], "second moment"),
        ("gaussian-mixture", [THIRD], "second moment"),
        ("gaussian-mixture", [SECOND], "third moment"),
        ("gaussian-mixture", [SECOND, TRIPLES], "third moment"),
        ("gaussian-mixture", [PAIRS, THIRD], "second moment"),
        ("topic-model", [TRIPLES], "pair moment"),
        ("topic-model", [PAIRS, PAIR_SKETCH], "triple moment"),
        ("topic-model", [SECOND, TRIPLES], "pair moment"),
        ("topic-model", [PAIRS, THIRD], "triple moment"),
    ],
)
def test_a_certificate_without_a_moment_of_its_task_does_not_hold(task, releases, missing):
    verdict = check(certificate(task, releases))
    assert verdict.word == "DOES NOT HOLD"
    assert f"No release of a {missing}" in verdict.explanation


@pytest.mark.parametrize("task", ["ica", "", None, ["pca"]])
def test_an_unknown_task_does_not_hold(task):
    verdict = check(certificate(task, [SECOND, THIRD]))
    assert verdict.word == "DOES NOT HOLD"
    assert "task" in verdict.explanation


@pytest.mark.parametrize(
    ("run", "index", "size", "word"),
    [
        ("mixture", 1, TRIANGLE - 1, "fewer"),
        ("mixture, sketch", 1, D - 1, "fewer"),
        ("mixture", 2, TENSOR[4], "more"),
        ("topics", 0, TRIANGLE - 1, "fewer"),
        ("topics", 1, TENSOR[4], "more"),
        ("topics, sketch", 0, D - 1, "fewer"),
        ("mixture", 1, TRIANGLE, None),
        ("mixture", 2, TENSOR[2], None),
        ("topics", 1, TENSOR[1], None),
        ("topics, sketch", 0, D, None),
    ],
)
def test_only_sizes_that_a_fit_makes_are_whole(run, index, size, word):
    task, releases = WHOLE[run]
    made = releases[index]
    noise = made.noise.model_copy(update={"size": size})
    others = [*releases[:index], made.model_copy(update={"noise": noise}), *releases[index + 1 :]]
    verdict = check(certificate(task, others))
    assert verdict.holds == (word is None)
    assert word is None or word in verdict.explanation


# What a record's loss rises with, by a factor
LARGER = {
    "third-moment": ("variance", 20),
    "document-sketch": ("gain", 1.01),
    "document-triples": ("gain", 1.01),
}


@pytest.mark.parametrize("run", WHOLE)
def test_every_record_is_paid(run):
    """With a halved noise, or what a row may change made larger, the claim no longer follows."""
    task, releases = WHOLE[run]
    text = certificate(task, releases).model_dump_json()
    for index, record in enumerate(releases):
        forged = json.loads(text)
        forged["releases"][index]["noise"]["scale"] /= 2
        assert not check(Certificate.model_validate(forged)).holds
        if record.statistic in LARGER:
            field, factor = LARGER[record.statistic]
            forged = json.loads(text)
            forged["releases"][index][field] *= factor
            assert not check(Certificate.model_validate(forged)).holds


@pytest.mark.parametrize(
    ("releases", "delta"),
    [
        (
            [release("document-pairs", TRIANGLE, kind="wishart"), release("document-triples", 10)],
            DELTA,
        ),
        (
            [
                release("document-pairs", TRIANGLE, kind="wishart"),
                release("document-triples", 10, kind="vector"),
            ],
            0.0,
        ),
    ],
    ids=["mixed", "pure"],
)
def test_pure_releases_are_whole_too(releases, delta):
    made = certificate("topic-model", releases, delta=delta)
    assert check(made).holds
    assert "wishart-difference.md" in made.proofs


@pytest.mark.parametrize("task", certificate_module._RELEASED_BY)
def test_every_moment_of_a_task_has_a_size(task):
    sizes = certificate_module._sizes(D, K, certain=True)
    for group in certificate_module._RELEASED_BY[task].values():
        assert all(sizes[statistic].fewest >= 1 for statistic in group)
    assert set(sizes) == set(get_args(Statistic))
