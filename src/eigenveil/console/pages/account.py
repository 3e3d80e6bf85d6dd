"""One's own account: another password, which the key goes along with, and another second factor."""

from __future__ import annotations

from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.console.accounts import ROLES, Kept
from eigenveil.console.passwords import enrolment_uri, new_secret, qr_code
from eigenveil.console.sessions import Session
from eigenveil.console.signing import renewed
from eigenveil.console.web import Console, away
from eigenveil.errors import DataError, PrivacyError

_PASSWORD, _FACTOR, _NEW = "password", "second factor", "new second factor"
_DONE = {
    _PASSWORD: "The password is changed. All other sessions of the account have ended.",
    _FACTOR: "The new second factor counts, and the old one no more. All other sessions of the "
    "account have ended.",
}


def routes(console: Console) -> list[Route]:
    """The pages of everybody who is signed in."""
    return [
        console.route("/account", _account, ROLES),
        console.route("/account/password", _change, ROLES, form=True),
        console.route("/account/second-factor", _begin, ROLES, form=True),
        console.route("/account/new-second-factor", _show, ROLES),
        console.route("/account/new-second-factor", _confirm, ROLES, form=True),
    ]


async def _account(console: Console, request: Request, session: Session) -> Response:
    return console.page(
        request,
        "account.html",
        session,
        done=_DONE.get(request.query_params.get("done", ""), ""),
        has_key=bool(console.accounts.kept(session.account.name).key),
        of_password=session.new_form(_PASSWORD),
        of_factor=session.new_form(_FACTOR),
    )


async def _change(console: Console, request: Request, session: Session) -> Response:
    form = request.state.form
    session.take_form(form.get("number", ""), _PASSWORD)
    new = form.get("new", "")
    if new != form.get("again", ""):
        raise DataError(
            "The new password was typed in two ways.",
            hint="Nothing was changed. Open the page again.",
            code="bad-form-fields",
        )
    before, after = await _proved(console, request, session, new)
    console.accounts.keep(session.account.name, before, after)
    return _again(console, request, session, _PASSWORD)


async def _begin(console: Console, request: Request, session: Session) -> Response:
    form = request.state.form
    session.take_form(form.get("number", ""), _FACTOR)
    if not session.account.local:
        raise PrivacyError(
            "Your organisation's sign-in has your second factor.",
            hint="Change it there.",
            code="no-account",
        )
    await _proved(console, request, session, form.get("password", ""))
    session.new_secret = new_secret()
    return away("/account/new-second-factor")


async def _show(
    console: Console, request: Request, session: Session, *, problem: str = ""
) -> Response:
    if not session.new_secret:
        return away("/account")
    uri = enrolment_uri(session.new_secret, session.account.name)
    return console.page(
        request,
        "second_factor.html",
        session,
        status=403 if problem else 200,
        action="/account/new-second-factor",
        waiting=session,
        number=session.new_form(_NEW),
        secret=session.new_secret,
        uri=uri,
        qr=qr_code(uri),
        problem=problem,
    )


async def _confirm(console: Console, request: Request, session: Session) -> Response:
    form, name = request.state.form, session.account.name
    session.take_form(form.get("number", ""), _NEW)
    console.check_rate(request, name)
    old, code = console.accounts.secret(name), form.get("code", "")
    if not console.accounts.take_secret(name, session.new_secret, code, before=old):
        console.limits.account.count(name)
        return await _show(
            console, request, session, problem="That is no code of the new second factor."
        )
    return _again(console, request, session, _FACTOR)


async def _proved(
    console: Console, request: Request, session: Session, new: str
) -> tuple[Kept, Kept]:
    """What is kept of the password, and of the new one, for who gave the old one and a code."""
    form, account = request.state.form, session.account
    console.check_rate(request, account.name)
    before = console.accounts.kept(account.name)
    try:
        after = await run_in_threadpool(renewed, before, form.get("password", ""), new)
        if account.local and not console.accounts.take_code(account.name, form.get("code", "")):
            raise PrivacyError(
                "The code is wrong, or was used before.",
                hint="Nothing was changed. Wait for the next code.",
                code="wrong-code",
            )
    except PrivacyError:
        console.limits.account.count(account.name)
        raise
    return before, after


def _again(console: Console, request: Request, session: Session, what: str) -> Response:
    """To the account's page, in a new session: the account changed, which ended all it had."""
    console.note(request, f"changed the {what}", session)
    console.limits.account.forget(session.account.name)
    console.sessions.end(request.cookies.get(console.cookie))
    account = console.accounts.named(session.account.name)
    cookie, _ = console.sessions.begin(account, "in", key=session.key)
    answer = away(f"/account?done={quote(what)}")
    console.give(answer, console.cookie, cookie)
    return answer
