"""A site's budget, as its owner says it when the site starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from eigenveil.cli import options
from eigenveil.cli.screen import Screen
from eigenveil.errors import DataError, OutputError

if TYPE_CHECKING:
    from eigenveil.federation.ledger import Budget
    from eigenveil.federation.ledger_heads import Heads
    from eigenveil.privacy.guarantee import Adjacency

_USUAL_DELTA = 1e-6


@dataclass(frozen=True)
class BudgetWish:
    """A budget as it is said on the command line."""

    data_set: str
    adjacency: str
    epsilon: float | None
    delta: float | None
    pure_epsilon: float = 0.0


def check_budget(
    place: str, wish: BudgetWish, screen: Screen, *, heads: Heads | None = None
) -> None:
    """See to it that the ledger has a budget: one from before, or this one.

    ``heads`` is the second place of the ledger's heads; that it can be used is known after this.

    Raises
    ------
    DataError
        When there is none and none is given; when there is one and another is given; when what was
        noted in ``heads`` is not of this ledger.
    OutputError
        When ``heads`` cannot be reached or written.
    """
    from eigenveil.federation.ledger import Budget, Ledger

    if wish.epsilon is None and (wish.delta is not None or wish.pure_epsilon):
        raise options.WrongOption(
            "--budget-delta and --budget-pure-epsilon are for a budget, and --budget-epsilon is "
            "missing.",
            hint="Give it, too, or none of them.",
        )
    ledger, name = Ledger(place, heads=heads), wish.data_set
    try:
        before = ledger.budget(name)
    except OutputError as error:
        if error.code != "no-ledger":
            raise
        before = None
    if before is not None:
        ledger.note_head()
    if wish.epsilon is None:
        if before is None:
            raise DataError(
                f"{ledger.name} has no budget for data set {name!r}.",
                hint="Say what may be lost about these rows in all: --budget-epsilon 2 "
                "--budget-delta 1e-6 (or 'eigenveil ledger budget').",
                code="no-budget",
            )
        return
    kind = cast("Adjacency", wish.adjacency)
    delta = _USUAL_DELTA if wish.delta is None else wish.delta
    wished = Budget(name, kind, wish.epsilon, delta, wish.pure_epsilon)
    if before is None:
        ledger.set_budget(wished)
        screen.print(f"{ledger.name}: {_said(wished)}, for data set {name}")
    elif before != wished:
        raise DataError(
            f"{ledger.name} has a budget for data set {name!r} already: {_said(before)}.",
            hint="Leave --budget-epsilon out, or change it with 'eigenveil ledger budget'.",
            code="budget-exists",
        )


def _said(budget: Budget) -> str:
    aside = f", {budget.pure_epsilon:g} of it for pure studies" if budget.pure_epsilon else ""
    return (
        f"a budget of epsilon = {budget.epsilon:g} at delta = {budget.delta:g}{aside}, "
        f"{budget.adjacency}"
    )
