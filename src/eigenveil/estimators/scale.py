"""Reading quantiles of the row norms from a released histogram (post-processing)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.accumulators import BINS, bin_upper_edges
from eigenveil.moments.release import Release

# A window of bins counts when it stands this many noise deviations above zero: of the 300 windows
# of noise alone, one passes in a hundred histograms.
_DEVIATIONS = 4.0
# Share of the rows that the counted windows must hold together.
_ENOUGH = 0.6


@dataclass(frozen=True)
class NormScale:
    """What a histogram release says about row norms.

    ``edges`` and ``masses`` are the occupied windows' upper edges and row counts, ascending.
    """

    rows: float
    edges: NDArray[np.float64]
    masses: NDArray[np.float64]

    @property
    def found(self) -> bool:
        """Whether enough rows stand out from the noise for a quantile to mean anything."""
        return self.edges.size > 0

    def quantile(self, share: float) -> float:
        """Smallest window edge with at least this share of the seen rows at or below it."""
        cumulative = np.cumsum(self.masses) / np.sum(self.masses)
        index = int(np.searchsorted(cumulative, share * (1 - 1e-12)))
        return float(self.edges[min(index, self.edges.size - 1)])

    def mean_energy(self, bound: float) -> float:
        """Average of ``min(1, (norm / bound)^2)``: what is left of a row after clipping."""
        if bound == 0.0:
            return 1.0
        middles = self.edges / 2**0.125
        share = np.minimum(1.0, (middles / bound) ** 2)
        return float(np.sum(share * self.masses) / np.sum(self.masses))


def read_scale(release: Release, *, public_rows: int | None) -> NormScale:
    """Occupied norm windows of a released histogram, at the finest width that stands out.

    Windows are 1, 2, 4, 8 or 16 quarter octaves wide: few rows or little budget give a coarser
    answer before they give none. The row count is the histogram's last coordinate, or public.
    """
    counts = release.values[:BINS]
    rows = float(public_rows) if public_rows is not None else float(release.values[BINS])
    deviation = release.record.noise.scale * (2**0.5 if release.record.noise.kind == "laplace" else 1)
    upper = bin_upper_edges()
    upper[-1] = upper[-2] * 2.0  # the open bin, as far as clipping is concerned
    for width in (1, 2, 4, 8, 16):
        starts = np.arange(0, BINS, width)
        masses = np.add.reduceat(counts, starts)
        edges = upper[np.minimum(starts + width, BINS) - 1]
        seen = masses > _DEVIATIONS * deviation * width**0.5
        if rows > 0 and seen.any() and float(masses[seen].sum()) >= _ENOUGH * rows:
            return NormScale(rows=rows, edges=edges[seen], masses=masses[seen])
    return NormScale(rows=rows, edges=np.empty(0), masses=np.empty(0))
