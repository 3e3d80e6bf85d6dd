"""How much is tried: a tenth in ``make test``, all of it in ``make nightly``.

``EIGENVEIL_SOAK`` is the part of the full counts, .1 by default: ``times(20_000)`` is 2,000 in
``make test``, ``seldom(20_000)`` 500. It is the only factor: hypothesis tries
``settings(max_examples=times(...))``, too, and finds new examples where it is 1. What was tried is
counted; with ``EIGENVEIL_COUNTS`` naming a file, outcomes and counts are written there.
"""

import json
import math
import os
from collections import Counter
from pathlib import Path

import pytest

SOAK = float(os.environ.get("EIGENVEIL_SOAK", "0.1"))
# Messages of each kind, of each attack and each attacker.
MESSAGES = 100
KINDS = (
    "killed", "forged", "replayed", "reordered",
    "edited", "queried", "combined", "entered", "drawn",
)  # fmt: skip
_COUNTS: Counter = Counter()


def times(full: float) -> int:
    """How often now what ``make nightly`` does ``full`` times; at least once."""
    return max(1, math.ceil(full * SOAK - 1e-9))


def seldom(full: int) -> int:
    """The same of what takes seconds a time: a fortieth in ``make test``."""
    return times(full if SOAK >= 1 else full / 4)


MANY = times(MESSAGES)


def some(cases, step=2):
    """Every so many-th case; the others only where all thorough tests are run."""
    rest = pytest.mark.thorough
    each = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=[rest] * (n % step > 0)) for n, case in enumerate(each)]


def count(kind: str, what: str, tried: int, accepted: int = 0) -> None:
    """Note what was tried; ``accepted``: how many of it had an effect that nothing forged may have.

    Of a kill, the effect is something lost, charged twice or not charged; of an edited certificate,
    that it stays valid.
    """
    assert kind in KINDS
    _COUNTS[kind, what, "tried"] += tried
    _COUNTS[kind, what, "accepted"] += accepted


def taken() -> list[list[object]]:
    """The counts, as plain values, for another process."""
    return [[*key, number] for key, number in _COUNTS.items()]


def add(rows: list[list[object]]) -> None:
    """Counts of another process."""
    for *key, number in rows:
        _COUNTS[tuple(key)] += number


def write(place: str, outcomes: dict[str, int]) -> None:
    """Outcomes of the tests, and what they tried."""
    Path(place).write_text(json.dumps({"outcomes": outcomes, "counts": taken()}), encoding="utf-8")
