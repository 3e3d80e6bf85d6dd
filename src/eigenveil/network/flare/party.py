"""The party inside FLARE's client process: it answers there, whatever jobs come and go.

FLARE would start a process at each site for each job. Here there is none: a process that a job
started could not be started again with it, and its crash would end the job everywhere. The party
lives in the site's own process, and a site that is killed and started again goes on.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.fuel.f3.endpoint import Endpoint, EndpointMonitor, EndpointState
from nvflare.private.defs import CellChannelTopic

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol.envelope import Envelope, open_sealed, seal
from eigenveil.federation.protocol.messages import AGGREGATOR
from eigenveil.network.channel import CHANNEL, OVER, SURVEY, TOPIC, UNKNOWN, WHEREABOUTS
from eigenveil.network.health import Connection
from eigenveil.network.parties import (
    Admission,
    HelperParty,
    Party,
    SiteParty,
    current_party,
    set_party,
)
from eigenveil.network.signed import aggregator_at

__all__ = ["HelperParty", "Party", "ResidentParty", "SiteParty", "set_party"]

# Seconds between two checks, and how many in a row must find a run unknown: one that begins is
# unknown for a moment.
_LOOK, _CHECKS = 2.0, 5


class ResidentParty(FLComponent):  # type: ignore[misc]
    """Registers the party's addresses on FLARE's network: for a study's questions, and a lead's."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """At the start of the system."""
        if event_type == EventType.SYSTEM_START:
            party = current_party()
            cell = fl_ctx.get_engine().get_cell()
            cell.register_request_cb(channel=CHANNEL, topic=TOPIC, cb=self._on_question)
            cell.register_request_cb(channel=CHANNEL, topic=SURVEY, cb=self._on_survey)
            _follow(cell, party.connection)
            threading.Thread(target=_look_after, args=(cell, party), daemon=True).start()

    def _on_question(self, message: Any) -> Any:
        """The reply, or the promise of one; who sent the question is what its signature states."""
        payload = message.payload
        if not isinstance(payload, bytes | bytearray | memoryview):
            return _message(b"")
        answer = current_party().answer(payload)
        if isinstance(answer, bytes):
            return _message(answer)
        later: Future[Any] = Future()
        answer.add_done_callback(lambda done: later.set_result(_message(done.result())))
        return later

    def _on_survey(self, message: Any) -> Any:
        """The reply to a lead, at once: it waits for no sum that is being computed."""
        payload = message.payload
        known = isinstance(payload, bytes | bytearray | memoryview)
        return _message(current_party().respond(payload) if known else b"")


class _Closed(EndpointMonitor):  # type: ignore[misc]
    """Notes that the connection to the aggregator was closed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def state_change(self, endpoint: Endpoint) -> None:
        """Called by FLARE for each of its ends."""
        if endpoint.name == FQCN.ROOT_SERVER and endpoint.state != EndpointState.READY:
            self._connection.lost()


def _follow(cell: Any, connection: Connection) -> None:
    """Note from now on whether the aggregator is there; it has just let this party in."""

    def answered(message: Any) -> None:
        if message.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.OK:
            connection.answered()

    connection.answered()
    core = cell.core_cell
    core.add_incoming_reply_filter(CellChannel.SERVER_MAIN, CellChannelTopic.HEART_BEAT, answered)
    core.communicator.register_monitor(_Closed(connection))


def _look_after(cell: Any, party: Party) -> None:
    """End a run that may be over, once the aggregator has signed that it is.

    FLARE reports the ends of jobs only to those that were there when they began, and what it
    reports anybody could have sent.
    """
    misses = 0
    while True:
        party.doubted.wait()
        admission = party.admission
        if admission is None:
            party.doubted.clear()
            continue
        state = _whereabouts(cell, party, admission)
        misses = misses + 1 if state == UNKNOWN else 0
        if state == OVER or misses == _CHECKS:
            party.end(admission.session, "no longer known to the aggregator")
            misses = 0
        time.sleep(_LOOK)


def _whereabouts(cell: Any, party: Party, admission: Admission) -> str:
    """What the aggregator signs about a run; empty where nobody signed anything."""
    identity = party.identity
    query = Envelope(admission.study, admission.session, WHEREABOUTS, party.kit.name, AGGREGATOR)
    data, mark = seal(query, identity)
    message = cell.send_request(
        channel=CHANNEL,
        topic=WHEREABOUTS,
        target=FQCN.ROOT_SERVER,
        request=new_cell_message({}, data),
        timeout=_LOOK,
        optional=True,
    )
    if not isinstance(message.payload, bytes | bytearray | memoryview):
        return ""
    try:
        found = open_sealed(
            message.payload,
            identity,
            sender=aggregator_at(party.kit.host),
            recipient=party.kit.name,
            limit=0,
        )
    except ProtocolError:
        return ""
    request_digest = found.study, found.session, found.step, found.request_digest
    return found.code if request_digest == (*admission.run, WHEREABOUTS, mark) else ""


def _message(answer: bytes) -> Any:
    return new_cell_message({MessageHeaderKey.RETURN_CODE: ReturnCode.OK}, answer)
