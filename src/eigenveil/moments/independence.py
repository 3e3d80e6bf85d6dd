"""Whether the rounding of a row depends on its neighbours: tested once, on this processor.

That it does not is proved from what IEEE arithmetic promises (docs/proofs/release-grid.md, claims
1, 2 and 6): a processor or library that breaks the promise is to be found out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.accumulators import (
    Accumulator,
    ComponentEnergy,
    RowSum,
    SecondMoment,
    Sketch,
)
from eigenveil.moments.em import EMSums, Mixture
from eigenveil.moments.histograms import ColumnHistogram, NormHistogram
from eigenveil.moments.norms import FloatArray
from eigenveil.moments.rows import DTYPE, Block, Precision, RowRule
from eigenveil.moments.scores import ScoreHistogram
from eigenveil.moments.third import ThirdMoment

# Odd widths start every row at another alignment; 67 is more than a few registers hold.
_WIDTHS = (5, 67)
_ROWS = 12


@cache
def dependence() -> bool:
    """Whether here a row's rounding depends on its neighbours: nothing could then be certified."""
    alike = all(
        _independent(width, precision) for width in _WIDTHS for precision in ("single", "double")
    )
    return not alike


def _independent(width: int, precision: Precision) -> bool:
    rng = np.random.default_rng(width)  # public rows: nothing here is secret
    wide = rng.standard_normal((_ROWS, width)) * np.exp2(rng.integers(-3, 4, (_ROWS, 1)))
    rows = wide.astype(DTYPE[precision])
    rows[7] = 0.0
    rule = RowRule(bound=2.0, precision=precision)  # with a centre, rows would be moved first
    alone = [_made(rule, rows[i : i + 1].copy()) for i in range(_ROWS)]
    wanted = [np.concatenate(parts) for parts in zip(*alone, strict=True)]
    for place, part in _places(rows):
        found = _made(rule, part)
        if not all(np.array_equal(f, w[place]) for f, w in zip(found, wanted, strict=True)):
            return False
    centered = RowRule(rng.standard_normal(width) / 8.0, bound=2.0, precision=precision)
    basis = np.linalg.qr(rng.standard_normal((width, 3)))[0]
    return all(_adds_up(each, rows) for each in _sums(centered, basis))


def _made(rule: RowRule, rows: FloatArray) -> tuple[NDArray[Any], ...]:
    """What becomes of the rows of a block: integers, their squares, and the norms before."""
    block = Block(rows)
    return (*rule(block), block.residuals(rule.center, rule.precision)[1])


def _places(rows: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
    """Copies of some of the rows, all over the place: which, and the copy."""
    every, (count, width), size = slice(None), rows.shape, rows.itemsize
    for offset in [*(size * step for step in range(16)), 1, size + 1]:
        memory = np.zeros(rows.nbytes + 256, dtype=np.uint8)
        start = -memory.ctypes.data % 64 + offset
        copy = memory[start : start + rows.nbytes].view(rows.dtype).reshape(rows.shape)
        copy[:] = rows
        yield every, copy
    part = slice(3, count - 2)
    yield part, rows[part]
    yield every, np.asfortranarray(rows)
    yield slice(None, None, -1), rows[::-1]
    yield slice(1, None, 3), rows[1::3]
    spaced = np.zeros((count, 2 * width), rows.dtype)
    spaced[:, ::2] = rows
    yield every, spaced[:, ::2]


def _sums(rule: RowRule, basis: NDArray[np.float64]) -> Iterator[Accumulator]:
    precision, width = rule.precision, basis.shape[0]
    yield NormHistogram(rule.center, precision=precision)
    yield NormHistogram(rule.center, precision=precision, basis=basis, bound=rule.bound)
    yield ColumnHistogram(width, precision=precision)
    yield RowSum(rule, features=width, count_weight=0.25)
    yield SecondMoment(rule, features=width)
    seen = RowRule(rule.center, bound=2.0, precision=precision, basis=basis[:, :2], clip=0.5)
    yield SecondMoment(replace(seen, products=True), features=width)
    yield Sketch(rule, basis, clip=0.5)
    yield ComponentEnergy(rule, basis.T, count_weight=0.25)
    yield ThirdMoment(rule, basis, clip=0.5, variance=0.1)
    yield ScoreHistogram(seen, cells=9)
    factors = np.stack([np.eye(width), np.eye(width)[::-1] + 0.25])
    mixture = Mixture(0.1 * factors[:, 0], np.zeros(2), factors, np.full(2, 0.5))
    yield EMSums(rule, mixture, squares="full")


def _adds_up(empty: Accumulator, rows: FloatArray) -> bool:
    """Whether one block has the sum of its parts."""
    whole = empty.empty()
    whole.update(Block(rows))
    total = np.zeros(empty.shape, dtype=np.int64)
    for part in (rows[8:], rows[:1], rows[1:8]):
        one = empty.empty()
        one.update(Block(part))
        total += one.integers()
    return np.array_equal(whole.integers(), total)
