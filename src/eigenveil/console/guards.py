"""What stands before every page: the host's name, sizes, where a form came from, and headers."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eigenveil.console.settings import Settings

MOST_BYTES = 1 << 20
CONTENT_SECURITY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Guards:
    """An ASGI application in front of another."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the pages answer."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        sending = self._with_headers(scope, send)
        refused = self._refusal(scope)
        if refused is not None:
            await PlainTextResponse(refused[1], refused[0])(scope, receive, sending)
            return
        await self._app(scope, _counted(receive), sending)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and text of what goes no further."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if _name(host) not in self._settings.hosts:
            return 421, "This console is not called so: the host's name is not one of its own.\n"
        if int(headers.get("content-length") or 0) > MOST_BYTES:
            return 413, "This is too large.\n"
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "Pages are read (GET), and forms are sent (POST).\n"
        if scope["method"] == "POST":
            origin = headers.get("origin")
            ours = f"{'https' if self._settings.secure else 'http'}://{host}"
            elsewhere = headers.get("sec-fetch-site", "same-origin") != "same-origin"
            if elsewhere or (origin is not None and origin != ours):
                return 403, "This form was sent from a page of another site.\n"
        return None

    def _with_headers(self, scope: Scope, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if self._settings.secure:
                    headers["Strict-Transport-Security"] = "max-age=31536000"
                if not scope["path"].startswith("/static/"):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        return sending


def _name(host: str) -> str:
    """A host header without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _counted(receive: Receive) -> Receive:
    """The body, which ends where it is too large: a length that was not given is counted."""
    taken = 0

    async def receiving() -> Message:
        nonlocal taken
        message = await receive()
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            if taken > MOST_BYTES:
                return {"type": "http.disconnect"}
        return message

    return receiving
