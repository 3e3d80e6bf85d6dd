"""Prepares rows and adds them up under one kernel of the BLAS; prints what was found as JSON."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import threadpoolctl

from eigenveil.moments import rows as rows_module
from eigenveil.moments.accumulators import ComponentEnergy, RowSum, SecondMoment, Sketch
from eigenveil.moments.histograms import ColumnHistogram, NormHistogram, range_of
from eigenveil.moments.independence import dependence
from eigenveil.moments.rows import DTYPE, Block, RowRule
from eigenveil.moments.scores import ScoreHistogram
from eigenveil.moments.third import ThirdMoment

ROWS = 600


def norms_of_before(rows):
    """One call of the BLAS a row: its order of summation follows alignment."""
    return np.sqrt(np.vecdot(rows, rows), dtype=np.float64)


def sums(rule, width):
    precision = rule.precision
    few = min(width, 3)
    basis = np.eye(width)[:, :few] * 0.6 + 0.8 * np.eye(width)[:, ::-1][:, :few] * (width > 6)
    yield NormHistogram(rule.center, precision=precision)
    yield NormHistogram(rule.center, precision=precision, basis=basis, bound=1.0)
    yield ColumnHistogram(width, precision=precision)
    ranges = range_of(np.full(width, 0.1), np.full(width, 3.0), holes=False)
    yield ColumnHistogram(width, precision=precision, preparation=ranges)
    yield RowSum(rule, features=width, count_weight=0.25)
    yield SecondMoment(rule, features=width)
    yield Sketch(rule, basis, clip=0.5)
    seen = replace(rule, basis=basis[:, : min(width, 2)], clip=0.7)
    yield ScoreHistogram(seen, cells=11)
    yield ComponentEnergy(rule, basis.T, count_weight=0.25)
    yield ThirdMoment(rule, basis, clip=0.5, variance=0.1)


def at_offset(rows, items):
    """A copy that starts so many entries after a multiple of 64 bytes."""
    memory = np.zeros(rows.nbytes + 256, dtype=np.uint8)
    start = -memory.ctypes.data % 64 + items * rows.itemsize
    copy = memory[start : start + rows.nbytes].view(rows.dtype).reshape(rows.shape)
    copy[:] = rows
    return copy


def released(each, rows, step):
    total = each.empty()
    for start in range(0, rows.shape[0], step):
        total.update(Block(rows[start : start + step]))
    return total.integers()


def zero_contribution(each, width, dtype):
    return released(each, np.zeros((1, width), dtype), 1)


def norms_at(rows, items):
    return Block(at_offset(rows, items)).residuals(None, "double")[1]


def row_at_a_tie(width):
    """A row of which an entry is rounded in two ways where its norm depends on alignment.

    Its first entry is moved until its prepared value is as near as can be to a half; the other
    alignment's norm, in the last place another, may then be on the other side.
    """
    rng = np.random.default_rng(width)
    rule = RowRule()
    for _ in range(300):
        row = rng.standard_normal((1, width))
        norms = [norms_at(row, items)[0] for items in (0, 1)]
        if norms[0] == norms[1]:
            continue
        low, high = 0.5, 0.5 + 2.0**-12
        for _ in range(60):
            row[0, 0] = (low + high) / 2
            norm = norms_at(row, 0)[0]
            factor = 2.0**rule.bits * rule._margin(width, 4.0**rule.bits) / norm
            if row[0, 0] * factor < np.floor(0.5 * factor) + 0.5:
                low = row[0, 0]
            else:
                high = row[0, 0]
        for steps in range(-6, 7):
            row[0, 0] = low + steps * np.spacing(low)
            ways = [rule(Block(at_offset(row, items)))[0] for items in (0, 1)]
            if not np.array_equal(*ways):
                return row
    return rng.standard_normal((1, width))


def study(width, precision):
    """Rows that moved by a zero row or a place in memory before and now; a digest of what is."""
    rng = np.random.default_rng(width)
    dtype = DTYPE[precision]
    plain = rng.standard_normal((ROWS, width)).astype(dtype)
    now = rows_module.row_norms
    rows_module.row_norms = norms_of_before
    if precision == "double":
        rows = np.repeat(row_at_a_tie(width), ROWS, axis=0)
        rows[1::3] = rng.standard_normal(rows[1::3].shape)
    else:
        rows = rng.standard_normal((ROWS, width)).astype(dtype)
    with_zero = np.concatenate([np.zeros((1, width), dtype), rows])
    before = moved(RowRule(precision=precision), rows, with_zero)
    rows_module.row_norms = now
    rules = [
        RowRule(precision=precision),
        RowRule(center=rng.standard_normal(width) / 4, bound=0.7, precision=precision),
    ]
    different, digest = [], hashlib.sha256()
    for rule in rules:
        digest.update(rule(Block(plain))[0].tobytes())
        for number, each in enumerate(sums(rule, width)):
            one = released(each, at_offset(rows, 0), 500)
            two = released(each, at_offset(with_zero, 1), 256)
            zero = released(each, np.zeros((1, width), dtype), 1)
            digest.update(released(each, plain, ROWS).tobytes())
            if not np.array_equal(two, one + zero):
                different.append(number)
    return {
        "before": before,
        "now": sum(moved(rule, rows, with_zero) for rule in rules),
        "different": different,
        "digest": digest.hexdigest(),
    }


def moved(rule, rows, with_zero):
    base, _ = rule(Block(at_offset(rows, 0)))
    others = [rule(Block(at_offset(with_zero, items)))[0][1:] for items in range(4)]
    return int(np.any([np.any(other != base, axis=1) for other in others], axis=0).sum())


def main():
    doubts = dependence()
    found = {
        f"{precision} {width}": study(width, precision)
        for precision in ("single", "double")
        for width in (3, 17, 64, 784)
    }
    rows_module.row_norms = norms_of_before
    dependence.cache_clear()
    kernels = sorted({str(each.get("architecture")) for each in threadpoolctl.threadpool_info()})
    print(
        json.dumps({"kernels": kernels, "doubts": doubts, "before": dependence(), "found": found})
    )


if __name__ == "__main__":
    main()
