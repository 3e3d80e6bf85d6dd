"""The server: uvicorn, on this machine's own address, or with TLS."""

from __future__ import annotations

from urllib.parse import quote

import uvicorn

from eigenveil.cli.presenters.screen import say
from eigenveil.console.app import make_app, make_console
from eigenveil.console.guards import Connection, Guards
from eigenveil.console.settings import Link, Settings


def run(settings: Settings) -> None:
    """Serve until stopped."""
    app = make_app(make_console(settings))
    say(f"the console: {address_of(settings)}  (Ctrl-C ends it)")
    uvicorn.Server(server_of(app, settings)).run()


def server_of(app: Guards, settings: Settings) -> uvicorn.Config:
    """How the application is served."""
    certificate, key = settings.tls or (None, None)
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        ssl_certfile=None if certificate is None else str(certificate),
        ssl_keyfile=None if key is None else str(key),
        http=Connection,
        log_level="warning",
        server_header=False,
        access_log=False,
        proxy_headers=False,  # an address that a request states is nobody's
        limit_concurrency=200,
        h11_max_incomplete_event_size=32 * 1024,
        ws="none",
    )


def address_of(settings: Settings) -> str:
    """What a person opens in a browser; with the token, where that is the door."""
    where = f"[{settings.host}]" if ":" in settings.host else settings.host
    start = settings.origin(f"{where}:{settings.port}")
    if isinstance(settings.door, Link):
        return f"{start}/sign-in?token={quote(settings.door.token)}"
    return f"{start}/"
