"""Exact noise on a lattice: integers with density proportional to exp(-|z/s|^p / p).

``p = 2`` is the discrete Gaussian, ``p = 1`` the discrete Laplace. Rejection from a step function:
a cell of the lattice is chosen by a table, a point in it uniformly from random bits, and the point
is kept with the ratio of the density to that of the cell's inner edge (about 98 in 100 are). No
floating-point number ever carries the noise, so there is nothing in its low bits to attack
(Mironov 2012); docs/proofs/release-grid.md bounds the distance from the ideal distribution.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigenveil.noise.source import RandomSource

Power = Literal[1, 2]

# Beyond these many scales the two-sided tail holds less than 2**-129.
_TAIL: dict[Power, float] = {1: 90.0, 2: 13.5}
# Cells a scale, at least: more cells, fewer rejections, a larger table (at most 4096 slots).
_CELLS_A_SCALE: dict[Power, int] = {1: 16, 2: 32}
# Widths for which there are tables; the more, the fewer rejections.
_WIDTHS_AN_OCTAVE = 32
# Of the word that places a point: bit 63 is the sign, bits 51 to 62 the slot, the rest the point.
_SLOT_SHIFT = 51
# A slot's chance has 126 bits: 63 are compared first, the others only where those are equal.
_CHANCE_BITS = 63
# Candidates a pass: what the arrays of a pass take fits in the processor's cache.
_BATCH = 1 << 14


def lattice_noise(
    size: int, *, scale: float, power: Power, source: RandomSource
) -> NDArray[np.int64]:
    """``size`` independent integers of density ``exp(-|z/scale|**power/power)``."""
    # 1024 steps and more, so that the grid is far finer than the noise; no value leaves 64 bits
    if not 1024.0 <= scale < 2.0**56:
        raise ValueError(f"scale = {scale!r} lattice units is outside [1024, 2**56)")
    out = np.empty(size, dtype=np.int64)
    filled = 0
    # Every pass keeps each candidate with probability above 0.95, so the expected number of passes
    # is about size / _BATCH + 2; the bound only guards against a broken source.
    for _ in range(64 + 2 * (size // _BATCH + 1)):
        need = min(size - filled, _BATCH)
        drawn = _candidates(need + need // 32 + 8, scale, power, source)
        take = min(drawn.size, size - filled)
        out[filled : filled + take] = drawn[:take]
        filled += take
        if filled == size:
            return out
    raise RuntimeError("the randomness source rejects almost every candidate: it is broken")


def _candidates(count: int, scale: float, power: Power, source: RandomSource) -> NDArray[np.int64]:
    width_bits = math.floor(math.log2(scale / _CELLS_A_SCALE[power]))
    width = math.ldexp(1.0, width_bits) / scale  # of a cell, in scales
    # tables are made for few widths, so that a new scale seldom needs a new one: the next smaller
    # width puts the step function a little above the density, and acceptance makes up for it
    step = math.floor(math.log2(width) * _WIDTHS_AN_OCTAVE)
    table = _alias_table(step, power)
    table_width = _table_width(step)
    # one word each for: the slot's chance; sign, slot and point in the cell (from the top, the
    # middle and the low bits); the acceptance
    words = source.words(3 * count)
    place = words[count : 2 * count].view(np.int64)
    slot = (place >> np.int64(_SLOT_SHIFT)) & np.int64(table.other.size - 1)
    cell = np.where(_keeps_itself(words[:count], slot, table, source), slot, table.other[slot])
    negative = place >> np.int64(63)  # -1 or 0
    offset = place & np.int64((1 << width_bits) - 1)
    # how far the density at this point lies below the step function, as a positive exponent; the
    # negative side holds -1, -2, ..., so that zero is not counted twice
    t = (offset - negative) * (1.0 / scale)
    if power == 2:
        t *= t * 0.5 + cell * width
        t += (cell * cell) * (0.5 * (width - table_width) * (width + table_width))
    else:
        t += cell * (width - table_width)
    np.negative(t, out=t)
    np.exp(t, out=t)
    t *= 2.0**53
    keep = (words[2 * count :] >> np.uint64(11)).view(np.int64) < t
    signed = ((cell << np.int64(width_bits)) + offset) ^ negative  # x ^ -1 = -1 - x
    return np.asarray(signed[keep], dtype=np.int64)


class _AliasTable(NamedTuple):
    """Walker's alias table: slot i keeps itself with chance ``high, low``, else gives ``other``."""

    high: NDArray[np.int64]
    low: NDArray[np.int64]
    other: NDArray[np.int64]


def _keeps_itself(
    words: NDArray[np.uint64], slot: NDArray[np.int64], table: _AliasTable, source: RandomSource
) -> NDArray[np.bool_]:
    """Whether 126 uniform bits are below the slot's chance."""
    bits = (words >> np.uint64(1)).view(np.int64)
    chance = table.high[slot]
    keeps = bits < chance
    ties = np.flatnonzero(bits == chance)
    if ties.size:
        more = (source.words(ties.size) >> np.uint64(1)).view(np.int64)
        keeps[ties] = more < table.low[slot[ties]]
    return keeps


def _table_width(step: int) -> float:
    return float(2.0 ** (step / _WIDTHS_AN_OCTAVE))


@lru_cache(maxsize=64)
def _alias_table(step: int, power: Power) -> _AliasTable:
    """The table of the chances of cells ``_table_width(step)`` wide, in a power of two slots."""
    # in integers, so that but the last rounding of a chance (to 2**-126) and exp nothing is inexact
    edges = np.arange(0.0, _TAIL[power], _table_width(step))
    slots = 1 << math.ceil(math.log2(edges.size))
    weight = [int(w) for w in np.ldexp(np.exp(-(edges**power) / power), 300).tolist()]
    weight += [0] * (slots - len(weight))
    whole = sum(weight)
    chance = [w * slots for w in weight]  # in units of 1/whole; 1 is the average
    keep = [0] * slots
    other = np.arange(slots, dtype=np.int64)  # a slot that is its own other keeps itself always
    small = [i for i in range(slots) if chance[i] < whole]
    large = [i for i in range(slots) if chance[i] >= whole]
    while small and large:
        low, high = small.pop(), large[-1]
        keep[low], other[low] = (chance[low] << (2 * _CHANCE_BITS)) // whole, high
        chance[high] -= whole - chance[low]
        if chance[high] < whole:
            small.append(large.pop())
    mask = (1 << _CHANCE_BITS) - 1
    return _AliasTable(
        high=np.array([k >> _CHANCE_BITS for k in keep], dtype=np.int64),
        low=np.array([k & mask for k in keep], dtype=np.int64),
        other=other,
    )


# -- Gamma variables of any shape: what shares of pure noise are mixed with.
#
# Marsaglia and Tsang (2000) for shapes of 16 and more; smaller ones are such a variable times
# powers of uniform ones. All randomness comes from the lattice sampler, and docs/proofs/shares.md
# bounds how far roundings move a variable and its law.


# Lattice steps in a unit of the normal and exponential deviates.
_STEPS = 2.0**55
# From this shape on, a candidate's cube root is below a tenth with chance under 2**-130.
_LEAST_SHAPE = 16.0
_LOWEST = 0.1


def exponential(size: int, source: RandomSource) -> NDArray[np.float64]:
    """Standard exponential deviates, moved to the middle of intervals of ``2**-55``."""
    z = lattice_noise(size, scale=_STEPS, power=1, source=source)
    # -1, -2, ... count as 0, 1, ...: both sides together are exactly geometric
    z ^= z >> np.int64(63)
    return np.asarray((z + 0.5) / _STEPS)


def gamma(size: int, *, shape: float, source: RandomSource) -> NDArray[np.float64]:
    """``size`` independent Gamma(shape) variables of scale 1."""
    # Gamma(a) is Gamma(a + 1) times the a-th root of a uniform variable, as often as it takes
    extra = max(0, math.ceil(_LEAST_SHAPE - shape))
    drawn = _large(size, shape + extra, source)
    if extra:
        roots = shape + np.arange(extra, dtype=np.float64)
        log_u = exponential(extra * size, source).reshape(extra, size)
        drawn *= np.exp(-np.sum(log_u / roots[:, None], axis=0))
    return drawn


def _large(size: int, shape: float, source: RandomSource) -> NDArray[np.float64]:
    d = shape - 1.0 / 3.0
    out = np.empty(size, dtype=np.float64)
    filled = 0
    # more than 0.98 are kept, so that one pass is almost always enough
    for _ in range(64):
        need = size - filled
        drawn = _gamma_candidates(need + need // 32 + 8, d, source)
        take = min(drawn.size, need)
        out[filled : filled + take] = drawn[:take]
        filled += take
        if filled == size:
            return out
    raise RuntimeError("the randomness source rejects almost every candidate: it is broken")


def _gamma_candidates(count: int, d: float, source: RandomSource) -> NDArray[np.float64]:
    """Those of ``count`` candidates for Gamma(d + 1/3) that are kept."""
    x = lattice_noise(count, scale=_STEPS, power=2, source=source) / _STEPS
    root, log_chance = _proposal(x, d)
    keep = (root > _LOWEST) & (exponential(count, source) > -log_chance)
    root = root[keep]
    return np.asarray(d * (root * root * root))


def _proposal(x: NDArray[np.float64], d: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cube root of the candidate over ``d`` (at least a tenth), and the log-chance to keep it."""
    root = np.maximum(1.0 + x / (3.0 * math.sqrt(d)), _LOWEST)
    return root, 0.5 * (x * x) + d * (1.0 - root * root * root + 3.0 * np.log(root))
