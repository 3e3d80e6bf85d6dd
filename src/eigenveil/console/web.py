"""What every page has: the console's parts, who is signed in, checked forms, and refusals."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from eigenveil.console.door import BrowserSession, Door, Person, Sessions, address_of
from eigenveil.console.forecasts import Forecasts, forecast_values
from eigenveil.console.log import Log
from eigenveil.console.runs import ConsoleRun, Kind, Runs
from eigenveil.console.settings import READING, ROLES, Rows, Settings
from eigenveil.console.tables import ConsoleTables
from eigenveil.console.workers import DeskProcess
from eigenveil.errors import DataError, EigenveilError, PrivacyError, number_text
from eigenveil.models.option_words import label_of

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
_MOST_FIELDS = 1000
_COMMAND = re.compile(r"(?<![\w-])--[a-z]|\beigenveil [a-z]+ |= in Python")
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]+)(?: [A-Z]+\b)?")
# What an error's hint would do by a command and a page does: its code, the page and its link.
_MENDS = {
    "over-budget": ("/ledger", "See what holds the budget, or raise it"),
    "no-room-for-error": ("/ledger", "See what holds the budget, or raise it"),
    "no-budget": ("/ledger", "Set a budget"),
    "account-does-not-count-so": ("/studies", "Back to the studies: the study's page mends it"),
}
# What to do in a browser, where an error's hint is about commands or Python.
_ADVICE = {
    "header-is-data": "Give the file a first line with the columns' names, and bring it again.",
    "identifier-column": 'The steps "Whose rows" and "Columns" take it out. A stream reads all '
    "columns of its file: choose another kind of fit.",
}
# What an error's code is as a status; others of the package's errors are 400.
_STATUS = {
    code: status
    for status, codes in {
        403: "page-not-for-role wrong-link link-elsewhere no-person unknown-person bad-provider "
        "bad-form wrong-password",
        404: "unknown-run unknown-study unknown-draft no-page no-such-table no-such-columns",
        409: "form-used study-changed decided-meanwhile",
        429: "too-many-runs",
        500: "unexpected",
        503: "desk-lost",
    }.items()
    for code in codes.split()
}


@dataclass(frozen=True)
class PageLink:
    """A link of the navigation, for some roles."""

    path: str
    text: str
    roles: Collection[str]


@dataclass(frozen=True)
class Page:
    """A page for those who came in and have one of the roles.

    With ``form`` it takes a form (POST), which must be of the session that sends it.
    """

    path: str
    answer: Callable[[Visit], Awaitable[Response]]
    roles: Collection[str]
    form: bool = False
    files: int = 0  # That a form may bring


@dataclass(frozen=True)
class Section:
    """The pages of one kind of person."""

    title: str
    links: Sequence[PageLink]
    pages: Sequence[Page]


@dataclass
class Console:
    settings: Settings
    door: Door[Any]
    sessions: Sessions
    log: Log
    desk: DeskProcess
    planner: DeskProcess  # For what takes long
    runs: Runs
    tables: ConsoleTables
    section: Section
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
        self.pages.globals |= {"version": version("eigenveil"), "mends": _MENDS, "advice": _ADVICE}
        self.pages.filters |= {"number": _number, "size": _size, "exact": _exact}
        self.pages.filters |= {"fields": _fields, "words": _words, "path": _path}

    # -- answers

    def page(
        self,
        request: Request,
        template: str,
        session: BrowserSession | None = None,
        *,
        status: int = 200,
        **values: Any,
    ) -> Response:
        text = self.pages.get_template(template).render(
            console=self,
            session=session,
            here=request.url.path,
            **values,
        )
        return HTMLResponse(text, status)

    def problem(
        self, request: Request, error: EigenveilError, session: BrowserSession | None = None
    ) -> Response:
        """The page of an error; refusals are logged."""
        status = _STATUS.get(error.code, 400)
        if status in (403, 409, 429) or isinstance(error, PrivacyError):
            who = "" if session is None else session.person.name
            self.log.refused(error.code, who=who, address=address_of(request), detail=error.message)
        return self.page(request, "problem.html", session, status=status, error=error)

    def note(self, request: Request, what: str, person: Person, detail: str = "") -> None:
        self.log.note(what, who=person.name, address=address_of(request), detail=detail)

    # -- sessions

    @property
    def cookie(self) -> str:
        """The name of the session's cookie; browsers hold ``__Host-`` to TLS and this host.

        They send it to all ports of a host, where another console may be: it has the port in it.
        """
        return f"{'__Host-' if self.settings.secure else ''}eigenveil-{self.settings.port}"

    def begin(self, request: Request, person: Person) -> Response:
        """Let a person in, with a cookie that no script reads and no other site sends."""
        cookie, _ = self.sessions.begin(person)
        self.note(request, "came in", person)
        # a page and not a redirect: after a provider's, browsers would leave the cookie out
        answer = self.page(request, "signed_in.html", home=self.home(person))
        answer.set_cookie(
            self.cookie, cookie, httponly=True, samesite="strict", secure=self.settings.secure
        )
        return answer

    def session_of(self, request: Request) -> BrowserSession | None:
        """The session of a request's cookie, where the door still stands for it."""
        cookie = request.cookies.get(self.cookie)
        found = self.sessions.find(cookie)
        if found is not None and not self.door.holds(request, found):
            self.sessions.end(cookie)
            return None
        return found

    def home(self, person: Person) -> str:
        """The first page of a role."""
        links = self.section.links
        return next((link.path for link in links if person.role in link.roles), links[0].path)

    # -- routes

    def page_route(self, path: str, handler: Callable[[Request], Awaitable[Response]]) -> Route:
        """A page for those who are outside."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except EigenveilError as error:
                return self.problem(request, error)

        return Route(path, answer, methods=["GET"])

    def route(self, page: Page) -> Route:
        """The guarded way to a page."""

        async def answer(request: Request) -> Response:
            session = None
            try:
                session = self.session_of(request)
                if session is None:
                    return away("/sign-in", request)
                role = session.person.role
                if role not in page.roles:
                    raise PrivacyError("page-not-for-role", role=role, roles=", ".join(page.roles))
                form = await form_of(request, page.files) if page.form else {}
                if page.form and not session.same_csrf(form.get("csrf", "")):
                    raise PrivacyError("bad-form")
                return await page.answer(Visit(self, request, session, form))
            except EigenveilError as error:
                return self.problem(request, error, session)

        return Route(page.path, answer, methods=["POST"] if page.form else ["GET"])


@dataclass(frozen=True)
class Visit:
    """One request of somebody who came in, with the form that it brought."""

    console: Console
    request: Request
    session: BrowserSession
    form: Mapping[str, str]

    @property
    def person(self) -> Person:
        return self.session.person

    @property
    def typed(self) -> dict[str, str]:
        """What was typed in the form, or asked for in the address: no more than a field holds."""
        found = self.form or self.request.query_params
        return {key: value.strip()[:LONGEST] for key, value in found.items()}

    def named(self, what: str) -> str:
        return str(self.request.path_params[what])

    @property
    def rows(self) -> Rows:
        """The rows that the page is about: of the table, and by the schema, that it names."""
        return self.rows_of(self.typed.get("table", ""), self.typed.get("schema", ""))

    def rows_of(self, table: str, schema: str = "") -> Rows:
        """The same of any; how they are written only their owner says, who may try what fits."""
        typed = self.typed if self.person.role == "owner" else {}
        reading = {name: typed.get(name, "") for name in READING}
        return self.console.tables.rows(table, schema, **reading)

    async def ask(self, method: str, **arguments: Any) -> Any:
        return await self.console.desk.ask(method, of=self.rows, **arguments)

    def page(self, template: str, **values: Any) -> Response:
        return self.console.page(self.request, template, self.session, **values)

    def take_form(self, about: str) -> None:
        """Use the form up, which may be sent once, and is about what was shown."""
        self.session.take_form(self.form.get("number", ""), about)

    def note(self, what: str, detail: str = "") -> None:
        self.console.note(self.request, what, self.person, detail)

    async def forecast(
        self, quality: str, asked: Mapping[str, Any] | None, *about: Any, epsilon: float = 1.0
    ) -> dict[str, Any]:
        """What the template of a forecast needs; nothing is simulated where nothing is asked."""
        curve, ask, rows = None, self.console.planner.ask, self.rows
        if asked is not None:
            curve = await self.console.forecasts.look(
                [asked, repr(rows), *about],
                lambda at: ask("point", of=rows, epsilon=at, **asked),
            )
        return forecast_values(self.request, curve, quality=quality, epsilon=epsilon)

    def start(self, kind: Kind, title: str, about: str = "", /, **asked: Any) -> ConsoleRun:
        runs = self.console.runs
        return runs.start(
            kind, title, rows=self.rows, asked=asked, who=self.person.name, about=about
        )


def sign_in_routes(console: Console) -> list[BaseRoute]:
    """The pages of everybody."""

    async def start(request: Request) -> Response:
        session = console.session_of(request)
        return away("/sign-in" if session is None else console.home(session.person))

    async def show(request: Request) -> Response:
        person = console.door.person(request)
        if person is not None:
            return console.begin(request, person)
        return console.page(request, "sign_in.html", way=console.door.way)

    async def leave(visit: Visit) -> Response:
        visit.note("left")
        console.sessions.end(visit.request.cookies.get(console.cookie))
        answer = console.page(visit.request, "signed_out.html")
        answer.delete_cookie(console.cookie, secure=console.settings.secure, httponly=True)
        return answer

    return [
        console.page_route("/", start),
        console.page_route("/sign-in", show),
        console.route(Page("/sign-out", leave, ROLES, form=True)),
        *console.door.routes(console),
    ]


def away(path: str, request: Request | None = None) -> Response:
    """Go to another page; htmx is told to load it whole."""
    if request is not None and request.headers.get("hx-request") == "true":
        return Response(status_code=204, headers={"HX-Redirect": path})
    return RedirectResponse(path, 303)


async def form_of(request: Request, files: int = 0) -> Mapping[str, str]:
    """The fields of a form, which may bring so many files."""
    try:
        found = await request.form(max_fields=_MOST_FIELDS, max_files=files)
    except Exception:
        raise DataError("bad-form-fields") from None
    return {str(key): value for key, value in found.items() if isinstance(value, str)}


# -- forms of tasks: what was typed, what can be chosen, and a refusal beside the form

LONGEST = 200
_MOST_ROWS = 2**53
# Refusals of a form as such: there is nothing in it to correct.
_OF_FORM = ("desk-lost", "too-many-runs", "unexpected")


async def form_for(visit: Visit) -> dict[str, Any]:
    """The fields of what was chosen of all that can be computed, and the list of it."""
    kinds: list[dict[str, str]] = await visit.ask("kinds")
    form = await visit.ask("form", kind=visit.typed.get("kind") or kinds[0]["name"])
    return {"kinds": kinds, "form": form}


def given_in(fields: Iterable[Mapping[str, Any]], typed: Mapping[str, str]) -> dict[str, str]:
    """What was typed in these fields."""
    return {each["name"]: typed.get(each["name"], "") for each in fields}


@dataclass(frozen=True)
class TaskForm:
    """The page of a form of tasks, and what is done with it where it can be done."""

    template: str
    act: Callable[[Visit, dict[str, Any]], Awaitable[Response]]
    form: Callable[[Visit], Awaitable[dict[str, Any]]] = form_for

    async def show(self, visit: Visit) -> Response:
        """The form, with what the address says."""
        return self.page(visit, await self.form(visit), visit.typed)

    async def send(self, visit: Visit) -> Response:
        """Do it once, or show what is wrong beside what was typed."""
        visit.take_form(self.template)
        found = await self.form(visit)
        try:
            return await self.act(visit, found["form"])
        except EigenveilError as error:
            if error.code in _OF_FORM:
                raise
            return self.page(visit, found, visit.form, status=400, error=error)

    def page(
        self, visit: Visit, found: Mapping[str, Any], given: Mapping[str, str], **more: Any
    ) -> Response:
        number = visit.session.new_form(self.template)
        return visit.page(
            self.template, given=given, number=number, **{"error": None} | more, **found
        )


def whole(text: str, otherwise: int) -> int:
    """A positive whole number, or what is otherwise meant."""
    text = text.strip().replace(",", "").replace(" ", "")
    if text.isascii() and text.isdigit() and 0 < len(text) < 17:
        return min(int(text), _MOST_ROWS)
    return otherwise


def _number(value: Any, digits: int = 4) -> str:
    if value is None:
        return "unknown"
    text = number_text(value, digits)
    return f"{value:,.0f}" if "e" in text and 1.0 < abs(value) < 1e9 else text  # 3,000, not 3e3


def _fields(text: str) -> str:
    """What is said of a command's options, said of the fields of a form."""
    return _OPTION.sub(lambda found: f'"{label_of(found[1].replace("-", "_"))}"', text)


def _words(text: str) -> str:
    """What is said, without the commands that say how a terminal would do it."""
    found = []
    text = re.sub(r" \([^()]* in Python\)", "", text)
    for sentence in re.split(r"(?<=[.:]) (?=[A-Z])", text):
        clauses = re.split(r"(?<=;) ", sentence)
        kept = list(takewhile(lambda clause: not _COMMAND.search(clause), clauses))
        if len(kept) == len(clauses):
            found.append(sentence)
        elif kept and not kept[0].startswith("To "):
            found.append(" ".join(kept).rstrip(";") + ".")
    return " ".join(found)


def _path(text: str) -> Markup:
    """A place, which may be broken after its slashes."""
    return escape(text).replace("/", Markup("/<wbr>"))


def _exact(value: Any) -> str:
    """A number with all of its digits, as people write it; a text as it is."""
    whole = isinstance(value, float) and float(f"{value:g}") == value
    return number_text(value) if whole else str(value)


def _size(count: int) -> str:
    number = float(count)
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"
