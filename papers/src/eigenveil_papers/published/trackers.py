"""What all trackers of a stream's subspace share: the figures of paper 002 compare them.

Each reads rows once, in the order they come, however many in a call, by ``partial_fit``, and tells
their leading directions as ``components`` (r, D). Rows are not centred, unless it says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Self

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import IncrementalPCA

from eigenveil.errors import DataError
from eigenveil.linalg.eigen import fix_signs

FloatArray = NDArray[np.float64]


class Reader:
    """Checks rows, and learns the number of features from the first of them."""

    def __init__(self) -> None:
        self.features = 0

    def rows(self, rows: ArrayLike, *, least_features: int = 1) -> FloatArray:
        """The rows as a matrix (n, D) of their own, possibly with n = 0."""
        exact = np.array(rows, dtype=np.float64, ndmin=2)
        if exact.ndim != 2 or exact.shape[1] == 0 or not np.all(np.isfinite(exact)):
            raise DataError("rows-matrix", what=f"of shape {exact.shape}")
        features = exact.shape[1]
        if self.features not in (0, features):
            raise DataError("features-changed", features=features, before=self.features)
        if features < least_features:
            raise DataError(
                "components", features=features, wanted=least_features, what="components"
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
        raise DataError("out-of-range", name=name, value=repr(value), wanted="1 or more")
    return value


def no_components(why: str) -> DataError:
    """The error of a tracker that cannot tell components yet."""
    return DataError("no-components", why=why)


def as_components(basis: FloatArray) -> FloatArray:
    """Columns (D, r) as rows (r, D) with signs fixed."""
    return fix_signs(np.ascontiguousarray(basis.T))


# -- The streaming block power method (Mitliagkas, Caramanis & Jain 2013): a baseline, not private.


class BlockPower:
    """One step of orthogonal iteration for each block: ``S = X'(X Q)/B``, ``Q = qr(S)``.

    Nothing is remembered of a block but Q, so with noise the accuracy is that of one block, however
    long the stream: the authors let blocks grow with the stream for that reason. The first Q is
    drawn uniformly. Rows of a block that is not full are not read yet.
    """

    def __init__(
        self,
        *,
        n_components: int,
        block: int = 100,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_components = checked_count("n_components", n_components)
        self._rng = np.random.default_rng(random_state)
        self._reader = Reader()
        self._blocks = Blocks(block)

    def partial_fit(self, rows: ArrayLike) -> Self:
        """Read rows, shape (n, D)."""
        started = self._reader.features > 0
        exact = self._reader.rows(rows, least_features=self.n_components)
        if not started:
            shape = exact.shape[1], self.n_components
            self._basis: FloatArray = np.linalg.qr(self._rng.standard_normal(shape))[0]
            self._values = np.zeros(self.n_components)
        for block in self._blocks.full(exact):
            step = self._step(block)
            if np.any(step):  # a block of zeros, or one that sees nothing of Q, tells nothing
                # the same span as that of a QR factorisation, ordered by strength
                self._basis, self._values, _ = scipy.linalg.svd(step, full_matrices=False)
        return self

    def _step(self, block: FloatArray) -> FloatArray:
        return np.asarray(block.T @ (block @ self._basis))

    @property
    def components(self) -> FloatArray:
        """Orthonormal rows, shape (r, D), strongest in the last block first."""
        self._reader.check_started()
        return as_components(self._basis)

    @property
    def strengths(self) -> FloatArray:
        """About the singular values of the last block, shape (r,); 0 before the first is full."""
        self._reader.check_started()
        return np.asarray(np.sqrt(self._values))


# -- GROUSE (Balzano, Nowak & Recht 2010): a baseline of paper 002, not private.


_NOTHING = 1e-14  # share of a row below which it lies inside (or outside) of the subspace


class Grouse:
    """One step along the Grassmannian's gradient for each row, all of its entries observed.

    With ``w = U'x``, ``p = U w`` and ``r = x - p`` the basis turns in the plane of p and r by an
    angle t: ``U <- U + ((cos t - 1) p/|p| + sin t r/|r|) w'/|w|``. Without a ``step`` the angle is
    ``arctan(|r|/|p|)``, after which the subspace contains the row (the greedy step of Balzano &
    Wright 2013): fast on rows that truly lie in r dimensions, and as restless as its last rows
    where they do not. With one it is ``step |r| |p|``, at most that. A step that diminishes is
    ``step |r| |p|/t`` for row t, and is not taken at all from pi/2 on (the program that goes with
    Balzano, Nowak & Recht 2010): large rows then leave the first basis, drawn uniformly, as it is
    for long. ``turns`` are the rows that turned it.
    """

    def __init__(
        self,
        *,
        n_components: int,
        step: float | None = None,
        diminishing: bool = False,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_components = checked_count("n_components", n_components)
        if step is not None and not (step > 0 and math.isfinite(step)):
            raise DataError(
                "out-of-range", name="step", value=step, wanted="above 0 (left out: greedy)"
            )
        if diminishing and step is None:
            raise DataError("step-missing")
        self.step, self.diminishing = step, diminishing
        self.turns = 0
        self._seen = 0
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
        self._seen += 1
        weights = self._basis.T @ row
        inside = self._basis @ weights
        rest = row - inside
        rest -= self._basis @ (self._basis.T @ rest)  # twice is enough
        length, along, across = (float(np.linalg.norm(v)) for v in (row, inside, rest))
        if min(along, across) <= _NOTHING * length:
            return  # inside there is nothing to learn; outside there is no direction to turn from
        angle = math.atan2(across, along)
        if self.diminishing and self.step is not None:
            angle = self.step * across * along / self._seen
            if angle >= math.pi / 2:
                return
        elif self.step is not None:
            angle = min(angle, self.step * across * along)
        self.turns += 1
        turned = (math.cos(angle) - 1) / along * inside + math.sin(angle) / across * rest
        self._basis += np.outer(turned, weights / np.linalg.norm(weights))

    @property
    def components(self) -> FloatArray:
        """Orthonormal rows, shape (r, D), in no order: GROUSE knows a subspace, no strengths."""
        self._reader.check_started()
        return as_components(np.linalg.qr(self._basis)[0])  # many turns leave some rounding


# -- scikit-learn's IncrementalPCA (Ross et al. 2008) with the trackers' interface; not private.


class Incremental:
    """IncrementalPCA fed block by block, by default of 5 times as many rows as components.

    Unlike the other trackers it subtracts the mean of the rows seen so far, and there is no way to
    ask it not to: where the rows have a mean, it looks for other directions than they do. Rows of a
    block that is not full are not read yet.
    """

    def __init__(self, *, n_components: int, block: int | None = None) -> None:
        self.n_components = checked_count("n_components", n_components)
        size = 5 * n_components if block is None else block
        self._blocks = Blocks(max(size, n_components))
        self._reader = Reader()
        self._inner = IncrementalPCA(n_components=n_components)

    def partial_fit(self, rows: ArrayLike) -> Self:
        """Read rows, shape (n, D)."""
        exact = self._reader.rows(rows, least_features=self.n_components)
        for block in self._blocks.full(exact):
            with np.errstate(invalid="ignore"):  # it divides by the variance, 0 of equal rows
                self._inner.partial_fit(block, check_input=False)
        return self

    @property
    def components(self) -> FloatArray:
        """Orthonormal rows, shape (r, D), strongest first; of centred rows."""
        self._check_fitted()
        return np.array(self._inner.components_)

    @property
    def strengths(self) -> FloatArray:
        """Singular values of the centred rows, shape (r,)."""
        self._check_fitted()
        return np.array(self._inner.singular_values_)

    def _check_fitted(self) -> None:
        if not hasattr(self._inner, "components_"):
            raise no_components(f"the first block is not full, {self._blocks.waiting} rows wait")
