"""Sources of rows: arrays and sparse matrices, read a block at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from eigenveil.errors import DataError
from eigenveil.moments.rows import Block, FloatArray
from eigenveil.origins import Origin

# Entries of a block: few enough for the processor's cache to hold what preparation makes of it, and
# 1024 rows where that many are not too many, so that the calls of a block cost little beside it
# (measured: at 20 and 64 features blocks of 2**18 entries take 0.7 of the time of 2**20).
_USUAL_ENTRIES, _MOST_ENTRIES, _USUAL_ROWS = 1 << 18, 1 << 20, 1 << 10
_FEWEST_ROWS, _MOST_ROWS = 512, 1 << 16
SPARSE_ROWS = 1 << 13
"""Rows of a sparse block: their entries are few, and a product with them costs as much as the
matrix is wide."""


class RowSource(Protocol):
    """Rows that can be read several times, a block at a time."""

    @property
    def features(self) -> int:
        """Number of columns."""
        ...

    @property
    def names(self) -> Sequence[str] | None:
        """Names of the columns, if they have any."""
        ...

    def blocks(self) -> Iterator[Block]:
        """All rows once, in order."""
        ...


def block_rows(features: int) -> int:
    """Rows of a block for this many features: a power of two."""
    entries = min(max(_USUAL_ENTRIES, _USUAL_ROWS * features), _MOST_ENTRIES)
    fitting = 1 << max(0, (entries // max(features, 1)).bit_length() - 1)
    return int(np.clip(fitting, _FEWEST_ROWS, _MOST_ROWS))


def held_in(kind: Any) -> type[np.float32 | np.float64]:
    """The narrowest floating type with every number of a type, for the memory that it takes.

    What becomes of a number does not depend on it.
    """
    return np.float32 if np.can_cast(kind, np.float32, "safe") else np.float64


# Entries that are read of a table at a time: a read costs some microseconds a column, and a pass
# over 784 columns in parts of 1024 rows takes four times what one in parts of 4096 does.
_PART_ENTRIES = 1 << 22


def part_rows(features: int) -> int:
    """Rows that are read of a table's columns at a time: a power of two, of at least a block."""
    fitting = 1 << max(0, (_PART_ENTRIES // max(features, 1)).bit_length() - 1)
    return max(block_rows(features), min(fitting, _MOST_ROWS))


class ArrayRows:
    """Rows of an array in memory (or memory-mapped); blocks are views, nothing is copied."""

    def __init__(
        self,
        array: FloatArray,
        *,
        names: Sequence[str] | None = None,
        origin: Origin | str = "",
        rows_a_block: int | None = None,
    ) -> None:
        self._array, self.names, self._origin = array, names, origin
        self.features = int(array.shape[1])
        self._step = rows_a_block or block_rows(self.features)

    def blocks(self) -> Iterator[Block]:
        """Views of consecutive rows."""
        for start in range(0, self._array.shape[0], self._step):
            yield Block(
                self._array[start : start + self._step], origin=self._origin, first_row=start
            )


# -- Rows of a scipy sparse matrix, made dense a block at a time.


class SparseRows:
    """Rows of a CSR matrix of shape (n, D)."""

    def __init__(
        self, matrix: Any, *, names: Sequence[str] | None = None, origin: Origin | str = ""
    ) -> None:
        self._matrix, self.names, self._origin = matrix.tocsr(), names, origin
        self.features = int(matrix.shape[1])

    def blocks(self) -> Iterator[Block]:
        """Dense copies of consecutive rows."""
        step = block_rows(self.features)
        for start in range(0, self._matrix.shape[0], step):
            # entries at the same place add up: in no narrower type than in any other table
            dense = self._matrix[start : start + step].astype(np.float64).toarray()
            yield Block(dense, origin=self._origin, first_row=start)


# -- Rows that are read where they are: what is made of a part of them comes back, never a row.


class Found(Protocol):
    """What was made of some rows."""

    @property
    def rows(self) -> int:
        """How many they were."""
        ...


FoundT = TypeVar("FoundT", bound=Found)


class Reading(ABC, Generic[FoundT]):
    """One pass over rows: what is made of a part of them, and how parts become the whole.

    It travels to where the rows are, as what it finds travels back: both can be pickled.
    """

    @abstractmethod
    def read(self, rows: RowSource) -> FoundT:
        """What is made of these rows."""

    @abstractmethod
    def merge(self, parts: Sequence[FoundT]) -> FoundT:
        """What was made of all parts, which come in order and are left unchanged."""


class PartitionedRows(ABC):
    """Rows in parts that are read elsewhere, such as by the workers of a cluster."""

    features: int
    names: Sequence[str] | None

    @abstractmethod
    def fold(self, reading: Reading[FoundT]) -> FoundT:
        """What a pass makes of all rows, each part of which counts once.

        Raises
        ------
        DataError
            When it cannot be read, or somebody counted a part twice or not at all.
        """

    @abstractmethod
    def read_by(
        self, reader: Callable[..., RowSource], own: Sequence[Any] | None = None
    ) -> PartitionedRows:
        """The same rows, each part read as ``reader(rows)``, or ``reader(rows, own[part])``."""

    def blocks(self) -> Iterator[Block]:
        """Refuse: rows stay where they are.

        Raises
        ------
        DataError
            With code ``rows-elsewhere``.
        """
        raise DataError(
            "The rows are read by the workers of a cluster, and this needs them here, in order.",
            hint="Give it a part that fits into memory: compute it first, or read the files here.",
            code="rows-elsewhere",
        )


def read_rows(rows: RowSource, reading: Reading[FoundT]) -> FoundT:
    """What a pass makes of rows, wherever they are."""
    return rows.fold(reading) if isinstance(rows, PartitionedRows) else reading.read(rows)


def newlines_in_cells(rows: RowSource) -> bool:
    """Whether in some of the rows' files a quote that is not closed takes in other rows."""
    found: Any = rows
    while found is not None:
        if getattr(found, "newlines_in_cells", False):
            return True
        found = getattr(found, "_rows", None)
    return False


def read_as(rows: RowSource, reader: Callable[[RowSource], RowSource]) -> RowSource:
    """Rows read as something else, one for one: where they are, and with what goes beside them."""
    if hasattr(rows, "read_by"):
        found: RowSource = rows.read_by(reader)
        return found
    return reader(rows)
