"""Topics of mixed documents: eigenveil beside private variational LDA, at the same guarantee."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.report import Report
from benchmarks.rivals.budget import Budget
from benchmarks.rivals.private_lda import PRIVATE_LDA, PrivateLda
from benchmarks.topics import DELTA, l1_error, mixed_documents
from eigenveil import PrivateTopicModel

SECTION = "Rivals: mean L1 error of topics of mixed documents (alpha0 = 1, delta = 1e-05)"
# Of a fit whose noise is next to nothing.
NO_PRIVACY = 1e6
# The part of the error without privacy that is wanted, and how much worse than a rival we may be.
WANTED, WORSE = 1.5, 1.1
# Documents, epsilon, seeds, and rivals by the number of their steps: large ones take minutes.
SMALL = {"topics": 5, "words": 200, "count": 20_000, "length": 50}
LARGE = {"topics": 10, "words": 1000, "count": 100_000, "length": 100}
CASES: tuple[tuple[dict[str, int], float, range, tuple[PrivateLda, ...]], ...] = (
    (SMALL, 1.0, range(3), PRIVATE_LDA),
    (SMALL, 8.0, range(3), PRIVATE_LDA),
    (LARGE, 1.0, range(2), PRIVATE_LDA[1:2]),
)


def run(report: Report) -> None:
    """All numbers beside rivals of topics, and beside our own without privacy."""
    for sizes, epsilon, seeds, rivals in CASES:
        made = [mixed_documents(seed, **sizes) for seed in seeds]
        what = "{count} documents of {length} words of {words}, K = {topics}".format(**sizes)
        what = f"{what}, epsilon = {epsilon:g}"
        ours = [l1_error(_own(counts, sizes["topics"], epsilon), true) for counts, true in made]
        free = [l1_error(_own(counts, sizes["topics"], NO_PRIVACY), true) for counts, true in made]
        report.note(SECTION, f"{what}: eigenveil", _said(ours))
        report.note(SECTION, f"{what}: eigenveil without noise", _said(free))
        best = math.inf
        for rival in rivals:
            theirs = [
                l1_error(_theirs(rival, counts, sizes["topics"], epsilon), true)
                for counts, true in made
            ]
            best = min(best, float(np.mean(theirs)))
            report.note(SECTION, f"{what}: {rival.name} *", _said(theirs))
        mean = float(np.mean(ours))
        report.add(SECTION, f"{what}: ours over the best rival's", mean / best, WORSE, at_most=True)
        exact = mean / float(np.mean(free))
        report.add(SECTION, f"{what}: ours over ours without noise", exact, WANTED, at_most=True)
    for what, text in (("paper", PrivateLda.paper), ("* is told", PrivateLda.told)):
        report.note(SECTION, f"private variational LDA: {what}", text)


def _own(counts: Any, topics: int, epsilon: float) -> Any:
    return PrivateTopicModel(topics, epsilon=epsilon, delta=DELTA, alpha0=1.0).fit(counts).topics_


def _theirs(rival: PrivateLda, counts: Any, topics: int, epsilon: float) -> Any:
    counts = scipy.sparse.csr_array(counts)
    budget = Budget.of(epsilon, DELTA, np.random.default_rng())
    return rival.topics(counts, np.full(topics, 1.0 / topics), rival.tell(counts), budget)


def _said(found: list[float]) -> str:
    return f"{np.mean(found):.4f} ± {np.std(found, ddof=1) / math.sqrt(len(found)):.4f}"
