"""Decisions of a site: who may make them, what they are worth, and what a forger tries."""

import json
import threading
from datetime import UTC, datetime, timedelta

import pytest
from eigenveil.network.signed import identity_of

from eigenveil.cli.presenters.study_cost import sentence_of
from eigenveil.errors import DataError, DecisionRefused, EigenveilError, OutputError
from eigenveil.federation.ledger.decisions import STATES, list_text
from eigenveil.federation.ledger.documents import Approver
from eigenveil.federation.ledger.entries import ApproversBody, DecisionBody
from eigenveil.federation.ledger.heads import HeadsFile
from eigenveil.federation.ledger.ledger import Budget, Ledger, SessionKey
from eigenveil.network import approvals
from eigenveil.network.certificates import write_key
from eigenveil.network.decisions import (
    EVERY_STUDY,
    FIRST_OWNER,
    Decisions,
    KitSigner,
    make_key,
    open_key,
    sign_decision,
)
from eigenveil.privacy.accountant import Loss
from kit_tools import registrar, site_kit, study_of

PASSWORD = "four words are enough"
STUDY = study_of()


@pytest.fixture
def kit(tmp_path):
    return site_kit(tmp_path)


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "north.ledger", durable=False)
    made.set_budget(Budget("default", "add-remove", 5.0, 1e-6))
    return made


@pytest.fixture
def desk(kit, ledger):
    approvals.ask_owner(kit, STUDY)
    return Decisions(kit, ledger)


def run(ledger, study=STUDY, name=[0]):  # noqa: B006
    name[0] += 1
    key = SessionKey(study.hash, f"run-{name[0]}")
    ledger.begin(key, data_set="default", adjacency="add-remove", reserve=Loss(1e-3), state=b"")
    return key


def refused(code, call, *words, **fields):
    with pytest.raises(EigenveilError) as caught:
        call(*words, **fields)
    assert caught.value.code == code, caught.value
    return caught.value


def appointed(desk, kit, name, role="approver"):
    signer = make_key(kit.approver_keys / f"{name}.key", PASSWORD)
    desk.appoint(name, role, signer.public_key)
    return signer


# -- what an approval is worth


def test_one_approval_is_one_run(desk, ledger, kit):
    assert desk.standing(STUDY.hash).waits
    found = desk.approve(STUDY.hash, purpose="quality of care")
    assert (found.approved, found.left, found.by) == (True, 1, (FIRST_OWNER,))
    assert approvals.waiting_study(kit, STUDY.hash) is None
    run(ledger)
    found = desk.standing(STUDY.hash)
    assert (found.state, found.used, found.left, found.waits) == ("used", 1, 0, True)
    assert not found.allows(None)
    assert found.allows(1)
    assert desk.approve(STUDY.hash, runs=2).left == 2  # counted from this approval on
    run(ledger)
    assert desk.standing(STUDY.hash).left == 1
    assert ledger.verify().holds
    assert [each.decision.purpose for each in desk.history()] == ["quality of care", ""]


def test_until_a_date(desk, ledger):
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    found = desk.approve(STUDY.hash, runs=None, until=tomorrow)
    assert (found.approved, found.left, found.until) == (True, None, tomorrow)
    for _ in range(3):
        run(ledger)
    record = desk.record(STUDY.hash)
    assert record.standing(STUDY.hash).used == 3
    late = record.standing(STUDY.hash, now=tomorrow + timedelta(seconds=1))
    assert (late.state, late.waits) == ("expired", True)
    refused("bad-decision", desk.approve, STUDY.hash, until=datetime.now(UTC) - timedelta(days=1))
    refused("bad-decision", desk.approve, STUDY.hash, until=datetime(2030, 1, 1))
    refused("bad-decision", desk.approve, STUDY.hash, runs=0)


def test_refused_and_revoked(desk, kit):
    found = desk.refuse(STUDY.hash, reason="no legal basis")
    assert (found.state, found.reason, found.tell_lead) == ("refused", "no legal basis", False)
    assert not found.waits
    assert approvals.waiting_study(kit, STUDY.hash) is None
    refused("nothing-approved", desk.revoke, STUDY.hash)
    assert desk.approve(STUDY.hash).approved  # the owner may think better of it
    found = desk.revoke(STUDY.hash, reason="project ended")
    assert (found.state, found.allows(None), found.allows(3)) == ("revoked", False, False)


def test_a_later_approval_brings_no_revoked_run_back(desk, ledger):
    def begun():
        run(ledger)
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
    approvals.keep(desk.kit, other)
    desk.refuse(other.hash, reason="not this one")
    assert desk.standing(other.hash).state == "refused"
    assert desk.standing(STUDY.hash).approved
    desk.revoke(EVERY_STUDY)
    assert desk.standing(STUDY.hash).state == "waiting"
    refused("bad-decision", desk.decide, "refuse", EVERY_STUDY)


def test_a_file_alone_admits_nothing(desk, kit, ledger):
    approvals.keep(kit, STUDY)
    assert desk.standing(STUDY.hash).state == "waiting"
    # nor does an approval that another kit signed, in this very ledger
    assert ledger.verify().holds


def test_a_study_changed_between_view_and_approval_is_refused(desk, kit):
    changed = study_of(epsilon=4.0)
    file = kit.waiting / f"{STUDY.hash}.json"
    file.write_text(json.dumps(changed.model_dump(mode="json")))
    refused("other-study", desk.approve, STUDY.hash)
    refused("unknown-study", desk.approve, changed.hash)
    assert desk.history() == []


# -- who decides


def give_key(kit, identity):
    """As a renewal leaves it."""
    kit.key.unlink()
    write_key(kit.key, identity.key)
    kit.certificate.write_text(identity.pem)


def test_two_persons(desk, kit, ledger):
    refused("bad-approvers", desk.set_needed, 2)  # there is one
    ann, bob = (appointed(desk, kit, each) for each in ("ann", "bob"))
    assert desk.set_needed(2).needed == 2
    found = desk.approve(STUDY.hash, ann, by="ann", runs=5)
    assert (found.state, found.by, found.approved) == ("second", ("ann",), False)
    assert approvals.waiting_study(kit, STUDY.hash) is not None  # the other one must see it
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


def test_every_combination_of_decisions_has_its_state(desk, kit, ledger):
    signers = {each: appointed(desk, kit, each) for each in ("ann", "bob")}
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
        run(ledger, study)
        run(ledger, study)
        if agreed:
            decide(study.hash, names=("ann",))
    later = tomorrow + timedelta(seconds=1)
    for every, of_every in EVERY.items():
        stands(EVERY_STUDY, every)
        for study in (studies["nothing", False], studies["nothing", True]) * 2:
            run(ledger, study)
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


def test_two_at_once(desk, kit, ledger):
    signers = {each: appointed(desk, kit, each) for each in ("ann", "bob", "eve")}
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
def test_only_some_roles_decide(desk, kit, role):
    signer = appointed(desk, kit, "ann", role)
    error = refused("wrong-role", desk.approve, STUDY.hash, signer, by="ann")
    assert role in error.message
    assert desk.history() == []


def test_an_approver_who_left(desk, kit, ledger):
    signer = appointed(desk, kit, "ann")
    assert desk.approve(STUDY.hash, signer, by="ann", runs=3).approved
    desk.dismiss("ann")
    assert desk.standing(STUDY.hash).approved  # what was decided stays decided
    refused("wrong-role", desk.approve, STUDY.hash, signer, by="ann")
    refused("unknown-approver", desk.dismiss, "ann")
    refused("unknown-approver", desk.approve, STUDY.hash, signer, by="nobody")
    refused("bad-approvers", desk.dismiss, FIRST_OWNER)  # nobody would be left
    assert ledger.verify().holds
    signer = make_key(kit.approver_keys / "ann-2.key", PASSWORD)
    desk.appoint("ann", "approver", signer.public_key)  # back again, with another key
    assert desk.approve(STUDY.hash, signer, by="ann").approved


def test_a_list_names_each_person_and_key_once(desk, kit):
    signer = appointed(desk, kit, "ann")
    refused("name-taken", desk.appoint, "ann", "viewer")
    refused("bad-decision", desk.appoint, "bob", "approver", signer.public_key)
    refused("bad-decision", desk.appoint, "bob", "approver")  # without a key
    refused("bad-decision", desk.appoint, "a\x1b[2J", "viewer")


def test_a_kit_with_a_new_key_decides_once_the_list_has_it(desk, kit, ledger):
    """And from then on the key that was lost changes the list no more."""
    assert desk.approve(STUDY.hash, runs=None).approved
    lost = identity_of(kit)
    give_key(kit, registrar().identity("north", start=datetime.now(UTC) - timedelta(hours=1)))
    error = refused("owner-key", desk.approve, STUDY.hash)
    assert "site approver renew owner" in error.hint
    assert desk.standing(STUDY.hash).approved  # what was decided stays decided
    desk.renew(FIRST_OWNER, KitSigner(identity_of(kit)).public_key)
    assert desk.approve(STUDY.hash, runs=None).approved
    assert ledger.verify().holds
    give_key(kit, lost)
    refused("bad-approvers", desk.renew, FIRST_OWNER, KitSigner(lost).public_key)
    refused("unknown-approver", desk.renew, "nobody", KitSigner(lost).public_key)


def test_an_approver_who_lost_the_password(desk, kit, ledger):
    old = appointed(desk, kit, "ann")
    assert desk.approve(STUDY.hash, old, by="ann").approved
    new = make_key(kit.approver_keys / "ann.key", PASSWORD, overwrite=True)
    desk.renew("ann", new.public_key)
    refused("bad-signature", desk.approve, STUDY.hash, old, by="ann")
    assert desk.approve(STUDY.hash, new, by="ann").approved
    assert ledger.verify().holds


# -- forgeries


def test_replayed(desk, ledger):
    signed = sign_decision(
        desk.draft("approve", STUDY.hash, by=FIRST_OWNER), KitSigner(identity_of(desk.kit))
    )
    desk.add(signed)
    refused("replayed-decision", desk.add, signed)
    run(ledger)
    refused("replayed-decision", desk.add, signed)
    assert desk.standing(STUDY.hash).state == "used"


def test_of_another_ledger_site_or_clock(desk, kit, tmp_path):
    elsewhere = Decisions(kit, Ledger(tmp_path / "other.ledger"))
    signer = KitSigner(identity_of(kit))
    signed = sign_decision(elsewhere.draft("approve", STUDY.hash, by=FIRST_OWNER), signer)
    refused("other-place", desk.add, signed)
    south = Decisions(site_kit(tmp_path, "south"), desk.ledger)
    refused("other-place", south.add, signed)
    own = desk.draft("approve", STUDY.hash, by=FIRST_OWNER)
    for by in (timedelta(hours=-1), timedelta(hours=1)):
        late = own.model_copy(update={"time": own.time + by})
        refused("clock-off", desk.add, sign_decision(late, signer))
    assert desk.history() == []


@pytest.mark.parametrize("change", ["purpose", "runs", "study", "signature", "by"])
def test_changed_after_it_was_signed(desk, kit, change):
    ann = appointed(desk, kit, "ann")
    signed = sign_decision(desk.draft("approve", STUDY.hash, by="ann"), ann)
    other = {
        "purpose": "everything",
        "runs": 1000,
        "study": study_of("other").hash,
        "by": FIRST_OWNER,
    }
    if change == "signature":
        forged = signed.model_copy(update={"signature": "00" * 64})
    else:
        new = signed.decision.model_copy(update={change: other[change]})
        forged = signed.model_copy(update={"decision": new})
    refused("bad-signature", desk.add, forged)
    assert desk.history() == []


def test_a_stranger_appended_to_the_ledger(desk, kit, tmp_path):
    """Whoever writes the ledger alone: the chain is made anew, but no signature can be."""
    desk.approve(STUDY.hash)
    south = Decisions(site_kit(tmp_path, "south"), desk.ledger)
    stranger = make_key(tmp_path / "stranger.key", PASSWORD)
    draft = desk.draft("approve", study_of("mine").hash, by=FIRST_OWNER)
    with desk.ledger._store.writing() as writer:
        writer.append(DecisionBody(signed=sign_decision(draft, stranger)))
    assert desk.standing(study_of("mine").hash).state == "waiting"
    found = desk.ledger.verify()
    assert not found.holds
    assert "not signed by the key" in found.explanation
    # a list that another site's key signed
    listed = desk.approvers()
    mine = Approver(
        name="me", role="owner", public_key=stranger.public_key, since=datetime.now(UTC)
    )
    new = listed.model_copy(
        update={"number": listed.number + 1, "approvers": (*listed.approvers, mine)}
    )
    signature = identity_of(south.kit).sign(list_text(new)).hex()
    with desk.ledger._store.writing() as writer:
        writer.append(ApproversBody(approvers=new, signature=signature))
    assert desk.approvers() == listed


def test_a_cut_tail_with_a_revocation_is_noticed(desk, kit, tmp_path):
    """The signed entries that are left all hold: only a head elsewhere tells that one is gone."""
    import sqlite3

    heads = HeadsFile(tmp_path / "elsewhere" / "heads")
    (tmp_path / "elsewhere").mkdir()
    place = tmp_path / "cut.ledger"
    Ledger(place, heads=heads).set_budget(Budget("default", "add-remove", 5.0, 1e-6))
    own = Decisions(kit, Ledger(place, heads=heads))
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
    assert Ledger(place).verify().holds  # by itself it does
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
    refused("bad-key", open_key, tmp_path / "c.key", PASSWORD)
    refused("cannot-read", open_key, tmp_path / "d.key", PASSWORD)


def test_the_kits_own_key_is_no_approvers_key(kit):
    refused("bad-key", open_key, kit.key, PASSWORD)


def test_many_decisions_are_read_quickly(desk):
    for number in range(10):
        desk.approve(STUDY.hash, runs=number + 1)
    assert desk.standing(STUDY.hash).runs == 10
    assert len(desk.history()) == 10
