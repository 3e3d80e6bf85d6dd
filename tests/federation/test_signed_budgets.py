"""Budgets of a site that has approvers: signed by them, and nobody else sets one."""

from dataclasses import replace

import pytest

from eigenveil.federation.approvals.roster import Decider
from eigenveil.federation.ledger.entries import BudgetDecisionBody, SessionKey
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.federation.ledger.placing import capped
from eigenveil.federation.public_key import KeySigner
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.elsewhere import Elsewhere
from ledger_tools import appointed, begin, record_of, refused, slip_in

FIRST = Budget("default", "add-remove", 5.0, 1e-6)
MORE, MOST = replace(FIRST, epsilon=7.0), replace(FIRST, epsilon=9.0)


@pytest.fixture
def ann(desk):
    return appointed(desk, "ann")


def signers(ledger):
    return [tuple(by.name for by in each.signed) for each in record_of(ledger).budgets]


def test_a_ledger_of_a_table_says_that_it_has_no_approvers(tmp_path):
    ledger = Ledger(tmp_path / "table.ledger", durable=False)
    ledger.set_budget(FIRST)
    ledger.set_budget(MORE)
    assert signers(ledger) == [(), ()]
    assert "unsigned: it has no approvers" in ledger.verify().explanation


def test_an_approver_signs(desk, ledger, ann):
    entries = len(list(ledger.entries()))
    refused("budget-unsigned", ledger.set_budget, MORE)
    refused("budget-unsigned", ledger.set_budget, replace(FIRST, data_set="another"))
    refused("budget-unsigned", Ledger(ledger.name, budget=replace(MORE, data_set="x")).__enter__)
    refused("bad-signature", desk.set_budget, MORE, Decider("ann", KeySigner.new()))
    refused("unknown-approver", desk.set_budget, MORE, Decider("bob", ann.signer))
    refused("bad-epsilon", desk.set_budget, replace(MORE, epsilon=-1.0), ann)
    assert len(list(ledger.entries())) == entries
    assert ledger.budget("default") == FIRST
    kept = replace(MORE, delta_elsewhere=5e-7)
    assert desk.set_budget(kept, ann)
    assert ledger.budget("default") == kept
    assert desk.set_budget(MORE, ann, reason="a year later")
    assert desk.set_budget(MOST)  # the owner, with the site's key
    assert ledger.budget("default") == MOST
    assert signers(ledger) == [("owner",), ("ann",), ("ann",), ("owner",)]
    found = ledger.verify()
    assert found.holds
    assert "Every budget is signed by approvers of north" in found.explanation


def test_the_first_signature_makes_the_list(desk, ledger):
    assert [e.kind for e in ledger.entries()] == ["approvers", "budget-decision", "budget"]
    refused("budget-unsigned", ledger.set_budget, MOST)


def test_two_persons(desk, ledger, ann):
    bob = appointed(desk, "bob")
    desk.set_needed(2)
    assert not desk.set_budget(MORE, ann)
    assert not desk.set_budget(MORE, ann)  # not twice the same
    assert not desk.set_budget(MOST, bob)  # another budget
    assert ledger.budget("default") == FIRST
    assert len(desk.record().waiting) == 3
    assert desk.set_budget(MORE, bob)
    assert ledger.budget("default") == MORE
    assert signers(ledger)[-1] == ("ann", "bob")
    assert desk.record().waiting == []
    assert not desk.set_budget(MOST, ann)  # bob's agreement before was about that time
    assert ledger.verify().holds


@pytest.mark.parametrize("forged", ["unsigned", "one of two", "another's signature"])
def test_a_budget_that_was_slipped_in_does_not_hold(desk, ledger, ann, forged):
    """As whoever can write the ledger's file would: the chain itself is whole."""
    if forged == "one of two":
        appointed(desk, "bob")
        desk.set_needed(2)
        desk.set_budget(MOST, ann)

    slipped_in = []
    if forged == "another's signature":
        desk.set_budget(MORE, ann)
        signed = [e for e in ledger.entries() if e.kind == "budget-decision"][-1].body["signed"]
        changed = signed | {"said": signed["said"] | {"epsilon": MOST.epsilon}}
        slipped_in.append(BudgetDecisionBody.model_validate({"signed": changed}))
    slip_in(ledger, *slipped_in, capped(MOST, ledger.books()))
    found = ledger.verify()
    assert not found.holds
    assert "does not hold" in found.explanation
    key = SessionKey("ab" * 32, "run")
    refused("chain-broken", begin, ledger, key, Loss(1e-3), data_set="default")  # nor is it used


def test_a_session_after_a_signed_budget(desk, ledger, ann):
    """Caps that are divided anew are no other budget."""
    assert desk.set_budget(MORE, ann)
    key = SessionKey("ab" * 32, "run")
    for each, reserve in ((key, Loss(1e-3)), (key._replace(session="b"), Loss(pure=0.1))):
        begin(ledger, each, reserve, data_set="default")
    ledger.charge_elsewhere("default", Elsewhere.stated(epsilon=0.1, adjacency="add-remove"))
    assert ledger.verify().holds
