"""The pages of one analyst alone: the table, a plan, a fit, and the ledger."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.console.door import Session
from eigenveil.console.forecasts import forecast_values
from eigenveil.console.pages import runs
from eigenveil.console.web import (
    Console,
    FormPage,
    PageLink,
    away,
    can_be_corrected,
    form_for,
    page_number,
    typed,
    whole,
)
from eigenveil.errors import EigenveilError

READERS = ("owner", "approver", "viewer", "lead")
DOERS = ("owner", "approver", "lead")
TITLE = "One table"
FIT = FormPage("fit.html", "fit")
LINKS = (
    PageLink("/table", "Table", frozenset(READERS)),
    PageLink("/plan", "Plan", frozenset(READERS)),
    PageLink("/fit", "Fit", frozenset(DOERS)),
    PageLink("/runs", "Results", frozenset(READERS)),
    PageLink("/ledger", "Ledger", frozenset(READERS)),
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
    given = typed(request.query_params)
    found = await form_for(console, given.get("kind", ""))
    kind, rows = found["form"]["name"], whole(given.get("rows", ""), 0)
    curve = None
    if rows:
        asked = {"kind": kind, "given": _options(found["form"], given), "rows": rows}
        curve = await console.forecasts.look(
            asked, lambda epsilon: console.planner.ask("point", epsilon=epsilon, **asked)
        )
    return console.page(
        request,
        "plan.html",
        session,
        given=given,
        rows=rows,
        link=urlencode(_options(found["form"], given, fit=True)),
        **found,
        **forecast_values(request, curve, quality=found["form"]["quality"]),
    )


def _options(form: dict[str, Any], given: dict[str, str], *, fit: bool = False) -> dict[str, str]:
    """What was typed in the fields of a plan, or in those of its fit that differ from usual."""
    fields = [*form["options"], *form["own" if fit else "expected"]]
    # the slider has epsilon
    return {
        field["name"]: text
        for field in fields
        if field["name"] != "epsilon"
        and (text := given.get(field["name"], "")) not in ("", field["default"])
    }


async def _fit(console: Console, request: Request, session: Session) -> Response:
    given = typed(request.query_params)
    found = await form_for(console, given.get("kind", ""))
    return FIT.show(console, request, session, found, given)


async def _start(console: Console, request: Request, session: Session) -> Response:
    form = typed(request.state.form)
    session.take_form(form.get("number", ""), FIT.purpose)
    found = await form_for(console, form.get("kind", ""))
    kind = found["form"]["name"]
    fields = [*found["form"]["options"], *found["form"]["own"]]
    given = {each["name"]: form.get(each["name"], "") for each in fields}
    try:
        title = await console.desk.ask("check", kind=kind, given=given)
    except EigenveilError as error:
        if not can_be_corrected(error):
            raise
        return FIT.show(console, request, session, found, given, error)
    run = console.runs.start(
        "fit",
        title,
        rows=console.settings.rows,
        asked={"kind": kind, "given": given},
        who=session.person.name,
    )
    console.note(request, "started a fit", session, run.title)
    return away(f"/runs/{run.name}")


async def ledger_page(console: Console, request: Request, session: Session) -> Response:
    """A page of the ledger, of a table or a site."""
    only = request.query_params.get("only", "")
    only = only if only in ("charge", "decision", "budget") else ""
    found = await console.desk.ask("ledger", page=page_number(request), only=only)
    return console.page(request, "ledger.html", session, found=found, only=only)
