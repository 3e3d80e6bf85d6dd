"""The console as an ASGI application: sections of pages behind guards."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from eigenveil.console.door import Door, make_door
from eigenveil.console.guards import Guards, Limits
from eigenveil.console.log import Log
from eigenveil.console.pages import lead, owner, table
from eigenveil.console.runs import Runs
from eigenveil.console.sessions import Sessions
from eigenveil.console.settings import Settings
from eigenveil.console.web import STATIC, Console, Link, sign_in_routes
from eigenveil.console.workers import Desk, DeskProcess
from eigenveil.errors import DataError, EigenveilError

_UNEXPECTED = EigenveilError("unexpected")


@dataclass(frozen=True)
class Section:
    """The pages of one kind of person."""

    title: str
    links: Sequence[Link]
    routes: Callable[[Console], list[Route]]


SECTIONS = {
    "site": Section(owner.TITLE, owner.LINKS, owner.routes),
    "lead": Section(lead.TITLE, lead.LINKS, lead.routes),
    "table": Section(table.TITLE, table.LINKS, table.routes),
}


def make_console(
    settings: Settings,
    *,
    door: Door | None = None,
    desk: Desk | None = None,
    planner: Desk | None = None,
) -> Console:
    """The parts of a console."""
    section = SECTIONS[settings.section]
    return Console(
        settings=settings,
        door=door or make_door(settings),
        sessions=Sessions(settings.idle, settings.longest),
        log=Log(settings.state),
        desk=desk or DeskProcess(settings.section, settings.rows),
        planner=planner or DeskProcess(settings.section, settings.rows),
        runs=Runs(settings.state / "runs"),
        title=section.title,
        links=section.links,
    )


def make_app(console: Console, *, limits: Limits | None = None) -> Guards:
    """The application of a console."""

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
            *SECTIONS[console.settings.section].routes(console),
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
