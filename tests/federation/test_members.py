"""Who is in a federation: forged, rolled-back and forked lists, revoked leads and sites."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from eigenveil.network.signed import open_learning
from eigenveil.network.x509_members import (
    LARGEST,
    KnownMembers,
    Member,
    MemberList,
    Revoked,
    SigningKey,
    federation_of,
    sign_members,
)
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.federation.protocol.envelope import Correspondent, Envelope, open_sealed, seal
from eigenveil.federation.protocol.messages import AGGREGATOR
from eigenveil.federation.x509_identity import key_digest
from registrar_tools import Registrar

OWN, OTHER = Registrar(), Registrar()
NAMES = ("north", "south", "west")
CERTIFIED = {name: OWN.identity(name) for name in NAMES}


def first(registrar=OWN, names=NAMES):
    return MemberList(
        project="trial",
        federation=federation_of(registrar.root),
        number=1,
        time=datetime.now(UTC),
        parties=tuple(Member(role="site", name=name) for name in names),
    )


def line(members, registrar=OWN):
    return sign_members(members, registrar.key).line()


@pytest.fixture
def known(tmp_path):
    found = KnownMembers(tmp_path / "members.json", OWN.root)
    assert found.adopt(line(first()))
    return found


def refused(code, call, *words, **fields):
    with pytest.raises(EigenveilError) as caught:
        call(*words, **fields)
    assert caught.value.code == code, caught.value


def check(known, name, role="site"):
    known.check(role=role, name=name, certificate=CERTIFIED["north"].certificate)


def without(members, name):
    gone = Member(role="site", name=name)
    return members.next(
        parties=tuple(each for each in members.parties if each != gone), removed=(gone,)
    )


def key_of(identity):
    return key_digest(identity.certificate.public_key())


def test_a_party_is_in_until_it_is_removed(known):
    check(known, "north")
    refused("not-a-member", check, known, "east")
    refused("not-a-member", check, known, "north", role="helper")
    check(known, "carol@example.org", role="lead")  # certified after this list
    assert known.adopt(line(without(known.current(), "north")))
    refused("not-a-member", check, known, "north")
    check(known, "south")


def test_what_is_no_list_of_the_registrar(known):
    second = known.current().next()
    signed = sign_members(second, OWN.key)
    forged = signed.model_copy(
        update={"members": second.model_copy(update={"parties": first(names=("me",)).parties})}
    )
    for data in (
        line(second, OTHER),
        forged.line(),
        line(first(OTHER), OTHER),
        line(second.model_copy(update={"history": ()})),
        b"{}",
        b"\xff" * 100,
        b"[" * 5000,
        b" " * (1 << 19),
        signed.line()[:-20],
    ):
        refused("bad-members", known.adopt, data)
    assert known.current() == first().model_copy(update={"time": known.current().time})


def test_a_list_that_is_rolled_back_or_forked(known):
    one = known.current()
    two = without(one, "north")
    assert known.adopt(line(two))
    assert not known.adopt(line(two))
    refused("older-members", known.adopt, line(one))
    fork = one.next(parties=(*one.parties, Member(role="site", name="me")))
    refused("other-members", known.adopt, line(fork))
    refused("other-members", known.adopt, line(fork.next()))
    assert known.current() == two
    assert known.adopt(line(two.next().next()))  # those between were missed
    refused("not-a-member", check, known, "north")


def test_a_damaged_list_in_the_kit_admits_nobody(known):
    known.file.write_bytes(known.file.read_bytes().replace(b"north", b"marth"))
    refused("bad-members", check, known, "south")


def test_without_a_list_certificates_alone_count(tmp_path):
    known = KnownMembers(tmp_path / "none.json", OWN.root)
    check(known, "anybody")
    assert known.current() is None


def test_a_revoked_certificate_signs_nothing_any_more(known):
    """Messages, keys and proofs all come through the identity: each is refused."""
    host = OWN.identity("host", role="aggregator")
    receiver = replace(host, members=known)
    query = Envelope("a" * 64, "b" * 32, "keys", "north", AGGREGATOR, b"key")
    north = Correspondent("north", "site", "north")

    def answered(identity):
        return open_sealed(
            seal(query, identity)[0], receiver, sender=north, recipient=AGGREGATOR, limit=10
        ).payload

    assert answered(CERTIFIED["north"]) == b"key"
    old = CERTIFIED["north"].certificate.serial_number
    bad = Revoked(role="site", name="north", serial=f"{old:x}", key=key_of(CERTIFIED["north"]))
    assert known.adopt(line(known.current().next(revoked=(bad,))))
    refused("revoked-party", answered, CERTIFIED["north"])
    assert answered(OWN.identity("north")) == b"key"  # its next certificate, without a stop
    removed = without(known.current(), "north")
    assert known.adopt(line(removed))
    refused("not-a-member", answered, OWN.identity("north"))


def test_only_the_key_in_the_list_signs(known):
    """Two certificates of one party, both good: that of its connection signs nothing."""
    token, connection = OWN.identity("north"), CERTIFIED["north"]
    check(known, "north")  # nothing pinned yet
    pinned = SigningKey(role="site", name="north", key=key_of(token))
    assert known.adopt(line(known.current().next(keys=(pinned,))))
    known.check(role="site", name="north", certificate=token.certificate)
    refused("other-signing-key", check, known, "north")
    for each in (token, connection):  # FLARE's connection is another matter
        assert known.connects(name="north", serial=each.certificate.serial_number)


def test_the_keys_of_a_run_are_good_until_it_is_over(known):
    """Also those that a list has replaced meanwhile; not one that was revoked."""
    old, new = CERTIFIED["north"], OWN.identity("north")
    of = lambda each: SigningKey(role="site", name="north", key=key_of(each))  # noqa: E731
    assert known.adopt(line(known.current().next(keys=(of(old),))))
    known.settle()
    assert known.adopt(line(known.current().next(keys=(of(new),))))
    for each in (old, new):
        known.check(role="site", name="north", certificate=each.certificate)
    known.release()
    refused("other-signing-key", check, known, "north")
    known.settle()
    bad = Revoked(role="site", name="north", serial="ab", key=key_of(old))
    assert known.adopt(line(known.current().next(revoked=(bad,))))
    refused("other-signing-key", check, known, "north")


def test_a_new_key_comes_with_its_list(known, tmp_path):
    """What a party signs with a new key is opened by the list that its message brings."""
    old, new = CERTIFIED["north"], OWN.identity("north")
    lists = [known.current().next(keys=(SigningKey(role="site", name="north", key=key_of(old)),))]
    lists.append(lists[0].next(keys=(SigningKey(role="site", name="north", key=key_of(new)),)))
    assert known.adopt(line(lists[0]))
    receiver = replace(OWN.identity("host", role="aggregator"), members=known)
    north = Correspondent("north", "site", "north")

    def opened(identity, step, payload):
        data = seal(Envelope("a" * 64, "b" * 24, step, "north", AGGREGATOR, payload), identity)[0]
        return open_learning(data, receiver, sender=north, recipient=AGGREGATOR, limit=LARGEST)

    refused("other-signing-key", opened, new, "round 1", line(lists[1]))  # no list belongs there
    refused("other-signing-key", opened, new, "hello", line(lists[0]))
    refused("other-signing-key", opened, new, "hello", line(lists[1], OTHER))
    assert opened(new, "hello", line(lists[1])).sender == "north"
    assert known.current() == lists[1]
    refused("other-signing-key", opened, old, "hello", line(lists[1]))


class Lists(RuleBasedStateMachine):
    """A registrar who signs lists, parties that see some of them, and one who brings old ones."""

    @initialize(folder=st.integers(0, 2**60))
    def begin(self, folder):
        import tempfile
        from pathlib import Path

        self.folder = tempfile.TemporaryDirectory()
        self.lists = [first()]
        place = Path(self.folder.name) / f"{folder}.json"
        self.known, self.seen = KnownMembers(place, OWN.root), 0

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()

    @rule(name=st.sampled_from([*NAMES, "east"]))
    def changes(self, name):
        last = self.lists[-1]
        member = Member(role="site", name=name)
        if member in last.parties:
            self.lists.append(without(last, name))
        else:
            self.lists.append(last.next(parties=(*last.parties, member), removed=()))

    @rule(data=st.data())
    def brought(self, data):
        number = data.draw(st.integers(1, len(self.lists)))
        data = line(self.lists[number - 1])
        if number < self.seen:
            refused("older-members", self.known.adopt, data)
        else:
            assert self.known.adopt(data) == (number > self.seen)
        self.seen = max(self.seen, number)

    @invariant()
    def newest_seen_counts(self):
        if not getattr(self, "seen", 0):
            return
        members = self.lists[self.seen - 1]
        for name in (*NAMES, "east"):
            try:
                check(self.known, name)
                inside = True
            except ProtocolError:
                inside = False
            assert inside == (Member(role="site", name=name) in members.parties)


TestLists = Lists.TestCase
