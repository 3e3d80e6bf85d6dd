"""Messages that FLARE would read, and the guard of a cell does not let it: without a network."""

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as Key
from nvflare.fuel.f3.cellnet.defs import MessagePropKey, MessageType
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    StreamHeaderKey,
)

from eigenveil.federation.protocol.envelope import MOST_BESIDE
from eigenveil.network.channel import MOST_OF_FLARE, MOST_SURVEYED, largest_message
from eigenveil.network.flare.guard import AggregatorGuard, JobGuard, SiteGuard

SURVEYED = MOST_BESIDE + MOST_SURVEYED
HOST, LIMIT = "aggregator.example.org", 5000
JOB = "server.0f0f0f0f-0000-4000-8000-0f0f0f0f0f0f"
ADMIN = "_admin_0f0f0f0f-0000-4000-8000-0f0f0f0f0f0f"
LEAD = "lead@example.org"
GUARDS = {each: each(HOST, lambda: LIMIT) for each in (SiteGuard, AggregatorGuard, JobGuard)}


def message(peer, certified, origin, to, channel, topic, *, payload=b"", kind=None, **headers):
    found = Message(
        {
            Key.ORIGIN: origin,
            Key.DESTINATION: to,
            Key.CHANNEL: channel,
            Key.TOPIC: topic,
            Key.MSG_TYPE: kind or MessageType.REQ,
        }
        | headers,
        payload,
    )
    found.set_prop(MessagePropKey.ENDPOINT, Endpoint(peer))
    found.set_prop(MessagePropKey.COMMON_NAME, certified)
    return found


def stream(*who, request_digest="eigenveil", topic="ask", size=LIMIT, coded="bytes"):
    headers = {
        StreamHeaderKey.CHANNEL: request_digest,
        StreamHeaderKey.TOPIC: topic,
        StreamHeaderKey.SIZE: size,
        StreamHeaderKey.PAYLOAD_ENCODING: coded,
    }
    made = message(*who, STREAM_CHANNEL, STREAM_DATA_TOPIC, payload=b"x")
    made.headers.update(headers)
    return made


NORTH = ("north", "north", "north")
LET_IN = [
    (SiteGuard, message("server", HOST, "server", "north", "admin", "train.start")),
    (SiteGuard, stream("server", HOST, JOB, "north")),
    (AggregatorGuard, message(*NORTH, "server", "task", "register")),
    (AggregatorGuard, message(*NORTH, "server", "cellnet.channel", "bye")),
    (AggregatorGuard, stream(*NORTH, "server", topic="whereabouts")),
    (AggregatorGuard, stream(*NORTH, JOB, request_digest="return_only", topic="eigenveil:ask")),
    # a lead's question and its answer, whatever the study that runs
    (SiteGuard, stream("server", HOST, "server", "north", topic="survey", size=SURVEYED)),
    (
        AggregatorGuard,
        stream(*NORTH, "server", request_digest="return_only", topic="eigenveil:survey"),
    ),
    (AggregatorGuard, message(*NORTH, "server", "admin", "x", kind=MessageType.REPLY)),
    (AggregatorGuard, message(JOB, HOST, JOB, "server", "server_parent_listener", "heartbeat")),
    (
        AggregatorGuard,
        stream(ADMIN, LEAD, ADMIN, "server", request_digest="hci_channel", topic="command"),
    ),
    (JobGuard, message("server", HOST, "server", JOB, "server_command", "abort")),
    (
        JobGuard,
        stream("server", HOST, "north", JOB, request_digest="return_only", topic="eigenveil:ask"),
    ),
]
KEPT_OUT = [
    # somebody else at the other end, or somebody else's name
    (SiteGuard, message("server", "south", "server", "north", "admin", "train.start")),
    (SiteGuard, message("server", HOST, "south", "north", "admin", "train.start")),
    (SiteGuard, message("server", HOST, "server.x", "north", "admin", "train.start")),
    (AggregatorGuard, message("north", "north", "server", "south", "admin", "train.delete_run")),
    (AggregatorGuard, message("north", "north", JOB, "south", "eigenveil", "ask")),
    (AggregatorGuard, message("north", "south", "north", "server", "task", "register")),
    (AggregatorGuard, message(JOB, "north", JOB, "south", "eigenveil", "ask")),
    (AggregatorGuard, message(HOST, HOST, HOST, "server", "task", "register")),
    (AggregatorGuard, message(ADMIN, "north", ADMIN, "server", "hci_channel", "command")),
    (AggregatorGuard, message("north", "", "north", "server", "task", "register")),
    (JobGuard, message("north", "north", "north", JOB, "server_command", "abort")),
    # its own name, and nothing that it may say
    (SiteGuard, message("server", HOST, JOB, "north", "admin", "train.delete_run")),
    (SiteGuard, message("server", HOST, "server", "north", "client_command", "abort")),
    (AggregatorGuard, message(*NORTH, "south", "cellnet.channel", "bye")),
    (AggregatorGuard, message(*NORTH, "server", "server_parent_listener", "update_run_status")),
    (AggregatorGuard, message(*NORTH, JOB, "server_command", "abort")),
    (AggregatorGuard, stream(*NORTH, JOB)),
    (AggregatorGuard, stream(*NORTH, "server", request_digest="aux_communication")),
    (AggregatorGuard, message(ADMIN, LEAD, ADMIN, "north", "hci_channel", "command")),
    (JobGuard, message("server", HOST, "north", JOB, "server_command", "submit_update")),
    # too large, not bytes, or past the stream
    (SiteGuard, stream("server", HOST, JOB, "north", size=LIMIT + 1)),
    (SiteGuard, stream("server", HOST, "server", "north", topic="survey", size=SURVEYED + 1)),
    (SiteGuard, stream("server", HOST, "server", "north", topic="survey", coded="fobs")),
    (
        AggregatorGuard,
        stream(
            *NORTH,
            "server",
            request_digest="return_only",
            topic="eigenveil:survey",
            size=SURVEYED + 1,
        ),
    ),
    (SiteGuard, stream("server", HOST, JOB, "north", size=-1)),
    (SiteGuard, stream("server", HOST, JOB, "north", size="5")),
    (SiteGuard, stream("server", HOST, JOB, "north", coded="fobs")),
    (
        SiteGuard,
        stream("server", HOST, "server", "north", request_digest="x", size=MOST_OF_FLARE + 1),
    ),
    (SiteGuard, message("server", HOST, JOB, "north", "eigenveil", "ask", payload=b"x")),
    (
        SiteGuard,
        message("server", HOST, "server", "north", "admin", "x", payload=bytes(MOST_OF_FLARE + 1)),
    ),
    (
        JobGuard,
        stream(
            "server",
            HOST,
            "north",
            JOB,
            request_digest="return_only",
            topic="eigenveil:ask",
            size=LIMIT + 1,
        ),
    ),
]


@pytest.mark.parametrize(("guard", "which"), LET_IN)
def test_what_a_study_needs_is_let_in(guard, which):
    assert GUARDS[guard].refusal(which) == ""


@pytest.mark.parametrize(("guard", "which"), KEPT_OUT)
def test_everything_else_is_kept_out(guard, which):
    assert GUARDS[guard].refusal(which)


def test_how_large_a_message_can_be_follows_from_the_study():
    from federation_tools import pca_study

    small, wide = largest_message(pca_study("a")), largest_message(pca_study("b", features=784))
    assert 8 * 784 * 785 // 2 < wide < 50_000_000
    assert small < 4_000_000
