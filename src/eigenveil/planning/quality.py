"""The smallest epsilon, or number of rows, at which simulated fits reach a quality.

A bisection over candidates that have no more digits than are printed. All are tried with the same
rows and the same noise in units of its scale (common random numbers,
:mod:`eigenveil.planning.trials`), so that more epsilon is hardly ever worse by luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from eigenveil.checks import LARGEST_EPSILON, MOST_WHOLE
from eigenveil.errors import DataError, PrivacyError
from eigenveil.planning.trials import Trials

Sought = Literal["epsilon", "rows"]
SOUGHT: tuple[Sought, ...] = ("epsilon", "rows")

SMALLEST_EPSILON = 0.01
LARGEST_ROWS = 1_000_000_000
# Candidates are so far apart, and of so many digits.
_STEP, _DIGITS = 1.05, 3
# The part of the fits that may show nothing without a word on it.
_SELDOM = 0.05
# The seed of the prediction that the answer is verified with.
_OTHER_SEED = 1

# What fits of a value of epsilon, or of so many rows, come to, from a seed.
Try = Callable[[float, int], Trials]


@dataclass(frozen=True)
class WhatItTakes:
    """What it takes."""

    wanted: float  # The quality that was asked for
    sought: Sought
    # The smallest at which it is predicted; `None` where none of the candidates reaches it
    value: float | None
    trials: Trials  # The fits at the answer, or at the last candidate
    verified: Trials | None  # As many fits at the answer with other rows and other noise
    reason: str  # Why nothing was found, or what to know of the answer
    # Candidates and what was predicted of them, in the order of the search
    tried: tuple[tuple[float, float | None], ...]


def check_quality(quality: float) -> None:
    """Raise unless it is a share that noise can leave."""
    if not 0.0 < quality < 1.0:
        raise DataError(
            "out-of-range",
            name="quality",
            value=quality,
            wanted="above 0 and below 1, such as 0.95",
        )


def epsilons() -> tuple[float, ...]:
    """Candidates for epsilon, ascending."""
    return _candidates(SMALLEST_EPSILON, LARGEST_EPSILON)


def row_counts(fewest: int) -> tuple[float, ...]:
    """Candidates for the number of rows, ascending: whole numbers from the fewest there can be."""
    largest = min(MOST_WHOLE, max(LARGEST_ROWS, fewest))
    found = {float(max(fewest, math.floor(each))) for each in _candidates(fewest, largest)}
    return tuple(sorted(found))


def _candidates(smallest: float, largest: float) -> tuple[float, ...]:
    count = math.ceil(math.log(largest / smallest) / math.log(_STEP))
    values = [smallest * _STEP**number for number in range(count)]
    return tuple(sorted({float(f"{each:.{_DIGITS}g}") for each in [*values, largest]}))


def smallest(
    wanted: float,
    sought: Sought,
    candidates: Sequence[float],
    try_at: Try,
    *,
    with_more_rows: Callable[[float], Trials] | None = None,
    progress: Callable[[float, Trials], None] | None = None,
) -> WhatItTakes:
    """The smallest candidate at which the wanted quality is predicted."""
    check_quality(wanted)
    tried: list[tuple[float, float | None]] = []

    def reached(value: float) -> Trials | None:
        try:
            found = try_at(value, 0)
        except PrivacyError:
            if value == candidates[-1]:
                raise
            found = Trials()  # too little for any plan
        tried.append((value, found.quality))
        if progress is not None:
            progress(value, found)
        last.append(found)
        return found if found.quality is not None and found.quality >= wanted else None

    last: list[Trials] = []
    best = reached(candidates[-1])
    if best is None:
        more = (
            None if with_more_rows is None or not last[0].fits else with_more_rows(candidates[-1])
        )
        reason = _not_reached(wanted, sought, candidates[-1], last[0], more)
        return WhatItTakes(wanted, sought, None, last[0], None, reason, tuple(tried))
    below, above = -1, len(candidates) - 1
    while above - below > 1:
        middle = (below + above) // 2
        found = reached(candidates[middle])
        if found is None:
            below = middle
        else:
            above, best = middle, found
    value = candidates[above]
    reasons = ["the smallest that is tried: less may do"] if above == 0 else []
    if best.nothing > _SELDOM * best.fits:
        reasons.append(
            "what some of these fits give is not above the noise (usable_ is False): a higher "
            "quality takes more, and shows more"
        )
    reason = "; ".join(reasons)
    verified = try_at(value, _OTHER_SEED)
    return WhatItTakes(wanted, sought, value, best, verified, reason, tuple(tried))


def _not_reached(
    wanted: float, sought: Sought, largest: float, found: Trials, more: Trials | None
) -> str:
    """Why nothing was found."""
    if found.quality is None:
        return f"nothing can be predicted: {found.note}"
    said = f"not reached at {sought} = {largest:.15g}: {found.quality:.3g} is predicted there"
    if found.nothing == found.fits and found.note:
        said += f", since {found.note}"
    if more is not None and more.quality is not None and more.quality >= wanted:
        return (
            f"{said}. The rows are too few, for with {LARGEST_ROWS:,} it is reached: --find rows "
            "answers how many it takes at an epsilon."
        )
    beside = f", nor with {LARGEST_ROWS:,} rows" if more is not None else ""
    return (
        f"{said}{beside}. What is missing is not hidden by noise: the mechanism does not release "
        "it, or there is no such structure in the data that are expected."
    )
