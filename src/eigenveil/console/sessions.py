"""Sessions: who is signed in, kept by the server; a cookie holds a signed random name only.

They live in memory: a console that is started again knows nobody, and keys that a password unlocked
are gone.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from itsdangerous import BadSignature, URLSafeTimedSerializer

from eigenveil.console.accounts import Account
from eigenveil.errors import PrivacyError

Stage = Literal["second factor", "in"]
_MOST_SESSIONS = 1000
_MOST_FORMS = 200
# Seconds to give the second factor in.
_SECOND = 300.0
_ANONYMOUS = 3600


@dataclass
class Session:
    """One browser that gave a right password, or came back from the hospital's sign-in."""

    account: Account
    stage: Stage  # "in" once the second factor was given, too
    created: float
    seen: float
    # Stands in every form of the session
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    # The approver's private key (Ed25519, 32 bytes), unlocked by the password
    key: bytes | None = field(default=None, repr=False)
    # What one-time forms that were shown are about, by their number
    forms: dict[str, str] = field(default_factory=dict)
    new_secret: str = field(default="", repr=False)  # Of a second factor that is being set up

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
            raise PrivacyError(
                "This form was sent before, or is of another page.",
                hint="Nothing was done now. Open the page again and look at what it shows.",
                code="form-used",
            )

    def same_csrf(self, text: str) -> bool:
        """Whether a form is of this session."""
        return hmac.compare_digest(self.csrf.encode(), text.encode())


class Sessions:
    """The sessions of a console."""

    def __init__(
        self, idle: float, longest: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle, self._longest, self._clock = idle, longest, clock
        self._by_name: dict[str, Session] = {}
        self._signer = URLSafeTimedSerializer(secrets.token_bytes(32), salt="eigenveil session")
        self._forms = URLSafeTimedSerializer(secrets.token_bytes(32), salt="eigenveil sign-in form")

    def begin(
        self, account: Account, stage: Stage, *, key: bytes | None = None
    ) -> tuple[str, Session]:
        """A new session and its cookie's value: never one that a browser brought."""
        self._sweep()
        now = self._clock()
        session = Session(account, stage, now, now, key=key)
        name = secrets.token_urlsafe(32)
        self._by_name[name] = session
        return str(self._signer.dumps(name)), session

    def find(self, cookie: str | None) -> Session | None:
        """The session of a cookie, which counts as seen; ``None`` when it is over or forged."""
        name = self._name(cookie)
        session = None if name is None else self._by_name.get(name)
        if name is None or session is None:
            return None
        if self._is_over(session):
            del self._by_name[name]
            return None
        session.seen = self._clock()
        return session

    def is_forged(self, cookie: str) -> bool:
        """Whether a cookie was never made here (or before the last start)."""
        return self._name(cookie) is None

    def end(self, cookie: str | None) -> None:
        """Forget a session and its key."""
        if (name := self._name(cookie)) is not None:
            self._by_name.pop(name, None)

    # -- forms before anybody is signed in

    def visitor_form(self, visitor: str) -> str:
        """What a form carries that a browser with this cookie was shown."""
        return str(self._forms.dumps(visitor))

    def is_visitors(self, text: str, visitor: str | None) -> bool:
        """Whether a form was shown to the browser with this cookie, within an hour."""
        try:
            found = self._forms.loads(text, max_age=_ANONYMOUS)
        except BadSignature:
            return False
        return visitor is not None and hmac.compare_digest(str(found), visitor)

    def _name(self, cookie: str | None) -> str | None:
        if not cookie:
            return None
        try:
            return str(self._signer.loads(cookie))
        except BadSignature:
            return None

    def _is_over(self, session: Session) -> bool:
        now = self._clock()
        longest = self._longest if session.stage == "in" else _SECOND
        return now - session.seen > self._idle or now - session.created > longest

    def _sweep(self) -> None:
        for name in [n for n, s in self._by_name.items() if self._is_over(s)]:
            del self._by_name[name]
        while len(self._by_name) >= _MOST_SESSIONS:
            oldest = min(self._by_name, key=lambda name: self._by_name[name].seen)
            del self._by_name[oldest]
