"""Frequent Directions and its robust form: baselines of paper 002, not private.

Liberty 2013; Ghashami, Liberty, Phillips & Woodruff 2016; robust: Luo, Chen, Zhang, Li & Zhang
2017.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from eigenveil.errors import DataError
from eigenveil.linalg.eigen import fix_signs
from eigenveil_papers.published.trackers import FloatArray, Reader, checked_count


class FrequentDirections:
    """A sketch B of l rows (``2 n_components`` by default) for a stream A of any number of rows.

    Rows are gathered until there are 2 l; then the squared singular values of what is there are
    lowered by the l-th of them, c, and fewer than l rows remain. For every ``k < l``

    - ``0 <= A'A - B'B <= |A - A_k|_F^2/(l - k)`` as matrices (the robust form's B is the same);
    - the robust form also keeps ``shift``, the sum of all c/2, and ``B'B + shift I`` is at most
      half as far from ``A'A`` in spectral norm: ``|A - A_k|_F^2/(2 (l - k))``.
    """

    def __init__(
        self, *, n_components: int, sketch_rows: int | None = None, robust: bool = False
    ) -> None:
        self.n_components = checked_count("n_components", n_components)
        self.sketch_rows = 2 * n_components if sketch_rows is None else sketch_rows
        if self.sketch_rows < n_components:
            raise DataError(
                "sketch-without-components", rows=self.sketch_rows, components=n_components
            )
        self.robust = robust
        self._reader = Reader()
        self._filled = 0
        self._lost = 0.0

    def partial_fit(self, rows: ArrayLike) -> Self:
        """Read rows, shape (n, D)."""
        started = self._reader.features > 0
        exact = self._reader.rows(rows, least_features=self.n_components)
        if not started:
            self._buffer = np.zeros((2 * self.sketch_rows, exact.shape[1]))
        while len(exact):
            taken = exact[: len(self._buffer) - self._filled]
            self._buffer[self._filled : self._filled + len(taken)] = taken
            self._filled += len(taken)
            exact = exact[len(taken) :]
            if self._filled == len(self._buffer):
                kept, lost = self._shrunk()
                self._lost += lost
                self._buffer[:] = 0.0
                self._buffer[: len(kept)] = kept
                self._filled = len(kept)
        return self

    def _shrunk(self) -> tuple[FloatArray, float]:
        """What is there with fewer than l rows, and c, by which the squares were lowered."""
        _, values, directions = self._singular()
        squares = values * values
        c = float(squares[self.sketch_rows - 1]) if values.size >= self.sketch_rows else 0.0
        left = np.sqrt(np.maximum(squares - c, 0.0))
        keep = left > 0
        return left[keep, None] * directions[keep], c

    def _singular(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return scipy.linalg.svd(  # type: ignore[no-any-return]
            self._buffer[: self._filled], full_matrices=False, check_finite=False
        )

    @property
    def sketch(self) -> FloatArray:
        """B, at most l rows of D features (zeros below them); rows that wait are shrunk into it."""
        return self._read()[0]

    @property
    def shift(self) -> float:
        """The robust form's alpha: half of what the squared singular values were lowered by."""
        return self._read()[1]

    def _read(self) -> tuple[FloatArray, float]:
        self._reader.check_started()
        rows, lost = self._buffer[: self._filled], 0.0
        if self._filled > self.sketch_rows:
            rows, lost = self._shrunk()
        sketch = np.zeros((self.sketch_rows, rows.shape[1]))
        sketch[: len(rows)] = rows
        return sketch, (self._lost + lost) / 2

    @property
    def components(self) -> FloatArray:
        """The leading right singular vectors of what is kept, orthonormal rows (r, D)."""
        self._reader.check_started()
        directions = scipy.linalg.svd(self._padded(), full_matrices=False)[2]
        return fix_signs(directions[: self.n_components])

    @property
    def strengths(self) -> FloatArray:
        """Singular values along the components, (r,); robust: of ``B'B + shift I``, as roots."""
        self._reader.check_started()
        values = scipy.linalg.svdvals(self._padded())[: self.n_components]
        return np.asarray(np.sqrt(values**2 + self._lost / 2) if self.robust else values)

    def _padded(self) -> FloatArray:
        """Buffered rows, with zero rows where there are fewer than components."""
        return self._buffer[: max(self._filled, self.n_components)]
