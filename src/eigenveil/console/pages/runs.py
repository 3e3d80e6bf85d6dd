"""Runs and their results: lists, progress, pictures, certificates, downloads, comparisons."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from eigenveil.console.jobs import ASKING, Job
from eigenveil.console.pictures import PICTURES
from eigenveil.console.sessions import Session
from eigenveil.console.web import Console, away
from eigenveil.errors import DataError

_ANSWERED = re.compile(r"^(?P<step>[^:]{1,80}): (?P<count>\d+) (?:sites? )?answered(?P<rest>.*)$")


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
    job = console.jobs.named(request.path_params["name"])
    found, problem = None, ""
    place = console.jobs.result(job)
    if place is not None and job.state != "running":
        try:
            found = await _result(console, job)
        except DataError as error:
            problem = error.message
    # what a fit reports counts rows and says where they are: that is for who may see them
    exact, own = job.kind == "fit", session.person.role == "owner"
    lines = console.jobs.lines(job) if own or not exact else []
    return console.page(
        request,
        "run.html",
        session,
        run=_row(job),
        going=job.state == "running" or (place is not None and found is None and not problem),
        lines=lines,
        exact=exact,
        hidden=exact and not own,
        failure=_failure(lines) if job.state == "failed" else [],
        steps=_steps(lines),
        result=None if found is None else _drawn(found),
        problem=problem,
    )


async def _stop(console: Console, request: Request, session: Session) -> Response:
    job = console.jobs.named(request.path_params["name"])
    console.jobs.stop(job)
    console.note(request, "stopped a run", session, job.title)
    return away(f"/runs/{job.name}")


async def _file(console: Console, request: Request, session: Session) -> Response:
    del session
    job = console.jobs.named(request.path_params["name"])
    place, name = console.jobs.result(job), request.path_params["file"]
    known = {} if place is None else {f.name: f for f in place.iterdir() if f.is_file()}
    as_picture = request.query_params.get("show") == "picture"
    if name not in known or (as_picture and not name.endswith(".svg")):
        raise DataError(
            "There is no such file in the result.", hint="Its page lists them.", code="no-page"
        )
    if as_picture:
        return FileResponse(known[name], media_type="image/svg+xml")
    return FileResponse(known[name], filename=name, media_type="application/octet-stream")


async def _compare(console: Console, request: Request, session: Session) -> Response:
    chosen = [console.jobs.named(name) for name in request.query_params.getlist("run")][:2]
    places = [console.jobs.result(job) for job in chosen]
    found: list[Any] = []
    apart, problem = None, ""
    if len(chosen) == 2 and None not in places:
        found = [await _result(console, job) for job in chosen]
        try:
            apart = await console.later.get(
                ["compare", *(job.name for job in chosen)],
                lambda: console.planner.ask("compare", folders=[str(place) for place in places]),
            )
        except DataError as error:
            problem = error.message
    ready = bool(found) and None not in found
    return console.page(
        request,
        "compare.html",
        session,
        runs=[run for run in shown(console) if run["has_result"]],
        chosen=[_row(job) for job in chosen],
        found=[_drawn(each) for each in found] if ready else [],
        waiting=bool(found) and not (ready and (apart or problem)),
        apart=apart,
        problem=problem,
        again=f"{request.url.path}?{request.url.query}",
    )


def shown(console: Console) -> list[dict[str, Any]]:
    """Every run, the newest first, as a row of a table."""
    return [
        _row(job) | {"has_result": console.jobs.result(job) is not None}
        for job in console.jobs.all()
        if job.kind != ASKING
    ]


async def _result(console: Console, job: Job) -> Any:
    place = console.jobs.result(job)
    return await console.later.get(
        ["result", job.name], lambda: console.planner.ask("result", folder=str(place))
    )


def _row(job: Job) -> dict[str, Any]:
    ended = job.ended or time.time()
    return {
        "name": job.name,
        "kind": job.kind,
        "title": job.title,
        "who": job.who,
        "state": job.state,
        "begun": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(job.begun)),
        "seconds": round(ended - job.begun, 1) if job.state != "lost" else None,
        "about": job.about,
    }


def _steps(lines: Sequence[str]) -> list[dict[str, Any]]:
    """How many parties answered each step, in the steps' order."""
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        if (match := _ANSWERED.match(line)) is not None:
            step = match["step"]
            found.setdefault(step, {"step": step, "count": 0, "rest": ""})
            found[step]["count"] = max(found[step]["count"], int(match["count"]))
            found[step]["rest"] = match["rest"].strip(" ()")
    return list(found.values())


def _failure(lines: Sequence[str]) -> list[str]:
    """Why a run failed, and what to do: what commands print last."""
    marked = (line.partition(": ") for line in lines)
    return [text for mark, _, text in marked if mark in ("error", "hint")]


def _texts(lines: Sequence[Sequence[float]]) -> list[list[str]]:
    """Numbers of a table: three digits of the largest, and as many decimals of all others."""
    largest = max((abs(value) for line in lines for value in line), default=0.0)
    digits = min(max(2 - math.floor(math.log10(largest)), 0), 12) if largest else 0
    return [[f"{round(value, digits) + 0.0:.{digits}f}" for value in line] for line in lines]


def _drawn(found: dict[str, Any]) -> dict[str, Any]:
    """A result with its pictures; its texts were escaped where they were made."""
    charts = []
    for chart in found["charts"]:
        draw = PICTURES.get(chart["kind"])
        charts.append(
            chart
            | {"picture": None if draw is None else draw(chart)}
            | {"lines": _texts(chart.get("lines", ()))}
        )
    return found | {"charts": charts, "said": Markup(found["said"])}
