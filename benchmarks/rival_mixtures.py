"""Errors of mixtures' means: eigenveil beside DP-EM and an LSH tree on the paper's mixtures."""

from __future__ import annotations

import numpy as np

from benchmarks.report import Report
from benchmarks.rivals.budget import Budget
from benchmarks.rivals.dp_em import DP_EM, DpEm
from benchmarks.rivals.lsh_clustering import LSH, LshClustering
from benchmarks.rivals.rival import random_directions
from benchmarks.tensors import DELTA, Case, Errors, gaussian_rows, mixture_errors, unit
from eigenveil import PrivateGaussianMixture
from eigenveil_papers.reproduction.paper001_tensor_panels import component_error

CASES = (Case(50, 10, 100_000, 1.0), Case(10, 5, 100_000, 0.1), Case(10, 5, 100_000, 1.0))
SEEDS = range(6)
# Of the paper's mixtures.
VARIANCE = 0.05
SECTION = "Rivals: mean error of a mixture's unit means (delta = 0.01)"


def run(report: Report) -> None:
    """All numbers beside rivals of mixtures."""
    for case in CASES:
        model = PrivateGaussianMixture(case.components, epsilon=case.epsilon, delta=DELTA)
        report.note(SECTION, f"{case}: eigenveil", _said(mixture_errors(model, case, SEEDS)))
        for rival in DP_EM:
            found = np.array([_error(rival, case, seed) for seed in SEEDS])
            report.note(SECTION, f"{case}: {rival.name} *", _said(found))
        for tree in LSH:
            found = np.array([_error_of_tree(tree, case, seed) for seed in SEEDS])
            report.note(SECTION, f"{case}: {tree.name} *", _said(found))
    for name, kind in (("DP-EM", DpEm), ("LSH tree", LshClustering)):
        for what, text in (("paper", kind.paper), ("* is told without charge", kind.told)):
            report.note(SECTION, f"{name}: {what}", text)


def _error(rival: DpEm, case: Case, seed: int) -> float:
    rows, means = gaussian_rows(case, seed)
    budget = Budget.of(case.epsilon, DELTA, np.random.default_rng())
    start = random_directions(case.components, case.features, budget.rng)
    found = rival.means(rows, start, VARIANCE, rival.tell(rows), budget)
    return component_error(unit(found), means)


def _error_of_tree(tree: LshClustering, case: Case, seed: int) -> float:
    rows, means = gaussian_rows(case, seed)
    budget = Budget.of(case.epsilon, DELTA, np.random.default_rng())
    found = tree.centers(rows, case.components, tree.tell(rows), budget)
    return component_error(unit(found), means)


def _said(found: Errors) -> str:
    return f"{found.mean():.4f} ± {found.std(ddof=1) / np.sqrt(found.size):.4f}"
