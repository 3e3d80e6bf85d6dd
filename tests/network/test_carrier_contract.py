"""All carriers do the same: what is put stays until its owner forgets it, once, for its owner."""

import itertools
import threading
import time

import pytest
from contract import CARRIERS, parties, small_files
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.network.mailbox import digest_of
from soak_tools import times

NAMES = ("aggregator", "north", "south")
BODIES = st.binary(min_size=1, max_size=40) | st.just(b"\0" * 70_000)


@pytest.fixture(params=CARRIERS)
def place(request, tmp_path):
    """What opens a member's mailbox, by name, with one carrier."""
    with CARRIERS[request.param](tmp_path) as opens:
        yield lambda name: opens(parties()[name])


def test_a_mailbox_keeps_all_mail_until_its_owner_forgets_it(place):
    numbers = itertools.count()

    class Mail(RuleBasedStateMachine):
        def __init__(self):
            super().__init__()
            self.boxes = {name: place(name) for name in NAMES}
            self.mail = {name: [] for name in NAMES}
            self.number = next(numbers)

        @rule(sender=st.sampled_from(NAMES), to=st.sampled_from(NAMES), body=BODIES)
        def put(self, sender, to, body):
            body = self.number.to_bytes(8) + body
            self.boxes[sender].put(to, body)
            if body not in self.mail[to]:
                self.mail[to].append(body)

        @rule(name=st.sampled_from(NAMES), choose=st.randoms(use_true_random=False))
        def take(self, name, choose):
            known = {digest_of(each) for each in self.mail[name] if choose.random() < 0.3}
            wanted = [each for each in self.mail[name] if digest_of(each) not in known]
            end = time.monotonic() + 5
            while True:
                found = self.boxes[name].take(0.02, known)
                old = [each for each in found if each[:8] != self.number.to_bytes(8)]
                self.boxes[name].forget([digest_of(each) for each in old])
                if found == wanted or time.monotonic() > end:  # some carriers take their time
                    break
            assert found == wanted

        @rule(name=st.sampled_from(NAMES), whose=st.sampled_from(NAMES), first=st.booleans())
        def forget(self, name, whose, first):
            """Of one's own mail, once it has come; that of others is nobody else's to forget."""
            if whose == name:
                end = time.monotonic() + 5
                while time.monotonic() < end and not {*self.mail[name]} <= {
                    *self.boxes[name].take(0.02)
                }:
                    pass
            some = self.mail[whose][: 1 if first else None]
            self.boxes[name].forget([*map(digest_of, some), "0" * 64])
            self.mail[name] = [each for each in self.mail[name] if each not in some]

        @rule(name=st.sampled_from(NAMES))
        def restart(self, name):
            self.boxes[name].close()
            self.boxes[name] = place(name)

        @rule(name=st.sampled_from(["", "..", "../north", "a/b", "a\0b", "x" * 65]))
        def put_for_nobody(self, name):
            with pytest.raises(ProtocolError):
                self.boxes["south"].put(name, b"mail")

        def teardown(self):
            for box in self.boxes.values():
                box.close()

    run_state_machine_as_test(
        Mail, settings=settings(max_examples=times(100), stateful_step_count=20, deadline=None)
    )


def test_who_waits_gets_mail_when_it_comes_and_nothing_when_it_does_not(place):
    box, other = place("north"), place("aggregator")
    begun = time.monotonic()
    assert box.take(0.2) == []
    assert 0.15 < time.monotonic() - begun < 5
    threading.Timer(0.3, lambda: other.put("north", b"mail")).start()
    assert box.take(30) == [b"mail"]
    assert time.monotonic() - begun < 10
    other.close()
    threading.Timer(0.3, box.close).start()
    assert box.take(30, {digest_of(b"mail")}) == []
    assert time.monotonic() - begun < 20


def test_many_put_at_once_and_nothing_is_lost(place):
    def send(name):
        mailbox = place(name)
        for number in range(20):
            mailbox.put("aggregator", f"{name} {number}".encode())
        mailbox.close()

    threads = [threading.Thread(target=send, args=(name,)) for name in ("north", "south", "west")]
    for each in threads:
        each.start()
    box, found = place("aggregator"), {}
    end = time.monotonic() + 30
    while len(found) < 60 and time.monotonic() < end:
        found |= {digest_of(each): each for each in box.take(0.5, found)}
    for each in threads:
        each.join()
    assert len(found) == 60
    assert {each.decode().split()[0] for each in found.values()} == {"north", "south", "west"}
    box.close()


@pytest.mark.parametrize("place", [each for each in CARRIERS if each != "memory"], indirect=True)
def test_a_full_disk_is_said_and_mail_goes_on_when_there_is_room(place, tmp_path):
    north, aggregator = place("north"), place("aggregator")
    aggregator.put("north", b"before")
    with small_files(100_000):
        for box, other in ((north, "aggregator"), (aggregator, "north")):
            with pytest.raises(EigenveilError) as found:
                box.put(other, bytes(300_000))
            assert found.value.code in ("cannot-write", "no-room-for-mail")
            assert "\n" not in str(found.value)
    written = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert not [each for each in written if each.suffix == ".part" or each.parent.name == ".tmp"]
    aggregator.put("north", bytes(300_000))
    found, end = set(), time.monotonic() + 30
    while len(found) < 2 and time.monotonic() < end:
        found.update(north.take(0.5))
    assert found == {b"before", bytes(300_000)}
