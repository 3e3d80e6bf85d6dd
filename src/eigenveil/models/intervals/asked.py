"""Asking a result for intervals: what may be asked, and what is computed once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any

import numpy as np

from eigenveil.errors import DataError
from eigenveil.models.intervals.bars import KINDS, Intervals, Kind, Quantity
from eigenveil.models.result import Result

CLIPPED = (
    "Shortening rows is no noise: intervals are of the rows as they were prepared, which the "
    "certificate states."
)
_NOTES: dict[Kind, tuple[str, ...]] = {
    "table": (CLIPPED,),
    "population": (CLIPPED, "Rows are taken to be independent of one another."),
}

Make = Callable[[Result, float, Kind], Iterable[Quantity]]


def intervals_of(model: Any) -> Intervals | str:
    """Intervals of a result's numbers; or why there are none."""
    try:
        found: Intervals = model.intervals()
    except DataError as error:
        return error.message
    return found


def asked(result: Result, level: object, of: str, make: Make) -> Intervals:
    """The intervals of a result, made once for each level and kind.

    Raises
    ------
    DataError
        ``bad-level``, ``unknown-choice``; ``intervals-of-nothing`` where the fit ended before
        anything was released; ``intervals-of-other-version``.
    """
    number = isinstance(level, int | float | np.integer | np.floating)
    share = float(level) if number and not isinstance(level, bool) else math.nan  # type: ignore[arg-type]
    if not 0 < share < 1:
        raise DataError("bad-level", level=level)
    kind = next((each for each in KINDS if each == of), None)
    if kind is None:
        raise DataError("unknown-choice", option="of", given=of, known=", ".join(KINDS))
    if not result.factors.released or not result.certificate.releases:
        raise DataError("intervals-of-nothing")
    made_by, own = (
        result.certificate.software.partition(" (")[0],
        f"eigenveil {version('eigenveil')}",
    )
    if made_by != own:
        raise DataError("intervals-of-other-version", made_by=made_by, own=own)
    found: Intervals | None = result.later.get((share, kind))
    if found is None:
        quantities = {each.name: each for each in make(result, share, kind)}
        found = result.later[share, kind] = Intervals(share, kind, quantities, _NOTES[kind])
    return found
