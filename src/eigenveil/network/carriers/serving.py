"""The mailboxes of a federation, served over HTTPS in the aggregator's process.

A host that is no member reaches a TLS handshake, a head of 4 KiB and a body of 1 KiB, each within
five seconds, and leaves nothing behind: challenges and sessions are sealed with a key of the server
and not kept. Members put and take within shares of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
import logging
import secrets
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from eigenveil.errors import DataError, OutputError, ProtocolError, first_line
from eigenveil.federation.identity import Identity
from eigenveil.network.carriers.https import (
    CERTIFICATE,
    KEY,
    KIND,
    LONGEST_POLL,
    parse,
    what_is_signed,
)
from eigenveil.network.carriers.mail import Mail, OwnMailbox, Store
from eigenveil.network.folder import PartyFolder, identity_of
from eigenveil.network.mailbox import LARGEST

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route
    from uvicorn.protocols.http.h11_impl import H11Protocol
    from uvicorn.server import ServerState
except ImportError as problem:
    raise DataError(
        f"To serve mailboxes over https needs {problem.name}, which is not installed.",
        hint="pip install 'eigenveil[sites]'.",
        code="extra-missing",
    ) from None

_log = logging.getLogger(__name__)
_CHALLENGE = 30.0  # seconds that a challenge is good for
_SESSION = 3600.0
_PIECE = 1 << 18
_ASKED = 8  # requests of a stranger on one connection


@dataclass(frozen=True)
class Limits:
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


class MailboxServer:
    """Serves until it is closed."""

    def __init__(
        self,
        identity: Identity,
        store: Store,
        context: ssl.SSLContext,
        *,
        host: str,
        port: int,
        limits: Limits,
    ) -> None:
        self._identity, self._store, self._context, self._limits = identity, store, context, limits
        self._secret = secrets.token_bytes(32)
        self._guests = _Guests(limits)
        _many_files()
        self._listening = _listen(host, port)
        self.port: int = self._listening.getsockname()[1]
        app = Starlette(
            routes=[
                Route("/challenge", self._challenge, methods=["GET"]),
                Route("/session", self._session, methods=["POST"]),
                Route("/mail/{recipient}", self._put, methods=["PUT"]),
                Route("/take", self._take, methods=["POST"]),
            ],
            exception_handlers=dict.fromkeys(
                (ProtocolError, OutputError, TimeoutError, ClientDisconnect), _refusal
            ),
        )
        self._config = uvicorn.Config(
            _Watched(app, limits),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(limits.idle) + 5,
            h11_max_incomplete_event_size=4096,
        )
        self._config.load()
        self._state = ServerState()
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # strangers write no lines
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="mailboxes", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def mailbox(self) -> OwnMailbox:
        """The aggregator's own mailbox."""
        return OwnMailbox(self._store, self._identity.name)

    def close(self) -> None:
        """Stop; mail stays in its files."""
        self._store.over.set()
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # it ended meanwhile
                self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(10)

    def _run(self) -> None:
        self._loop.set_exception_handler(lambda *_: None)  # broken handshakes are strangers'
        with self._listening, asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        accepting = asyncio.create_task(self._accept())
        await self._over.wait()
        accepting.cancel()
        self._guests.close()  # what still runs is cancelled

    async def _accept(self) -> None:
        handshakes: set[asyncio.Task[None]] = set()
        while True:
            try:
                found, address = await self._loop.sock_accept(self._listening)
            except OSError:  # out of files, or the host went away
                await asyncio.sleep(0.1)
                continue
            guest = self._guests.enter(address[0], found)
            if guest is not None:
                task = self._loop.create_task(self._handshake(found, guest))
                handshakes.add(task)
                task.add_done_callback(handshakes.discard)

    async def _handshake(self, found: socket.socket, guest: _Guest) -> None:
        try:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                lambda: _Connection(self._config, self._state, guest),
                found,
                ssl=self._context,
                ssl_handshake_timeout=self._limits.head,
                ssl_shutdown_timeout=self._limits.head,
            )
        except Exception:  # whatever a stranger sends in a handshake
            guest.leave()
            found.close()

    # -- Who asks.

    async def _challenge(self, request: Request) -> Response:
        del request
        return _said(self._sealed("challenge", secrets.token_hex(16), _CHALLENGE))

    async def _session(self, request: Request) -> Response:
        async with asyncio.timeout(self._limits.head):
            data = b"".join([piece async for piece in _pieces(request, 1024)])
        try:
            federation, name, challenge, signature = data.decode("ascii").split("\n")
            name, signed = bytes.fromhex(name).decode(), bytes.fromhex(signature)
        except ValueError:
            raise ProtocolError("This is no request for a session.", code="malformed") from None
        identity = self._identity
        members = identity.members
        if federation != members.federation:
            raise ProtocolError("This is another federation's.", code="wrong-federation")
        if self._unsealed("challenge", challenge) is None:
            raise ProtocolError("The challenge is over.", code="no-session")
        text = what_is_signed(federation, name, challenge)
        role = members.role(name)
        identity.verify(text, signed, role=role, name=name)
        token = self._sealed("session", f"{name.encode().hex()}.{self._key(name)}", _SESSION)
        return _said(f"{token}\n{self._limits.envelope}")

    def _member(self, request: Request) -> str:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        found = self._unsealed("session", token) if kind == "Bearer" else None
        if found is None:
            raise ProtocolError("There is no session.", code="no-session")
        shown, _, key = found.partition(".")
        name = bytes.fromhex(shown).decode()
        if self._key(name) != key:  # raises for a name that was revoked
            raise ProtocolError("The session is of another key.", code="no-session")
        guest: _Guest = request.scope["state"]["guest"]
        guest.admit(name)
        return name

    def _key(self, name: str) -> str:
        members = self._identity.members
        return members.key(role=members.role(name), name=name).fingerprint

    def _sealed(self, kind: str, content: str, seconds: float) -> str:
        text = f"{content}:{time.monotonic() + seconds:.0f}"
        return f"{text}:{self._mac(kind, text)}"

    def _unsealed(self, kind: str, shown: str) -> str | None:
        text, _, mac = shown.rpartition(":")
        if not hmac.compare_digest(mac.encode(), self._mac(kind, text).encode()):
            return None
        content, _, until = text.rpartition(":")
        return content if time.monotonic() < float(until) else None

    def _mac(self, kind: str, text: str) -> str:
        return hmac.new(self._secret, f"{kind}:{text}".encode(), hashlib.sha256).hexdigest()

    # -- Mail.

    async def _put(self, request: Request) -> Response:
        name = self._member(request)
        recipient: str = request.path_params["recipient"]
        self._identity.members.role(recipient)
        async with asyncio.timeout(self._limits.body):
            pieces = _pieces(request, self._limits.envelope, self._limits.pause)
            try:
                with self._store.writing(name, recipient) as coming:
                    async for piece in pieces:
                        coming.write(piece)
            except (ProtocolError, OutputError):
                async for _ in pieces:  # or its sender would not read why
                    pass
                raise
        return Response(status_code=204, media_type=KIND)

    async def _take(self, request: Request) -> Response:
        name = self._member(request)
        data = b"".join([each async for each in _pieces(request, 1 << 20, self._limits.pause)])
        try:
            asked = float(request.query_params.get("wait", "0"))
            wait = asked if 0.0 <= asked <= LONGEST_POLL else LONGEST_POLL  # also of no number
            forget, _, known = data.decode("ascii").partition("\n")
        except ValueError:
            raise ProtocolError("This is no request for mail.", code="malformed") from None
        self._store.forget(name, forget.split())
        mail = await self._wait(name, frozenset(known.split()), wait, request)
        if not mail:
            return Response(status_code=204, media_type=KIND)
        size = sum(each.size + 8 for each in mail)
        return StreamingResponse(
            _framed(mail), media_type=KIND, headers={"content-length": str(size)}
        )

    async def _wait(
        self, name: str, known: frozenset[str], wait: float, request: Request
    ) -> list[Mail]:
        there = asyncio.Event()
        until = self._loop.time() + wait

        def wake() -> None:
            self._loop.call_soon_threadsafe(there.set)

        with self._store.watching(name, wake):
            while True:
                there.clear()
                mail = self._store.lying(name, known)
                left = until - self._loop.time()
                if mail or left <= 0 or await request.is_disconnected():
                    return mail
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await there.wait()


def serve(
    party: PartyFolder, *, host: str = "", port: int | None = None, limits: Limits | None = None
) -> MailboxServer:
    """Serve a federation's mailboxes with the certificate in the aggregator's folder.

    By default at the port of the federation's address, on all addresses of this machine.
    """
    folder = party.folder
    if port is None:
        port = urlsplit(parse(party.mailbox_address())[0]).port or 443
    return serve_mail(
        identity_of(party),
        party.state / "mail",
        host=host,
        port=port,
        certificate=folder / CERTIFICATE,
        key=folder / KEY,
        limits=limits or Limits(),
    )


def serve_mail(
    identity: Identity,
    folder: Path,
    *,
    host: str,
    port: int,
    certificate: Path,
    key: Path,
    limits: Limits,
) -> MailboxServer:
    """Serve mailboxes, whose mail lies in a folder, in a thread of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as problem:
        raise DataError(
            f"{certificate} and {key.name} are no certificate for TLS and its key: "
            f"{first_line(problem.strerror or problem, empty='unreadable')}.",
            hint="Put the organisation's there, as PEM, the key without a password; 'eigenveil "
            "federation join --role aggregator --address https://HOST:PORT' makes a pair.",
            code="bad-tls-certificate",
        ) from None
    store = Store(folder, most_bytes=limits.bytes, most_mails=limits.mails)
    return MailboxServer(identity, store, context, host=host, port=port, limits=limits)


# -- Connections.


class _Guest:
    """One connection: of a stranger until a session was shown on it."""

    def __init__(self, guests: _Guests, address: str, found: socket.socket) -> None:
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
        """Close the connection."""
        if self.transport is not None:
            self.transport.abort()
        else:  # the handshake ends with an error
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def admit(self, name: str) -> None:
        """Count the connection as a member's."""
        if self.member is None:
            self._guests.admit(self, self.address, name)
            self.member = name

    def leave(self) -> None:
        """The connection is gone."""
        if not self._left:
            self._left = True
            self.wait(None)
            self._guests.leave(self, self.address)


class _Guests:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._strangers: dict[_Guest, None] = {}  # in the order in which they came
        self._addresses: Counter[str] = Counter()
        self._members: Counter[str] = Counter()
        self._all: set[_Guest] = set()

    def enter(self, address: str, found: socket.socket) -> _Guest | None:
        address = _block(address)
        if self._addresses[address] >= self._limits.address:
            found.close()
            return None
        if len(self._strangers) >= self._limits.strangers:
            oldest = next(iter(self._strangers))
            self._forget_stranger(oldest, oldest.address)
            oldest.end()
        guest = _Guest(self, address, found)
        self._strangers[guest] = None
        self._all.add(guest)
        self._addresses[address] += 1
        return guest

    def admit(self, guest: _Guest, address: str, name: str) -> None:
        if self._members[name] >= self._limits.connections:
            raise ProtocolError("This member has too many connections.", code="mailbox-full")
        self._members[name] += 1
        self._forget_stranger(guest, address)

    def leave(self, guest: _Guest, address: str) -> None:
        self._all.discard(guest)
        if guest.member is None:
            self._forget_stranger(guest, address)
        else:
            _less(self._members, guest.member)

    def _forget_stranger(self, guest: _Guest, address: str) -> None:
        if guest in self._strangers:
            del self._strangers[guest]
            _less(self._addresses, address)

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


class _Connection(H11Protocol):
    """HTTP on one connection, whose owner is known to the handlers."""

    def __init__(self, config: uvicorn.Config, state: ServerState, guest: _Guest) -> None:
        super().__init__(config, state, {"guest": guest})
        self._guest, self._limit = guest, config.loaded_app.limits.head

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over; a head must follow."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._guest.transport = transport  # type: ignore[assignment]
        self._guest.wait(self._limit)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give its place back."""
        self._guest.leave()
        super().connection_lost(exc)


class _Watched:
    """Lets a connection wait for its next head no longer than it may."""

    def __init__(self, app: Starlette, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        guest: _Guest = scope["state"]["guest"]
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


# -- Requests and answers.


async def _pieces(request: Request, most: int, pause: float | None = None) -> AsyncIterator[bytes]:
    """A body, which ends with an error where it grows or lasts too long."""
    size, rest = 0, request.stream()
    with contextlib.suppress(StopAsyncIteration):
        while True:
            async with asyncio.timeout(pause):
                piece = await anext(rest)
            size += len(piece)
            if size > most:
                raise ProtocolError(f"More than {most} bytes.", code="too-large")
            yield piece


async def _framed(mail: list[Mail]) -> AsyncIterator[bytes]:
    for each in mail:
        yield each.size.to_bytes(8, "big")
        with each.path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece


def _said(text: str, status: int = 200) -> Response:
    return Response(text, status_code=status, media_type=KIND)


_STATUS = {
    "no-answer": 408,
    "no-session": 401,
    "too-large": 413,
    "mailbox-full": 429,
    "cannot-write": 507,
}


async def _refusal(request: Request, problem: Exception) -> Response:
    del request
    code = getattr(problem, "code", "no-answer")
    answer = _said(code, _STATUS.get(code, 403))
    answer.headers["connection"] = "close"  # what is left of its body is not read
    return answer


def _listen(host: str, port: int) -> socket.socket:
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
            f"Nothing can listen on {host or 'this machine'}, port {port}: "
            f"{getattr(problem, 'strerror', None) or problem}.",
            hint="Give an address of this machine and a free port.",
            code="bad-address",
        ) from None
    listening.setblocking(False)
    return listening


def _many_files() -> None:
    """A connection is a file: as many as this process may have."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
