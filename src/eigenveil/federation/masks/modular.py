"""Uniform masks: the aggregator learns the sum and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eigenveil.federation.masks.base import Integers, PairMask, Pairs, Part, total_size
from eigenveil.noise.source import add_streams

if TYPE_CHECKING:
    from eigenveil.federation.protocol.messages import Message
    from eigenveil.federation.secagg.client import SecaggClient


class Modular(PairMask):
    """Where sites may be lost, each adds one of its own as well (Bonawitz et al. 2017)."""

    name = "modular"
    mends = True

    def draws(self, sites: int, degree: int) -> int:
        """Those of the noise alone: nothing of the masks is left."""
        del degree
        return sites

    def of_site(
        self,
        client: SecaggClient,
        round_number: int,
        request_digest: str,
        parts: Sequence[Part],
        message: Message,
    ) -> Integers:
        """Those of its pairs, and its own, which is taken off once its message has arrived."""
        total = super().of_site(client, round_number, request_digest, parts, message)
        if client.terms.mends:
            self.add([(client.own_key(round_number), True)], parts, total)
        return total

    def add(self, pairs: Pairs, parts: Sequence[Part], total: Integers) -> None:
        """Uniform integers for all parts, one after the other."""
        assert total.size == total_size(parts)
        add_streams(total, pairs)
