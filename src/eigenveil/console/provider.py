"""Sign-in by the hospital's own provider: OpenID Connect, the code flow with PKCE, by authlib."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from eigenveil.console.settings import Issuer, Settings
from eigenveil.errors import EigenveilError, OutputError, PrivacyError

with warnings.catch_warnings():  # of the library's own plans
    warnings.simplefilter("ignore")
    from authlib.integrations.starlette_client import OAuth

CALLBACK = "/sign-in/provider/callback"
"""Where the provider sends browsers back to."""
_SECONDS = 600
_SKEW = 60
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_Page = Callable[[Request], Awaitable[Response]]


class Provider:
    def __init__(
        self,
        issuer: Issuer,
        settings: Settings,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._issuer, self._settings = issuer, settings
        more = {} if transport is None else {"transport": transport}
        self._client: Any = OAuth().register(
            "provider",
            server_metadata_url=issuer.url.rstrip("/") + "/.well-known/openid-configuration",
            client_id=issuer.client,
            client_secret=issuer.secret,
            client_kwargs={
                "scope": "openid email profile",
                "code_challenge_method": "S256",
                "timeout": 10.0,
                "follow_redirects": False,
                **more,
            },
        )

    def mounted(self, page: Callable[[str, _Page], Route], back: _Page) -> BaseRoute:
        """Both ways; a cookie ties the way back to the browser that began, for ten minutes.

        It is lax, since the provider's redirect must bring it; it opens nothing by itself.
        """

        async def begin(request: Request) -> Response:
            with self._refusing():
                await self._configured()
                found: Response = await self._client.authorize_redirect(
                    request, self._settings.origin("") + CALLBACK
                )
            return found

        cookie = Middleware(
            SessionMiddleware,
            secret_key=secrets.token_hex(32),
            session_cookie=f"eigenveil-{self._settings.port}-provider",
            max_age=_SECONDS,
            path="/sign-in/provider",
            same_site="lax",
            https_only=True,
        )
        routes = [page("/", begin), page("/callback", back)]
        return Mount("/sign-in/provider", routes=routes, middleware=[cookie])

    async def name(self, request: Request) -> str:
        with self._refusing():
            await self._configured()
            token = await self._client.authorize_access_token(
                request,
                leeway=_SKEW,
                claims_options={
                    "iss": {"essential": True, "value": self._issuer.url},
                    "aud": {"essential": True, "value": self._issuer.client},
                },
            )
            claims = token.get("userinfo")
        if claims is None:
            raise PrivacyError("bad-provider", why="it gave no ID token")
        return self._named(claims)

    def _named(self, claims: dict[str, Any]) -> str:
        """The name in claims whose signature, issuer, audience, party, times and nonce hold."""
        claim = self._issuer.claim
        if claim == "email" and claims.get("email_verified") is not True:
            raise PrivacyError("bad-provider", why="it has not verified the e-mail address")
        found = claims.get(claim)
        if not isinstance(found, str) or not found:
            raise PrivacyError("bad-provider", why=f"it gave no {claim}")
        return found

    async def _configured(self) -> None:
        """Have the provider's configuration, of which nothing goes over plain http."""
        found = await self._client.load_server_metadata()
        if found.get("issuer") != self._issuer.url:
            raise PrivacyError("bad-provider", why="its configuration names another issuer")
        for each in _ENDPOINTS:
            if not str(found.get(each)).startswith("https://"):
                raise PrivacyError("bad-provider", why=f"its {each} is not https://")
        named = found.get("id_token_signing_alg_values_supported") or ["RS256"]
        # no secret of ours, and not "none", signs for it
        found["id_token_signing_alg_values_supported"] = [e for e in named if e in _ALGORITHMS]

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Whatever goes wrong inside is a refusal: of the network, or of what the provider said."""
        try:
            yield
        except EigenveilError:
            raise
        except httpx.HTTPError as error:
            why = f"{self._issuer.url} cannot be reached ({type(error).__name__})"
            raise OutputError("no-provider", why=why) from None
        except Exception as error:
            why = f"what it said does not hold ({type(error).__name__})"
            raise PrivacyError("bad-provider", why=why) from None
