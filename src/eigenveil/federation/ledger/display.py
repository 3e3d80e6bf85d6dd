"""A ledger in a notebook: where its accounts stand."""

from __future__ import annotations

from collections.abc import Callable

from eigenveil.errors import EigenveilError
from eigenveil.federation.ledger.books import Books, Standing
from eigenveil.federation.ledger.placing import budget_left_text
from eigenveil.markup import fragment, html_of, node, table

ACCOUNTS = ("data set", "neighbours", "budget", "delta", "spent")
"""Headings of :func:`account_cells`; epsilons are at the budget's delta."""


def account_cells(standing: Standing) -> tuple[str, ...]:
    budget = standing.budget
    numbers = (budget.epsilon, budget.delta, standing.spent_epsilon)
    return (
        budget.data_set,
        f"{budget.adjacency}, one {budget.unit}",
        *(f"{number:.4g}" for number in numbers),
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
