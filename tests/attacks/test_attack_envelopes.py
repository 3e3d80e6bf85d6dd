"""Attacks on envelopes, where they are put and where they are taken."""

import hashlib
import random

import pytest

from eigenveil.errors import ProtocolError
from eigenveil.federation.sealing import encrypt_to
from eigenveil.network import envelopes
from eigenveil.network.envelopes import OtherMembers
from eigenveil.network.folder import identity_of, sealing_of
from mailbox_tools import MemoryMailboxes
from network.contract import letter, parties, post_of
from soak_tools import count, times

SITES = ("north", "south", "west")
STEPS = ("join", "keys", "round 1", "round 2", "end", "members", "status")
BOUND = 600
# What may be said of something that nobody sealed for this party.
REFUSED = {
    "bad-identity",
    "damaged",
    "seal-broken",
    "malformed",
    "not-a-member",
    "too-large",
    "unknown-key",
    "wrong-federation",
    "wrong-recipient",
}


class World:
    """Parties that have talked in two sessions, and all that was carried."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.posts = {name: post_of(name) for name in ("aggregator", "lead", *SITES)}
        self.boxes = MemoryMailboxes()
        self.carried = []
        for session in ("a1", "b2"):
            for step in STEPS:
                for site in SITES:
                    question = self.say("aggregator", site, step, session)
                    self.say(site, "aggregator", step, session, question=question)
        self.say("lead", "aggregator", "status", "")
        self.carried += [
            (post.hello(other), name, other, None)
            for name, post in self.posts.items()
            for other in self.posts
            if other != name
        ]

    def say(self, sender, recipient, step, session, **fields):
        body = self.chance.randbytes(self.chance.randrange(BOUND))
        text = letter(sender, recipient, body, step=step, session=session, **fields)
        data, mark = self.posts[sender].seal(text, bound=BOUND)
        assert self.posts[recipient].open(data, limit=BOUND).mark == mark
        self.carried.append((data, sender, recipient, mark))
        return mark

    def brought(self, data, name):
        """What a party makes of what its carrier brings: its mark, nothing, or a code."""
        self.boxes.of("lead").put(name, data)  # anybody may put
        (data,) = self.boxes.of(name).take(0)
        self.boxes.of(name).forget([hashlib.sha256(data).hexdigest()])
        try:
            if envelopes.is_hello(data):
                self.posts[name].learn(data)
                return None
            return self.posts[name].open(data, limit=BOUND).mark
        except OtherMembers as error:
            return error.envelope.mark
        except ProtocolError as error:
            code = error.code
        assert code in REFUSED
        return code


@pytest.fixture(scope="module")
def world():
    seed = random.SystemRandom().getrandbits(64)
    print("seed", seed)
    return World(seed)


def changed(data, chance):
    """Some bits or bytes changed, cut, added, moved or doubled."""
    at, to = sorted(chance.randrange(len(data)) for _ in range(2))
    match chance.randrange(7):
        case 0:
            found = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        case 1:
            found = data[:at] + chance.randbytes(to - at) + data[to:]
        case 2:
            found = data[:at]
        case 3:
            found = data + chance.randbytes(1 + chance.randrange(9))
        case 4:
            found = data[:at] + data[to:]
        case 5:
            found = data[:to] + data[at:]
        case _:  # within the header, where one bit says much
            place = chance.randrange(min(200, len(data)))
            found = data[:place] + chance.randbytes(1) + data[place + 1 :]
    return found


def test_nothing_changed_is_accepted(world):
    tried = accepted = 0
    known = {data for data, *_ in world.carried}
    for _ in range(times(16_000)):
        data, _, recipient, _ = world.chance.choice(world.carried)
        found = changed(data, world.chance)
        if found in known:
            continue
        tried += 1
        accepted += world.brought(found, recipient) not in REFUSED
    count("edited", "envelopes", tried, accepted)
    assert accepted == 0


def test_parts_of_several_make_none(world):
    tried = accepted = 0
    known = {data for data, *_ in world.carried}
    for _ in range(times(6_000)):
        first, _, recipient, _ = world.chance.choice(world.carried)
        other = world.chance.choice([each for each, *_ in world.carried if each != first])
        heads = [envelopes.header_of(each) for each in (first, other)]
        body = other[heads[1].size :]
        digest = hashlib.sha256(body).digest()
        signature = world.chance.choice(heads).signature
        found = heads[0].start + world.chance.choice([digest, heads[0].digest]) + signature + body
        if found in known:  # a hello is the same for all
            continue
        tried += 1
        accepted += world.brought(found, recipient) not in REFUSED
    count("forged", "envelopes of parts", tried, accepted)
    assert accepted == 0


def test_what_comes_again_or_late_or_to_others_says_what_it_said(world):
    accepted = 0
    full = times(10_000)
    for _ in range(full):
        data, _, recipient, mark = world.chance.choice(world.carried)
        name = world.chance.choice(list(world.posts))
        found = world.brought(data, name)
        accepted += found not in REFUSED if name != recipient else found != mark
    count("replayed", "envelopes", full, accepted)
    assert accepted == 0


def test_no_member_speaks_for_another(world):
    """With its own key, and all that it knows, a member makes what another would have sent."""
    full = times(8_000)
    accepted = 0
    known = {name: (identity_of(each), sealing_of(each)) for name, each in parties().items()}
    for turn in range(full):
        liar, sender = world.chance.sample(SITES, 2)
        recipient = world.chance.choice([each for each in world.posts if each != sender])
        identity, told, other = (known[name][0] for name in (liar, sender, recipient))
        to = known[recipient][1].public
        start = envelopes.start_of(told, hashlib.sha256(to).digest(), recipient)
        text = letter(sender, recipient, b"lies", session=world.chance.choice(["a1", "b2", "c3"]))
        inside = envelopes.encoded(text, BOUND)
        keys = [each.signer.public_key.text for each in (told, other)]
        sealed = encrypt_to(to, inside, envelopes.info_of(start, *keys))
        data = start + hashlib.sha256(sealed).digest()
        match turn % 4:
            case 0:  # signed by the liar
                made = envelopes.signed(identity, start, sealed)
            case 1:  # with a signature of the sender for something else
                old = [each for each, who, *_ in world.carried if who == sender]
                made = data + envelopes.header_of(world.chance.choice(old)).signature + sealed
            case 2:  # with none
                made = data + bytes(64) + sealed
            case _:  # what the sender did seal, under the liar's own name
                old = world.chance.choice([e for e in world.carried if e[1] == sender and e[3]])
                recipient, head = old[2], envelopes.header_of(old[0])
                start = envelopes.start_of(identity, head.key, recipient)
                made = envelopes.signed(identity, start, old[0][head.size :])
        accepted += world.brought(made, recipient) not in REFUSED
    count("forged", "envelopes", full, accepted)
    assert accepted == 0
