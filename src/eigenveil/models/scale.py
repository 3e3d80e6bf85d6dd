"""Reading quantiles of the row norms from a released histogram (post-processing)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.histograms import BINS, OCTAVE_PARTS, bin_upper_edges
from eigenveil.moments.release import Release
from eigenveil.tables.scales import CORE, exceeded, run_strengths, standing_runs

# Bins below the longest norm about one point in which those about another are looked for.
_SPAN = 20 * OCTAVE_PARTS
# Relative error that bins give to a mean square beside their noise, and the part of it that must be
# left when its origin is not the centre.
_SPREAD_ERROR, _LEFT = 0.15, 0.5
# Share of the rows that the strongest run must hold.
_ENOUGH = 0.2
# Rows that are in no run must stand out by so many deviations for further runs to be looked for;
# noise alone shows one in so many histograms then.
_UNSEEN, _FALSE = 3.0, 1e-4


@dataclass(frozen=True)
class NormScale:
    """What a histogram release shows about row norms."""

    rows: float  # The released number of rows
    # Upper edges of the bins that stand out from the noise, ascending, and the noisy numbers of
    # rows in them; empty when nothing stands out
    edges: NDArray[np.float64]
    masses: NDArray[np.float64]
    # The point from which the norms are; zero where there is none
    origin: NDArray[np.float64] | None = None
    deviation: float = 0.0  # Of the noise in each of the masses
    # The longest norm that rows may have: beyond the last edge where some are in no bin of these
    longest: float = 0.0

    @property
    def found(self) -> bool:
        """Whether enough rows stand out from the noise for a quantile to mean anything."""
        return self.edges.size > 0

    def quantile(self, share: float) -> float:
        """Smallest edge with about this share of the seen rows at or below it."""
        cumulative = np.maximum.accumulate(np.cumsum(self.masses))
        index = int(np.searchsorted(cumulative, share * cumulative[-1] * (1 - 1e-12)))
        return float(self.edges[min(index, self.edges.size - 1)])

    def mean_energy(self, bound: float) -> float:
        """Average of ``min(1, (norm / bound)^2)``, what clipping leaves; 1 for unit rows."""
        if bound == 0.0:
            return 1.0
        return self._average(np.minimum(1.0, (self._middles / bound) ** 2))

    def kept(self, bound: float) -> float:
        """Average of ``min(1, bound / norm)``, what clipping leaves of a sum of rows."""
        return self._average(np.minimum(1.0, bound / np.maximum(self._middles, bound)))

    def holding(self, share: float, energy: float) -> float:
        """Smallest edge at which shortening the rows leaves this share of their energy.

        There is said to be no less than ``energy``, which the histogram may not show; 0 where too
        much of it is not seen.
        """
        squares, masses = self._middles**2, np.maximum(self.masses, 0.0)
        left = np.array([float(masses @ np.minimum(squares, edge**2)) for edge in self.edges])
        enough = np.flatnonzero(left >= share * max(energy, float(masses @ squares)))
        return float(self.edges[enough[0]]) if enough.size else 0.0

    def least_lost(self, edge: float, components: int) -> tuple[float, float]:
        """Where to shorten rows so that noise and what is cut off lose least, and the noise's part.

        ``edge`` is the largest eigenvalue that the noise shows of rows in units of that length: it
        counts against an even share of their energy, squared, and half the square of what is cut
        off beside it.
        """
        found = []
        for bound in self.edges.tolist():
            energy = self.mean_energy(bound)
            noise = edge * components / (max(self.rows, 1.0) * max(energy, 1e-12))
            cut = self.cut_off(bound)
            found.append((0.5 * cut * cut + noise * noise, bound, noise))
        _, bound, noise = min(found)
        return bound, noise

    def mean_square(self) -> float:
        return self._average(self._middles**2)

    def cut_off(self, bound: float) -> float:
        """Part of the rows' energy that shortening them takes away."""
        return max(0.0, 1.0 - self.mean_energy(bound) * bound**2 / self.mean_square())

    def spread(
        self, center: NDArray[np.float64] | None, bound: float | None
    ) -> tuple[float, float]:
        """Average squared distance of the rows from their mean, and its standard error.

        Of rows shortened to the bound, where there is one. What the centre is away from the origin
        is taken off; the error is infinite where little is left then.
        """
        squares = np.minimum(self._middles, math.inf if bound is None else bound) ** 2
        square = self._average(squares)
        left = square - self._away(center)
        if left < _LEFT * square:
            return max(0.0, left), math.inf
        noise = self.deviation * math.sqrt(float(squares @ squares))
        return left, math.hypot(_SPREAD_ERROR * square, noise / float(np.sum(self.masses)))

    def share_of_offset(
        self, squared: float, bound: float, center: NDArray[np.float64] | None
    ) -> float:
        """Average energy that an offset of this squared norm gives to a prepared row, at most.

        The rows are taken about ``center``, which has the offset: it is in their norms already.
        """
        about = np.maximum(self._middles**2 - self._away(center), bound**2)
        # 1 where the offset is longer: a quotient overflows where rows lie on the centre
        shares = np.full(about.shape, float(squared > 0))
        return self._average(np.divide(squared, about, out=shares, where=about > squared))

    def _away(self, center: NDArray[np.float64] | None) -> float:
        """Squared distance of a centre from the point that the norms were taken about."""
        if center is None:
            return 0.0
        away = center if self.origin is None else center - self.origin
        return float(away @ away)

    @property
    def _middles(self) -> NDArray[np.float64]:
        return np.asarray(self.edges / 2 ** (0.5 / OCTAVE_PARTS))

    def _average(self, values: NDArray[np.float64]) -> float:
        masses = np.maximum(self.masses, 0.0)
        return float(np.sum(values * masses) / np.sum(masses))


def read_scale(
    release: Release, *, known: NormScale | None = None, origin: NDArray[np.float64] | None = None
) -> NormScale:
    """The runs of norm bins that stand out from the noise of a released histogram.

    Beyond the strongest run others are looked for where rows are missing in it. The row count is
    the histogram's last coordinate. Where the norms about another point are ``known``, noise is not
    looked at beyond twice the longest of them, or far below it, and less is enough to be seen.
    """
    counts = release.values[:BINS]
    rows = float(release.values[BINS])
    noise = release.record.noise
    each = noise.deviation(noise.size)
    strength = run_strengths(counts, each)
    chance, longest = _FALSE / BINS, 0.0
    if known is not None and known.found:
        chance, longest = _FALSE, known.longest  # noise has few bins to show in
        top = int(np.searchsorted(bin_upper_edges(), 2.0 * longest))
        strength[:, top + 2 :] = -np.inf
        strength[: max(0, top - _SPAN), :] = -np.inf
    seen = np.zeros(BINS, dtype=np.bool_)
    far = exceeded(chance, pure=release.record.pure)
    for first, last in standing_runs(strength, CORE, far):
        if not seen.any() and not (rows > 0 and counts[first:last].sum() >= _ENOUGH * rows):
            break
        seen[first:last] = True
        strength[0, :] = -np.inf  # rows of no length add nothing
        unseen = rows - float(np.sum(counts[seen]))
        if unseen < _UNSEEN * each * math.sqrt(1.0 + np.count_nonzero(seen)):
            longest = 0.0
            break
    upper = bin_upper_edges()
    upper[-1] = upper[-2] * 2.0  # the open bin, as far as clipping is concerned
    longest = max(longest, float(np.max(upper[seen], initial=0.0)))
    return NormScale(rows, upper[seen], counts[seen], origin, each, longest)


# -- Choosing the clipping quantile from released norms and the noise level alone.
#
# Shortening every row to the same length (unit rows) makes the most of each row under the noise,
# but for data whose directions are not elliptical it leaves a bias that more budget never
# removes. Clipping only the longest rows has less bias and less signal. Which matters more
# follows from ``r = edge / (rows / components)``: the largest eigenvalue of the noise against an
# even share of the rows' energy. The steps below were read off runs on six data sets (digits,
# MNIST, Covertype, wine, and two of sensor readings) at epsilon from 0.1 to 10; ``make bench``
# repeats them.

# (r at most, clip at this quantile of the norms); unit rows beyond the last
_STEPS = ((0.008, 0.95), (0.03, 0.90), (0.06, 0.50))


def choose_bound(scale: NormScale, *, edge: float, components: int) -> float:
    """The norm at which rows are clipped for ``row_norm="auto"``; 0 for unit rows."""
    ratio = edge * components / scale.rows
    for most, quantile in _STEPS:
        if ratio <= most:
            return scale.quantile(quantile)
    return 0.0
