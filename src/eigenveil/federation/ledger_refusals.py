"""What a ledger refuses, and what it says then.

A ProtocolError's sentence may reach the other party: it never tells of budgets or places.
"""

from __future__ import annotations

from collections.abc import Sequence

from eigenveil.errors import BudgetExceeded, DataError, PrivacyError, ProtocolError
from eigenveil.federation.ledger_bodies import LARGEST_LOSS, Budget
from eigenveil.federation.ledger_books import Session
from eigenveil.federation.ledger_placing import Wanted
from eigenveil.federation.ledger_tables import LONGEST_NAME
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.gaussian import check_delta, check_epsilon
from eigenveil.privacy.guarantee import ADJACENCIES
from eigenveil.privacy.releases import ReleaseRecord


def check_open(session: Session) -> None:
    """A session that has ended takes no more."""
    if not session.is_open:
        raise ProtocolError(
            f"Session {session.key.session!r} has ended ({session.outcome}).",
            hint="Begin another session.",
            code="session-ended",
        )


def check_same(session: Session, wanted: Wanted) -> None:
    """A session that went on with other rows would charge the wrong account."""
    terms = session.terms
    if (terms.data_set, terms.unit, terms.adjacency) != (
        wanted.data_set,
        wanted.unit,
        wanted.adjacency,
    ):
        raise ProtocolError(
            f"Session {session.key.session!r} is open for another data set, unit or adjacency.",
            hint="Begin another session.",
            code="session-asked-differently",
        )


def check_charges(session: Session, charges: Sequence[ReleaseRecord]) -> None:
    """Charges must be under the session's adjacency and within its reservation."""
    terms = session.terms
    for record in charges:
        if record.adjacency != terms.adjacency:
            raise PrivacyError(
                f"Release {record.name!r} is recorded under {record.adjacency}, its session under "
                f"{terms.adjacency}.",
                hint="Charge only releases under the session's adjacency.",
                code="other-adjacency",
            )
    if charges and not (
        terms.reserve.covers(charged := session.charged(charges))
        and terms.taken.covers(session.spent(charges))
    ):
        raise BudgetExceeded(
            f"Session {session.key.session!r} would have lost {_losses(charged)}, more than the "
            f"{_losses(terms.reserve)} that it reserved.",
            hint="Begin another session that reserves what it needs.",
            code="beyond-reservation",
        )


def _losses(loss: Loss) -> str:
    return (
        f"mu^2 = {loss.mu_squared:.6g}, pure epsilon = {loss.pure:.6g}, "
        f"log-ratio = {loss.log_ratio:.3g}, distance = {loss.distance:.3g}"
    )


def check_reservation(wanted: Wanted) -> None:
    """A reservation must be a loss that can be counted."""
    for reserve in (wanted.reserve, wanted.replacing or wanted.reserve):
        if not (reserve.within(LARGEST_LOSS) and Loss().within(reserve)):
            raise PrivacyError(
                f"A reservation of {_losses(reserve)} is not at least 0 and finite.",
                hint="Reserve what the plan's releases can cost at most.",
                code="bad-reservation",
            )
    if not is_name(wanted.unit):
        raise DataError(
            f"{wanted.unit!r} is no name for a unit.",
            hint=f"Give 1 to {LONGEST_NAME} printable characters.",
            code="bad-name",
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
    for what, name in (("data set", budget.data_set), ("unit", budget.unit)):
        if not is_name(name):
            raise DataError(
                f"{name!r} is no name for a {what}.",
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
