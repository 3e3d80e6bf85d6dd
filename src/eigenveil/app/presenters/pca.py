"""The presenter of PCA."""

from __future__ import annotations

from collections.abc import Iterator
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
    at_most_texts,
    interval_ends,
    interval_texts,
    name_of,
    names_of,
    not_shown,
    or_none,
)
from eigenveil.app.presenters.tensors import write_csv
from eigenveil.errors import short_name
from eigenveil.files import replacing
from eigenveil.io.formats.images import voxel_places
from eigenveil.models.intervals.asked import intervals_of
from eigenveil.models.intervals.bars import Intervals
from eigenveil.models.pca.estimator import FittedPCA
from eigenveil.models.pca.score_plot import ScoreDensity
from eigenveil.moments.source import RowSource

_MOST_POINTS = 5000


class PCAPresenter(Presenter):
    task = "pca"
    stored = FittedPCA
    each = "PC"

    def takes_holes(self, model: Any) -> bool:
        return bool(model.plan_.holes)

    def values(self, model: Any) -> dict[str, Any]:
        return {
            "components": model.components_.tolist(),
            "features": names_of(model),
            "mean": model.mean_.tolist(),
            "explained_variance": or_none(model.explained_variance_),
            "explained_variance_ratio": or_none(model.explained_variance_ratio_),
            "variance_bound": model.variance_bound_,
            "usable": model.usable_.tolist(),
            "noise_floor": model.noise_floor_,
            "rows": model.n_samples_,
            "adapted": model.adapted_,
            "predicted_losses": model.predicted_losses_,
            **({} if (seen := model.score_density_) is None else {"scores": seen.as_dict()}),
        }

    def parts(self, model: Any) -> Iterator[Part]:
        total, names, rows, usable = 0.0, names_of(model), [], model.usable_
        variances, ratios = model.explained_variance_, model.explained_variance_ratio_
        for index, component in enumerate(model.components_):
            share = 100 * float(ratios[index])
            top = int(abs(component).argmax())
            shares = ("hidden by noise", "", "")
            if usable[index]:
                total += share
                shares = (f"{float(variances[index]):.5g}", f"{share:.1f}", f"{total:.1f}")
            rows.append(
                (
                    f"PC{index + 1}",
                    *shares,
                    f"{short_name(name_of(names, top))} ({component[top]:+.2f})",
                    "yes" if usable[index] else "NO: not usable",
                )
            )
        numbers = ("explained variance", "% of total", "cumulative %")
        yield TablePart(
            f"{model.n_components_} components of {model.n_features_in_} features",
            ("component", *numbers, "largest loading", "above noise"),
            rows,
            right=numbers,
        )
        yield from _of_intervals(intervals_of(model))
        if model.variance_bound_:
            yield f"Variances are of rows no longer than {model.variance_bound_:.4g}."
        if (density := model.score_density_) is not None:
            yield from _of_scores(density)

    def write(self, model: Any, folder: Path) -> list[tuple[str, str]]:
        names = names_of(model)
        scaled = bool(np.any(model.scale_ != 1.0))
        columns = [model.mean_, *[model.scale_] * scaled, *model.components_]
        names_of_new = self.new_names(model)
        usable = " ".join(np.array(names_of_new)[model.usable_])
        ends = interval_ends(model, "component", names_of_new)
        write_csv(
            folder / "components.csv",
            ["feature", "mean", *["scale"] * scaled, *names_of_new, "usable", *ends],
            (
                [name_of(names, index), *map(float, values), usable]
                + [float(end[index]) for end in ends.values()]
                for index, values in enumerate(zip(*columns, strict=True))
            ),
        )
        return [("components.csv", "loadings by feature")]

    def drawings(self, model: Any) -> Iterator[Drawing]:
        yield Drawing(plots.plot_scree, model, "scree", "explained variance against the noise")
        if voxel_places(names_of(model) or ()) is None:
            yield Drawing(plots.plot_biplot, model, "biplot", "features along the components")
        else:
            yield Drawing(plots.plot_loadings, model, "maps", "the components, in slices")
        if model.score_density_ is not None:
            what = "where rows lie along the first components, with noise"
            yield Drawing(plots.plot_score_density, model, "scores", what)

    def compare(self, one: Any, other: Any) -> Comparison:
        cosines = np.abs(np.diagonal(_unit(one) @ _unit(other).T))
        degrees = np.degrees(np.arccos(np.minimum(cosines, 1.0)))
        return Comparison(
            "Angle between components of the same number; of 90 degrees they have nothing in "
            "common.",
            ("component", "degrees"),
            [(str(number), f"{angle:.1f}") for number, angle in enumerate(degrees, start=1)],
        )

    def _new_values(self, model: Any, rows: Any) -> Any:
        return model.transform(np.asarray(rows, dtype=np.float64))


def _of_intervals(found: Intervals | str) -> Iterator[Part]:
    """Intervals of the components' variances, and how far they may be from the exact ones."""
    if isinstance(found, str):
        yield f"No intervals: {found}"
        return
    ratio, total, angle = (
        found[name] for name in ("explained_variance_ratio", "cumulative_ratio", "angle")
    )
    numbers = ("% of total", "cumulative %", "degrees off")
    shares = [
        interval_texts(100 * each.bars.lower, 100 * each.bars.upper, digits=".1f")
        for each in (ratio, total)
    ]
    rows = list(zip(ratio.labels[0], *shares, at_most_texts(angle.upper), strict=True))
    yield TablePart("95 % intervals", ("component", *numbers), rows, right=numbers)
    yield f"In 95 of 100 fits they hold the {ratio.about}.{not_shown(ratio)}"
    yield f"degrees off: {angle.about}.{not_shown(angle)}"


def _of_scores(density: ScoreDensity) -> Iterator[Part]:
    """In how many cells rows are seen, of each group."""
    groups = [short_name(name) for name in density.groups] or ["rows"]
    seen = density.seen.reshape(len(groups), -1).sum(axis=1)
    cells = " x ".join(str(cuts.size - 1) for cuts in density.edges)
    said = ", ".join(f"{name} in {count}" for name, count in zip(groups, seen, strict=True))
    yield (
        f"Scores were counted in {cells} cells. More than noise shows (above "
        f"{density.least:.3g} rows): {said}."
    )


def _unit(model: Any) -> NDArray[np.float64]:
    """The components, of length 1; of nothing 0."""
    lengths = np.linalg.norm(model.components_, axis=1, keepdims=True)
    return np.asarray(model.components_ / np.maximum(lengths, np.finfo(float).tiny))


def draw_rows(model: FittedPCA, rows: RowSource, file: Path) -> None:
    """Draw rows along two components; the picture states that it shows rows. Not private."""
    axes = plots.plot_scores(model, _some_scores(model, rows))
    with replacing(file) as scratch:
        plots.save_figure(axes, scratch)


def _some_scores(model: FittedPCA, rows: RowSource) -> NDArray[np.float64]:
    """Scores of at most a few thousand rows from the first blocks."""
    parts, count = [], 0
    for block in rows.blocks():
        rows_there = np.where(np.isfinite(block.values), block.values, np.nan)
        parts.append(PCAPresenter().new_values(model, rows_there)[:, :2])
        count += block.values.shape[0]
        if count >= _MOST_POINTS:
            break
    return np.asarray(np.concatenate(parts)[:_MOST_POINTS])
