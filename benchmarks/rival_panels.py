"""Captured energy of eigenveil and of its rivals, beside what a lower bound says is possible.

``python -m benchmarks.rival_panels [--fast] [--only METHOD ...] [--cases CASE ...]`` measures some
again and keeps the other numbers; ``python -m benchmarks rivals`` measures all.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lower_bound import least_loss
from benchmarks.report import Report
from benchmarks.rival_cases import Case, cases
from benchmarks.rival_figure import draw
from benchmarks.rivals import RIVALS
from benchmarks.rivals.budget import Array, Budget
from benchmarks.rivals.rival import Rival, Size
from eigenveil import PrivatePCA
from eigenveil.linalg.subspace import captured_energy
from eigenveil.privacy.accountant import mu_of_epsilon

DOCS = Path(__file__).parents[1] / "docs"
NUMBERS = DOCS / "images" / "rivals.json"
EPSILONS = (0.1, 0.3, 1.0, 3.0)
DELTA = 1e-5
BOUND = "Lower bound"

Numbers = dict[str, dict[str, dict[str, list[float]]]]
"""Case, method, epsilon; captured energies, one a run."""


OURS: dict[str, dict[str, Any]] = {
    "eigenveil, adaptive": {"mechanism": "adaptive"},
    "eigenveil, adaptive, row_norm='auto'": {"mechanism": "adaptive", "row_norm": "auto"},
    "eigenveil, one release": {"mechanism": "gaussian"},
    "eigenveil, one release, row_norm='auto'": {"mechanism": "gaussian", "row_norm": "auto"},
}
"""Choices of this package for a whole second moment at (epsilon, delta)."""


def run(report: Report) -> None:
    """All numbers beside rivals."""
    write(report, measure({}))


def measure(
    found: Numbers,
    *,
    fast: bool = False,
    only: set[str] | None = None,
    among: set[str] | None = None,
) -> Numbers:
    """Fresh runs of all methods and cases, or of those named, into the numbers found before."""
    everything, absent = cases(fast=fast)
    found = {str(case): found.get(str(case), {}) for case in everything}
    for name in absent:
        print(f"{name}: skipped: ../shared/data is absent", flush=True)
    for case in everything:
        if among is not None and case.name not in among:
            continue
        kept = found[str(case)]
        size = Size.of(case.rows, case.components)
        exact = case.rows.T @ case.rows
        spectrum: Array = np.linalg.eigvalsh(exact).astype(np.float64)
        for epsilon in EPSILONS:
            lost = least_loss(
                spectrum, size.components, rows=size.rows, mu=mu_of_epsilon(epsilon, DELTA)
            )
            kept.setdefault(BOUND, {})[f"{epsilon:g}"] = [1 - lost]
        for name, options in OURS.items():
            if only is None or name in only:
                kept[name] = {f"{e:g}": _own(case, exact, e, options) for e in EPSILONS}
                _say(case, name, kept[name])
        for rival in RIVALS:
            if rival.suits(size) and (only is None or rival.name in only):
                kept[rival.name] = {
                    f"{e:g}": _rivals(case, exact, size, e, rival) for e in EPSILONS
                }
                _say(case, rival.name, kept[rival.name])
        if not fast:
            NUMBERS.write_text(json.dumps(_rounded(found)) + "\n", encoding="utf-8")
    return found


def _own(case: Case, exact: Any, epsilon: float, options: dict[str, Any]) -> list[float]:
    model = PrivatePCA(case.components, epsilon=epsilon, delta=DELTA, center=False, **options)
    return [captured_energy(exact, model.fit(case.rows).components_) for _ in range(case.runs)]


def _rivals(case: Case, exact: Any, size: Size, epsilon: float, rival: Rival) -> list[float]:
    budgets = [Budget.of(epsilon, DELTA, np.random.default_rng()) for _ in range(case.runs)]
    told = rival.tell(case.rows, size, budgets[0])
    vectors = [rival.components(case.rows, size, told, budget) for budget in budgets]
    return [captured_energy(exact, found) for found in vectors]


def _say(case: Case, name: str, found: dict[str, list[float]]) -> None:
    print(f"{case}: {name}: {' | '.join(map(_cell, found.values()))}", flush=True)


def _cell(found: list[float]) -> str:
    """Mean, and its standard error where there is more than one run."""
    mean = float(np.mean(found))
    if math.isnan(mean):
        return ""
    if len(found) == 1:
        return f"{mean:.5f}"
    places = 5 if mean > 0.999 else 4
    error = float(np.std(found, ddof=1)) / math.sqrt(len(found))
    return f"{mean:.{places}f} ± {error:.{places}f}"


def write(report: Report, found: Numbers) -> None:
    """The tables and the picture."""
    section = f"Rivals: captured energy at delta = {DELTA:g}, exactly centred rows"
    said = [
        "Mean and standard error over 2 to 20 fresh runs (one where no error is given). Methods",
        "marked * know things of the rows that an analyst would not; the last table says what.",
        "EMCov is left out where it takes minutes a run; DP-PCA is for one component, and k-DP-PCA",
        "for more. The lower bound on the loss is shown as the energy that it leaves (empty where",
        "it says nothing). It is derived in [pca.md](pca.md#how-far-from-the-possible); it is",
        "local, and no proof for real rows.",
        "",
        "![captured energy against epsilon](images/rivals.png)",
    ]
    names = {rival.name for rival in RIVALS}
    for case, methods in found.items():
        if not methods:
            continue
        said += ["", f"### {case}", ""]
        said += ["| method | " + " | ".join(f"epsilon = {e:g}" for e in EPSILONS) + " |"]
        said += ["|---" * (1 + len(EPSILONS)) + "|"]
        order = sorted(methods, key=lambda name: -float(np.mean(methods[name]["1"])))
        for name in [BOUND, *(name for name in order if name != BOUND)]:
            cells = " | ".join(_cell(methods[name][f"{e:g}"]) for e in EPSILONS)
            said.append(f"| {name}{' *' if name in names else ''} | {cells} |")
    said += ["", "### What each is told", "", "| method | paper | told without charge |"]
    said += ["|---|---|---|", "| eigenveil | | centre (here; by default a fit releases its own) |"]
    said += [f"| {rival.name} | {rival.paper} | {rival.told} |" for rival in RIVALS]
    report.text(section, "\n".join(said))
    draw(found, DOCS / "images" / "rivals.png")


def _rounded(found: Numbers) -> Numbers:
    return {
        case: {
            name: {
                epsilon: [round(value, 6) for value in values] for epsilon, values in per.items()
            }
            for name, per in methods.items()
        }
        for case, methods in found.items()
    }


def main() -> None:
    """Measure again what is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--fast", action="store_true", help="small cases, two runs, nothing written"
    )
    parser.add_argument("--only", nargs="*", metavar="METHOD", help="these; the rest is kept")
    parser.add_argument("--cases", nargs="*", metavar="CASE", help="these; the rest is kept")
    asked = parser.parse_args()
    found: Numbers = {}
    if not (asked.only is None and asked.cases is None) and NUMBERS.exists():
        found = json.loads(NUMBERS.read_text(encoding="utf-8"))
    only = None if asked.only is None else set(asked.only)
    among = None if asked.cases is None else set(asked.cases)
    found = measure(found, fast=asked.fast, only=only, among=among)
    if not asked.fast:
        report = Report()
        write(report, found)
        report.write(DOCS / "benchmarks.md", whole=False)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
