"""Connections to a mailbox server: strangers' and members', each within its limits."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from eigenveil.errors import OutputError, ProtocolError, of_system
from eigenveil.network.mailbox import LARGEST

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
