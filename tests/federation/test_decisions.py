"""Decisions of a site: who may make them, what they are worth, and what a forger tries."""

import json
import shlex
import sqlite3
import threading
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eigenveil.app.decisions import sentence_of
from eigenveil.errors import DataError, DecisionRefused, EigenveilError, OutputError
from eigenveil.federation.approvals import studies as approvals
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.approvals.documents import (
    EVERY_STUDY,
    Approver,
    ApproverList,
    BudgetDecision,
    Decision,
)
from eigenveil.federation.approvals.keys import make_key, open_key
from eigenveil.federation.approvals.record import STATES
from eigenveil.federation.approvals.roster import FIRST_OWNER
from eigenveil.federation.ledger.entries import (
    ApproversBody,
    BrokenChain,
    BudgetDecisionBody,
    DecisionBody,
    MembersBody,
    read_body,
)
from eigenveil.federation.ledger.heads import HeadsFile
from eigenveil.federation.ledger.ledger import Budget, Ledger, SessionKey
from eigenveil.federation.ledger.placing import capped
from eigenveil.federation.public_key import KeySigner
from eigenveil.federation.signed import Signed
from eigenveil.network.folder import PartyFolder, identity_of
from eigenveil.network.parties import note_members
from eigenveil.privacy.accountant import Loss
from federation_tools import make_federation, study_of

PASSWORD = "four words are enough"
STUDY = study_of()


@pytest.fixture
def parties(tmp_path):
    return make_federation(tmp_path / "parties")


@pytest.fixture
def party(parties):
    return parties["north"]


@pytest.fixture
def ledger(desk):
    return desk.ledger


@pytest.fixture
def desk(party, tmp_path):
    approvals.ask_owner(party, STUDY)
    made = Decisions(party, Ledger(tmp_path / "north.ledger", durable=False))
    made.set_budget(Budget("default", "add-remove", 5.0, 1e-6))
    return made


def sign_decision(decision, signer):
    return Signed[Decision].by(decision, signer)


def begin_run(ledger, study=STUDY, name=[0]):  # noqa: B006
    name[0] += 1
    key = SessionKey(study.hash, f"run-{name[0]}")
    ledger.begin(key, data_set="default", adjacency="add-remove", reserve=Loss(1e-3), state=b"")
    return key


def refused(code, call, *words, **fields):
    with pytest.raises(EigenveilError) as caught:
        call(*words, **fields)
    assert caught.value.code == code, caught.value
    return caught.value


def appointed(desk, party, name, role="approver"):
    signer = make_key(party.approver_keys / f"{name}.key", PASSWORD)
    assert desk.appoint(name, role, signer.public_key.text)
    return signer


# -- what an approval is worth


def test_one_approval_is_one_run(desk, ledger, party):
    assert desk.standing(STUDY.hash).waits
    found = desk.approve(STUDY.hash, purpose="quality of care")
    assert (found.approved, found.left, found.by) == (True, 1, (FIRST_OWNER,))
    assert approvals.waiting_study(party, STUDY.hash) is None
    begin_run(ledger)
    found = desk.standing(STUDY.hash)
    assert (found.state, found.used, found.left, found.waits) == ("used", 1, 0, True)
    assert not found.allows(None)
    assert found.allows(1)
    assert desk.approve(STUDY.hash, runs=2).left == 2  # counted from this approval on
    begin_run(ledger)
    assert desk.standing(STUDY.hash).left == 1
    assert ledger.verify().holds
    assert [each.decision.purpose for each in desk.history()] == ["quality of care", ""]


def test_until_a_date(desk, ledger):
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    found = desk.approve(STUDY.hash, runs=None, until=tomorrow)
    assert (found.approved, found.left, found.until) == (True, None, tomorrow)
    for _ in range(3):
        begin_run(ledger)
    record = desk.record(STUDY.hash)
    assert record.standing(STUDY.hash).used == 3
    late = record.standing(STUDY.hash, now=tomorrow + timedelta(seconds=1))
    assert (late.state, late.waits) == ("expired", True)
    refused(
        "approval-already-over",
        desk.approve,
        STUDY.hash,
        until=datetime.now(UTC) - timedelta(days=1),
    )
    refused("bad-decision", desk.approve, STUDY.hash, until=datetime(2030, 1, 1))
    refused("bad-decision", desk.approve, STUDY.hash, runs=0)


def test_refused_and_revoked(desk, party):
    found = desk.refuse(STUDY.hash, reason="no legal basis")
    assert (found.state, found.reason, found.tell_lead) == ("refused", "no legal basis", False)
    assert not found.waits
    assert approvals.waiting_study(party, STUDY.hash) is None
    refused("nothing-approved", desk.revoke, STUDY.hash)
    assert desk.approve(STUDY.hash).approved  # the owner may think better of it
    found = desk.revoke(STUDY.hash, reason="project ended")
    assert (found.state, found.allows(None), found.allows(3)) == ("revoked", False, False)


def test_a_later_approval_brings_no_revoked_run_back(desk, ledger):
    def begun():
        begin_run(ledger)
        return len(list(ledger.entries()))  # the last entry's number

    desk.approve(STUDY.hash, runs=2)
    old = begun()
    assert desk.standing(STUDY.hash).allows(old)
    desk.revoke(STUDY.hash, reason="project ended")
    assert not desk.standing(STUDY.hash).allows(old)
    desk.approve(STUDY.hash, runs=2)
    assert not desk.standing(STUDY.hash).allows(old)
    assert desk.standing(STUDY.hash).allows(begun())


def test_every_study_until_it_is_revoked_or_one_is_refused(desk, ledger):
    assert desk.allow_every_study().left is None
    entries = len(list(ledger.entries()))
    desk.allow_every_study()
    assert len(list(ledger.entries())) == entries  # recorded once
    found = desk.standing(STUDY.hash)
    assert (found.approved, found.every) == (True, True)
    other = study_of("other")
    approvals.keep(desk.party, other)
    desk.refuse(other.hash, reason="not this one")
    assert desk.standing(other.hash).state == "refused"
    assert desk.standing(STUDY.hash).approved
    desk.revoke(EVERY_STUDY)
    assert desk.standing(STUDY.hash).state == "waiting"
    refused("refusal-of-all-studies", desk.decide, "refuse", EVERY_STUDY)


def test_a_file_alone_admits_nothing(desk, party, ledger):
    approvals.keep(party, STUDY)
    assert desk.standing(STUDY.hash).state == "waiting"
    # nor does an approval that another party signed, in this very ledger
    assert ledger.verify().holds


def test_a_study_changed_between_view_and_approval_is_refused(desk, party):
    changed = study_of(epsilon=4.0)
    file = party.waiting / f"{STUDY.hash}.json"
    file.write_text(json.dumps(changed.model_dump(mode="json")))
    refused("approval-of-other-study", desk.approve, STUDY.hash)
    refused("no-study-with-hash", desk.approve, changed.hash)
    assert desk.history() == []


# -- for which rows, and whose


def test_an_approval_is_for_the_rows_that_were_there(desk, party, tmp_path):
    file, other = tmp_path / "rows.csv", tmp_path / "others.csv"
    file.write_text("a\n1\n")
    other.write_text("a\n2\n")
    of_file = Decisions(party, desk.ledger, rows=[file])
    key = SessionKey(STUDY.hash, "s")
    of_file.approve(STUDY.hash, runs=3)
    assert of_file.may_run(key)
    of_file.check_rows(STUDY.hash, [file])
    error = refused("other-rows", of_file.check_rows, STUDY.hash, [other])
    assert "--any-rows" in error.hint
    refused("other-rows", of_file.check_rows, STUDY.hash, [file, other])
    another = Decisions(party, desk.ledger, data_set="another")
    assert not another.may_run(key)
    refused("other-rows", another.check_rows, STUDY.hash, [file])
    file.write_text("a\n1\n2\n")
    refused("other-rows", of_file.check_rows, STUDY.hash, [file])
    of_file.approve(STUDY.hash, runs=3, any_rows=True)
    of_file.check_rows(STUDY.hash, [other])


def test_two_approvers_of_different_rows_did_not_agree(desk, party, tmp_path):
    ann, bob = (appointed(desk, party, each) for each in ("ann", "bob"))
    desk.set_needed(2)
    desk.approve(STUDY.hash, ann, by="ann")
    another = Decisions(party, desk.ledger, data_set="another")
    assert another.approve(STUDY.hash, bob, by="bob").state == "second"
    assert desk.approve(STUDY.hash, ann, by="ann").state == "second"
    assert desk.approve(STUDY.hash, bob, by="bob").approved


@pytest.mark.parametrize("charged", [False, True])
def test_a_budget_of_another_unit_is_refused_when_it_is_approved(desk, party, ledger, run, charged):
    """It was answered "approved", and the run ended in a riddle. The command works as printed."""
    study = study_of("persons", features=None, columns=list("abcd"), unit="patient id")
    if charged:
        desk.approve(STUDY.hash)
        begin_run(ledger)
    error = refused("account-does-not-count-so", desk.approve, study)
    assert "counts what each row loses" in error.message
    assert "protects each patient id" in error.message
    assert desk.standing(study.hash).state == "waiting"
    command = error.hint[error.hint.index("eigenveil ledger budget") :]
    status, _, err = run(*shlex.split(command)[1:])
    assert (status, err) == (0, "")
    named = "default by patient id" if charged else "default"
    assert Decisions(party, ledger, data_set=named).approve(study).approved


def test_an_older_list_of_members_than_the_ledger_knows(desk, party):
    """A folder that was restored from a backup does not know who was revoked since."""
    for _ in range(2):
        note_members(party.known, desk.ledger)
    assert [e.kind for e in desk.ledger.entries()].count("members") == 1
    number, digest = party.known.mark()
    desk.ledger.note_members(number + 1, "ab" * 32)
    refused("older-members", note_members, party.known, desk.ledger)
    with pytest.raises(BrokenChain, match="older list of members"):
        forged(desk.ledger, MembersBody(number=number, digest=digest))


# -- who decides


def test_two_persons(desk, party, ledger):
    refused("bad-approvers", desk.set_needed, 2)  # there is one
    ann, bob = (appointed(desk, party, each) for each in ("ann", "bob"))
    assert desk.set_needed(2)
    found = desk.approve(STUDY.hash, ann, by="ann", runs=5)
    assert (found.state, found.by, found.approved) == ("second", ("ann",), False)
    assert approvals.waiting_study(party, STUDY.hash) is not None  # the other one must see it
    assert desk.approve(STUDY.hash, ann, by="ann", runs=5).state == "second"  # not twice the same
    found = desk.approve(STUDY.hash, bob, by="bob", runs=3)
    assert (found.approved, found.by, found.runs) == (True, ("ann", "bob"), 3)  # the fewest
    assert desk.revoke(STUDY.hash, bob, by="bob").state == "revoked"  # one suffices
    refused("two-persons", desk.allow_every_study)
    assert ledger.verify().holds


# What stands of a study, or of every study: its state where nobody agreed to more, and where ann
# agreed to the next approval and bob is yet to.
OWN = {
    "nothing": ("waiting", "second"),
    "refused": ("refused", "second"),
    "revoked": ("revoked", "second"),
    "runs left": ("approved", "approved"),
    "runs used": ("used", "second"),
    "date passed": ("expired", "second"),
}
EVERY = {"nothing": "waiting", "revoked": "revoked", "runs left": "approved", "runs used": "used"}


def test_every_combination_of_decisions_has_its_state(desk, party, ledger):
    signers = {each: appointed(desk, party, each) for each in ("ann", "bob")}
    desk.set_needed(2)
    tomorrow = datetime.now(UTC) + timedelta(days=1)

    def decide(study, action="approve", names=("ann", "bob"), **fields):
        for name in names:
            desk.decide(action, study, signers[name], by=name, **fields)

    def stands(study, what):
        if what == "refused":
            decide(study, "refuse", names=("bob",), reason="no")
        elif what != "nothing":
            until = tomorrow if what == "date passed" else None
            decide(study, runs=None if until else 2 + (what == "runs left"), until=until)
        if what == "revoked":
            decide(study, "revoke", names=("bob",))

    studies = {(what, agreed): study_of(f"{what.split()[-1]}-{agreed}") for what in OWN
               for agreed in (False, True)}  # fmt: skip
    for (what, agreed), study in studies.items():
        stands(study.hash, what)
        begin_run(ledger, study)
        begin_run(ledger, study)
        if agreed:
            decide(study.hash, names=("ann",))
    later = tomorrow + timedelta(seconds=1)
    for every, of_every in EVERY.items():
        stands(EVERY_STUDY, every)
        for study in (studies["nothing", False], studies["nothing", True]) * 2:
            begin_run(ledger, study)
        record, seen = desk.record(), set()
        for (what, agreed), study in studies.items():
            case, found = (what, agreed, every), record.standing(study.hash, now=later)
            expected, granted = OWN[what][agreed], what not in ("nothing", "refused", "revoked")
            if what == "nothing" and every.startswith("runs"):  # there what is said of all counts
                expected, granted = OWN[every][agreed], True
                assert (found.before or found.state) == of_every, case
            assert found.state == expected, case
            assert found.allows(None) == (expected == "approved"), case
            begun = max(at for key, at in record.begun.items() if key.study == study.hash)
            assert found.allows(begun) == granted, case  # who agrees to more ends no run
            seen.add(found.state)
            assert sentence_of(found), case
        assert seen == STATES.keys() - ({"waiting"} if every.startswith("runs") else set())


def test_two_at_once(desk, party, ledger):
    signers = {each: appointed(desk, party, each) for each in ("ann", "bob", "eve")}
    desk.set_needed(2)
    start, problems = threading.Barrier(3), []

    def decide(name):
        start.wait()
        try:
            desk.approve(STUDY.hash, signers[name], by=name)
        except EigenveilError as error:
            problems.append(error)

    threads = [threading.Thread(target=decide, args=(name,)) for name in signers]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not problems
    found = desk.standing(STUDY.hash)
    assert found.approved
    assert len(found.by) == 2  # the third one begins another agreement
    assert len(desk.history()) == 3
    assert ledger.verify().holds


@pytest.mark.parametrize("role", ["viewer", "lead"])
def test_only_some_roles_decide(desk, party, role):
    signer = appointed(desk, party, "ann", role)
    error = refused("may-not-decide", desk.approve, STUDY.hash, signer, by="ann")
    assert role in error.message
    assert desk.history() == []


def test_an_approver_who_left(desk, party, ledger):
    signer = appointed(desk, party, "ann")
    assert desk.approve(STUDY.hash, signer, by="ann", runs=3).approved
    desk.dismiss("ann")
    assert desk.standing(STUDY.hash).approved  # what was decided stays decided
    refused("may-not-decide", desk.approve, STUDY.hash, signer, by="ann")
    refused("unknown-approver", desk.dismiss, "ann")
    refused("unknown-approver", desk.approve, STUDY.hash, signer, by="nobody")
    refused("bad-approvers", desk.dismiss, FIRST_OWNER)  # nobody would be left
    assert ledger.verify().holds
    signer = make_key(party.approver_keys / "ann-2.key", PASSWORD)
    desk.appoint("ann", "approver", signer.public_key.text)  # back again, with another key
    assert desk.approve(STUDY.hash, signer, by="ann").approved


def test_a_list_names_each_person_and_key_once(desk, party):
    signer = appointed(desk, party, "ann")
    refused("name-taken", desk.appoint, "ann", "viewer")
    refused("bad-decision", desk.appoint, "bob", "approver", signer.public_key.text)
    refused("bad-decision", desk.appoint, "bob", "approver")  # without a key
    refused("bad-decision", desk.appoint, "bob", "approver", "ed25519:" + "00" * 32)
    refused("bad-decision", desk.appoint, "a\x1b[2J", "viewer")


def test_a_party_with_a_new_key_decides_once_an_approver_put_it_into_the_list(
    desk, party, ledger, monkeypatch
):
    """The party's folder alone changes no list: whoever has it could be anybody."""
    ann, new = appointed(desk, party, "ann"), KeySigner.new()
    assert desk.approve(STUDY.hash, runs=None).approved
    former = party.signer_now
    monkeypatch.setattr(PartyFolder, "signer_now", new)
    refused("owner-key", desk.approve, STUDY.hash)
    refused("bad-signature", desk.renew, FIRST_OWNER, new.public_key.text, signer=new)
    assert desk.renew(FIRST_OWNER, new.public_key.text, signer=ann, by="ann")
    assert desk.approve(STUDY.hash, new, runs=None).approved
    refused("bad-signature", desk.approve, STUDY.hash, former)
    refused("bad-signature", desk.dismiss, "ann", signer=former)
    refused("unknown-approver", desk.renew, "nobody", new.public_key.text, signer=new)
    assert ledger.verify().holds


def test_a_list_is_changed_by_as_many_as_the_rule_asks(desk, party, ledger):
    ann, bob = (appointed(desk, party, each) for each in ("ann", "bob"))
    eve = KeySigner.new()
    assert desk.set_needed(2)
    before = desk.approvers()
    assert not desk.appoint("eve", "approver", eve.public_key.text, signer=ann, by="ann")
    assert not desk.set_needed(1, signer=bob, by="bob")  # another change: no agreement
    assert desk.approvers() == before
    assert [[each.name for each in agreed] for _, agreed in desk.proposed()] == [["ann"], ["bob"]]
    assert not desk.agree(bob, by="bob")  # not twice the same
    refused("bad-signature", desk.agree, eve, by="eve")
    assert ledger.verify().holds
    assert desk.agree(ann, by="ann")
    assert desk.approvers().needed == 1
    assert desk.proposed() == []  # eve's is no next one any more
    refused("nothing-waits", desk.agree)
    assert ledger.verify().holds


def test_an_approver_who_lost_the_password(desk, party, ledger):
    old = appointed(desk, party, "ann")
    assert desk.approve(STUDY.hash, old, by="ann").approved
    new = make_key(party.approver_keys / "ann.key", PASSWORD, overwrite=True)
    desk.renew("ann", new.public_key.text)
    refused("bad-signature", desk.approve, STUDY.hash, old, by="ann")
    assert desk.approve(STUDY.hash, new, by="ann").approved
    assert ledger.verify().holds


# -- forgeries


def test_replayed(desk, ledger):
    signed = sign_decision(
        desk.draft("approve", STUDY.hash, by=FIRST_OWNER), identity_of(desk.party).signer
    )
    desk.add(signed)
    refused("replayed-decision", desk.add, signed)
    begin_run(ledger)
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
    before = ledger.verify()
    assert before.holds
    with ledger.store.writing() as writer:
        for body in bodies:
            writer.append(body)
    found, path = ledger.verify(), Path(ledger.name)
    try:
        assert not found.holds
        assert found.wrong > before.entries
        begin_run(ledger)
    finally:
        restore(path, before.entries)


def restore(path, count):
    with sqlite3.connect(path) as file:
        for name in ("update", "delete"):
            file.execute(f"DROP TRIGGER IF EXISTS ledger_entries_no_{name}")
        file.execute("DELETE FROM ledger_entries WHERE number > ?", (count,))
        last = file.execute("SELECT hash FROM ledger_entries WHERE number = ?", (count,)).fetchone()
        file.execute("UPDATE ledger_head SET count = ?, hash = ?", (count, *last))
    file.close()


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
        made = theirs._made(BudgetDecision, {**asdict(more), "by": FIRST_OWNER})
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
    planted = desk._first_list(ledger.mark())
    mine = [planted.approvers[0].model_copy(update={"public_key": stranger.public_key.text})]
    planted = planted.model_copy(update={"approvers": tuple(mine)})
    body = ApproversBody(signed=Signed[ApproverList].by(planted, stranger))
    ledger.add(lambda _: [body])
    assert "never signed by" in refused("approvers-not-signed", desk.begin).message
    key = desk.party.signer_now.public_key.text  # as where the site's keys were lost
    assert desk.renew(FIRST_OWNER, key, signer=stranger)
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
    appointed(other, party, "mallory")
    signed = read_body(list(other.ledger.entries())[-1]).signed
    if not change.startswith("another ledger"):
        own = {"ledger": desk.ledger.mark()}
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
    other.add(lambda _: [first])
    found = other.verify()
    assert (found.holds, found.wrong) == (False, 1)
    assert "made for another ledger" in found.explanation


def test_names_are_printed_with_federation_and_key(desk, party):
    ann = appointed(desk, party, "ann")
    desk.set_budget(Budget("default", "add-remove", 6.0, 1e-6), ann, by="ann")
    said = desk.ledger.verify().explanation
    assert f"north, federation {party.origin[:16]}" in said
    assert f"ann (key {ann.public_key.fingerprint[:16]})" in said
    (change,) = desk.record().budgets[-1].signed
    assert str(change) == f"ann (key {ann.public_key.fingerprint[:16]})"


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
    ann = appointed(desk, party, "ann")
    signed = sign_decision(desk.draft("approve", STUDY.hash, by="ann"), ann)
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


# -- keys


def test_keys_under_a_password(tmp_path):
    made = make_key(tmp_path / "keys" / "ann.key", PASSWORD)
    assert (tmp_path / "keys" / "ann.key").stat().st_mode & 0o77 == 0
    assert open_key(tmp_path / "keys" / "ann.key", PASSWORD).public_key == made.public_key
    with pytest.raises(DecisionRefused, match="password is wrong"):
        open_key(tmp_path / "keys" / "ann.key", "another password")
    with pytest.raises(DataError, match="fewer than 12"):
        make_key(tmp_path / "b.key", "short")
    with pytest.raises(OutputError, match="exists"):
        make_key(tmp_path / "keys" / "ann.key", PASSWORD)
    (tmp_path / "c.key").write_text("no key")
    refused("not-an-approvers-key", open_key, tmp_path / "c.key", PASSWORD)
    refused("cannot-read-key", open_key, tmp_path / "d.key", PASSWORD)


def test_many_decisions_are_read_quickly(desk):
    for number in range(10):
        desk.approve(STUDY.hash, runs=number + 1)
    assert desk.standing(STUDY.hash).runs == 10
    assert len(desk.history()) == 10
