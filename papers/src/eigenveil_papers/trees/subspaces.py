"""Subspaces that are merged up a tree by Merge_r (paper 002, algorithm 2).

Exactly while the rows together have no more than the kept directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol.messages import Message
from eigenveil.federation.tree.contents import Content, digest_of
from eigenveil.linalg.subspace import Subspace, merge

# How far a basis may be from orthonormal: far more than rounding, far less than would matter.
_ORTHONORMAL = 1e-6
_STRONGEST = 1e150


class Subspaces(Content[Subspace]):
    """Subspaces with strengths: computed from rows without noise, so nothing is private here."""

    kind = "subspace"

    def __init__(self, *, features: int, rank: int) -> None:
        self.features, self.rank = features, rank
        self.request_digest = digest_of(["subspace", features, rank])
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
    return ProtocolError("malformed", sender=sender, what=f"{wanted} of a subspace")
