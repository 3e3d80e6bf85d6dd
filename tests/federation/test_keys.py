"""Keys and shares: pairs agree, nothing serves two uses, too few shares say nothing."""

import itertools
import os
import secrets
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil.errors import ProtocolError
from eigenveil.federation.secagg import keys as keys_module
from eigenveil.federation.secagg.consistency import statement
from eigenveil.federation.secagg.keys import (
    SECRET_BYTES,
    Context,
    RoundFacts,
    SiteKeys,
    derive,
    is_signed,
    join_secret,
    pair_key,
    point_of,
    self_key,
    split_secret,
)
from soak_tools import times
from statistics_tools import FALSE_ALARM, chi_square

HERE = Context("study", "session")
ABOUT = "ab" * 32
NAMES = ("one", "other")
TURNS = range(1, 7)
PRIME = 2**255 - 19
# Points of small order, and one that is no multiple of the base point's subgroup (RFC 7748, 6.1).
LOW_ORDER = [
    "00" * 32,
    "01" + "00" * 31,
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


def facts(round_number=1, request_digest=ABOUT, joined="ff", members="ff"):
    return RoundFacts(round_number, request_digest, joined, members)


def site(context=HERE, master=None):
    return SiteKeys(master or SiteKeys.new_master(), context)


def test_two_sites_agree_on_the_key_of_every_round():
    one, other = site(), site()
    for round_number in TURNS:
        mine = one.pair_key(other.public_key(round_number), facts(round_number), NAMES)
        assert mine == other.pair_key(
            one.public_key(round_number), facts(round_number), NAMES[::-1]
        )
        # and whoever is given the secret of one of them in the end
        seed = one.pair_seed(round_number)
        assert mine == pair_key(
            seed, other.public_key(round_number), HERE, facts(round_number), NAMES
        )


def test_a_third_site_has_another_key():
    one, other, third = site(), site(), site()
    assert one.pair_key(other.public_key(1), facts(), NAMES) != third.pair_key(
        other.public_key(1), facts(), NAMES
    )


def test_sites_that_were_told_different_things_have_different_keys():
    """Of the round, the question, who takes part, or who the two of them are."""
    one, other = site(), site().public_key(1)
    reported = [
        (facts(), NAMES),
        (facts(request_digest="cd" * 32), NAMES),
        (facts(joined="fe"), NAMES),
        (facts(members="fe"), NAMES),
        (facts(joined="f", members="fff"), NAMES),
        (facts(), ("one", "third")),
        (facts(), ("third", "other")),
        (facts(), ("oneo", "ther")),
        (facts(), ("one", 'other", "third')),
    ]
    found = {one.pair_key(other, each, names) for each, names in reported}
    assert len(found) == len(reported)


def test_a_key_has_one_encoding_and_no_twin():
    """Bit 255, which X25519 ignores; u + p; and points that a small one was added to."""
    for _ in range(20):
        public = site().public_key(1)
        assert point_of(public) == point_of(bytes(public))
        twin = public[:31] + bytes([public[31] | 128])
        with pytest.raises(ProtocolError) as caught:
            point_of(twin)
        assert caught.value.code == "bad-key"
    for small in range(19):  # the only ones that have a second encoding below 2^255
        with pytest.raises(ProtocolError):
            point_of((PRIME + small).to_bytes(32, "little"))
    assert len({point_of(site().public_key(1)) for _ in range(20)}) == 20


def test_keys_that_derive_the_same_are_the_same_point():
    """A key and those that differ from it by a point of small order: other bytes, one key.

    On the Montgomery curve v^2 = u^3 + 486662 u^2 + u the point (0, 0) has order 2, and adding it
    takes u to 1/u.
    """
    one, other = site(), site()
    public = other.public_key(1)
    twin = pow(int.from_bytes(public, "little"), -1, PRIME).to_bytes(32, "little")
    assert twin != public
    assert one.pair_key(twin, facts(), NAMES) == one.pair_key(public, facts(), NAMES)
    assert point_of(twin) == point_of(public)


def test_the_probe_is_no_multiple_of_a_subgroups_order():
    """Else points would count as one that are not."""
    order = 2**252 + 27742317777372353535851937790883648493
    twisted = (2 * PRIME + 2 - 8 * order) // 4
    secret = int.from_bytes(keys_module._PROBE.private_bytes_raw(), "little")
    clamped = (secret & ~7 & ~(1 << 255)) | 1 << 254
    assert clamped // 8 % order
    assert clamped // 8 % twisted


def test_signatures_are_of_one_text_by_one_site():
    one, other = site(), site()
    signature = one.sign(b"text")
    assert is_signed(b"text", one.signing_public_key(), signature)
    for text, key, found in (
        (b"texT", one.signing_public_key(), signature),
        (b"text", other.signing_public_key(), signature),
        (b"text", one.signing_public_key(), signature[:-1]),
        (b"text", one.signing_public_key(), bytes(64)),
        (b"text", b"", signature),
    ):
        assert not is_signed(text, key, found)
    again = site(Context("study", "another"), one._master)
    assert again.signing_public_key() != one.signing_public_key()


def test_every_use_has_a_key_of_its_own():
    """Over studies, sessions, rounds, labels and what is asked; names that could run together."""
    master, other = SiteKeys.new_master(), site()
    contexts = [
        Context(study, session)
        for study, session in itertools.product(("a", "a|b", "b", '","'), ("s", "b|s", '","s'))
    ]
    found = []
    for context in contexts:
        keys = site(context, master)
        found += [derive(master, context, label) for label in ("x", "s|x", "b|s|x")]
        found += [keys.channel_public_key(), keys.signing_public_key()]
        for round_number in TURNS:
            public = other.public_key(round_number)
            found += [
                keys.pair_seed(round_number),
                keys.self_seed(round_number),
                keys.public_key(round_number),
            ]
            reported = [
                facts(round_number, request_digest) for request_digest in ("", ABOUT, "cd" * 32)
            ]
            found += [keys.pair_key(public, each, NAMES) for each in reported]
            found += [self_key(keys.self_seed(round_number), context, round_number)]
    assert len(set(found)) == len(found)


def test_derived_keys_are_stable():
    """Answers are made again after a restart: the derivation is part of the protocol."""
    keys = SiteKeys(bytes(range(32)), Context("study", "session"))
    assert keys.pair_seed(1) == SiteKeys(bytes(range(32)), HERE).pair_seed(1)
    assert len(keys.pair_seed(1)) == len(keys.self_seed(1)) == SECRET_BYTES
    assert len({len(derive(b"x" * 32, HERE, "y", size=size)) for size in (16, 32)}) == 2


def test_masters_are_fresh():
    assert len({SiteKeys.new_master() for _ in range(100)}) == 100


def test_what_is_sealed_opens_for_the_receiver_alone():
    one, other, third = site(), site(), site()
    to, sender = other.channel_public_key(), one.channel_public_key()
    text = os.urandom(50)
    sealed = one.seal(text, to=to, label="a for b")
    assert text not in sealed
    assert other.unseal(sealed, sender=sender, name="one", label="a for b") == text
    wrong = [
        (third, sender, "a for b", sealed),  # another receiver
        (other, third.channel_public_key(), "a for b", sealed),  # another sender
        (other, sender, "b for a", sealed),  # another label
        (other, sender, "a for b", sealed[:-1]),
        (other, sender, "a for b", b""),
        (other, sender, "a for b", sealed + b"\0"),
    ]
    wrong += [
        (other, sender, "a for b", sealed[:i] + bytes([sealed[i] ^ 1]) + sealed[i + 1 :])
        for i in range(len(sealed))
    ]
    for receiver, claimed, label, data in wrong:
        with pytest.raises(ProtocolError, match="one") as caught:
            receiver.unseal(data, sender=claimed, name="one", label=label)
        assert caught.value.code == "bad-seal"


def test_a_seal_of_another_session_does_not_open():
    masters = SiteKeys.new_master(), SiteKeys.new_master()
    there = Context("study", "another")
    one, other = (site(HERE, master) for master in masters)
    sealed = one.seal(b"text", to=other.channel_public_key(), label="x")
    for sender in (site(there, masters[0]), one):
        with pytest.raises(ProtocolError):
            site(there, masters[1]).unseal(
                sealed, sender=sender.channel_public_key(), name="one", label="x"
            )


@pytest.mark.parametrize("point", LOW_ORDER)
def test_points_of_small_order_are_refused(point):
    keys, public = site(), bytes.fromhex(point)
    for attempt in (
        lambda: point_of(public),
        lambda: keys.pair_key(public, facts(), NAMES),
        lambda: keys.seal(b"x", to=public, label="x"),
        lambda: keys.unseal(b"x" * 40, sender=public, name="one", label="x"),
    ):
        with pytest.raises(ProtocolError) as caught:
            attempt()
        assert caught.value.code == "bad-key"


@pytest.mark.parametrize("size", [0, 31, 33])
def test_keys_of_another_length_are_refused(size):
    with pytest.raises(ProtocolError):
        site().pair_key(bytes(os.urandom(size)), facts(), NAMES)


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
        statement(Context("other", HERE.session), about, "c0"),
        statement(Context(HERE.study, "other"), about, "c0"),
        statement(HERE, replace(about, round_number=2), "c0"),
        statement(HERE, replace(about, request_digest="cd" * 32), "c0"),
        statement(HERE, replace(about, joined="e0"), "c0"),
        statement(HERE, replace(about, members="f0"), "c0"),
        statement(HERE, about, "e0"),
    ]
    assert len({said, *others}) == 8
