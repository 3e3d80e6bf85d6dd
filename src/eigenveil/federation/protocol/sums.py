"""A round's sums: at a site, added up over its rows and made noisy; at the aggregator, of all."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import ProtocolError
from eigenveil.federation.ledger.ledger import Draft, Ledger, Session, SessionKey
from eigenveil.federation.masks import Integers, split
from eigenveil.federation.protocol import payloads, validation
from eigenveil.federation.protocol.messages import Message
from eigenveil.federation.protocol.terms import Terms
from eigenveil.federation.protocols import SentSum
from eigenveil.federation.secagg.client import State
from eigenveil.linalg.eigen import small_matrix_threads
from eigenveil.models.rounds import SumQuery
from eigenveil.models.schedule import Planned
from eigenveil.moments.accumulators import Accumulator, share_rules
from eigenveil.moments.describe import rebuild
from eigenveil.moments.engine import InvalidRows, accumulate
from eigenveil.moments.release import Release, capacity, noisy_integers
from eigenveil.moments.source import RowSource
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.releases import ReleaseRecord

# -- What a site remembers of a session: in its ledger, but for what it saw there last.


@dataclass(frozen=True)
class Now:
    """A message, and what the site knows of its session when it answers."""

    message: Message
    state: State
    session: Session | None = None


@dataclass(frozen=True)
class SeenState:
    """A session's state without its keys and shares, and the digest of all of it."""

    key: SessionKey
    digest: bytes
    state: State

    @classmethod
    def of(cls, key: SessionKey, stored: bytes, state: State) -> SeenState:
        """A stored state as it may stay in memory."""
        public = state.model_copy(
            update={"master": "", "pairs": dict.fromkeys(state.pairs, ""), "held": {}}
        )
        return cls(key, hashlib.sha256(stored).digest(), public)


class SiteMemory:
    """The sessions of one study in a site's ledger."""

    def __init__(self, ledger: Ledger, study: str) -> None:
        self._ledger, self._study = ledger, study
        self.seen: SeenState | None = None  # As this process saw it last; another may have gone on

    def key(self, message: Message) -> SessionKey:
        return SessionKey(self._study, message.session)

    def answer(self, message: Message, request: bytes, draft: Callable[[Now], Draft]) -> bytes:
        """The answer to a message, in one transaction of the ledger."""

        def drafted(session: Session, stored: bytes) -> Draft:
            return draft(Now(message, self.read(message, stored), session))

        key = self.key(message)
        return self._ledger.commit(key, message.step, request=request, draft=drafted)

    def last_seen(self, message: Message) -> SeenState:
        key = self.key(message)
        if self.seen is None or self.seen.key != key:
            self.read(message, self._ledger.state(key))
        assert self.seen is not None
        return self.seen

    def read(self, message: Message, stored: bytes) -> State:
        state = State.model_validate_json(stored)
        self.seen = SeenState.of(self.key(message), stored, state)
        return state

    def kept(self, message: Message, state: State) -> bytes:
        """A new state for the ledger; should it not get there, the next answer finds that out."""
        stored = state.stored()
        self.seen = SeenState.of(self.key(message), stored, state)
        return stored


@dataclass(frozen=True)
class SiteSum:
    """A sum of a round, whether the site releases it by itself, and how it is sent."""

    accumulator: Accumulator
    record: ReleaseRecord
    is_unmasked: bool
    sent: SentSum


def wanted_sums(
    terms: Terms, message: Message, planned: Sequence[Planned], features: int, name: str
) -> list[SiteSum]:
    """Empty sums of a round as they were asked for, where the plan has them; no rows are read.

    They follow from the message: what is wrong with it is looked for once for all sites of a
    process that are asked the same and count alike.
    """
    weight, place = terms.weight(name), terms.place(name)
    key = (terms, tuple(planned), features, weight, place)
    if key not in message.found:
        queries = message.read(payloads.RoundRequest).queries
        message.found[key] = [
            wanted_sum(
                terms,
                message,
                (index, query),
                each,
                features=features,
                weight=weight,
                place=place,
            )
            for index, (query, each) in enumerate(zip(queries, planned, strict=True))
        ]
        share_rules(each.accumulator for each in message.found[key])
    return [replace(each, accumulator=each.accumulator.empty()) for each in message.found[key]]


def wanted_sum(
    terms: Terms,
    message: Message,
    query: tuple[int, payloads.QueryBody],
    planned: Planned,
    *,
    features: int,
    weight: float,
    place: int | None = None,
) -> SiteSum:
    index, asked = query
    if asked.description.features != features:
        raise ProtocolError("bad-query", what=f"a sum over {asked.description.features} features")
    arrays = {
        name: message.array(f"{name} {index}", dtype="f8", shape=shape)
        for name, shape in asked.description.shapes().items()
    }
    validation.check_query(terms.plan, asked.description)
    accumulator = rebuild(asked.description, arrays, place=place)
    shape = accumulator.calibrated_by()
    record = terms.record(asked.name, shape, scale=asked.scale, grid=asked.grid, weight=weight)
    if not math.isfinite(record.sampling_error().log_ratio):
        raise ProtocolError("bad-query", what=f"{asked.name} on a grid that is too coarse")
    validation.check_planned(terms, planned, shape, asked.scale)
    validation.check_public(terms, planned, asked.description, message, index)
    protocol, step = terms.protocol, planned.step
    return SiteSum(accumulator, record, protocol.is_unmasked(step), protocol.sent_of(step))


def add_up(rows: RowSource, sums: Sequence[SiteSum]) -> InvalidRows | None:
    accumulators = [each.accumulator for each in sums]
    with small_matrix_threads(rows.features):
        read = accumulate(rows, accumulators)
    return read.invalid


def noisy_arrays(
    sums: Sequence[SiteSum], terms: Terms, source: RandomSource
) -> dict[str, NDArray[Any]]:
    """The arrays of a round's answer before masking: noise is drawn here, once."""
    arrays: dict[str, NDArray[Any]] = {}
    for index, each in enumerate(sums):
        accumulator, record = each.accumulator, each.record
        try:
            integers = noisy_integers(accumulator, record, source, weight_bits=terms.weight_bits)
        except ValueError:  # outside what the sampler can draw
            raise ProtocolError(
                "bad-query", what=f"{record.name} with noise that cannot be drawn"
            ) from None
        array = each.sent.array(accumulator, record, integers, terms.plan)
        arrays[f"{each.sent.name} {index}"] = array
    return arrays


# -- at the aggregator


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

    def __init__(self, terms: Terms, queries: Sequence[SumQuery]) -> None:
        self._plan, self._queries = terms.plan, queries
        steps = [terms.step_of(query.name) for query in queries]
        self._sent = [terms.protocol.sent_of(step) for step in steps]
        self._hidden = [
            index for index, step in enumerate(steps) if not terms.protocol.is_unmasked(step)
        ]
        self.parts = [
            terms.masks.part(query.accumulator.layout, query.record)
            for query in (queries[index] for index in self._hidden)
        ]
        self._sums = [sent.total(query) for sent, query in self._each()]
        shapes = [sent.shape(query, terms.plan) for sent, query in self._each()]
        self._shapes = shapes
        self.message_bytes = sum(8 * math.prod(shape) for shape in shapes)

    def _each(self) -> Iterator[tuple[SentSum, SumQuery]]:
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
        return {
            query.name: sent.release(query, total, self._plan, arrived=arrived)
            for (sent, query), total in zip(self._each(), self._sums, strict=True)
        }
