"""Mixtures of spherical Gaussians as the commands meet them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from eigenveil import plots
from eigenveil.cli.family import Drawing, Family, name_of, names_of
from eigenveil.cli.of_tensors import columns_matched, print_strengths, strength_values, write_csv
from eigenveil.cli.screen import Screen
from eigenveil.errors import short_name
from eigenveil.estimators.fitted_mixture import FittedMixture

_SHOWN_FEATURES = 3


class MixtureFamily(Family):
    """Means, weights, noise variance."""

    task = "gaussian-mixture"
    stored = FittedMixture
    label = "likeliest"

    def values(self, model: Any) -> dict[str, Any]:
        """Means and what belongs to them."""
        return {
            "features": names_of(model),
            "means": model.means_.tolist(),
            "weights": model.weights_.tolist(),
            "noise_variance": model.noise_variance_,
            "rows": model.n_samples_,
            "row_bound": model.row_bound_,
            **strength_values(model),
        }

    def show(self, model: Any, out: Screen) -> None:
        """A line a component."""
        count, features = model.means_.shape
        what = f"{count} component{'' if count == 1 else 's'} of {features} features"
        deviation = np.sqrt(model.noise_variance_)
        table = Table(title=f"{what}, deviation {deviation:.4g} within each")
        table.add_column("component")
        table.add_column("weight", justify="right")
        table.add_column("rows (about)", justify="right")
        table.add_column("norm of mean", justify="right")
        table.add_column("farthest from the average")
        names = names_of(model)
        average = model.weights_ @ model.means_
        for index, mean in enumerate(model.means_):
            away = mean - average if count > 1 else mean
            largest = np.argsort(-np.abs(away), kind="stable")[:_SHOWN_FEATURES]
            table.add_row(
                str(index + 1),
                f"{model.weights_[index]:.3f}",
                f"{model.weights_[index] * model.n_samples_:,.0f}",
                f"{np.linalg.norm(mean):.4g}",
                ", ".join(f"{short_name(name_of(names, i))} ({away[i]:+.3g})" for i in largest),
            )
        out.print(table)
        print_strengths(model, out, things="components")

    def write(self, model: Any, folder: Path) -> list[tuple[str, str]]:
        """Means, a line a feature, and weights, a line a component."""
        names = names_of(model)
        headings = self.new_names(model)
        write_csv(
            folder / "means.csv",
            ["feature", *headings],
            (
                [name_of(names, index), *(float(value) for value in model.means_[:, index])]
                for index in range(model.means_.shape[1])
            ),
        )
        write_csv(
            folder / "weights.csv",
            ["component", "weight", "rows", "variance"],
            (
                [name, float(w), float(w * model.n_samples_), float(model.noise_variance_)]
                for name, w in zip(headings, model.weights_, strict=True)
            ),
        )
        return [
            ("means.csv", "means by feature"),
            ("weights.csv", "weight, rows (about) and variance of each component"),
        ]

    def drawings(self, model: Any) -> Iterator[Drawing]:
        """Strengths against the noise, and the components; rows are never drawn."""
        yield Drawing(
            plots.mixture_strengths(model),
            ("strengths.png", "strengths.svg"),
            "strengths against the noise",
        )
        yield Drawing(
            plots.mixture(model),
            ("mixture.png", "mixture.svg"),
            "the components along two directions; shows no row",
        )

    def new_names(self, model: Any) -> list[str]:
        """component1, component2, ..."""
        return [f"component{i + 1}" for i in range(model.means_.shape[0])]

    def new_values(self, model: Any, rows: Any) -> NDArray[np.floating[Any]]:
        """Posterior probabilities of the components."""
        with columns_matched():
            return np.asarray(model.predict_proba(rows))
