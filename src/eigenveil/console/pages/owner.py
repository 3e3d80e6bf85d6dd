"""The pages of a site's owner: what is asked, decisions, the ledger, and the site's health."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.console.door import Session
from eigenveil.console.pages.table import ledger_page
from eigenveil.console.settings import Rows
from eigenveil.console.web import Console, PageLink, away, page_number, whole
from eigenveil.errors import DataError, EigenveilError

READERS = ("owner", "approver", "viewer")
DECIDERS = ("owner", "approver")
TITLE = "Site"
LINKS = (
    PageLink("/studies", "Studies", frozenset(READERS)),
    PageLink("/ledger", "Ledger", frozenset(READERS)),
    PageLink("/health", "Health", frozenset(READERS)),
    PageLink("/log", "Log", frozenset({"owner"})),
)
_DONE = {"approve": "approved", "refuse": "refused", "revoke": "revoked"}
_LONGEST = 1000
_MOST_YEARS = 100


def routes(console: Console) -> list[Route]:
    """The section's pages."""
    return [
        console.route("/studies", _studies, READERS),
        console.route("/studies/{study}", _study, READERS),
        console.route("/studies/{study}/decide", _decide, DECIDERS, form=True),
        console.route("/ledger", ledger_page, READERS),
        console.route("/health", _health, READERS),
        console.route("/log", _log, ("owner",)),
    ]


async def _studies(console: Console, request: Request, session: Session) -> Response:
    found = await console.desk.ask("studies")
    health = await console.desk.ask("health")
    return console.page(request, "studies.html", session, found=found, health=health)


async def _study(console: Console, request: Request, session: Session) -> Response:
    study = await console.desk.ask(
        "study", study=request.path_params["study"], by=session.person.name
    )
    return console.page(
        request,
        "study.html",
        session,
        study=study,
        decides=session.person.role in DECIDERS,
        number=session.new_form(study["hash"]),
        done=request.query_params.get("done", "")[:20],
    )


async def _decide(console: Console, request: Request, session: Session) -> Response:
    form, study = request.state.form, request.path_params["study"]
    # the hash in the form is that of what was shown; a form counts once
    session.take_form(form.get("number", ""), study)
    action = form.get("action", "")
    if action not in _DONE or form.get("hash") != study:
        raise DataError("bad-form-fields")
    terms: dict[str, Any] = {"reason": _text(form.get("reason", ""))}
    if action == "approve":
        terms |= {"purpose": _text(form.get("purpose", "")), **_terms(form)}
    elif action == "refuse":
        if not terms["reason"]:
            raise DataError("no-reason")
        terms["tell_lead"] = form.get("tell") == "yes"
    if form.get("where") == "terminal":
        command = shlex.join(_words(console, session, action, study, terms))
        return console.page(request, "terminal.html", session, study=study, command=command)
    try:
        await console.desk.ask(
            "decide",
            action=action,
            study=study,
            by=session.person.name,
            password=form.get("password", ""),
            seen=whole(form.get("seen", ""), 0),
            terms=terms,
        )
    except EigenveilError as error:
        if error.code == "wrong-password":
            session.wrong += 1
        raise
    console.note(request, f"decided: {action}", session, study)
    return away(f"/studies/{study}?done={_DONE[action]}")


def _words(
    console: Console, session: Session, action: str, study: str, terms: Mapping[str, Any]
) -> list[str]:
    """The command that decides the same, for who has a key elsewhere, or the party's own."""
    rows = console.settings.rows
    words = ["eigenveil", "site", action, study, "--party", rows.party or ""]
    if rows.ledger is not None:
        words += ["--ledger", rows.ledger]
    if action == "approve" and rows.data_set != Rows.data_set:
        words += ["--data-set", rows.data_set]
    words += ["--as", session.person.name]
    for name, value in terms.items():
        if value is True:
            words.append(f"--{name.replace('_', '-')}")
        elif value not in ("", None, False):
            words.append(f"--{name}={value}")  # with '=': no text is taken for another option
    return words


def _terms(form: Mapping[str, str]) -> dict[str, Any]:
    """How often and how long an approval counts."""
    match form.get("often"):
        case "once":
            return {"runs": 1, "until": None}
        case "runs":
            runs = whole(form.get("runs", ""), 0)
            if not 0 < runs <= 1000:
                raise DataError("bad-approval-runs")
            return {"runs": runs, "until": None}
        case "until":
            try:
                day = datetime.strptime(form.get("until", ""), "%Y-%m-%d").replace(tzinfo=UTC)
            except ValueError:
                raise DataError("bad-approval-date") from None
            today = datetime.now(UTC).date()
            if not today <= day.date() <= _years_on(today):
                raise DataError("bad-approval-date")
            return {"runs": None, "until": day.date().isoformat()}
    raise DataError("bad-approval-terms")


def _years_on(today: date) -> date:
    """The last day until which an approval can be."""
    return today + timedelta(days=365 * _MOST_YEARS)


def _text(text: str) -> str:
    """A text on one line."""
    return " ".join(text.split())[:_LONGEST]


async def _health(console: Console, request: Request, session: Session) -> Response:
    found = await console.desk.ask("health")
    return console.page(request, "health.html", session, health=found)


async def _log(console: Console, request: Request, session: Session) -> Response:
    page = page_number(request)
    events = console.log.events(page=page)
    return console.page(
        request, "log.html", session, events=events, page=page, more=len(events) == 50
    )
