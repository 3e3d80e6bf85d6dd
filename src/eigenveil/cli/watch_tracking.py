"""A subspace that is tracked block by block, and how far it has moved."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.subspace import subspace_distance


@dataclass(frozen=True)
class Moment:
    """Where a tracked subspace is.

    Attributes
    ----------
    rows, block : int
        Rows and blocks until now.
    rows_per_second : float
        Since the moment before.
    rank : int or None
        Directions; ``None`` while none are published.
    captured : float or None
        Their share of the rows' energy, in [0, 1].
    drift, drift_from_start : float or None
        Sine of the largest angle to the subspace of the moment before, and of the first block.
    blocks_left : int or None
        Blocks that a private stream's horizon still has room for.
    """

    rows: int
    block: int
    rows_per_second: float
    rank: int | None
    captured: float | None
    drift: float | None
    drift_from_start: float | None
    blocks_left: int | None


class Tracking:
    """One estimator of a stream, and where its subspace was.

    Parameters
    ----------
    model : StreamingPCA or PrivateStreamingPCA
    publishes : bool
        Whether the model has components after each block, and not at its end only.
    horizon : int or None
        Most blocks that it takes.
    """

    def __init__(self, model: Any, *, publishes: bool = True, horizon: int | None = None) -> None:
        self.model = model
        self.rows = self.blocks = 0
        self.publishes, self._horizon = publishes, horizon
        self._at_end = not publishes
        self._private = hasattr(model, "release")
        self._began = self._told = time.monotonic()
        self._told_rows = 0
        self._first: NDArray[np.float64] | None = None
        self._last: NDArray[np.float64] | None = None

    @property
    def blocks_left(self) -> int | None:
        """What is left of the horizon, if there is one."""
        return None if self._horizon is None else self._horizon - self.blocks

    @property
    def known_rows(self) -> int:
        """Number of rows that may be told with the result: released, where it is not public."""
        return (
            max(0, round(self.model.n_samples_)) if self._at_end and self.publishes else self.rows
        )

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def take(self, rows: NDArray[np.floating[Any]], names: Sequence[str] | None) -> None:
        """Learn from a block of rows, shape (b, D), of columns with these names."""
        if self._private:
            self.model._add(rows, names)
        else:
            self.model.partial_fit(rows)
        self.rows += rows.shape[0]
        self.blocks += 1
        if self.publishes and self._first is None:
            self._first = self._basis()

    def finish(self, names: Sequence[str] | None) -> None:
        """Release what is published at the end only, and name the features."""
        if not self.publishes:
            self.model.release()
            self.publishes = True
        if names is not None and not self._private:  # a private stream knew them from the start
            self.model.feature_names_in_ = np.array(names, dtype=object)

    def moment(self) -> Moment:
        """Where the subspace is, and how far it moved since this was asked before."""
        now = time.monotonic()
        rate = (self.rows - self._told_rows) / max(now - self._told, 1e-9)
        self._told, self._told_rows = now, self.rows
        basis = self._basis() if self.publishes and self.rows else None
        before, self._last = self._last, basis
        return Moment(
            rows=self.rows,
            block=self.blocks,
            rows_per_second=rate,
            rank=None if basis is None else basis.shape[1],
            captured=None if basis is None else self._captured(),
            drift=_distance(before, basis),
            drift_from_start=_distance(self._first, basis),
            blocks_left=self.blocks_left,
        )

    def _basis(self) -> NDArray[np.float64] | None:
        # a private stream has none before the rows that it counts are as many as its components
        found = getattr(self.model, "components_", None)
        return None if found is None else np.array(found.T)

    def _captured(self) -> float:
        return float(np.sum(self.model.explained_variance_ratio_))


def _distance(
    first: NDArray[np.float64] | None, second: NDArray[np.float64] | None
) -> float | None:
    return None if first is None or second is None else subspace_distance(first, second)
