"""The console as an ASGI application: sections of pages behind guards."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from eigenveil.cli.presenters.screen import say
from eigenveil.console.door import Door, Sessions, make_door
from eigenveil.console.guards import ConnectionLimits, Guards, TimedConnection
from eigenveil.console.log import Log
from eigenveil.console.pages import lead, owner, table
from eigenveil.console.runs import Runs
from eigenveil.console.settings import Link, Settings
from eigenveil.console.web import STATIC, Console, sign_in_routes
from eigenveil.console.workers import DeskProcess
from eigenveil.errors import DataError, EigenveilError

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
