"""Signing in and out: a password and a code, or the hospital's own provider."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eigenveil.console.accounts import Account
from eigenveil.console.passwords import enrolment_uri, qr_code
from eigenveil.console.settings import CALLBACK
from eigenveil.console.signing import unlocked
from eigenveil.console.web import Console, away, form_of, new_visitor
from eigenveil.errors import EigenveilError, PrivacyError

if TYPE_CHECKING:
    from eigenveil.console.oidc import Provider

_PROVIDER_COOKIE = "eigenveil-provider"


def routes(console: Console, provider: Provider | None) -> list[Route]:
    """The pages of everybody."""

    def page(
        path: str, handler: Callable[[Console, Request], Awaitable[Response]], method: str = "GET"
    ) -> Route:
        async def answer(request: Request) -> Response:
            try:
                return await handler(console, request)
            except EigenveilError as error:
                return console.problem(request, error)

        return Route(path, answer, methods=[method])

    found = [
        page("/", _start),
        page("/sign-in", _show),
        page("/sign-in", _password, "POST"),
        page("/sign-in/second-factor", _show_second),
        page("/sign-in/second-factor", _second, "POST"),
        page("/sign-out", _out, "POST"),
    ]
    if provider is not None:

        async def begin(console: Console, request: Request) -> Response:
            return await _to_provider(console, request, provider)

        async def back(console: Console, request: Request) -> Response:
            return await _from_provider(console, request, provider)

        found += [page("/sign-in/provider", begin), page(CALLBACK, back)]
    return found


async def _start(console: Console, request: Request) -> Response:
    session = console.session_of(request)
    signed_in = session is not None and session.stage == "in"
    return away(console.home(session) if session is not None and signed_in else "/sign-in")


async def _show(console: Console, request: Request, *, problem: str = "") -> Response:
    visitor = request.cookies.get(console.visitor_cookie) or new_visitor()
    answer = console.page(
        request,
        "sign_in.html",
        status=403 if problem else 200,
        form=console.sessions.visitor_form(visitor),
        problem=problem,
        provider=console.settings.issuer is not None,
    )
    console.give(answer, console.visitor_cookie, visitor)
    return answer


async def _password(console: Console, request: Request) -> Response:
    form = await form_of(request)
    if not console.sessions.is_visitors(
        form.get("form", ""), request.cookies.get(console.visitor_cookie)
    ):
        raise _old_form()
    name, password = form.get("name", "").strip(), form.get("password", "")
    console.check_rate(request, name)
    account = await run_in_threadpool(console.accounts.with_password, name, password)
    if account is None:
        console.limits.account.count(name)
        console.note(request, "refused: sign-in", detail=f"account {name}")
        return await _show(console, request, problem="The name or the password is wrong.")
    key = await run_in_threadpool(unlocked, console.accounts, account.name, password)
    return _next(console, account, key=key)


def _next(console: Console, account: Account, *, key: bytes | None = None) -> Response:
    cookie, _ = console.sessions.begin(account, "second factor", key=key)
    answer = away("/sign-in/second-factor")
    console.give(answer, console.cookie, cookie)
    return answer


async def _show_second(console: Console, request: Request, *, problem: str = "") -> Response:
    session = console.session_of(request)
    if session is None:
        return away("/sign-in")
    if session.stage == "in":
        return away(console.home(session))
    secret = uri = qr = ""
    if not session.account.confirmed:  # the one time that it is shown
        secret = console.accounts.secret(session.account.name)
        uri = enrolment_uri(secret, session.account.name)
        qr = qr_code(uri)
    return console.page(
        request,
        "second_factor.html",
        status=403 if problem else 200,
        action="/sign-in/second-factor",
        number="",
        waiting=session,
        secret=secret,
        uri=uri,
        qr=qr,
        problem=problem,
    )


async def _second(console: Console, request: Request) -> Response:
    session = console.session_of(request)
    if session is None or session.stage == "in":
        return away("/sign-in")
    form = await form_of(request)
    if not session.same_csrf(form.get("csrf", "")):
        raise _old_form()
    name = session.account.name
    console.check_rate(request, name)
    if not console.accounts.take_code(name, form.get("code", "")):
        console.limits.account.count(name)
        console.note(request, "refused: second factor", session)
        return await _show_second(
            console, request, problem="The code is wrong, or was used before. Wait for the next."
        )
    console.limits.account.forget(name)
    console.sessions.end(request.cookies.get(console.cookie))
    return _signed_in(console, request, console.accounts.named(name), key=session.key)


def _signed_in(
    console: Console, request: Request, account: Account, *, key: bytes | None
) -> Response:
    cookie, session = console.sessions.begin(account, "in", key=key)
    console.note(request, "signed in", session)
    # a page and not a redirect: after a provider's, browsers would leave the cookie out
    answer = console.page(request, "signed_in.html", home=console.home(session))
    console.give(answer, console.cookie, cookie)
    answer.delete_cookie(_PROVIDER_COOKIE, path=CALLBACK)
    return answer


async def _out(console: Console, request: Request) -> Response:
    session = console.session_of(request)
    form = await form_of(request)
    if session is not None and session.same_csrf(form.get("csrf", "")):
        console.note(request, "signed out", session)
        console.sessions.end(request.cookies.get(console.cookie))
    answer = away("/sign-in")
    answer.delete_cookie(console.cookie, path="/")
    return answer


# -- the hospital's own sign-in


async def _to_provider(console: Console, request: Request, provider: Provider) -> Response:
    console.check_rate(request, "")
    address, cookie = await provider.begin()
    answer = away(address)
    # lax: the provider's redirect must bring it; it opens nothing by itself
    answer.set_cookie(
        _PROVIDER_COOKIE,
        cookie,
        max_age=600,
        httponly=True,
        samesite="lax",
        secure=console.settings.secure,
        path=CALLBACK,
    )
    return answer


async def _from_provider(console: Console, request: Request, provider: Provider) -> Response:
    query = request.query_params
    name = await provider.name(
        query.get("state", ""), query.get("code", ""), request.cookies.get(_PROVIDER_COOKIE)
    )
    account = console.accounts.find(name)
    if account is None or account.local:
        console.note(request, "refused: sign-in", detail=f"no account for {name}")
        raise PrivacyError(
            "The provider knows you, and this console has no account for you.",
            hint="Ask whoever runs it: 'eigenveil console user add' makes one.",
            code="no-account",
        )
    return _signed_in(console, request, account, key=None)


def _old_form() -> EigenveilError:
    return PrivacyError(
        "This form was not shown to your browser, or long ago.",
        hint="Open the page again.",
        code="bad-form",
    )
