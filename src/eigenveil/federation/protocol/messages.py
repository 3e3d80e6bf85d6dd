"""Messages between roles: a JSON header and raw arrays; nothing that arrives is ever executed.

``EVM1``, the header's length (4 bytes, little-endian), the header, then the arrays one after the
other. A header names study, session, sender and step, so that a message of another study, session
or round, or one that was seen before, is recognised; a decoder reports no more about what arrived
than which rule it broke.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eigenveil.errors import ProtocolError

MAGIC = b"EVM1"
_LARGEST_HEADER = 1 << 24
_DTYPES: dict[str, np.dtype[Any]] = {
    "u8": np.dtype("<u8"),
    "f8": np.dtype("<f8"),
    "b1": np.dtype("u1"),
}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

AGGREGATOR, HELPER = "aggregator", "helper"
REFUSED = "refused"
# Arrays of requests that differ from site to site: the helper's mask, and partners' letters.
MASK, LETTERS = "mask", "letters"

Body = TypeVar("Body", bound=BaseModel)


class _ArrayHead(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    dtype: Literal["u8", "f8", "b1"]
    shape: tuple[Annotated[int, Field(ge=0, lt=1 << 31)], ...] = Field(max_length=2)


class _Header(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    step: str
    study: str
    session: str
    sender: str
    body: dict[str, Any]
    arrays: tuple[_ArrayHead, ...] = ()


@dataclass(frozen=True)
class Message:
    """What one role sends another.

    ``step`` names what it is about (for example ``round 2``), ``sender`` the role that made it.
    What follows from it is found once, for all who are handed the same one.
    """

    step: str
    study: str
    session: str
    sender: str
    body: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @cached_property
    def found(self) -> dict[Any, Any]:
        """What was found of it already, by what it was found with."""
        return {}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hex, of what it sends to all its receivers alike."""
        alike = {name: array for name, array in self.arrays.items() if name not in (MASK, LETTERS)}
        return hashlib.sha256(encode(replace(self, arrays=alike))).hexdigest()

    def read(self, model: type[Body]) -> Body:
        if model not in self.found:
            self.found[model] = self._read(model)
        body: Body = self.found[model]
        return body

    def _read(self, model: type[Body]) -> Body:
        try:
            return model.model_validate(self.body)
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors()[0]["loc"])[:80]
            raise _malformed(self.sender, f"field {where!r} of its {self.step!r}") from None

    def array(self, name: str, *, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        found = self.arrays.get(name)
        if found is None or found.dtype != _DTYPES[dtype] or found.shape != shape:
            raise _malformed(self.sender, f"array {name!r} of its {self.step!r}")
        if dtype == "f8" and not np.isfinite(found).all():
            raise ProtocolError("non-finite", sender=self.sender, array=name, step=self.step)
        return found


def encode(message: Message) -> bytes:
    arrays = {name: _packed(array) for name, array in message.arrays.items()}
    header = _Header(
        step=message.step,
        study=message.study,
        session=message.session,
        sender=message.sender,
        body=dict(message.body),
        arrays=tuple(
            _ArrayHead(name=name, dtype=_DTYPE_NAMES[array.dtype], shape=array.shape)
            for name, array in arrays.items()
        ),
    )
    text = header.model_dump_json().encode()
    parts: list[Any] = [MAGIC, len(text).to_bytes(4, "little"), text]
    parts += [array.data.cast("B") for array in arrays.values() if array.size]
    return b"".join(parts)


def decode(data: bytes, *, sender: str, limit: int) -> Message:
    """The message in ``data``; arrays are read-only views of it."""
    if len(data) > limit:
        raise ProtocolError("too-large", sender=sender, size=len(data), most=limit)
    size = int.from_bytes(data[4:8], "little")
    if data[:4] != MAGIC or size > min(_LARGEST_HEADER, len(data) - 8):
        raise _malformed(sender, "message")
    try:
        found = json.loads(bytes(data[8 : 8 + size]))
        json.dumps(found, ensure_ascii=False).encode()  # escapes can make text that is none
        header = _Header.model_validate(found)
    except (ValidationError, ValueError, RecursionError):
        raise _malformed(sender, "header") from None
    if header.sender != sender:
        raise ProtocolError("wrong-sender", sender=sender)
    return Message(
        step=header.step,
        study=header.study,
        session=header.session,
        sender=header.sender,
        body=header.body,
        arrays=_unpacked(data, 8 + size, header),
    )


class Opened:
    """The message that was opened last: sites of one process receive the same bytes in turn."""

    def __init__(self) -> None:
        self._last: tuple[bytes, int, Message] | None = None

    def message(self, data: bytes, *, limit: int) -> Message:
        last = self._last
        if last is None or last[1] != limit or last[0] != data:
            message = decode(data, sender=AGGREGATOR, limit=limit)
            last = self._last = bytes(data), limit, message
        return last[2]


def expect(message: Message, *, step: str, study: str, session: str) -> Message:
    """The message, if it belongs here."""
    given = {"sender": message.sender, "step": step}
    if message.study != study:
        raise ProtocolError("other-study", **given)
    if message.session != session:
        raise ProtocolError("other-session", **given)
    if message.step != step:
        raise ProtocolError("other-step", **given)
    return message


def _unpacked(data: bytes, start: int, header: _Header) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for head in header.arrays:
        dtype, count = _DTYPES[head.dtype], math.prod(head.shape)
        if head.name in arrays or start + count * dtype.itemsize > len(data):
            raise _malformed(header.sender, "array")
        arrays[head.name] = np.frombuffer(data, dtype, count, start).reshape(head.shape)
        start += count * dtype.itemsize
    if start != len(data):
        raise _malformed(header.sender, "end of a message")
    return arrays


def _packed(array: NDArray[Any]) -> NDArray[Any]:
    """The array in the byte order and types of a message."""
    if array.dtype == np.int64:
        array = array.view(np.uint64)
    packed = np.ascontiguousarray(array)
    return packed.astype(packed.dtype.newbyteorder("<"), copy=False)


def _malformed(sender: str, what: str) -> ProtocolError:
    return ProtocolError("malformed", sender=sender, what=what)
