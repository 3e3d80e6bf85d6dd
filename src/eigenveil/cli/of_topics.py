"""Topic models as the commands meet them."""

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
from eigenveil.errors import printable, short_name
from eigenveil.estimators.fitted_topics import FittedTopics

_SHOWN_WORDS, _WRITTEN_WORDS = 8, 20


class TopicFamily(Family):
    """Topics and weights."""

    task = "topic-model"
    stored = FittedTopics
    label = "likeliest"

    def values(self, model: Any) -> dict[str, Any]:
        """Topics and what belongs to them."""
        return {
            "features": names_of(model),
            "topics": model.topics_.tolist(),
            "weights": model.weights_.tolist(),
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
            plots.topic_strengths(model),
            ("strengths.png", "strengths.svg"),
            "strengths against the noise",
        )
        yield Drawing(
            plots.topics(model), ("topics.png", "topics.svg"), "the likeliest words of each topic"
        )

    def new_names(self, model: Any) -> list[str]:
        """topic1, topic2, ..."""
        return [f"topic{i + 1}" for i in range(model.topics_.shape[0])]

    def new_values(self, model: Any, rows: Any) -> NDArray[np.floating[Any]]:
        """Posterior probabilities of the topics."""
        with columns_matched():
            return np.asarray(model.transform(rows))
