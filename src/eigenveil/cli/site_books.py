"""A site's budget, as its owner says it when the site starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from eigenveil.cli import options
from eigenveil.cli.screen import Screen
from eigenveil.errors import DataError, OutputError

if TYPE_CHECKING:
    from eigenveil.privacy.guarantee import Adjacency

_USUAL_DELTA = 1e-6


@dataclass(frozen=True)
class BudgetWish:
    """A budget as it is said on the command line."""

    data_set: str
    adjacency: str
    epsilon: float | None
    delta: float | None


def check_budget(place: str, wish: BudgetWish, screen: Screen) -> None:
    """See to it that the ledger has a budget: one from before, or this one.

    Raises
    ------
    DataError
        When there is none and none is given; when there is one and another is given.
    """
    from eigenveil.federation.ledger import Budget, Ledger

    if wish.epsilon is None and wish.delta is not None:
        raise options.WrongOption(
            "--budget-delta is for a budget, and --budget-epsilon is missing.",
            hint="Give both, or neither.",
        )
    ledger, name = Ledger(place), wish.data_set
    try:
        found = [each.budget for each in ledger.standings() if each.budget.data_set == name]
    except OutputError as error:
        if error.code != "no-ledger":
            raise
        found = []
    if wish.epsilon is None:
        if not found:
            raise DataError(
                f"{ledger.name} has no budget for data set {name!r}.",
                hint="Say what may be lost about these rows in all: --budget-epsilon 2 "
                "--budget-delta 1e-6 (or 'eigenveil ledger budget').",
                code="no-budget",
            )
        return
    kind = cast("Adjacency", wish.adjacency)
    delta = _USUAL_DELTA if wish.delta is None else wish.delta
    wished = Budget(name, kind, wish.epsilon, delta)
    before = next((budget for budget in found if budget.adjacency == kind), None)
    if before is None:
        ledger.set_budget(wished)
        screen.print(
            f"{ledger.name}: a budget of epsilon = {wished.epsilon:g} at delta = "
            f"{wished.delta:g}, {kind}, for data set {name}"
        )
    elif before != wished:
        raise DataError(
            f"{ledger.name} has a budget for data set {name!r} already: epsilon = "
            f"{before.epsilon:g} at delta = {before.delta:g}.",
            hint="Leave --budget-epsilon out, or change it with 'eigenveil ledger budget'.",
            code="budget-exists",
        )
