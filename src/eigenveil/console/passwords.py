"""Passwords and second factors: argon2 and time-based codes."""

from __future__ import annotations

import threading
import time
from functools import cache

import argon2
import pyotp
import segno

from eigenveil.errors import DataError

SHORTEST, LONGEST = 12, 1024
# Argon2id: of the RFC's and OWASP's choices one that fits beside the rest of a small process.
_HASHER = argon2.PasswordHasher(time_cost=2, memory_cost=46 * 1024, parallelism=1)
_ONE_AT_A_TIME = threading.Lock()  # a hash takes 46 MB; many at once would be a way to fill memory
_STEP = 30


def check_password(password: str) -> None:
    """Raise where a password is too short or too long."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise DataError(
            f"The password has {len(password)} characters, not {SHORTEST} to {LONGEST}.",
            hint="Four words that do not belong together are a good one.",
            code="weak-password",
        )


def hash_password(password: str) -> str:
    """The hash of a password, with its salt and costs."""
    check_password(password)
    with _ONE_AT_A_TIME:
        return _HASHER.hash(password)


def matches(stored: str | None, password: str) -> bool:
    """Whether a password is that of a hash; takes as long where there is none."""
    known = stored or _nobodys()
    try:
        with _ONE_AT_A_TIME:
            found = _HASHER.verify(known, password[:LONGEST])
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
    return found and stored is not None


@cache
def _nobodys() -> str:
    return _HASHER.hash("no account has this password")


def new_secret() -> str:
    """A new second factor's secret, in base 32."""
    return pyotp.random_base32()


def step_of(secret: str, code: str, *, now: float | None = None) -> int | None:
    """The time step whose code this is: the present one or a neighbour; ``None`` where it is none.

    A step's code counts once: whoever keeps the steps sees to it.
    """
    moment = time.time() if now is None else now
    text = "".join(code.split())
    if not (len(text) == 6 and text.isascii() and text.isdigit()):
        return None
    one = pyotp.TOTP(secret)
    present = int(moment // _STEP)
    for step in (present, present - 1, present + 1):
        if pyotp.utils.strings_equal(one.at(step * _STEP), text):
            return step
    return None


def enrolment_uri(secret: str, name: str) -> str:
    """What an authenticator app reads."""
    return pyotp.TOTP(secret).provisioning_uri(name=name, issuer_name="eigenveil console")


def qr_code(uri: str) -> str:
    """A QR code as SVG, in the colours of the style sheet."""
    found: str = segno.make(uri, error="m").svg_inline(
        scale=4, svgclass="qr", lineclass="qr-line", omitsize=True, border=4
    )
    return found
