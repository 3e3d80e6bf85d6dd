"""A covariance as the commands meet it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil import plots
from eigenveil.app.parts import Part, TablePart
from eigenveil.app.presenters.base import (
    Comparison,
    Drawing,
    Presenter,
    interval_texts,
    name_of,
    names_of,
    not_shown,
)
from eigenveil.app.presenters.tensors import write_csv
from eigenveil.errors import listed, short_name
from eigenveil.models.covariance.estimator import FittedCovariance
from eigenveil.models.intervals.asked import intervals_of
from eigenveil.models.intervals.bars import Intervals

_SHOWN = 20


def _percent(part: float) -> str:
    return "less than 0.01 %" if part < 1e-4 else f"about {float(f'{100 * part:.2g}'):g} %"


def _of_intervals(found: Intervals | str, strongest: list[tuple[int, int]]) -> Iterator[Part]:
    """Intervals of features' deviations, and of their strongest correlations."""
    if isinstance(found, str):
        yield f"No intervals: {found}"
        return
    covariance, correlation = found["covariance"], found["correlation"]
    one, other = np.array(strongest, dtype=np.intp).T
    names = np.array([short_name(name) for name in covariance.labels[0]])
    deviations = (
        np.sqrt(np.maximum(end[one, one], 0.0))
        for end in (covariance.bars.lower, covariance.bars.upper)
    )
    correlations = (end[one, other] for end in (correlation.bars.lower, correlation.bars.upper))
    cells = zip(
        names[one].tolist(),
        interval_texts(*deviations, digits=".4g"),
        interval_texts(*correlations, digits="+.2f"),
        names[other].tolist(),
        strict=True,
    )
    yield TablePart(
        "95 % intervals",
        ("feature", "deviation", "correlation", "with"),
        list(cells),
        right=("deviation", "correlation"),
    )
    rows = covariance.about.removeprefix("covariances ")
    yield f"In 95 of 100 fits they hold the deviation and the correlation {rows}."
    for what, quantity in (("Deviations", covariance), ("Correlations", correlation)):
        if said := not_shown(quantity):
            yield f"{what}:{said}"


class CovariancePresenter(Presenter):
    """Means, deviations, correlations."""

    task = "covariance"
    stored = FittedCovariance
    said = "distances"

    def values(self, model: Any) -> dict[str, Any]:
        return {
            "features": names_of(model),
            "covariance": model.covariance_.tolist(),
            "location": model.location_.tolist(),
            "usable": model.usable_.tolist(),
            "noise_floor": model.noise_floor_,
            "row_bound": model.row_bound_,
            "clipped_energy": model.clipped_energy_,
            "rows": model.n_samples_,
        }

    def parts(self, model: Any) -> Iterator[Part]:
        """A line a feature, those of most variance first."""
        names, count = names_of(model), model.n_features_in_
        strongest: list[tuple[int, int]] = []
        variance, correlation = np.diag(model.covariance_), model.correlation_
        others = np.where(np.eye(count) + np.isnan(correlation) > 0, -1.0, np.abs(correlation))
        hidden = np.isnan(np.diag(correlation))
        rows = []
        for index in np.argsort(-variance, kind="stable")[:_SHOWN]:
            other = int(np.argmax(others[index]))
            strongest.append((int(index), other))
            rows.append(
                (
                    short_name(name_of(names, index)),
                    f"{model.location_[index]:.5g}",
                    f"{np.sqrt(variance[index]):.4g}",
                    "hidden by noise"
                    if hidden[index]
                    else "no other shows"
                    if others[index, other] < 0
                    else f"{short_name(name_of(names, other))} ({correlation[index, other]:+.2f})",
                    "NO: not usable" if hidden[index] else "yes",
                )
            )
        yield TablePart(
            f"mean and covariance of {count} features",
            ("feature", "mean", "deviation", "strongest correlation", "above noise"),
            rows,
            right=("mean", "deviation"),
        )
        yield from _of_intervals(intervals_of(model), strongest)
        if hidden.any():
            yield (
                "Where noise hides a column, what is left of its variance is shared with others: "
                "its interval is the better guess, and need not hold the deviation above it."
            )
        if model.schema_ is not None and model.schema_.targets:
            found = listed([repr(short_name(column.name)) for column in model.schema_.targets])
            yield f"targets, which 'eigenveil derive' takes by default: {found}."
            if model.plan_.apart is not None:
                yield "Of those that are categories rows are counted exactly, but for noise."
        if count > _SHOWN:
            yield f"shown are the {_SHOWN} of most variance; covariance.csv has all."
        yield (
            f"{int(model.usable_.sum())} of {count} directions stand above the noise, which alone "
            f"shows a variance of up to {model.noise_floor_:.4g}"
            + (" of scaled columns" if np.any(model.scale_ != 1.0) else "")
            + "; the others share their mean."
        )
        if model.clipped_energy_ is not None:
            yield (
                f"rows were shortened to {model.row_bound_:.4g} from the mean"
                + (", in scales" if np.any(model.scale_ != 1.0) else "")
                + ": that cuts "
                f"off {_percent(model.clipped_energy_)} of the variance, not counting "
                "norms that too few rows have to be seen."
            )

    def write(self, model: Any, folder: Path) -> list[tuple[str, str]]:
        names = names_of(model)
        labels = [name_of(names, index) for index in range(model.n_features_in_)]
        rows = zip(labels, model.location_.tolist(), model.covariance_.tolist(), strict=True)
        lines = ([label, mean, *row] for label, mean, row in rows)
        write_csv(folder / "covariance.csv", ["feature", "mean", *labels], lines)
        return [("covariance.csv", "mean and covariance by feature")]

    def drawings(self, model: Any) -> Iterator[Drawing]:
        what = "correlations of the features"
        yield Drawing(plots.plot_correlations, model, "correlation", what)

    def compare(self, one: Any, other: Any) -> Comparison:
        size = max(float(np.linalg.norm(one.covariance_)), np.finfo(float).tiny)
        apart = float(np.linalg.norm(one.covariance_ - other.covariance_)) / size
        moved = float(np.linalg.norm(one.location_ - other.location_))
        deviation = float(np.sqrt(np.trace(one.covariance_))) or 1.0
        return Comparison(
            "The difference, relative to the first result.",
            ("of the", "relative difference"),
            [
                ("covariance (Frobenius norm)", f"{apart:.3f}"),
                ("mean (in deviations of a row)", f"{moved / deviation:.3f}"),
            ],
        )

    def new_names(self, model: Any) -> list[str]:
        return ["mahalanobis"]

    def _new_values(self, model: Any, rows: Any) -> Any:
        return model.mahalanobis(rows)[:, None]
