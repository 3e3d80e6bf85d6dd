"""Masks that vanish from the sum, and the circulant graph of sites that share them.

Site i is a neighbour of the next and the previous ``degree / 2`` on a ring. Of all graphs with this
degree it is among the best connected (Harary 1962): whatever ``degree - 1`` sites are taken away,
the others stay connected, so that masks hide every remaining site among all the remaining ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.noise.cube import tensor_copies, tensor_rows
from eigenveil.noise.lattice import lattice_noise
from eigenveil.noise.source import KeyedSource, add_streams
from eigenveil.privacy.statistics import Layout


def neighbours(member: str, members: Sequence[str], degree: int) -> tuple[str, ...]:
    """Neighbours of a member in the order of ``members``; all others where the degree allows."""
    return _around(members.index(member), members, degree)


def graph(members: Sequence[str], degree: int) -> dict[str, tuple[str, ...]]:
    """The neighbours of all."""
    return {name: _around(place, members, degree) for place, name in enumerate(members)}


def _around(place: int, members: Sequence[str], degree: int) -> tuple[str, ...]:
    count, reach = len(members), (degree + 1) // 2
    if 2 * reach >= count - 1:
        return (*members[:place], *members[place + 1 :])
    places = {(place + step) % count for step in range(-reach, reach + 1)} - {place}
    return tuple(members[other] for other in sorted(places))


def threshold(holders: int, collusion: int) -> int:
    """Shares that give a secret back.

    So many that an aggregator and ``collusion`` holders, who tell it everything, cannot have both
    of a site's secrets of a round by telling the other holders different stories.
    """
    return (holders + collusion) // 2 + 1


def even(count: int) -> int:
    """The count, or the next even one: a ring has as many neighbours on either side."""
    return 2 * ((count + 1) // 2)


# -- Masks that vanish from the sum over sites: one interface, three makers (privacy.md 5).
#
# A mask is an array of integers modulo 2^64, added to a message's integers. Pairs of neighbours
# expand a key they share and add it on one side, subtract it on the other. Modular masks are
# uniform: the aggregator learns the sum and nothing else. Gaussian masks leave a little that
# :func:`eigenveil.privacy.views.exposure` accounts for exactly. The trusted helper's zero-sum
# Gaussian masks are those of CAPE (paper 001, algorithm 3).


Integers = NDArray[np.uint64]
# A Gaussian mask is drawn on a lattice with at most this many steps a deviation, some thousand
# times finer than the noise that it hides.
_MASK_STEPS = 50


@dataclass(frozen=True)
class Part:
    """One of a round's sums: how many integers, and of what kind its Gaussian masks are."""

    size: int
    mask_deviation: float = 0.0  # In grid steps; 0 where masks are modular
    # Where these are the independent entries of a symmetric matrix or tensor, its masks are
    # isometric, like its noise
    layout: Layout = "vector"


# Pairs' shared keys, and on which side of each the site stands: it adds, or subtracts.
Pairs = Sequence[tuple[bytes, bool]]
# Adds to a total what pairs of sites expand their keys to, for all parts of a round.
Stream = Callable[[Pairs, Sequence[Part], Integers], None]


def add_uniform(pairs: Pairs, parts: Sequence[Part], total: Integers) -> None:
    """Uniform integers for all parts of a round, one after the other."""
    assert total.size == total_size(parts)
    add_streams(total, [(KeyedSource(key), adds) for key, adds in pairs])


def add_gaussian(pairs: Pairs, parts: Sequence[Part], total: Integers) -> None:
    """Gaussian integers of each part's deviation."""
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


def pairwise_mask(pairs: Pairs, parts: Sequence[Part], stream: Stream) -> Integers:
    """Sum of the streams of shared keys; ``(key, adds)`` gives on which side the site stands."""
    total = np.zeros(total_size(parts), dtype=np.uint64)
    stream(pairs, parts, total)
    return total


def self_mask(key: bytes, parts: Sequence[Part]) -> Integers:
    """The mask that is taken off once a site's message has arrived."""
    return pairwise_mask([(key, True)], parts, add_uniform)


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


STREAMS: dict[str, Stream] = {"modular": add_uniform, "pairwise": add_gaussian}


def total_size(parts: Sequence[Part]) -> int:
    """Integers of a round."""
    return sum(part.size for part in parts)


def split(values: NDArray[Any], parts: Sequence[Part]) -> list[NDArray[Any]]:
    """The parts of a round's integers."""
    return np.split(values, np.cumsum([part.size for part in parts])[:-1])


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
