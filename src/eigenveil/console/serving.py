"""The server: uvicorn, on this machine's own address, or with TLS."""

from __future__ import annotations

import uvicorn

from eigenveil.cli.presenters.screen import say
from eigenveil.console.app import make_app, make_console
from eigenveil.console.settings import Settings


def run(settings: Settings) -> None:
    """Serve until stopped."""
    console = make_console(settings)
    if not console.accounts.all():
        say("There is no account yet: eigenveil console user add NAME --role owner")
    scheme = "https" if settings.secure else "http"
    where = f"[{settings.host}]" if ":" in settings.host else settings.host
    say(f"the console: {scheme}://{where}:{settings.port}/  (Ctrl-C ends it)")
    tls = settings.tls
    uvicorn.run(
        make_app(console),
        host=settings.host,
        port=settings.port,
        ssl_certfile=None if tls is None else str(tls[0]),
        ssl_keyfile=None if tls is None else str(tls[1]),
        log_level="warning",
        server_header=False,
        date_header=True,
        access_log=False,
        proxy_headers=False,  # an address that a request states is nobody's
        limit_concurrency=200,
        timeout_keep_alive=15,
        h11_max_incomplete_event_size=32 * 1024,
        ws="none",
    )
