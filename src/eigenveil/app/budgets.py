"""Budgets of a ledger, as their owner sets them; and charges of work done elsewhere."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

from eigenveil.app.decisions import signer_of
from eigenveil.app.ledger import Accounts, open_ledger
from eigenveil.errors import WrongOption
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.approvals.roster import FIRST_OWNER
from eigenveil.federation.ledger.books import Standing
from eigenveil.federation.ledger.entries import UNIT, Budget
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.models.options import OPTIONS
from eigenveil.network.folder import open_party
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
        desk, who = Decisions(open_party(party, role="site"), ledger), by or FIRST_OWNER
        is_set = desk.set_budget(new, signer_of(desk, who, key, password), by=who, reason=reason)
        waits = "A second approver must agree to exactly this budget: it is not set yet."
        note = "" if is_set else waits
    return Accounts(_of(ledger, name), note)


def charge(
    place: str | None,
    data_set: str,
    stated: Mapping[str, float | None],
    *,
    adjacency: str,
    contributions: int,
    unit: str | None,
    by: str | None,
    reason: str,
) -> Accounts:
    given = {name: value for name, value in stated.items() if value is not None}
    work = Elsewhere.stated(
        **given,
        adjacency=cast("Adjacency", adjacency),
        contributions=contributions,
        what=", ".join(f"{name} = {value:g}" for name, value in given.items()),
    )
    who = _login() if by is None else by
    ledger = open_ledger(place)
    found = ledger.charge_elsewhere(data_set, work, unit=unit or UNIT, by=who, reason=reason)
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
