"""Connections to a mailbox server: strangers' and members', each within its limits."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import logging
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from eigenveil.errors import OutputError, ProtocolError, of_system
from eigenveil.files import cannot_write
from eigenveil.network.mailbox import LARGEST, check_recipient, digest_of

_log = logging.getLogger(__name__)
_ASKED = 8  # requests of a stranger on one connection


@dataclass(frozen=True)
class MailLimits:
    """What hosts and members may take of the server."""

    envelope: int = LARGEST  # Bytes of an envelope
    bytes: int = 16 * LARGEST  # Of a member, of all that it put and nobody took
    mails: int = 4096
    connections: int = 64  # Of a member
    # Connections of hosts that did not show that they are members: of one address; of all
    address: int = 256
    strangers: int = 1024
    # Seconds for a stranger's handshake, head and body, each; between two pieces of a member's
    # envelope; for all of it; and between a member's requests
    head: float = 5.0
    pause: float = 30.0
    body: float = 3600.0
    idle: float = 90.0


class Guest:
    """One connection: of a stranger until a session was shown on it."""

    def __init__(self, guests: Guests, address: str, found: socket.socket) -> None:
        self._guests, self.address, self._socket = guests, address, found
        self.member: str | None = None
        self.asked = 0
        self.transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._left = False

    def wait(self, seconds: float | None) -> None:
        """Close the connection after some seconds, unless this is called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None and not self._left:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.end)

    def end(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        else:  # the handshake ends with an error
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def admit(self, name: str) -> None:
        """Count the connection as a member's."""
        if self.member is None:
            self._guests.admit(self, name)
            self.member = name

    def leave(self) -> None:
        if not self._left:
            self._left = True
            self.wait(None)
            self._guests.leave(self)


class Guests:
    def __init__(self, limits: MailLimits) -> None:
        self._limits = limits
        self._strangers: dict[Guest, None] = {}  # in the order in which they came
        self._addresses: Counter[str] = Counter()
        self._members: Counter[str] = Counter()
        self._all: set[Guest] = set()

    def enter(self, address: str, found: socket.socket) -> Guest | None:
        address = _block(address)
        if self._addresses[address] >= self._limits.address:
            found.close()
            return None
        if len(self._strangers) >= self._limits.strangers:
            oldest = next(iter(self._strangers))
            self._forget_stranger(oldest)
            oldest.end()
        guest = Guest(self, address, found)
        self._strangers[guest] = None
        self._all.add(guest)
        self._addresses[address] += 1
        return guest

    def admit(self, guest: Guest, name: str) -> None:
        if self._members[name] >= self._limits.connections:
            raise ProtocolError("mailbox-full", what="This member has too many connections")
        self._members[name] += 1
        self._forget_stranger(guest)

    def leave(self, guest: Guest) -> None:
        self._all.discard(guest)
        if guest.member is None:
            self._forget_stranger(guest)
        else:
            _less(self._members, guest.member)

    def _forget_stranger(self, guest: Guest) -> None:
        if guest in self._strangers:
            del self._strangers[guest]
            _less(self._addresses, guest.address)

    def close(self) -> None:
        for guest in tuple(self._all):
            guest.end()


def _less(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]


def _block(address: str) -> str:
    """What an owner of addresses has at least: one of IPv4, 2^64 of IPv6."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


class MailConnection(H11Protocol):
    """HTTP on one connection, whose owner is known to the handlers."""

    def __init__(self, config: uvicorn.Config, state: ServerState, guest: Guest) -> None:
        super().__init__(config, state, {"guest": guest})
        self._guest, self._limit = guest, config.loaded_app.limits.head

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over; a head must follow."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._guest.transport = transport  # type: ignore[assignment]
        self._guest.wait(self._limit)

    def connection_lost(self, exc: Exception | None) -> None:
        self._guest.leave()
        super().connection_lost(exc)


class WithinLimits:
    """Lets a connection wait for its next head no longer than it may."""

    def __init__(self, app: Starlette, limits: MailLimits) -> None:
        self.app, self.limits = app, limits

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        guest: Guest = scope["state"]["guest"]
        guest.wait(None)
        guest.asked += 1
        try:
            await self.app(scope, receive, send)
        except Exception:
            _log.exception("A request failed.")
            guest.end()
        finally:
            if guest.member is None and guest.asked >= _ASKED:
                guest.end()
            guest.wait(self.limits.head if guest.member is None else self.limits.idle)


def listen(host: str, port: int) -> socket.socket:
    try:
        if not host and socket.has_dualstack_ipv6():
            listening = socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=4096, dualstack_ipv6=True
            )
        else:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = socket.create_server((host, port), family=family, backlog=4096)
    except (OSError, OverflowError) as problem:
        raise OutputError(
            "cannot-listen",
            address=f"{host or 'this machine'}, port {port}",
            reason=of_system(problem),
        ) from None
    listening.setblocking(False)
    return listening


def allow_many_files() -> None:
    """A connection is a file: as many as this process may have."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# -- Mail that lies in a server's folder until its recipient forgets it.
#
# Senders put again whatever stays unanswered, so that a file is written and renamed, and not forced
# onto the disk: a killed server loses nothing, and after a power cut the senders bring what is
# gone.

_AT_ONCE = 64 << 20  # bytes of mail that one take brings, of several envelopes
_OLDEST = 30 * 86400.0


@dataclass(frozen=True)
class Mail:
    """One envelope in its file."""

    digest: str
    sender: str
    size: int
    path: Path


class Writing:
    """An envelope that is coming in, counted against its sender's share from the first byte."""

    def __init__(self, store: MailStore, sender: str, file: BinaryIO) -> None:
        self._store, self._sender, self._file = store, sender, file
        self._digest, self.size = hashlib.sha256(), 0

    def write(self, data: bytes) -> None:
        self._store.count(self._sender, len(data))
        self.size += len(data)
        self._digest.update(data)
        self._file.write(data)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()


class MailStore:
    """The mail of all members: ``FOLDER/<recipient>/<sender>-<SHA-256>.eve``, names as digests."""

    def __init__(self, folder: Path, *, most_bytes: int, most_mails: int) -> None:
        self._folder, self._bytes, self._mails = folder, most_bytes, most_mails
        self._guard = threading.Lock()
        self._lying: dict[str, dict[str, Mail]] = defaultdict(dict)
        self._used: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self._watching: dict[str, set[Callable[[], None]]] = defaultdict(set)
        self._scratch = folder / ".tmp"
        self._number = 0
        self.over = threading.Event()
        try:
            self._read()
        except OSError as problem:
            raise cannot_write(folder, problem) from None

    def _read(self) -> None:
        self._scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        for file in self._scratch.iterdir():
            file.unlink()
        found = [(file.stat(), file) for file in self._folder.glob("*/*-*.eve")]
        for state, file in sorted(found, key=lambda each: each[0].st_mtime_ns):
            sender, _, digest = file.stem.partition("-")
            whole = (
                hashlib.sha256(file.read_bytes()).hexdigest() == digest
            )  # a power cut leaves parts
            if not whole or time.time() - state.st_mtime > _OLDEST:
                file.unlink()
            else:
                self._keep(file.parent.name, Mail(digest, sender, state.st_size, file))

    def _keep(self, recipient: str, mail: Mail) -> None:
        self._lying[recipient][mail.digest] = mail
        self._used[mail.sender] += mail.size
        self._held[mail.sender] += 1

    def count(self, sender: str, size: int) -> None:
        """Count bytes of a member against its share."""
        with self._guard:
            who = _key(sender)
            if self._used[who] + size > self._bytes or self._held[who] >= self._mails:
                raise ProtocolError("mailbox-full", what="Too much mail of this member lies here")
            self._used[who] += size

    @contextmanager
    def writing(self, sender: str, recipient: str) -> Iterator[Writing]:
        """Take in an envelope; it lies in its mailbox when the block ends well."""
        with self._guard:
            self._number += 1
            scratch = self._scratch / str(self._number)
        try:
            with scratch.open("wb") as file:
                coming = Writing(self, sender, file)
                try:
                    yield coming
                finally:
                    with self._guard:
                        self._used[_key(sender)] -= coming.size
            self._put(_key(recipient), coming, _key(sender), scratch)
        except OSError as problem:
            if isinstance(problem, OutputError):
                raise
            raise cannot_write(self._folder, problem) from None
        finally:
            scratch.unlink(missing_ok=True)

    def _put(self, recipient: str, coming: Writing, sender: str, scratch: Path) -> None:
        path = self._folder / recipient / f"{sender}-{coming.digest}.eve"
        with self._guard:
            if coming.digest in self._lying[recipient]:
                return
            path.parent.mkdir(mode=0o700, exist_ok=True)
            scratch.replace(path)
            self._keep(recipient, Mail(coming.digest, sender, coming.size, path))
            watching = tuple(self._watching[recipient])
        for call in watching:
            call()

    def has(self, recipient: str, digest: str) -> bool:
        return digest in self._lying.get(_key(recipient), {})

    def lying(self, recipient: str, known: Collection[str]) -> list[Mail]:
        """The oldest mail of a member that it does not know, as much as is brought at once."""
        with self._guard:
            there = [
                each for each in self._lying[_key(recipient)].values() if each.digest not in known
            ]
        brought = 0
        for number, mail in enumerate(there):
            brought += mail.size
            if number and brought > _AT_ONCE:
                return there[:number]
        return there

    def forget(self, recipient: str, digests: Collection[str]) -> None:
        who = _key(recipient)
        with self._guard:
            for digest in digests:
                if (mail := self._lying[who].pop(digest, None)) is not None:
                    mail.path.unlink(missing_ok=True)
                    self._used[mail.sender] -= mail.size
                    self._held[mail.sender] -= 1

    @contextmanager
    def watching(self, recipient: str, call: Callable[[], None]) -> Iterator[None]:
        """Call, from any thread, when a member gets mail."""
        who = _key(recipient)
        with self._guard:
            self._watching[who].add(call)
        try:
            yield
        finally:
            with self._guard:
                self._watching[who].discard(call)


class OwnMailbox:
    """The mailbox of the member in whose process the store is."""

    def __init__(self, store: MailStore, name: str) -> None:
        self._store, self._name, self._closed = store, name, False

    def put(self, recipient: str, envelope: bytes) -> None:
        if not self._store.has(check_recipient(recipient), digest_of(envelope)):
            with self._store.writing(self._name, recipient) as coming:
                coming.write(envelope)

    def take(self, wait: float, known: Collection[str] = ()) -> list[bytes]:
        until = time.monotonic() + wait
        there = threading.Event()
        with self._store.watching(self._name, there.set):
            while True:
                there.clear()
                found = [
                    data
                    for mail in self._store.lying(self._name, known)
                    if (data := read(mail)) is not None
                ]
                left = until - time.monotonic()
                if found or left <= 0 or self._closed or self._store.over.is_set():
                    return found
                there.wait(min(left, 0.5))

    def forget(self, digests: Collection[str]) -> None:
        self._store.forget(self._name, digests)

    def close(self) -> None:
        self._closed = True


def read(mail: Mail) -> bytes | None:
    """An envelope; ``None`` where its file is gone or cut off."""
    try:
        data = mail.path.read_bytes()
    except OSError:
        return None
    return data if len(data) == mail.size else None


def _key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]
