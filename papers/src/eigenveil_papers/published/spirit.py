"""SPIRIT (Papadimitriou, Sun & Faloutsos, VLDB 2005): a baseline of paper 002, not private."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.errors import DataError
from eigenveil_papers.published.trackers import FloatArray, Reader, as_components, checked_count

_SMALL = 1e-3  # the first energy of a direction; the authors say "a small positive value"
_CODED = 1e-2  # that of their program


class Spirit:
    """Hidden variables of a stream: projection approximation tracking, one direction at a time.

    For each row, and each direction w_i with energy d_i in turn, ``y = w_i' x``,
    ``d_i <- lambda d_i + y^2``, ``w_i <- w_i + y (x - y w_i)/d_i``, ``x <- x - y w_i``
    (algorithm TrackW; ``forgetting`` is lambda, 0.96 to 1 of the authors). With ``adapt`` one is
    added when the directions carry less than ``low`` of the energy seen so far, and the last is
    removed when they carry more than ``high``; both energies are forgotten alike (the authors'
    running means, where lambda is 1). Between two changes ``hold_off`` rows pass, best a few times
    ``1/(1 - forgetting)``: a new direction has no energy yet, and without a pause every row would
    add one more. ``as_coded`` is the authors' program, SPIRIT.m, which does otherwise: directions
    have length 1 after each step and are made orthogonal when one is added; and what they carry is
    the energy of rows on the directions that have just been turned to them, also on those that have
    since been removed, so that far fewer are added.
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
        as_coded: bool = False,
    ) -> None:
        self.n_components = checked_count("n_components", n_components)
        if not (0 < forgetting <= 1 and 0 < low < high <= 1):
            raise DataError("bad-spirit", forgetting=forgetting, low=low, high=high)
        self.forgetting = forgetting
        self.adapt, self.low, self.high = adapt, low, high
        self.hold_off = checked_count("hold_off", hold_off)
        self.as_coded = as_coded
        self._since = -1 if as_coded else 0  # rows since the number of directions changed
        self._reader = Reader()
        self._rank = n_components
        self._total = 0.0  # energy of all rows so far, with forgetting
        self._carried = 0.0  # what the program takes for the directions' part of it

    def partial_fit(self, rows: ArrayLike) -> Self:
        """Read rows, shape (n, D)."""
        started = self._reader.features > 0
        exact = self._reader.rows(rows, least_features=self.n_components)
        if not started:
            features = exact.shape[1]
            self._directions = np.eye(self._rank, features)  # row i is w_i
            self._weights = np.full(features, _CODED if self.as_coded else _SMALL)
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
            if self.as_coded:
                direction /= np.linalg.norm(direction)
        if self.as_coded:
            seen = self._directions[: self._rank] @ row
            self._carried = self.forgetting * self._carried + float(seen @ seen)
        self._since += 1
        if self.adapt and self._since >= self.hold_off:
            self._adjust()

    def _adjust(self) -> None:
        carried = self._carried if self.as_coded else float(np.sum(self._energies[: self._rank]))
        if carried < self.low * self._total and self._rank < self._reader.features:
            place = self._rank  # a new direction starts as a canonical vector
            start = np.eye(1, self._reader.features, place)
            self._directions = np.vstack([self._directions[:place], start])
            self._energies[place] = 0.0
            if self.as_coded:
                self._directions = _orthonormal(self._directions)
            else:
                self._weights[place] = _SMALL
            self._rank += 1
            self._since = 0
        elif carried > self.high * self._total and self._rank > 1:
            self._rank -= 1
            self._since = 0

    @property
    def directions(self) -> FloatArray:
        """Orthonormal rows, shape (r, D), strongest first, with the signs that they have come to.

        TrackW's own are orthonormal only nearly, and are made so here.
        """
        self._reader.check_started()
        return _orthonormal(self._directions[: self._rank][self._order()])

    @property
    def components(self) -> FloatArray:
        """The same with signs fixed."""
        return as_components(self.directions.T)

    @property
    def strengths(self) -> FloatArray:
        """Roots of the energies along the directions, shape (r,), with forgetting; descending."""
        self._reader.check_started()
        return np.asarray(np.sqrt(self._energies[: self._rank][self._order()]))

    def _order(self) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
        return np.argsort(-self._energies[: self._rank], kind="stable")


def _orthonormal(rows: FloatArray) -> FloatArray:
    """Rows that Gram and Schmidt's process makes of these, each on its own side of 0."""
    basis, upper = np.linalg.qr(rows.T)
    return np.asarray((basis * np.where(np.diag(upper) < 0.0, -1.0, 1.0)).T)
