"""Ledgers whose chain is whole and whose sums are not: ``verify`` counts again.

Whoever can write the file can write any entry after the others, with its hash.
"""

from dataclasses import asdict, replace

import pytest

from eigenveil.federation.ledger.books import Books
from eigenveil.federation.ledger.entries import BeginBody, ChargeBody
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.ledger.placing import capped
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.elsewhere import Elsewhere
from ledger_tools import (
    ADJACENCY,
    ROWS,
    begin,
    budget_of,
    commit,
    key_of,
    loss_of,
    release,
    slip_in,
)

KINDS = {
    "gaussian": budget_of(1.0),
    "pure": budget_of(1.0, delta=0.0),
    "both": replace(budget_of(1.0), pure_epsilon=0.25),
    "work elsewhere": replace(budget_of(1.0), delta_elsewhere=1e-7),
    "more than 40": budget_of(100.0),
    "closed": budget_of(0.0),
}


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "north.ledger", durable=False)


def explained(ledger):
    found = ledger.verify()
    assert not found.holds
    return found.explanation


@pytest.mark.parametrize("budget", KINDS.values(), ids=KINDS)
def test_caps_that_a_budget_allows(budget, ledger):
    for each in (budget, budget_of(0.0), budget):
        ledger.set_budget(each)
    assert ledger.verify().holds


@pytest.mark.parametrize("part", asdict(Loss()))
@pytest.mark.parametrize("budget", KINDS.values(), ids=KINDS)
def test_caps_that_no_budget_allows(budget, part, ledger):
    body = capped(budget, Books())
    more = max(2e-9, 1.001 * getattr(body.caps, part))
    forged = body.model_copy(update={"caps": replace(body.caps, **{part: more})})
    slip_in(ledger, forged, make=True)
    assert "Entry 1 gives an account more than its budget allows" in explained(ledger)


def begun(reserve, session="late"):
    key = key_of(session)
    return BeginBody(
        study=key.study, session=key.session, data_set=ROWS, unit="row", adjacency=ADJACENCY,
        reserve=reserve, counted=ADJACENCY, taken=reserve, pure_as_gaussian=False,
        state="0" * 64, note="",
    )  # fmt: skip


def test_a_session_that_there_is_no_room_for(ledger):
    ledger.set_budget(budget_of(1.0))
    begin(ledger, key_of(), Loss(mu_squared=0.04))
    assert ledger.verify().holds
    slip_in(ledger, begun(Loss(mu_squared=ledger.standings()[0].caps.mu_squared)))
    assert "Entry 3 begins a session that its account has no room for" in explained(ledger)


def test_charges_beyond_a_reservation(ledger):
    ledger.set_budget(budget_of(1.0))
    one = release(0.05)
    begin(ledger, key_of(), loss_of(one))
    commit(ledger, key_of(), charges=(one,))
    assert ledger.verify().holds
    more = ChargeBody(
        study=key_of().study, session=key_of().session, step="round 2", request="0" * 64,
        reply="0" * 64, state=None, releases=(one,),
    )  # fmt: skip
    slip_in(ledger, more)
    assert "Entry 2 begins a session that was charged more than it reserved" in explained(ledger)


def test_what_was_charged_before_a_budget_was_lowered_stays(ledger):
    ledger.set_budget(budget_of(1.0))
    one = release(0.1)
    begin(ledger, key_of(), loss_of(one))
    commit(ledger, key_of(), charges=(one,))
    ledger.end(key_of(), "finished")
    ledger.charge_elsewhere(ROWS, Elsewhere.stated(epsilon=0.01, adjacency=ADJACENCY))
    for epsilon in (0.01, 0.0):
        ledger.set_budget(budget_of(epsilon))
        assert ledger.verify().holds
