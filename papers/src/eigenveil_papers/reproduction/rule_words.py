"""Effects, intervals and what could have been shown, in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import get_args

import numpy as np

from eigenveil_papers.reproduction.effects import (
    MISSES,
    POWER,
    ClaimPart,
    Effect,
    Interval,
    Measure,
    compares,
)
from eigenveil_papers.reproduction.experiment import Verdict

_MOST = 6
"""So many parts are told one by one."""


def texts_of(
    parts: Sequence[ClaimPart], verdicts: Sequence[Verdict], measure: Measure, count: int
) -> list[str]:
    """Of each part, or of many how many have which verdict, and their two ends."""
    if len(parts) <= _MOST:
        several = len(parts) > 1
        return [
            (f"{part.name}, {verdict}: " if several else f"{part.name}: " if part.name else "")
            + _described(part, measure, count)
            for part, verdict in zip(parts, verdicts, strict=True)
        ]
    counts = Counter(verdicts)
    told = [f"{v} in {counts[v]}" for v in get_args(Verdict) if counts[v]]
    texts = [f"of {len(parts)} parts {', '.join(told)}"]
    if parts[0].asks in ("better", "not worse", "same"):
        ends = [e.interval(count) for part in parts for e in part.effects]
        texts.append(f"of {len(ends)} comparisons {_sides(ends, measure)}")
    each = [(e, part.name) for part in parts for e in part.effects[: _told(part)]]
    each.sort(key=lambda one: one[0].value)
    for what, (effect, name) in (("least", each[0]), ("most", each[-1])):
        end = effect.interval(count)
        said = _one(effect, end, measure, signed=compares(parts[0]))
        texts.append(f"{what} {said} ({name})")
    lost = [
        f"{part.name} ({verdict})"
        for part, verdict in zip(parts, verdicts, strict=True)
        if verdict in ("does not hold", "not tested")
    ]
    if lost:
        more = f" and {len(lost) - _MOST} more" if len(lost) > _MOST else ""
        texts.append(f"not: {', '.join(lost[:_MOST])}{more}")
    return texts


def _told(part: ClaimPart) -> int | None:
    """How many of its effects are told: of one that rises, that from end to end."""
    return 1 if part.asks == "rises" else None


def _sides(ends: Sequence[Interval], measure: Measure) -> str:
    counts = Counter(_side(end, measure.room) for end in ends)
    return ", ".join(f"{side} at {counts[side]}" for side in _SIDES if counts[side])


def _described(part: ClaimPart, measure: Measure, count: int) -> str:
    """How many positions say what, and the two that say most, with their intervals."""
    signed = compares(part)
    ends = [effect.interval(count) for effect in part.effects]
    order = sorted(range(len(ends)), key=lambda i: part.effects[i].value)
    if part.asks == "rises":
        falls = sum(end.high < -measure.room for end in ends[1:])
        text = _one(part.effects[0], ends[0], measure, signed=signed)
        return text + (f", falling at {falls} of {len(ends) - 1} steps" if falls else "")
    if len(ends) == 1:
        return _one(part.effects[0], ends[0], measure, signed=signed)
    shown = [order[-1], order[0]]
    if part.asks in ("at least", "at most"):
        shown.reverse()
    texts = [_one(part.effects[i], ends[i], measure, signed=signed) for i in dict.fromkeys(shown)]
    if part.asks in ("better", "not worse", "same"):
        counted = _sides(ends, measure)
        return (
            f"{counted} of {len(ends)}; from {texts[1]} to {texts[0]}"
            if len(texts) > 1
            else (f"{counted}; {texts[0]}")
        )
    if part.asks == "somewhere":
        return texts[0]
    return "; ".join(texts)


_SIDES = ("ahead", "behind", "no difference", "cannot be told")


def _side(end: Interval, room: float) -> str:
    if end.low > room:
        return "ahead"
    if end.high < -room:
        return "behind"
    return "no difference" if -room <= end.low and end.high <= room else "cannot be told"


def _one(effect: Effect, end: Interval, measure: Measure, *, signed: bool) -> str:
    text = measure.say(effect.value, signed=signed)
    if effect.error or effect.below or effect.above:
        text += f" ({_span(end, measure, signed=signed)})"
    return f"{text} at {effect.at}" if effect.at else text


def _span(end: Interval, measure: Measure, *, signed: bool) -> str:
    low, high = (
        measure.say(min(max(value, -measure.most), measure.most), signed=signed) for value in end
    )
    if math.isinf(end.low):
        return "nothing is known" if math.isinf(end.high) else f"{high} or less"
    return f"{low} or more" if math.isinf(end.high) else f"{low} to {high}"


def compared(parts: Sequence[ClaimPart], measure: Measure, count: int) -> str:
    """The margin, the intervals and what could have been shown."""
    each = [effect for part in parts for effect in part.effects]
    margin = f"Margin {measure.margin:g} {measure.unit}; " if any(map(compares, parts)) else ""
    drawn = [effect for effect in each if effect.error]
    if not drawn:
        return f"{margin}computed, not drawn."
    needed = np.array([effect.showable(count) for effect in drawn])
    usable = np.minimum(needed[np.isfinite(needed)], measure.most)
    if not usable.size:
        return f"{margin}of a single run nothing can be told."
    told = [
        f"{math.exp(value) if measure.ratio else value:.2g}"
        for value in (usable.min(), np.median(usable), usable.max())
    ]
    return (
        f"{margin}{100 - 100 * MISSES:g} % intervals for all {count} together. "
        f"{'A factor' if measure.ratio else 'A difference'} of {told[1]} beyond it would have been "
        f"shown with a chance of {100 * POWER:g} % (by position {told[0]} to {told[2]})."
    )
