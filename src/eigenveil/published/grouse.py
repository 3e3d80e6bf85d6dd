"""GROUSE (Balzano, Nowak & Recht 2010): a baseline of paper 002, not private."""

from __future__ import annotations

import math
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.errors import DataError
from eigenveil.published.trackers import FloatArray, Reader, as_components, checked_count

_NOTHING = 1e-14  # share of a row below which it lies inside (or outside) of the subspace


class Grouse:
    """One step along the Grassmannian's gradient for each row, all of its entries observed.

    With ``w = U'x``, ``p = U w`` and ``r = x - p`` the basis turns in the plane of p and r by an
    angle t: ``U <- U + ((cos t - 1) p/|p| + sin t r/|r|) w'/|w|``. Without a ``step`` the angle is
    ``arctan(|r|/|p|)``, after which the subspace contains the row (the greedy step of Balzano &
    Wright 2013): fast on rows that truly lie in r dimensions, and as restless as its last rows
    where they do not. With one it is ``step |r| |p|``, at most that.

    Parameters
    ----------
    n_components : int
        r.
    step : float or None
        eta, in units of 1 over a squared row.
    random_state : int, Generator or None
        For the first basis, drawn uniformly.
    """

    def __init__(
        self,
        *,
        n_components: int,
        step: float | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_components = checked_count("n_components", n_components)
        if step is not None and not (step > 0 and math.isfinite(step)):
            raise DataError(f"step = {step!r} is not above 0.", hint="Leave it out for greedy.")
        self.step = step
        self._rng = np.random.default_rng(random_state)
        self._reader = Reader()

    def partial_fit(self, rows: ArrayLike) -> Self:
        """Read rows, shape (n, D)."""
        started = self._reader.features > 0
        exact = self._reader.rows(rows, least_features=self.n_components)
        if not started:
            shape = exact.shape[1], self.n_components
            self._basis: FloatArray = np.linalg.qr(self._rng.standard_normal(shape))[0]
        for row in exact:
            self._read(row)
        return self

    def _read(self, row: FloatArray) -> None:
        weights = self._basis.T @ row
        inside = self._basis @ weights
        rest = row - inside
        rest -= self._basis @ (self._basis.T @ rest)  # twice is enough
        length, along, across = (float(np.linalg.norm(v)) for v in (row, inside, rest))
        if min(along, across) <= _NOTHING * length:
            return  # inside there is nothing to learn; outside there is no direction to turn from
        angle = math.atan2(across, along)
        if self.step is not None:
            angle = min(angle, self.step * across * along)
        turned = (math.cos(angle) - 1) / along * inside + math.sin(angle) / across * rest
        self._basis += np.outer(turned, weights / np.linalg.norm(weights))

    @property
    def components(self) -> FloatArray:
        """Orthonormal rows, shape (r, D), in no order: GROUSE knows a subspace, no strengths.

        Raises
        ------
        DataError
            Before the first row.
        """
        self._reader.check_started()
        return as_components(np.linalg.qr(self._basis)[0])  # many turns leave some rounding
