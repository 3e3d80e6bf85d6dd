"""A spool folder at each end, and messages that carry pieces of its files from one to the other.

``out/<recipient>/<sha256>.eve`` is written by the party, ``in/<sha256>.eve`` here. A file leaves
``out`` once the other end has the whole of it on its disk under the digest that is its name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

FILE = re.compile(r"[0-9a-f]{64}\.eve")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}")  # of a member
LARGEST = 256 << 20  # bytes of one file
MOST_FILES, MOST_BYTES = 10_000, 4 << 30  # of what waits in one spool
PIECES = 64  # of files in one message
HEAD = 64 << 10  # bytes of a message's head
CHUNK = 16 << 20  # bytes of files in one message
WHOLE = -1  # "I have it": its sender removes it


class SpoolError(Exception):
    """One line for the network's log."""


def pack(head: dict[str, Any], body: bytes = b"") -> bytes:
    """A message: the head's length, the head, the pieces one after the other."""
    text = json.dumps(head).encode()
    return len(text).to_bytes(4, "big") + text + body


def unpack(data: object, limit: int = CHUNK + HEAD + 4) -> tuple[dict[str, Any], bytes]:
    """Its head and its pieces; anything odd is refused whole."""
    if not isinstance(data, bytes) or not 4 <= len(data) <= limit:
        raise SpoolError("the other end sent no message of a relay")
    length = int.from_bytes(data[:4], "big")
    if length > min(HEAD, len(data) - 4):
        raise SpoolError("a message's head is too long")
    try:
        head = json.loads(data[4 : 4 + length])
        pieces, have = head["pieces"], head["have"]
        good = all(
            FILE.fullmatch(digest + ".eve")
            and all(type(n) is int and n >= 0 for n in numbers)
            and len(numbers) == 3
            for digest, *numbers in pieces
        ) and all(
            FILE.fullmatch(digest + ".eve") and type(n) is int and n >= WHOLE
            for digest, n in have.items()
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        good = False
    if not good or len(pieces) > PIECES or sum(n for *_, n in pieces) != len(data) - 4 - length:
        raise SpoolError("a message's head is malformed")
    return head, data[4 + length :]


def member(folder: str) -> str:
    """Whose mail a folder of ``out`` holds; a capital and such are written as ``=41``."""
    return re.sub("=([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), folder)


class Spool:
    """One party's folder, as the network's user sees it."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        for part in ("in", "out"):
            if not os.access(self.root / part, os.W_OK | os.X_OK):
                raise SpoolError(
                    f"no spool: {self.root / part} is no folder that this user may write to;"
                    " make it with 'eigenveil relay spool', and see relays.md of eigenveil"
                )
        self.parts = self.root / ".relay"
        self.parts.mkdir(mode=0o700, exist_ok=True)
        for old in self.parts.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - old.stat().st_mtime > 86_400:
                    old.unlink()

    # -- from here

    def _folders(self, recipient: str | None) -> list[str]:
        """Folders of ``out``: one member's, or all."""
        return [
            entry.path
            for entry in os.scandir(self.root / "out")
            if NAME.fullmatch(name := member(entry.name))
            and recipient in (None, name)
            and entry.is_dir(follow_symlinks=False)
        ]

    def outgoing(self, recipient: str | None = None) -> list[Path]:
        """Files to send, oldest first; strangers' names, links and giants are left alone."""
        found = []
        for folder in self._folders(recipient):
            for entry in os.scandir(folder):
                if FILE.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):  # gone meanwhile
                        state = entry.stat(follow_symlinks=False)
                        if state.st_size <= LARGEST:
                            found.append((state.st_mtime_ns, entry.path))
        return [Path(path) for _, path in sorted(found)]

    def pieces(
        self, have: dict[str, int], recipient: str | None = None, room: int = CHUNK
    ) -> tuple[list[list[str | int]], bytes]:
        """The next pieces of what is to be sent, from where the other end says it is."""
        listed: list[list[str | int]] = []
        body = bytearray()
        for path in self.outgoing(recipient):
            if len(listed) == PIECES or len(body) >= room:
                break
            try:
                with path.open("rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    offset = max(0, min(have.get(path.stem, 0), size))
                    if not offset and hashlib.file_digest(file, "sha256").hexdigest() != path.stem:
                        continue  # no letter of ours: its name is not its digest
                    file.seek(offset)
                    piece = file.read(room - len(body))
            except OSError:  # gone meanwhile
                continue
            listed.append([path.stem, size, offset, len(piece)])
            body += piece
        return listed, bytes(body)

    def confirm(self, have: dict[str, int], recipient: str | None = None) -> None:
        """Removes what the other end has whole."""
        for digest, count in have.items():
            if count == WHOLE:
                for folder in self._folders(recipient):
                    Path(folder, f"{digest}.eve").unlink(missing_ok=True)

    # -- to here

    def receive(self, peer: str, head: dict[str, Any], body: bytes) -> dict[str, int]:
        """Keeps each piece; how much of each file is here now."""
        have, at = {}, 0
        if head["pieces"]:
            full = self._full()
        for digest, size, offset, length in head["pieces"]:
            piece, at = body[at : at + length], at + length
            have[digest] = self._keep(peer, digest, size, offset, piece, full)
        return have

    def _full(self) -> bool:
        sizes = [entry.stat().st_size for entry in os.scandir(self.root / "in")]
        return len(sizes) >= MOST_FILES or sum(sizes) >= MOST_BYTES

    def _keep(
        self, peer: str, digest: str, size: int, offset: int, piece: bytes, full: bool
    ) -> int:
        target = self.root / "in" / f"{digest}.eve"
        if target.exists():
            return WHOLE
        mark = hashlib.sha256(peer.encode()).hexdigest()[:16]
        part = self.parts / f"{mark}-{digest}"
        here = part.stat().st_size if part.exists() else 0
        crowded = not here and sum(1 for _ in self.parts.glob(f"{mark}-*")) >= PIECES
        if full or crowded or size > LARGEST or offset + len(piece) > size or offset > here:
            return here
        with part.open("r+b" if here else "wb") as file:
            file.seek(offset)
            file.write(piece)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        here = offset + len(piece)
        if here < size:
            return here
        with part.open("rb") as file:
            whole = hashlib.file_digest(file, "sha256").hexdigest() == digest
        if whole:
            part.chmod(self.root.stat().st_mode & 0o660)
            part.rename(target)
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            return WHOLE
        part.unlink()
        return 0


def answer(
    spool: Spool, data: object, name: str = "", stopped: Callable[[], bool] = lambda: False
) -> bytes:
    """A client's answer: it keeps what came, waits a while for files of its own, sends them."""
    head, body = unpack(data)
    spool.confirm(head["have"])
    have = spool.receive("server", head, body)
    wait = head.get("wait")
    if not isinstance(wait, int | float) or not 0 <= wait <= 60:  # NaN would be for ever
        wait = 0
    until = time.monotonic() + wait
    while True:
        pieces, sent = spool.pieces(head["have"])
        if pieces or time.monotonic() >= until or stopped():
            return pack({"name": name, "have": have, "pieces": pieces}, sent)
        time.sleep(0.02)


class Peer:
    """The server's side of one client: when to send it something, and what.

    A client that has got a file waits up to ``patience`` seconds for the answer to it; one that
    has not is asked every ``idle`` seconds whether it has something to send, and less often (ten
    times at most) the longer it has not.
    """

    def __init__(
        self, spool: Spool, peer: str, patience: float, idle: float, recipient: str = ""
    ) -> None:
        self.spool, self.peer, self.recipient = spool, peer, recipient
        self.patience, self.idle = patience, idle
        self.ours: dict[str, int] = {}  # how much of our files it has
        self.theirs: dict[str, int] = {}  # how much of its files are here
        self.sent: dict[str, int] = {}  # from where the last message's pieces were
        self.busy_until = self.next = 0.0
        self.since = time.monotonic()  # when a file last came or went

    def due(self) -> bytes | None:
        """The next message, or None: there is nothing to say now."""
        now = time.monotonic()
        if now < self.next and not (self.recipient and self.spool.outgoing(self.recipient)):
            return None
        if now < self.next and self.sent:  # it had no room for the last ones
            return None
        pieces: list[list[Any]] = []
        body = b""
        if self.recipient:
            pieces, body = self.spool.pieces(self.ours, self.recipient)
        if pieces:  # a question: its answer is worth waiting for
            self.busy_until = now + 120
        self.sent = {digest: offset for digest, _, offset, _ in pieces}
        wait = self.patience if now < self.busy_until else 0
        return pack({"wait": wait, "have": self.theirs, "pieces": pieces}, body)

    def answered(self, data: object) -> None:
        """Takes what the client sent."""
        head, body = unpack(data)
        name = head.get("name")
        if not self.recipient and isinstance(name, str) and NAME.fullmatch(name):
            self.recipient = name
        now = time.monotonic()
        self.ours, before = head["have"], self.theirs
        self.spool.confirm(self.ours, self.recipient or None)
        self.theirs = self.spool.receive(self.peer, head, body)
        moved = any(
            self.ours.get(digest, 0) not in range(at + 1) for digest, at in self.sent.items()
        )
        self.sent = {} if moved else self.sent
        if self.theirs:
            self.busy_until = now
        more = any(n > before.get(digest, 0) for digest, n in self.theirs.items())
        if self.theirs or moved:
            self.since = now
        idle = self.idle + min(9 * self.idle, (now - self.since) / 60)
        self.next = now if more or moved or now < self.busy_until else now + idle
