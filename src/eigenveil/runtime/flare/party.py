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
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.utils import new_cell_message

from eigenveil.runtime.flare.channel import CHANNEL, TOPIC, Answer, aggregator_of, reply
from eigenveil.runtime.flare.parties import (
    Admission,
    HelperParty,
    Party,
    SiteParty,
    current_party,
    set_party,
)

__all__ = ["HelperParty", "Party", "ResidentParty", "SiteParty", "set_party"]

# Seconds between two looks, and how many in a row must find nobody.
_LOOK, _LOOKS = 2.0, 4
_OUT_OF_REACH = (ReturnCode.TARGET_UNREACHABLE, ReturnCode.TIMEOUT)


class ResidentParty(FLComponent):  # type: ignore[misc]
    """Registers the party's one address on FLARE's network."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """At the start of the system."""
        if event_type == EventType.SYSTEM_START:
            party = current_party()
            cell = fl_ctx.get_engine().get_cell()
            cell.register_request_cb(channel=CHANNEL, topic=TOPIC, cb=self._on_question)
            party.connected.set()
            if (admission := party.admission) is not None:
                threading.Thread(
                    target=_look_after, args=(cell, party, admission), daemon=True
                ).start()

    def _on_question(self, message: Any) -> Any:
        """The reply, or the promise of one; FLARE's network vouches for the origin."""
        origin = str(message.get_header(MessageHeaderKey.ORIGIN) or "")
        answer = current_party().answer(origin, message.payload)
        if isinstance(answer, Answer):
            return _message(answer)
        later: Future[Any] = Future()
        answer.add_done_callback(lambda done: later.set_result(_message(done.result())))
        return later


def _look_after(cell: Any, party: Party, admission: Admission) -> None:
    """End a job that this process found in its kit, once its process at the aggregator is gone.

    FLARE tells the ends of jobs to those alone that were there when they began.
    """
    misses = 0
    while party.admission is admission:
        unknown = ReturnCode.TARGET_UNREACHABLE in _said(cell, aggregator_of(admission.job))
        server = _said(cell, FQCN.ROOT_SERVER) if unknown else ""
        gone = unknown and not any(each in server for each in _OUT_OF_REACH)
        misses = misses + 1 if gone else 0
        if misses == _LOOKS:
            party.end(admission.job, "no longer known to the aggregator")
        time.sleep(_LOOK)


def _said(cell: Any, name: str) -> str:
    """What FLARE's network says of a question that nobody answers: who is there says just that."""
    message = cell.send_request(
        channel=CHANNEL,
        topic="presence",
        target=name,
        request=new_cell_message({}, None),
        timeout=_LOOK,
        optional=True,
    )
    said = (MessageHeaderKey.RETURN_CODE, MessageHeaderKey.ERROR)
    return " ".join(str(message.get_header(each, "")) for each in said)


def _message(answer: Answer) -> Any:
    return new_cell_message({MessageHeaderKey.RETURN_CODE: ReturnCode.OK}, reply(answer))
