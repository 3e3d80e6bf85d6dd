"""Lists and requests that the registrar, or the party, never made."""

import base64
import hashlib
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import EigenveilError
from eigenveil.federation.members import Evidence, ListHead, MemberList, digest_of
from eigenveil.federation.public_key import KeySigner
from eigenveil.federation.signed import Signed
from eigenveil.network.folder import PartyKeys, read_signer
from eigenveil.network.members import line, read_members
from eigenveil.network.registrar import Registrar, Request, new_request, read_request, request_line
from federation_tools import World, code_of


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("office"))
    world.admit("north", "south", "west")
    return world


def replaced(value, path, new):
    """The same JSON with another value at a place."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def places(value, path=()):
    """All places of single values."""
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    if not isinstance(value, dict | list):
        yield path
    for key, inner in pairs:
        yield from places(inner, (*path, key))


def other_value(value, chance):
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return value + chance.choice([-1, 1])
    if not value:
        return "x"
    at = chance.randrange(len(value))
    return value[:at] + chance.choice("0123456789abcdefxyz:+") + value[at + 1 :]


@given(st.randoms())
def test_no_value_of_a_list_can_be_changed(office, chance):
    registrar, origin = office.registrar, office.origin
    good = json.loads(line(registrar.current()))
    place = chance.choice(list(places(good)))
    value = good
    for step in place:
        value = value[step]
    new = other_value(value, chance)
    if new == value:
        return
    assert code_of(read_members, json.dumps(replaced(good, place, new)).encode(), origin) in {
        "bad-members",
        "bad-public-key",
        "list-of-other-federation",
    }


def test_entries_and_heads_cannot_be_dropped_doubled_or_reordered(office):
    registrar, origin = office.registrar, office.origin
    good = registrar.current()
    first, second, third = good.entries
    heads = good.heads
    for changed in (
        {"entries": (first, second)},
        {"entries": (*good.entries, third)},
        {"entries": (second, first, third)},
        {"entries": ()},
        {"heads": heads[1:]},
        {"heads": (*heads, heads[-1])},
        {"heads": tuple(reversed(heads))},
        {"heads": (heads[0], heads[0])},
    ):
        forged = good.model_copy(update=changed)
        assert code_of(read_members, line(forged), origin) == "bad-members"
    assert read_members(line(good), origin) == good


def next_head(before, *, entries=None, **changes):
    update = {"number": before.head.number + 1, "previous": before.digest}
    if entries is not None:
        update["entries"] = digest_of(each.digest for each in entries)
    return before.head.model_copy(update=update | changes)


def refuses(office, head, *signers, entries=None):
    """A list with one more head is none, whoever signs it."""
    good = office.registrar.current()
    heads = (*good.heads, Signed[ListHead].by(head, *signers))
    made = MemberList(heads=heads, entries=good.entries if entries is None else entries)
    assert code_of(read_members, line(made), office.origin) == "bad-members"


def test_another_key_signs_no_list(office):
    """Of a list with the attacker's key in north's place: signed by who is not the registrar."""
    good, own = office.registrar.current(), KeySigner.new()
    forged = good.entries[0].model_copy(update={"key": own.public_key.text})
    entries = (forged, *good.entries[1:])
    taking = {"registrar": own.public_key.text}
    for head, signer in (
        # under the registrar's name, by the attacker, or by a member
        (next_head(good, entries=entries), own),
        (next_head(good, entries=entries), office.keys["south"].signer),
        # a change of the registrar that the registrar did not sign
        (next_head(good, entries=entries, **taking), own),
    ):
        refuses(office, head, signer, entries=entries)
    # signatures of other texts
    head = Signed[ListHead](
        said=next_head(good, entries=entries), signatures=good.heads[-1].signatures
    )
    made = MemberList(heads=(*good.heads, head), entries=entries)
    assert code_of(read_members, line(made), office.origin) == "bad-members"
    # a federation of the attacker's own under the same name
    first = good.heads[0].said.model_copy(update=taking)
    made = MemberList(heads=(Signed[ListHead].by(first, own),), entries=())
    assert code_of(read_members, line(made), office.origin) == "bad-members"


def test_the_registrars_key_alone_does_not_change_the_registrar(office):
    """A stolen key signs lists, but names no other registrar than the one that was announced."""
    good, own, stolen = office.registrar.current(), KeySigner.new(), office.registrar.signer
    taken = next_head(good, registrar=own.public_key.text)
    later = read_signer(office.registrar.next_file)
    announced = next_head(good, registrar=later.public_key.text)
    refuses(office, taken, own, stolen)
    refuses(office, taken, stolen)
    refuses(office, announced, later)  # nor does the key that was kept offline
    refuses(office, announced, stolen)


def test_a_chain_is_of_one_history_and_its_numbers_follow(office):
    """Signed by the registrar, all of them: a gap, a number twice, another history, for ever."""
    good, signer = office.registrar.current(), office.registrar.signer
    other = next_head(good, address="folder:/elsewhere")
    after = next_head(good).model_copy(update={"number": good.head.number + 2})
    for head in (
        after,
        next_head(good, number=good.head.number),
        next_head(good, previous=""),
        next_head(good, previous=good.heads[0].said.digest),
        next_head(good, until=good.head.since.replace(year=good.head.since.year + 1)),
    ):
        refuses(office, head, signer)
    # which follows from the head before the other
    signed = [Signed[ListHead].by(each, signer) for each in (other, after)]
    made = MemberList(heads=(*good.heads, *signed), entries=good.entries)
    assert code_of(read_members, line(made), office.origin) == "bad-members"


@given(st.binary(max_size=300))
def test_what_is_no_list_changes_nothing(office, data):
    party = office.party()
    party.adopt(office.data())
    assert code_of(party.adopt, data) == "bad-members"
    assert party.mark()[0] == office.registrar.current().head.number


def test_evidence_of_a_certificate_cannot_be_made_up(office):
    registrar, origin = office.registrar, office.origin
    good = Evidence.of(registrar.current(), ["north"])
    good.check(origin)
    own = PartyKeys.new()
    forged = good.entries[0].model_copy(update={"key": own.signer.public_key.text})
    stranger = good.entries[0].model_copy(update={"name": "stranger"})
    for changed in (
        {"entries": (forged,)},
        {"entries": (stranger,)},
        {"entries": (forged,), "digests": (forged.digest, *good.digests[1:])},
        {"digests": good.digests[1:]},
        {"digests": (*good.digests[1:], good.digests[0])},
        {"heads": registrar.current().heads[:1]},
    ):
        assert code_of(good.model_copy(update=changed).check, origin) == "bad-members"
    other = Registrar.new(office.folder / "other", "trial")
    theirs = Evidence.of(other.current(), [])
    assert code_of(theirs.check, origin) == "list-of-other-federation"
    assert good.key("site", "north") == office.keys["north"].signer.public_key


# -- requests


@given(st.data())
def test_a_typing_error_in_a_request_is_one_clear_sentence(office, data):
    origin = office.origin
    text = request_line(new_request(origin, "site", "east", "", KEYS), KEYS.signer)
    at = data.draw(st.integers(0, len(text) - 1))
    new = data.draw(st.sampled_from("aA0-_:=é"))
    changed = data.draw(
        st.sampled_from(
            [text[:at] + new + text[at + 1 :], text[:at] + text[at + 1 :], text[:at], text * 2]
        )
    )
    if changed == text:
        return
    with pytest.raises(EigenveilError) as found:
        read_request(changed)
    assert found.value.code == "not-a-request"
    assert found.value.message.count(". ") == 0


KEYS = PartyKeys.new()


def test_lines_that_a_mail_program_broke_are_whole(office):
    origin = office.origin
    text = request_line(new_request(origin, "site", "east", "Haus Ä, Nord", KEYS), KEYS.signer)
    assert len(text) < 1000
    broken = "\r\n  ".join(text[at : at + 70] for at in range(0, len(text), 70))
    assert read_request(f" {broken}\n") == read_request(text)


def test_a_line_says_in_clear_what_is_signed(office):
    origin = office.origin
    text = request_line(new_request(origin, "site", "east", "", KEYS), KEYS.signer)
    for changed in (text.replace(":east:", ":west:"), text.replace(":site:", ":lead:")):
        assert code_of(read_request, changed) == "not-a-request"


def with_checksum(signed):
    """A line around any content, as an attacker makes it."""
    said, body = signed.said, base64.urlsafe_b64encode(signed.line()).decode()
    digest = hashlib.sha256(body.encode()).hexdigest()[:8]
    return f"eigenveil-request-1:{said.role}:{said.name}:{body}:{digest}"


def test_nobody_asks_with_a_key_that_is_not_theirs(office):
    """In the attacker's name with north's key, or in north's name with the attacker's key."""
    registrar, origin = office.registrar, office.origin
    north, own = office.keys["north"], PartyKeys.new()
    key = north.signer.public_key.text
    good = new_request(origin, "site", "east", "", own)
    signed = Signed[Request].by(good, own.signer)
    for change in (
        {"key": key},
        {"name": "north"},
        {"role": "lead"},
        {"sealing": north.sealing.digest},
        {"federation": "0" * 64},
        {"organisation": "Another"},
    ):
        forged = signed.model_copy(update={"said": good.model_copy(update=change)})
        assert code_of(read_request, with_checksum(forged)) == "not-signed"
    # signed by the attacker as they like
    before = registrar.current()

    def asked(*signers, **changes):
        said = good.model_copy(update=changes)
        return read_request(with_checksum(Signed[Request].by(said, own.signer, *signers)))

    for change, code in [
        ({"name": "north"}, "party-taken"),
        ({"name": "NORTH"}, "bad-members"),
        ({"name": "north", "replaces": key}, "party-taken"),
        ({"name": "north", "role": "lead"}, "role-taken"),
        ({"sealing": north.sealing.digest}, "twin-keys"),
        ({"federation": "0" * 64}, "request-of-other-federation"),
    ]:
        assert code_of(registrar.admit, [asked(**change)]) == code, change
    lead = asked(name="north", role="lead")
    assert code_of(registrar.admit, [lead], replace=True) == "role-taken"
    # the old key's word, but about nothing
    assert code_of(registrar.admit, [asked(north.signer, name="north")]) == "party-taken"
    assert registrar.current() == before
    # two of one name in one breath
    assert code_of(registrar.admit, [asked(), asked()]) == "twin-keys"
    third = new_request(origin, "site", "east", "", KEYS)
    third = read_request(request_line(third, KEYS.signer))
    assert code_of(registrar.admit, [asked(), third]) == "party-taken"


def test_a_replaced_key_takes_the_word_of_the_old_one_or_of_the_registrar(tmp_path):
    world, new = World(tmp_path), PartyKeys.new()
    world.admit("north")
    old, admit = world.keys["north"], world.registrar.admit
    text = old.signer.public_key.text
    request = new_request(world.origin, "site", "north", "", new, replaces=text)
    alone = read_request(request_line(request, new.signer))
    assert code_of(admit, [alone]) == "party-taken"
    both = read_request(request_line(request, new.signer, old.signer))
    assert admit([both]).entries[-1].key == new.signer.public_key.text
    assert code_of(admit, [both]) == "twin-keys"  # nor a second time
    lost = world.request("north")
    key = world.keys["north"].signer.public_key.text
    assert admit([lost], replace=True).entries[-1].key == key


def test_changes_of_all_kinds_at_random(office):
    """Changed, dropped and added bytes of a list: none is taken, none crashes."""
    registrar, origin = office.registrar, office.origin
    good, chance = line(registrar.current()), random.Random()
    whole = read_members(good, origin)
    for _ in range(400):
        data = bytearray(good)
        for _ in range(chance.choice([1, 1, 2, 25])):
            at = chance.randrange(len(data))
            match chance.randrange(3):
                case 0:
                    data[at] ^= 1 << chance.randrange(8)
                case 1:
                    del data[at : at + chance.randrange(1, 9)]
                case 2:
                    data[at:at] = bytes([chance.randrange(256)])
        try:
            found = read_members(bytes(data), origin)
        except EigenveilError:
            continue
        assert found == whole  # blanks and the like
