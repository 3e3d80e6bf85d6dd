"""The pages of a site's owner: what is asked, decisions, the ledger, and the site's health."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.console.pages.forms import whole
from eigenveil.console.pages.table import ledger_page
from eigenveil.console.sessions import Session
from eigenveil.console.signing import key_or_refusal, unlocked
from eigenveil.console.web import Console, Link, away, page_number
from eigenveil.errors import DataError, EigenveilError

READERS = ("owner", "approver", "viewer")
DECIDERS = ("owner", "approver")
TITLE = "Site"
LINKS = (
    Link("/studies", "Studies", frozenset(READERS)),
    Link("/ledger", "Ledger", frozenset(READERS)),
    Link("/health", "Health", frozenset(READERS)),
    Link("/log", "Log", frozenset({"owner"})),
)
_ACTIONS = ("approve", "refuse", "revoke")
_DONE = {"approve": "approved", "refuse": "refused", "revoke": "revoked"}
_LONGEST = 1000


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
    study = await console.desk.ask("study", study=request.path_params["study"])
    return console.page(
        request,
        "study.html",
        session,
        study=study,
        decides=session.account.role in DECIDERS,
        number=session.new_form(study["hash"]),
        locked=session.key is None,
        done=request.query_params.get("done", "")[:20],
    )


async def _decide(console: Console, request: Request, session: Session) -> Response:
    form, study = request.state.form, request.path_params["study"]
    # the hash in the form is that of what was shown; a form counts once
    session.take_form(form.get("number", ""), study)
    action = form.get("action", "")
    if action not in _ACTIONS or form.get("hash") != study:
        raise DataError(
            "The form is incomplete.", hint="Open the page again.", code="bad-form-fields"
        )
    reason = form.get("reason", "").strip()
    if action == "refuse" and not reason:
        raise DataError(
            "A refusal needs a reason.",
            hint="Nothing was decided. Say why: it is recorded in the ledger.",
            code="no-reason",
        )
    key = session.key
    if key is None:
        password, name = form.get("password", ""), session.account.name
        console.check_rate(request, name)
        key = await run_in_threadpool(unlocked, console.accounts, name, password)
        if key is None:
            console.limits.account.count(name)
    terms = _terms(form) if action == "approve" else {}
    await console.desk.ask(
        "decide",
        action=action,
        study=study,
        by=session.account.name,
        key=key_or_refusal(key).hex(),
        purpose=_text(form.get("purpose", "")) if action == "approve" else "",
        reason=_text(reason),
        tell_lead=form.get("tell") == "yes",
        seen=whole(form.get("seen", ""), 0),
        **terms,
    )
    console.note(request, f"decided: {action}", session, study)
    return away(f"/studies/{study}?done={_DONE[action]}")


def _terms(form: Any) -> dict[str, Any]:
    """How often and how long an approval counts."""
    match form.get("often"):
        case "once":
            return {"runs": 1, "until": None}
        case "runs":
            runs = whole(form.get("runs", ""), 0)
            if not 0 < runs <= 1000:
                raise _bad_terms("The number of runs is not from 1 to 1000.")
            return {"runs": runs, "until": None}
        case "until":
            try:
                day = datetime.strptime(form.get("until", ""), "%Y-%m-%d").replace(tzinfo=UTC)
                end = day + timedelta(days=1)  # the whole of that day
            except (ValueError, OverflowError):
                raise _bad_terms("The date is not one.") from None
            if end <= datetime.now(UTC):
                raise _bad_terms("The date has passed.")
            return {"runs": None, "until": end.isoformat()}
    raise _bad_terms("How often it may run was not said.")


def _bad_terms(what: str) -> EigenveilError:
    return DataError(
        what, hint="Nothing was decided. Open the page again.", code="bad-approval-terms"
    )


def _text(text: str) -> str:
    """A text on one line."""
    return " ".join(text.split())[:_LONGEST]


async def _health(console: Console, request: Request, session: Session) -> Response:
    found = await console.desk.ask("health")
    return console.page(request, "health.html", session, health=found)


async def _log(console: Console, request: Request, session: Session) -> Response:
    page = page_number(request)
    events = console.accounts.events(page=page)
    return console.page(
        request, "log.html", session, events=events, page=page, more=len(events) == 50
    )
