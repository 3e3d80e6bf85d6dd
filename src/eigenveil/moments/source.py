"""Sources of rows: arrays and sparse matrices, read a block at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.moments.norms import FloatArray
from eigenveil.moments.rows import Block
from eigenveil.origins import Origin

if TYPE_CHECKING:
    from eigenveil.files import Place
    from eigenveil.tables.schema import Schema

# Entries of a block: few enough for the processor's cache to hold what preparation makes of it, and
# 1024 rows where that many are not too many, so that the calls of a block cost little beside it
# (measured: at 20 and 64 features blocks of 2**18 entries take 0.7 of the time of 2**20).
_USUAL_ENTRIES, _MOST_ENTRIES, _USUAL_ROWS = 1 << 18, 1 << 20, 1 << 10
_FEWEST_ROWS, _MOST_ROWS = 512, 1 << 16
SPARSE_ROWS = 1 << 13
"""Rows of a sparse block: their entries are few, and a product with them costs as much as the
matrix is wide."""


class Found(Protocol):
    """What was made of some rows."""

    @property
    def rows(self) -> int:
        """How many they were."""
        ...


FoundT = TypeVar("FoundT", bound=Found)


class Reading(ABC, Generic[FoundT]):
    """One pass over rows: what is made of a part, and how parts become the whole."""

    @abstractmethod
    def read(self, rows: RowSource) -> FoundT:
        """What is made of these rows."""

    @abstractmethod
    def merge(self, parts: Sequence[FoundT]) -> FoundT:
        """What was made of all parts, which come in order and are left unchanged."""


class RowSource(ABC):
    """Rows that can be read several times, a block at a time, and what is known of them."""

    features: int
    """Number of columns."""
    names: Sequence[str] | None = None
    """Names of the columns, if they have any."""
    schema: Schema | None = None
    """What the columns are, where a schema says it."""
    variables: NDArray[np.float64] | None = None
    """The variable that each column belongs to, where a schema says it: a category has several."""
    unit: str | None = None
    """Name of the column that says which unit a row belongs to, where units are read with rows."""
    paths: Sequence[Place] = ()
    """The files by which a ledger knows the rows."""
    newlines_in_cells: bool = False
    """Whether in a text file a quote that is not closed takes in other rows."""

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """All rows once, in order."""

    def sparse_blocks(self) -> Iterator[Block]:
        """The same, values in scipy's compressed rows where they are stored so."""
        return self.blocks()

    def fold(self, reading: Reading[FoundT]) -> FoundT:
        """What a pass makes of all rows, wherever they are."""
        return reading.read(self)

    def read_by(self, reader: Callable[[RowSource], RowSource]) -> RowSource:
        """The same rows read as something else, one for one, with what goes beside them."""
        return reader(self)


class RowsOf(RowSource):
    """Rows of another source, one for one, with what is known of them."""

    def __init__(self, rows: RowSource) -> None:
        self._rows = rows
        self.features, self.names = rows.features, rows.names
        self.schema, self.variables, self.unit = rows.schema, rows.variables, rows.unit
        self.paths, self.newlines_in_cells = rows.paths, rows.newlines_in_cells


def block_rows(features: int) -> int:
    """Rows of a block for this many features: a power of two."""
    entries = min(max(_USUAL_ENTRIES, _USUAL_ROWS * features), _MOST_ENTRIES)
    fitting = 1 << max(0, (entries // max(features, 1)).bit_length() - 1)
    return int(np.clip(fitting, _FEWEST_ROWS, _MOST_ROWS))


def held_in(kind: Any) -> type[np.float32 | np.float64]:
    """The narrowest floating type with every number of a type: for the memory that it takes."""
    return np.float32 if np.can_cast(kind, np.float32, "safe") else np.float64


# Entries that are read of a table at a time: a read costs some microseconds a column, and a pass
# over 784 columns in parts of 1024 rows takes four times what one in parts of 4096 does.
_PART_ENTRIES = 1 << 22


def part_rows(features: int) -> int:
    """Rows that are read of a table's columns at a time: a power of two, of at least a block."""
    fitting = 1 << max(0, (_PART_ENTRIES // max(features, 1)).bit_length() - 1)
    return max(block_rows(features), min(fitting, _MOST_ROWS))


class ArrayRows(RowSource):
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
        for start in range(0, self._array.shape[0], self._step):
            yield Block(
                self._array[start : start + self._step], origin=self._origin, first_row=start
            )


# -- Rows of a scipy sparse matrix, made dense a block at a time.


class SparseRows(RowSource):
    """Rows of a CSR matrix of shape (n, D)."""

    def __init__(
        self, matrix: Any, *, names: Sequence[str] | None = None, origin: Origin | str = ""
    ) -> None:
        self._matrix, self.names, self._origin = matrix.tocsr(), names, origin
        self.features = int(matrix.shape[1])

    def blocks(self) -> Iterator[Block]:
        step = block_rows(self.features)
        for start in range(0, self._matrix.shape[0], step):
            # entries at the same place add up: in no narrower type than in any other table
            dense = self._matrix[start : start + step].astype(np.float64).toarray()
            yield Block(dense, origin=self._origin, first_row=start)


# -- Rows that are read where they are: what is made of a part of them comes back, never a row.


class PartitionedRows(RowSource):
    """Rows in parts that are read elsewhere, such as by the workers of a cluster."""

    @abstractmethod
    def fold(self, reading: Reading[FoundT]) -> FoundT:
        """What a pass makes of all rows, each part of which counts once."""

    @abstractmethod
    def read_by(
        self, reader: Callable[..., RowSource], own: Sequence[Any] | None = None
    ) -> PartitionedRows:
        """The same rows, each part read as ``reader(rows)``, or ``reader(rows, own[part])``."""

    def blocks(self) -> Iterator[Block]:
        # rows stay where they are
        raise DataError("rows-elsewhere")


# -- Parts of rows in pieces of one size.


def rechunk(
    parts: Iterable[tuple[NDArray[Any], ...]], step: int
) -> Iterator[tuple[NDArray[Any], ...]]:
    """Cut rows into pieces of ``step``; only the last may be shorter, and none is empty."""
    # a piece that lies within one part is a view of it
    waiting: list[tuple[NDArray[Any], ...]] = []
    count = 0
    for part in parts:
        taken, rows = 0, part[0].shape[0]
        while taken < rows:
            piece = tuple(each[taken : taken + step - count] for each in part)
            waiting.append(piece)
            taken += piece[0].shape[0]
            count += piece[0].shape[0]
            if count == step:
                yield _joined(waiting)
                waiting, count = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(pieces: list[tuple[NDArray[Any], ...]]) -> tuple[NDArray[Any], ...]:
    if len(pieces) == 1:
        return pieces[0]
    return tuple(np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
