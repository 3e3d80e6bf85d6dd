"""The door: who comes in, and as whom. There are three, and a console has one of them."""

from __future__ import annotations

import hmac
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from eigenveil.console.sessions import Person, Session
from eigenveil.console.settings import Issuer, Link, Proxy, Settings, is_loopback, is_name
from eigenveil.errors import PrivacyError, short_name

if TYPE_CHECKING:
    from eigenveil.console.web import Console

SECRET_HEADER = "x-eigenveil-proxy-secret"


class Door(ABC):
    """How people come in."""

    way: ClassVar[str]  # What the page for those outside shows

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def routes(self, console: Console) -> list[BaseRoute]:
        """Pages of those outside, beside ``/sign-in``."""
        del console
        return []

    def holds(self, request: Request, session: Session) -> bool:
        """Whether a request goes on in the session of its cookie."""
        del request, session
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


class LinkDoor(Door):
    """A link with a token, for one person on this machine."""

    way = "link"

    def __init__(self, settings: Settings, link: Link) -> None:
        super().__init__(settings)
        self._link = link

    def holds(self, request: Request, session: Session) -> bool:
        """A cookie, too, is for this machine alone."""
        del session
        return is_loopback(_address(request))

    def person(self, request: Request) -> Person | None:
        """Whoever has the token."""
        token = request.query_params.get("token")
        if token is None or request.url.path != "/sign-in":
            return None
        if not is_loopback(_address(request)):
            raise PrivacyError("link-elsewhere")
        if not hmac.compare_digest(token.encode(), self._link.token.encode()):
            raise PrivacyError("wrong-link")
        return Person(self._link.name, "owner")


class ProxyDoor(Door):
    """A header, in which a trusted proxy says whom it has signed in."""

    way = "proxy"

    def __init__(self, settings: Settings, proxy: Proxy) -> None:
        super().__init__(settings)
        self._proxy = proxy

    def holds(self, request: Request, session: Session) -> bool:
        """The proxy says with every request who it is."""
        return self.person(request) == session.person

    def person(self, request: Request) -> Person | None:
        """Whom the header names, once it is the proxy who speaks."""
        named = request.headers.getlist(self._proxy.header)
        shown = request.headers.getlist(SECRET_HEADER)
        secret = self._proxy.secret.encode()
        trusted = not self._proxy.networks or self._proxy.calls_from(_address(request))
        if secret:
            trusted = trusted and len(shown) == 1
            trusted = trusted and hmac.compare_digest(shown[0].encode(), secret)
        if not trusted or len(named) != 1:
            raise PrivacyError("no-person", header=self._proxy.header)
        return self.listed(named[0])


class ProviderDoor(Door):
    """OpenID Connect; :mod:`eigenveil.console.provider` speaks it."""

    way = "provider"

    def __init__(self, settings: Settings, issuer: Issuer) -> None:
        super().__init__(settings)
        # imported here: its libraries are a third of the process, where there is no provider
        from eigenveil.console.provider import Provider

        self.provider = Provider(issuer, settings)

    def routes(self, console: Console) -> list[BaseRoute]:
        """To the provider, and back."""

        async def back(request: Request) -> Response:
            return console.begin(request, self.listed(await self.provider.name(request)))

        return [self.provider.mounted(console.page_route, back)]

    def person(self, request: Request) -> Person | None:
        """Nobody: whoever comes back from the provider begins a session there."""
        del request
        return None


def make_door(settings: Settings) -> Door:
    """The door that a console's settings name."""
    match settings.door:
        case Link() as link:
            return LinkDoor(settings, link)
        case Proxy() as proxy:
            return ProxyDoor(settings, proxy)
        case issuer:
            return ProviderDoor(settings, issuer)


def _address(request: Request) -> str:
    return "" if request.client is None else request.client.host
