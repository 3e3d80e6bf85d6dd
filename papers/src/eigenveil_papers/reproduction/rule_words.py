"""Effects, intervals and what could have been shown, in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

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
    """Of each part, or of many their two ends and those that are contradicted or not tested."""
    if len(parts) <= _MOST:
        several = len(parts) > 1
        return [
            (f"{part.name}, {_brief(of)}: " if several else f"{part.name}: " if part.name else "")
            + _described(part, measure, count)
            for part, of in zip(parts, verdicts, strict=True)
        ]
    texts = [f"{len(parts)} parts"]
    if parts[0].asks in ("better", "not worse", "same"):
        ends = [e.interval(count) for part in parts for e in part.effects]
        texts = [f"of {len(ends)} comparisons in {len(parts)} parts {_sides(ends, measure)}"]
    each = [(e, part.name) for part in parts for e in part.effects[: _told(part)]]
    each.sort(key=lambda one: one[0].value)
    for what, (effect, name) in (("least", each[0]), ("most", each[-1])):
        end = effect.interval(count)
        said = _one(effect, end, measure, signed=compares(parts[0]))
        texts.append(f"{what} {said} ({name})")
    for outcome in ("contradicted", "not tested"):
        lost = [
            part.name for part, of in zip(parts, verdicts, strict=True) if of.outcome == outcome
        ]
        if lost:
            more = f" and {len(lost) - _MOST} more" if len(lost) > _MOST else ""
            texts.append(f"{outcome} in {', '.join(lost[:_MOST])}{more}")
    return texts


def _brief(of: Verdict) -> str:
    if of.positions < 2:
        return of.outcome
    counts = {"contradicted": of.contradicted, "undecided": of.undecided}
    others = "".join(f", {count} {word}" for word, count in counts.items() if count)
    return f"{of.shown} of {of.positions} shown{others}"


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


_SIDES = ("ahead", "behind", "no difference", "undecided")


def _side(end: Interval, room: float) -> str:
    if end.low > room:
        return "ahead"
    if end.high < -room:
        return "behind"
    return "no difference" if -room <= end.low and end.high <= room else "undecided"


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
    """The margin, and at which level all intervals hold together."""
    margin = f"Margin {measure.margin:g} {measure.unit}; " if any(map(compares, parts)) else ""
    if not any(effect.error for part in parts for effect in part.effects):
        return f"{margin}computed, not drawn."
    return f"{margin}{100 - 100 * MISSES:g} % intervals for all {count} together."


def smallest(parts: Sequence[ClaimPart], measure: Measure, count: int) -> str:
    """The smallest difference beyond the margin that could have been shown, in words."""
    drawn = [effect for part in parts for effect in part.effects if effect.error]
    if not drawn:
        return ""
    needed = np.array([effect.showable(count) for effect in drawn])
    usable = np.minimum(needed[np.isfinite(needed)], measure.most)
    if not usable.size:
        return "of a single run no difference can be shown"
    least, usual = (
        _factor(value) if measure.ratio else f"{value:.2g}"
        for value in (usable.min(), np.median(usable))
    )
    usually = f", at half of the positions {usual}" if len(drawn) > 1 else ""
    return (
        f"smallest {'factor' if measure.ratio else 'difference'} beyond the margin that could have "
        f"been shown (chance {100 * POWER:g} %): {least}{usually}"
    )


def _factor(log: float) -> str:
    """With as many digits as tell it from 1."""
    return f"{1 + float(f'{math.expm1(log):.1g}'):g}" if log < 1 else f"{math.exp(log):.2g}"
