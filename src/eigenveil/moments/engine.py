"""One pass over the rows for any number of sums, on all processors."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.eigen import single_threaded_blas
from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.rows import Block, Precision, Room
from eigenveil.moments.source import PartitionedRows, Reading, RowSource

# Above this many sums a worker's own copy costs more than its share of the preparation saves; the
# matrix product then runs on all processors by itself.
_MOST_VALUES_FOR_WORKERS = 1 << 21
_MOST_WORKERS = 8

Progress = Callable[[int], None]


def accumulate(
    rows: RowSource,
    accumulators: Sequence[Accumulator],
    *,
    progress: Progress | None = None,
    most_workers: int = _MOST_WORKERS,
) -> Pass:
    """Add all rows to all accumulators but the invalid ones, which are left out."""
    if isinstance(rows, PartitionedRows):
        return _added_elsewhere(rows, accumulators, progress)
    workers = min(most_workers, processors())
    if sum(each.size for each in accumulators) > _MOST_VALUES_FOR_WORKERS:
        workers = 1
    blocks = iter(rows.blocks())
    if workers > 1:
        first = list(islice(blocks, 2))
        workers = min(workers, max(1, len(first)))  # a single block is nobody's to share
        blocks = chain(first, blocks)
        del first
    shared = _SharedBlocks(blocks, rows.names, progress)
    if workers == 1:
        shared.add_to(accumulators)
        return Pass(shared.rows, shared.found.all)
    sets = [[each.empty() for each in accumulators] for _ in range(workers - 1)]
    with single_threaded_blas(), ThreadPoolExecutor(workers - 1) as pool:
        others = [pool.submit(shared.add_to, mine) for mine in sets]
        shared.add_to(accumulators)
        for other in others:
            other.result()
    for copies in sets:
        _merge_all(accumulators, copies)
    return Pass(shared.rows, shared.found.all)


class _SharedBlocks:
    """The blocks of a pass, each of which one of several workers takes."""

    def __init__(
        self, blocks: Iterator[Block], names: Sequence[str] | None, progress: Progress | None
    ) -> None:
        self._blocks, self._progress = blocks, progress
        self._lock = threading.Lock()
        self.rows = self._taken = 0
        self.found = Findings(names)

    def add_to(self, accumulators: Sequence[Accumulator]) -> None:
        """Add what blocks are left when one is wanted."""
        accumulators = sorted(accumulators, key=lambda each: not each.stores)
        room = Room()
        while (piece := self._next()) is not None:
            number, block = piece
            block.room = room
            for accumulator in accumulators:
                accumulator.update(block)
            with self._lock:
                self.found.add(number, block)
            room.clear()
        for accumulator in accumulators:
            accumulator.flush()

    def _next(self) -> tuple[int, Block] | None:
        with self._lock:
            block = next(self._blocks, None)
            if block is None:
                return None
            count = block.values.shape[0]
            self.rows += count
            self._taken += 1
            if self._progress is not None:
                self._progress(count)
            return self._taken, block


def _merge_all(sums: Sequence[Accumulator], others: Sequence[Accumulator]) -> None:
    for mine, theirs in zip(sums, others, strict=True):
        mine.merge(theirs)


@dataclass(frozen=True)
class _PartSums:
    """The sums of a part of the rows."""

    rows: int
    sums: Sequence[Accumulator]
    invalid: InvalidRows | None


class _Sums(Reading[_PartSums]):
    """Adding up rows where they are, a part on one processor: a cluster has a part for each."""

    def __init__(self, empty: Sequence[Accumulator]) -> None:
        self._empty = empty

    def read(self, rows: RowSource) -> _PartSums:
        sums = [each.empty() for each in self._empty]
        found = accumulate(rows, sums, most_workers=1)
        return self.merge([_PartSums(found.rows, sums, found.invalid)])  # without room for rows

    def merge(self, parts: Sequence[_PartSums]) -> _PartSums:
        total = [each.empty() for each in self._empty]
        for part in parts:
            _merge_all(total, part.sums)
        invalid = [part.invalid for part in parts if part.invalid is not None]
        return _PartSums(sum(part.rows for part in parts), total, _all_invalid(invalid))


def _added_elsewhere(
    rows: PartitionedRows, accumulators: Sequence[Accumulator], progress: Progress | None
) -> Pass:
    found = rows.fold(_Sums([each.empty() for each in accumulators]))
    _merge_all(accumulators, found.sums)
    if progress is not None:
        progress(found.rows)
    return Pass(found.rows, found.invalid)


def processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class InvalidRows:
    """Rows that are not valid, and were left out, or belong to no unit. For their owner only."""

    count: int  # Of rows that are not valid
    # File, row and column of the first of them (:mod:`eigenveil.origins`), and what is there; empty
    # where there is none
    first: str
    unidentified: int = 0  # Rows without an identifier of their unit, which do not count

    def __str__(self) -> str:
        found = []
        if self.count == 1:
            found = [f"1 row is not valid and was left out: {self.first}"]
        elif self.count:
            found = [
                f"{self.count:,} rows are not valid and were left out; the first: {self.first}"
            ]
        if self.unidentified:
            rows = "1 row has" if self.unidentified == 1 else f"{self.unidentified:,} rows have"
            found.append(f"{rows} no identifier of a unit and did not count")
        return ". ".join(found)


@dataclass(frozen=True)
class Pass:
    """What one pass over the rows found. For their owner only."""

    rows: int
    # `None` where all rows are valid and have a unit, where they need one
    invalid: InvalidRows | None


def _all_invalid(parts: Sequence[InvalidRows]) -> InvalidRows | None:
    """Those of several parts, in order."""
    if not parts:
        return None
    return InvalidRows(
        sum(part.count for part in parts),
        next((part.first for part in parts if part.first), ""),
        sum(part.unidentified for part in parts),
    )


@dataclass(frozen=True)
class _LargestNorm:
    rows: int
    norm: float


class LargestNorm(Reading[_LargestNorm]):
    """The norm of the longest row less a centre. Not private."""

    def __init__(self, center: NDArray[np.float64] | None, precision: Precision) -> None:
        self._center, self._precision = center, precision

    def read(self, rows: RowSource) -> _LargestNorm:
        count, largest = 0, 0.0
        for block in rows.blocks():
            norms = block.residuals(self._center, self._precision)[1]
            largest = max(largest, float(np.max(norms, initial=0.0)))
            count += int(block.values.shape[0])
        return _LargestNorm(count, largest)

    def merge(self, parts: Sequence[_LargestNorm]) -> _LargestNorm:
        return _LargestNorm(
            sum(part.rows for part in parts), max((part.norm for part in parts), default=0.0)
        )


class Findings:
    """Invalid rows of the blocks of one pass, whatever the order in which they are finished."""

    def __init__(self, names: Sequence[str] | None) -> None:
        self._names = names
        self._count = self._unidentified = 0
        self._first: tuple[int, str] | None = None

    def add(self, number: int, block: Block) -> None:
        self._unidentified += block.unidentified
        if block.first_invalid is None:
            return
        self._count += block.invalid
        if self._first is None or number < self._first[0]:
            self._first = (number, _place(block, self._names))

    @property
    def all(self) -> InvalidRows | None:
        if self._first is None and not self._unidentified:
            return None
        return InvalidRows(self._count, self._first[1] if self._first else "", self._unidentified)


def _place(block: Block, names: Sequence[str] | None) -> str:
    """Where the first invalid row of a block is, and what is wrong with it."""
    place = block.first_invalid
    assert place is not None
    where = block.origin.cell(block.first_row + place.row, place.column, names)
    return f"{where} {place.what}"
