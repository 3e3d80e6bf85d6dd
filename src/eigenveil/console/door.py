"""The door: who comes in, and as whom. There are three, and a console has one of them.

Sessions are kept by the server, in memory; a cookie holds a random name only. A console that is
started again knows nobody.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from eigenveil.console.settings import Issuer, Link, Proxy, Role, Settings, is_loopback, is_name
from eigenveil.errors import PrivacyError, short_name

if TYPE_CHECKING:
    from eigenveil.console.web import Console

SECRET_HEADER = "x-eigenveil-proxy-secret"
_MOST_SESSIONS = 1000
_MOST_FORMS = 200
_MOST_WRONG = 10
_Way = TypeVar("_Way", Link, Proxy, Issuer)


@dataclass(frozen=True)
class Person:
    """Whom the door let in; decisions have this name."""

    name: str
    role: Role


@dataclass
class BrowserSession:
    """One browser of a person."""

    person: Person
    created: float
    seen: float
    # Stands in every form of the session
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    # What one-time forms that were shown are about, by their number
    forms: dict[str, str] = field(default_factory=dict)
    wrong: int = 0  # Passwords of the person's key that were not the right one

    def new_form(self, about: str) -> str:
        """A number for a form that may be sent once."""
        while len(self.forms) >= _MOST_FORMS:
            self.forms.pop(next(iter(self.forms)))
        number = secrets.token_urlsafe(18)
        self.forms[number] = about
        return number

    def take_form(self, number: str, about: str) -> None:
        if self.forms.pop(number, None) != about:
            raise PrivacyError("form-used")

    def same_csrf(self, text: str) -> bool:
        return hmac.compare_digest(self.csrf.encode(), text.encode())


class Sessions:
    def __init__(
        self, idle: float, longest: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle, self._longest, self._clock = idle, longest, clock
        self._by_digest: dict[bytes, BrowserSession] = {}

    def begin(self, person: Person) -> tuple[str, BrowserSession]:
        """A new session and its cookie's value: never one that a browser brought."""
        now = self._clock()
        for digest in [d for d, each in self._by_digest.items() if self._is_over(each)]:
            del self._by_digest[digest]
        while len(self._by_digest) >= _MOST_SESSIONS:
            del self._by_digest[min(self._by_digest, key=lambda d: self._by_digest[d].seen)]
        cookie, session = secrets.token_urlsafe(32), BrowserSession(person, now, now)
        self._by_digest[_digest(cookie)] = session
        return cookie, session

    def find(self, cookie: str | None) -> BrowserSession | None:
        """The session of a cookie, which counts as seen; ``None`` when it is over or forged."""
        session = self._by_digest.get(_digest(cookie or ""))
        if session is None or self._is_over(session):
            self.end(cookie)
            return None
        session.seen = self._clock()
        return session

    def end(self, cookie: str | None) -> None:
        self._by_digest.pop(_digest(cookie or ""), None)

    def _is_over(self, session: BrowserSession) -> bool:
        now = self._clock()
        late = now - session.seen > self._idle or now - session.created > self._longest
        return late or session.wrong >= _MOST_WRONG


def _digest(cookie: str) -> bytes:
    """What a cookie is looked up by: how long that takes says nothing of those that there are."""
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).digest()


# -- doors


class Door(ABC, Generic[_Way]):
    way: ClassVar[str]  # What the page for those outside shows

    def __init__(self, settings: Settings, own: _Way) -> None:
        self.settings = settings
        self.own: _Way = own

    def routes(self, console: Console) -> list[BaseRoute]:
        """Pages of those outside, beside ``/sign-in``."""
        return []

    def holds(self, request: Request, session: BrowserSession) -> bool:
        """Whether a request goes on in the session of its cookie."""
        return True

    @abstractmethod
    def person(self, request: Request) -> Person | None:
        """Who comes in with this request by it alone; ``None`` where nobody does."""

    def listed(self, name: str) -> Person:
        """A person whom the settings name."""
        role = self.settings.people.get(name)
        if role is None or not is_name(name):
            raise PrivacyError("unknown-person", name=short_name(name))
        return Person(name, role)


class LinkDoor(Door[Link]):
    """A link with a token, for one person on this machine."""

    way = "link"

    def holds(self, request: Request, session: BrowserSession) -> bool:
        """A cookie, too, is for this machine alone."""
        return is_loopback(address_of(request))

    def person(self, request: Request) -> Person | None:
        token = request.query_params.get("token")
        if token is None or request.url.path != "/sign-in":
            return None
        if not is_loopback(address_of(request)):
            raise PrivacyError("link-elsewhere")
        if not hmac.compare_digest(token.encode(), self.own.token.encode()):
            raise PrivacyError("wrong-link")
        return Person(self.own.name, "owner")


class ProxyDoor(Door[Proxy]):
    """A header, in which a trusted proxy says whom it has signed in."""

    way = "proxy"

    def holds(self, request: Request, session: BrowserSession) -> bool:
        """The proxy says with every request who it is."""
        return self.person(request) == session.person

    def person(self, request: Request) -> Person | None:
        """Whom the header names, once it is the proxy who speaks."""
        named = request.headers.getlist(self.own.header)
        shown = request.headers.getlist(SECRET_HEADER)
        secret = self.own.secret.encode()
        trusted = not self.own.networks or self.own.calls_from(address_of(request))
        if secret:
            trusted = trusted and len(shown) == 1
            trusted = trusted and hmac.compare_digest(shown[0].encode(), secret)
        if not trusted or len(named) != 1:
            raise PrivacyError("no-person", header=self.own.header)
        return self.listed(named[0])


class ProviderDoor(Door[Issuer]):
    """OpenID Connect; :mod:`eigenveil.console.provider` speaks it."""

    way = "provider"

    def __init__(self, settings: Settings, issuer: Issuer) -> None:
        super().__init__(settings, issuer)
        # imported here: its libraries are a third of the process, where there is no provider
        from eigenveil.console.provider import Provider

        self.provider = Provider(issuer, settings)

    def routes(self, console: Console) -> list[BaseRoute]:
        async def back(request: Request) -> Response:
            return console.begin(request, self.listed(await self.provider.name(request)))

        return [self.provider.mounted(console.page_route, back)]

    def person(self, request: Request) -> Person | None:
        """Nobody: whoever comes back from the provider begins a session there."""
        return None


def make_door(settings: Settings) -> Door[Any]:
    match settings.door:
        case Link() as link:
            return LinkDoor(settings, link)
        case Proxy() as proxy:
            return ProxyDoor(settings, proxy)
        case issuer:
            return ProviderDoor(settings, issuer)


def address_of(request: Request) -> str:
    return "" if request.client is None else request.client.host
