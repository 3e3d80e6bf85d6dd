"""What the owner of a site reads while it runs: a line an event, with what each answer cost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Literal, NoReturn

from eigenveil.cli.presenters.screen import say as print_line
from eigenveil.errors import number_text
from eigenveil.federation.ledger.books import epsilon_or_infinity
from eigenveil.federation.ledger.heads import HeadsFile
from eigenveil.federation.ledger.ledger import Draft, Ledger, Session, SessionKey
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.releases import ReleaseRecord

Say = Callable[[str], None]


def lines(*, quiet: bool) -> Say:
    """Prints a line at once, with the time of day; as a terminal can show it, whoever wrote it."""

    def say(text: str) -> None:
        if not quiet:
            print_line(f"{time.strftime('%H:%M:%S')}  {text}")

    return say


def end_at_once(say: Say) -> None:
    """Let Ctrl-C and SIGTERM end this process at once, and well.

    Nothing has to be put away: what was answered is in the ledger, what was being made was not
    sent, and studies go on at the next start.
    """

    def end(number: int, frame: FrameType | None) -> NoReturn:
        del number, frame
        with suppress(RuntimeError):  # in the middle of another line
            say("Stopped.")
        os._exit(0)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


class ReportingLedger(Ledger):
    """A ledger that reports what was answered, as soon as that is durable."""

    def __init__(
        self,
        place: str | os.PathLike[str],
        data_set: str,
        say: Say,
        *,
        heads: HeadsFile | Literal["usual"] | None = "usual",
    ) -> None:
        super().__init__(place, heads=heads)
        self._data_set, self._say = data_set, say
        self._ended: set[SessionKey] = set()

    def commit(
        self,
        key: SessionKey,
        step: str,
        *,
        request: bytes,
        draft: Callable[[Session, bytes], Draft],
    ) -> bytes:
        """The answer, as of :meth:`Ledger.commit`; charges are reported."""
        charges: list[ReleaseRecord] = []

        def charged(session: Session, state: bytes) -> Draft:
            drafted = draft(session, state)
            charges.extend(drafted.charges)
            return drafted

        reply = super().commit(key, step, request=request, draft=charged)
        self._say(f"Answered {step}: {self._cost(charges)}.")
        return reply

    def end(self, key: SessionKey, outcome: str) -> None:
        """End a session, as of :meth:`Ledger.end`; the first time is reported."""
        super().end(key, outcome)
        if key not in self._ended:
            self._ended.add(key)
            self._say(f"Ended: {outcome}. What was reserved and not spent is free again.")

    def _cost(self, charges: Sequence[ReleaseRecord]) -> str:
        if not charges:
            return "nothing is spent"
        names = ", ".join(record.name for record in charges)
        budget = self.budget(self._data_set)
        if budget is None:
            return names
        loss = Loss.total(Loss.of(record) for record in charges)
        epsilon = epsilon_or_infinity(loss, budget.delta)
        return (
            f"{names}, which costs epsilon = {epsilon:.4g} at delta = {number_text(budget.delta)}"
        )
