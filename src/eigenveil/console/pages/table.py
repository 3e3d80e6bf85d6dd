"""The pages of one analyst alone: the table, a plan, a fit, and the ledger."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from eigenveil.console.pages import runs
from eigenveil.console.settings import ROLES
from eigenveil.console.web import (
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

DOERS = ("owner", "approver", "lead")


async def _table(visit: Visit) -> Response:
    found, ledger = await visit.ask("table"), await visit.ask("ledger", page=1)
    last = runs.shown(visit.console)[:5]
    return visit.page("table.html", table=found, accounts=ledger["accounts"], runs=last)


async def _plan(visit: Visit) -> Response:
    given, found = visit.typed, await form_for(visit)
    form, rows = found["form"], whole(given.get("rows", ""), 0)
    expected = _chosen([*form["options"], *form["expected"]], given)
    asked = {"kind": form["name"], "given": expected, "rows": rows}
    return visit.page(
        "plan.html",
        given=given,
        rows=rows,
        link=urlencode(_chosen([*form["options"], *form["own"]], given)),
        **found,
        **await visit.forecast(form["quality"], asked if rows else None),
    )


def _chosen(fields: list[dict[str, Any]], given: dict[str, str]) -> dict[str, str]:
    """What was typed in fields and differs from usual, but for epsilon, which the slider has."""
    usual = {each["name"]: ("", each["default"]) for each in fields}
    found = given_in(fields, given).items()
    return {name: text for name, text in found if name != "epsilon" and text not in usual[name]}


async def _start(visit: Visit, form: dict[str, Any]) -> Response:
    given = given_in([*form["options"], *form["own"]], visit.typed)
    title = await visit.ask("check", kind=form["name"], given=given)
    run = visit.start("fit", title, kind=form["name"], given=given)
    visit.note("started a fit", title)
    return away(f"/runs/{run.name}")


async def ledger_page(visit: Visit) -> Response:
    """A page of the ledger, of a table or a site."""
    only = visit.typed.get("only", "")
    only = only if only in ("charge", "decision", "budget") else ""
    found = await visit.ask("ledger", page=page_number(visit), only=only)
    return visit.page("ledger.html", found=found, only=only)


def page_number(visit: Visit) -> int:
    """The page that was asked for, from 1."""
    return min(whole(visit.typed.get("page", ""), 1) or 1, 10**8)


_FIT = TaskForm("fit.html", _start)
SECTION = Section(
    "One table",
    (
        PageLink("/table", "Table", ROLES),
        PageLink("/plan", "Plan", ROLES),
        PageLink("/fit", "Fit", DOERS),
        PageLink("/runs", "Results", ROLES),
        PageLink("/ledger", "Ledger", ROLES),
    ),
    (
        Page("/table", _table, ROLES),
        Page("/plan", _plan, ROLES),
        Page("/fit", _FIT.show, DOERS),
        Page("/fit", _FIT.send, DOERS, form=True),
        Page("/ledger", ledger_page, ROLES),
        *runs.pages(ROLES, DOERS),
    ),
)
