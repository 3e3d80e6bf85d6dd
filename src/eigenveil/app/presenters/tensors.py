"""What is shown of mixtures and topics."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil import plots
from eigenveil.app.parts import Part, TablePart, strongly
from eigenveil.app.presenters.base import (
    Comparison,
    Drawing,
    Presenter,
    interval_ends,
    interval_texts,
    name_of,
    names_of,
    not_shown,
)
from eigenveil.errors import printable, short_name
from eigenveil.models.beside import matched
from eigenveil.models.intervals.asked import intervals_of
from eigenveil.models.intervals.bars import Intervals
from eigenveil.models.mixture.estimator import FittedMixture
from eigenveil.models.topics.estimator import FittedTopics


def strength_values(model: Any) -> dict[str, Any]:
    return {
        "strengths": model.strengths_.tolist(),
        "noise_floor": model.noise_floor_,
        "usable": model.usable_.tolist(),
        "converged": model.converged_,
    }


_MOST_STRENGTHS = 8


def strength_parts(model: Any, *, things: str) -> Iterator[Part]:
    """How far the components stand above the noise, and a warning where they do not."""
    count, above = model.n_components_, int(model.usable_.sum())
    shown = [f"{value:.4g}" for value in model.strengths_[: max(count, 1)]]
    if len(shown) > _MOST_STRENGTHS:
        shown = [*shown[: _MOST_STRENGTHS - 1], "...", shown[-1]]
    yield (
        f"strengths: {', '.join(shown)}; noise alone shows up to {model.noise_floor_:.4g}: "
        f"{above} of {count} {things} stand above it."
    )
    if above < count:
        yield strongly(
            "  not usable:", f"{count - above} of them show noise, and mix with the others."
        )
    wanted = None if model.plan_.auto_components else model.plan_.n_components
    if wanted is not None and count < wanted:
        yield f"  only {count} of the {wanted} {things} requested stand above the noise."
    if not model.converged_:
        yield "  note: a power iteration did not converge; those with little weight are vague."


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a text begins with that a spreadsheet would compute: columns' names may be of others."""


def write_csv(path: Path, heading: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """A table of text and numbers, these in full; no text is a formula of a spreadsheet."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for line in (heading, *lines):
            writer.writerow([_text(each) if isinstance(each, str) else repr(each) for each in line])


def _text(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def write_by_feature(
    path: Path, heading: Sequence[str], names: Sequence[str] | None, values: NDArray[np.float64]
) -> None:
    """A line for each feature, with its value in each of the rows of ``values``."""
    lines = ([name_of(names, index), *column] for index, column in enumerate(values.T.tolist()))
    write_csv(path, heading, lines)


_STRENGTHS = "strengths against the noise"
_SHOWN_FEATURES = 3


def interval_parts(
    found: Intervals | str, of: str, places: Sequence[Sequence[int]]
) -> Iterator[Part]:
    """Intervals of weights, and of some entries of each component: those at ``places``."""
    if isinstance(found, str):
        yield f"No intervals: {found}"
        return
    weight, entries = found["weight"], found[of]
    thing, _ = entries.axes
    lower, upper, rows = entries.lower, entries.upper, []
    weights = interval_texts(weight.lower, weight.upper, digits=".3f")
    for index, own in enumerate(places):
        chosen = np.asarray(own, dtype=np.intp)
        texts = interval_texts(lower[index, chosen], upper[index, chosen], digits=".4g")
        names = (short_name(entries.labels[1][place]) for place in own)
        told = "; ".join(f"{name} {text}" for name, text in zip(names, texts, strict=True))
        rows.append((str(index + 1), weights[index], told))
    yield TablePart("95 % intervals", (thing, "weight", of), rows, right=("weight",))
    yield f"weight: {weight.about}.{not_shown(weight)}"
    yield f"{of}: {entries.about}.{not_shown(entries)}"


def _pairs(
    one: Any, other: Any, apart: NDArray[np.float64], pairs: Iterable[tuple[int, int]]
) -> list[tuple[str, ...]]:
    """A line for each two components that belong together."""
    weights = "{:.3f} and {:.3f}".format
    return [
        (str(i + 1), str(j + 1), f"{apart[i, j]:.3f}", weights(one.weights_[i], other.weights_[j]))
        for i, j in pairs
    ]


class TensorPresenter(Presenter):
    said = "probabilities"

    def likeliest(self, model: Any) -> NDArray[np.int_]:
        return np.arange(1, 1 + model.n_components_)


class MixturePresenter(TensorPresenter):
    task = "gaussian-mixture"
    stored = FittedMixture
    each = "component"

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
        places = []
        for index, mean in enumerate(model.means_):
            away = mean - average if count > 1 else mean
            largest = np.argsort(-np.abs(away), kind="stable")[:_SHOWN_FEATURES]
            places.append(largest.tolist())
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
        yield from interval_parts(intervals_of(model), "mean", places)

    def write(self, model: Any, folder: Path) -> list[tuple[str, str]]:
        headings = self.new_names(model)
        ends = interval_ends(model, "mean", headings)
        write_by_feature(
            folder / "means.csv",
            ["feature", *headings, *ends],
            names_of(model),
            np.vstack([model.means_, *ends.values()]),
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
        yield Drawing(plots.plot_mixture_strengths, model, "strengths", _STRENGTHS)
        what = "the components along two directions; shows no row"
        yield Drawing(plots.plot_mixture, model, "mixture", what)

    def compare(self, one: Any, other: Any) -> Comparison:
        away = np.linalg.norm(one.means_[:, None] - other.means_[None], axis=2)
        deviation = math.sqrt(float((one.variances_.mean() + other.variances_.mean()) / 2.0))
        return Comparison(
            f"Distance of the means, in deviations of a feature within a component "
            f"({deviation:.4g}); components are matched as well as can be.",
            ("first", "second", "distance", "weights"),
            _pairs(one, other, away / (deviation or 1.0), matched(-away)),
        )

    def _new_values(self, model: Any, rows: Any) -> Any:
        return model.predict_proba(rows)


_SHOWN_WORDS, _WRITTEN_WORDS = 8, 20


class TopicPresenter(TensorPresenter):
    task = "topic-model"
    stored = FittedTopics
    each = "topic"

    def values(self, model: Any) -> dict[str, Any]:
        return {
            "features": names_of(model),
            "topics": model.topics_.tolist(),
            "weights": model.weights_.tolist(),
            "concentration": model.concentration_.tolist(),
            "top_words": model.top_words(),
            **strength_values(model),
        }

    def parts(self, model: Any) -> Iterator[Part]:
        count, words = model.topics_.shape
        tops = model.top_words(n_words=_SHOWN_WORDS)
        yield TablePart(
            f"{count} topic{'' if count == 1 else 's'} of {words:,} words",
            ("topic", "weight", "likeliest words"),
            [
                (str(number), f"{weight:.3f}", ", ".join(short_name(word) for word in top))
                for number, (weight, top) in enumerate(
                    zip(model.weights_, tops, strict=True), start=1
                )
            ],
            right=("weight",),
        )
        alpha0 = float(model.concentration_.sum())
        if alpha0 > 0:
            found = " (found from the releases)" if model.plan_.auto_alpha0 else ""
            yield f"topics of a document: a Dirichlet law of alpha0 = {alpha0:.3g}{found}"
        yield from strength_parts(model, things="topics")
        largest = np.argsort(-model.topics_, axis=1, kind="stable")[:, :_SHOWN_FEATURES]
        yield from interval_parts(intervals_of(model), "word", largest.tolist())

    def write(self, model: Any, folder: Path) -> list[tuple[str, str]]:
        headings = self.new_names(model)
        write_by_feature(folder / "topics.csv", ["word", *headings], names_of(model), model.topics_)
        write_csv(
            folder / "weights.csv",
            ["topic", "weight"],
            ([name, float(w)] for name, w in zip(headings, model.weights_, strict=True)),
        )
        lines = (
            f"topic {number} ({100 * weight:.1f} %): {printable(' '.join(words), most=None)}\n"
            for number, (weight, words) in enumerate(
                zip(model.weights_, model.top_words(n_words=_WRITTEN_WORDS), strict=True), start=1
            )
        )
        (folder / "top_words.txt").write_text("".join(lines), encoding="utf-8")
        return [
            ("topics.csv", "probabilities by word"),
            ("weights.csv", "weight of each topic"),
            ("top_words.txt", f"the {_WRITTEN_WORDS} likeliest words of each topic"),
        ]

    def drawings(self, model: Any) -> Iterator[Drawing]:
        yield Drawing(plots.plot_topic_strengths, model, "strengths", _STRENGTHS)
        yield Drawing(plots.plot_topics, model, "topics", "the likeliest words of each topic")

    def compare(self, one: Any, other: Any) -> Comparison:
        common = np.array([np.minimum(topic, other.topics_).sum(axis=1) for topic in one.topics_])
        return Comparison(
            "Probability that two topics have in common, from 0 to 1; topics are matched as well "
            "as can be.",
            ("first", "second", "in common", "weights"),
            _pairs(one, other, common, matched(common)),
        )
