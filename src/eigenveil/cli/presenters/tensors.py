"""The presenters of mixtures and topic models."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from eigenveil import plots
from eigenveil.cli.presenters.base import (
    Drawing,
    Presenter,
    columns_matched,
    name_of,
    names_of,
)
from eigenveil.cli.presenters.screen import Screen, bold
from eigenveil.errors import printable, short_name
from eigenveil.models.mixture.estimator import FittedMixture
from eigenveil.models.topics.estimator import FittedTopics


def strength_values(model: Any) -> dict[str, Any]:
    """Strengths against the noise, as plain values."""
    return {
        "strengths": model.strengths_.tolist(),
        "noise_floor": model.noise_floor_,
        "usable": model.usable_.tolist(),
        "converged": model.converged_,
    }


_MOST_STRENGTHS = 8


def print_strengths(model: Any, out: Screen, *, things: str) -> None:
    """How far the components stand above the noise, and a warning where they do not."""
    count, above = model.n_components_, int(model.usable_.sum())
    shown = [f"{value:.4g}" for value in model.strengths_[: max(count, 1)]]
    if len(shown) > _MOST_STRENGTHS:
        shown = [*shown[: _MOST_STRENGTHS - 1], "...", shown[-1]]
    out.print(
        f"strengths: {', '.join(shown)}; noise alone shows up to {model.noise_floor_:.4g}: "
        f"{above} of {count} {things} stand above it."
    )
    if above < count:
        out.print(
            bold("  not usable:"),
            f"{count - above} of them show noise, and mix with the others.",
        )
    wanted = None if model.plan_.auto_components else model.plan_.n_components
    if wanted is not None and count < wanted:
        out.print(f"  only {count} of the {wanted} {things} requested stand above the noise.")
    if not model.converged_:
        out.print("  note: a power iteration did not converge; those with little weight are vague.")


def write_csv(path: Path, heading: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """A table of text and numbers, these in full."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(heading)
        for line in lines:
            writer.writerow([each if isinstance(each, str) else repr(each) for each in line])


# -- Mixtures of Gaussians as the commands meet them.


_SHOWN_FEATURES = 3


class MixturePresenter(Presenter):
    """Means, weights, noise variance."""

    task = "gaussian-mixture"
    stored = FittedMixture
    label, said = "likeliest", "probabilities"

    def values(self, model: Any) -> dict[str, Any]:
        """Means and what belongs to them."""
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

    def show(self, model: Any, out: Screen) -> None:
        """A line a component."""
        count, features = model.means_.shape
        what = f"{count} component{'' if count == 1 else 's'} of {features} features"
        table = Table(title=f"{what} ({model.plan_.covariance_type})")
        table.add_column("component")
        table.add_column("weight", justify="right")
        table.add_column("rows (about)", justify="right")
        table.add_column("deviation", justify="right")
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
                f"{np.sqrt(model.variances_[index]):.4g}",
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
        """Strengths against the noise, and the components; rows are never drawn."""
        yield Drawing(
            plots.plot_mixture_strengths(model),
            ("strengths.png", "strengths.svg"),
            "strengths against the noise",
        )
        yield Drawing(
            plots.plot_mixture(model),
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


# -- Topic models as the commands meet them.


_SHOWN_WORDS, _WRITTEN_WORDS = 8, 20


class TopicPresenter(Presenter):
    """Topics and weights."""

    task = "topic-model"
    stored = FittedTopics
    label, said = "likeliest", "probabilities"

    def values(self, model: Any) -> dict[str, Any]:
        """Topics and what belongs to them."""
        return {
            "features": names_of(model),
            "topics": model.topics_.tolist(),
            "weights": model.weights_.tolist(),
            "concentration": model.concentration_.tolist(),
            "top_words": model.top_words(),
            **strength_values(model),
        }

    def show(self, model: Any, out: Screen) -> None:
        """A line a topic."""
        count, words = model.topics_.shape
        table = Table(title=f"{count} topic{'' if count == 1 else 's'} of {words:,} words")
        table.add_column("topic")
        table.add_column("weight", justify="right")
        table.add_column("likeliest words")
        for index, top in enumerate(model.top_words(n_words=_SHOWN_WORDS)):
            table.add_row(
                str(index + 1),
                f"{model.weights_[index]:.3f}",
                ", ".join(short_name(word) for word in top),
            )
        out.print(table)
        alpha0 = float(model.concentration_.sum())
        if alpha0 > 0:
            found = " (found from the releases)" if model.alpha0 == "auto" else ""
            out.print(f"topics of a document: a Dirichlet law of alpha0 = {alpha0:.3g}{found}")
        print_strengths(model, out, things="topics")

    def write(self, model: Any, folder: Path) -> list[tuple[str, str]]:
        """Probabilities, a line a word; weights, a line a topic; and the likeliest words."""
        names = names_of(model)
        headings = self.new_names(model)
        write_csv(
            folder / "topics.csv",
            ["word", *headings],
            (
                [name_of(names, index), *(float(value) for value in model.topics_[:, index])]
                for index in range(model.topics_.shape[1])
            ),
        )
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
        """Strengths against the noise, and the likeliest words."""
        yield Drawing(
            plots.plot_topic_strengths(model),
            ("strengths.png", "strengths.svg"),
            "strengths against the noise",
        )
        yield Drawing(
            plots.plot_topics(model),
            ("topics.png", "topics.svg"),
            "the likeliest words of each topic",
        )

    def new_names(self, model: Any) -> list[str]:
        """topic1, topic2, ..."""
        return [f"topic{i + 1}" for i in range(model.topics_.shape[0])]

    def new_values(self, model: Any, rows: Any) -> NDArray[np.floating[Any]]:
        """Posterior probabilities of the topics."""
        with columns_matched():
            return np.asarray(model.transform(rows))
