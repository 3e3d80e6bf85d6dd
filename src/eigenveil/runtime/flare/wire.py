"""Questions over FLARE's own network of cells.

Verified on FLARE 2.9: its multicast of different payloads fails silently, so every party is asked
in a call of its own; ``timeout`` of a call is one of each of its three stages, so whoever calls
keeps a deadline besides.
"""

from __future__ import annotations

from typing import Any

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import new_cell_message

from eigenveil.runtime.flare.channel import (
    ABORTED,
    CHANNEL,
    NO_ANSWER,
    TOPIC,
    UNREACHABLE,
    Answer,
    Stop,
    Verb,
    question,
    read_reply,
)


class CellWire:
    """Asks parties through a cell; a party's own (parent) process has its name for address."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def ask(self, name: str, verb: Verb, payload: bytes, timeout: float, stop: Stop) -> Answer:
        """The party's answer."""
        try:
            message = self._cell.send_request(
                channel=CHANNEL,
                topic=TOPIC,
                target=name,
                request=new_cell_message({}, question(verb, payload)),
                timeout=timeout,
                optional=True,
                abort_signal=stop,
            )
        except Exception:  # of FLARE, whatever it is: it has logged it
            return Answer(UNREACHABLE)
        if stop.triggered:
            return Answer(ABORTED)
        code = message.get_header(MessageHeaderKey.RETURN_CODE, ReturnCode.OK)
        if code == ReturnCode.TIMEOUT:
            return Answer(NO_ANSWER)
        if code != ReturnCode.OK:
            return Answer(UNREACHABLE)
        return read_reply(message.payload)
