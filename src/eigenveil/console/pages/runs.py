"""Runs and their results: lists, progress, figures, certificates, downloads, comparisons."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from eigenveil.console.door import Session
from eigenveil.console.runs import Run
from eigenveil.console.web import Console, away
from eigenveil.errors import DataError


def routes(console: Console, readers: Sequence[str], doers: Sequence[str]) -> list[Route]:
    """The pages of runs."""
    return [
        console.route("/runs", _list, readers),
        console.route("/runs/compare", _compare, readers),
        console.route("/runs/{name}", _show, readers),
        console.route("/runs/{name}/stop", _stop, doers, form=True),
        console.route("/runs/{name}/files/{file}", _file, readers),
    ]


async def _list(console: Console, request: Request, session: Session) -> Response:
    return console.page(request, "runs.html", session, runs=shown(console))


async def _show(console: Console, request: Request, session: Session) -> Response:
    run = console.runs.named(request.path_params["name"])
    found, problem = None, ""
    place = console.runs.result(run)
    if place is not None and run.state != "running":
        try:
            found = await console.desk.ask("result", folder=str(place))
        except DataError as error:
            problem = error.message
    # what a fit reports counts rows and says where they are: that is for who may see them
    exact = run.kind == "fit"
    hidden = exact and session.person.role != "owner"
    return console.page(
        request,
        "run.html",
        session,
        run=_row(run),
        going=run.state == "running",
        exact=exact,
        hidden=hidden,
        failure=None if hidden else _last(run, "failed") or _last(run, "stopped"),
        steps=_steps(run),
        moved=_last(run, "moved"),
        done=[] if hidden else _done(run),
        told=[] if hidden else run.told("told"),
        result=found,
        problem=problem,
    )


async def _stop(console: Console, request: Request, session: Session) -> Response:
    run = console.runs.named(request.path_params["name"])
    console.runs.stop(run)
    console.note(request, "stopped a run", session, run.title)
    return away(f"/runs/{run.name}")


async def _file(console: Console, request: Request, session: Session) -> Response:
    del session
    run = console.runs.named(request.path_params["name"])
    place, name = console.runs.result(run), request.path_params["file"]
    known = {} if place is None else {f.name: f for f in place.iterdir() if f.is_file()}
    as_picture = request.query_params.get("show") == "picture"
    if name not in known or (as_picture and not name.endswith(".svg")):
        raise DataError("no-page")
    if as_picture:
        return FileResponse(known[name], media_type="image/svg+xml")
    return FileResponse(known[name], filename=name, media_type="application/octet-stream")


async def _compare(console: Console, request: Request, session: Session) -> Response:
    chosen = [console.runs.named(name) for name in request.query_params.getlist("run")][:2]
    places = [console.runs.result(run) for run in chosen]
    folders = [str(place) for place in places if place is not None]
    found: list[Any] = []
    apart, problem = None, ""
    if len(folders) == 2:
        try:
            found = [await console.desk.ask("result", folder=each) for each in folders]
            apart = await console.desk.ask("compare", folders=folders)
        except DataError as error:
            problem = error.message
    return console.page(
        request,
        "compare.html",
        session,
        runs=[run for run in shown(console) if run["has_result"]],
        chosen=[_row(run) for run in chosen],
        found=found,
        apart=apart,
        problem=problem,
    )


def shown(console: Console) -> list[dict[str, Any]]:
    """Every run with a result to come, the newest first, as a row of a table."""
    return [
        _row(run) | {"has_result": console.runs.result(run) is not None}
        for run in console.runs.all()
        if run.kind != "ask"
    ]


def _row(run: Run) -> dict[str, Any]:
    end = time.time() if run.state == "running" else run.ended
    return {
        "name": run.name,
        "kind": run.kind,
        "title": run.title,
        "who": run.who,
        "state": run.state,
        "begun": day_and_time(run.begun),
        "seconds": None if end is None else round(end - run.begun, 1),
        "about": run.about,
    }


def day_and_time(seconds: float) -> str:
    """A time in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def _steps(run: Run) -> dict[str, int]:
    """How many parties answered each step, in the steps' order."""
    found: dict[str, int] = {}
    for each in run.told("moved"):
        if each["step"]:
            found[each["step"]] = max(found.get(each["step"], 0), each["answered"])
    return found


def _done(run: Run) -> dict[str, int]:
    """How far each step of a fit is, in rows."""
    return {each["what"]: each["count"] for each in run.told("advanced")}


def _last(run: Run, event: str) -> dict[str, Any] | None:
    return next(iter(reversed(run.told(event))), None)
