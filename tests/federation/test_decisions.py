"""Decisions of a site: who may make them, what they are worth, and what a forger tries."""

import json
import shlex
import threading
from datetime import UTC, datetime, timedelta

import pytest

from eigenveil.app.decisions import sentence_of
from eigenveil.errors import EigenveilError
from eigenveil.federation.approvals import studies as approvals
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.approvals.documents import EVERY_STUDY, Decision
from eigenveil.federation.approvals.keys import make_key, open_key
from eigenveil.federation.approvals.record import STATES
from eigenveil.federation.approvals.roster import FIRST_OWNER, Decider
from eigenveil.federation.ledger.ledger import SessionKey
from eigenveil.federation.public_key import KeySigner
from eigenveil.federation.signed import Signed
from eigenveil.network.folder import PartyFolder
from federation_tools import study_of
from ledger_tools import appointed, begin_run, refused

STUDY = study_of()


@pytest.fixture
def desk(desk, party):
    approvals.ask_owner(party, STUDY)
    return desk


def sign_decision(decision, signer):
    return Signed[Decision].by(decision, signer)


# -- what an approval is worth


def test_one_approval_is_one_run(desk, ledger, party):
    assert desk.standing(STUDY.hash).waits
    found = desk.approve(STUDY.hash, purpose="quality of care")
    assert (found.approved, found.left, found.by) == (True, 1, (FIRST_OWNER,))
    assert approvals.waiting_study(party, STUDY.hash) is None
    begin_run(ledger, STUDY)
    found = desk.standing(STUDY.hash)
    assert (found.state, found.used, found.left, found.waits) == ("used", 1, 0, True)
    assert not found.allows(None)
    assert found.allows(1)
    assert desk.approve(STUDY.hash, runs=2).left == 2  # counted from this approval on
    begin_run(ledger, STUDY)
    assert desk.standing(STUDY.hash).left == 1
    assert ledger.verify().holds
    assert [each.decision.purpose for each in desk.history()] == ["quality of care", ""]


def test_until_a_date(desk, ledger):
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    found = desk.approve(STUDY.hash, runs=None, until=tomorrow)
    assert (found.approved, found.left, found.until) == (True, None, tomorrow)
    for _ in range(3):
        begin_run(ledger, STUDY)
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
        begin_run(ledger, STUDY)
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


def test_a_file_alone_admits_nothing(desk, party):
    approvals.keep(party, STUDY)
    assert desk.standing(STUDY.hash).state == "waiting"


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
    ann, bob = (appointed(desk, each) for each in ("ann", "bob"))
    desk.set_needed(2)
    desk.approve(STUDY.hash, ann)
    another = Decisions(party, desk.ledger, data_set="another")
    assert another.approve(STUDY.hash, bob).state == "second"
    assert desk.approve(STUDY.hash, ann).state == "second"
    assert desk.approve(STUDY.hash, bob).approved


@pytest.mark.parametrize("charged", [False, True])
def test_a_budget_of_another_unit_is_refused_when_it_is_approved(desk, party, ledger, run, charged):
    """It was answered "approved", and the run ended in a riddle. The command works as printed."""
    study = study_of("persons", features=None, columns=list("abcd"), unit="patient id")
    if charged:
        desk.approve(STUDY.hash)
        begin_run(ledger, STUDY)
    error = refused("account-does-not-count-so", desk.approve, study)
    assert "counts what each row loses" in error.message
    assert "protects each patient id" in error.message
    assert desk.standing(study.hash).state == "waiting"
    command = error.hint[error.hint.index("eigenveil ledger budget") :]
    status, _, err = run(*shlex.split(command)[1:])
    assert (status, err) == (0, "")
    named = "default by patient id" if charged else "default"
    assert Decisions(party, ledger, data_set=named).approve(study).approved


# -- who decides


def test_two_persons(desk, party, ledger):
    refused("bad-approvers", desk.set_needed, 2)  # there is one
    ann, bob = (appointed(desk, each) for each in ("ann", "bob"))
    assert desk.set_needed(2)
    found = desk.approve(STUDY.hash, ann, runs=5)
    assert (found.state, found.by, found.approved) == ("second", ("ann",), False)
    assert approvals.waiting_study(party, STUDY.hash) is not None  # the other one must see it
    assert desk.approve(STUDY.hash, ann, runs=5).state == "second"  # not twice the same
    found = desk.approve(STUDY.hash, bob, runs=3)
    assert (found.approved, found.by, found.runs) == (True, ("ann", "bob"), 3)  # the fewest
    assert desk.revoke(STUDY.hash, bob).state == "revoked"  # one suffices
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
    signers = {each: appointed(desk, each) for each in ("ann", "bob")}
    desk.set_needed(2)
    tomorrow = datetime.now(UTC) + timedelta(days=1)

    def decide(study, action="approve", names=("ann", "bob"), **fields):
        for name in names:
            desk.decide(action, study, signers[name], **fields)

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
    signers = {each: appointed(desk, each) for each in ("ann", "bob", "eve")}
    desk.set_needed(2)
    start, problems = threading.Barrier(3), []

    def decide(name):
        start.wait()
        try:
            desk.approve(STUDY.hash, signers[name])
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


def test_only_some_roles_decide(desk):
    for role in ("viewer", "lead"):
        error = refused("may-not-decide", desk.approve, STUDY.hash, appointed(desk, role, role))
        assert role in error.message
    assert desk.history() == []


def test_an_approver_who_left_or_lost_the_password(desk, ledger):
    ann = appointed(desk, "ann")
    assert desk.approve(STUDY.hash, ann, runs=3).approved
    desk.dismiss("ann")
    assert desk.standing(STUDY.hash).approved  # what was decided stays decided
    refused("may-not-decide", desk.approve, STUDY.hash, ann)
    refused("unknown-approver", desk.dismiss, "ann")
    refused("unknown-approver", desk.approve, STUDY.hash, Decider("nobody", ann.signer))
    refused("bad-approvers", desk.dismiss, FIRST_OWNER)  # nobody would be left
    assert ledger.verify().holds
    back = appointed(desk, "ann")  # with another key
    assert desk.approve(STUDY.hash, back).approved
    new = KeySigner.new()
    desk.renew("ann", new.public_key.text)
    refused("bad-signature", desk.approve, STUDY.hash, back)
    assert desk.approve(STUDY.hash, Decider("ann", new)).approved
    assert ledger.verify().holds


def test_a_list_names_each_person_and_key_once(desk, party):
    ann = appointed(desk, "ann")
    refused("name-taken", desk.appoint, "ann", "viewer")
    refused("bad-decision", desk.appoint, "bob", "approver", ann.signer.public_key.text)
    refused("bad-decision", desk.appoint, "bob", "approver")  # without a key
    refused("bad-decision", desk.appoint, "bob", "approver", "ed25519:" + "00" * 32)
    refused("bad-decision", desk.appoint, "a\x1b[2J", "viewer")


def test_a_party_with_a_new_key_decides_once_an_approver_put_it_into_the_list(
    desk, party, ledger, monkeypatch
):
    """The party's folder alone changes no list: whoever has it could be anybody."""
    ann, new = appointed(desk, "ann"), KeySigner.new()
    assert desk.approve(STUDY.hash, runs=None).approved
    former = party.signer_now
    monkeypatch.setattr(PartyFolder, "signer_now", new)
    refused("owner-key", desk.approve, STUDY.hash)
    refused("bad-signature", desk.renew, FIRST_OWNER, new.public_key.text, by=Decider(signer=new))
    assert desk.renew(FIRST_OWNER, new.public_key.text, by=ann)
    assert desk.approve(STUDY.hash, Decider(signer=new), runs=None).approved
    refused("bad-signature", desk.approve, STUDY.hash, Decider(signer=former))
    refused("bad-signature", desk.dismiss, "ann", by=Decider(signer=former))
    refused("unknown-approver", desk.renew, "nobody", new.public_key.text, by=Decider(signer=new))
    assert ledger.verify().holds


def test_a_list_is_changed_by_as_many_as_the_rule_asks(desk, party, ledger):
    ann, bob = (appointed(desk, each) for each in ("ann", "bob"))
    eve = KeySigner.new()
    assert desk.set_needed(2)
    before = desk.approvers()
    assert not desk.appoint("eve", "approver", eve.public_key.text, by=ann)
    assert not desk.set_needed(1, by=bob)  # another change: no agreement
    assert desk.approvers() == before
    assert [[each.name for each in agreed] for _, agreed in desk.proposed()] == [["ann"], ["bob"]]
    assert not desk.agree(bob)  # not twice the same
    refused("bad-signature", desk.agree, Decider("eve", eve))
    assert ledger.verify().holds
    assert desk.agree(ann)
    assert desk.approvers().needed == 1
    assert desk.proposed() == []  # eve's is no next one any more
    refused("nothing-waits", desk.agree)
    assert ledger.verify().holds


# -- keys


def test_keys_under_a_password(tmp_path):
    place, password = tmp_path / "keys" / "ann.key", "four words are enough"
    made = make_key(place, password)
    assert place.stat().st_mode & 0o77 == 0
    assert open_key(place, password).public_key == made.public_key
    refused("wrong-password", open_key, place, "another password")
    refused("weak-password", make_key, tmp_path / "b.key", "short")
    refused("key-exists", make_key, place, password)
    (tmp_path / "c.key").write_text("no key")
    refused("not-an-approvers-key", open_key, tmp_path / "c.key", password)
    refused("cannot-read-key", open_key, tmp_path / "d.key", password)
