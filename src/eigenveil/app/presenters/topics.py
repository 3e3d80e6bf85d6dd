"""The presenter of topic models."""

from __future__ import annotations

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
    names_of,
)
from eigenveil.app.presenters.tensors import (
    strength_parts,
    strength_values,
    strengths_drawing,
    write_by_feature,
    write_csv,
)
from eigenveil.errors import printable, short_name
from eigenveil.models.topics.estimator import FittedTopics

_SHOWN_WORDS, _LISTED_WORDS, _WRITTEN_WORDS = 8, 10, 20


class TopicPresenter(Presenter):
    task = "topic-model"
    stored = FittedTopics
    label, said = "likeliest", "probabilities"

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
        yield strengths_drawing(plots.plot_topic_strengths, model)
        yield Drawing(
            partial(plots.plot_topics, model),
            ("topics.png", "topics.svg"),
            "the likeliest words of each topic",
        )

    def compare(self, one: Any, other: Any) -> Comparison:
        common = np.array([np.minimum(topic, other.topics_).sum(axis=1) for topic in one.topics_])
        return Comparison(
            "Probability that two topics have in common, from 0 to 1; topics are matched as well "
            "as can be.",
            ("first", "second", "in common", "weights"),
            [
                (
                    str(i + 1),
                    str(j + 1),
                    f"{common[i, j]:.3f}",
                    f"{one.weights_[i]:.3f} and {other.weights_[j]:.3f}",
                )
                for i, j in matched(common)
            ],
        )

    def new_names(self, model: Any) -> list[str]:
        return [f"topic{i + 1}" for i in range(model.topics_.shape[0])]

    def new_values(self, model: Any, rows: Any) -> NDArray[np.floating[Any]]:
        with columns_matched():
            return np.asarray(model.transform(rows))
