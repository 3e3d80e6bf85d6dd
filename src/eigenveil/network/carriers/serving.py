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
import logging
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from eigenveil.errors import DataError, OutputError, ProtocolError
from eigenveil.federation.members import Identity
from eigenveil.network.carriers.connections import Mail, MailStore, OwnMailbox
from eigenveil.network.carriers.https import CERTIFICATE, KEY, server_context
from eigenveil.network.folder import PartyFolder, identity_of

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route
    from uvicorn.server import ServerState

    from eigenveil.network.carriers.connections import (
        Guest,
        Guests,
        MailConnection,
        MailLimits,
        WithinLimits,
        allow_many_files,
        listen,
    )
    from eigenveil.network.carriers.https import KIND, LONGEST_POLL, parse, what_is_signed
except ImportError as problem:
    raise DataError(
        "extra-missing", what="A mailbox over https", library=problem.name, extra="sites"
    ) from None

_CHALLENGE = 30.0  # seconds that a challenge is good for
_SESSION = 3600.0
_PIECE = 1 << 18


class MailboxServer:
    """Serves mailboxes, whose mail lies in a folder, until it is closed, in a thread of its own."""

    def __init__(
        self,
        identity: Identity,
        folder: Path,
        certificate: Path,
        *,
        host: str,
        port: int,
        limits: MailLimits,
    ) -> None:
        self._identity, self._limits = identity, limits
        self._context = server_context(certificate, certificate.with_name(KEY))
        self._store = MailStore(folder, most_bytes=limits.bytes, most_mails=limits.mails)
        self._secret = secrets.token_bytes(32)
        self._guests = Guests(limits)
        allow_many_files()
        self._listening = listen(host, port)
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
            WithinLimits(app, limits),
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

    async def _handshake(self, found: socket.socket, guest: Guest) -> None:
        try:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                lambda: MailConnection(self._config, self._state, guest),
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
            raise ProtocolError(
                "malformed", sender="This member", what="request for a session"
            ) from None
        identity = self._identity
        members = identity.members
        if federation != members.federation:
            raise ProtocolError("wrong-federation", whose="This")
        if self._unsealed("challenge", challenge) is None:
            raise ProtocolError("no-session", what="The challenge is over")
        text = what_is_signed(federation, name, challenge)
        role = members.role(name)
        identity.verify(text, signed, role=role, name=name)
        token = self._sealed("session", f"{name.encode().hex()}.{self._key(name)}", _SESSION)
        return _said(f"{token}\n{self._limits.envelope}")

    def _member(self, request: Request) -> str:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        found = self._unsealed("session", token) if kind == "Bearer" else None
        if found is None:
            raise ProtocolError("no-session", what="There is no session")
        shown, _, key = found.partition(".")
        name = bytes.fromhex(shown).decode()
        if self._key(name) != key:  # raises for a name that was revoked
            raise ProtocolError("no-session", what="The session is of another key")
        guest: Guest = request.scope["state"]["guest"]
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
            raise ProtocolError(
                "malformed", sender="This member", what="request for mail"
            ) from None
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
    party: PartyFolder, *, host: str = "", port: int | None = None, limits: MailLimits | None = None
) -> MailboxServer:
    """Serve a federation's mailboxes with the certificate in the aggregator's folder.

    By default at the port of the federation's address, on all addresses of this machine.
    """
    if port is None:
        port = urlsplit(parse(party.mailbox_address())[0]).port or 443
    return MailboxServer(
        identity_of(party),
        party.state / "mail",
        party.folder / CERTIFICATE,
        host=host,
        port=port,
        limits=limits or MailLimits(),
    )


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
                raise ProtocolError("too-large", sender="This member", size="more", most=most)
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
