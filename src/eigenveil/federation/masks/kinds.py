"""The masks, one class each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from cryptography.exceptions import InvalidTag
from numpy.typing import NDArray

from eigenveil.federation.masks.base import Integers, Mask, PairMask, Pairs, Part, total_size
from eigenveil.federation.protocol.messages import HELPER, MASK, Message
from eigenveil.federation.secagg.keys import TAG_BYTES, bad_seal, letter_bytes, unlock
from eigenveil.noise.entries import tensor_copies
from eigenveil.noise.lattice import lattice_noise
from eigenveil.noise.source import KeyedSource, add_streams
from eigenveil.privacy.statistics import tensor_rows

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


# A Gaussian mask is drawn on a lattice with at most this many steps a deviation, some thousand
# times finer than the noise that it hides.
_MASK_STEPS = 50


class Pairwise(PairMask):
    """Gaussian integers of each part's deviation."""

    name = "pairwise"
    gaussian = True

    def add(self, pairs: Pairs, parts: Sequence[Part], total: Integers) -> None:
        """One pair after the other."""
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
        """The helper."""
        del name, members, degree
        return (HELPER,)

    def of_site(
        self,
        client: SecaggClient,
        round_number: int,
        request_digest: str,
        parts: Sequence[Part],
        message: Message,
    ) -> Integers:
        """What the helper sent."""
        sealed = message.array(MASK, dtype="b1", shape=(helpers_bytes(parts),)).tobytes()
        letter, locked = sealed[: letter_bytes()], sealed[letter_bytes() :]
        half, _ = client.keys.opened(letter, names=(HELPER, client.name))
        pair = client.keys.pair(HELPER, half, own=client.name)
        try:
            text = unlock(pair, locked, client.context, *mask_use(round_number, request_digest))
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
        """The mask of the site at this place."""
        drawn = gaussian(KeyedSource(self._keys[place]), self._parts)
        return np.asarray(drawn * np.uint64(len(self._keys)) - self._total)
