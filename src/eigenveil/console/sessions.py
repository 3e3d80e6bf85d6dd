"""Sessions: who came in, kept by the server; a cookie holds a random name only.

They live in memory: a console that is started again knows nobody.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from eigenveil.console.settings import Role
from eigenveil.errors import PrivacyError

_MOST_SESSIONS = 1000
_MOST_FORMS = 200
_MOST_WRONG = 10


@dataclass(frozen=True)
class Person:
    """Whom the door let in; decisions have this name."""

    name: str
    role: Role


@dataclass
class Session:
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
        """Use a form up."""
        if self.forms.pop(number, None) != about:
            raise PrivacyError("form-used")

    def same_csrf(self, text: str) -> bool:
        """Whether a form is of this session."""
        return hmac.compare_digest(self.csrf.encode(), text.encode())


class Sessions:
    """The sessions of a console."""

    def __init__(
        self, idle: float, longest: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle, self._longest, self._clock = idle, longest, clock
        self._by_digest: dict[bytes, Session] = {}

    def begin(self, person: Person) -> tuple[str, Session]:
        """A new session and its cookie's value: never one that a browser brought."""
        now = self._clock()
        for digest in [d for d, each in self._by_digest.items() if self._is_over(each)]:
            del self._by_digest[digest]
        while len(self._by_digest) >= _MOST_SESSIONS:
            del self._by_digest[min(self._by_digest, key=lambda d: self._by_digest[d].seen)]
        cookie, session = secrets.token_urlsafe(32), Session(person, now, now)
        self._by_digest[_digest(cookie)] = session
        return cookie, session

    def find(self, cookie: str | None) -> Session | None:
        """The session of a cookie, which counts as seen; ``None`` when it is over or forged."""
        session = self._by_digest.get(_digest(cookie or ""))
        if session is None or self._is_over(session):
            self.end(cookie)
            return None
        session.seen = self._clock()
        return session

    def end(self, cookie: str | None) -> None:
        """Forget a session."""
        self._by_digest.pop(_digest(cookie or ""), None)

    def _is_over(self, session: Session) -> bool:
        now = self._clock()
        late = now - session.seen > self._idle or now - session.created > self._longest
        return late or session.wrong >= _MOST_WRONG


def _digest(cookie: str) -> bytes:
    """What a cookie is looked up by: how long that takes says nothing of those that there are."""
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).digest()
