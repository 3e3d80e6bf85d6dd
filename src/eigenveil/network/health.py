"""Health, readiness and metrics of a party over HTTP, on this machine unless its owner says more.

``/healthz`` answers 200 while the process lives, ``/readyz`` 200 while the party is part of its
federation's network and 503 otherwise, ``/metrics`` as Prometheus reads it. Nothing can be sent
there.
"""

from __future__ import annotations

import ipaddress
import math
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from eigenveil.errors import DataError, EigenveilError, OutputError
from eigenveil.network.metrics import Party, exposition

_TEXT = "text/plain; charset=utf-8"
_PATIENCE = 10.0
LONGEST_SILENCE = 45.0
"""Seconds since the last heartbeat was answered after which nobody is taken to be there; a site
sends one every 10 s."""


class Connection:
    """Whether a party is part of its federation's network now.

    It is once the aggregator answered a heartbeat, until the connection is closed, or no heartbeat
    was answered for ``LONGEST_SILENCE``: a cable that is cut closes nothing.

    Parameters
    ----------
    clock : callable
        Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._answered = clock, -math.inf

    def answered(self) -> None:
        """The aggregator answered a heartbeat, or let the party in."""
        self._answered = self._clock()

    def lost(self) -> None:
        """The connection was closed."""
        self._answered = -math.inf

    def is_up(self) -> bool:
        """Whether the aggregator can ask this party."""
        return self._clock() - self._answered <= LONGEST_SILENCE


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:9102``; the host is an IPv4 address.

    Raises
    ------
    DataError
        ``bad-address``.
    """
    host, _, port = text.rpartition(":")
    try:
        number = int(port)
        ipaddress.IPv4Address(host)
        if not 0 <= number < 1 << 16:
            raise ValueError(port)
    except ValueError:
        raise DataError(
            f"{text!r} is not an address and a port.",
            hint="For example 127.0.0.1:9102: only this machine can ask there.",
            code="bad-address",
        ) from None
    return host, number


def serve(address: str, party: Party) -> ThreadingHTTPServer:
    """Answer there until the process ends, in a thread of its own.

    Parameters
    ----------
    address : str
        Such as ``127.0.0.1:9102``.

    Raises
    ------
    DataError, OutputError
        When it is no address, or cannot be listened on.
    """
    host, port = parse_address(address)
    handler = type("Handler", (_Handler,), {"answers": _answers(party)})
    try:
        server = ThreadingHTTPServer((host, port), handler)
    except OSError as error:
        raise OutputError(
            f"{address} cannot be listened on: {error.strerror or error}.",
            hint="Give another port, or an address of this machine.",
            code="port-in-use",
        ) from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True, name="eigenveil health").start()
    return server


_Answer = Callable[[], tuple[int, str, bytes]]


def _answers(party: Party) -> dict[str, _Answer]:
    def live() -> tuple[int, str, bytes]:
        return 200, _TEXT, b"ok\n"

    def ready() -> tuple[int, str, bytes]:
        if party.activity.is_ready():
            return 200, _TEXT, b"ready\n"
        return 503, _TEXT, b"not connected\n"

    def metrics() -> tuple[int, str, bytes]:
        try:
            kind, text = exposition(party)
        except EigenveilError as error:
            return 501, _TEXT, f"{error.message} {error.hint}\n".encode()
        return 200, kind, text

    return {"/healthz": live, "/readyz": ready, "/metrics": metrics}


class _Handler(BaseHTTPRequestHandler):
    answers: dict[str, _Answer]
    timeout = _PATIENCE
    server_version = "eigenveil"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one of the three paths."""
        found = self.answers.get(self.path.partition("?")[0])
        status, kind, text = found() if found is not None else (404, _TEXT, b"no such page\n")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def do_HEAD(self) -> None:
        """The same without the text."""
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: a probe every second is no news."""
