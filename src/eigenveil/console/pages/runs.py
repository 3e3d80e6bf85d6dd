"""Runs and their results: lists, progress, pictures, certificates, downloads, comparisons."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from eigenveil.console.jobs import Job
from eigenveil.console.pictures import loadings_picture, scree_picture
from eigenveil.console.sessions import Session
from eigenveil.console.web import Console, away
from eigenveil.errors import DataError

_ANSWERED = re.compile(r"^(?P<step>[^:]{1,80}): (?P<count>\d+) (?:sites? )?answered(?P<rest>.*)$")


def routes(console: Console, readers: Sequence[str], doers: Sequence[str]) -> list[Route]:
    """The pages of runs.

    Parameters
    ----------
    readers, doers : sequence of str
        Roles that see them, and that stop them.
    """
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
    lines = console.jobs.lines(job)
    return console.page(
        request,
        "run.html",
        session,
        run=_row(job),
        going=job.state == "running" or (place is not None and found is None and not problem),
        lines=lines,
        steps=_steps(lines),
        result=found,
        problem=problem,
        **_pictures(found),
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
    if name not in known:
        raise DataError(
            "There is no such file in the result.", hint="Its page lists them.", code="no-page"
        )
    return FileResponse(known[name], filename=name, media_type="application/octet-stream")


async def _compare(console: Console, request: Request, session: Session) -> Response:
    chosen = [console.jobs.named(name) for name in request.query_params.getlist("run")][:2]
    found: list[Any] = []
    for job in chosen:
        if console.jobs.result(job) is not None:
            found.append(await _result(console, job))
    ready = len(chosen) == 2 and len(found) == 2 and None not in found
    return console.page(
        request,
        "compare.html",
        session,
        runs=[run for run in shown(console) if run["has_result"]],
        chosen=[_row(job) for job in chosen],
        found=found if ready else [],
        waiting=len(chosen) == 2 and None in found,
        angles=_angles(found) if ready else [],
    )


def shown(console: Console) -> list[dict[str, Any]]:
    """Every run, the newest first, as a row of a table."""
    return [
        _row(job) | {"has_result": console.jobs.result(job) is not None}
        for job in console.jobs.all()
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


def _pictures(found: Any) -> dict[str, Any]:
    """The pictures of a result that has what they show."""
    if not found:
        return {"scree": None, "loadings": None, "table": []}
    variances = found.get("explained_variance") or []
    components = found.get("components") or []
    scree = (
        scree_picture(variances, found.get("noise_floor"), found.get("usable") or [])
        if variances
        else None
    )
    features = found.get("features") or []
    loadings = loadings_picture(components, features) if len(components) > 1 else None
    wide = len(components[0]) if components else 0
    order = sorted(range(wide), key=lambda at: -max(abs(row[at]) for row in components))[:40]
    table = [
        {
            "feature": features[at] if at < len(features) else f"{at + 1}",
            "values": [row[at] for row in components[:6]],
        }
        for at in order
    ]
    return {"scree": scree, "loadings": loadings, "table": table}


def _angles(found: Sequence[Any]) -> list[dict[str, Any]]:
    """Between the components of two results, where they have the same features."""
    one, other = (each.get("components") or [] for each in found)
    if found[0].get("features") != found[1].get("features") or not one or not other:
        return []
    rows = []
    for number, (first, second) in enumerate(zip(one, other, strict=False), start=1):
        if len(first) != len(second):
            return []
        dot = abs(math.fsum(a * b for a, b in zip(first, second, strict=True)))
        size = math.sqrt(math.fsum(a * a for a in first) * math.fsum(b * b for b in second))
        cosine = min(1.0, dot / size) if size else 0.0
        rows.append({"component": number, "degrees": math.degrees(math.acos(cosine))})
    return rows
