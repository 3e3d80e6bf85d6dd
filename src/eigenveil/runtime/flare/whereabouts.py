"""What the aggregator's own process says of a run, when a site asks: that it goes on, or is over.

FLARE tells sites the ends of jobs in messages that anybody could have made, so a site asks here
before it ends anything, and believes only what is signed.
"""

from __future__ import annotations

from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import new_cell_message

from eigenveil.errors import EigenveilError
from eigenveil.federation.envelope import Envelope, open_sealed, seal
from eigenveil.federation.messages import AGGREGATOR
from eigenveil.runtime.flare.channel import CHANNEL, GOING_ON, OVER, UNKNOWN, WHEREABOUTS
from eigenveil.runtime.flare.commands import is_alive
from eigenveil.runtime.flare.kit import Kit, open_kit
from eigenveil.runtime.flare.signed import identity_of, party_called
from eigenveil.runtime.flare.status import read_progress


class Whereabouts(FLComponent):  # type: ignore[misc]
    """Answers sites about runs."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """At the start of the system."""
        if event_type != EventType.SYSTEM_START:
            return
        engine = fl_ctx.get_engine()
        kit = open_kit(engine.args.workspace, role="aggregator")
        identity = identity_of(kit)

        def answer(message: Any) -> Any:
            name = str(message.get_header(MessageHeaderKey.ORIGIN) or "")
            try:
                asked = open_sealed(
                    message.payload,
                    identity,
                    sender=party_called(name),
                    recipient=AGGREGATOR,
                    limit=0,
                )
            except (EigenveilError, TypeError):
                return new_cell_message({MessageHeaderKey.RETURN_CODE: ReturnCode.OK}, b"")
            said = Envelope(
                asked.study,
                asked.session,
                WHEREABOUTS,
                AGGREGATOR,
                name,
                about=asked.mark,
                code=_state(kit, engine, asked.session),
            )
            data, _ = seal(said, identity)
            return new_cell_message({MessageHeaderKey.RETURN_CODE: ReturnCode.OK}, data)

        engine.cell.register_request_cb(channel=CHANNEL, topic=WHEREABOUTS, cb=answer)


def _state(kit: Kit, engine: Any, session: str) -> str:
    """Of the run of this name, from the aggregator's own files."""
    for folder in kit.results.iterdir():
        found = read_progress(folder)
        if found is not None and found.get("session") == session:
            going = found["state"] in ("waiting", "running") and is_alive(engine, folder.name)
            return GOING_ON if going else OVER
    return UNKNOWN
