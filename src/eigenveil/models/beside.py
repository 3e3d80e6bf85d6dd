"""A result beside the exact one of the rows themselves, for whoever owns them. Not private."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from eigenveil.errors import DataError
from eigenveil.models.intervals.bars import Intervals

NOT_PRIVATE = "NOT PRIVATE: computed from the rows themselves. For their owner alone."
OTHER_ROWS = (
    "The result is of {lower:,.0f} to {upper:,.0f} rows, and these are {rows:,}: they are not the "
    "rows that it was fitted to, or not all of them."
)
WEIGHTED = "Rows of one {unit} share a weight in the fit; here each row counts once."
# Rows are rounded to a grid before they are added up: a part of a number, and of the largest one.
_GRID = 1e-6
Line = Mapping[str, Any]


@dataclass(frozen=True)
class BesideExact:
    """A private result beside the exact one. NOT PRIVATE: for the owner of the rows alone.

    Attributes
    ----------
    estimator : str
    rows : int
        That were compared; those with missing or infinite entries are not.
    left_out : int
    lines : sequence of mappings
        One a component, cluster, topic or column; ``None`` where there is no such number.
        ``pandas.DataFrame(lines)`` is a frame of them.
    abouts : mapping of str to str
        What the numbers of a line are, by their names.
    measures : mapping of str to float
        How like the whole results are, by a sentence each.
    held : mapping of str to (int, int)
        By the name of a quantity: how many of its intervals hold the exact number of the rows as
        they were prepared, of how many that are shown.
    notes : tuple of str
    """

    estimator: str
    rows: int
    left_out: int
    lines: tuple[Line, ...]
    abouts: Mapping[str, str]
    measures: Mapping[str, float | None]
    held: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        return {
            "private": False,
            "warning": NOT_PRIVATE,
            "estimator": self.estimator,
            "rows": self.rows,
            "rows_left_out": self.left_out,
            "lines": [dict(line) for line in self.lines],
            "abouts": dict(self.abouts),
            "measures": dict(self.measures),
            "held": {name: {"held": a, "shown": b} for name, (a, b) in self.held.items()},
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        found = [NOT_PRIVATE, f"{self.estimator} beside {self.rows:,} rows"]
        for line in self.lines:
            found.append(
                "  ".join(f"{name.replace('_', ' ')} {said(value)}" for name, value in line.items())
            )
        found += [f"{name}: {said(value)}" for name, value in self.measures.items()]
        return "\n".join([*found, *map(held_text, self.held.items()), *self.notes])


def said(value: object) -> str:
    """A cell of a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def held_text(counts: tuple[str, tuple[int, int]]) -> str:
    name, (held, shown) = counts
    return f"intervals of {name}: {held:,} of {shown:,} hold the exact number"


def dense(rows: Any) -> Any:
    return rows.toarray() if scipy.sparse.issparse(rows) else rows


def finite(rows: NDArray[np.floating[Any]], *, least: int = 2) -> tuple[NDArray[np.float64], int]:
    """Rows without missing or infinite entries, and how many others there are."""
    whole = np.isfinite(rows).all(axis=1)
    left = int(rows.shape[0] - np.count_nonzero(whole))
    if left:
        rows = rows[whole]
    if rows.shape[0] < max(2, least):
        raise DataError("compare-without-rows", rows=rows.shape[0])
    return np.asarray(rows, dtype=np.float64), left


def matched(likeness: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pairs of components of two results, as like each other as can be together."""
    return [(int(i), int(j)) for i, j in zip(*linear_sum_assignment(-likeness), strict=True)]


def count_notes(found: Intervals | str, rows: int, unit: str | None) -> Iterable[str]:
    """Whether the rows are those of the fit, as far as their number tells, and counted alike."""
    if unit is not None:
        yield WEIGHTED.format(unit=unit)
    elif not isinstance(found, str) and "rows" in found:
        number = found["rows"]
        lower, upper = (float(end) for end in (number.lower, number.upper))
        if number.shown and not lower - (upper - lower) <= rows <= upper + (upper - lower):
            yield OTHER_ROWS.format(lower=lower, upper=upper, rows=rows)


def held(found: Intervals, exact: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """How many intervals hold the exact numbers, of how many that are shown."""
    counts: dict[str, tuple[int, int]] = {}
    for name, true in exact.items():
        each, size = found[name], np.max(np.abs(true), initial=0.0)
        slack = _GRID * np.maximum(np.abs(true), _GRID * size)
        holds = (each.lower - slack <= true) & (true <= each.upper + slack)
        counted = each.shown
        if each.axes == ("feature", "other"):  # the same number stands on either side
            counted = np.tril(counted)
        counts[name] = (int(np.count_nonzero(holds & counted)), int(np.count_nonzero(counted)))
    return {name: each for name, each in counts.items() if each[1]}
