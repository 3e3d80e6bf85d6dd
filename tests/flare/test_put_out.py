"""Who was revoked or removed gets no answer: every role, by every request of the network.

A request comes over a connection of FLARE's, and what eigenveil asks and answers is signed besides.
"""

from dataclasses import replace
from datetime import UTC, datetime
from weakref import WeakSet

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")

from nvflare.fuel.f3.cellnet.defs import CellChannelTopic, MessagePropKey, MessageType
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from test_guard import ADMIN, HOST, JOB, LEAD, LIMIT, message, stream

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol.envelope import Correspondent, Envelope, open_sealed, seal
from eigenveil.federation.protocol.messages import AGGREGATOR
from eigenveil.federation.x509_identity import key_digest
from eigenveil.network.flare import connections
from eigenveil.network.flare.guard import AggregatorGuard, SiteGuard
from eigenveil.network.flare.hardening import SERVER_COMMANDS
from eigenveil.network.signed import aggregator_at, lead_called, party_called
from eigenveil.network.x509_members import (
    KnownMembers,
    Member,
    MemberList,
    Revoked,
    federation_of,
    sign_members,
)
from registrar_tools import Registrar

OWN = Registrar()
NAMES = {"site": "north", "helper": "helper", "lead": LEAD, "aggregator": HOST}
CERTIFIED = {role: OWN.identity(name, role=role) for role, name in NAMES.items()}
OF_A_SITE = [
    CellChannelTopic.Register,
    CellChannelTopic.Challenge,
    CellChannelTopic.Quit,
    CellChannelTopic.HEART_BEAT,
    CellChannelTopic.REPORT_JOB_FAILURE,
]
COMMANDS = (
    *SERVER_COMMANDS,
    "eigenveil_status",
    "eigenveil_result",
    "eigenveil_abort",
    "eigenveil_ask",
    "eigenveil_parties",
)


def of_client(name):
    """What a site and a helper can send to the aggregator's process."""
    who = (name, name, name)
    yield from (message(*who, "server", "task", topic) for topic in OF_A_SITE)
    yield message(*who, "server", "cellnet.channel", "bye")
    yield message(*who, "server", "admin", "x", kind=MessageType.REPLY)
    yield stream(*who, "server", topic="whereabouts")
    yield stream(*who, "server", request_digest="return_only", topic="eigenveil:survey")
    yield stream(*who, JOB, request_digest="return_only", topic="eigenveil:ask")


def of_lead():
    who = (ADMIN, LEAD, ADMIN, "server")
    for _ in COMMANDS:  # all of them come the same way
        yield stream(*who, request_digest="hci_channel", topic="command")
    yield message(*who, "task", "register")


def of_aggregator():
    for topic in ("train.deploy", "train.start", "train.check_resource", "train.abort"):
        yield message("server", HOST, "server", "north", "admin", topic)
    yield stream("server", HOST, JOB, "north")
    yield stream("server", HOST, "server", "north", topic="survey")
    yield message("server", HOST, "server", "north", "admin", "x", kind=MessageType.REPLY)


REQUESTS = {
    "site": (AggregatorGuard, list(of_client("north"))),
    "helper": (AggregatorGuard, list(of_client("helper"))),
    "lead": (AggregatorGuard, list(of_lead())),
    "aggregator": (SiteGuard, list(of_aggregator())),
}
SIGNED = {
    "site": ("hello", "join", "keys", "shares", "round 1", "whereabouts", "sign"),
    "helper": ("hello", "join", "round 1", "whereabouts"),
    "lead": ("order", "abort", "status", "result", "survey"),
    "aggregator": ("hello", "join", "keys", "round 1", "bye", "whereabouts"),
}
CALLED = {
    "site": party_called("north"),
    "helper": party_called("helper"),
    "lead": lead_called(LEAD),
    "aggregator": aggregator_at(HOST),
}


@pytest.fixture
def known(tmp_path):
    found = KnownMembers(tmp_path / "members.json", OWN.root)
    parties = tuple(Member(role=role, name=name) for role, name in NAMES.items())
    first = MemberList(
        project="trial",
        federation=federation_of(OWN.root),
        number=1,
        time=datetime.now(UTC),
        parties=parties,
    )
    adopt(found, first)
    return found


def adopt(known, members):
    assert known.adopt(sign_members(members, OWN.key).line())


def revoked(members, role):
    shown = CERTIFIED[role].certificate
    key, serial = key_digest(shown.public_key()), f"{shown.serial_number:x}"
    return members.next(revoked=(Revoked(role=role, name=NAMES[role], serial=serial, key=key),))


def removed(members, role):
    gone = Member(role=role, name=NAMES[role])
    left = tuple(each for each in members.parties if each != gone)
    return members.next(parties=left, removed=(gone,))


class Socket:
    """As aiohttp has it."""

    def __init__(self, role):
        self.role, self.closed = role, False

    def get_extra_info(self, what):
        shown = {
            "subject": ((("commonName", NAMES[self.role]),),),
            "serialNumber": f"{CERTIFIED[self.role].certificate.serial_number:X}",
        }
        return {"peercert": shown}.get(what)

    def close(self):
        self.closed = True


class Loop:
    def run_coro(self, what):
        return what


def connected(role, known):
    made = connections._checked(known, WeakSet(), set())
    return made(Socket(role), Loop(), None, object())


@pytest.mark.parametrize("how", [revoked, removed])
@pytest.mark.parametrize("role", list(NAMES))
def test_no_request_over_a_connection_is_answered(role, how, known):
    """Also over one that was made before, from the moment that the list says so."""
    guard, requests = REQUESTS[role]
    connection = connected(role, known)

    def refusals():
        for each in requests:
            name = connection.get_conn_properties()[DriverParams.PEER_CN.value]
            each.set_prop(MessagePropKey.COMMON_NAME, name)
            yield guard(HOST, lambda: LIMIT).refusal(each)

    assert not any(refusals())
    adopt(known, how(known.current(), role))
    assert all(refusals())
    assert connection.websocket.closed
    assert connected(role, known).get_conn_properties()[DriverParams.PEER_CN.value] != NAMES[role]


@pytest.mark.parametrize("how", [revoked, removed])
@pytest.mark.parametrize("role", list(NAMES))
def test_nothing_that_it_signs_is_taken(role, how, known):
    sender: Correspondent = CALLED[role]
    receiver = replace(OWN.identity("anybody"), members=known)

    def opened(step):
        data, _ = seal(Envelope("a" * 64, "b" * 24, step, sender.called, AGGREGATOR), own)
        open_sealed(data, receiver, sender=sender, recipient=AGGREGATOR, limit=0)

    own = CERTIFIED[role]
    for step in SIGNED[role]:
        opened(step)
    adopt(known, how(known.current(), role))
    for step in SIGNED[role]:
        with pytest.raises(ProtocolError) as caught:
            opened(step)
        assert caught.value.code in ("revoked-party", "not-a-member")


def test_a_list_that_cannot_be_read_lets_nobody_in(known):
    connection = connected("site", known)
    known.file.write_text("{}")
    assert connection.get_conn_properties()[DriverParams.PEER_CN.value] != "north"
