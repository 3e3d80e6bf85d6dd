"""How far off released numbers may be: intervals that follow from a saved result alone."""

from __future__ import annotations

from eigenveil.models.intervals.bars import Bars, Intervals, Quantity

__all__ = ["Bars", "Intervals", "Quantity"]
