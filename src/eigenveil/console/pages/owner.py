"""The pages of a site's owner: what is asked, decisions, the ledger, and the site's health."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.responses import Response

from eigenveil.console.pages import ledger
from eigenveil.console.pages.ledger import at_terminal, page_number
from eigenveil.console.settings import Rows
from eigenveil.console.web import Page, PageLink, Section, Visit, away, whole
from eigenveil.errors import DataError, EigenveilError

READERS = ("owner", "approver", "viewer")
DECIDERS = ("owner", "approver")
_DONE = {"approve": "approved", "refuse": "refused", "revoke": "revoked"}
_LONGEST = 1000
_MOST_DAYS = 365 * 100


async def _studies(visit: Visit) -> Response:
    found, health = await visit.ask("studies"), await visit.ask("health")
    return visit.page("studies.html", found=found, health=health)


async def _study(visit: Visit) -> Response:
    study = await visit.ask("study", study=visit.named("study"), by=visit.person.name)
    return visit.page(
        "study.html",
        study=study,
        decides=visit.person.role in DECIDERS,
        number=visit.session.new_form(study["hash"]),
        done=visit.typed.get("done", "")[:20],
    )


async def _decide(visit: Visit) -> Response:
    form, study = visit.form, visit.named("study")
    # the hash in the form is that of what was shown; a form counts once
    visit.take_form(study)
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
        rows = visit.console.settings.rows
        named = action == "approve" and rows.data_set != Rows.data_set
        place = {"ledger": rows.ledger, "data_set": rows.data_set if named else ""}
        return at_terminal(visit, f"/studies/{study}", ("site", action, study), place | terms)
    try:
        await visit.ask(
            "decide",
            action=action,
            study=study,
            by=visit.person.name,
            password=form.get("password", ""),
            seen=whole(form.get("seen", ""), 0),
            terms=terms,
        )
    except EigenveilError as error:
        if error.code == "wrong-password":
            visit.session.wrong += 1
        raise
    visit.note(f"decided: {action}", study)
    return away(f"/studies/{study}?done={_DONE[action]}")


def _terms(form: Mapping[str, str]) -> dict[str, Any]:
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
            if not timedelta() <= day.date() - datetime.now(UTC).date() <= timedelta(_MOST_DAYS):
                raise DataError("bad-approval-date")
            return {"runs": None, "until": day.date().isoformat()}
    raise DataError("bad-approval-terms")


def _text(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]


async def _health(visit: Visit) -> Response:
    return visit.page("health.html", health=await visit.ask("health"))


async def _log(visit: Visit) -> Response:
    page = page_number(visit)
    events = visit.console.log.events(page=page)
    return visit.page("log.html", events=events, page=page, more=len(events) == 50)


SECTION = Section(
    "Site",
    (
        PageLink("/studies", "Studies", READERS),
        PageLink("/ledger", "Ledger", READERS),
        PageLink("/health", "Health", READERS),
        PageLink("/log", "Log", ("owner",)),
    ),
    (
        Page("/studies", _studies, READERS),
        Page("/studies/{study}", _study, READERS),
        Page("/studies/{study}/decide", _decide, DECIDERS, form=True),
        *ledger.pages(READERS, DECIDERS),
        Page("/health", _health, READERS),
        Page("/log", _log, ("owner",)),
    ),
)
