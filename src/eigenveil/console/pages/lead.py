"""The pages of a study's lead: drafts, forecasts, the sites' answers, runs and results."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from starlette.responses import Response

from eigenveil.console.pages import runs
from eigenveil.console.runs import ConsoleRun
from eigenveil.console.settings import ROLES
from eigenveil.console.web import (
    Console,
    Page,
    PageLink,
    Section,
    TaskForm,
    Visit,
    away,
    form_for,
    given_in,
    whole,
)
from eigenveil.errors import DataError, short_name

DOERS = ("owner", "lead")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LONGEST = 200_000


# -- drafts: a file each, by name


def _folder(console: Console) -> Path:
    place = console.settings.state / "studies"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    return place


def _new_file(visit: Visit) -> tuple[str, Path]:
    """The name in a form, and the file of the draft that is to be written."""
    name = visit.form.get("name", "").strip()
    if not _NAME.fullmatch(name):
        raise DataError("bad-draft-name")
    place = _folder(visit.console) / f"{name}.toml"
    if place.exists():
        raise DataError("draft-exists", name=name)
    return name, place


async def _draft_of(visit: Visit) -> tuple[str, str, dict[str, Any]]:
    """The draft of a page: its name, its file, and the study in it."""
    name = visit.named("name")
    place = _folder(visit.console) / f"{name}.toml"
    if not _NAME.fullmatch(name) or not place.is_file():
        raise DataError("unknown-draft", name=short_name(name))
    return name, str(place), await visit.ask("study", file=str(place))


def _written(visit: Visit, name: str) -> Response:
    visit.note("drafted a study", name)
    return away(f"/drafts/{name}")


async def _drafts(visit: Visit) -> Response:
    studies = await visit.ask("drafts", folder=str(_folder(visit.console)))
    last, health = runs.shown(visit.console)[:8], await visit.ask("health")
    return visit.page("drafts.html", studies=studies, health=health, runs=last)


async def _write(visit: Visit, kind: dict[str, Any]) -> Response:
    form, (name, place) = visit.form, _new_file(visit)
    fields: dict[str, Any] = {
        each: form.get(each, "").strip()[:1000] for each in ("requested_by", "purpose")
    }
    asked = {
        "out": str(place),
        "kind": kind["name"],
        "given": given_in([*kind["options"], *kind["own"]], visit.typed),
        "fields": fields | {"name": name, "sites": _listed(form.get("sites", ""))},
    }
    if not (text := form.get("schema", "").strip()[:_LONGEST]):
        asked["fields"]["columns"] = _listed(form.get("columns", ""))
        await visit.ask("draft", **asked)
        return _written(visit, name)
    with tempfile.TemporaryDirectory(prefix="eigenveil-") as folder:
        schema = Path(folder) / "schema.toml"
        schema.write_text(text + "\n", encoding="utf-8")
        await visit.ask("draft", schema=str(schema), **asked)
    return _written(visit, name)


def _listed(text: str) -> list[str]:
    """Names with commas or ends of lines between."""
    return [each.strip() for each in re.split(r"[,\n]", text) if each.strip()]


# -- one draft: what it would give, and its start


async def _draft(visit: Visit) -> Response:
    name, file, study = await _draft_of(visit)
    given = visit.typed
    rows = whole(given.get("rows", ""), study.get("expected_rows") or 0)
    asked = {"file": file, "given": given_in(study["expected"], given), "rows": rows}
    forecast = await visit.forecast(
        study["quality"], asked if rows else None, study["hash"], epsilon=study["epsilon"]
    )
    return visit.page(
        "draft.html",
        name=name,
        study=study,
        given=given,
        rows=rows,
        number=visit.session.new_form(study["hash"]),
        can_start=visit.person.role in DOERS,
        runs=[run for run in runs.shown(visit.console) if run["about"] == study["hash"]],
        **_agreement(visit, study),
        **forecast,
    )


async def _start(visit: Visit) -> Response:
    name, file, study = await _draft_of(visit)
    visit.take_form(study["hash"])  # of what was shown
    run = visit.start("study", f"Study {name}", study["hash"], file=file)
    visit.note("started a study", f"{name} {study['hash']}")
    return away(f"/runs/{run.name}")


# -- what the sites say of a draft


def _asked_about(visit: Visit, study: dict[str, Any]) -> list[ConsoleRun]:
    found = visit.console.runs.all()
    return [run for run in found if run.kind == "ask" and run.about == study["hash"]]


def _agreement(visit: Visit, study: dict[str, Any]) -> dict[str, Any]:
    """What the last question about a study came to, for templates.

    ``asked`` is ``None`` where nobody asked; ``asking`` whether answers are awaited now.
    """
    run = next(iter(_asked_about(visit, study)), None)
    found = None if run is None else run.last("answered")
    asking, problem = run is not None and run.state == "running", ""
    if run is not None and not asking and found is None:
        problem = (run.last("failed") or {"message": "It was not answered."})["message"]
    return {
        "asked": None if run is None else {"at": runs.day_and_time(run.begun), "who": run.who},
        "asking": asking,
        "answers": found,
        "not_agreed": [] if found is None else [e for e in found["sites"] if not e["agreed"]],
        "ask_problem": problem,
    }


async def _ask(visit: Visit) -> Response:
    name, file, study = await _draft_of(visit)
    before = _asked_about(visit, study)
    if not any(run.state == "running" for run in before):
        visit.start("ask", f"Question about {name}", study["hash"], file=file)
        for run in before:  # its answers are old
            visit.console.runs.forget(run)
        visit.note("asked the sites", f"{name} {study['hash']}")
    return away(f"/drafts/{name}/sites")


async def _sites(visit: Visit) -> Response:
    name, _, study = await _draft_of(visit)
    number = visit.session.new_form(study["hash"])
    return visit.page(
        "sites.html", name=name, study=study, number=number, **_agreement(visit, study)
    )


async def _redraft(visit: Visit) -> Response:
    """Another draft, with the schema that the sites share: its text has another hash."""
    _, file, study = await _draft_of(visit)
    visit.take_form(study["hash"])
    answers = _agreement(visit, study)["answers"]
    if answers is None or answers["common_schema"] is None:
        raise DataError("no-shared-schema")
    name, place = _new_file(visit)
    schema = answers["common_schema"]
    await visit.ask("redraft", file=file, out=str(place), name=name, schema=schema)
    return _written(visit, name)


async def _new_form(visit: Visit) -> dict[str, Any]:
    health = await visit.ask("health")
    return {"sites": health["sites"], **await form_for(visit)}


_NEW = TaskForm("new_study.html", _write, _new_form)
SECTION = Section(
    "Studies",
    (
        PageLink("/drafts", "Studies", ROLES),
        PageLink("/drafts/new", "New study", DOERS),
        PageLink("/runs", "Runs and results", ROLES),
    ),
    (
        Page("/drafts", _drafts, ROLES),
        Page("/drafts/new", _NEW.show, DOERS),
        Page("/drafts/new", _NEW.send, DOERS, form=True),
        Page("/drafts/{name}", _draft, ROLES),
        Page("/drafts/{name}/start", _start, DOERS, form=True),
        Page("/drafts/{name}/ask", _ask, DOERS, form=True),
        Page("/drafts/{name}/sites", _sites, ROLES),
        Page("/drafts/{name}/sites", _redraft, DOERS, form=True),
        *runs.pages(ROLES, DOERS),
    ),
)
