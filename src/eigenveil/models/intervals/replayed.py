"""The rounds of a fit again, from what it released: what each release was asked for with.

Everything between releases is computed from them, so that a saved result has all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from eigenveil.errors import EigenveilError
from eigenveil.models.driver import drive, rounds_of
from eigenveil.models.intervals.recorded import as_drawn, sharing_of
from eigenveil.models.result import Result
from eigenveil.models.rounds import Answers, Round, SumQuery
from eigenveil.moments.release import Release
from eigenveil.noise.entries import from_coordinates
from eigenveil.tables.scales import public_center

ANOTHER = "what was released does not lead to this result again"
TOO_LARGE = "of a matrix beyond 32 MiB the spectrum alone is kept"


@dataclass(frozen=True)
class ReplayedRounds:
    """What a fit asked for, by name, and what came back, with the noise that was drawn."""

    queries: Mapping[str, SumQuery]
    answers: Answers

    def __call__(self, asked: Round) -> Answers:
        """The same once more."""
        return {query.name: self.answers[query.name] for query in asked}


def replayed(result: Result) -> ReplayedRounds | str:
    """All rounds of a result; or why they are not known."""
    released = result.factors.released
    records = {record.name: record for record in result.certificate.releases}
    queries: dict[str, SumQuery] = {}
    answers: dict[str, Release] = {}

    def answer(asked: Round) -> Answers:
        found = {}
        for query in asked:
            sums, values = query.accumulator, released[query.name]
            layout = sums.layout if sums.layout in ("symmetric", "tensor") else "matrix"
            whole = from_coordinates(layout, sums.shape, values)
            found[query.name] = Release(as_drawn(records[query.name], result), whole)
        queries.update((query.name, query) for query in asked)
        answers.update(found)
        return found

    if any(record.noise.size != released[name].size for name, record in records.items()):
        return TOO_LARGE
    context = {"public_center": center_of(result), "sharing": sharing_of(result)}
    try:
        again = drive(rounds_of(result.plan, **context), answer)
    except (EigenveilError, KeyError, ValueError, AssertionError):
        return ANOTHER
    return ReplayedRounds(queries, answers) if _alike(again, result.factors) else ANOTHER


def center_of(result: Result) -> Any:
    return public_center(result.spec.parameters.get("center", False), result.features)


def _alike(one: Any, other: Any) -> bool:
    """Whether two results have the same arrays, but for rounding."""
    for each in fields(one):
        mine, stored = getattr(one, each.name), getattr(other, each.name)
        if isinstance(mine, np.ndarray) and (
            mine.shape != stored.shape or not np.allclose(mine, stored, rtol=1e-6, atol=1e-9)
        ):
            return False
    return True
