"""The ledger of a table or a site, and a new budget of one of its accounts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from starlette.responses import Response

from eigenveil.console.web import Page, Visit, away, whole
from eigenveil.errors import EigenveilError

_OPEN = "open sessions"
_FIELDS = ("epsilon", "delta", "adjacency", "unit", "reason")


def pages(readers: Collection[str], deciders: Collection[str]) -> list[Page]:
    return [
        Page("/ledger", _ledger, readers),
        Page("/ledger/verify", _verify, readers),
        Page("/ledger/budget", _budget, deciders),
        Page("/ledger/budget", _set_budget, deciders, form=True),
        Page("/ledger/end", _end, deciders, form=True),
    ]


async def _ledger(visit: Visit) -> Response:
    only = visit.typed.get("only", "")
    only = only if only in ("charge", "decision", "budget") else ""
    found = await visit.ask("ledger", page=page_number(visit), only=only)
    return visit.page(
        "ledger.html",
        found=found,
        only=only,
        done=visit.typed.get("done", ""),
        number=visit.session.new_form(_OPEN),
        change=any(
            page.path == "/ledger/budget" and visit.person.role in page.roles
            for page in visit.console.section.pages
        ),
    )


async def _end(visit: Visit) -> Response:
    """End what holds a part of a budget and will not go on."""
    visit.take_form(_OPEN)
    study = visit.typed.get("study", "")
    count = await visit.ask("end", study=study)
    visit.note("ended sessions", f"{count} of {study}")
    return away("/ledger?done=ended")


async def _verify(visit: Visit) -> Response:
    found = await visit.ask("verify", against=visit.typed.get("against", ""))
    return visit.page("verified.html", found=found)


def page_number(visit: Visit) -> int:
    """The page that was asked for, from 1."""
    return min(whole(visit.typed.get("page", ""), 1) or 1, 10**8)


# -- a new budget


async def _account(visit: Visit) -> dict[str, Any]:
    data_set = visit.typed.get("data_set", "")
    return dict(await visit.ask("budget", data_set=data_set, by=visit.person.name))


async def _budget(visit: Visit) -> Response:
    found = await _account(visit)
    return _form(visit, found) if found["data_set"] else away("/ledger")


def _form(
    visit: Visit, found: dict[str, Any], error: EigenveilError | None = None, status: int = 200
) -> Response:
    """The form, with what was typed, or what the address proposes."""
    given = found["usual"] | (found["account"] or {})
    for proposed in (*found["waiting"][-1:], visit.typed):
        given |= {name: value for name, value in proposed.items() if name in _FIELDS}
    number = visit.session.new_form(found["mark"])
    return visit.page(
        "budget.html",
        status=status,
        found=found,
        given=given,
        number=number,
        error=error,
        study=_study(visit),
    )


async def _set_budget(visit: Visit) -> Response:
    """Set it once, as long as the account stands as it was shown; or show what is wrong."""
    found = await _account(visit)
    visit.take_form(found["mark"])
    given = {name: visit.typed.get(name, "") for name in _FIELDS}
    if found["signs"] == "elsewhere" or visit.form.get("where") == "terminal":
        words = "ledger", "budget", found["place"], "--data-set", found["data_set"]
        return at_terminal(visit, "/ledger", words, given)
    data_set = visit.typed.get("data_set", "")
    try:
        note = await visit.ask(
            "set_budget",
            data_set=data_set,
            given=given,
            by=visit.person.name,
            password=visit.form.get("password", ""),
        )
    except EigenveilError as error:
        if error.code == "wrong-password":
            visit.session.wrong += 1
            raise
        return _form(visit, found, error, 400)
    visit.note("set a budget", f"{data_set}: epsilon {given['epsilon']}, {given['reason']}")
    done = "waits" if found["signs"] != "nobody" and note else "budget"
    study = _study(visit)
    return away(f"/studies/{study}?done={done}" if study else f"/ledger?done={done}")


def _study(visit: Visit) -> str:
    text = visit.typed.get("study", "")
    return text if re.fullmatch("[0-9a-f]{64}", text) else ""


def at_terminal(
    visit: Visit, back: str, words: Iterable[str], given: Mapping[str, Any]
) -> Response:
    """The command that does the same, for who has a key elsewhere, or the party's own."""
    party = visit.console.settings.rows.party or ""
    typed = ["eigenveil", *words, "--party", party, "--as", visit.person.name]
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            typed.append(option)
        elif value not in ("", None, False):
            typed.append(f"{option}={value}")  # with '=': no text is taken for another option
    return visit.page("terminal.html", back=back, command=shlex.join(typed))
