"""The pages of a study's lead: drafts, forecasts, runs and results."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.console.pages import runs, survey
from eigenveil.console.pages.drafts import draft_file, folder, new_draft_file
from eigenveil.console.pages.forecasts import forecast_values
from eigenveil.console.pages.forms import FormPage, can_be_corrected, form_for, typed, whole
from eigenveil.console.sessions import Session
from eigenveil.console.web import Console, Link, away
from eigenveil.errors import EigenveilError

READERS = ("owner", "approver", "viewer", "lead")
DOERS = ("owner", "lead")
TITLE = "Studies"
LINKS = (
    Link("/drafts", "Studies", frozenset(READERS)),
    Link("/drafts/new", "New study", frozenset(DOERS)),
    Link("/runs", "Runs and results", frozenset(READERS)),
)
NEW = FormPage("new_study.html", "new study")
_LONGEST = 200_000


def routes(console: Console) -> list[Route]:
    """The section's pages."""
    return [
        console.route("/drafts", _drafts, READERS),
        console.route("/drafts/new", _new, DOERS),
        console.route("/drafts/new", _write, DOERS, form=True),
        console.route("/drafts/{name}", _draft, READERS),
        console.route("/drafts/{name}/start", _start, DOERS, form=True),
        *survey.routes(console, READERS, DOERS),
        *runs.routes(console, READERS, DOERS),
    ]


async def _drafts(console: Console, request: Request, session: Session) -> Response:
    studies = await console.desk.ask("drafts", folder=str(folder(console)))
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
    place = new_draft_file(console, name)
    fields: dict[str, Any] = {
        each: form.get(each, "").strip()[:1000] for each in ("requested_by", "purpose")
    }
    asked = {
        "out": str(place),
        "kind": kind["name"],
        "given": typed({each["name"]: form.get(each["name"], "") for each in kind["options"]}),
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


async def _draft(console: Console, request: Request, session: Session) -> Response:
    name = request.path_params["name"]
    file = draft_file(console, name)
    study = await console.desk.ask("study", file=str(file))
    given = typed(request.query_params)
    rows = whole(given.get("rows", ""), study.get("expected_rows") or 0)
    curve = None
    if rows:
        said = {each["name"]: given.get(each["name"], "") for each in study["expected"]}
        asked = {"file": str(file), "given": said, "rows": rows}
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
        **survey.survey_values(console, study["hash"]),
        **forecast_values(request, curve, quality=study["quality"], epsilon=study["epsilon"]),
    )


async def _start(console: Console, request: Request, session: Session) -> Response:
    form, name = request.state.form, request.path_params["name"]
    file = draft_file(console, name)
    study = await console.desk.ask("study", file=str(file))
    # the hash in the form is that of what was shown
    session.take_form(form.get("number", ""), study["hash"])
    party = console.settings.rows.party
    assert party is not None
    job = await console.jobs.start(
        "study",
        f"Study {name}",
        ["study", "run", str(file), "--party", party, "--out", "{result}"],
        who=session.person.name,
        about=study["hash"],
    )
    console.note(request, "started a study", session, f"{name} {study['hash']}")
    return away(f"/runs/{job.name}")
