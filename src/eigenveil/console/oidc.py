"""Sign-in by the hospital's own provider: OpenID Connect, the code flow with PKCE."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any

import httpx
from authlib.integrations.httpx_client import AsyncOAuth2Client
from itsdangerous import BadSignature, URLSafeTimedSerializer
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from eigenveil.console.settings import CALLBACK, Issuer
from eigenveil.errors import OutputError, PrivacyError

_SECONDS = 600
_PATIENCE = 10.0
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
_SKEW = 60


class Provider:
    """A provider, found by its address."""

    def __init__(
        self, issuer: Issuer, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._issuer, self._transport = issuer, transport
        self._signer = URLSafeTimedSerializer(secrets.token_bytes(32), salt="eigenveil provider")
        self._known: dict[str, Any] | None = None
        self._turn = asyncio.Lock()

    async def begin(self) -> tuple[str, str]:
        """Where the browser is sent, and a cookie's value that ties its return to it."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        async with self._client() as client:
            address, _ = client.create_authorization_url(
                (await self._configuration())["authorization_endpoint"],
                state=state,
                nonce=nonce,
                code_verifier=verifier,
            )
        return str(address), str(self._signer.dumps([state, nonce, verifier]))

    async def name(self, state: str, code: str, cookie: str | None) -> str:
        """The name of whom the provider sent back."""
        try:
            known, nonce, verifier = self._signer.loads(cookie or "", max_age=_SECONDS)
        except (BadSignature, ValueError, TypeError):
            raise _refused("the sign-in was not begun in this browser, or too long ago") from None
        if not secrets.compare_digest(str(known), state):
            raise _refused("it answers another sign-in")
        configuration = await self._configuration()
        try:
            async with self._client() as client:
                token = await client.fetch_token(
                    configuration["token_endpoint"], code=code, code_verifier=verifier
                )
        except httpx.HTTPError as error:
            raise self._away(error) from None
        except Exception as error:
            raise _refused(f"the provider gave no token ({type(error).__name__})") from None
        claims = await self._claims(str(token.get("id_token", "")), str(nonce))
        found = claims.get(self._issuer.claim)
        if self._issuer.claim == "email" and claims.get("email_verified") is False:
            raise _refused("the provider has not verified the e-mail address")
        if not isinstance(found, str) or not found:
            raise _refused(f"the provider gave no {self._issuer.claim}")
        return found

    async def _claims(self, token: str, nonce: str) -> dict[str, Any]:
        """What an ID token states, once its signature, issuer, audience and times hold."""
        keys: Any = await self._get((await self._configuration())["jwks_uri"])
        try:
            claims: dict[str, Any] = dict(
                jwt.decode(token, KeySet.import_key_set(keys), algorithms=_ALGORITHMS).claims
            )
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise _refused(f"its token does not hold ({type(error).__name__})") from None
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        now = time.time()
        if claims.get("iss") != self._issuer.url:
            raise _refused("its token is of another issuer")
        if self._issuer.client not in audiences or (
            len(audiences) > 1 and claims.get("azp") != self._issuer.client
        ):
            raise _refused("its token is for another program")
        if not isinstance(claims.get("exp"), (int, float)) or claims["exp"] < now - _SKEW:
            raise _refused("its token has expired")
        issued = claims.get("iat")
        if not isinstance(issued, (int, float)) or issued > now + _SKEW:
            raise _refused("its token is of the future")
        if not secrets.compare_digest(str(claims.get("nonce", "")), nonce):
            raise _refused("its token answers another sign-in")
        return claims

    async def _configuration(self) -> dict[str, Any]:
        async with self._turn:
            if self._known is None:
                url = self._issuer.url.rstrip("/") + "/.well-known/openid-configuration"
                found = await self._get(url)
                if found.get("issuer") != self._issuer.url:
                    raise _refused("its configuration names another issuer")
                self._known = found
            return self._known

    async def _get(self, url: str) -> dict[str, Any]:
        try:
            async with httpx.AsyncClient(transport=self._transport, timeout=_PATIENCE) as client:
                answer = await client.get(url)
                answer.raise_for_status()
                found: dict[str, Any] = answer.json()
                return found
        except (httpx.HTTPError, ValueError) as error:
            raise self._away(error) from None

    def _client(self) -> Any:
        return AsyncOAuth2Client(
            self._issuer.client,
            self._issuer.secret,
            scope="openid email profile",
            redirect_uri=self._issuer.address.rstrip("/") + CALLBACK,
            code_challenge_method="S256",
            transport=self._transport,
            timeout=_PATIENCE,
        )

    def _away(self, error: Exception) -> OutputError:
        return OutputError(
            f"The sign-in at {self._issuer.url} cannot be reached ({type(error).__name__}).",
            hint="Try again, or sign in with an account of this console.",
            code="no-provider",
        )


def _refused(why: str) -> PrivacyError:
    return PrivacyError(
        f"The sign-in was refused: {why}.",
        hint="Begin again; if it lasts, ask whoever runs the provider.",
        code="bad-provider",
    )
