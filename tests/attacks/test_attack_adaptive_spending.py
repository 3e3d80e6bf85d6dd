"""Whoever asks chooses the next release by what came out of the one before.

Would have found: a budget of (1, 1e-5) that was checked by the joint privacy-loss distribution of
what was spent, and gave 1.99e-5 away; and accounts of different adjacency for the same rows, each
with the whole budget.
"""

import itertools
from dataclasses import replace

import pytest

from eigenveil.errors import BudgetExceeded
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.privacy.accountant import Loss
from ledger_tools import begin, commit, key_of, loss_of, refused, release

BUDGET = Budget("rows", "add-remove", 1.0, 1e-5)
# Of the example, rounded down: each branch fits alone.
FIRST, GAUSSIAN, PURE, ENOUGH = 0.0267, 0.266, 0.92, 0.9201


@pytest.fixture
def ledger_of(tmp_path):
    """A new ledger with a budget."""

    def made(budget, names=itertools.count()):  # noqa: B008
        ledger = Ledger(tmp_path / str(next(names)), durable=False)
        ledger.set_budget(budget)
        return ledger

    return made


def spend(ledger, record, name, **wanted):
    """Whether the ledger lets a session have a release."""
    key = key_of(name, f"study {name}")
    try:
        begin(ledger, key, loss_of(record), adjacency=record.adjacency, **wanted)
    except BudgetExceeded:
        return False
    commit(ledger, key, charges=[record])
    ledger.end(key, "done")
    return True


@pytest.mark.parametrize("aside", [0.0, 0.3, ENOUGH, 0.95])
def test_only_one_of_the_two_branches_is_there_to_choose(ledger_of, aside):
    """The two worlds after the first release: in one of them the second is refused."""
    had = []
    for second in (release(GAUSSIAN), release(PURE, kind="laplace")):
        ledger = ledger_of(replace(BUDGET, pure_epsilon=aside))
        first = spend(ledger, release(FIRST), "first")
        had.append(first and spend(ledger, second, "second"))
    assert sum(had) <= 1, had
    if aside in (0.0, ENOUGH):  # so the example is about what is nearly allowed
        assert sum(had) == 1


def test_the_other_adjacency_is_no_second_purse(ledger_of):
    """All that fits is asked for under both adjacencies, in every order: it counts together."""
    for order in set(itertools.permutations(["add-remove", "replace-one"] * 2)):
        ledger, spent = ledger_of(replace(BUDGET, adjacency="replace-one")), 0
        for number, adjacency in enumerate(order):
            # a histogram loses the same under both
            record = release(0.15, adjacency=adjacency)
            spent += spend(ledger, record, str(number), replacing=loss_of(record))
        assert spent == 3  # 3 * .15^2 < .268^2 < 4 * .15^2
        (standing,) = ledger.standings()
        assert standing.spent.mu_squared == pytest.approx(3 * 0.15**2, rel=1e-9)


def test_a_site_cannot_open_the_purse_anew(ledger_of):
    """Neither by another adjacency, nor another unit, nor a study that publishes the row count."""
    ledger = ledger_of(BUDGET)
    assert spend(ledger, release(0.2), "first")
    for change in ({"adjacency": "replace-one"}, {"unit": "patient"}):
        refused("account-fixed", ledger.set_budget, replace(BUDGET, **change))
    other = release(0.01, adjacency="replace-one")
    error = refused("account-of-other-adjacency", spend, ledger, other, "second")
    assert "rows that are changed" in error.message
    assert "--adjacency replace-one" in error.hint
    refused("other-unit", begin, ledger, key_of(), Loss(), unit="patient")


def test_charges_under_add_remove_are_counted_for_a_changed_row(ledger_of):
    """A row sum moves twice as far: half of what was reserved so is left for charges."""
    ledger = ledger_of(replace(BUDGET, adjacency="replace-one"))

    def mean(mu):
        one = release(mu)
        noise = one.noise.model_copy(update={"scale": 1.0 / mu})
        return one.model_copy(update={"statistic": "row-sum", "noise": noise})

    assert not spend(ledger, mean(0.135), "too much")
    assert spend(ledger, mean(0.13), "half")
    (standing,) = ledger.standings()
    assert standing.spent.mu_squared == pytest.approx(0.26**2, rel=1e-9)
