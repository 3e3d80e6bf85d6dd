"""Independent components as the commands meet them."""

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
)
from eigenveil.app.presenters.tensors import write_by_feature, write_csv
from eigenveil.errors import short_name
from eigenveil.models.beside import matched
from eigenveil.models.ica.estimator import FittedICA
from eigenveil.models.intervals.asked import intervals_of
from eigenveil.models.intervals.bars import Intervals


class ICAPresenter(Presenter):
    """Sources, their maps and their kurtosis."""

    task = "ica"
    stored = FittedICA
    said, each = "sources", "source"
    cites = ("cardoso1993blind",)
    clear = "sources can be told apart"

    def values(self, model: Any) -> dict[str, Any]:
        return {
            "features": names_of(model),
            "mean": model.mean_.tolist(),
            "components": model.components_.tolist(),
            "mixing": model.mixing_.tolist(),
            "kurtosis": model.kurtosis_.tolist(),
            "kurtosis_error": model.kurtosis_error_,
            "usable": model.usable_.tolist(),
            "noise_floor": model.noise_floor_,
            "row_bound": model.row_bound_,
            "rows": model.n_samples_,
        }

    def parts(self, model: Any) -> Iterator[Part]:
        names, error = names_of(model), model.kurtosis_error_
        rows = []
        for place, column in enumerate(model.mixing_.T):
            top = int(np.abs(column).argmax())
            rows.append(
                (
                    str(place + 1),
                    f"{float(np.linalg.norm(column)):.4g}",
                    f"{model.kurtosis_[place]:+.2f}",
                    f"{short_name(name_of(names, top))} ({column[top]:+.3g})",
                    "yes" if model.usable_[place] else "NO: not usable",
                )
            )
        yield TablePart(
            f"{model.n_components_} independent components of {model.n_features_in_} features",
            ("source", "deviation", "excess kurtosis", "largest in its map", "told apart"),
            rows,
            right=("deviation", "excess kurtosis"),
        )
        yield (
            f"The standard error of an excess kurtosis is {error:.2g}, of noise and sampling; "
            "intervals are of noise alone."
        )
        yield from _of_intervals(intervals_of(model), np.abs(model.mixing_).argmax(axis=0))

    def write(self, model: Any, folder: Path) -> list[tuple[str, str]]:
        names, features = self.new_names(model), names_of(model)
        ends = interval_ends(model, "mixing", names)
        maps = np.vstack([model.mixing_.T, *ends.values()])
        write_by_feature(folder / "mixing.csv", ["feature", *names, *ends], features, maps)
        write_by_feature(
            folder / "components.csv", ["feature", *names], features, model.components_
        )
        lines = zip(names, model.kurtosis_.tolist(), model.usable_.tolist(), strict=True)
        write_csv(folder / "sources.csv", ["source", "excess kurtosis", "usable"], map(list, lines))
        return [
            ("mixing.csv", "the map of each source, by feature"),
            ("components.csv", "what rows are multiplied by"),
            ("sources.csv", "excess kurtosis of each source"),
        ]

    def drawings(self, model: Any) -> Iterator[Drawing]:
        yield Drawing(plots.plot_maps, model, "maps", "the maps of the sources")

    def compare(self, one: Any, other: Any) -> Comparison:
        maps = [_unit(each.mixing_) for each in (one, other)]
        alike = np.abs(maps[0].T @ maps[1])
        return Comparison(
            "How alike the maps of the sources are, from 0 to 1; matched as well as can be.",
            ("first", "second", "alike"),
            [(str(i + 1), str(j + 1), f"{alike[i, j]:.3f}") for i, j in matched(alike)],
        )

    def _new_values(self, model: Any, rows: Any) -> Any:
        return model.transform(np.asarray(rows, dtype=np.float64))


def _of_intervals(found: Intervals | str, largest: NDArray[np.intp]) -> Iterator[Part]:
    """Intervals of kurtosis and of each map's largest entry, and how far maps may be off."""
    if isinstance(found, str):
        yield f"No intervals: {found}"
        return
    maps, kurtosis, angle = (found[name] for name in ("mixing", "kurtosis", "angle"))
    places = np.arange(largest.size), largest
    ends = (
        interval_texts(kurtosis.lower, kurtosis.upper, digits="+.3f"),
        interval_texts(maps.lower[places], maps.upper[places], digits="+.3g"),
        at_most_texts(angle.upper),
    )
    numbers = ("excess kurtosis", "largest in its map", "degrees off")
    rows = list(zip(kurtosis.labels[0], *ends, strict=True))
    yield TablePart("95 % intervals", ("source", *numbers), rows, right=numbers)
    for name, each in zip(numbers, (kurtosis, maps, angle), strict=True):
        yield f"{name}: {each.about.removeprefix(f'{name} ')}.{not_shown(each)}"


def _unit(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.maximum(np.linalg.norm(maps, axis=0), np.finfo(float).tiny)
    return np.asarray(maps / lengths)
