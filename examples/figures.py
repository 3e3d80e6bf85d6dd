"""Draw the pictures of the README and of the audit page; --fast: the audit with fewer trials."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from eigenveil import PrivacyError, PrivatePCA, plots
from eigenveil.audit import report, run
from eigenveil.linalg.subspace import captured_energy

COMPONENTS = 10
RUNS = 5
AUDIT_SEED = 7
FAST_TRIALS = 10_000
# Between these lines the page has the table.
BEGIN, END = "<!-- audit table: begin -->", "<!-- audit table: end -->"


def energy(rows: NDArray[np.float64], epsilon: float, **options: object) -> float:
    """Mean captured energy of a private fit; NaN where it refuses."""
    centered = rows - rows.mean(axis=0)
    exact = centered.T @ centered
    found = []
    for seed in range(RUNS):
        model = PrivatePCA(COMPONENTS, epsilon=epsilon, random_state=seed, **options)  # type: ignore[arg-type]
        try:
            found.append(captured_energy(exact, model.fit(rows).components_))
        except PrivacyError:
            found.append(float("nan"))
    return float(np.mean(found))


def audited(docs: Path, *, trials: int) -> None:
    """Attack every mechanism: the table and the figure of the audit page."""
    folder, document = docs / "images" / "audit", docs / "audit.md"
    folder.mkdir(parents=True, exist_ok=True)
    found = run.audit(
        run.chosen([run.EVERYTHING]), trials=trials, jobs=os.cpu_count() or 1, seed=AUDIT_SEED
    )
    report.write_findings(found, folder, confidence=run.CONFIDENCE)
    before, rest = document.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    table = report.markdown(found, confidence=run.CONFIDENCE)
    document.write_text(f"{before}{BEGIN}\n{table}{END}{after}", encoding="utf-8")
    print(f"wrote {docs}/images/audit and the table of {docs}/audit.md: {len(found)} audits")


def main(folder: Path) -> None:
    """Write the README's figures."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = load_digits().data
    axes = Figure(figsize=(6.4, 4.0), layout="constrained").subplots()
    targets = np.array([0.2, 0.5, 1.0, 2.0, 5.0, 10.0])
    for label, options in (
        ("Gaussian noise, delta = 1e-6", {"delta": 1e-6}),
        ("pure epsilon (Wishart difference)", {"delta": 0.0}),
        ("pure epsilon (exponential mechanism)", {"delta": 0.0, "mechanism": "bingham"}),
    ):
        axes.semilogx(targets, [energy(rows, e, **options) for e in targets], "o-", label=label)
    axes.set_xlabel("epsilon")
    axes.set_ylabel("captured energy (of the exact subspace's)")
    axes.set_title("digits: 1797 rows, 64 features, 10 components", fontsize=10)
    axes.set_ylim(0, 1.02)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    plots.save_figure(axes, folder / "utility.png")
    model = PrivatePCA(COMPONENTS, epsilon=1.0, delta=1e-6).fit(rows)
    plots.save_figure(plots.plot_scree(model), folder / "scree.png")
    print(f"wrote {folder}/utility.png and {folder}/scree.png")


if __name__ == "__main__":
    names = [word for word in sys.argv[1:] if word != "--fast"]
    docs = Path(names[0] if names else "docs")
    main(docs / "images")
    audited(docs, trials=FAST_TRIALS if "--fast" in sys.argv else run.TRIALS)
