"""Lists of members: who is in by them, and that they never go back or aside."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.federation import members as lists
from eigenveil.federation.public_key import KeySigner
from eigenveil.network import members as known_lists
from eigenveil.network import registrar as office
from eigenveil.network.folder import (
    PartyFolder,
    PartyKeys,
    add_keys,
    identity_of,
    new_party,
    pem_of,
    read_signer,
)
from eigenveil.network.members import line
from federation_tools import World, code_of, make_federation, study_of
from soak_tools import times


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def clock(monkeypatch):
    """Time as the lists see it, which tests move."""
    moved = SimpleNamespace(by=timedelta())

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + moved.by

    monkeypatch.setattr(known_lists, "datetime", Clock)
    monkeypatch.setattr(office, "datetime", Clock)
    monkeypatch.setattr(known_lists, "_LOOK", 0.0)
    return moved


def adopted(world, *names):
    world.admit(*names)
    party = world.party()
    assert party.adopt(world.data())
    return party


def test_who_is_in_has_one_key_one_role_and_one_sealing_key(world):
    party = adopted(world, "north", "south")
    key = world.keys["north"].signer.public_key
    assert party.key(role="site", name="north") == key
    assert party.role("north") == "site"
    assert party.sealing("north") == world.keys["north"].sealing.digest
    assert code_of(party.key, role="aggregator", name="north") == "not-a-member"
    assert code_of(party.key, role="site", name="west") == "not-a-member"
    assert code_of(party.role, "North") == "not-a-member"


def test_two_histories_are_noticed_at_any_number(world):
    world.admit("north")
    other = world.fork()
    party = adopted(world, "south")
    same = other.admit([world.request("west")])
    assert code_of(party.adopt, line(same)) == "forked-members"
    further = other.admit([world.request("east")])
    assert code_of(party.adopt, line(further)) == "forked-members"
    world.admit("more", "again")
    assert party.adopt(world.data())
    assert code_of(party.adopt, line(same)) == "forked-members"


def test_a_restored_backup_is_noticed_by_what_a_ledger_marked(world):
    party = adopted(world, "north")
    backup = world.data()
    world.admit("south")
    party.adopt(world.data())
    number, digest = party.mark()
    party.not_before(number, digest)
    party.file.write_bytes(backup)
    restored = world.party()
    assert code_of(restored.not_before, number, digest) == "older-members"
    assert code_of(restored.not_before, restored.mark()[0], "0" * 64) == "forked-members"
    known_lists._LOOK, look = 0.0, known_lists._LOOK
    try:  # nor within the process that saw the newer one
        assert code_of(party.role, "north") == "older-members"
    finally:
        known_lists._LOOK = look


def test_a_run_keeps_its_keys_until_they_are_revoked(world):
    party = adopted(world, "north", "south")
    begun, old = party.digest, world.keys["north"]
    run = party.at(begun)
    world.registrar.admit([world.request("north", old=old)])
    party.adopt(world.data())
    new = world.keys["north"].signer.public_key
    assert party.key(role="site", name="north") == new
    assert run.key(role="site", name="north") == old.signer.public_key
    assert run.digest == begun != party.digest
    # also after a restart
    again = world.party().at(begun)
    assert again.key(role="site", name="north") == old.signer.public_key
    world.registrar.revoke("north", "its computer was stolen")
    party.adopt(world.data())
    for view in (run, world.party().at(begun), party):
        assert code_of(view.key, role="site", name="north") == "revoked-party"
        assert code_of(view.sealing, "north") == "revoked-party"
        assert view.role("south") == "site"
    with pytest.raises(EigenveilError, match="its computer was stolen"):
        party.role("north")
    assert code_of(party.at, "0" * 64) == "other-members"


def test_a_revoked_key_is_never_admitted_again_and_its_name_may_be(world):
    party = adopted(world, "north")
    old = world.keys["north"]
    world.registrar.revoke("north", "")
    for name in ("north", "other"):
        asked = world.request(name, keys=old)
        assert code_of(world.registrar.admit, [asked]) == "twin-keys"
    half = PartyKeys(KeySigner.new(), old.sealing)
    assert code_of(world.registrar.admit, [world.request("north", keys=half)]) == "twin-keys"
    world.admit("north")
    party.adopt(world.data())
    assert party.key(role="site", name="north") == world.keys["north"].signer.public_key


def test_an_expired_list_begins_no_run_and_ends_none(world, clock):
    party = adopted(world, "north")
    run = party.at(party.digest)
    assert party.warning() == ""
    clock.by = timedelta(days=61)
    assert "expires in 28 days" in party.warning()
    clock.by = timedelta(days=90, minutes=1)
    for view in (party, run):
        assert code_of(view.role, "north") == "expired-list"
    assert code_of(world.party("late").adopt, world.data()) == "expired-list"
    world.registrar.renew()
    assert party.adopt(world.data())
    for view in (party, run):
        assert view.role("north") == "site"


@pytest.mark.parametrize("minutes", [-60, -6])
def test_a_clock_that_is_behind_is_named(world, clock, minutes):
    world.admit("north")
    clock.by = timedelta(minutes=minutes)
    party = world.party()
    assert code_of(party.adopt, world.data()) == "clock-differs"
    clock.by = timedelta(minutes=-4)
    assert party.adopt(world.data())


def test_a_list_is_good_for_ninety_days_at_the_most(world):
    for days in (0, 91):
        assert code_of(world.registrar.renew, days=days) == "out-of-range"
    head = world.registrar.renew(days=1).head
    assert head.until - head.since == timedelta(days=1)


def test_the_registrar_is_changed_by_both_and_by_the_key_that_was_announced(world, tmp_path):
    party = adopted(world, "north")
    stranger = tmp_path / "stranger.pem"
    stranger.write_bytes(pem_of(KeySigner.new().private))
    assert code_of(world.registrar.hand_over, stranger) == "other-key"
    world.registrar.hand_over(world.registrar.next_file)
    assert party.adopt(world.data())
    world.admit("south")  # the next one signs from now on
    assert party.adopt(world.data())
    heads = party.current().heads
    assert len({each.said.registrar for each in heads}) == 2
    assert [len(each.signatures) for each in heads] == [1, 1, 2, 1]
    assert party.role("south") == "site"
    # and what a certificate carries leads to the registrar that was pinned
    evidence = party.evidence(["south"])
    evidence.check(world.origin)
    assert len(evidence.heads) == 3
    assert evidence.key("site", "south") == world.keys["south"].signer.public_key
    assert code_of(evidence.key, "site", "north") == "not-a-member"
    assert code_of(evidence.check, "0" * 64) == "list-of-other-federation"


def test_a_change_of_the_registrar_that_is_cut_off_loses_no_key(world, monkeypatch):
    party = adopted(world, "north")
    with monkeypatch.context() as cut:
        cut.setattr(office, "write_members", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            world.registrar.hand_over(world.registrar.next_file)
    world.admit("south")  # as before
    taking = read_signer(world.registrar.next_file)
    cut_off = world.registrar.folder / f"registrar-{taking.public_key.fingerprint[:16]}.pem"
    cut_off.write_bytes(b"")  # where the writing of that key was cut off
    world.registrar.hand_over(world.registrar.next_file)
    world.registrar.hand_over(world.registrar.next_file)
    assert party.adopt(world.data())
    assert party.role("south") == "site"


def test_the_addresses_and_names_of_a_list(world):
    aggregator = world.request("aggregator", "aggregator", address="https://example.org:1")
    world.registrar.admit([aggregator])
    assert world.registrar.current().head.address == "https://example.org:1"
    assert world.registrar.renew().head.address == "https://example.org:1"
    assert world.registrar.renew(address="folder:/share").head.address == "folder:/share"
    for role, name in (
        ("site", "aggregator"),
        ("site", "Lead"),
        ("site", "../x"),
        ("site", "a.b"),
        ("site", "a" * 64),
        ("site", ""),
        ("lead", ".x"),
        ("aggregator", "north"),
        ("helper", "north"),
    ):
        assert code_of(world.request, name, role) == "bad-party-name", (role, name)
    world.request("ada@example.org", "lead")


def test_a_party_signs_with_the_key_that_its_list_has(world):
    party = PartyFolder(world.folder / "north", "site", "north", "", world.origin)
    first = PartyKeys.new()
    new_party(party, first)
    assert code_of(new_party, party, first) == "party-exists"
    assert code_of(identity_of, party) == "no-members"
    world.admit("south")
    party.known.adopt(world.data())
    assert code_of(identity_of, party) == "not-in-list-yet"
    world.registrar.admit([world.request("north", keys=first)])
    party.known.adopt(world.data())
    begun = party.known.digest
    identity = identity_of(party)
    assert identity.signer.public_key == first.signer.public_key
    second = PartyKeys.new()
    add_keys(party, second)
    assert identity_of(party).signer.public_key == first.signer.public_key
    world.registrar.admit([world.request("north", keys=second, old=first)])
    party.known.adopt(world.data())
    assert identity_of(party).signer.public_key == second.signer.public_key
    assert identity_of(party, begun).signer.public_key == first.signer.public_key
    identity_of(party).verify(b"x", second.signer.sign(b"x"), role="site", name="north")
    wrong = second.signer.sign(b"y")
    check = identity_of(party).verify
    assert code_of(check, b"x", wrong, role="site", name="north") == "bad-identity"
    # the same key with another one to seal for, an old copy of the folder, or another's name
    half = PartyFolder(world.folder / "east", "site", "east", "", world.origin)
    keys = PartyKeys.new()
    new_party(half, keys)
    told = PartyKeys(keys.signer, PartyKeys.new().sealing)
    world.registrar.admit([world.request("east", keys=told)])
    half.known.adopt(world.data())
    assert code_of(identity_of, half) == "other-keys"
    shutil.rmtree(party.keys)
    assert code_of(identity_of, party) == "other-keys"


def test_a_trial_checks_one_list_once_however_many_parties_are_given_it(tmp_path, monkeypatch):
    checked, check = [], lists.MemberList.check
    monkeypatch.setattr(lists.MemberList, "check", lambda *own: checked.append(1) or check(*own))
    make_federation(tmp_path, study_of(sites=[{"name": f"s{number}"} for number in range(12)]))
    assert len(checked) < 6


class Histories(RuleBasedStateMachine):
    """One registrar, two parties that are given any of its lists in any order."""

    @initialize()
    def begin(self):
        import tempfile
        from pathlib import Path

        self.folder = Path(tempfile.mkdtemp(prefix="eigenveil-lists-"))
        self.world, self.seen = World(self.folder), []
        self.expected = {}  # name -> key, None where revoked
        self.world.admit("first")
        self.expected["first"] = self.world.keys["first"].signer.public_key
        self.note()
        self.parties = [self.world.party("a"), self.world.party("b")]
        for party in self.parties:
            party.adopt(self.seen[0][0])

    def note(self):
        self.seen.append((self.world.data(), dict(self.expected)))

    @rule(name=st.sampled_from(["north", "south", "west"]))
    def admit(self, name):
        known = self.expected.get(name)
        asked = self.world.request(name, old=self.world.keys[name] if known else None)
        self.world.registrar.admit([asked])
        self.expected[name] = self.world.keys[name].signer.public_key
        self.note()

    @rule(name=st.sampled_from(["north", "south", "west"]))
    def revoke(self, name):
        if self.expected.get(name):
            self.world.registrar.revoke(name, "")
            self.expected[name] = None
            self.note()
        else:
            assert code_of(self.world.registrar.revoke, name, "") == "not-in-list"

    @rule()
    def renew(self):
        self.world.registrar.renew()
        self.note()

    @rule()
    def hand_over(self):
        self.world.registrar.hand_over(self.world.registrar.next_file)
        self.note()

    @rule(data=st.data(), who=st.integers(0, 1))
    def bring(self, data, who):
        number = data.draw(st.integers(1, len(self.seen)))
        party, text = self.parties[who], self.seen[number - 1][0]
        before = party.mark()[0]
        # the registrar's first list has nobody in it and number 1
        assert party.adopt(text) == (number + 1 > before)
        assert party.mark()[0] == max(before, number + 1)

    @invariant()
    def each_party_knows_who_is_in_by_the_newest_list_it_saw(self):
        for party in getattr(self, "parties", []):
            expected = self.seen[party.mark()[0] - 2][1]
            for name, key in expected.items():
                if key is None:
                    assert code_of(party.key, role="site", name=name) == "revoked-party"
                else:
                    assert party.key(role="site", name=name) == key
            party.current().check(self.world.origin)

    def teardown(self):
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=times(100), stateful_step_count=15)


def test_no_entries_are_taken_that_contradict_each_other():
    now = datetime.now(UTC)

    def entry(name, *, key=None, sealing=None, role="site", **more):
        keys = PartyKeys.new()
        return lists.MemberEntry(
            name=name,
            role=role,
            organisation="",
            key=key or keys.signer.public_key.text,
            sealing=sealing or keys.sealing.digest,
            since=now,
            **more,
        )

    one = entry("north")
    mirrored = bytearray(bytes.fromhex(one.key[8:]))
    mirrored[31] ^= 128
    later = entry("north", role="lead")
    for others in (
        [one, entry("south", key=one.key)],
        [one, entry("south", key=f"ed25519:{mirrored.hex()}")],
        [one, entry("south", sealing=one.sealing)],
        [one, entry("north")],
        [one, entry("North")],
        [one, later],
        [one.model_copy(update={"revoked": True}), later],
        [one.model_copy(update={"until": now + timedelta(days=1)}), entry("north")],
        [entry("aggregator")],
    ):
        assert code_of(lists.check_entries, others) == "bad-members"
    lists.check_entries([one.model_copy(update={"revoked": True}), entry("north")])
    lists.check_entries([one.model_copy(update={"until": now}), entry("north"), entry("south")])


def test_nothing_is_signed_that_nobody_could_read(world):
    """A request, or a reason, that no list can have leaves the registrar's as it was."""
    adopted(world, "north")
    before = world.data()
    with pytest.raises(ProtocolError, match="cannot be read"):
        world.registrar.revoke("north", "x" * 201)
    with pytest.raises(ProtocolError, match="cannot be read"):
        world.registrar.renew(address="https://\n")
    assert world.data() == before
    world.admit("south")


def test_a_time_that_is_none_is_a_list_that_cannot_be_read(world):
    """Also of a stranger's: nothing in it is checked before it is read."""
    party = adopted(world, "north")
    for time in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        fields = json.loads(world.data())
        fields["heads"][0]["said"]["since"] = time
        assert code_of(party.adopt, json.dumps(fields).encode()) == "bad-members"
