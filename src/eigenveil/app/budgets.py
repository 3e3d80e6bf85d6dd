"""Budgets of a ledger, as their owner sets them; and charges of work done elsewhere."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, cast

from eigenveil.app.decisions import decider_of
from eigenveil.app.ledger import Accounts, ledger_of, open_ledger
from eigenveil.errors import DataError, WrongOption
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.approvals.roster import FIRST_OWNER
from eigenveil.federation.ledger.books import Standing
from eigenveil.federation.ledger.entries import UNIT, Budget
from eigenveil.federation.ledger.heads import HeadsFile
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.models.options import OPTIONS
from eigenveil.network.folder import PartyFolder, open_party
from eigenveil.privacy.elsewhere import Elsewhere
from eigenveil.privacy.guarantee import Adjacency

# That of a fit where none is given.
USUAL_DELTA = next(one.default for one in OPTIONS if one.name == "delta")


@dataclass(frozen=True)
class WantedBudget:
    """A budget as its owner wants it; what is ``None`` is as it was, or as usual."""

    data_set: str
    epsilon: float | None = None
    delta: float | None = None
    pure_epsilon: float | None = None
    adjacency: str | None = None
    unit: str | None = None
    delta_elsewhere: float | None = None

    def after(self, before: Budget | None) -> Budget:
        """The whole budget, given the one before."""
        if before is None and self.epsilon is None:
            raise WrongOption("account-without-epsilon", data_set=self.data_set)
        usual = before or Budget(self.data_set, "add-remove", 0.0, USUAL_DELTA)
        if self.epsilon is not None:
            usual = replace(usual, pure_epsilon=0.0)
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(usual, **given)


def set_budget(
    place: str | None,
    wanted: WantedBudget,
    *,
    by: str | None,
    reason: str,
    party: Path | None,
    key: Path | None,
    password: Callable[[str], str],
) -> Accounts:
    """Set a budget, signed by an approver where there is a site's folder; how it stands then."""
    ledger, name = open_ledger(place, makes=True, party=party), wanted.data_set
    before = ledger.budget_if_any(name)
    new = wanted.after(before)
    is_raised = before is not None and (new.epsilon > before.epsilon or new.delta > before.delta)
    if is_raised and not reason and _of(ledger, name)[0].spent_epsilon > 0:
        raise WrongOption("raised-without-reason", data_set=name)
    if party is None:
        ledger.set_budget(new, by=_login() if by is None else by, reason=reason)
        note = "This budget is unsigned: the ledger has no approvers."
    else:
        desk = Decisions(open_party(party, role="site"), ledger)
        decider = decider_of(desk, by or FIRST_OWNER, key, password)
        is_set = desk.set_budget(new, decider, reason=reason)
        waits = "A second approver must agree to exactly this budget: it is not set yet."
        note = "" if is_set else waits
    return Accounts(_of(ledger, name), note)


def begin_at_site(
    party: PartyFolder, place: str, heads: HeadsFile | Literal["usual"], wanted: WantedBudget
) -> str:
    """See to it that a ledger is the site's and has a budget: one from before, or this one.

    The approvers' list is made where the ledger is new; that the second place of its heads can be
    used is known after this. Returns what is to be said of it.
    """
    if wanted.epsilon is None and (wanted.delta is not None or wanted.pure_epsilon):
        raise WrongOption("budget-without-epsilon")
    name = wanted.data_set
    desk = Decisions(party, ledger_of(place, party, heads), name)
    ledger = desk.ledger
    before = ledger.budget_if_any(name)
    if wanted.epsilon is None and before is None:
        raise DataError(
            "no-budget",
            ledger=ledger.name,
            data_set=name,
            command="--budget-epsilon 2 --budget-delta 1e-6 (or 'eigenveil ledger budget')",
        )
    desk.begin()
    ledger.note_head()
    if wanted.epsilon is None:
        return ""
    requested = wanted.after(None)
    if before is None:
        done = desk.set_budget(requested, reason="site start")
        waits = "" if done else " (once a second approver agrees: eigenveil ledger budget)"
        return f"{ledger.name}: {_text(requested)}, for data set {name}{waits}"
    if before != requested:
        raise DataError("budget-exists", ledger=ledger.name, data_set=name, budget=_text(before))
    return ""


def _text(budget: Budget) -> str:
    aside = f", {budget.pure_epsilon:g} of it for pure studies" if budget.pure_epsilon else ""
    return f"a budget of {budget.bound}{aside}, {budget.adjacency}, one {budget.unit}"


@dataclass(frozen=True)
class WorkElsewhere:
    """Work that another program did, as it stated its loss."""

    epsilon: float | None
    delta: float
    rho: float | None
    mu: float | None
    contributions: int
    adjacency: str
    unit: str | None


def charge(
    place: str | None, data_set: str, work: WorkElsewhere, *, by: str | None, reason: str
) -> Accounts:
    """Charge an account for work done elsewhere, by what was stated of it."""
    stated = {"epsilon": work.epsilon, "delta": work.delta or None, "rho": work.rho, "mu": work.mu}
    given = {name: value for name, value in stated.items() if value is not None}
    loss = Elsewhere.stated(
        **given,
        adjacency=cast("Adjacency", work.adjacency),
        contributions=work.contributions,
        what=", ".join(f"{name} = {value:g}" for name, value in given.items()),
    )
    who = _login() if by is None else by
    ledger = open_ledger(place)
    found = ledger.charge_elsewhere(data_set, loss, unit=work.unit or UNIT, by=who, reason=reason)
    return Accounts([found])


def end_study(place: str | None, study: str) -> int:
    """End the open sessions of a study; how many there were."""
    return open_ledger(place).end_study(study)


def _of(ledger: Ledger, data_set: str) -> list[Standing]:
    return [each for each in ledger.standings() if each.budget.data_set == data_set]


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
