"""What is merged up a tree: a monoid, such as sums with their noise modulo 2**64."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.federation.protocol.messages import Message
from eigenveil.models.rounds import SumQuery

Totals = tuple[NDArray[np.uint64], ...]
Value = TypeVar("Value")


class Content(ABC, Generic[Value]):
    """A kind of state, as messages carry it and nodes merge it."""

    kind: str
    request_digest: str  # SHA-256, in hex, of everything that two states must share to be merged
    message_bytes: int  # Bytes of numbers in a message, at the most

    @abstractmethod
    def arrays(self, value: Value) -> Mapping[str, NDArray[Any]]:
        """A state as the arrays of a message."""

    @abstractmethod
    def read(self, message: Message) -> Value:
        """The state that a message carries."""

    @abstractmethod
    def merged(self, first: Value | None, second: Value) -> Value:
        """Both states as one; ``first`` may be overwritten, ``second`` is not."""


class Sums(Content[Totals]):
    """The noisy sums of a round."""

    kind = "sums"

    def __init__(self, queries: Sequence[SumQuery]) -> None:
        self.sizes = tuple(query.accumulator.size for query in queries)
        self.request_digest = digest_of([_description(query) for query in queries])
        self.message_bytes = 8 * sum(self.sizes)

    def arrays(self, value: Totals) -> Mapping[str, NDArray[Any]]:
        """One array a sum."""
        return {f"sum {index}": total for index, total in enumerate(value)}

    def read(self, message: Message) -> Totals:
        """The sums, as views of the message."""
        return tuple(
            message.array(f"sum {index}", dtype="u8", shape=(size,))
            for index, size in enumerate(self.sizes)
        )

    def merged(self, first: Totals | None, second: Totals) -> Totals:
        """Sum by sum, modulo 2**64."""
        if first is None:
            return tuple(total.astype(np.uint64) for total in second)
        for total, more in zip(first, second, strict=True):
            total += more
        return first


def _description(query: SumQuery) -> list[Any]:
    """Everything that decides what a sum is, and what noise it has."""
    sums = query.accumulator
    return [
        type(sums).__name__,
        sums.statistic,
        sums.layout,
        list(sums.shape),
        sums.grid,
        [_plain(part) for part in sums.merge_key()],
        query.record.model_dump_json(),
    ]


def _plain(part: Any) -> str:
    if isinstance(part, np.ndarray):
        little = np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<"))
        return f"{little.shape} {hashlib.sha256(little.tobytes()).hexdigest()}"
    return repr(float(part)) if isinstance(part, float) else repr(part)


def digest_of(parts: Sequence[Any]) -> str:
    """SHA-256, in hex, of what states must share."""
    return hashlib.sha256(repr(list(parts)).encode()).hexdigest()
