"""The sites' answers to a lead before a study starts: who has agreed, and what schemas share."""

from __future__ import annotations

import json
import shutil
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.console.jobs import ASKING, Job
from eigenveil.console.pages.drafts import draft_file, new_draft_file
from eigenveil.console.sessions import Session
from eigenveil.console.web import Console, away
from eigenveil.errors import DataError


def routes(console: Console, readers: tuple[str, ...], doers: tuple[str, ...]) -> list[Route]:
    """The pages."""
    return [
        console.route("/drafts/{name}/ask", _ask, doers, form=True),
        console.route("/drafts/{name}/sites", _sites, readers),
        console.route("/drafts/{name}/sites", _redraft, doers, form=True),
    ]


def survey_values(console: Console, study_hash: str) -> dict[str, Any]:
    """What the last question about a study came to, for templates.

    ``asked`` is ``None`` where nobody asked; ``asking`` whether answers are awaited now.
    """
    job = next(iter(_asked_about(console, study_hash)), None)
    found, problem = None, ""
    if job is not None and job.state != "running":
        found = _answers(console, job)
        if found is None:
            problem = " ".join(console.jobs.lines(job)[-3:]) or "The question was not answered."
    return {
        "asked": None
        if job is None
        else {
            "at": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(job.begun)),
            "who": job.who,
        },
        "asking": job is not None and job.state == "running",
        "answers": found,
        "not_agreed": [] if found is None else [e for e in found["sites"] if not e["agreed"]],
        "ask_problem": problem,
    }


def _asked_about(console: Console, study_hash: str) -> list[Job]:
    return [job for job in console.jobs.all() if job.kind == ASKING and job.about == study_hash]


def _answers(console: Console, job: Job) -> dict[str, Any] | None:
    """What the command printed; ``None`` where it failed."""
    try:
        found = json.loads(console.jobs.said(job))
    except ValueError:
        return None
    return found if isinstance(found, dict) and "sites" in found else None


async def _study(console: Console, request: Request) -> tuple[str, str, dict[str, Any]]:
    name = request.path_params["name"]
    file = str(draft_file(console, name))
    study: dict[str, Any] = await console.desk.ask("study", file=file)
    return name, file, study


async def _ask(console: Console, request: Request, session: Session) -> Response:
    name, file, study = await _study(console, request)
    before = _asked_about(console, study["hash"])
    if not any(job.state == "running" for job in before):
        party = console.settings.rows.party
        assert party is not None
        await console.jobs.start(
            ASKING,
            f"Question about {name}",
            ["study", "ask", file, "--party", party, "--json"],
            who=session.person.name,
            about=study["hash"],
        )
        for job in before:  # its answers are old
            shutil.rmtree(console.jobs.folder / job.name, ignore_errors=True)
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
        **survey_values(console, study["hash"]),
    )


async def _redraft(console: Console, request: Request, session: Session) -> Response:
    """Another draft, with the schema that the sites share: its text has another hash."""
    form = request.state.form
    _, file, study = await _study(console, request)
    session.take_form(form.get("number", ""), study["hash"])
    answers = survey_values(console, study["hash"])["answers"]
    if answers is None or answers["common_schema"] is None:
        raise DataError(
            "The sites have told no schema that they share.",
            hint="Ask them again, or draft the study with columns.",
            code="no-schema-told",
        )
    name = form.get("name", "").strip()
    place = new_draft_file(console, name)
    await console.desk.ask(
        "redraft", file=file, out=str(place), name=name, schema=answers["common_schema"]
    )
    console.note(request, "drafted a study", session, name)
    return away(f"/drafts/{name}")
