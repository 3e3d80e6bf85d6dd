"""What is merged up a tree: sums with their noise, or subspaces. Both are monoids.

Sums are merged by addition modulo 2**64, exactly, in any order. Subspaces are merged by Merge_r
(paper 002, algorithm 2), exactly while the rows together have no more than the kept directions.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol.messages import Message
from eigenveil.linalg.subspace import Subspace, merge
from eigenveil.models.rounds import Query

Kind = Literal["sums", "subspace"]
Totals = tuple[NDArray[np.uint64], ...]
Value = TypeVar("Value")

# How far a basis may be from orthonormal: far more than rounding, far less than would matter.
_ORTHONORMAL = 1e-6
_STRONGEST = 1e150


class Content(ABC, Generic[Value]):
    """A kind of state, as messages carry it and nodes merge it."""

    kind: Kind
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

    kind: Kind = "sums"

    def __init__(self, queries: Sequence[Query]) -> None:
        self.sizes = tuple(query.accumulator.size for query in queries)
        self.request_digest = _digest([_description(query) for query in queries])
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


class Subspaces(Content[Subspace]):
    """Subspaces with strengths: computed from rows without noise, so nothing is private here."""

    kind: Kind = "subspace"

    def __init__(self, *, features: int, rank: int) -> None:
        self.features, self.rank = features, rank
        self.request_digest = _digest(["subspace", features, rank])
        self.message_bytes = 8 * (features + 1) * rank

    def arrays(self, value: Subspace) -> Mapping[str, NDArray[Any]]:
        """Basis and strengths."""
        return {"basis": value.basis, "strengths": value.strengths}

    def read(self, message: Message) -> Subspace:
        """The subspace, checked to be one."""
        strengths = message.arrays.get("strengths")
        if strengths is None or strengths.ndim != 1 or strengths.size > self.rank:
            raise _no_subspace(message.sender, f"at most {self.rank} strengths")
        rank = strengths.size
        strengths = message.array("strengths", dtype="f8", shape=(rank,))
        basis = message.array("basis", dtype="f8", shape=(self.features, rank))
        if strengths.max(initial=0.0) > _STRONGEST or strengths.min(initial=0.0) < 0:
            raise _no_subspace(message.sender, "strengths from 0 to 1e150")
        if np.any(np.diff(strengths) > 0):
            raise _no_subspace(message.sender, "strengths in descending order")
        with np.errstate(over="ignore", invalid="ignore"):
            off = np.abs(basis.T @ basis - np.eye(rank)).max(initial=0.0)
        if not off <= _ORTHONORMAL:
            raise _no_subspace(message.sender, "an orthonormal basis")
        return Subspace(basis, strengths)

    def merged(self, first: Subspace | None, second: Subspace) -> Subspace:
        """Merge_r of both."""
        if first is None or first.rank == 0:
            return Subspace(second.basis.copy(), second.strengths.copy())
        if second.rank == 0:
            return first
        return merge(first, second, rank=self.rank)


def _no_subspace(sender: str, wanted: str) -> ProtocolError:
    return ProtocolError(
        f"{sender}: a subspace has {wanted}, which that of its message has not.",
        hint="The message is refused; check that all parties run the same version.",
        code="malformed",
    )


def _description(query: Query) -> list[Any]:
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


def _digest(parts: Sequence[Any]) -> str:
    return hashlib.sha256(repr(list(parts)).encode()).hexdigest()
