"""Several processes that fit one table at once, and one that is killed in the middle."""

import multiprocessing
import os
import signal
import warnings

import numpy as np
import pytest

import eigenveil
from eigenveil.errors import BudgetExceeded, EigenveilError
from eigenveil.federation.ledger.fits import FitCharges
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.io import open_rows
from eigenveil.privacy.accountant import Loss

# a process that was forked while it had a ledger must be as good as a new one
FORK = multiprocessing.get_context("fork")
FITS = 4


@pytest.fixture
def table(tmp_path):
    np.save(tmp_path / "table.npy", np.random.default_rng(0).normal(size=(20000, 3)))
    return tmp_path / "table.npy"


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "tables.ledger")


def fit(place, table, found, gate=None, rounds=0):
    """Fit, and say what became of it; after so many charged rounds the process is killed."""
    warnings.simplefilter("ignore")
    charge = FitCharges.charge

    def charged(self, records):
        charge(self, records)
        if self._step == rounds:
            os.kill(os.getpid(), signal.SIGKILL)

    FitCharges.charge = charged
    rows = open_rows([table])
    if gate is not None:
        gate.wait()
    try:
        eigenveil.PrivatePCA(1, ledger=place).fit_rows(rows)
        found.put("fitted")
    except EigenveilError as error:
        found.put(error.code)


@pytest.mark.parametrize(("budget", "covered"), [(None, 1), (1.5, 2)])
def test_of_fits_at_once_as_many_succeed_as_the_budget_covers(place, table, budget, covered):
    """Where there is no ledger yet, one makes it, one opens the account, one is within it."""
    if budget is not None:
        Ledger(place).set_budget(Budget(str(table), "add-remove", budget, 1e-6))
    gate, found = FORK.Barrier(FITS), FORK.Queue()
    processes = [FORK.Process(target=fit, args=(place, table, found, gate)) for _ in range(FITS)]
    for process in processes:
        process.start()
    outcomes = sorted(found.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(120)
    assert outcomes == ["fitted"] * covered + ["over-budget"] * (FITS - covered)
    assert [each.outcome for each in Ledger(place).sessions()] == ["finished"] * covered
    (standing,) = Ledger(place).standings()
    assert standing.spent.within(standing.caps)
    assert standing.reserved == Loss()
    assert Ledger(place).verify().holds


def test_a_killed_fit_keeps_what_it_charged(place, table):
    Ledger(place).set_budget(Budget(str(table), "add-remove", 1.01, 1e-6))
    process = FORK.Process(target=fit, args=(place, table, None, None, 2))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    ledger = Ledger(place)
    (session,), (standing,) = ledger.sessions(), ledger.standings()
    assert session.is_open
    assert len(session.charges) == 2
    assert standing.spent == session.charged()
    assert standing.reserved.mu_squared > 0
    assert ledger.verify().holds
    # what it reserved is not free before its owner says that it will not go on
    model = eigenveil.PrivatePCA(1, epsilon=0.5, ledger=place)
    with pytest.raises(BudgetExceeded) as caught:
        model.fit_rows(open_rows([table]))
    assert f"eigenveil ledger end {place} --study {session.key.study}" in caught.value.hint
    assert ledger.end_study(session.key.study) == 1
    assert ledger.standings()[0].spent == session.charged()
    model.fit_rows(open_rows([table]))
    with pytest.raises(BudgetExceeded):
        model.set_params(epsilon=1.0).fit_rows(open_rows([table]))
    assert ledger.standings()[0].spent.within(standing.caps)
