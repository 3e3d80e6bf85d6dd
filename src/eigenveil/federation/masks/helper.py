"""Gaussian masks that a trusted helper makes, which are zero in sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from cryptography.exceptions import InvalidTag

from eigenveil.federation.masks.base import Integers, Mask, Part, total_size
from eigenveil.federation.masks.pairwise import gaussian
from eigenveil.federation.protocol.messages import HELPER, MASK, Message
from eigenveil.federation.secagg.keys import TAG_BYTES, bad_seal, letter_bytes, unlock
from eigenveil.noise.source import KeyedSource

if TYPE_CHECKING:
    from eigenveil.federation.secagg.client import SecaggClient


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
