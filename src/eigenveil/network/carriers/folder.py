"""Mail as files: on a share, in a store (``s3://``, ``sftp://``), and in the spool of a relay.

``ROOT/<recipient>/<SHA-256>.eve`` is an envelope (:mod:`eigenveil.network.carriers.shelves`). A
reader checks the digest, so half a file is no mail yet.

A relay's spool is one party's: ``out/<recipient>/<SHA-256>.eve`` is what it sends (a relay removes
what it has handed on), ``in/<SHA-256>.eve`` what came for it (written as above).
"""

from __future__ import annotations

import heapq
import re
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from eigenveil.errors import DataError, ProtocolError, printable
from eigenveil.network.carriers.shelves import LocalShelf, MailFile, Shelf, StoreShelf
from eigenveil.network.mailbox import LARGEST, Mailbox, check_recipient, digest_of
from eigenveil.network.relays import check_apart

MOST_LOOKED_AT = 4096
"""Files whose names are kept at a look; others wait for the next."""
MOST_TAKEN = 1 << 26
"""Bytes after which no more is read at a look."""
_TURN = 1.0  # seconds of a look into one of two mailboxes


def folder_name(name: str) -> str:
    """A member's name as every share can have it: small letters, digits, ``-``, ``_``, ``.``.

    Other bytes are ``=`` and two digits, capitals too, since some shares do not tell them apart.
    """
    check_recipient(name)
    quoted = re.sub(r"[^a-z0-9._-]", lambda found: f"={ord(found[0]):02x}", name)
    # Windows has devices of these names, whatever their ending, and drops a dot at an end
    if quoted.endswith(".") or re.match(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", quoted):
        quoted = f"={ord(quoted[0]):02x}{quoted[1:]}" if quoted[-1] != "." else f"{quoted[:-1]}=2e"
    return quoted


def member_name(quoted: str) -> str:
    """The name that :func:`folder_name` made a folder's."""
    return re.sub(r"=([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), quoted)


class FolderMailbox:
    """A member's mailbox on a shelf: its own box, and one for each recipient."""

    def __init__(self, shelf: Shelf, own: str, box_of: Callable[[str], str]) -> None:
        self.shelf, self._own, self._box_of = shelf, own, box_of
        self._pace = shelf.pace[0]
        self._closed = threading.Event()
        self._after = ""
        self._damaged: set[MailFile] = set()  # what does not have its digest, as it was

    def put(self, recipient: str, envelope: bytes) -> None:
        if not 0 < len(envelope) <= LARGEST:
            raise ProtocolError(
                "too-large", sender=f"To {recipient}", size=len(envelope), most=LARGEST
            )
        self.shelf.write(self._box_of(check_recipient(recipient)), digest_of(envelope), envelope)
        self._pace = self.shelf.pace[0]

    def take(self, wait: float, known: Collection[str] = ()) -> list[bytes]:
        end = time.monotonic() + wait
        while not self._closed.is_set():
            began = time.monotonic()
            mail = self._look(known)
            now = time.monotonic()
            if mail or now >= end:
                self._pace = self.shelf.pace[0] if mail else self._pace
                return mail
            # a folder that is slow to list is not listed all the time
            self._closed.wait(min(max(self._pace, now - began), end - now))
            self._pace = min(self._pace * 1.5, self.shelf.pace[1])
        return []

    def _look(self, known: Collection[str]) -> list[bytes]:
        new = (
            each
            for each in self.shelf.found(self._own)
            if each.digest not in known and each not in self._damaged
        )
        mail: list[bytes] = []
        length = 0
        # of very many, some at a look and others at the next: no stranger's files are in the way
        some = heapq.nsmallest(
            MOST_LOOKED_AT, new, key=lambda each: (each.digest <= self._after, each.digest)
        )
        self._after = some[-1].digest if len(some) == MOST_LOOKED_AT else ""
        for each in sorted(some):
            if mail and length + each.size > MOST_TAKEN:
                break
            envelope = self.shelf.read(self._own, each)
            if envelope is None:
                continue
            if digest_of(envelope) != each.digest:  # being copied, or not by a party
                if len(self._damaged) >= MOST_LOOKED_AT:
                    self._damaged.clear()
                self._damaged.add(each)
                continue
            mail.append(envelope)
            length += len(envelope)
        return mail

    def forget(self, digests: Collection[str]) -> None:
        for digest in digests:
            if re.fullmatch("[0-9a-f]{64}", digest):
                self.shelf.remove(self._own, digest)

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        self._closed.set()


# -- The carriers.


def place_of(address: str, default: Path | None = None) -> Path:
    """The folder that an address names."""
    path = Path(address.partition(":")[2] or default or "").expanduser()
    if not path.is_absolute():
        raise DataError("bad-address", address=printable(address))
    return path


class FolderCarrier:
    """``folder:/path`` and stores (``s3://bucket/prefix``): all parties reach the same folder."""

    scheme = "folder"

    def open(self, party: Any, address: str) -> FolderMailbox:
        local = address.startswith("folder:")
        shelf: Shelf = LocalShelf(place_of(address)) if local else StoreShelf(address)
        return FolderMailbox(shelf, folder_name(party.name), folder_name)


def spool_of(party: Any, address: str = "") -> Path:
    """Where a party's mail waits for a relay: by default ``mail`` in its own folder."""
    relayed = address.partition(":")[0] in ("flare", "flower", "exchange")
    return place_of(address if relayed else "exchange:", Path(party.folder).absolute() / "mail")


class RelayCarrier:
    """``flare:/path``, ``flower:/path``: a relay carries what is in the party's spool."""

    scheme = "flare"

    def open(self, party: Any, address: str) -> FolderMailbox:
        """The mailbox of a party, whose spool is made where it is missing.

        ``exchange:`` is one that a person carries; see :mod:`eigenveil.app.exchange`.
        """
        spool = spool_of(party, address)
        shelf = LocalShelf(spool)
        shelf.make("in", "out")
        if not address.startswith("exchange:"):
            check_apart(Path(party.folder), spool)
        return FolderMailbox(shelf, "in", lambda name: f"out/{folder_name(name)}")


class WithSpool:
    """A mailbox of one who writes to some members by a spool, which a person carries."""

    def __init__(self, mailbox: Mailbox, party: Any, names: Collection[str]) -> None:
        self._mailbox, self._names = mailbox, frozenset(names)
        self._spool = RelayCarrier().open(party, "exchange:")

    def put(self, recipient: str, envelope: bytes) -> None:
        (self._spool if recipient in self._names else self._mailbox).put(recipient, envelope)

    def take(self, wait: float, known: Collection[str] = ()) -> list[bytes]:
        """Own mail of both, which is looked for by turns."""
        end = time.monotonic() + wait
        while True:
            brought = self._spool.take(0, known)
            left = 0.0 if brought else max(0.0, min(_TURN, end - time.monotonic()))
            found = brought + self._mailbox.take(left, known)
            if found or time.monotonic() >= end or self._spool.is_closed:
                return found

    def forget(self, digests: Collection[str]) -> None:
        self._spool.forget(digests)
        self._mailbox.forget(digests)

    def close(self) -> None:
        self._spool.close()
        self._mailbox.close()
