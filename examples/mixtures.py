"""Private mixture of three clinics' patients: three kinds of them, and no clinic shows a row.

The data are made up: five measurements of each patient, in units of their spread within a kind. The
clinics have different shares of the kinds, so that none alone sees what all see together.

    python examples/mixtures.py
    python examples/mixtures.py --epsilon 0.2 --figure mixture.png
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eigenveil import FederatedGaussianMixture, PrivacyError, plots

MEASUREMENTS = ("glucose", "pressure", "weight", "pulse", "cholesterol")
KINDS = np.array(
    [
        [0.0, 0.0, 0.0, 0.0, 0.0],
        [4.0, 1.0, 2.5, 0.0, 1.0],
        [0.0, 3.5, 0.5, 2.0, 2.5],
    ]
)
# patients of each clinic, by kind
CLINICS = {"north": (5000, 2500, 500), "south": (4000, 200, 1800), "west": (3000, 1500, 1500)}


def patients(kinds: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    """Made-up rows of a clinic."""
    labels = np.repeat(np.arange(len(kinds)), kinds)
    return KINDS[labels] + rng.standard_normal((labels.size, len(MEASUREMENTS)))


def main() -> None:
    """Make the clinics' rows, fit to all of them without showing any, compare with the truth."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="of the made-up rows, not of the noise")
    parser.add_argument("--figure", type=Path, help="file for a figure, such as mixture.png")
    options = parser.parse_args()

    rng = np.random.default_rng(options.seed)
    tables: dict[str, NDArray[np.float64]] = {}
    for name, kinds in CLINICS.items():
        rows = patients(kinds, rng)
        tables[name] = rows
        print(f"clinic {name}: {rows.shape[0]:,} patients, kinds {' + '.join(map(str, kinds))}")

    start = time.monotonic()
    model = FederatedGaussianMixture(epsilon=options.epsilon, delta=1e-6)
    try:
        model.fit(tables)
    except PrivacyError as error:
        raise SystemExit(f"no result: {error.message}\n{error.hint}") from None
    print(f"\nfitted in {time.monotonic() - start:.1f} s, protocol {model.study_.protocol}")
    print(f"{model.n_components_} kinds stand above the noise, about {model.n_samples_:,.0f} rows")

    shares = np.sum(list(CLINICS.values()), axis=0) / np.sum(list(CLINICS.values()))
    print(f"\n{'':14}{'share':>8}" + "".join(f"{name:>13}" for name in MEASUREMENTS))
    for number, (weight, mean) in enumerate(zip(model.weights_, model.means_, strict=True)):
        kind = int(np.argmin(np.linalg.norm(KINDS - mean, axis=1)))
        for label, share, values in (
            (f"found {number + 1}", weight, mean),
            ("  the nearest", shares[kind], KINDS[kind]),
        ):
            print(f"{label:14}{share:8.3f}" + "".join(f"{value:13.2f}" for value in values))
    deviation = np.sqrt(model.noise_variance_)
    print(f"deviation within a kind: found {deviation:.3f}, true 1")

    print("\nwhat each adversary is held to:")
    for name, view in model.views_.items():
        print(f"  {name:11} epsilon = {view.epsilon:.3g} at delta = {view.delta:g}")
    sent = {name: f"{traffic.sent / 1024:.1f} KiB" for name, traffic in model.traffic_.items()}
    print(f"sent: {', '.join(f'{name} {size}' for name, size in sent.items())}")
    if options.figure is not None:
        plots.save_figure(plots.plot_mixture(model), options.figure)
        print(f"written: {options.figure}")


if __name__ == "__main__":
    main()
