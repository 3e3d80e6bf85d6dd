"""The transport within one process: it carries bytes, counts them, and does nothing else."""

import pytest

from eigenveil.errors import ProtocolError
from eigenveil.federated.running import InProcess, Traffic, carry
from eigenveil.federation.protocol.requests import Call


class Echo:
    """Answers with its name and the request, and remembers what it heard."""

    def __init__(self, name):
        self.name, self.heard = name, []

    def handle(self, request):
        self.heard.append(request)
        return self.name + request


def parties(*names):
    return {name: Echo(name.encode()) for name in names}


def test_every_party_gets_its_own_message_once():
    found = parties("a", "b", "c")
    replies, failures = InProcess(found).call("step", {"a": b"1", "c": b"3"}, 1.0)
    assert replies == {"a": b"a1", "c": b"c3"}
    assert failures == {}
    assert [party.heard for party in found.values()] == [[b"1"], [], [b"3"]]


def test_who_is_not_there_is_a_failure_and_the_others_answer():
    replies, failures = InProcess(parties("a")).call("step", {"a": b"1", "z": b"2"}, 1.0)
    assert replies == {"a": b"a1"}
    assert failures["z"].code == "unknown-party"
    assert isinstance(failures["z"], ProtocolError)


def test_traffic_counts_every_exchange_by_step():
    transport = InProcess(parties("a", "bb"))
    for step, payloads in (
        ("join", {"a": b"123", "bb": b"1"}),
        ("round 1", {"a": b"12345"}),
        ("round 1", {"a": b"12345"}),
        ("gone", {"z": b"1"}),
    ):
        transport.call(step, payloads, 1.0)
    assert transport.traffic == {
        "a": Traffic(messages=3, received=13, sent=16, sent_by_step={"join": 4, "round 1": 12}),
        "bb": Traffic(messages=1, received=1, sent=3, sent_by_step={"join": 3}),
    }


def asking(*calls):
    """A role that makes these calls and returns all it heard."""
    heard = []
    for method, payloads in calls:
        heard.append((yield Call(method, payloads, 5.0)))
    return heard


def test_a_role_is_carried_to_its_result():
    found = parties("a", "b")
    calls = [("one", {"a": b"1", "b": b"2"}), ("two", {"b": b"3"})]
    heard = carry(asking(*calls), InProcess(found))
    assert heard == [({"a": b"a1", "b": b"b2"}, {}), ({"b": b"b3"}, {})]
    assert found["b"].heard == [b"2", b"3"]


def test_a_call_is_carried_as_it_is():
    """Method, payloads and timeout reach the transport unchanged; its answer the role."""
    seen = []

    class Recorder:
        def sites(self):
            return ()

        def call(self, *arguments):
            seen.append(arguments)
            return {}, {"a": ProtocolError.relayed("lost", code="problem")}

    ((replies, failures),) = carry(asking(("m", {"a": b"x"})), Recorder())
    assert seen == [("m", {"a": b"x"}, 5.0)]
    assert replies == {}
    assert failures["a"].message == "lost"


def test_a_party_cannot_end_a_run():
    """A StopIteration out of a party is an error like others; it once was the role's result."""

    class Stops:
        def handle(self, request):
            raise StopIteration("mine")

    with pytest.raises(StopIteration, match="mine"):
        carry(asking(("one", {"a": b"1"})), InProcess({"a": Stops()}))
