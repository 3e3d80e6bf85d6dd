"""How many bytes the batches of an Arrow file become, read off the file before any is unpacked.

Arrow's library unpacks a batch whole, and tells no size before. The format states it: the footer
has the place of every batch, a batch's metadata the places of its buffers, and a packed buffer
begins with the number of bytes that it becomes. Metadata are FlatBuffers, of which only fields by
their numbers are read here (Arrow's File.fbs and Message.fbs); the library checks all the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

_MAGIC = b"ARROW1"
_CONTINUES = 0xFFFFFFFF
_BLOCK, _BUFFER = 24, 16  # bytes of these structs
# Numbers of fields: of Footer, Message, DictionaryBatch and RecordBatch.
_DICTIONARIES, _BATCHES = 2, 3
_HEADER_TYPE, _HEADER = 1, 2
_DATA = 1
_BUFFERS, _COMPRESSION = 2, 3
_OF_DICTIONARY = 2  # a message's header type


@dataclass(frozen=True)
class BatchSize:
    """A batch of a file, or of a dictionary."""

    packed: bool
    unpacked: int  # Bytes that its buffers become, of a packed one


def batch_sizes(file: IO[bytes]) -> Iterator[BatchSize]:
    """Each batch of a file in Arrow's file format: dictionaries, then rows."""
    for place in _places(file):
        yield _size_of(file, *place)


class _Table:
    """A table of a FlatBuffer."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, _number("<I", data, 0))

    def _field(self, number: int) -> int | None:
        entries = self._at - _number("<i", self._data, self._at)
        slot = 4 + 2 * number
        if slot >= _number("<H", self._data, entries):
            return None
        offset = _number("<H", self._data, entries + slot)
        return self._at + offset if offset else None

    def byte(self, number: int) -> int:
        place = self._field(number)
        return 0 if place is None else _number("<B", self._data, place)

    def has(self, number: int) -> bool:
        return self._field(number) is not None

    def table(self, number: int) -> _Table | None:
        place = self._field(number)
        return None if place is None else _Table(self._data, self._target(place))

    def structs(self, number: int, size: int) -> Iterator[int]:
        """The places of a vector's structs."""
        place = self._field(number)
        if place is None:
            return
        start = self._target(place)
        count = _number("<I", self._data, start)
        if count * size > len(self._data):
            raise ValueError("a list in its metadata is longer than they are")
        yield from range(start + 4, start + 4 + count * size, size)

    def _target(self, place: int) -> int:
        return place + _number("<I", self._data, place)


def _number(kind: str, data: bytes, at: int) -> int:
    try:
        if at < 0:  # which would count from the end
            raise ValueError("a place in its metadata is before their beginning")
        found: int = struct.unpack_from(kind, data, at)[0]
    except struct.error:
        raise ValueError("a place in its metadata is behind their end") from None
    return found


def _read(file: IO[bytes], at: int, size: int) -> bytes:
    if at < 0 or size < 0:
        raise ValueError("a place in its metadata is before the file")
    file.seek(at)
    found = file.read(size)
    if len(found) < size:
        raise ValueError("its metadata point behind its end")
    return found


def _places(file: IO[bytes]) -> list[tuple[int, int]]:
    """Offset and length of the metadata of every batch."""
    end = file.seek(0, 2)
    tail = _read(file, end - len(_MAGIC) - 4, len(_MAGIC) + 4)
    length = _number("<i", tail, 0)
    start = end - len(tail) - length
    footer = _read(file, start, length if start >= 0 else -1)
    table, found = _Table.root(footer), []
    for kind in (_DICTIONARIES, _BATCHES):
        for at in table.structs(kind, _BLOCK):
            found.append((_number("<q", footer, at), _number("<i", footer, at + 8)))
    return found


def _size_of(file: IO[bytes], offset: int, length: int) -> BatchSize:
    """The size of a batch whose metadata, before its body, have this offset and length."""
    metadata = _read(file, offset, length)
    begins = 8 if _number("<I", metadata, 0) == _CONTINUES else 4
    message = _Table.root(metadata[begins:])
    batch = message.table(_HEADER)
    if batch is not None and message.byte(_HEADER_TYPE) == _OF_DICTIONARY:
        batch = batch.table(_DATA)
    if batch is None or not batch.has(_COMPRESSION):
        return BatchSize(packed=False, unpacked=0)
    body, unpacked = offset + length, 0
    for at in batch.structs(_BUFFERS, _BUFFER):
        place = _number("<q", metadata, begins + at)
        size = _number("<q", metadata, begins + at + 8)
        if size >= 8:
            stated = _number("<q", _read(file, body + place, 8), 0)
            unpacked += size - 8 if stated == -1 else max(stated, 0)  # -1: it stayed as it was
    return BatchSize(packed=True, unpacked=unpacked)
