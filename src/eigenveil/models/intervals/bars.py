"""Intervals of numbers, each of which is shown or has a reason why it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Kind = Literal["table", "population"]
KINDS: tuple[Kind, ...] = ("table", "population")


def deviations(level: float) -> float:
    """Standard deviations to either side in which a normal number lies with this probability."""
    return float(ndtri(0.5 + 0.5 * level))


@dataclass(frozen=True)
class Bars:
    """Estimates with the ends of their intervals, arrays of one shape.

    NaN where nothing is shown; ``why`` is then the place in ``reasons`` of the reason, else -1.
    """

    estimate: Array
    lower: Array
    upper: Array
    why: NDArray[np.int8]
    reasons: tuple[str, ...] = ()

    @classmethod
    def about(
        cls,
        estimate: Array,
        below: Array,
        above: Array | None = None,
        *,
        within: tuple[float, float] = (-np.inf, np.inf),
    ) -> Bars:
        """So far below and above the estimate, and nowhere beyond what can be."""
        above = below if above is None else above
        plain = cls(
            estimate, estimate - below, estimate + above, np.full(estimate.shape, -1, np.int8)
        )
        return plain.each(lambda end: np.clip(end, *within))

    @classmethod
    def at_most(cls, upper: Array) -> Bars:
        """Of numbers that are not negative: a bound from above, which is the estimate, too."""
        return cls(upper, np.zeros_like(upper), upper, np.full(upper.shape, -1, np.int8))

    @classmethod
    def none(cls, shape: tuple[int, ...], reason: str) -> Bars:
        nan = np.full(shape, np.nan)
        return cls(nan, nan, nan, np.zeros(shape, dtype=np.int8), (reason,))

    @property
    def shown(self) -> Flags:
        return np.asarray(self.why < 0)

    def but(self, where: Flags, reason: str) -> Bars:
        """The same, but nothing ``where`` for this reason; reasons that there are stay."""
        where = where & self.shown
        if not where.any():
            return self
        why = np.where(where, len(self.reasons), self.why).astype(np.int8)
        left = self.each(lambda end: np.where(where, np.nan, end))
        return replace(left, why=why, reasons=(*self.reasons, reason))

    def times(self, factor: Array | float) -> Bars:
        """In other units: a factor that is not negative."""
        return self.each(lambda end: end * factor)

    def each(self, change: Callable[[Array], Array]) -> Bars:
        """Estimate and ends changed alike."""
        one, two, three = (
            np.asarray(change(end)) for end in (self.estimate, self.lower, self.upper)
        )
        return Bars(one, two, three, self.why, self.reasons)


@dataclass(frozen=True)
class Quantity:
    """One kind of number of a result, with its intervals.

    Attributes
    ----------
    name : str
        Such as ``"covariance"``.
    about : str
        What the intervals hold, in a sentence.
    axes : tuple of str
        What the axes of the arrays are, such as ``("feature", "component")``.
    labels : tuple of tuple of str
        Names along each.
    bars : Bars
        ``estimate``, ``lower`` and ``upper``, and why some are not shown.
    """

    name: str
    about: str
    axes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    bars: Bars

    @property
    def estimate(self) -> Array:
        """What the interval is about; NaN where it is not shown."""
        return self.bars.estimate

    @property
    def lower(self) -> Array:
        """Lower ends, of the estimate's shape."""
        return self.bars.lower

    @property
    def upper(self) -> Array:
        """Upper ends, of the estimate's shape."""
        return self.bars.upper

    @property
    def shown(self) -> Flags:
        """Which are shown."""
        return self.bars.shown

    def why(self, *place: int) -> str:
        """Why the one at this place is not shown; empty where it is."""
        code = int(self.bars.why[place])
        return self.bars.reasons[code] if code >= 0 else ""

    def columns(self) -> dict[str, list[Any]]:
        """One entry an interval: the labels by their axes, estimate, lower, upper and why.

        ``pandas.DataFrame(quantity.columns())`` is a frame of them.
        """
        names = list(product(*self.labels)) if self.axes else [()]
        found: dict[str, list[Any]] = {
            axis: [name[place] for name in names] for place, axis in enumerate(self.axes)
        }
        for end in ("estimate", "lower", "upper"):
            found[end] = getattr(self, end).ravel().tolist()
        codes = self.bars.why.ravel().tolist()
        return found | {"why": [self.bars.reasons[code] if code >= 0 else "" for code in codes]}

    def not_shown(self) -> dict[str, int]:
        """How many intervals are not shown, by the reason."""
        counts = np.bincount(self.bars.why[~self.shown].ravel(), minlength=len(self.bars.reasons))
        counted = zip(self.bars.reasons, counts.tolist(), strict=True)
        return {reason: count for reason, count in counted if count}

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them: ``None`` where an interval is not shown.

        Of more than 65,536 numbers only how many are not shown, and why.
        """
        found: dict[str, Any] = {"about": self.about, "axes": list(self.axes)}
        if self.estimate.size <= _MOST_LISTED:
            for end in ("estimate", "lower", "upper"):
                found[end] = _plain(getattr(self, end))
        return found | {"not_shown": self.not_shown()}

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.about}"]
        columns = self.columns()
        shown = np.flatnonzero(self.shown.ravel())
        for place in shown[:_SHOWN]:
            label = ", ".join(columns[axis][place] for axis in self.axes)
            ends = (columns[end][place] for end in ("estimate", "lower", "upper"))
            lines.append("  {:<24} {:>12.5g}  {:>12.5g} to {:.5g}".format(label, *ends))
        if shown.size > _SHOWN:
            lines.append(f"  and {shown.size - _SHOWN} more")
        lines += [f"  {count} not shown: {reason}" for reason, count in self.not_shown().items()]
        return "\n".join(lines)


# Lines of a quantity that are printed, and numbers that are listed in JSON.
_SHOWN, _MOST_LISTED = 12, 65_536


def _plain(values: Array) -> Any:
    """Lists, with ``None`` for NaN."""
    plain = values.astype(object)
    plain[np.isnan(values)] = None
    return plain.tolist()


@dataclass(frozen=True)
class Intervals(Mapping[str, Quantity]):
    """Intervals of the numbers of a result, by the name of the quantity.

    Attributes
    ----------
    level : float
        How often an interval holds what it is said to hold, over the noise (and, of the
        population, over rows).
    of : {"table", "population"}
        Whether that is a number of this table's prepared rows, or of those that they are drawn
        from.
    notes : tuple of str
        What is assumed, and what no interval knows.
    """

    level: float
    of: Kind
    quantities: Mapping[str, Quantity]
    notes: tuple[str, ...] = field(default=())

    def __getitem__(self, name: str) -> Quantity:
        return self.quantities[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.quantities)

    def __len__(self) -> int:
        return len(self.quantities)

    def __hash__(self) -> int:
        return id(self)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        return {
            "level": self.level,
            "of": self.of,
            "notes": list(self.notes),
            "quantities": {name: each.as_dict() for name, each in self.quantities.items()},
        }

    def __str__(self) -> str:
        head = f"{self.level:.4g} intervals, of the {self.of}"
        return "\n".join([head, *map(str, self.quantities.values()), *self.notes])


def numbered(count: int) -> tuple[str, ...]:
    """Names of components."""
    return tuple(f"PC{number}" for number in range(1, count + 1))
