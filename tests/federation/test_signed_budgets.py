"""Budgets of a site that has approvers: signed by them, and nobody else sets one."""

from dataclasses import replace

import pytest

from eigenveil.errors import EigenveilError
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.approvals.keys import make_key
from eigenveil.federation.ledger.entries import BudgetDecisionBody, SessionKey
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.federation.ledger.placing import capped
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.elsewhere import Elsewhere
from federation_tools import make_federation

PASSWORD = "four words are enough"
FIRST = Budget("default", "add-remove", 1.0, 1e-6)
MORE, MOST = replace(FIRST, epsilon=2.0), replace(FIRST, epsilon=9.0)


@pytest.fixture
def desk(tmp_path):
    party = make_federation(tmp_path / "parties")["north"]
    made = Decisions(party, Ledger(tmp_path / "north.ledger", durable=False))
    assert made.set_budget(FIRST)
    return made


@pytest.fixture
def ledger(desk):
    return desk.ledger


@pytest.fixture
def ann(desk):
    return appointed(desk, "ann")


def appointed(desk, name, role="approver"):
    signer = make_key(desk.party.approver_keys / f"{name}.key", PASSWORD)
    desk.appoint(name, role, signer.public_key.text)
    return signer


def refused(code, call, *words, **fields):
    with pytest.raises(EigenveilError) as caught:
        call(*words, **fields)
    assert caught.value.code == code, caught.value


def signers(ledger):
    return [tuple(by.name for by in each.signed) for each in ledger.record().budgets]


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
    viewer = make_key(desk.party.approver_keys / "v.key", PASSWORD)
    refused("bad-signature", desk.set_budget, MORE, viewer, by="ann")
    refused("unknown-approver", desk.set_budget, MORE, ann, by="bob")
    refused("bad-epsilon", desk.set_budget, replace(MORE, epsilon=-1.0), ann, by="ann")
    assert len(list(ledger.entries())) == entries
    assert ledger.budget("default") == FIRST
    kept = replace(MORE, delta_elsewhere=5e-7)
    assert desk.set_budget(kept, ann, by="ann")
    assert ledger.budget("default") == kept
    assert desk.set_budget(MORE, ann, by="ann", reason="a year later")
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
    assert not desk.set_budget(MORE, ann, by="ann")
    assert not desk.set_budget(MORE, ann, by="ann")  # not twice the same
    assert not desk.set_budget(MOST, bob, by="bob")  # another budget
    assert ledger.budget("default") == FIRST
    assert len(desk.record().waiting) == 3
    assert desk.set_budget(MORE, bob, by="bob")
    assert ledger.budget("default") == MORE
    assert signers(ledger)[-1] == ("ann", "bob")
    assert desk.record().waiting == []
    assert not desk.set_budget(MOST, ann, by="ann")  # bob's agreement before was about that time
    assert ledger.verify().holds


@pytest.mark.parametrize("forged", ["unsigned", "one of two", "another's signature"])
def test_a_budget_that_was_slipped_in_does_not_hold(desk, ledger, ann, forged):
    """As whoever can write the ledger's file would: the chain itself is whole."""
    if forged == "one of two":
        appointed(desk, "bob")
        desk.set_needed(2)
        desk.set_budget(MOST, ann, by="ann")

    slipped_in = []
    if forged == "another's signature":
        desk.set_budget(MORE, ann, by="ann")
        signed = [e for e in ledger.entries() if e.kind == "budget-decision"][-1].body["signed"]
        changed = signed | {"said": signed["said"] | {"epsilon": MOST.epsilon}}
        slipped_in.append(BudgetDecisionBody.model_validate({"signed": changed}))
    ledger.add(lambda books: [*slipped_in, capped(MOST, books)])
    found = ledger.verify()
    assert not found.holds
    assert "does not hold" in found.explanation
    words = {"data_set": "default", "adjacency": "add-remove", "reserve": Loss(1e-3), "state": b""}
    refused("chain-broken", ledger.begin, SessionKey("ab" * 32, "run"), **words)  # nor is it used


def test_a_session_after_a_signed_budget(desk, ledger, ann):
    """Caps that are divided anew are no other budget."""
    assert desk.set_budget(MORE, ann, by="ann")
    key = SessionKey("ab" * 32, "run")
    for each, reserve in ((key, Loss(1e-3)), (key._replace(session="b"), Loss(pure=0.1))):
        ledger.begin(each, data_set="default", adjacency="add-remove", reserve=reserve, state=b"")
    ledger.charge_elsewhere("default", Elsewhere.stated(epsilon=0.1, adjacency="add-remove"))
    assert ledger.verify().holds
