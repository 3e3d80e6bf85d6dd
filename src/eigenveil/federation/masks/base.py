"""Masks that vanish from the sum over sites: one interface, three makers (privacy.md 5).

A mask is an array of integers modulo 2^64, added to a message's integers. Pairs of neighbours
expand a key they share and add it on one side, subtract it on the other. Modular masks are
uniform: the aggregator learns the sum and nothing else. Gaussian masks leave a little that
:mod:`eigenveil.privacy.mask_views` accounts for exactly. The trusted helper's zero-sum Gaussian
masks are those of CAPE (paper 001, algorithm 3).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.federation.secagg.consistency import graph, neighbours
from eigenveil.privacy.mask_views import MASK_RATIO, MASK_VIEWS, MaskKind, MaskView
from eigenveil.privacy.releases import ReleaseRecord
from eigenveil.privacy.statistics import Layout

if TYPE_CHECKING:
    from eigenveil.federation.protocol.messages import Message
    from eigenveil.federation.secagg.client import SecaggClient

Integers = NDArray[np.uint64]
# Pairs' shared keys, and on which side of each the site stands: it adds, or subtracts.
Pairs = Sequence[tuple[bytes, bool]]


@dataclass(frozen=True)
class Part:
    """One of a round's sums: how many integers, and of what kind its Gaussian masks are."""

    size: int
    mask_deviation: float = 0.0  # In grid steps; 0 where masks are not Gaussian
    # Where these are the independent entries of a symmetric matrix or tensor, its masks are
    # isometric, like its noise
    layout: Layout = "vector"


def total_size(parts: Sequence[Part]) -> int:
    """Integers of a round."""
    return sum(part.size for part in parts)


def split(values: NDArray[Any], parts: Sequence[Part]) -> list[NDArray[Any]]:
    """The parts of a round's integers."""
    return np.split(values, np.cumsum([part.size for part in parts])[:-1])


class Mask(ABC):
    """Masks of one kind: who makes them, and of what."""

    name: ClassVar[MaskKind]
    gaussian: ClassVar[bool] = False
    between_sites: ClassVar[bool] = False  # Pairs of sites make them, of secrets they agree on
    needs_helper: ClassVar[bool] = False  # A party of its own makes them, who is trusted
    mends: ClassVar[bool] = False  # Whether masks of sites that are lost can be taken off
    note: ClassVar[str] = ""  # What whoever agrees to a study should know of them

    @property
    def view(self) -> MaskView:
        """What they leave to be seen."""
        return MASK_VIEWS[self.name]

    def draws(self, sites: int, degree: int) -> int:
        """At most so many draws of lattice noise make up a released value."""
        return sites * (1 + degree)

    def part(self, layout: Layout, record: ReleaseRecord) -> Part:
        """What a sum's masks are made for."""
        deviation = 0.0
        if self.gaussian:
            assert record.noise.grid is not None
            share = record.noise.scale / math.sqrt(record.noise.noise_parts)
            deviation = MASK_RATIO * math.ldexp(share, -record.noise.grid)
        return Part(record.noise.size, deviation, layout=layout)

    def partners(self, name: str, members: Sequence[str], degree: int) -> tuple[str, ...]:
        """With whom a site agrees on a secret, by name."""
        del name, members, degree
        return ()

    def pairing(self, members: Sequence[str], degree: int) -> dict[str, tuple[str, ...]]:
        """The partners of all."""
        return {name: self.partners(name, members, degree) for name in members}

    @abstractmethod
    def of_site(
        self,
        client: SecaggClient,
        round_number: int,
        request_digest: str,
        parts: Sequence[Part],
        message: Message,
    ) -> Integers:
        """The mask of a site's sums in a round; ``request_digest`` is of its request."""


class Unmasked(Mask):
    """No masks: there is nobody to hide among."""

    name = "none"

    def of_site(
        self,
        client: SecaggClient,
        round_number: int,
        request_digest: str,
        parts: Sequence[Part],
        message: Message,
    ) -> Integers:
        """Zeros."""
        del client, round_number, request_digest, message
        return np.zeros(total_size(parts), dtype=np.uint64)


class PairMask(Mask):
    """Masks that pairs of neighbours expand from keys they share."""

    between_sites = True

    def partners(self, name: str, members: Sequence[str], degree: int) -> tuple[str, ...]:
        """Its neighbours among members."""
        return tuple(sorted(neighbours(name, members, degree)))

    def pairing(self, members: Sequence[str], degree: int) -> dict[str, tuple[str, ...]]:
        """The partners of all, of one graph."""
        return {name: tuple(sorted(near)) for name, near in graph(members, degree).items()}

    def of_site(
        self,
        client: SecaggClient,
        round_number: int,
        request_digest: str,
        parts: Sequence[Part],
        message: Message,
    ) -> Integers:
        """The sum of those of its pairs."""
        del message
        return self.expanded(client.pair_keys(round_number, request_digest), parts)

    def expanded(self, pairs: Pairs, parts: Sequence[Part]) -> Integers:
        """Sum of the streams of shared keys."""
        total = np.zeros(total_size(parts), dtype=np.uint64)
        self.add(pairs, parts, total)
        return total

    @abstractmethod
    def add(self, pairs: Pairs, parts: Sequence[Part], total: Integers) -> None:
        """Add to a total what pairs expand their keys to, for all parts of a round."""
