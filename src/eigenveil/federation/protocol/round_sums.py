"""A round's sums as the aggregator adds them up, message by message."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol.messages import Message
from eigenveil.federation.protocol.terms import Terms
from eigenveil.federation.secagg import masks
from eigenveil.models.rounds import Query
from eigenveil.moments.release import Release, capacity, release_of
from eigenveil.noise.entries import from_coordinates
from eigenveil.noise.grid import truncated_edge
from eigenveil.privacy.releases import ReleaseRecord

# Sums over rows of norm 1 are below 2**62, and so are the squares of a factor's entries.
_LARGEST_FACTOR = 2.0**31


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
        self._terms, self._queries = terms, queries
        self._open = [terms.is_unmasked(terms.step_of(query.name)) for query in queries]
        self.parts = [
            terms.part(query.accumulator, query.record)
            for query, is_unmasked in zip(queries, self._open, strict=True)
            if not is_unmasked
        ]
        self._sums: list[NDArray[Any]] = [
            np.zeros(self._shape(index), self._dtype(index)) for index in self._places
        ]
        self.message_bytes = sum(8 * total.size for total in self._sums)
        if any(self._is_factor(index) for index in self._places):
            self.message_bytes = sum(8 * math.prod(self._sent(index)) for index in self._places)

    @property
    def _places(self) -> range:
        return range(len(self._queries))

    def _is_factor(self, index: int) -> bool:
        return self._open[index] and self._terms.study.protocol == "dpdispca"

    def _sent(self, index: int) -> tuple[int, ...]:
        """Shape of what one site sends."""
        if self._is_factor(index):
            return (self._terms.plan.features, self._terms.plan.sketch_columns)
        return (self._queries[index].accumulator.size,)

    def _shape(self, index: int) -> tuple[int, ...]:
        if self._is_factor(index):
            return self._queries[index].accumulator.shape
        return self._sent(index)

    def _dtype(self, index: int) -> type[np.generic]:
        return np.float64 if self._is_factor(index) else np.uint64

    def add(self, message: Message) -> None:
        """Add one site's answer; wholly, or not at all where a part of it is malformed."""
        found: list[NDArray[Any]] = []
        for index in self._places:
            name, dtype = ("factor", "f8") if self._is_factor(index) else ("sum", "u8")
            array = message.array(f"{name} {index}", dtype=dtype, shape=self._sent(index))
            if self._is_factor(index) and np.abs(array).max() > _LARGEST_FACTOR:
                raise ProtocolError(f"{message.sender}: its factor is too large.", code="malformed")
            found.append(array)
        for index, array in enumerate(found):
            if self._is_factor(index):
                self._sums[index] += array @ array.T
            else:
                self._sums[index] += array

    def subtract(self, leftover: masks.Integers) -> None:
        """Take off masks that did not cancel."""
        hidden = [index for index in self._places if not self._open[index]]
        for index, part in zip(hidden, masks.split(leftover, self.parts), strict=True):
            self._sums[index] -= part

    def releases(self, arrived: int) -> dict[str, Release]:
        """What the sums of ``arrived`` sites' messages release."""
        return {
            query.name: self._release(index, query, arrived)
            for index, query in enumerate(self._queries)
        }

    def _release(self, index: int, query: Query, arrived: int) -> Release:
        if self._is_factor(index):
            rank = self._terms.plan.sketch_columns
            edge = truncated_edge(query.record.noise, self._terms.plan.features, rank, arrived)
            return Release(query.record, self._sums[index], edge)
        whole = from_coordinates(
            query.accumulator.layout, query.accumulator.shape, self._sums[index].view(np.int64)
        )
        return release_of(self._as_drawn(query.record, arrived), whole)

    def _as_drawn(self, record: ReleaseRecord, arrived: int) -> ReleaseRecord:
        """The record with the noise that the sum really carries: everybody's share."""
        noise = record.noise
        parts = record.mechanism.parts_drawn(arrived, noise.noise_parts, self._terms.plan.features)
        drawn = noise.model_copy(update={"scale": noise.scale * math.sqrt(parts)})
        return record.model_copy(update={"noise": drawn})
