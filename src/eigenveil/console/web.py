"""What every page has: the console's parts, who is signed in, checked forms, and refusals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from eigenveil.console.door import Door, Person, Session, Sessions
from eigenveil.console.forecasts import Forecasts
from eigenveil.console.log import Log
from eigenveil.console.runs import Runs
from eigenveil.console.settings import ROLES, Settings
from eigenveil.console.workers import Desk
from eigenveil.errors import DataError, EigenveilError, PrivacyError

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
_MOST_FIELDS = 100
# What an error's code is as a status; others of the package's errors are 400.
_STATUS = {
    "page-not-for-role": 403,
    "wrong-link": 403,
    "link-elsewhere": 403,
    "no-person": 403,
    "unknown-person": 403,
    "bad-provider": 403,
    "bad-form": 403,
    "wrong-password": 403,
    "form-used": 409,
    "study-changed": 409,
    "decided-meanwhile": 409,
    "unknown-run": 404,
    "unknown-study": 404,
    "unknown-draft": 404,
    "no-page": 404,
    "too-many-runs": 429,
    "desk-lost": 503,
    "unexpected": 500,
}
Guarded = Callable[["Console", Request, Session], Awaitable[Response]]


@dataclass(frozen=True)
class PageLink:
    """A link of the navigation, for some roles."""

    path: str
    text: str
    roles: frozenset[str]


@dataclass
class Console:
    """The parts of a console."""

    settings: Settings
    door: Door
    sessions: Sessions
    log: Log
    desk: Desk
    planner: Desk  # For what takes long
    runs: Runs
    title: str = ""  # Whose pages these are
    links: Sequence[PageLink] = ()
    forecasts: Forecasts = field(default_factory=Forecasts)
    pages: Environment = field(init=False)

    def __post_init__(self) -> None:
        self.pages = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.pages.globals["version"] = version("eigenveil")
        self.pages.filters["number"] = _number
        self.pages.filters["size"] = _size

    # -- answers

    def page(
        self,
        request: Request,
        template: str,
        session: Session | None = None,
        *,
        status: int = 200,
        **values: Any,
    ) -> Response:
        """A page, or the part of one that htmx asked for."""
        text = self.pages.get_template(template).render(
            console=self,
            session=session,
            here=request.url.path,
            part=request.headers.get("hx-request") == "true",
            **values,
        )
        return HTMLResponse(text, status)

    def problem(
        self, request: Request, error: EigenveilError, session: Session | None = None
    ) -> Response:
        """The page of an error; refusals are logged."""
        status = _STATUS.get(error.code, 400)
        if status in (403, 409, 429) or isinstance(error, PrivacyError):
            who = "" if session is None else session.person.name
            self.log.refused(error.code, who=who, address=address_of(request), detail=error.message)
        return self.page(request, "problem.html", session, status=status, error=error)

    def note(self, request: Request, what: str, session: Session, detail: str = "") -> None:
        """Add a line to the log."""
        self.log.note(what, who=session.person.name, address=address_of(request), detail=detail)

    # -- sessions

    @property
    def cookie(self) -> str:
        """The name of the session's cookie; browsers hold ``__Host-`` to TLS and this host.

        They send it to all ports of a host, where another console may be: it has the port in it.
        """
        return f"{'__Host-' if self.settings.secure else ''}eigenveil-{self.settings.port}"

    def begin(self, request: Request, person: Person) -> Response:
        """Let a person in, with a cookie that no script reads and no other site sends."""
        cookie, session = self.sessions.begin(person)
        self.note(request, "came in", session)
        # a page and not a redirect: after a provider's, browsers would leave the cookie out
        answer = self.page(request, "signed_in.html", home=self.home(session))
        answer.set_cookie(
            self.cookie, cookie, httponly=True, samesite="strict", secure=self.settings.secure
        )
        return answer

    def session_of(self, request: Request) -> Session | None:
        """The session of a request's cookie, where the door still stands for it."""
        cookie = request.cookies.get(self.cookie)
        found = self.sessions.find(cookie)
        if found is not None and not self.door.holds(request, found):
            self.sessions.end(cookie)
            return None
        return found

    def home(self, session: Session) -> str:
        """The first page of a role."""
        mine = [link.path for link in self.links if session.person.role in link.roles]
        return mine[0] if mine else self.links[0].path

    # -- routes

    def page_route(self, path: str, handler: Callable[[Request], Awaitable[Response]]) -> Route:
        """A page for those who are outside."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except EigenveilError as error:
                return self.problem(request, error)

        return Route(path, answer, methods=["GET"])

    def route(
        self, path: str, handler: Guarded, roles: Sequence[str], *, form: bool = False
    ) -> Route:
        """A page for those who came in and have one of the roles.

        With ``form`` it takes a form (POST), which must be of this session: it is then in
        ``request.state.form``.
        """

        async def answer(request: Request) -> Response:
            session = None
            try:
                session = self.session_of(request)
                if session is None:
                    return away("/sign-in", request)
                if session.person.role not in roles:
                    raise PrivacyError(
                        "page-not-for-role", role=session.person.role, roles=", ".join(roles)
                    )
                if form:
                    request.state.form = await form_of(request)
                    if not session.same_csrf(request.state.form.get("csrf", "")):
                        raise PrivacyError("bad-form")
                return await handler(self, request, session)
            except EigenveilError as error:
                return self.problem(request, error, session)

        return Route(path, answer, methods=["POST"] if form else ["GET"])


def sign_in_routes(console: Console) -> list[BaseRoute]:
    """The pages of everybody."""

    async def start(request: Request) -> Response:
        session = console.session_of(request)
        return away("/sign-in" if session is None else console.home(session))

    async def show(request: Request) -> Response:
        person = console.door.person(request)
        if person is not None:
            return console.begin(request, person)
        return console.page(request, "sign_in.html", way=console.door.way)

    async def leave(_: Console, request: Request, session: Session) -> Response:
        console.note(request, "left", session)
        console.sessions.end(request.cookies.get(console.cookie))
        answer = console.page(request, "signed_out.html")
        answer.delete_cookie(console.cookie, secure=console.settings.secure, httponly=True)
        return answer

    return [
        console.page_route("/", start),
        console.page_route("/sign-in", show),
        console.route("/sign-out", leave, ROLES, form=True),
        *console.door.routes(console),
    ]


def away(path: str, request: Request | None = None) -> Response:
    """Go to another page; htmx is told to load it whole."""
    if request is not None and request.headers.get("hx-request") == "true":
        return Response(status_code=204, headers={"HX-Redirect": path})
    return RedirectResponse(path, 303)


async def form_of(request: Request) -> Mapping[str, str]:
    """The fields of a form; files are not taken."""
    try:
        found = await request.form(max_fields=_MOST_FIELDS, max_files=0)
    except Exception:
        raise DataError("bad-form-fields") from None
    return {str(key): value for key, value in found.items() if isinstance(value, str)}


def address_of(request: Request) -> str:
    """Where a request came from."""
    return "" if request.client is None else request.client.host


def page_number(request: Request) -> int:
    """The page that was asked for, from 1."""
    text = request.query_params.get("page", "1")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 9 else 1


# -- forms of tasks: what was typed, what can be chosen, and a refusal beside the form

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


def _number(value: Any, digits: int = 4) -> str:
    if value is None:
        return "unknown"
    text = f"{value:.{digits}g}"
    return f"{value:,.0f}" if "e+" in text and abs(value) < 1e9 else text  # 3,000 and not 3e+03


def _size(count: int) -> str:
    number = float(count)
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"
