"""Noise that a second run of the tests on one commit repeats: a failure is the commit's.

Each test, and each fixture that several tests share, has a stream named after it. The streams are
no choice of ours, and what tests state of false alarms is of fresh noise: ``make nightly`` draws
that, and so does ``EIGENVEIL_NOISE=fresh make test``. Processes that tests start always do.
"""

import hashlib
import os
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import soak_tools
from eigenveil.noise import source

FRESH = soak_tools.SOAK >= 1 or os.environ.get("EIGENVEIL_NOISE") == "fresh"
_SYSTEM, _PROCESS = os.urandom, os.getpid()
_lock = threading.Lock()
_stream = ["", 0]


def _urandom(size):
    """The stream's next bytes; the system's in a forked child and where a test replaces these."""
    if os.urandom is not _SYSTEM or os.getpid() != _PROCESS:
        return os.urandom(size)
    with _lock:
        _stream[1] += 1
        name, number = _stream
    return hashlib.shake_256(f"{name} {number}".encode()).digest(size)


def repeat_noise():
    """Key secure sources by the streams from now on."""
    if not FRESH:
        source.os = SimpleNamespace(urandom=_urandom, getpid=os.getpid)


@contextmanager
def noise_of(name):
    """Inside, noise is that of this name, from its beginning."""
    kept, _stream[:] = list(_stream), [name, 0]
    try:
        yield
    finally:
        _stream[:] = kept
