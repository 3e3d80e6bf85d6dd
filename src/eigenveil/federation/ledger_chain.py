"""The chain of a ledger's entries: each one holds the hash of the one before.

``hash = SHA-256(canonical JSON of {number, time, kind, body, previous})``; the first ``previous``
is 64 zeros. So no entry can be changed, taken out or put in without changing all that follow.
Whoever can write the file can also compute the whole chain anew: against the ledger's own keeper it
helps only where the last hash was noted elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from eigenveil.errors import DataError

Kind = Literal["budget", "begin", "answer", "charge", "end"]
FIRST = "0" * 64


@dataclass(frozen=True)
class Entry:
    """One entry: ``time`` is UTC in ISO format, ``previous`` and ``hash`` are SHA-256 in hex."""

    number: int
    time: str
    kind: Kind
    body: Mapping[str, Any]
    previous: str
    hash: str

    def line(self) -> str:
        """The entry as one line of canonical JSON."""
        return canonical(asdict(self))


class BrokenChain(DataError):
    """An entry is not what was once written; ``entry`` is its number, ``why`` a clause."""

    def __init__(self, entry: int, why: str) -> None:
        super().__init__(
            f"The ledger's chain does not hold: entry {entry} {why}.",
            hint="It was changed by something else than eigenveil; go back to a copy that holds.",
            code="chain-broken",
        )
        self.entry, self.why = entry, why


def canonical(value: object) -> str:
    """The one JSON text of a value: keys in order, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def seal(number: int, time: str, kind: Kind, body: Mapping[str, Any], previous: str) -> Entry:
    """The entry with its hash."""
    return Entry(number, time, kind, body, previous, _hash(number, time, kind, body, previous))


def opened(
    number: int, time: str, kind: Kind, text: str | bytes, previous: str, sealed: str
) -> Entry:
    """The entry as it is stored, its body as JSON; no hash is checked.

    Raises
    ------
    BrokenChain
        When the body is not the canonical JSON of an object.
    """
    try:
        body = json.loads(text)
        if isinstance(body, dict) and canonical(body) == text:
            return Entry(number, time, kind, body, previous, sealed)
    except (TypeError, ValueError, RecursionError):
        pass
    raise BrokenChain(number, "holds something else than what was written")


def checked(entries: Iterable[Entry], *, count: int, last: str) -> Iterator[Entry]:
    """The entries, each one checked; ``count`` and ``last`` hash are those that the head names.

    Raises
    ------
    BrokenChain
        At the first entry that is wrong, missing or too many.
    """
    expected, previous = 1, FIRST
    for entry in entries:
        if entry.number != expected:
            if entry.number > expected:
                raise BrokenChain(expected, "is missing")
            raise BrokenChain(entry.number, "has no place")
        if entry.previous != previous:
            raise BrokenChain(entry.number, "does not follow the one before")
        if entry.hash != _hash(entry.number, entry.time, entry.kind, entry.body, entry.previous):
            raise BrokenChain(entry.number, "is not the one whose hash is recorded")
        if entry.number > count:
            raise BrokenChain(entry.number, "is beyond the last one that the ledger's head counts")
        yield entry
        expected, previous = expected + 1, entry.hash
    if expected <= count:
        raise BrokenChain(expected, f"is missing: the ledger's head counts {count}")
    if previous != last:
        raise BrokenChain(count, "is not the last one that the ledger's head names")


def _hash(number: int, time: str, kind: Kind, body: Mapping[str, Any], previous: str) -> str:
    sealed = {"number": number, "time": time, "kind": kind, "body": body, "previous": previous}
    try:
        return hashlib.sha256(canonical(sealed).encode()).hexdigest()
    except TypeError:  # bytes where text was written
        return ""
