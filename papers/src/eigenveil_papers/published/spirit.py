"""SPIRIT (Papadimitriou, Sun & Faloutsos, VLDB 2005): a baseline of paper 002, not private."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.errors import DataError
from eigenveil_papers.published.trackers import FloatArray, Reader, as_components, checked_count

_SMALL = 1e-3  # the first energy of a direction; the authors say "a small positive value"


class Spirit:
    """Hidden variables of a stream: projection approximation tracking, one direction at a time.

    For each row, and each direction w_i with energy d_i in turn, ``y = w_i' x``,
    ``d_i <- lambda d_i + y^2``, ``w_i <- w_i + y (x - y w_i)/d_i``, ``x <- x - y w_i``
    (algorithm TrackW). When the directions carry less than ``low`` of the energy seen so far one is
    added, and when they carry more than ``high`` the last is removed; both energies are forgotten
    alike (the authors' running means, where lambda is 1).

    Parameters
    ----------
    n_components : int
        Directions to start from, and the number kept when ``adapt`` is False.
    forgetting : float
        lambda in (0, 1]; the authors take 0.96 to 1.
    adapt : bool
        Whether the number of directions follows the energy.
    low, high : float
        Shares of energy, ``0 < low < high <= 1``; the authors' 0.95 and 0.98.
    hold_off : int
        Rows between two changes, best a few times ``1/(1 - forgetting)``: a new direction has no
        energy yet, and without a pause every row would add one more.
    """

    def __init__(
        self,
        *,
        n_components: int = 1,
        forgetting: float = 0.96,
        adapt: bool = False,
        low: float = 0.95,
        high: float = 0.98,
        hold_off: int = 100,
    ) -> None:
        self.n_components = checked_count("n_components", n_components)
        if not (0 < forgetting <= 1 and 0 < low < high <= 1):
            raise DataError("bad-spirit", forgetting=forgetting, low=low, high=high)
        self.forgetting = forgetting
        self.adapt, self.low, self.high = adapt, low, high
        self.hold_off = checked_count("hold_off", hold_off)
        self._since = 0  # rows since the number of directions changed
        self._reader = Reader()
        self._rank = n_components
        self._total = 0.0  # energy of all rows so far, with forgetting

    def partial_fit(self, rows: ArrayLike) -> Self:
        """Read rows, shape (n, D)."""
        started = self._reader.features > 0
        exact = self._reader.rows(rows, least_features=self.n_components)
        if not started:
            features = exact.shape[1]
            self._directions = np.eye(features)  # row i is w_i, used up to the rank
            self._weights = np.full(features, _SMALL)
            self._energies = np.zeros(features)
        for row in exact:
            self._read(row)
        return self

    def _read(self, row: FloatArray) -> None:
        self._total = self.forgetting * self._total + float(row @ row)
        rest = row
        for i in range(self._rank):
            direction = self._directions[i]
            hidden = float(direction @ rest)
            self._weights[i] = self.forgetting * self._weights[i] + hidden**2
            self._energies[i] = self.forgetting * self._energies[i] + hidden**2
            direction += hidden * (rest - hidden * direction) / self._weights[i]
            rest = rest - hidden * direction
        self._since += 1
        if self.adapt and self._since >= self.hold_off:
            self._adjust()

    def _adjust(self) -> None:
        carried = float(np.sum(self._energies[: self._rank]))
        if carried < self.low * self._total and self._rank < self._reader.features:
            place = self._rank  # a new direction starts as a canonical vector
            self._directions[place] = 0.0
            self._directions[place, place] = 1.0
            self._weights[place], self._energies[place] = _SMALL, 0.0
            self._rank += 1
            self._since = 0
        elif carried > self.high * self._total and self._rank > 1:
            self._rank -= 1
            self._since = 0

    @property
    def components(self) -> FloatArray:
        """Orthonormal rows, shape (r, D): TrackW's own are so only nearly, and are made so here."""
        self._reader.check_started()
        ordered = self._directions[: self._rank][self._order()]
        basis, _ = np.linalg.qr(ordered.T)
        return as_components(basis)

    @property
    def strengths(self) -> FloatArray:
        """Roots of the energies along the directions, shape (r,), with forgetting; descending."""
        self._reader.check_started()
        return np.asarray(np.sqrt(self._energies[: self._rank][self._order()]))

    def _order(self) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
        return np.argsort(-self._energies[: self._rank], kind="stable")
