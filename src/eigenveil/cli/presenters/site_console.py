"""What the owner of a site reads while it runs: a line an event, with what each answer cost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Literal, NoReturn, cast

from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen
from eigenveil.cli.presenters.screen import say as print_line
from eigenveil.errors import DataError
from eigenveil.federation.ledger.books import epsilon_or_infinity
from eigenveil.federation.ledger.heads import HeadsFile
from eigenveil.federation.ledger.ledger import Draft, Ledger, Session, SessionKey
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.releases import ReleaseRecord

if TYPE_CHECKING:
    from eigenveil.federation.approvals.desk import Decisions
    from eigenveil.federation.ledger.ledger import Budget
    from eigenveil.privacy.guarantee import Adjacency


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
        return f"{names}, which costs epsilon = {epsilon:.4g} at delta = {budget.delta:g}"


# -- A site's budget, as its owner gives it when the site starts.


_USUAL_DELTA = 1e-6


@dataclass(frozen=True)
class BudgetTarget:
    """A budget as it is given on the command line."""

    data_set: str
    adjacency: str
    epsilon: float | None
    delta: float | None
    pure_epsilon: float = 0.0
    unit: str = "row"


def check_budget(desk: Decisions, target: BudgetTarget, screen: Screen) -> None:
    """See to it that the ledger is the site's and has a budget: one from before, or this one.

    The approvers' list is made where the ledger is new; that the second place of its heads can be
    used is known after this.
    """
    from eigenveil.federation.ledger.ledger import Budget

    if target.epsilon is None and (target.delta is not None or target.pure_epsilon):
        raise options.WrongOption("budget-without-epsilon")
    ledger, name = desk.ledger, target.data_set
    before = ledger.budget_if_any(name)
    if target.epsilon is None and before is None:
        raise DataError(
            "no-budget",
            ledger=ledger.name,
            data_set=name,
            command="--budget-epsilon 2 --budget-delta 1e-6 (or 'eigenveil ledger budget')",
        )
    desk.begin()
    ledger.note_head()
    if target.epsilon is None:
        return
    kind = cast("Adjacency", target.adjacency)
    delta = _USUAL_DELTA if target.delta is None else target.delta
    requested = Budget(name, kind, target.epsilon, delta, target.pure_epsilon, target.unit)
    if before is None:
        done = desk.set_budget(requested, reason="site start")
        waits = "" if done else " (once a second approver agrees: eigenveil ledger budget)"
        screen.print(f"{ledger.name}: {_budget_text(requested)}, for data set {name}{waits}")
    elif before != requested:
        raise DataError(
            "budget-exists", ledger=ledger.name, data_set=name, budget=_budget_text(before)
        )


def _budget_text(budget: Budget) -> str:
    aside = f", {budget.pure_epsilon:g} of it for pure studies" if budget.pure_epsilon else ""
    return (
        f"a budget of epsilon = {budget.epsilon:g} at delta = {budget.delta:g}{aside}, "
        f"{budget.adjacency}, one {budget.unit}"
    )
