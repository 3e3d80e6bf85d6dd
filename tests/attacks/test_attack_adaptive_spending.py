"""Whoever asks chooses the next release by what came out of the one before.

Would have found: a budget of (1, 1e-5) that was checked by the joint privacy-loss distribution of
what was spent, and gave 1.99e-5 away; and accounts of different adjacency for the same rows, each
with the whole budget.
"""

import itertools

import pytest
from ledger_tools import begin

from eigenveil.errors import BudgetExceeded, EigenveilError
from eigenveil.federation.ledger.ledger import Budget, Draft, Ledger, SessionKey
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.releases import Noise, ReleaseRecord

EPSILON, DELTA = 1.0, 1e-5
FIRST, GAUSSIAN, PURE, ENOUGH = (
    0.0267,
    0.266,
    0.92,
    0.9201,
)  # of the example, rounded down: each branch fits alone


def release(loss, kind="gaussian", adjacency="add-remove"):
    def at(scale):
        noise = Noise(kind=kind, scale=scale, size=10, grid=-40)
        return ReleaseRecord(name="r", statistic="norm-histogram", adjacency=adjacency, noise=noise)

    unit = at(1.0).mu() if kind == "gaussian" else at(1.0).epsilon()
    return at(unit / loss)


def spend(ledger, record, name, adjacency="add-remove"):
    """Whether the ledger lets a session have a release."""
    key = SessionKey("study " + name, name)
    try:
        begin(ledger, key, Loss.of(record), adjacency=adjacency)
    except BudgetExceeded:
        return False
    ledger.commit(
        key, "round 1", request=b"", draft=lambda *_: Draft(lambda: (b"", None), charges=[record])
    )
    ledger.end(key, "done")
    return True


@pytest.mark.parametrize("aside", [0.0, 0.3, ENOUGH, 0.95])
def test_only_one_of_the_two_branches_is_there_to_choose(tmp_path, aside):
    """The two worlds after the first release: in one of them the second is refused."""
    had = []
    for number, second in enumerate((release(GAUSSIAN), release(PURE, "laplace"))):
        ledger = Ledger(tmp_path / str(number))
        ledger.set_budget(Budget("rows", "add-remove", EPSILON, DELTA, aside))
        first = spend(ledger, release(FIRST), "first")
        had.append(first and spend(ledger, second, "second"))
    assert sum(had) <= 1, had
    if aside in (0.0, ENOUGH):  # so the example is about what is nearly allowed
        assert sum(had) == 1


def test_the_other_adjacency_is_no_second_purse(tmp_path):
    """All that fits is asked for under both adjacencies, in every order: it counts together."""
    for number, order in enumerate(itertools.permutations(["add-remove", "replace-one"] * 2)):
        ledger = Ledger(tmp_path / str(number))
        ledger.set_budget(Budget("rows", "replace-one", EPSILON, DELTA))
        spent = []
        for round_number, adjacency in enumerate(order):
            # a histogram loses the same under both
            record = release(0.15, adjacency=adjacency)
            loss = Loss.of(record)
            key = SessionKey(f"study {round_number}", "s")
            try:
                begin(ledger, key, loss, replacing=loss, adjacency=adjacency)
            except BudgetExceeded:
                continue
            charged = Draft(lambda: (b"", None), charges=[record])
            ledger.commit(key, "r", request=b"", draft=lambda *_, charged=charged: charged)
            spent.append(record)
        assert len(spent) == 3  # 3 * .15^2 < .268^2 < 4 * .15^2
        (standing,) = ledger.standings()
        assert standing.spent.mu_squared == pytest.approx(3 * 0.15**2, rel=1e-9)


def test_a_site_cannot_open_the_purse_anew(tmp_path):
    """Neither by another adjacency, nor another unit, nor a study that publishes the row count."""
    ledger = Ledger(tmp_path / "ledger")
    ledger.set_budget(Budget("rows", "add-remove", EPSILON, DELTA))
    assert spend(ledger, release(0.2), "first")
    for budget, code in (
        (Budget("rows", "replace-one", EPSILON, DELTA), "account-fixed"),
        (Budget("rows", "add-remove", EPSILON, DELTA, unit="patient"), "account-fixed"),
    ):
        with pytest.raises(EigenveilError) as caught:
            ledger.set_budget(budget)
        assert caught.value.code == code
    with pytest.raises(EigenveilError) as caught:
        spend(ledger, release(0.01, adjacency="replace-one"), "second", "replace-one")
    assert caught.value.code == "account-of-other-adjacency"
    assert "rows that are changed" in caught.value.message
    assert "--adjacency replace-one" in caught.value.hint
    with pytest.raises(EigenveilError) as caught:
        begin(ledger, SessionKey("a", "b"), Loss(), unit="patient")
    assert caught.value.code == "other-unit"


def test_charges_under_add_remove_are_counted_for_a_changed_row(tmp_path):
    """A row sum moves twice as far: half of what was reserved so is left for charges."""
    ledger = Ledger(tmp_path / "ledger")
    ledger.set_budget(Budget("rows", "replace-one", EPSILON, DELTA))

    def mean(mu):
        noise = Noise(kind="gaussian", scale=1.0 / mu, size=10, grid=-40)
        return ReleaseRecord(name="r", statistic="row-sum", adjacency="add-remove", noise=noise)

    assert not spend(ledger, mean(0.135), "too much")
    assert spend(ledger, mean(0.13), "half")
    (standing,) = ledger.standings()
    assert standing.spent.mu_squared == pytest.approx(0.26**2, rel=1e-9)
