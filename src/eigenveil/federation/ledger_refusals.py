"""What a ledger refuses, and what it says then.

A ProtocolError's sentence may reach the other party: it never tells of budgets or places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from eigenveil.errors import BudgetExceeded, DataError, PrivacyError, ProtocolError
from eigenveil.federation.ledger_books import Account, Books, Budget, epsilon_or_infinity
from eigenveil.federation.ledger_tables import LONGEST_NAME
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.gaussian import check_delta, check_epsilon
from eigenveil.privacy.guarantee import ADJACENCIES, Adjacency
from eigenveil.privacy.releases import ReleaseRecord


def check_covered(
    name: str, books: Books, data_set: str, adjacency: Adjacency, reserve: Loss
) -> None:
    """A budget must be set, and cover what is held of it and the reservation."""
    budget = books.budgets.get((data_set, adjacency))
    set_it = f"eigenveil ledger budget {name} --data-set {data_set} --adjacency {adjacency}"
    if budget is None:
        raise DataError(
            f"{name}: no budget is set for data set {data_set!r} under {adjacency}.",
            hint=f"Set one: {set_it} --epsilon E --delta D.",
            code="no-budget",
        )
    held = books.held(data_set, adjacency)
    together = epsilon_or_infinity(Loss.total([held, reserve]), budget.delta)
    if together <= budget.epsilon:
        return
    asked = epsilon_or_infinity(reserve, budget.delta)
    left = books.standing(budget).left_epsilon
    raise BudgetExceeded(
        f"{name}: a session asks for epsilon = {asked:.6g} of data set {data_set!r} "
        f"({adjacency}), of whose budget, epsilon = {budget.epsilon:.6g} at delta = "
        f"{budget.delta:.3g}, {left:.6g} is left; with it {together:.6g} would be spent.",
        hint=f"Ask for less, end studies that will not go on (eigenveil ledger end), or raise "
        f"the budget: {set_it} --epsilon E --delta D.",
        code="over-budget",
    )


def check_open(account: Account) -> None:
    """A session that has ended takes no more."""
    if not account.is_open:
        raise ProtocolError(
            f"Session {account.key.session!r} has ended ({account.outcome}).",
            hint="Begin another session.",
            code="session-ended",
        )


def check_same(account: Account, data_set: str, adjacency: Adjacency) -> None:
    """A session that went on with other rows would charge the wrong data set."""
    if (account.terms.data_set, account.terms.adjacency) != (data_set, adjacency):
        raise ProtocolError(
            f"Session {account.key.session!r} is open for another data set or adjacency.",
            hint="Begin another session.",
            code="session-asked-differently",
        )


def check_charges(account: Account, charges: Sequence[ReleaseRecord]) -> None:
    """Charges must be under the session's adjacency and within its reservation."""
    for record in charges:
        if record.adjacency != account.terms.adjacency:
            raise PrivacyError(
                f"Release {record.name!r} is recorded under {record.adjacency}, its session under "
                f"{account.terms.adjacency}.",
                hint="Charge only releases under the session's adjacency.",
                code="other-adjacency",
            )
    if charges and not account.terms.reserve.covers(charged := account.charged(charges)):
        raise BudgetExceeded(
            f"Session {account.key.session!r} would have lost {_losses(charged)}, more than the "
            f"{_losses(account.terms.reserve)} that it reserved.",
            hint="Begin another session that reserves what it needs.",
            code="beyond-reservation",
        )


def _losses(loss: Loss) -> str:
    return (
        f"mu^2 = {loss.mu_squared:.6g}, pure epsilon = {loss.pure:.6g}, "
        f"log-ratio = {loss.log_ratio:.3g}, distance = {loss.distance:.3g}"
    )


def check_reservation(reserve: Loss) -> None:
    """A reservation must be a loss."""
    parts = (reserve.mu_squared, reserve.pure, reserve.log_ratio, reserve.distance)
    if not all(math.isfinite(part) and part >= 0 for part in parts):
        raise PrivacyError(
            f"A reservation of {_losses(reserve)} is not finite and at least 0.",
            hint="Reserve what the plan's releases can cost at most.",
            code="bad-reservation",
        )


def check_budget(budget: Budget) -> None:
    """A budget must be one."""
    check_delta(budget.delta)
    if budget.epsilon != 0:  # 0 closes the data set
        check_epsilon(budget.epsilon)
    if budget.adjacency not in ADJACENCIES:
        raise PrivacyError(
            f"adjacency = {budget.adjacency!r} is unknown.",
            hint=f"Choose {' or '.join(ADJACENCIES)}.",
            code="bad-adjacency",
        )
    if not is_name(budget.data_set):
        raise DataError(
            f"{budget.data_set!r} is no name for a data set.",
            hint=f"Give 1 to {LONGEST_NAME} printable characters.",
            code="bad-name",
        )


def check_names(*names: str) -> None:
    """Names of studies, sessions, steps and outcomes, which others may choose."""
    for name in names:
        if not is_name(name):
            raise ProtocolError(
                f"{name[:LONGEST_NAME]!r} is no name for a study, session, step or outcome.",
                hint=f"Give 1 to {LONGEST_NAME} printable characters.",
                code="bad-name",
            )


def is_name(name: str) -> bool:
    """Whether a name can be stored anywhere and shown on a terminal."""
    return 1 <= len(name) <= LONGEST_NAME and name.isprintable()


def printable(note: str) -> str:
    """A note as a terminal can show it."""
    return "".join(letter for letter in note if letter.isprintable())[:LONGEST_NAME]
