"""What all trackers of a stream's subspace share: the figures of paper 002 compare them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigenveil.errors import DataError
from eigenveil.linalg.eigen import fix_signs

FloatArray = NDArray[np.float64]


@runtime_checkable
class Tracker(Protocol):
    """A method that reads rows once, in the order they come, and tells their leading directions.

    How many rows come in one call makes no difference to the result. Rows are not centred, unless
    the tracker says so.
    """

    def partial_fit(self, rows: ArrayLike) -> Self:
        """Read rows, shape (n, D), or one row of shape (D,)."""
        ...

    @property
    def components(self) -> FloatArray:
        """Orthonormal rows, shape (r, D), strongest first where the method knows strengths."""
        ...


class Reader:
    """Checks rows, and learns the number of features from the first of them."""

    def __init__(self) -> None:
        self.features = 0

    def rows(self, rows: ArrayLike, *, least_features: int = 1) -> FloatArray:
        """The rows as a matrix (n, D) of their own, possibly with n = 0.

        Raises
        ------
        DataError
            When they are no finite matrix, have another number of features than those before, or
            fewer than ``least_features``.
        """
        exact = np.array(rows, dtype=np.float64, ndmin=2)
        if exact.ndim != 2 or exact.shape[1] == 0 or not np.all(np.isfinite(exact)):
            raise DataError(
                f"Rows of shape {exact.shape} are no finite matrix.",
                hint="Give an array of shape (n, D) without missing values.",
                code="rows-matrix",
            )
        features = exact.shape[1]
        if self.features not in (0, features):
            raise DataError(
                f"These rows have {features} features; those before had {self.features}.",
                hint="Use one tracker for each stream.",
                code="rows-features",
            )
        if features < least_features:
            raise DataError(
                f"Rows of {features} features have no {least_features} components.",
                hint=f"Ask for at most {features}.",
                code="components",
            )
        self.features = features
        return exact

    def check_started(self) -> None:
        """Raise before the first rows: there are no components then."""
        if self.features == 0:
            raise no_components("no row has come")


class Blocks:
    """Gathers rows until a block is full. At most one block of rows is kept."""

    def __init__(self, size: int) -> None:
        self._size = checked_count("block", size)
        self._waiting: list[FloatArray] = []
        self._count = 0

    @property
    def waiting(self) -> int:
        """Rows that wait for their block to fill."""
        return self._count

    @property
    def size(self) -> int:
        """Rows of a block; takes effect for the block that is being gathered."""
        return self._size

    @size.setter
    def size(self, rows: int) -> None:
        self._size = checked_count("block", rows)

    def full(self, rows: FloatArray) -> Iterator[FloatArray]:
        """Each block that these rows fill; between two of them ``size`` may be changed."""
        while self._count + len(rows) >= self._size:
            taken = self._size - self._count
            self._waiting.append(rows[:taken])
            rows = rows[taken:]
            yield self.rest()
        if len(rows):
            self._waiting.append(rows)
            self._count += len(rows)

    def rest(self) -> FloatArray:
        """The rows that wait, taken out."""
        block = np.concatenate(self._waiting)
        self._waiting, self._count = [], 0
        return block


def checked_count(name: str, value: int) -> int:
    """The value, or a :class:`DataError` when it is below 1."""
    if value < 1:
        raise DataError(f"{name} = {value!r} is below 1.", hint="Give 1 or more.")
    return value


def no_components(why: str) -> DataError:
    """The error of a tracker that cannot tell components yet."""
    return DataError(f"There are no components: {why}.", hint="Give rows.", code="no-rows")


def as_components(basis: FloatArray) -> FloatArray:
    """Columns (D, r) as rows (r, D) with signs fixed."""
    return fix_signs(np.ascontiguousarray(basis.T))
