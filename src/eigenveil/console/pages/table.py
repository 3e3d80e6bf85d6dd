"""The pages of one analyst alone: the table, a plan, a fit, and the ledger."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.console.pages import runs
from eigenveil.console.pages.forecasts import forecast_values, whole
from eigenveil.console.sessions import Session
from eigenveil.console.web import Console, Link, away, page_number

READERS = ("owner", "approver", "viewer", "lead")
DOERS = ("owner", "approver", "lead")
TITLE = "One table"
LINKS = (
    Link("/table", "Table", frozenset(READERS)),
    Link("/plan", "Plan", frozenset(READERS)),
    Link("/fit", "Fit", frozenset(DOERS)),
    Link("/runs", "Results", frozenset(READERS)),
    Link("/ledger", "Ledger", frozenset(READERS)),
)


def routes(console: Console) -> list[Route]:
    """The section's pages."""
    return [
        console.route("/table", _table, READERS),
        console.route("/plan", _plan, READERS),
        console.route("/fit", _fit, DOERS),
        console.route("/fit", _start, DOERS, form=True),
        console.route("/ledger", ledger_page, READERS),
        *runs.routes(console, READERS, DOERS),
    ]


async def _table(console: Console, request: Request, session: Session) -> Response:
    found = await console.desk.ask("table")
    ledger = await console.desk.ask("ledger", page=1)
    return console.page(
        request, "table.html", session, table=found, accounts=ledger["accounts"],
        runs=runs.shown(console)[:5],
    )  # fmt: skip


async def _plan(console: Console, request: Request, session: Session) -> Response:
    query = request.query_params
    rows = whole(query.get("rows", ""), 0)
    spectrum = query.get("spectrum", "power:1.0")[:200]
    components = query.get("components", "")[:20]
    options = {"n_components": components} if components else {}
    curve: Any = None
    if rows:
        asked = {"options": options, "rows": rows, "spectrum": spectrum}
        curve = await console.later.get(
            ["curve", asked], lambda: console.planner.ask("curve", **asked)
        )
    return console.page(
        request,
        "plan.html",
        session,
        rows=rows,
        spectrum=spectrum,
        components=components,
        **forecast_values(request, curve, asked=bool(rows)),
    )


async def _fit(console: Console, request: Request, session: Session) -> Response:
    options = await console.desk.ask("options")
    given = {key: value[:200] for key, value in request.query_params.items()}
    return console.page(
        request, "fit.html", session, options=options, given=given,
        number=session.new_form("fit"),
    )  # fmt: skip


async def _start(console: Console, request: Request, session: Session) -> Response:
    form = request.state.form
    session.take_form(form.get("number", ""), "fit")
    rows = console.settings.rows
    words = ["fit", *rows.data, "--out", "{result}"]
    if rows.schema is not None:
        words += ["--schema", rows.schema]
    if rows.ledger is not None:
        words += ["--ledger", rows.ledger]
    chosen = []
    for option in await console.desk.ask("options"):
        text = form.get(option["name"], "").strip()[:200]
        if text and text != option["default"]:
            # one word, so that no text can be taken for another option
            words.append(f"{option['option']}={text}")
            chosen.append(f"{option['label']} {text}")
    job = await console.jobs.start(
        "fit", f"PCA, {', '.join(chosen) or 'with the defaults'}", words, who=session.account.name
    )
    console.note(request, "started a fit", session, job.title)
    return away(f"/runs/{job.name}")


async def ledger_page(console: Console, request: Request, session: Session) -> Response:
    """A page of the ledger, of a table or a site."""
    only = request.query_params.get("only", "")
    only = only if only in ("charge", "decision", "budget") else ""
    found = await console.desk.ask("ledger", page=page_number(request), only=only)
    return console.page(request, "ledger.html", session, found=found, only=only)
