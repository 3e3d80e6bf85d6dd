"""Whether an account covers a session, and how it counts it (docs/proofs/accounts.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from shlex import quote

from eigenveil.checks import LARGEST_EPSILON
from eigenveil.errors import (
    BudgetExceeded,
    DataError,
    DecisionRefused,
    EigenveilError,
    PrivacyError,
    ProtocolError,
    number_text,
)
from eigenveil.federation.ledger.books import Books, Session, Standing, epsilon_or_infinity
from eigenveil.federation.ledger.entries import (
    LARGEST_LOSS,
    LONGEST_NAME,
    UNIT,
    Budget,
    BudgetBody,
    budget_command,
)
from eigenveil.markup import fragment, html_of, node, table
from eigenveil.privacy.accountant import Loss, check_delta, check_epsilon
from eigenveil.privacy.budget import as_gaussian, caps_of, rooms_for, usual_room
from eigenveil.privacy.guarantee import ADJACENCIES, Adjacency
from eigenveil.privacy.mechanisms.base import SamplingError
from eigenveil.privacy.releases import ReleaseRecord

# Caps and losses that were computed again, maybe on another machine, differ by less.
RECOMPUTED = 1.0 + 1e-9
# Of a budget: no release fits into what is left below it.
_ROUNDING = 1e-4
_NOTHING_LEFT = "left: nothing"


@dataclass(frozen=True)
class Wanted:
    data_set: str
    adjacency: Adjacency
    reserve: Loss  # The most that it may charge, under its own adjacency
    # The same for neighbours of which one row is changed, where its own are others; by default
    # twice mu and twice the pure epsilon, which always holds
    replacing: Loss | None = None
    unit: str = UNIT

    def under(self, adjacency: Adjacency) -> Loss:
        """What it may charge at most, as an account under ``adjacency`` counts it."""
        if adjacency == self.adjacency:
            return self.reserve
        if self.replacing is not None:
            return self.replacing
        one = self.reserve
        return replace(one, mu_squared=4 * one.mu_squared, pure=2 * one.pure)


@dataclass(frozen=True)
class Counted:
    """How an account counts a session."""

    account: BudgetBody
    taken: Loss
    pure_as_gaussian: bool
    is_new: bool  # Whether the account's caps were divided anew for it


def opened(budget: Budget, books: Books) -> BudgetBody:
    """The same as :func:`capped`, of a budget that nobody signed."""
    if books.has_approvers:
        raise DecisionRefused("budget-unsigned", data_set=budget.data_set)
    return capped(budget, books)


def capped(budget: Budget, books: Books) -> BudgetBody:
    """A budget with the caps of its account, given what sessions hold already."""
    before = books.accounts.get(budget.data_set)
    if (
        before is not None
        and not books.is_untouched(budget.data_set)
        and (before.budget.adjacency, before.budget.unit) != (budget.adjacency, budget.unit)
    ):
        raise PrivacyError(
            "account-fixed", data_set=budget.data_set, neighbours=_neighbours(before.budget)
        )
    usual, held = usual_room(budget.epsilon, budget.delta), books.held(budget.data_set)
    # sessions before this budget may have used more than is usually set aside
    room = SamplingError(
        max(usual.log_ratio, 2 * held.log_ratio), max(usual.distance, 2 * held.distance)
    )
    return BudgetBody(budget=budget, caps=_caps_or_none(budget, room) or _caps(budget, usual))


def noted(body: BudgetBody, *, by: str, reason: str) -> BudgetBody:
    return body.model_copy(update={"by": printable(by), "reason": printable(reason)})


def place(name: str, books: Books, wanted: Wanted) -> Counted:
    account = books.accounts.get(wanted.data_set)
    if account is None:
        set_it = budget_command(name, wanted.data_set, adjacency=wanted.adjacency, unit=wanted.unit)
        raise DataError("no-budget", ledger=name, data_set=wanted.data_set, command=set_it)
    _check_countable(name, account.budget, wanted)
    held, loss = books.held(wanted.data_set), wanted.under(account.budget.adjacency)
    for caps in _caps_to_try(account, books, loss):
        for taken, as_if in _ways(loss):
            if Loss.total([held, taken]).within(caps):
                is_new = caps is not account.caps
                divided = account.model_copy(update={"caps": caps}) if is_new else account
                return Counted(divided, taken, as_if, is_new)
    standing, budget = books.standing(wanted.data_set), account.budget
    asked, left = epsilon_or_infinity(loss, budget.delta), budget_left_text(standing)
    pure = "pure " if loss.mu_squared == 0 else ""
    under = "" if wanted.adjacency == budget.adjacency else " (counted for one row changed)"
    exact = replace(loss, log_ratio=0.0, distance=0.0)
    nearly = any(Loss.total([held, way]).within(account.caps) for way, _ in _ways(exact))
    raise BudgetExceeded(
        "no-room-for-error" if nearly else "over-budget",
        ledger=name,
        pure=pure,
        epsilon=asked,
        under=under,
        data_set=wanted.data_set,
        budget=(
            f"epsilon = {budget.epsilon:.6g} at delta = "
            f"{number_text(budget.delta, 3)} ({budget.adjacency})"
        ),
        left=left,
        state="used up" if left == _NOTHING_LEFT else "too small",
        open_sessions=_open_sessions(name, books, wanted.data_set),
        command=budget_command(name, wanted.data_set, adjacency=budget.adjacency, unit=budget.unit),
    )


def standing_after(name: str, books: Books, wanted: Wanted) -> Standing:
    """Where an account, which must cover it, stands with a session that was not begun."""
    counted, before = place(name, books, wanted), books.standing(wanted.data_set)
    reserved = Loss.total([before.reserved, counted.taken])
    return replace(before, caps=counted.account.caps, reserved=reserved)


def covers(name: str, books: Books, wanted: Wanted) -> bool:
    """Whether an account, which there must be, covers a session."""
    try:
        place(name, books, wanted)
    except PrivacyError:
        return False
    return True


def _open_sessions(name: str, books: Books, data_set: str) -> str:
    studies = [each.key.study for each in books.of_data_set(data_set) if each.is_open]
    if not studies:
        return ""
    count = (
        "1 session is open and holds"
        if len(studies) == 1
        else (f"{len(studies)} sessions are open and hold")
    )
    return (
        f"{count} a part of the budget; where nothing runs any more: eigenveil ledger end "
        f"{quote(name)} --study {studies[-1]} (eigenveil ledger show lists them). "
    )


def budget_left_text(standing: Standing) -> str:
    budget = standing.budget
    left, pure, aside_text = (
        _shown(number, budget.epsilon)
        for number in (standing.left_epsilon, standing.left_pure, standing.left.pure)
    )
    if left == pure == "0":
        return _NOTHING_LEFT
    if budget.delta == 0:
        return f"left: epsilon {left} for pure studies, none for others"
    return (
        f"left: epsilon {left} for Gaussian studies at delta "
        f"{number_text(budget.delta)}, or epsilon "
        f"{pure} for pure ones" + ("" if aside_text == "0" else f" ({aside_text} of it set aside)")
    )


def _shown(left: float, budget: float) -> str:
    """What is left of a budget; what only rounding left of it is nothing."""
    return "0" if left < _ROUNDING * budget else f"{left:.4g}"


def _check_countable(name: str, budget: Budget, wanted: Wanted) -> None:
    if wanted.unit != budget.unit:
        raise PrivacyError(
            "other-unit", ledger=name, data_set=budget.data_set, own=budget.unit, wanted=wanted.unit
        )
    if wanted.adjacency == "replace-one" != budget.adjacency:
        set_it = budget_command(name, budget.data_set, adjacency=wanted.adjacency, unit=wanted.unit)
        raise PrivacyError(
            "account-of-other-adjacency", ledger=name, data_set=budget.data_set, command=set_it
        )


def _ways(loss: Loss) -> Iterator[tuple[Loss, bool]]:
    if loss.mu_squared == 0:
        loss = loss.as_pure()
    yield loss, False
    if loss.pure > 0:
        yield as_gaussian(loss), True


def _caps_to_try(account: BudgetBody, books: Books, loss: Loss) -> Iterator[Loss]:
    """The account's; and while it is untouched, those with room for this session's samplers."""
    yield account.caps
    budget = account.budget
    if books.is_untouched(budget.data_set):
        for room in rooms_for(loss, budget.epsilon, budget.delta):
            if (caps := _caps_or_none(budget, room)) is not None:
                yield caps


def _caps(budget: Budget, room: SamplingError) -> Loss:
    room = room._replace(distance=room.distance + _set_aside(budget))
    return caps_of(budget.epsilon, budget.delta, pure=budget.pure_epsilon, room=room)


def _set_aside(budget: Budget) -> float:
    """The distance that is kept for approximate promises of work done elsewhere."""
    return budget.delta_elsewhere / (1.0 + math.exp(min(budget.epsilon, LARGEST_EPSILON)))


def caps_follow(body: BudgetBody) -> bool:
    """Whether an account's caps are no more than its budget allows, in whatever way divided."""
    budget, caps = body.budget, body.caps
    try:
        room = SamplingError(caps.log_ratio, max(0.0, caps.distance - _set_aside(budget)))
        return _caps(budget, room).covers(caps, rounding=RECOMPUTED)
    except EigenveilError:  # no budget at all
        return False


def _caps_or_none(budget: Budget, room: SamplingError) -> Loss | None:
    try:
        return _caps(budget, room)
    except PrivacyError:
        return None


def _neighbours(budget: Budget) -> str:
    how = "one {} added or removed" if budget.adjacency == "add-remove" else "one {} changed"
    return how.format(budget.unit)


# -- What a ledger refuses, and its errors.
#
# A ProtocolError's sentence may reach the other party: it never mentions budgets or places.


def check_open(session: Session) -> None:
    if not session.is_open:
        raise ProtocolError("session-ended", session=session.key.session, outcome=session.outcome)


def check_same(session: Session, wanted: Wanted) -> None:
    """A session that went on with other rows would charge the wrong account."""
    terms = session.terms
    if (terms.data_set, terms.unit, terms.adjacency) != (
        wanted.data_set,
        wanted.unit,
        wanted.adjacency,
    ):
        raise ProtocolError("session-differs", session=session.key.session)


def check_charges(session: Session, charges: Sequence[ReleaseRecord]) -> None:
    """Charges must be under the session's adjacency and within its reservation."""
    terms = session.terms
    for record in charges:
        if record.adjacency != terms.adjacency:
            raise PrivacyError(
                "other-adjacency", release=record.name, own=record.adjacency, wanted=terms.adjacency
            )
    if charges and not (
        terms.reserve.covers(charged := session.charged(charges))
        and terms.taken.covers(session.spent(charges))
    ):
        raise BudgetExceeded(
            "beyond-reservation",
            session=session.key.session,
            loss=_losses(charged),
            reserved=_losses(terms.reserve),
        )


def _losses(loss: Loss) -> str:
    return (
        f"mu^2 = {loss.mu_squared:.6g}, pure epsilon = {loss.pure:.6g}, "
        f"log-ratio = {loss.log_ratio:.3g}, distance = {loss.distance:.3g}"
    )


def check_reservation(wanted: Wanted) -> None:
    for reserve in (wanted.reserve, wanted.replacing or wanted.reserve):
        if not (reserve.within(LARGEST_LOSS) and Loss().within(reserve)):
            raise PrivacyError("bad-reservation", losses=_losses(reserve))
    if not is_name(wanted.unit):
        raise DataError("bad-name", name=wanted.unit, what="unit", most=LONGEST_NAME)


def check_budget(budget: Budget) -> None:
    check_delta(budget.delta)
    if budget.epsilon != 0:  # 0 closes the data set
        check_epsilon(budget.epsilon)
    if not 0 <= budget.delta_elsewhere <= budget.delta / 2:
        raise DataError(
            "bad-delta-elsewhere", delta_elsewhere=budget.delta_elsewhere, delta=budget.delta
        )
    if budget.adjacency not in ADJACENCIES:
        raise PrivacyError(
            "bad-adjacency", adjacency=budget.adjacency, known=" or ".join(ADJACENCIES)
        )
    for what, name in (("data set", budget.data_set), ("unit", budget.unit)):
        if not is_name(name):
            raise DataError("bad-name", name=name, what=what, most=LONGEST_NAME)


def check_names(*names: str) -> None:
    """Names of studies, sessions, steps and outcomes, which others may choose."""
    for name in names:
        if not is_name(name):
            raise ProtocolError(
                "bad-name",
                name=name[:LONGEST_NAME],
                what="study, session, step or outcome",
                most=LONGEST_NAME,
            )


def is_name(name: str) -> bool:
    """Whether a name can be stored anywhere and shown on a terminal."""
    return 1 <= len(name) <= LONGEST_NAME and name.isprintable()


def printable(note: str) -> str:
    return "".join(letter for letter in note if letter.isprintable())[:LONGEST_NAME]


# -- A ledger in a notebook: where its accounts stand.

ACCOUNTS = ("data set", "neighbours", "budget", "delta", "spent")
"""Headings of :func:`account_cells`; epsilons are at the budget's delta."""


def account_cells(standing: Standing) -> tuple[str, ...]:
    budget = standing.budget
    numbers = (budget.epsilon, budget.delta, standing.spent_epsilon)
    return (
        budget.data_set,
        f"{budget.adjacency}, one {budget.unit}",
        *(number_text(number, 4) for number in numbers),
    )


def ledger_html(name: str, read: Callable[[], Books]) -> str:
    """The accounts as a table; a ledger that cannot be read says so, and changes nothing."""
    title = f"Ledger {name}"
    try:
        books = read()
    except EigenveilError as error:
        return html_of(fragment(title, node("p", str(error))))
    standings = books.standings()
    if not standings:
        return html_of(fragment(title, node("p", "No budget is set.")))
    rows = [(*account_cells(each), budget_left_text(each)) for each in standings]
    right = (False, False, True, True, True, False)
    accounts = table((*ACCOUNTS, "left"), rows, right=right, style=True)
    sessions = len(books.sessions)
    count = f"{sessions} session{'' if sessions == 1 else 's'}"
    return html_of(fragment(title, accounts, node("p", count)))
