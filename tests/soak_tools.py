"""How often attacks and kills are tried: a tenth in every run, all of it in ``make soak``.

``EIGENVEIL_SOAK`` is the part of the full counts: 1 in a soak, 0.1 by default. What was tried is
counted; with ``EIGENVEIL_SOAK_TABLE`` naming a file, the counts are written there as a table.
"""

import math
import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

SOAK = float(os.environ.get("EIGENVEIL_SOAK", "0.1"))
# Messages of each kind, of each attack and each attacker.
MESSAGES = 100
KINDS = ("killed", "forged", "replayed", "reordered")
_COUNTS: Counter = Counter()


def times(full: int) -> int:
    """How often now what a soak does ``full`` times; at least once."""
    return max(1, math.ceil(full * SOAK - 1e-9))


MANY = times(MESSAGES)


def count(kind: str, what: str, tried: int, accepted: int = 0) -> None:
    """Note what was tried; ``accepted``: how many of it had an effect that nothing forged may have.

    Of a kill, the effect is something lost, charged twice or not charged.
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


def write(path: Path, passed: bool) -> None:
    """The table."""
    found = sorted({key[:2] for key in _COUNTS}, key=lambda key: (KINDS.index(key[0]), key[1]))
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    lines = [
        "# What a soak tried",
        "",
        f"Written by `make soak` on {when}: {SOAK:g} of the full counts; "
        + ("all tests passed." if passed else "SOME TESTS FAILED.")
        + " *Accepted* counts messages that had an effect, and kills after which something was "
        "lost, charged twice or not charged.",
        "",
        "| fault | where | tried | accepted |",
        "|---|---|---|---|",
    ]
    for kind in KINDS:
        rows = [
            (what, *(_COUNTS[kind, what, how] for how in ("tried", "accepted")))
            for found_kind, what in found
            if found_kind == kind
        ]
        rows.append(("**all**", sum(row[1] for row in rows), sum(row[2] for row in rows)))
        lines += [f"| {kind} | {what} | {tried} | {accepted} |" for what, tried, accepted in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
