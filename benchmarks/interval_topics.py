"""What intervals of topics are to hold: the same fit of moments without noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from eigenveil.models.driver import drive, rounds_of, rows_for
from eigenveil.models.intervals.recorded import sharing_of
from eigenveil.models.intervals.replayed import ReplayedRounds, center_of, replayed
from eigenveil.models.rounds import Answers, Round
from eigenveil.moments.engine import accumulate
from eigenveil.moments.release import Release
from eigenveil.noise.entries import from_coordinates
from eigenveil.tables.adapters import rows_of

Array = NDArray[np.float64]


def _documents(rows: int, features: int, words: int) -> Array:
    """Documents of so many words of one of four topics each."""
    rng = np.random.default_rng(rows + features)
    topics = rng.dirichlet(np.full(features, 0.1), 4)
    found = [rng.multinomial(words, topics[own]) for own in rng.integers(4, size=rows)]
    return np.array(found, dtype=np.float64)


TOPICS: dict[str, Callable[[], Array]] = {
    "documents of 12 of 30 words": lambda: _documents(20_000, 30, 12),
    "documents of 30 of 100 words": lambda: _documents(20_000, 100, 30),
}


def without_noise(model: Any, rows: Array, moments: tuple[str, ...], *, left: float = 1.0) -> Any:
    """What a fit finds with the same releases, but moments, by the ends of names, without noise.

    ``left`` is what is taken to be left of their noise.
    """
    result = model._result
    again = replayed(result)
    assert isinstance(again, ReplayedRounds), again

    def answer(asked: Round) -> Answers:
        found = dict(again(asked))
        for query in asked:
            if query.name.endswith(moments):
                sums = query.accumulator
                accumulate(taken, [sums])
                exact = np.asarray(sums.integers(), dtype=np.float64) * 2.0**sums.grid
                if exact.shape != tuple(sums.shape):
                    exact = from_coordinates(sums.layout, sums.shape, exact)
                record = found[query.name].record
                noise = record.noise.model_copy(update={"scale": record.noise.scale * left})
                found[query.name] = Release(record.model_copy(update={"noise": noise}), exact)
        return found

    taken = rows_for(result.plan, rows_of(rows, unit=None, groups=None, estimator=model))
    context = {"public_center": center_of(result), "sharing": sharing_of(result)}
    return drive(rounds_of(result.plan, **context), answer)


def topic_truths(model: Any, rows: Array) -> Iterator[tuple[str, Array]]:
    """Weights and topics of a fit with the same norms, in which both moments have no noise."""
    exact = without_noise(model, rows, (" moment",))
    if exact.topics.shape != model.topics_.shape:
        return
    apart = np.abs(model.topics_[:, None] - exact.topics).sum(axis=2)
    order = linear_sum_assignment(apart)[1]
    yield "weight", exact.weights[order]
    yield "word", exact.topics[order]
