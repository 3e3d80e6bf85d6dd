"""One pass over the rows for any number of sums, on all processors."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from eigenveil.errors import DataError
from eigenveil.linalg.threads import single_threaded_blas
from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.rows import Block, NonFiniteEntry
from eigenveil.moments.source import RowSource

# Above this many sums a worker's own copy costs more than its share of the preparation saves; the
# matrix product then runs on all processors by itself.
_MOST_VALUES_FOR_WORKERS = 1 << 21
_MOST_WORKERS = 8

Progress = Callable[[int], None]


def accumulate(
    rows: RowSource, accumulators: Sequence[Accumulator], *, progress: Progress | None = None
) -> int:
    """Add all rows to all accumulators; returns the number of rows read (private to the owner).

    Each worker has accumulators of its own, merged at the end: sums are exact, so the result does
    not depend on which worker took which block.

    Raises
    ------
    DataError
        Naming file, row and column of an entry that is not finite.
    """
    values = sum(a.size for a in accumulators)
    workers = min(_MOST_WORKERS, _processors())
    if values > _MOST_VALUES_FOR_WORKERS:
        workers = 1
    sets: list[Sequence[Accumulator]] = [accumulators]
    sets += [[a.fresh() for a in accumulators] for _ in range(workers - 1)]
    blocks = iter(rows.blocks())
    lock = threading.Lock()
    read = 0
    failed = False  # one worker's error ends the others' work

    def next_block() -> Block | None:
        nonlocal read
        with lock:
            block = None if failed else next(blocks, None)
            if block is not None:
                read += block.values.shape[0]
                if progress is not None:
                    progress(block.values.shape[0])
            return block

    def work(mine: Sequence[Accumulator]) -> None:
        nonlocal failed
        while (block := next_block()) is not None:
            try:
                for accumulator in mine:
                    accumulator.update(block)
            except NonFiniteEntry as error:
                failed = True
                raise _located(error, block, rows) from None
        for accumulator in mine:
            accumulator.settle()

    if workers == 1:
        work(accumulators)
        return read
    with single_threaded_blas(), ThreadPoolExecutor(workers - 1) as pool:
        others = [pool.submit(work, mine) for mine in sets[1:]]
        work(accumulators)
        for other in others:
            other.result()
    for copies in sets[1:]:
        for mine, theirs in zip(accumulators, copies, strict=True):
            mine.merge(theirs)
    return read


def _processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _located(error: NonFiniteEntry, block: Block, rows: RowSource) -> DataError:
    column = rows.names[error.column] if rows.names is not None else str(error.column)
    where = f"{block.origin}: " if block.origin else ""
    return DataError(
        f"{where}row {block.first_row + error.row}, column {column!r} is {error.value}.",
        hint="Input contains NaN or infinity; remove or fill such entries first.",
        code="not-finite",
    )
