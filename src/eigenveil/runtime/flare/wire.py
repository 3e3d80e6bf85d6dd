"""Bytes to and from parties over FLARE's own network of cells.

Verified on FLARE 2.9: its multicast of different payloads fails silently, so every party is asked
in a call of its own; ``timeout`` of a call is one of each of its three stages, so whoever calls
keeps a deadline besides. What is carried is bytes: FLARE's own serialisation is never used for it.
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
    UNSIGNED,
    Stop,
)


class CellCarrier:
    """Carries bytes through a cell; a party's own (parent) process has its name for address."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def carry(self, name: str, data: bytes, timeout: float, stop: Stop) -> bytes | str:
        """What came back, or a code."""
        try:
            message = self._cell.send_request(
                channel=CHANNEL,
                topic=TOPIC,
                target=name,
                request=new_cell_message({}, data),
                timeout=timeout,
                optional=True,
                abort_signal=stop,
            )
        except Exception:  # of FLARE, whatever it is: it has logged it
            return UNREACHABLE
        if stop.triggered:
            return ABORTED
        code = message.get_header(MessageHeaderKey.RETURN_CODE, ReturnCode.OK)
        if code == ReturnCode.TIMEOUT:
            return NO_ANSWER
        if code != ReturnCode.OK:
            return UNREACHABLE
        if not isinstance(message.payload, bytes | bytearray | memoryview):
            return UNSIGNED
        return bytes(message.payload)
