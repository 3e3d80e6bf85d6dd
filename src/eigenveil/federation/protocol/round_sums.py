"""A round's sums as the aggregator adds them up, message by message."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.federation.masks.base import Integers, split
from eigenveil.federation.protocol.messages import Message
from eigenveil.federation.protocol.terms import Terms
from eigenveil.federation.protocols.base import SentSum
from eigenveil.models.rounds import Query
from eigenveil.moments.release import Release, capacity
from eigenveil.privacy.releases import ReleaseRecord


def marked_where_wrapped(factors: Any, records: Sequence[ReleaseRecord]) -> Any:
    """The factors, of nothing usable where the released number of rows shows that a sum wrapped.

    A topic model releases no number of documents: nothing is known there.
    """
    tightest = min(records, key=capacity)
    rows = getattr(factors, "rows", 0.0)
    if rows <= capacity(tightest):
        return factors
    advice = (
        f"The sites have about {rows:,.0f} rows, and the sum {tightest.name!r} of several "
        f"sites surely holds {capacity(tightest):,.0f}: it may have wrapped. Give fewer rows to a "
        "study, for instance a sample of each site's."
    )
    return replace(factors, usable=np.zeros_like(factors.usable), advice=advice)


class RoundTotals:
    """Sums over the messages that have arrived."""

    def __init__(self, terms: Terms, queries: Sequence[Query]) -> None:
        self._plan, self._queries = terms.plan, queries
        steps = [terms.step_of(query.name) for query in queries]
        self._sent = [terms.protocol.sent_of(step) for step in steps]
        self._hidden = [
            index for index, step in enumerate(steps) if not terms.protocol.is_unmasked(step)
        ]
        self.parts = [
            terms.part(queries[index].accumulator, queries[index].record) for index in self._hidden
        ]
        self._sums = [sent.total(query) for sent, query in self._each()]
        shapes = [sent.shape(query, terms.plan) for sent, query in self._each()]
        self._shapes = shapes
        self.message_bytes = sum(8 * math.prod(shape) for shape in shapes)

    def _each(self) -> Iterator[tuple[SentSum, Query]]:
        return zip(self._sent, self._queries, strict=True)

    def add(self, message: Message) -> None:
        """Add one site's answer; wholly, or not at all where a part of it is malformed."""
        found: list[NDArray[Any]] = []
        for index, (sent, shape) in enumerate(zip(self._sent, self._shapes, strict=True)):
            array = message.array(f"{sent.name} {index}", dtype=sent.dtype, shape=shape)
            sent.check(array, message.sender)
            found.append(array)
        for sent, total, array in zip(self._sent, self._sums, found, strict=True):
            sent.add(total, array)

    def subtract(self, leftover: Integers) -> None:
        """Take off masks that did not cancel."""
        for index, part in zip(self._hidden, split(leftover, self.parts), strict=True):
            self._sums[index] -= part

    def releases(self, arrived: int) -> dict[str, Release]:
        """What the sums of ``arrived`` sites' messages release."""
        return {
            query.name: sent.release(query, total, self._plan, arrived=arrived)
            for (sent, query), total in zip(self._each(), self._sums, strict=True)
        }
