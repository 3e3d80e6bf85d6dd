"""Keys and shares: pairs agree, nothing serves two uses, too few shares say nothing."""

import itertools
import json
import os
import secrets
from dataclasses import replace

import pytest
from cryptography.exceptions import InvalidTag
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil.errors import ProtocolError
from eigenveil.federation.secagg.consistency import statement
from eigenveil.federation.secagg.keys import (
    SECRET_BYTES,
    Context,
    RoundFacts,
    SiteKeys,
    derive,
    join_secret,
    letter_bytes,
    lock,
    mask_key,
    round_key,
    self_key,
    split_secret,
    unlock,
)
from soak_tools import times
from statistics_tools import FALSE_ALARM, chi_square

HERE = Context("study", "session", "list")
ABOUT = "ab" * 32
NAMES = ("one", "other")
TURNS = range(1, 7)


def facts(round_number=1, request_digest=ABOUT, joined="ff", members="ff"):
    return RoundFacts(round_number, request_digest, joined, members)


def site(context=HERE, master=None):
    return SiteKeys(master or SiteKeys.new_master(), context)


def letters(one, other, names=NAMES, more=(b"", b"")):
    """What either site seals for the other."""
    return (
        one.letter(more[0], key=other.sealing.public, names=names),
        other.letter(more[1], key=one.sealing.public, names=names[::-1]),
    )


def agreed(one, other, names=NAMES):
    """The secret as either site has it."""
    sent, back = letters(one, other, names)
    theirs, _ = one.opened(back, names=names[::-1])
    mine, _ = other.opened(sent, names=names)
    return one.pair(names[1], theirs, own=names[0]), other.pair(names[0], mine, own=names[1])


def test_two_sites_agree_on_one_secret_and_a_key_of_every_round():
    one, other = site(), site()
    mine, theirs = agreed(one, other)
    assert mine == theirs
    assert mine not in (agreed(site(), other)[0], agreed(one, site())[0])
    found = {round_key(mine, HERE, t, NAMES) for t in TURNS}
    assert found == {round_key(theirs, HERE, t, NAMES[::-1]) for t in TURNS}
    assert len(found) == len(TURNS)


def test_sites_that_were_told_different_things_have_different_keys():
    """Of the round, the question, who takes part, who the two are, and which list holds."""
    key = os.urandom(32)
    reported = [
        (HERE, facts(), NAMES),
        (HERE, facts(2), NAMES),
        (HERE, facts(request_digest="cd" * 32), NAMES),
        (HERE, facts(joined="fe"), NAMES),
        (HERE, facts(members="fe"), NAMES),
        (HERE, facts(joined="f", members="fff"), NAMES),
        (HERE, facts(), ("one", "third")),
        (HERE, facts(), ("third", "other")),
        (HERE, facts(), ("oneo", "ther")),
        (HERE, facts(), ("one", 'other", "third')),
        (replace(HERE, members="another"), facts(), NAMES),
        (replace(HERE, session="another"), facts(), NAMES),
    ]
    assert len({mask_key(key, *each) for each in reported}) == len(reported)
    pairs = {site(each, bytes(32)).pair("other", bytes(32), own="one") for each, _, _ in reported}
    assert len(pairs) == 3


def test_a_letter_of_somebody_else_gives_a_key_that_it_does_not_know():
    """Who carries letters may put one of its own in any place: it has but one of two halves."""
    one, other, carrier = site(), site(), site()
    forged = carrier.letter(b"", key=other.sealing.public, names=NAMES)
    half, _ = other.opened(forged, names=NAMES)  # it cannot be told from one of the site
    assert half == carrier.half("other")
    made = other.pair("one", half, own="other")
    known = (carrier.half("other"), carrier.half("one"), bytes(32))
    assert made not in {carrier.pair("other", each, own="one") for each in known}
    assert made != agreed(one, other)[0]
    # what the site sealed for the other one opens for that one alone
    with pytest.raises(ProtocolError):
        carrier.opened(letters(one, other)[1], names=NAMES[::-1])


def test_every_use_has_a_key_of_its_own():
    """Over lists, studies, sessions, rounds, labels and what is asked; names that run together."""
    master = SiteKeys.new_master()
    contexts = [
        Context(study, session, members)
        for study, session, members in itertools.product(
            ("a", "a|b", "b", '","'), ("s", "b|s", '","s'), ("", "m")
        )
    ]
    found = []
    for context in contexts:
        keys = site(context, master)
        found += [derive(master, context, label) for label in ("x", "s|x", "b|s|x")]
        found += [keys.sealing.public, keys.half("a"), keys.half("b"), keys.half('a","b')]
        found += [keys.pair(name, keys.half(name), own="own") for name in "ab"]
        for turn in TURNS:
            found += [keys.repair_secret(turn), keys.self_seed(turn)]
            found += [round_key(master, context, turn, NAMES)]
            found += [mask_key(master, context, facts(turn, each), NAMES) for each in ("", ABOUT)]
            found += [self_key(keys.self_seed(turn), context, turn)]
    assert len(set(found)) == len(found)


@given(st.lists(st.text() | st.integers(0, 99), min_size=1, max_size=4), st.text(max_size=9))
def test_a_label_is_a_list_in_json(use, name):
    """So no two uses run together, whatever the names."""
    label = Context(name, "session", "list").label(*use)
    assert label == json.dumps(["eigenveil 2", "list", name, "session", *use]).encode()
    assert json.loads(label)[4:] == use


def test_derived_keys_are_stable():
    """Answers are made again after a restart: the derivation is part of the protocol."""
    keys, again = (site(HERE, bytes(range(32))) for _ in range(2))
    assert keys.sealing.public == again.sealing.public
    assert keys.half("x") == again.half("x")
    assert len(keys.repair_secret(1)) == len(keys.self_seed(1)) == SECRET_BYTES
    assert len({SiteKeys.new_master() for _ in range(100)}) == 100


def test_a_letter_opens_for_its_receiver_alone_and_whole():
    one, other, third = site(), site(), site()
    text = os.urandom(50)
    sealed, _ = letters(one, other, more=(text, b""))
    assert len(sealed) == letter_bytes(50)
    assert text not in sealed
    assert one.half("other") not in sealed
    assert other.opened(sealed, names=NAMES) == (one.half("other"), text)
    there = site(replace(HERE, session="another"), other._master)
    wrong = [
        (third, NAMES, sealed),
        (there, NAMES, sealed),
        (other, ("third", "other"), sealed),
        (other, ("one", "third"), sealed),
        (other, NAMES[::-1], sealed),
        (other, NAMES, sealed[:-1]),
        (other, NAMES, b""),
        (other, NAMES, sealed + b"\0"),
    ]
    wrong += [
        (other, NAMES, sealed[:i] + bytes([sealed[i] ^ 1]) + sealed[i + 1 :])
        for i in range(0, len(sealed), 7)
    ]
    for receiver, names, data in wrong:
        with pytest.raises(ProtocolError, match=names[0]) as caught:
            receiver.opened(data, names=names)
        assert caught.value.code == "bad-seal"


def test_what_is_locked_opens_with_its_secret_for_its_use():
    secret, text = os.urandom(SECRET_BYTES), os.urandom(100)
    locked = lock(secret, text, HERE, "packet", 1, "one")
    assert unlock(secret, locked, HERE, "packet", 1, "one") == text
    for other, changed, use in (
        (bytes(SECRET_BYTES), locked, ("packet", 1, "one")),
        (secret, locked[:-1] + b"\0", ("packet", 1, "one")),
        (secret, locked, ("packet", 2, "one")),
        (secret, locked, ("packet", 1, "other")),
    ):
        with pytest.raises(InvalidTag):
            unlock(other, changed, HERE, *use)


@pytest.mark.parametrize("holders", range(1, 9))
def test_any_threshold_of_shares_gives_the_secret_back(holders):
    secret = os.urandom(SECRET_BYTES)
    for threshold in range(1, holders + 1):
        shares = split_secret(secret, threshold=threshold, holders=holders)
        assert len(shares) == holders
        assert all(len(share) == SECRET_BYTES for share in shares)
        for chosen in itertools.combinations(range(holders), threshold):
            found = {holder: shares[holder] for holder in chosen}
            assert join_secret(found, threshold=threshold) == secret
        everyone = dict(enumerate(shares))
        assert join_secret(everyone, threshold=threshold) == secret


@given(st.integers(2, 30), st.data())
@settings(max_examples=times(100))
def test_fewer_shares_do_not_give_it_back(holders, data):
    """False alarm: 2**-128 each."""
    threshold = data.draw(st.integers(2, holders))
    secret = secrets.token_bytes(SECRET_BYTES)
    shares = split_secret(secret, threshold=threshold, holders=holders)
    some = data.draw(st.sets(st.integers(0, holders - 1), max_size=threshold - 1, min_size=1))
    found = {holder: shares[holder] for holder in some}
    assert secret not in found.values()
    assert join_secret(found, threshold=len(some)) != secret


def test_a_share_below_the_threshold_is_uniform_whatever_the_secret():
    """Its bytes, over many splits of one secret; false alarm 1e-8."""
    secret = bytes(SECRET_BYTES)
    data = b"".join(split_secret(secret, threshold=2, holders=2)[1] for _ in range(2000))
    counts = [sum(data.count(bytes([b])) for b in range(i, i + 16)) for i in range(0, 256, 16)]
    assert chi_square(counts, [1 / 16] * 16) > FALSE_ALARM


def test_shares_of_two_secrets_do_not_mix():
    one, other = (split_secret(os.urandom(SECRET_BYTES), threshold=2, holders=3) for _ in range(2))
    mixed = join_secret({0: one[0], 1: other[1]}, threshold=2)
    assert mixed not in (
        join_secret(dict(enumerate(one)), threshold=2),
        join_secret(dict(enumerate(other)), threshold=2),
    )


def test_a_signature_is_of_the_whole_statement_about_a_round():
    about = facts(joined="f0", members="e0")
    said = statement(HERE, about, "c0")
    others = [
        statement(replace(HERE, study="other"), about, "c0"),
        statement(replace(HERE, session="other"), about, "c0"),
        statement(replace(HERE, members="other"), about, "c0"),
        statement(HERE, replace(about, round_number=2), "c0"),
        statement(HERE, replace(about, request_digest="cd" * 32), "c0"),
        statement(HERE, replace(about, joined="e0"), "c0"),
        statement(HERE, replace(about, members="f0"), "c0"),
        statement(HERE, about, "e0"),
    ]
    assert len({said, *others}) == 9
