"""Envelopes: what they show, how long their keys last, and who may open them."""

import dataclasses
import hashlib

import pytest
from contract import letter, parties, post_of
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil.errors import ProtocolError
from eigenveil.federation.sealing import SEALING_BYTES, encrypt_to
from eigenveil.network import endpoint, envelopes, mailbox
from eigenveil.network.endpoint import FileKeys, Post
from eigenveil.network.envelopes import BESIDE, OtherMembers, brought_list, is_hello, list_of_hello
from eigenveil.network.folder import identity_of, sealing_of
from eigenveil.network.mailbox import open_mailbox
from mailbox_tools import MemoryKeys
from soak_tools import times

WORDS = st.from_regex(r"[a-z0-9 _-]{0,64}", fullmatch=True)
DIGESTS = st.just("") | st.binary(min_size=32, max_size=32).filter(any).map(bytes.hex)


def refused(work, *codes):
    with pytest.raises(ProtocolError) as found:
        work()
    assert found.value.code in codes


def test_all_messages_of_a_step_look_alike_to_who_carries_them():
    north = post_of("north")
    sealed = [
        north.seal(letter("north", "aggregator", body, code=code), bound=5000)[0]
        for body, code in ((b"", "refused"), (b"x", ""), (b"x" * 5000, ""))
    ]
    assert len({len(each) for each in sealed}) == 1
    assert len(sealed[0]) <= 5000 + BESIDE
    study = bytes.fromhex(letter("north", "aggregator").study)
    for each in sealed:
        assert study not in each
        assert b"round 1" not in each
        assert envelopes.header_of(each).sender == "north"
        assert not is_hello(each)
    with pytest.raises(RuntimeError):
        north.seal(letter("north", "aggregator", b"x" * 5001), bound=5000)


@given(study=DIGESTS, question=DIGESTS, session=WORDS, code=WORDS, body=st.binary(max_size=99))
def test_what_was_sealed_is_opened_and_one_text_has_one_encoding(
    study, question, session, code, body
):
    text = letter("north", "aggregator", body, study=study, session=session, code=code)
    text = dataclasses.replace(text, question=question, sent=12.345, members="ab" * 32)
    inside, mark = envelopes.encoded(text, 100), envelopes.mark_of(text)
    found = envelopes.decoded(inside, "north", "aggregator")
    assert found == dataclasses.replace(text, mark=mark)
    assert envelopes.encoded(dataclasses.replace(found, mark=""), 100) == inside


@settings(max_examples=times(1_000))
@given(data=st.data())
def test_a_changed_text_is_refused_or_is_the_one_encoding_of_another(data):
    text = letter("north", "aggregator", b"body", code="x")
    inside, mark = envelopes.encoded(text, 20), envelopes.mark_of(text)
    at = data.draw(st.integers(0, len(inside) - 1))
    changed = inside[:at] + bytes([data.draw(st.integers(0, 255))]) + inside[at + 1 :]
    try:
        found = envelopes.decoded(changed, "north", "aggregator")
    except ProtocolError:
        return
    assert envelopes.encoded(dataclasses.replace(found, mark=""), 20) == changed
    outside_mark = range(32 + 8)  # the list and the time may differ between repetitions
    assert changed == inside or found.mark != mark or at in outside_mark


def test_a_message_said_again_has_the_same_mark_and_another_text():
    north, aggregator = post_of("north"), post_of("aggregator")
    text = letter("north", "aggregator", b"sum")
    made = [north.seal(text, bound=100) for _ in range(2)]
    assert made[0][1] == made[1][1]
    assert made[0][0] != made[1][0]
    opened = [aggregator.open(each, limit=100) for each, _ in made]
    assert {each.mark for each in opened} == {made[0][1]}
    other = dataclasses.replace(text, session="a2")
    assert north.seal(other, bound=100)[1] != made[0][1]
    assert post_of("south").seal(text, bound=100)[1] != made[0][1]
    assert north.seal(dataclasses.replace(text, recipient="west"), bound=100)[1] != made[0][1]


def test_only_the_first_message_of_a_session_is_sealed_for_the_list():
    """Forward secrecy: with all long-lived keys, what came later stays sealed once it is over."""
    store = MemoryKeys()
    aggregator, north = post_of("aggregator"), post_of("north", store)
    first, mark = aggregator.seal(letter("aggregator", "north", b"join"), bound=100)
    question = north.open(first, limit=100)
    assert len(question.session_key) == SEALING_BYTES
    answer, _ = north.seal(letter("north", "aggregator", b"yes", question=mark), bound=100)
    assert aggregator.open(answer, limit=100).session_key
    second, _ = aggregator.seal(letter("aggregator", "north", b"sum"), bound=100)
    third = north.open(second, limit=100)
    assert third.session_key == b""
    assert third.payload == b"sum"
    thief = {name: post_of(name) for name in ("aggregator", "north")}  # with all that the list has
    assert thief["north"].open(first, limit=100).payload == b"join"
    refused(lambda: thief["aggregator"].open(answer, limit=100), "key-not-here")
    refused(lambda: thief["north"].open(second, limit=100), "key-not-here")
    north.end("a1")
    assert [each for each in store.all() if each[0]] == []
    refused(lambda: north.open(second, limit=100), "key-not-here")


def test_keys_of_a_session_outlive_a_kill_and_are_erased_at_its_end(tmp_path):
    def started(name):
        party = parties()[name]
        return Post(identity_of(party), sealing_of(party), FileKeys(tmp_path / name))

    for name in ("aggregator", "north"):
        post_of(name, FileKeys(tmp_path / name))
    aggregator, north = started("aggregator"), started("north")
    for turn in range(4):
        sent, mark = aggregator.seal(letter("aggregator", "north", bytes([turn])), bound=100)
        assert north.open(sent, limit=100).mark == mark
        north = started("north")
        assert north.knows("aggregator")
        north.open(sent, limit=100)
        back, _ = north.seal(letter("north", "aggregator", question=mark), bound=100)
        aggregator = started("aggregator")
        assert aggregator.open(back, limit=100).question == mark
    secret = next((tmp_path / "north" / "a1").glob("-own*")).read_bytes()
    north.end("a1")
    left = b"".join(each.read_bytes() for each in tmp_path.rglob("north/*/*"))
    assert secret not in left
    assert not (tmp_path / "north" / "a1").exists()


def test_no_key_is_taken_for_zeros_where_its_erasure_was_cut_off(tmp_path, monkeypatch):
    keys = FileKeys(tmp_path)
    keys.put("a1", "", b"k" * 96)
    keys.put("b2", "", b"l" * 96)
    with monkeypatch.context() as cut:
        cut.setattr(endpoint.shutil, "rmtree", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            keys.end("a1")
    assert FileKeys(tmp_path).all() == {("b2", ""): b"l" * 96}
    assert [each.name for each in tmp_path.iterdir()] == ["b2"]


def test_a_session_key_that_was_shown_stays():
    aggregator, north = post_of("aggregator"), post_of("north")
    aggregator.open(north.seal(letter("north", "aggregator"), bound=9)[0], limit=9)
    other = post_of("north").seal(letter("north", "aggregator"), bound=9)[0]
    refused(lambda: aggregator.open(other, limit=9), "other-session-key")


def test_a_hello_brings_the_key_that_the_list_has_and_a_list():
    party = parties()["north"]
    north = Post(identity_of(party), sealing_of(party), MemoryKeys())
    refused(lambda: north.seal(letter("north", "aggregator"), bound=9), "unknown-key")
    assert not north.knows("aggregator")
    hello = post_of("aggregator").hello("north", b"a list")
    assert is_hello(hello)
    assert brought_list(hello) == b"a list"
    assert list_of_hello(hello) == identity_of(party).members.digest
    assert north.learn(hello) == "aggregator"
    assert north.knows("aggregator")
    sealed = north.seal(letter("north", "aggregator"), bound=9)[0]
    refused(lambda: north.learn(sealed), "wrong-recipient")
    refused(lambda: post_of("aggregator").learn(sealed), "malformed")
    refused(lambda: north.open(hello, limit=2000), "key-not-here")
    stranger = Post(identity_of(party), sealing_of(parties()["south"]), MemoryKeys())
    refused(lambda: post_of("aggregator").learn(stranger.hello("aggregator")), "other-sealing-key")


def test_a_party_with_another_list_is_named_and_can_be_told():
    north, aggregator = post_of("north"), post_of("aggregator")
    text = letter("north", "aggregator", b"x", members="cd" * 32)
    with pytest.raises(OtherMembers) as found:
        aggregator.open(north.seal(text, bound=9)[0], limit=9)
    assert found.value.code == "other-members"
    assert found.value.envelope.payload == b"x"
    sealed = north.seal(dataclasses.replace(text, code="other-members"), bound=9)[0]
    assert aggregator.open(sealed, limit=9).payload == b"x"


def test_a_key_of_one_session_opens_no_other_and_no_other_federation():
    aggregator = post_of("aggregator")
    aggregator.seal(letter("aggregator", "north"), bound=9)
    identity, own = identity_of(parties()["north"]), identity_of(parties()["aggregator"])
    public = aggregator._own["a1"].public
    keys = [each.signer.public_key.text for each in (identity, own)]

    def made(text, federation=None):
        """As the sender itself would make it."""
        start = envelopes.start_of(identity, hashlib.sha256(public).digest(), "aggregator")
        start = start if federation is None else start[:4] + federation + start[36:]
        inside = envelopes.encoded(text, 9)
        sealed = encrypt_to(public, inside, envelopes.info_of(start, *keys))
        return envelopes.signed(identity, start, sealed)

    good = letter("north", "aggregator", b"x", members=identity.members.digest)
    assert aggregator.open(made(good), limit=9).payload == b"x"
    other = dataclasses.replace(good, session="b2")
    refused(lambda: aggregator.open(made(other), limit=9), "malformed")
    refused(lambda: aggregator.open(made(good, bytes(32)), limit=9), "wrong-federation")


def test_keys_of_both_parties_are_part_of_the_seal():
    north, aggregator = post_of("north"), post_of("aggregator")
    large = north.seal(letter("north", "aggregator"), bound=999)[0]
    refused(lambda: aggregator.open(large, limit=9), "too-large")
    inside = envelopes.encoded(letter("south", "aggregator"), 9)
    key, identity = sealing_of(parties()["aggregator"]).public, identity_of(parties()["south"])
    start = envelopes.start_of(identity, hashlib.sha256(key).digest(), "aggregator")
    info = envelopes.info_of(start, "a", "b")
    unbound = envelopes.signed(identity, start, encrypt_to(key, inside, info))
    refused(lambda: aggregator.open(unbound, limit=9), "seal-broken")


def test_a_carrier_is_found_by_its_scheme_and_its_extra_is_named(monkeypatch):
    class Found:
        def __init__(self, carrier):
            self.carrier = carrier

        def load(self):
            if self.carrier is None:
                raise ImportError("no httpx", name="httpx")
            return self.carrier

    class Box:
        def open(self, party, address):
            return party.name, address

    known = {"box": Found(Box), "https": Found(None)}
    monkeypatch.setattr(
        mailbox, "entry_points", lambda group, name: [e for n, e in known.items() if n == name]
    )
    monkeypatch.setattr(mailbox, "schemes", lambda: iter(known))
    party = parties()["north"]
    assert open_mailbox(party, "box:x") == ("north", "box:x")
    refused(lambda: open_mailbox(party, "pigeon:x"), "no-carrier")
    with pytest.raises(ProtocolError, match=r"eigenveil\[sites\]"):
        open_mailbox(party, "https://x")
