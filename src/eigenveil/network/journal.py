"""The journal of a run: every call of the aggregator and what came of it, so that it can go on.

An aggregator's role is a generator that draws nothing: the same answers lead it to the same
questions, byte for byte. So its state is the list of answers. Each call is written down before it
is sent (by a digest), and its answers before they are used; both are on the disk before anything
else happens. An aggregator that was killed is started again with the same session, is given the
answers that are in the journal, and sends the one call that may be open once more: a site has its
answer in its ledger and gives the same bytes, so nothing is charged twice.

Should the new process come to another question than the journal has (other software, another
processor), the run ends there: nothing is asked twice in two ways.

A record is its length (8 bytes, little-endian), its SHA-256, the length of its header (4 bytes),
the header as JSON, and the answers. The last one may be cut off by a kill: it is dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from eigenveil.errors import (
    DataError,
    EigenveilError,
    OutputError,
    ProtocolError,
    of_system,
    received_code,
)
from eigenveil.federation.protocol.requests import Replies
from eigenveil.files import cannot_write, hold, sync_folder
from eigenveil.network.orders import Order, kept_order

FORMAT = "eigenveil-journal-2"
# Starts in a row after which no call was answered: the run is given up.
MOST_IDLE_STARTS = 5
# Seconds between two starts that follow each other fast.
_FAST = 600.0
_DIGEST = 32
_PREFIX = 8 + _DIGEST


@dataclass
class _Recorded:
    """A call: its digest, and where its answers are; nowhere while there are none."""

    method: str
    digest: str
    at: int | None = None


@dataclass
class Journal:
    """An open journal; nobody else has it open.

    ``members`` is the digest of the list that the run is under. ``starts`` counts how often a
    process began or went on with the run, this one included, ``idle_starts`` how many of the last
    ones did so fast, and without an answer.
    """

    path: Path
    order: Order
    members: str
    starts: int = 0
    idle_starts: int = 0
    _started_at: float = 0.0
    _file: BinaryIO | None = None
    _calls: list[_Recorded] = field(default_factory=list)

    @classmethod
    def begin(cls, path: Path, order: Order, members: str) -> Journal:
        """The journal of a run that begins, or goes on where there is one."""
        if path.exists():
            return cls.resume(path)
        scratch = path.with_name(f"{path.name}.new")  # whoever looks for journals finds whole ones
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            raise cannot_write(path, error) from None
        journal = cls(path, order, members, _file=os.fdopen(handle, "r+b"))
        journal._lock()
        begun = {"kind": "begun", "format": FORMAT, "order": order.line.decode()}
        journal._append(begun | {"members": members})
        journal._started()
        try:
            scratch.replace(path)
            sync_folder(path.parent)
        except OSError as error:
            raise cannot_write(path, error) from None
        return journal

    @classmethod
    def resume(cls, path: Path) -> Journal:
        """A journal that is there, with the calls that it has."""
        try:
            file = path.open("r+b")
        except OSError as error:
            raise OutputError("cannot-read", path=path, reason=of_system(error)) from None
        journal = cls(path, _NO_ORDER, "", _file=file)
        journal._lock()
        try:
            journal._read()
        except BaseException:
            file.close()
            raise
        journal._started()
        return journal

    def close(self) -> None:
        """Let another process have it."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Delete it: the run is over, and its end is written elsewhere."""
        self.path.unlink(missing_ok=True)
        self.close()

    # -- calls

    def ask(self, number: int, method: str, payloads: Mapping[str, bytes]) -> None:
        """Note call ``number`` before it is sent, or check that it is the one that was noted."""
        digest = _digest(method, payloads)
        if number < len(self._calls):
            if self._calls[number].digest != digest:
                raise ProtocolError("cannot-resume", method=method)
            return
        self._append({"kind": "asked", "method": method, "digest": digest})
        self._calls.append(_Recorded(method, digest))

    def answers(self, number: int) -> tuple[Replies, float] | None:
        """What came of call ``number``, and the seconds it took; ``None`` while that is open."""
        at = self._calls[number].at
        if at is None:
            return None
        header, blob = self._record(at)
        replies: dict[str, bytes] = {}
        start = 0
        for name, size in header["replies"].items():
            replies[name] = blob[start : start + size]
            start += size
        failures: dict[str, EigenveilError] = {
            name: ProtocolError.relayed(message, code=received_code(code))
            for name, (code, message) in header["failures"].items()
        }
        return (replies, failures), float(header["seconds"])

    def answer(self, number: int, answers: Replies, seconds: float) -> None:
        replies, failures = answers
        header = {
            "kind": "answered",
            "call": number,
            "replies": {name: len(body) for name, body in replies.items()},
            "failures": {name: [each.code, each.message] for name, each in failures.items()},
            "seconds": seconds,
        }
        self._calls[number].at = self._append(header, *replies.values())
        self.idle_starts = 0

    # -- the file

    def _lock(self) -> None:
        assert self._file is not None
        if not hold(self._file):
            self.close()
            raise OutputError("journal-in-use", path=self.path)

    def _started(self) -> None:
        now = time.time()
        self._append({"kind": "started", "time": now})
        self._note_start(now)

    def _note_start(self, at: float) -> None:
        """Of starts that follow each other fast: a crash does that, and not who waits for days."""
        self.idle_starts = self.idle_starts + 1 if at < self._started_at + _FAST else 1
        self.starts, self._started_at = self.starts + 1, at

    def _append(self, header: Mapping[str, Any], *blobs: bytes) -> int:
        """Write a record and have it on the disk; where it is."""
        assert self._file is not None
        text = json.dumps(header).encode()
        parts = [len(text).to_bytes(4, "little"), text, *blobs]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        size = sum(map(len, parts))
        try:
            at = self._file.seek(0, os.SEEK_END)
            self._file.write(b"".join([size.to_bytes(8, "little"), digest.digest(), *parts]))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise cannot_write(self.path, error) from None
        return at

    def _record(self, at: int) -> tuple[dict[str, Any], bytes]:
        """Header and answers of the record that begins there; ``ValueError`` where it is none."""
        assert self._file is not None
        self._file.seek(at)
        prefix = self._file.read(_PREFIX)
        size = int.from_bytes(prefix[:8], "little")
        if size > os.fstat(self._file.fileno()).st_size:  # of a record that was cut off: anything
            raise ValueError
        body = self._file.read(size)
        if len(body) != size or hashlib.sha256(body).digest() != prefix[8:]:
            raise ValueError
        end = 4 + int.from_bytes(body[:4], "little")
        return json.loads(body[4:end]), body[end:]

    def _read(self) -> None:
        """Find all records; the last one is dropped if it is cut off."""
        assert self._file is not None
        size, at = os.fstat(self._file.fileno()).st_size, 0
        while at < size:
            self._file.seek(at)
            prefix = self._file.read(_PREFIX)
            end = at + _PREFIX + int.from_bytes(prefix[:8], "little")
            try:
                header, _ = self._record(at)
            except ValueError:
                if len(prefix) == _PREFIX and end < size:
                    raise _damaged(self.path) from None
                self._file.truncate(at)
                break
            try:
                self._take(header, at)
            except (KeyError, TypeError, ValueError, IndexError, EigenveilError):
                raise _damaged(self.path) from None
            at = end
        if self.order is _NO_ORDER:
            raise _damaged(self.path)

    def _take(self, header: Mapping[str, Any], at: int) -> None:
        match header["kind"]:
            case "begun":
                if header["format"] != FORMAT:
                    raise ValueError(header["format"])
                self.order = kept_order(header["order"].encode())
                self.members = str(header["members"])
            case "started":
                self._note_start(float(header["time"]))
            case "asked":
                self._calls.append(_Recorded(str(header["method"]), str(header["digest"])))
            case "answered":
                self._calls[header["call"]].at = at
                self.idle_starts = 0
            case other:
                raise ValueError(other)


_NO_ORDER: Any = None


class Calls(Protocol):
    """A transport of a study between organisations."""

    def call(self, method: str, payloads: Mapping[str, bytes], timeout: float) -> Replies: ...

    def hurry(self) -> None:
        """From now on calls are last words."""


# Told of each call that the journal answers: method, messages, replies, and the seconds it took.
Replayed = Callable[[str, Mapping[str, bytes], Mapping[str, bytes], float], None]


class Journaled:
    """A transport whose calls are in a journal: those that it has are not sent again."""

    def __init__(self, transport: Calls, journal: Journal, replayed: Replayed) -> None:
        self._transport, self._journal, self._replayed = transport, journal, replayed
        self._next = 0

    def hurry(self) -> None:
        self._transport.hurry()

    def call(self, method: str, payloads: Mapping[str, bytes], timeout: float) -> Replies:
        number, self._next = self._next, self._next + 1
        self._journal.ask(number, method, payloads)
        if (known := self._journal.answers(number)) is not None:
            found, seconds = known
            self._replayed(method, payloads, found[0], seconds)
            return found
        begun = time.monotonic()
        answers = self._transport.call(method, payloads, timeout)
        self._journal.answer(number, answers, time.monotonic() - begun)
        return answers


def _digest(method: str, payloads: Mapping[str, bytes]) -> str:
    """Of a call: its method, and each party's message; most get the same one."""
    known: dict[int, str] = {}
    whole = hashlib.sha256(json.dumps([method, list(payloads)]).encode())
    for body in payloads.values():
        if id(body) not in known:
            known[id(body)] = hashlib.sha256(body).hexdigest()
        whole.update(known[id(body)].encode())
    return whole.hexdigest()


def _damaged(path: Path) -> DataError:
    return DataError("journal-damaged", path=path)
