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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from cryptography.exceptions import InvalidTag
from numpy.typing import NDArray

from eigenveil.federation.protocol.messages import HELPER, MASK, Message
from eigenveil.federation.secagg.consistency import graph, neighbours
from eigenveil.federation.secagg.keys import TAG_BYTES, RoundFacts, bad_seal, letter_bytes, unlock
from eigenveil.noise.entries import tensor_copies
from eigenveil.noise.lattice import lattice_noise
from eigenveil.noise.source import KeyedSource, add_streams
from eigenveil.privacy.mask_views import MASK_RATIO, MASK_VIEWS, MaskKind, MaskView
from eigenveil.privacy.releases import ReleaseRecord
from eigenveil.privacy.statistics import Layout, tensor_rows

if TYPE_CHECKING:
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
    return sum(part.size for part in parts)


def split(values: NDArray[Any], parts: Sequence[Part]) -> list[NDArray[Any]]:
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
        return ()

    def pairing(self, members: Sequence[str], degree: int) -> dict[str, tuple[str, ...]]:
        return {name: self.partners(name, members, degree) for name in members}

    @abstractmethod
    def of_site(
        self, client: SecaggClient, facts: RoundFacts, parts: Sequence[Part], message: Message
    ) -> Integers:
        """The mask of a site's sums in a round, as it received it."""


class Unmasked(Mask):
    """No masks: there is nobody to hide among."""

    name = "none"

    def of_site(
        self, client: SecaggClient, facts: RoundFacts, parts: Sequence[Part], message: Message
    ) -> Integers:
        return np.zeros(total_size(parts), dtype=np.uint64)


class PairMask(Mask):
    """Masks that pairs of neighbours expand from keys they share."""

    between_sites = True

    def partners(self, name: str, members: Sequence[str], degree: int) -> tuple[str, ...]:
        return tuple(sorted(neighbours(name, members, degree)))

    def pairing(self, members: Sequence[str], degree: int) -> dict[str, tuple[str, ...]]:
        return {name: tuple(sorted(near)) for name, near in graph(members, degree).items()}

    def of_site(
        self, client: SecaggClient, facts: RoundFacts, parts: Sequence[Part], message: Message
    ) -> Integers:
        return self.expanded(client.pair_keys(facts), parts)

    def expanded(self, pairs: Pairs, parts: Sequence[Part]) -> Integers:
        total = np.zeros(total_size(parts), dtype=np.uint64)
        self.add(pairs, parts, total)
        return total

    @abstractmethod
    def add(self, pairs: Pairs, parts: Sequence[Part], total: Integers) -> None:
        """Add to a total what pairs expand their keys to, for all parts of a round."""


class Modular(PairMask):
    """Where sites may be lost, each adds one of its own as well (Bonawitz et al. 2017)."""

    name = "modular"
    mends = True

    def draws(self, sites: int, degree: int) -> int:
        """Those of the noise alone: nothing of the masks is left."""
        return sites

    def of_site(
        self, client: SecaggClient, facts: RoundFacts, parts: Sequence[Part], message: Message
    ) -> Integers:
        """Those of its pairs, and its own, which is taken off once its message has arrived."""
        total = super().of_site(client, facts, parts, message)
        if client.terms.mends:
            self.add([(client.own_key(facts.round_number), True)], parts, total)
        return total

    def add(self, pairs: Pairs, parts: Sequence[Part], total: Integers) -> None:
        """Uniform integers for all parts, one after the other."""
        assert total.size == total_size(parts)
        add_streams(total, pairs)


# A Gaussian mask is drawn on a lattice with at most this many steps a deviation, some thousand
# times finer than the noise that it hides.
_MASK_STEPS = 50


class Pairwise(PairMask):
    """Gaussian integers of each part's deviation."""

    name = "pairwise"
    gaussian = True

    def add(self, pairs: Pairs, parts: Sequence[Part], total: Integers) -> None:
        for key, adds in pairs:
            drawn = gaussian(KeyedSource(key), parts)
            if adds:
                total += drawn
            else:
                total -= drawn


def gaussian(source: KeyedSource, parts: Sequence[Part]) -> Integers:
    """Gaussian integers of each part's deviation, as an array."""
    drawn = [_gaussian_part(source, part) for part in parts]
    return np.concatenate(drawn).view(np.uint64)


def _gaussian_part(source: KeyedSource, part: Part) -> NDArray[np.int64]:
    match part.layout:
        case "symmetric":
            drawn = _lattice(source, part.size, part.mask_deviation / math.sqrt(2.0))
            row = np.arange((math.isqrt(8 * part.size + 1) - 1) // 2)
            drawn[row * (row + 3) // 2] = _lattice(source, row.size, part.mask_deviation)
            return drawn
        case "tensor":
            copies = tensor_copies(tensor_rows(part.size))
            drawn = np.empty(part.size, dtype=np.int64)
            for count in (1, 3, 6):
                here = np.flatnonzero(copies == count)
                own = part.mask_deviation / math.sqrt(count)
                drawn[here] = _lattice(source, here.size, own)
            return drawn
        case _:
            return _lattice(source, part.size, part.mask_deviation)


def _lattice(source: KeyedSource, size: int, deviation: float) -> NDArray[np.int64]:
    coarser = max(0, math.ceil(math.log2(deviation)) - _MASK_STEPS)
    scale = math.ldexp(deviation, -coarser)
    return lattice_noise(size, scale=scale, power=2, source=source) << coarser


class FromHelper(Mask):
    """Each site's comes sealed for it with a round's request."""

    name = "helper"
    gaussian = True
    needs_helper = True
    note = "There is no protection against an aggregator that sees the helper's masks."

    def partners(self, name: str, members: Sequence[str], degree: int) -> tuple[str, ...]:
        return (HELPER,)

    def of_site(
        self, client: SecaggClient, facts: RoundFacts, parts: Sequence[Part], message: Message
    ) -> Integers:
        sealed = message.array(MASK, dtype="b1", shape=(helpers_bytes(parts),)).tobytes()
        letter, locked = sealed[: letter_bytes()], sealed[letter_bytes() :]
        half, _ = client.keys.opened(letter, names=(HELPER, client.name))
        pair = client.keys.pair(HELPER, half, own=client.name)
        try:
            use = mask_use(facts.round_number, facts.request_digest)
            text = unlock(pair, locked, client.context, *use)
        except InvalidTag:
            raise bad_seal(HELPER) from None
        return np.frombuffer(text, dtype="<u8").astype(np.uint64)


def mask_use(round_number: int, request_digest: str) -> tuple[str | int, ...]:
    """What a mask of the helper is locked for."""
    return ("helper's mask", round_number, request_digest)


def helpers_bytes(parts: Sequence[Part]) -> int:
    """Bytes of a helper's mask: its letter to the site, and the mask under their secret."""
    return letter_bytes() + 8 * total_size(parts) + TAG_BYTES


class ZeroSum:
    """The trusted helper's masks: ``x_s - mean(x)``, x_s Gaussian, exactly zero in sum.

    On integers ``e_s = S w_s - sum(w)``: each mask can be made again at any time, and nothing but
    the sum of the w is held, whatever the number of sites.
    """

    def __init__(self, keys: Sequence[bytes], parts: Sequence[Part]) -> None:
        self._keys = keys
        count = len(keys)
        self._parts = [replace(p, mask_deviation=p.mask_deviation / count) for p in parts]
        self._total = np.zeros(total_size(parts), dtype=np.uint64)
        for key in keys:
            self._total += gaussian(KeyedSource(key), self._parts)

    def mask(self, place: int) -> Integers:
        drawn = gaussian(KeyedSource(self._keys[place]), self._parts)
        return np.asarray(drawn * np.uint64(len(self._keys)) - self._total)


MODULAR = Modular()
UNMASKED = Unmasked()
# In the order in which options list them.
MASKS: Mapping[str, Mask] = MappingProxyType(
    {each.name: each for each in (MODULAR, Pairwise(), FromHelper())}
)
