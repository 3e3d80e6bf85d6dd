"""The pages of a study's lead: drafts, forecasts, the sites' answers, runs and results."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.console.door import Session
from eigenveil.console.forecasts import forecast_values
from eigenveil.console.pages import runs
from eigenveil.console.runs import Run
from eigenveil.console.web import (
    Console,
    FormPage,
    PageLink,
    away,
    can_be_corrected,
    form_for,
    typed,
    whole,
)
from eigenveil.errors import DataError, EigenveilError, short_name

READERS = ("owner", "approver", "viewer", "lead")
DOERS = ("owner", "lead")
TITLE = "Studies"
LINKS = (
    PageLink("/drafts", "Studies", frozenset(READERS)),
    PageLink("/drafts/new", "New study", frozenset(DOERS)),
    PageLink("/runs", "Runs and results", frozenset(READERS)),
)
NEW = FormPage("new_study.html", "new study")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LONGEST = 200_000


def routes(console: Console) -> list[Route]:
    """The section's pages."""
    return [
        console.route("/drafts", _drafts, READERS),
        console.route("/drafts/new", _new, DOERS),
        console.route("/drafts/new", _write, DOERS, form=True),
        console.route("/drafts/{name}", _draft, READERS),
        console.route("/drafts/{name}/start", _start, DOERS, form=True),
        console.route("/drafts/{name}/ask", _ask, DOERS, form=True),
        console.route("/drafts/{name}/sites", _sites, READERS),
        console.route("/drafts/{name}/sites", _redraft, DOERS, form=True),
        *runs.routes(console, READERS, DOERS),
    ]


# -- drafts: a file each, by name


def _folder(console: Console) -> Path:
    place = console.settings.state / "studies"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    return place


def _new_file(console: Console, name: str) -> Path:
    """The file of a draft to be written."""
    if not _NAME.fullmatch(name):
        raise DataError("bad-draft-name")
    place = _folder(console) / f"{name}.toml"
    if place.exists():
        raise DataError("draft-exists", name=name)
    return place


async def _study(console: Console, request: Request) -> tuple[str, str, dict[str, Any]]:
    """The draft of a page: its name, its file, and the study in it."""
    name = request.path_params["name"]
    place = _folder(console) / f"{name}.toml"
    if not _NAME.fullmatch(name) or not place.is_file():
        raise DataError("unknown-draft", name=short_name(name))
    study: dict[str, Any] = await console.desk.ask("study", file=str(place))
    return name, str(place), study


async def _drafts(console: Console, request: Request, session: Session) -> Response:
    studies = await console.desk.ask("drafts", folder=str(_folder(console)))
    health = await console.desk.ask("health")
    return console.page(
        request, "drafts.html", session, studies=studies, health=health,
        runs=runs.shown(console)[:8],
    )  # fmt: skip


async def _new(console: Console, request: Request, session: Session) -> Response:
    given = typed(request.query_params)
    found = await form_for(console, given.get("kind", ""))
    return NEW.show(console, request, session, found, given)


async def _write(console: Console, request: Request, session: Session) -> Response:
    form = dict(request.state.form)
    session.take_form(form.get("number", ""), NEW.purpose)
    found = await form_for(console, form.get("kind", ""))
    name = form.get("name", "").strip()
    try:
        await _draft_study(console, found["form"], form, name)
    except EigenveilError as error:
        if not can_be_corrected(error):
            raise
        return NEW.show(console, request, session, found, form, error)
    console.note(request, "drafted a study", session, name)
    return away(f"/drafts/{name}")


async def _draft_study(
    console: Console, kind: dict[str, Any], form: dict[str, str], name: str
) -> None:
    """Write the file of a study, or nothing."""
    place = _new_file(console, name)
    fields: dict[str, Any] = {
        each: form.get(each, "").strip()[:1000] for each in ("requested_by", "purpose")
    }
    asked = {
        "out": str(place),
        "kind": kind["name"],
        "given": typed(
            {each["name"]: form.get(each["name"], "") for each in kind["options"] + kind["own"]}
        ),
        "fields": fields | {"name": name, "sites": _listed(form.get("sites", ""))},
    }
    if not (text := form.get("schema", "").strip()[:_LONGEST]):
        asked["fields"]["columns"] = _listed(form.get("columns", ""))
        await console.desk.ask("draft", **asked)
        return
    with tempfile.TemporaryDirectory(prefix="eigenveil-") as folder:
        schema = Path(folder) / "schema.toml"
        schema.write_text(text + "\n", encoding="utf-8")
        await console.desk.ask("draft", schema=str(schema), **asked)


def _listed(text: str) -> list[str]:
    """Names with commas or ends of lines between."""
    return [each.strip() for each in re.split(r"[,\n]", text) if each.strip()]


# -- one draft: what it would give, and its start


async def _draft(console: Console, request: Request, session: Session) -> Response:
    name, file, study = await _study(console, request)
    given = typed(request.query_params)
    rows = whole(given.get("rows", ""), study.get("expected_rows") or 0)
    curve = None
    if rows:
        said = {each["name"]: given.get(each["name"], "") for each in study["expected"]}
        asked = {"file": file, "given": said, "rows": rows}
        curve = await console.forecasts.look(
            [asked, study["hash"]],
            lambda epsilon: console.planner.ask("point", epsilon=epsilon, **asked),
        )
    return console.page(
        request,
        "draft.html",
        session,
        name=name,
        study=study,
        given=given,
        rows=rows,
        number=session.new_form(study["hash"]),
        can_start=session.person.role in DOERS,
        runs=[run for run in runs.shown(console) if run["about"] == study["hash"]],
        **_agreement(console, study["hash"]),
        **forecast_values(request, curve, quality=study["quality"], epsilon=study["epsilon"]),
    )


async def _start(console: Console, request: Request, session: Session) -> Response:
    name, file, study = await _study(console, request)
    # the hash in the form is that of what was shown
    session.take_form(request.state.form.get("number", ""), study["hash"])
    run = console.runs.start(
        "study",
        f"Study {name}",
        rows=console.settings.rows,
        asked={"file": file},
        who=session.person.name,
        about=study["hash"],
    )
    console.note(request, "started a study", session, f"{name} {study['hash']}")
    return away(f"/runs/{run.name}")


# -- what the sites say of a draft


def _asked_about(console: Console, study_hash: str) -> list[Run]:
    return [run for run in console.runs.all() if run.kind == "ask" and run.about == study_hash]


def _agreement(console: Console, study_hash: str) -> dict[str, Any]:
    """What the last question about a study came to, for templates.

    ``asked`` is ``None`` where nobody asked; ``asking`` whether answers are awaited now.
    """
    run = next(iter(_asked_about(console, study_hash)), None)
    found = None if run is None else next(iter(run.told("answered")), None)
    problem = ""
    if run is not None and run.state != "running" and found is None:
        problem = next((e["message"] for e in run.told("failed")), "It was not answered.")
    return {
        "asked": None if run is None else {"at": runs.day_and_time(run.begun), "who": run.who},
        "asking": run is not None and run.state == "running",
        "answers": found,
        "not_agreed": [] if found is None else [e for e in found["sites"] if not e["agreed"]],
        "ask_problem": problem,
    }


async def _ask(console: Console, request: Request, session: Session) -> Response:
    name, file, study = await _study(console, request)
    before = _asked_about(console, study["hash"])
    if not any(run.state == "running" for run in before):
        console.runs.start(
            "ask",
            f"Question about {name}",
            rows=console.settings.rows,
            asked={"file": file},
            who=session.person.name,
            about=study["hash"],
        )
        for run in before:  # its answers are old
            console.runs.forget(run)
        console.note(request, "asked the sites", session, f"{name} {study['hash']}")
    return away(f"/drafts/{name}/sites")


async def _sites(console: Console, request: Request, session: Session) -> Response:
    name, _, study = await _study(console, request)
    return console.page(
        request,
        "sites.html",
        session,
        name=name,
        study=study,
        number=session.new_form(study["hash"]),
        **_agreement(console, study["hash"]),
    )


async def _redraft(console: Console, request: Request, session: Session) -> Response:
    """Another draft, with the schema that the sites share: its text has another hash."""
    _, file, study = await _study(console, request)
    session.take_form(request.state.form.get("number", ""), study["hash"])
    answers = _agreement(console, study["hash"])["answers"]
    if answers is None or answers["common_schema"] is None:
        raise DataError("no-shared-schema")
    name = request.state.form.get("name", "").strip()
    place = _new_file(console, name)
    await console.desk.ask(
        "redraft", file=file, out=str(place), name=name, schema=answers["common_schema"]
    )
    console.note(request, "drafted a study", session, name)
    return away(f"/drafts/{name}")
