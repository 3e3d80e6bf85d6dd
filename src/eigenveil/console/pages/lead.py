"""The pages of a study's lead: drafts, forecasts, runs and results."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.console.pages import runs
from eigenveil.console.pages.forecasts import forecast_values, whole
from eigenveil.console.sessions import Session
from eigenveil.console.web import Console, Link, away
from eigenveil.errors import DataError

READERS = ("owner", "approver", "viewer", "lead")
DOERS = ("owner", "lead")
TITLE = "Studies"
LINKS = (
    Link("/drafts", "Studies", frozenset(READERS)),
    Link("/drafts/new", "New study", frozenset(DOERS)),
    Link("/runs", "Runs and results", frozenset(READERS)),
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LONGEST = 200_000
# Fields of a form that are fields of a study under the same name.
_NUMBERS = {"epsilon": float, "delta": float, "expected_rows": int, "collusion": int,
            "dropouts": int}  # fmt: skip


def routes(console: Console) -> list[Route]:
    """The section's pages."""
    return [
        console.route("/drafts", _drafts, READERS),
        console.route("/drafts/new", _new, DOERS),
        console.route("/drafts/new", _write, DOERS, form=True),
        console.route("/drafts/{name}", _draft, READERS),
        console.route("/drafts/{name}/start", _start, DOERS, form=True),
        *runs.routes(console, READERS, DOERS),
    ]


def _folder(console: Console) -> Path:
    place = console.settings.state / "studies"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    return place


def _file(console: Console, name: str) -> Path:
    place = _folder(console) / f"{name}.toml"
    if not _NAME.fullmatch(name) or not place.is_file():
        raise DataError(
            "There is no study of this name.", hint="The list has them all.", code="unknown-study"
        )
    return place


async def _drafts(console: Console, request: Request, session: Session) -> Response:
    names = sorted(file.stem for file in _folder(console).glob("*.toml"))
    health = await console.desk.ask("health")
    return console.page(
        request, "drafts.html", session, names=names, health=health, runs=runs.shown(console)[:8]
    )


async def _new(console: Console, request: Request, session: Session) -> Response:
    return console.page(request, "new_study.html", session, number=session.new_form("new study"))


async def _write(console: Console, request: Request, session: Session) -> Response:
    form = request.state.form
    session.take_form(form.get("number", ""), "new study")
    name = form.get("name", "").strip()
    if not _NAME.fullmatch(name):
        raise DataError(
            "The study's name is not one.",
            hint="Use letters, digits and _ . -, 64 at most, the first a letter or digit.",
            code="bad-name",
        )
    place = _folder(console) / f"{name}.toml"
    if place.exists():
        raise DataError(
            f"There is a study {name} already.", hint="Choose another name.", code="name-taken"
        )
    fields = _fields(form) | {"name": name}
    text = form.get("schema", "").strip()[:_LONGEST]
    if text:
        with tempfile.TemporaryDirectory(prefix="eigenveil-") as folder:
            schema = Path(folder) / "schema.toml"
            schema.write_text(text + "\n", encoding="utf-8")
            await console.desk.ask("draft", out=str(place), fields=fields, schema=str(schema))
    else:
        columns = [each.strip() for each in re.split(r"[,\n]", form.get("columns", ""))]
        found = fields | {"columns": [each for each in columns if each]}
        await console.desk.ask("draft", out=str(place), fields=found)
    console.note(request, "drafted a study", session, name)
    return away(f"/drafts/{name}")


def _fields(form: Any) -> dict[str, Any]:
    """The fields of a study, from those of the form."""
    sites = [each.strip() for each in re.split(r"[,\n]", form.get("sites", "")) if each.strip()]
    found: dict[str, Any] = {"task": "pca", "sites": [{"name": each} for each in sites]}
    found |= {each: form.get(each, "").strip()[:1000] for each in ("requested_by", "purpose")}
    components = form.get("components", "").strip()
    found["components"] = int(components) if components.isdigit() else components or "auto"
    for name, kind in _NUMBERS.items():
        text = form.get(name, "").strip()
        if not text:
            continue
        try:
            found[name] = kind(text)
        except ValueError:
            raise DataError(
                f"{name} is not a number.", hint="Open the form again.", code="bad-form-fields"
            ) from None
    return found


async def _draft(console: Console, request: Request, session: Session) -> Response:
    name = request.path_params["name"]
    file = _file(console, name)
    study = await console.desk.ask("study", file=str(file))
    query = request.query_params
    rows = whole(query.get("rows", ""), study.get("expected_rows") or 0)
    spectrum = query.get("spectrum", "power:1.0")[:200]
    curve: Any = None
    if rows:
        asked = {"file": str(file), "rows": rows, "spectrum": spectrum}
        curve = await console.later.get(
            ["curve", asked, study["hash"]], lambda: console.planner.ask("curve", **asked)
        )
    return console.page(
        request,
        "draft.html",
        session,
        name=name,
        study=study,
        rows=rows,
        spectrum=spectrum,
        number=session.new_form(study["hash"]),
        can_start=session.account.role in DOERS,
        runs=[run for run in runs.shown(console) if run["about"] == study["hash"]],
        **forecast_values(request, curve, asked=bool(rows), epsilon=study["epsilon"]),
    )


async def _start(console: Console, request: Request, session: Session) -> Response:
    form, name = request.state.form, request.path_params["name"]
    file = _file(console, name)
    study = await console.desk.ask("study", file=str(file))
    # the hash in the form is that of what was shown
    session.take_form(form.get("number", ""), study["hash"])
    kit = console.settings.rows.kit
    assert kit is not None
    job = await console.jobs.start(
        "study",
        f"Study {name}",
        ["study", "run", str(file), "--kit", kit, "--out", "{result}"],
        who=session.account.name,
        about=study["hash"],
    )
    console.note(request, "started a study", session, f"{name} {study['hash']}")
    return away(f"/runs/{job.name}")
