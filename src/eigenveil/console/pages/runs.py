"""Runs and their results: lists, progress, figures, certificates, downloads, comparisons."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.responses import FileResponse, Response

from eigenveil.console.runs import ConsoleRun
from eigenveil.console.settings import READING
from eigenveil.console.web import Console, Page, TaskForm, Visit, away, given_in
from eigenveil.errors import DataError


def pages(readers: Collection[str], doers: Collection[str]) -> list[Page]:
    return [
        Page("/runs", _list, readers),
        Page("/runs/compare", _compare, readers),
        Page("/runs/{name}", _show, readers),
        Page("/runs/{name}/derive", _DERIVE.show, doers),
        Page("/runs/{name}/derive", _DERIVE.send, doers, form=True),
        Page("/runs/{name}/stop", _stop, doers, form=True),
        Page("/runs/{name}/files/{file}", _file, readers),
    ]


def _named(visit: Visit) -> tuple[ConsoleRun, Path | None]:
    run = visit.console.runs.named(visit.named("name"))
    return run, visit.console.runs.result(run)


async def _list(visit: Visit) -> Response:
    return visit.page("runs.html", runs=shown(visit.console))


async def _show(visit: Visit) -> Response:
    run, place = _named(visit)
    found, problem = None, ""
    if place is not None and run.state != "running":
        try:
            found = await visit.ask("result", folder=str(place))
        except DataError as error:
            problem = error.message
    # what a fit reports counts rows and says where they are: that is for who may see them
    exact = run.kind == "fit"
    hidden = exact and visit.person.role != "owner"
    done = {each["what"]: each["count"] for each in run.told("advanced")}  # in rows
    return visit.page(
        "run.html",
        run=_row(run),
        going=run.state == "running",
        exact=exact,
        hidden=hidden,
        failure=None if hidden else run.last("failed") or run.last("stopped"),
        steps=_steps(run),
        moved=run.last("moved"),
        done={} if hidden else done,
        told=[] if hidden else run.told("told"),
        result=found,
        problem=problem,
        again=_again(run) if exact else "",
    )


def _again(run: ConsoleRun) -> str:
    """The step of privacy with what a fit of a table was asked; empty where nothing was typed."""
    given = {name: text for name, text in run.asked.get("given", {}).items() if text}
    if not (given and run.rows.data):
        return ""
    one = given.pop("one_row_per_person", "")
    whose = "one" if one else f"={given.pop('unit', '')}"
    schema = "" if run.rows.schema is None else Path(run.rows.schema).stem
    own = {"table": Path(run.rows.data[0]).name, "kind": run.asked["kind"], "whose": whose}
    own |= {name: text for name in READING if (text := getattr(run.rows, name))}
    return f"/fit?{urlencode(own | {'schema': schema} | given)}"


async def _derived_form(visit: Visit) -> dict[str, Any]:
    run, place = _named(visit)
    if place is None:
        raise DataError("no-page")
    kind = visit.typed.get("kind") or "regression"
    found = await visit.ask("derived_form", folder=str(place), kind=kind)
    return {"run": _row(run), **found}


async def _derive(visit: Visit, form: dict[str, Any]) -> Response:
    run, place = _named(visit)
    asked = {
        "folder": str(place),
        "kind": form["name"],
        "given": given_in(form["options"], visit.typed),
    }
    title = await visit.ask("check_derived", **asked)
    derived = visit.start("derive", title, run.name, **asked)
    visit.note("derived a model", title)
    return away(f"/runs/{derived.name}")


_DERIVE = TaskForm("derive.html", _derive, _derived_form)


async def _stop(visit: Visit) -> Response:
    run, _ = _named(visit)
    visit.console.runs.stop(run)
    visit.note("stopped a run", run.title)
    return away(f"/runs/{run.name}")


async def _file(visit: Visit) -> Response:
    (_, place), name = _named(visit), visit.named("file")
    known = {} if place is None else {f.name: f for f in place.iterdir() if f.is_file()}
    as_picture = visit.typed.get("show") == "picture"
    if name not in known or (as_picture and not name.endswith(".svg")):
        raise DataError("no-page")
    if as_picture:
        return FileResponse(known[name], media_type="image/svg+xml")
    return FileResponse(known[name], filename=name, media_type="application/octet-stream")


async def _compare(visit: Visit) -> Response:
    runs = visit.console.runs
    chosen = [runs.named(name) for name in visit.request.query_params.getlist("run")][:2]
    folders = [str(place) for run in chosen if (place := runs.result(run)) is not None]
    found: list[Any] = []
    apart, problem = None, ""
    if len(folders) == 2:
        try:
            found = [await visit.ask("result", folder=each) for each in folders]
            apart = await visit.ask("compare", folders=folders)
        except DataError as error:
            problem = error.message
    return visit.page(
        "compare.html",
        runs=[run for run in shown(visit.console) if run["has_result"]],
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


def _row(run: ConsoleRun) -> dict[str, Any]:
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


def _steps(run: ConsoleRun) -> dict[str, int]:
    """How many parties answered each step, in the steps' order."""
    found: dict[str, int] = {}
    for each in run.told("moved"):
        if each["step"]:
            found[each["step"]] = max(found.get(each["step"], 0), each["answered"])
    return found
