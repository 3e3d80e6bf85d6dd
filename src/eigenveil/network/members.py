"""The lists of members that a party has seen: the newest counts, and none goes back or aside."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar

from pydantic import ValidationError

from eigenveil.errors import OutputError, ProtocolError, of_system
from eigenveil.federation.members import (
    WARNING,
    Evidence,
    MemberEntry,
    MemberList,
    Role,
    bad_members,
    check_time,
    find,
)
from eigenveil.federation.public_key import PublicKey
from eigenveil.federation.signed import canonical
from eigenveil.files import cannot_write, hold, replacing

LARGEST = 1 << 24
"""Bytes of a list at the most: some thousand parties, and as many changes."""
_LOOK = 0.5
"""Seconds after which the file is looked at again."""
_log = logging.getLogger(__name__)


@lru_cache(4)  # many parties of one process are given the same one
def read_members(data: bytes, origin: str) -> MemberList:
    """A list, if it is the federation's and whole."""
    try:
        if len(data) > LARGEST:
            raise ValueError
        found = MemberList.model_validate_json(data)
    except (ValidationError, ValueError):
        raise bad_members("it cannot be read") from None
    found.check(origin)
    return found


def line(members: MemberList) -> bytes:
    """A list as it is kept and sent."""
    return canonical(members.model_dump(mode="json")).encode() + b"\n"


def write_members(file: Path, data: bytes) -> None:
    """Write a list, for everybody to read."""
    with replacing(file) as scratch:
        with scratch.open("wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())  # a list that is cut off could not be followed by another
        scratch.chmod(0o644)  # made to be sent


@dataclass
class MembersView:
    """Who is in by one list, as far as the newest does not revoke them (``Membership``)."""

    members: MemberList
    newest: KnownMembers
    named: dict[str, list[MemberEntry]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for each in self.members.entries:
            self.named.setdefault(each.name, []).append(each)

    @property
    def federation(self) -> str:
        return self.newest.origin

    @cached_property
    def digest(self) -> str:
        """Of this list's head; asked some ten times a message."""
        return self.members.digest

    def role(self, name: str) -> Role:
        return self.entry(name).role

    def key(self, *, role: str, name: str) -> PublicKey:
        return PublicKey.parse(self.entry(name, role).key)

    def sealing(self, name: str) -> str:
        return self.entry(name).sealing

    def evidence(self, names: Collection[str]) -> Evidence:
        return Evidence.of(self.members, names)

    def entry(self, name: str, role: str | None = None) -> MemberEntry:
        """A member's entry in this list, which the newest must not have revoked."""
        newest, now = self.newest.view(), datetime.now(UTC)
        check_time(newest.members.head, now)
        own = self.named.get(name, [])
        if newest is self:
            return find(own, name, now, role=role)
        found = find(own, name, self.members.head.since, role=role)
        later = [each for each in newest.named.get(name, []) if each.key == found.key]
        if not later or later[0].revoked:
            find(later, name, now)  # says so
        return found


@dataclass
class KnownMembers:
    """The newest list that a party has seen; read again when its file changes (``Membership``)."""

    LISTS: ClassVar[str] = "lists"
    file: Path  # The list; older ones are kept in the folder `lists` beside it, for runs that go on
    origin: str  # The fingerprint of the federation's first registrar, which the party pinned
    _mark: tuple[int, int, int] | None = None
    _known: MemberList | None = None
    _looked: float = 0.0
    _views: dict[str, MembersView] = field(default_factory=dict)
    _newest: MembersView | None = None
    _seen: MemberList | None = None
    _guard: threading.RLock = field(default_factory=threading.RLock)

    @property
    def federation(self) -> str:
        return self.origin

    @property
    def digest(self) -> str:
        return self.view().digest

    def role(self, name: str) -> Role:
        return self.view().role(name)

    def key(self, *, role: str, name: str) -> PublicKey:
        return self.view().key(role=role, name=name)

    def sealing(self, name: str) -> str:
        return self.view().sealing(name)

    def evidence(self, names: Collection[str]) -> Evidence:
        return Evidence.of(self.current(), names)

    def names(self, role: str) -> tuple[str, ...]:
        now = datetime.now(UTC)
        entries = self.current().entries
        return tuple(each.name for each in entries if each.role == role and each.is_in(now))

    def at(self, digest: str) -> MembersView:
        """Who is in by a list that was seen, as a run that began with it goes on with it."""
        with self._guard:
            if digest == self.digest:
                return self.view()
            if digest not in self._views:
                self._views[digest] = MembersView(self._kept(digest), self)
            return self._views[digest]

    def check_begins(self, digest: str, names: Collection[str]) -> None:
        """Raise where a list has other keys for these parties than the newest has now.

        A key that was replaced, because it was stolen perhaps, begins no run any more.
        """
        began, newest = self.at(digest), self.view()
        for name in names:
            if began is not newest and began.entry(name).key != newest.entry(name).key:
                what = f"{name} has another key since the list by which the run begins"
                raise ProtocolError("other-members", what=what)

    def vouch(self, evidence: Evidence) -> None:
        """Raise unless evidence is of a list that this party's follows from, and of keys that hold.

        What a key signed before it was replaced holds; before it was revoked, nobody can tell.
        """
        newest, head = self.current(), evidence.head
        if head.number > newest.head.number:
            raise ProtocolError(
                "other-members", what=f"The list of members, number {head.number}, is not here yet"
            )
        self._same(newest, head.number, head.digest)
        for each in evidence.entries:
            same = [known for known in newest.entries if known.key == each.key]
            if each.is_in(head.since) and same[0].revoked:
                find(same, each.name, datetime.now(UTC))  # says so

    def current(self) -> MemberList:
        with self._guard:
            now = time.monotonic()
            if self._known is None or now - self._looked >= _LOOK:
                self._read()
                self._looked = now
            if self._known is None:
                raise ProtocolError("no-members", parent=self.file.parent)
            return self._known

    def data(self) -> bytes:
        return line(self.current())

    def mark(self) -> tuple[int, str]:
        """What a ledger keeps of the newest list: its number and digest."""
        head = self.current().head
        return head.number, head.digest

    def not_before(self, number: int, digest: str) -> None:
        """Raise where the newest list is older than, or aside from, one that was marked."""
        self._follows(self.current(), number, digest, "a list was restored from a backup")

    def warning(self) -> str:
        """What to say of a list that expires soon; empty where it does not."""
        head = self.current().head
        left = head.until - datetime.now(UTC)
        if left > WARNING:
            return ""
        return (
            f"The list of members, number {head.number}, expires in {max(left.days, 0)} days: ask "
            "the registrar for the next one."
        )

    def adopt(self, data: bytes) -> bool:
        """Take over a list that somebody brought; whether it is newer than the one before."""
        new = read_members(data, self.origin)
        with self._guard, self._turn():
            self._read()
            known = self._known
            if known is not None:
                if new.head.number <= known.head.number:
                    # an older one that is of the same chain is no reproach
                    self._same(known, new.head.number, new.digest)
                    return False
                self._follows(new, known.head.number, known.digest, "")
            check_time(new.head, datetime.now(UTC))
            write_members(self._place(new.digest), data)
            write_members(self.file, data)
            self._read()
            _log.info("list of members, number %d, was taken over", new.head.number)
            return True

    def _read(self) -> None:
        try:
            found = self.file.stat()
        except FileNotFoundError:
            self._known = None
            return
        except OSError as problem:
            raise _unreadable(self.file, problem) from None
        mark = (found.st_mtime_ns, found.st_size, found.st_ino)
        if mark == self._mark:
            return
        try:
            new = read_members(self.file.read_bytes(), self.origin)
        except OSError as problem:
            raise _unreadable(self.file, problem) from None
        if self._known is not None:  # in this process, at least, nothing goes back
            head = self._known.head
            self._follows(new, head.number, head.digest, "its file was replaced by an older one")
        self._known, self._mark = new, mark

    def view(self) -> MembersView:
        with self._guard:
            known = self.current()
            if self._newest is None or known is not self._seen:
                made = MembersView(known, self)
                self._newest, self._seen = self._views.setdefault(made.digest, made), known
            return self._newest

    def _kept(self, digest: str) -> MemberList:
        try:
            return read_members(self._place(digest).read_bytes(), self.origin)
        except OSError:
            raise ProtocolError(
                "other-members", what="A run began with a list of members that this party never saw"
            ) from None

    def _place(self, digest: str) -> Path:
        return self.file.parent / self.LISTS / f"{digest}.json"

    def _follows(self, new: MemberList, number: int, digest: str, why: str) -> None:
        if new.head.number < number:
            raise ProtocolError(
                "older-members", number=new.head.number, seen=number, why=f": {why}" if why else ""
            )
        self._same(new, number, digest)

    def _same(self, members: MemberList, number: int, digest: str) -> None:
        if members.heads[number - 1].said.digest != digest:
            raise ProtocolError("forked-members", number=number)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One process at a time brings a list."""
        place = self.file.parent / self.LISTS
        try:
            place.mkdir(parents=True, exist_ok=True)
            lock = (place / ".lock").open("a")
        except OSError as problem:
            raise cannot_write(place, problem) from None
        with lock:
            hold(lock, wait=True)
            yield


def _unreadable(file: Path, problem: OSError) -> OutputError:
    return OutputError("cannot-read", path=file, reason=of_system(problem))
