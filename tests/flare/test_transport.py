"""What the transport does when parties do not answer as they should: without a network."""

import threading
import time

import pytest

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol.requests import Call
from eigenveil.network import transport as transport_module
from eigenveil.network.channel import NO_ANSWER, NOT_ADMITTED, UNREACHABLE, Answer, sentence
from eigenveil.network.runner import carry_to_the_end
from eigenveil.network.transport import FlareTransport

SITES = ("north", "south")


class FakeWire:
    """Parties that answer what their functions say; every question is kept."""

    def __init__(self, **parties):
        self.parties, self.spec = parties, []

    def query(self, name, step, payload, timeout, stop):
        self.spec.append((name, step))
        return self.parties[name](step, payload, timeout, stop)

    def steps(self, name):
        return sum(who == name and step not in ("hello", "bye") for who, step in self.spec)


def echo(verb, payload, timeout, stop):
    return Answer("", payload.upper(), "aa")


def silent(verb, payload, timeout, stop):
    until = time.monotonic() + timeout
    while time.monotonic() < until and not stop.triggered:
        time.sleep(0.01)
    return Answer(NO_ANSWER)


def over(wire, aborted=lambda: False):
    return FlareTransport(wire, SITES, aborted)


def timed(what):
    begun = time.monotonic()
    return what(), time.monotonic() - begun


def test_answers_are_counted_and_strangers_are_failures():
    transport = over(FakeWire(north=echo, south=echo))
    replies, failures = transport.call("round 1", {"north": b"a", "south": b"bc", "east": b""}, 5.0)
    assert replies == {"north": b"A", "south": b"BC"}
    assert {name: error.code for name, error in failures.items()} == {"east": "unknown-party"}
    assert transport.sites() == SITES
    south = transport.traffic["south"]
    assert (south.messages, south.received, south.sent) == (1, 2, 2)
    assert south.sent_by_step == {"round 1": 2}


def test_a_silent_party_costs_its_time_once(monkeypatch):
    monkeypatch.setattr(transport_module, "PROBE", 0.1)
    wire = FakeWire(north=echo, south=silent)
    transport = over(wire)
    payloads = {"north": b"a", "south": b"b"}
    (replies, failures), first = timed(lambda: transport.call("x", payloads, 0.8))
    assert set(replies) == {"north"}
    assert failures["south"].code == NO_ANSWER
    assert failures["south"].message == "it did not answer in time"
    assert 0.75 < first < 1.6
    (replies, failures), second = timed(lambda: transport.call("x", payloads, 30.0))
    assert set(failures) == {"south"}
    assert second < 1.0  # of the 30 s that it would have
    wire.parties["south"] = echo  # it is back
    replies, failures = transport.call("x", payloads, 5.0)
    assert set(replies) == set(SITES)
    assert failures == {}
    assert transport.traffic["south"].messages == 1


def test_a_late_answer_is_dropped():
    release = threading.Event()

    def late(verb, payload, timeout, stop):
        if verb == "hello" or payload == b"second":
            return Answer("", payload, "aa")
        release.wait(5)
        return Answer("", b"late", "aa")

    transport = over(FakeWire(north=echo, south=late))
    _, failures = transport.call("x", {"south": b"first"}, 0.3)
    assert set(failures) == {"south"}
    release.set()
    time.sleep(0.1)
    replies, failures = transport.call("y", {"south": b"second"}, 5.0)
    assert replies == {"south": b"second"}
    assert transport.traffic["south"].sent_by_step == {"y": 6}


def test_who_cannot_be_reached_is_tried_again_until_the_deadline(monkeypatch):
    monkeypatch.setattr(transport_module, "AGAIN", 0.05)
    tries = []

    def away(verb, payload, timeout, stop):
        tries.append(verb)
        return Answer(UNREACHABLE) if len(tries) < 4 else echo(verb, payload, timeout, stop)

    transport = over(FakeWire(north=echo, south=away))
    assert transport.call("x", {"south": b"a"}, 5.0) == ({"south": b"A"}, {})
    tries[:] = []
    for_ever = over(FakeWire(north=echo, south=lambda *_: Answer(UNREACHABLE)))
    (_, failures), seconds = timed(lambda: for_ever.call("x", {"south": b"a"}, 0.4))
    assert failures["south"].code == UNREACHABLE
    assert seconds < 1.0


def test_a_party_that_was_started_again_is_asked_again(monkeypatch):
    """It has forgotten the question; its new process answers it from the ledger."""
    monkeypatch.setattr(transport_module, "WATCH", 0.2)
    process = ["aa"]

    def mortal(verb, payload, timeout, stop):
        if verb == "hello" or process[0] == "bb":
            return Answer("", payload, process[0])
        process[0] = "bb"
        return silent(verb, payload, timeout, stop)

    wire = FakeWire(north=echo, south=mortal)
    transport = over(wire)
    assert transport.hello(SITES, 1.0) == {"north": "", "south": ""}
    (replies, failures), seconds = timed(lambda: transport.call("x", {"south": b"a"}, 30.0))
    assert (replies, failures) == ({"south": b"a"}, {})
    assert seconds < 5.0
    assert wire.steps("south") == 2


def test_stopping_ends_the_waiting_and_leaves_time_for_last_words():
    stopped = threading.Event()
    wire = FakeWire(north=echo, south=silent)
    transport = over(wire, stopped.is_set)
    threading.Timer(0.3, stopped.set).start()
    begun = time.monotonic()
    with pytest.raises(ProtocolError) as error:
        transport.call("x", {"north": b"a", "south": b"b"}, 60.0)
    assert error.value.code == "aborted"
    assert time.monotonic() - begun < 2.0
    with pytest.raises(ProtocolError):
        transport.call("x", {"north": b"a"}, 60.0)
    transport.hurry()
    assert transport.call("finish", {"north": b"a"}, 60.0)[0] == {"north": b"A"}


def test_a_partys_code_is_told_in_our_own_words():
    """What a party or a forger writes never becomes text of ours."""
    transport = over(FakeWire(north=echo, south=lambda *_: Answer("pay-me-now", b"secret", "aa")))
    _, failures = transport.call("x", {"south": b""}, 5.0)
    assert failures["south"].message == sentence("problem")
    transport = over(FakeWire(north=echo, south=lambda *_: Answer(NOT_ADMITTED, b"", "aa")))
    _, failures = transport.call("x", {"south": b""}, 5.0)
    assert failures["south"].message == "it does not take part in this run"


def test_bye_reaches_everybody():
    wire = FakeWire(north=echo, south=echo)
    over(wire, lambda: True).bye()
    assert sorted(wire.spec) == [("north", "bye"), ("south", "bye")]


def test_a_call_of_the_lead_has_an_end(monkeypatch):
    """Some calls of FLARE's interface wait for ever when the aggregator is stopped."""
    pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")
    from eigenveil.network.flare import session
    from eigenveil.network.kit import Kit

    kit, ever = Kit(None, "lead", "x@y.example", "lead", "localhost", 1, "p"), threading.Event()
    begun = time.monotonic()
    with pytest.raises(ProtocolError) as error:
        session._translated(ever.wait, kit, 0.2)
    assert error.value.code == "no-aggregator"
    assert time.monotonic() - begun < 5.0
    ever.set()
    assert session._translated(lambda: 3, kit, 5.0) == 3


def test_a_transport_cannot_end_a_run():
    """A StopIteration out of a call is an error like others; it once was the role's result."""

    class Stops:
        def call(self, method, payloads, timeout):
            raise StopIteration("mine")

    def role():
        yield Call("one", {}, 1.0)

    with pytest.raises(StopIteration, match="mine"):
        carry_to_the_end(role(), Stops())
