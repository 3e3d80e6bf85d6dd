"""The console as an ASGI application: sections of pages behind guards."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from eigenveil.cli.presenters.screen import say
from eigenveil.console.door import Door, Sessions, make_door
from eigenveil.console.log import Log
from eigenveil.console.pages import lead, owner, table
from eigenveil.console.runs import Runs
from eigenveil.console.settings import Link, Proxy, Settings, is_loopback
from eigenveil.console.tables import ConsoleTables
from eigenveil.console.web import STATIC, Console, sign_in_routes
from eigenveil.console.workers import DeskProcess
from eigenveil.errors import DataError, EigenveilError

# -- What stands before every page: the host's name, sizes and times, where a form came from,
# headers.
#
# And the connections themselves: half a request is waited for only so long, and one address has
# only so many, so that nobody keeps the others out.

MOST_BYTES, MOST_OF_TABLE = 1 << 20, 1 << 30
CONTENT_SECURITY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class ConnectionLimits:
    """What one connection, and one address, may take."""

    head: float = 10.0  # Seconds until a request's head is there: of the first, and between two
    body: float = 30.0  # Seconds until its body is
    address: int = 32  # Connections of one address; the proxy's own has those of many


class Guards:
    """An ASGI application in front of another."""

    def __init__(
        self, app: ASGIApp, settings: Settings, limits: ConnectionLimits | None = None
    ) -> None:
        self._app, self._settings = app, settings
        self.limits = limits or ConnectionLimits()
        self.connections: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        sending = self._with_headers(scope, send)
        refused = self._refusal(scope)
        if refused is not None:
            await PlainTextResponse(refused[1], refused[0])(scope, receive, sending)
            return
        await self._app(scope, self._body(scope, receive), sending)

    def _most(self, scope: Scope) -> int:
        return MOST_OF_TABLE if scope["path"] == table.UPLOAD else MOST_BYTES

    def _body(self, scope: Scope, receive: Receive) -> _LimitedBody:
        most = self._most(scope)
        # a table is as long on its way as a megabyte a second takes
        return _LimitedBody(receive, self.limits.body * max(1, most >> 25), most)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and text of what goes no further."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")  # two of them are refused where a head is read
        if host_name(host) not in self._settings.hosts:
            return 421, "This console is not called so: the host's name is not one of its own.\n"
        length = headers.get("content-length") or "0"
        if not (length.isascii() and length.isdigit() and int(length) <= self._most(scope)):
            return 413, "This is too large.\n"
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "Pages are read (GET), and forms are sent (POST).\n"
        if scope["method"] == "POST":
            if headers.get("sec-fetch-site", "same-origin") != "same-origin":
                return 403, "This form was sent from a page of another site.\n"
            if headers.get("origin", self._settings.origin(host)) != self._settings.origin(host):
                return 403, "This form was sent from a page of another site.\n"
        return None

    def has_room(self, address: str) -> bool:
        """Whether another connection of an address is taken; the proxy's bring many people."""
        door = self._settings.door
        if isinstance(door, Proxy) and (
            door.calls_from(address) if door.networks else is_loopback(address)
        ):
            return True
        return self.connections[address] < self.limits.address

    def _with_headers(self, scope: Scope, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if self._settings.secure:
                    headers["Strict-Transport-Security"] = "max-age=31536000"
                if not scope["path"].startswith("/static/"):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        return sending


class _LimitedBody:
    """A request's body, which ends where it is too large or too slow."""

    def __init__(self, receive: Receive, seconds: float, most: int) -> None:
        self._receive, self._most = receive, most
        self._until = asyncio.get_running_loop().time() + seconds
        self._taken = 0
        self._is_whole = False

    async def __call__(self) -> Message:
        if self._is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        if message["type"] == "http.request":
            self._taken += len(message.get("body", b""))
            self._is_whole = not message.get("more_body", False)
            if self._taken > self._most:
                return {"type": "http.disconnect"}
        return message


class TimedConnection(H11Protocol):
    """HTTP on one connection, which is closed where no whole request comes in time."""

    def __init__(self, config: Any, *rest: Any, **more: Any) -> None:
        super().__init__(config, *rest, **more)
        self._guards: Guards = config.loaded_app
        self._address = ""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A head must follow."""
        super().connection_made(transport)  # type: ignore[arg-type]
        address = self.client[0] if self.client else ""
        if not self._guards.has_room(address):
            self.transport.abort()
            return
        self._address = address
        self._guards.connections[address] += 1
        self._wait()

    def data_received(self, data: bytes) -> None:
        """No time runs while a request is answered."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_response_complete(self) -> None:
        """Another head may follow."""
        super().on_response_complete()
        if self.cycle is None or self.cycle.response_complete:  # nothing waited in the pipeline
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._address:
            self._guards.connections[self._address] -= 1
            self._guards.connections += Counter()  # those that have none are forgotten
            self._address = ""
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(
            self._guards.limits.head, self.transport.abort
        )


def host_name(host: str) -> str:
    """A host header without its port; empty where it is not written as one."""
    found = _HOST.fullmatch(host.lower())
    return "" if found is None else found["six"] or found["name"]


_UNEXPECTED = EigenveilError("unexpected")


SECTIONS = {"site": owner.SECTION, "lead": lead.SECTION, "table": table.SECTION}


def make_console(
    settings: Settings,
    *,
    door: Door[Any] | None = None,
    desk: DeskProcess | None = None,
    planner: DeskProcess | None = None,
) -> Console:
    return Console(
        settings=settings,
        door=door or make_door(settings),
        sessions=Sessions(settings.idle, settings.longest),
        log=Log(settings.state),
        desk=desk or DeskProcess(settings.section, settings.rows),
        planner=planner or DeskProcess(settings.section, settings.rows),
        runs=Runs(settings.state / "runs"),
        tables=ConsoleTables(settings),
        section=SECTIONS[settings.section],
    )


def make_app(console: Console, *, limits: ConnectionLimits | None = None) -> Guards:
    async def not_found(request: Request, _: Exception) -> Response:
        return console.problem(request, DataError("no-page"))

    async def failed(request: Request, _: Exception) -> Response:
        return console.problem(request, _UNEXPECTED)

    async def alive(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        warm = asyncio.ensure_future(_warm(console))
        yield
        warm.cancel()
        await console.desk.close()
        await console.planner.close()

    app = Starlette(
        routes=[
            *sign_in_routes(console),
            *map(console.route, console.section.pages),
            Route("/alive", alive),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={404: not_found, 405: not_found, 500: failed},
        lifespan=lifespan,
    )
    return Guards(app, console.settings, limits)


async def _warm(console: Console) -> None:
    """Start the process beside the console, so that the first page need not wait for it."""
    with contextlib.suppress(EigenveilError):
        if console.settings.section == "lead":
            await console.desk.ask("health")
        else:
            await console.desk.ask("ledger", page=1)
        if console.settings.section == "site":
            await console.desk.ask("studies")


# -- the server: uvicorn, on this machine's own address, or with TLS


def run(settings: Settings) -> None:
    app = make_app(make_console(settings))
    say(f"the console: {address_of(settings)}  (Ctrl-C ends it)")
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(server_of(app, settings)).run()


def server_of(app: Guards, settings: Settings) -> uvicorn.Config:
    certificate, key = settings.tls or (None, None)
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        ssl_certfile=None if certificate is None else str(certificate),
        ssl_keyfile=None if key is None else str(key),
        http=TimedConnection,
        log_level="warning",
        server_header=False,
        access_log=False,
        proxy_headers=False,  # an address that a request states is nobody's
        limit_concurrency=200,
        h11_max_incomplete_event_size=32 * 1024,
        ws="none",
    )


def address_of(settings: Settings) -> str:
    """What a person opens in a browser; with the token, where that is the door."""
    where = f"[{settings.host}]" if ":" in settings.host else settings.host
    start = settings.origin(f"{where}:{settings.port}")
    if isinstance(settings.door, Link):
        return f"{start}/sign-in?token={quote(settings.door.token)}"
    return f"{start}/"
