"""What forgers of decisions try: strangers, replays, and whoever writes the ledger's file."""

import sqlite3
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eigenveil.errors import DecisionRefused
from eigenveil.federation.approvals import studies as approvals
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.approvals.documents import (
    Approver,
    ApproverList,
    BudgetDecision,
    Decision,
)
from eigenveil.federation.approvals.roster import FIRST_OWNER, Decider
from eigenveil.federation.ledger.entries import (
    ApproversBody,
    BrokenChain,
    BudgetDecisionBody,
    DecisionBody,
    MembersBody,
    read_body,
)
from eigenveil.federation.ledger.heads import HeadsFile
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.federation.ledger.placing import capped
from eigenveil.federation.public_key import KeySigner
from eigenveil.federation.signed import Signed
from eigenveil.network.folder import identity_of
from federation_tools import make_federation, study_of
from ledger_tools import appointed, begin_run, refused, slip_in

STUDY = study_of()


@pytest.fixture
def desk(desk, party):
    approvals.ask_owner(party, STUDY)
    return desk


def sign_decision(decision, signer):
    return Signed[Decision].by(decision, signer)


def test_replayed(desk, ledger):
    signed = sign_decision(
        desk.draft("approve", STUDY.hash, by=FIRST_OWNER), identity_of(desk.party).signer
    )
    desk.add(signed)
    refused("replayed-decision", desk.add, signed)
    begin_run(ledger, STUDY)
    refused("replayed-decision", desk.add, signed)
    assert desk.standing(STUDY.hash).state == "used"


@pytest.fixture(params=["another site of the federation", "a stranger's own federation"])
def stranger(request, parties, tmp_path):
    """Whoever has a folder of their own; the second is called as this site is."""
    if request.param.startswith("another"):
        return parties["south"]
    return make_federation(tmp_path / "strangers")["north"]


def test_a_strangers_folder_decides_nothing_here(desk, stranger, tmp_path):
    """A stranger's self-made approvers, named as ours, signed budgets and studies (L1)."""
    theirs = Decisions(stranger, desk.ledger)
    entries, more = len(list(desk.ledger.entries())), Budget("default", "add-remove", 90.0, 1e-6)
    refused("folder-of-other-site", theirs.begin)
    refused("folder-of-other-site", theirs.set_budget, more)
    refused("folder-of-other-site", theirs.approve, STUDY)
    refused("folder-of-other-site", theirs.appoint, "me", "viewer")
    own = Decisions(stranger, Ledger(tmp_path / "own.ledger"))
    own.approve(STUDY)
    taken = own.ledger.entries()
    with pytest.raises(DecisionRefused, match=r"is of|made for"):
        desk.add(own.record().decisions[0].signed)
    assert len(list(desk.ledger.entries())) == entries
    # and who also writes the ledger's file: the chain is whole, but use and verify refuse it
    bodies = [read_body(e) for e in taken if e.kind in ("approvers", "decision")]
    for body in bodies:
        with pytest.raises(BrokenChain):
            forged(desk.ledger, body)


def forged(ledger, *bodies):
    """As whoever writes the ledger's file: entries under a chain that holds; raise as use does."""
    before, path = ledger.verify(), Path(ledger.name)
    assert before.holds
    whole = path.read_bytes()
    try:
        slip_in(ledger, *bodies)
        found = ledger.verify()
        assert not found.holds
        assert found.wrong > before.entries
        begin_run(ledger, STUDY)
    finally:
        path.write_bytes(whole)


def test_a_stranger_who_writes_the_file_signs_a_budget(desk, party, stranger):
    """The list inserted, too, with approvers named as ours and, once, this ledger's identifier."""
    ours, mine = desk.approvers(), KeySigner.new()
    more = Budget("default", "add-remove", 90.0, 1e-6)
    theirs = Decisions(stranger, desk.ledger)
    fields = ours.model_dump() | {"approvers": [ours.approvers[0].model_dump()]}
    fields["approvers"][0]["public_key"] = mine.public_key.text
    lists = [
        ApproverList.model_validate(fields | {"number": number, **place})
        for number in (1, ours.number + 1)
        for place in ({}, {"site": stranger.name, "federation": stranger.origin})
    ]
    for listed in lists:
        body = ApproversBody(signed=Signed[ApproverList].by(listed, mine))
        made = theirs._now_and_once(BudgetDecision, {**asdict(more), "by": FIRST_OWNER})
        budget = BudgetDecisionBody(signed=Signed[BudgetDecision].by(made, mine))
        with pytest.raises(BrokenChain):
            forged(desk.ledger, body, budget, capped(more, desk.ledger.books()))
    assert desk.ledger.verify().holds


def test_a_ledger_begun_without_approvers_gets_none(party, tmp_path):
    """Neither by the site nor by who writes the file: both look the same in it."""
    ledger = Ledger(tmp_path / "plain.ledger", durable=False)
    ledger.set_budget(Budget("default", "add-remove", 5.0, 1e-6))
    desk = Decisions(party, ledger)
    for call in (desk.begin, desk.allow_every_study):
        error = refused("no-approvers", call)
        assert "a ledger of its own" in error.hint
    other = Decisions(party, Ledger(tmp_path / "other.ledger"))
    other.begin()
    body = read_body(next(other.ledger.entries()))
    with pytest.raises(BrokenChain, match="first entry"):
        forged(ledger, body)
    assert "it has no approvers" in ledger.verify().explanation


def test_a_ledger_that_somebody_else_began_is_not_the_sites(party, tmp_path):
    """Whatever site and federation its list names: another's key, or the site's, has signed it."""
    ledger, stranger = Ledger(tmp_path / "planted.ledger"), KeySigner.new()
    desk = Decisions(party, ledger)
    planted = desk._first_list(ledger.store.mark())
    mine = [planted.approvers[0].model_copy(update={"public_key": stranger.public_key.text})]
    planted = planted.model_copy(update={"approvers": tuple(mine)})
    body = ApproversBody(signed=Signed[ApproverList].by(planted, stranger))
    slip_in(ledger, body)
    assert "never signed by" in refused("approvers-not-signed", desk.begin).message
    key = desk.party.signer_now.public_key.text  # as where the site's keys were lost
    assert desk.renew(FIRST_OWNER, key, by=Decider(signer=stranger))
    refused("approvers-not-signed", desk.begin)
    assert desk.set_needed(1)
    desk.begin()
    own = Decisions(party, Ledger(tmp_path / "own.ledger"))
    own.begin()
    own.begin()


@pytest.mark.parametrize("change", ["another ledger's", "another site's", "another number"])
def test_a_list_of_another_place_by_the_approvers_themselves(desk, party, tmp_path, change):
    """Such as one taken from another ledger of theirs, where somebody else decides as well."""
    other = Decisions(party, Ledger(tmp_path / "other.ledger"))
    appointed(other, "mallory")
    signed = read_body(list(other.ledger.entries())[-1]).signed
    if not change.startswith("another ledger"):
        own = {"ledger": desk.ledger.store.mark()}
        fields = own | ({"site": "south"} if change.endswith("site's") else {"number": 7})
        said = ApproverList.model_validate(signed.said.model_dump() | fields)
        signed = Signed[ApproverList].by(said, identity_of(party).signer)
    with pytest.raises(BrokenChain, match="list of approvers is refused"):
        forged(desk.ledger, ApproversBody(signed=signed))
    assert desk.approvers().called("mallory") is None


def test_a_list_with_the_approvers_key_and_no_signature_of_it(desk, party):
    listed = desk.approvers()
    new = listed.model_copy(update={"number": listed.number + 1, "needed": 1})
    signed = Signed[ApproverList](said=new, signatures={listed.approvers[0].public_key: "00" * 64})
    with pytest.raises(BrokenChain, match="a signature does not hold"):
        forged(desk.ledger, ApproversBody(signed=signed))


def test_the_first_list_of_another_ledger(desk, tmp_path):
    """Its approvers would decide in a ledger that they never saw."""
    first = read_body(next(iter(desk.ledger.entries())))
    other = Ledger(tmp_path / "other.ledger", heads=None)
    slip_in(other, first, make=True)
    found = other.verify()
    assert (found.holds, found.wrong) == (False, 1)
    assert "made for another ledger" in found.explanation


def test_names_are_printed_with_federation_and_key(desk, party):
    ann = appointed(desk, "ann")
    desk.set_budget(Budget("default", "add-remove", 6.0, 1e-6), ann)
    said = desk.ledger.verify().explanation
    assert f"north, federation {party.origin[:16]}" in said
    assert f"ann (key {ann.signer.public_key.fingerprint[:16]})" in said
    (change,) = desk.record().budgets[-1].signed
    assert str(change) == f"ann (key {ann.signer.public_key.fingerprint[:16]})"


def test_of_another_ledger_site_or_clock(desk, party, tmp_path):
    elsewhere = Decisions(party, Ledger(tmp_path / "other.ledger"))
    signer = identity_of(party).signer
    signed = sign_decision(elsewhere.draft("approve", STUDY.hash, by=FIRST_OWNER), signer)
    refused("other-place", desk.add, signed)
    own = desk.draft("approve", STUDY.hash, by=FIRST_OWNER)
    for by in (timedelta(hours=-1), timedelta(hours=1)):
        late = own.model_copy(update={"time": own.time + by})
        refused("clock-off", desk.add, sign_decision(late, signer))
    assert desk.history() == []


@pytest.mark.parametrize("change", ["purpose", "runs", "study", "signature", "by"])
def test_changed_after_it_was_signed(desk, party, change):
    ann = appointed(desk, "ann")
    signed = sign_decision(desk.draft("approve", STUDY.hash, by="ann"), ann.signer)
    other = {
        "purpose": "everything",
        "runs": 1000,
        "study": study_of("other").hash,
        "by": FIRST_OWNER,
    }
    if change == "signature":
        forged = signed.model_copy(
            update={"signatures": dict.fromkeys(signed.signatures, "00" * 64)}
        )
    else:
        new = signed.said.model_copy(update={change: other[change]})
        forged = signed.model_copy(update={"said": new})
    refused("bad-signature", desk.add, forged)
    assert desk.history() == []


def test_a_stranger_appended_to_the_ledger(desk, party, tmp_path):
    """Whoever writes the ledger alone: the chain is made anew, but no signature can be."""
    desk.approve(STUDY.hash)
    stranger, other = KeySigner.new(), study_of("mine").hash
    draft = desk.draft("approve", other, by=FIRST_OWNER, data_set="default")
    with pytest.raises(BrokenChain, match="not signed by the key"):
        forged(desk.ledger, DecisionBody(signed=sign_decision(draft, stranger)))
    both = sign_decision(draft, stranger).also(identity_of(party).signer)
    refused("bad-signature", desk.add, both)
    listed = desk.approvers()
    mine = Approver(
        name="me", role="owner", public_key=stranger.public_key.text, since=datetime.now(UTC)
    )
    new = listed.model_copy(
        update={"number": listed.number + 1, "approvers": (*listed.approvers, mine)}
    )
    with pytest.raises(BrokenChain, match="another key than those"):
        forged(desk.ledger, ApproversBody(signed=Signed[ApproverList].by(new, stranger)))
    assert desk.approvers() == listed
    assert desk.standing(other).state == "waiting"


def test_a_cut_tail_with_a_revocation_is_noticed(desk, party, tmp_path):
    """The signed entries that are left all hold: only a head elsewhere tells that one is gone."""
    heads = HeadsFile(tmp_path / "elsewhere" / "heads")
    (tmp_path / "elsewhere").mkdir()
    place = tmp_path / "cut.ledger"
    own = Decisions(party, Ledger(place, heads=heads))
    own.approve(STUDY.hash, runs=None)
    own.revoke(STUDY.hash)
    assert own.ledger.verify().holds
    with sqlite3.connect(place) as file:
        file.execute("DROP TRIGGER ledger_entries_no_DELETE")
        ((number, previous),) = file.execute(
            "SELECT number, previous FROM ledger_entries ORDER BY number DESC LIMIT 1"
        )
        file.execute("DELETE FROM ledger_entries WHERE number = ?", (number,))
        file.execute("UPDATE ledger_head SET count = ?, hash = ?", (number - 1, previous))
    assert Ledger(place, heads=None).verify().holds  # by itself it does
    assert not own.ledger.verify().holds
    refused("heads-differ", own.approve, STUDY.hash)


def test_an_older_list_of_members_than_the_ledger_knows(desk, party):
    """A folder that was restored from a backup does not know who was revoked since."""
    known, note = party.known, desk.ledger.note_members
    number, digest = known.mark()
    for _ in range(2):
        note(number, digest, known.not_before)
    assert [e.kind for e in desk.ledger.entries()].count("members") == 1
    note(number + 1, "ab" * 32, known.not_before)
    refused("older-members", note, number, digest, known.not_before)
    with pytest.raises(BrokenChain, match="older list of members"):
        forged(desk.ledger, MembersBody(number=number, digest=digest))
