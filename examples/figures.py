"""Draw the pictures of the README: utility against epsilon, and the demo's scree plot."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from eigenveil import PrivacyError, PrivatePCA, plots
from eigenveil.linalg.subspace import captured_energy

COMPONENTS = 10
RUNS = 5


def energy(rows: NDArray[np.float64], epsilon: float, **options: object) -> float:
    """Mean captured energy of a private fit; NaN where it refuses."""
    centred = rows - rows.mean(axis=0)
    exact = centred.T @ centred
    found = []
    for seed in range(RUNS):
        model = PrivatePCA(COMPONENTS, epsilon=epsilon, random_state=seed, **options)  # type: ignore[arg-type]
        try:
            found.append(captured_energy(exact, model.fit(rows).components_))
        except PrivacyError:
            found.append(float("nan"))
    return float(np.mean(found))


def main(folder: Path) -> None:
    """Write the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = load_digits().data
    axes = Figure(figsize=(6.4, 4.0), layout="constrained").subplots()
    wishes = np.array([0.2, 0.5, 1.0, 2.0, 5.0, 10.0])
    for label, options in (
        ("Gaussian noise, delta = 1e-6", {"delta": 1e-6}),
        ("pure epsilon (Wishart difference)", {"delta": 0.0}),
        ("pure epsilon (exponential mechanism)", {"delta": 0.0, "mechanism": "bingham"}),
    ):
        axes.semilogx(wishes, [energy(rows, e, **options) for e in wishes], "o-", label=label)
    axes.set_xlabel("epsilon")
    axes.set_ylabel("captured energy (of the exact subspace's)")
    axes.set_title("digits: 1797 rows, 64 features, 10 components", fontsize=10)
    axes.set_ylim(0, 1.02)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    plots.save_figure(axes, folder / "utility.png")
    model = PrivatePCA(COMPONENTS, epsilon=1.0, delta=1e-6).fit(rows)
    plots.save_figure(plots.scree(model), folder / "scree.png")
    print(f"wrote {folder}/utility.png and {folder}/scree.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
