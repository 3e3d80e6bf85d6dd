"""The presenter of mixtures of Gaussians."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil import plots
from eigenveil.app.parts import Part, TablePart
from eigenveil.app.presenters.base import (
    Comparison,
    Drawing,
    Presenter,
    columns_matched,
    matched,
    name_of,
    names_of,
)
from eigenveil.app.presenters.tensors import (
    strength_parts,
    strength_values,
    strengths_drawing,
    write_by_feature,
    write_csv,
)
from eigenveil.errors import short_name
from eigenveil.models.mixture.estimator import FittedMixture

_MOST_COLUMNS = 6
_SHOWN_FEATURES = 3


class MixturePresenter(Presenter):
    task = "gaussian-mixture"
    stored = FittedMixture
    label, said = "likeliest", "probabilities"

    def values(self, model: Any) -> dict[str, Any]:
        return {
            "features": names_of(model),
            "means": model.means_.tolist(),
            "weights": model.weights_.tolist(),
            "noise_variance": model.noise_variance_,
            "covariance_type": model.plan_.covariance_type,
            "covariances": model.covariances_.tolist(),
            "rows": model.n_samples_,
            "row_bound": model.row_bound_,
            **strength_values(model),
        }

    def parts(self, model: Any) -> Iterator[Part]:
        count, features = model.means_.shape
        what = f"{count} component{'' if count == 1 else 's'} of {features} features"
        names, rows = names_of(model), []
        average = model.weights_ @ model.means_
        for index, mean in enumerate(model.means_):
            away = mean - average if count > 1 else mean
            largest = np.argsort(-np.abs(away), kind="stable")[:_SHOWN_FEATURES]
            farthest = (f"{short_name(name_of(names, i))} ({away[i]:+.3g})" for i in largest)
            rows.append(
                (
                    str(index + 1),
                    f"{model.weights_[index]:.3f}",
                    f"{model.weights_[index] * model.n_samples_:,.0f}",
                    f"{np.sqrt(model.variances_[index]):.4g}",
                    f"{np.linalg.norm(mean):.4g}",
                    ", ".join(farthest),
                )
            )
        numbers = ("weight", "rows (about)", "deviation", "norm of mean")
        yield TablePart(
            f"{what} ({model.plan_.covariance_type})",
            ("component", *numbers, "farthest from the average"),
            rows,
            right=numbers,
        )
        yield from strength_parts(model, things="components")

    def write(self, model: Any, folder: Path) -> list[tuple[str, str]]:
        headings = self.new_names(model)
        write_by_feature(
            folder / "means.csv", ["feature", *headings], names_of(model), model.means_
        )
        write_csv(
            folder / "weights.csv",
            ["component", "weight", "rows", "variance"],
            (
                [name, float(w), float(w * model.n_samples_), float(variance)]
                for name, w, variance in zip(
                    headings, model.weights_, model.variances_, strict=True
                )
            ),
        )
        return [
            ("means.csv", "means by feature"),
            ("weights.csv", "weight, rows (about) and variance of each component"),
        ]

    def drawings(self, model: Any) -> Iterator[Drawing]:
        yield strengths_drawing(plots.plot_mixture_strengths, model)
        yield Drawing(
            partial(plots.plot_mixture, model),
            ("mixture.png", "mixture.svg"),
            "the components along two directions; shows no row",
        )

    def compare(self, one: Any, other: Any) -> Comparison:
        away = np.linalg.norm(one.means_[:, None] - other.means_[None], axis=2)
        deviation = math.sqrt(float((one.variances_.mean() + other.variances_.mean()) / 2.0))
        return Comparison(
            f"Distance of the means, in deviations of a feature within a component "
            f"({deviation:.4g}); components are matched as well as can be.",
            ("first", "second", "distance", "weights"),
            [
                (
                    str(i + 1),
                    str(j + 1),
                    f"{away[i, j] / (deviation or 1.0):.3f}",
                    f"{one.weights_[i]:.3f} and {other.weights_[j]:.3f}",
                )
                for i, j in matched(-away)
            ],
        )

    def new_names(self, model: Any) -> list[str]:
        return [f"component{i + 1}" for i in range(model.means_.shape[0])]

    def new_values(self, model: Any, rows: Any) -> NDArray[np.floating[Any]]:
        with columns_matched():
            return np.asarray(model.predict_proba(rows))
