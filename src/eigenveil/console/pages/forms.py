"""Forms of tasks on pages: what was typed, what can be chosen, and a refusal beside the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from eigenveil.console.door import Session
from eigenveil.console.web import Console
from eigenveil.errors import EigenveilError

LONGEST = 200
_MOST_ROWS = 2**53
# Refusals of a form as such: there is nothing in it to correct.
_OF_FORM = ("form-used", "bad-form", "desk-lost", "unexpected")


def typed(found: Mapping[str, str]) -> dict[str, str]:
    """What was typed: no more than a field holds, by name."""
    return {key: value.strip()[:LONGEST] for key, value in found.items()}


async def form_for(console: Console, name: str) -> dict[str, Any]:
    """The fields of what can be computed, and the list of all of it."""
    kinds: list[dict[str, str]] = await console.desk.ask("kinds")
    form = await console.desk.ask("form", kind=name or kinds[0]["name"])
    return {"kinds": kinds, "form": form}


@dataclass(frozen=True)
class FormPage:
    """The page of a form: its template, and what its number is good for."""

    template: str
    purpose: str

    def show(
        self,
        console: Console,
        request: Request,
        session: Session,
        found: Mapping[str, Any],
        given: Mapping[str, str],
        error: EigenveilError | None = None,
    ) -> Response:
        """The form of :func:`form_for` with what was typed, and what is wrong with it."""
        return console.page(
            request,
            self.template,
            session,
            status=200 if error is None else 400,
            given=given,
            error=error,
            number=session.new_form(self.purpose),
            **found,
        )


def can_be_corrected(error: EigenveilError) -> bool:
    """Whether a refusal is shown beside the form, with what was typed."""
    return error.code not in _OF_FORM


def whole(text: str, otherwise: int) -> int:
    """A positive whole number, or what is otherwise meant."""
    text = text.strip().replace(",", "").replace(" ", "")
    if text.isascii() and text.isdigit() and 0 < len(text) < 17:
        return min(int(text), _MOST_ROWS)
    return otherwise
