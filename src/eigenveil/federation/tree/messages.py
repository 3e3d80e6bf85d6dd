"""Who may speak for which place of a tree: every party signs its messages to its parent.

A node takes a message only with a signature by the key of the place that it names as its sender,
made for this very node in this run: so nobody's sums pass as another's, or as an earlier run's.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Generic, Self, TypeVar

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol.messages import MAGIC, Message, decode, encode, expect
from eigenveil.federation.public_key import SIGNATURE_BYTES
from eigenveil.federation.signed import Document
from eigenveil.federation.tree.tree import MergeTree, TreePlace
from eigenveil.models.rounds import SumQuery


class TreeKeys:
    """The keys of a run, as one process has them."""

    def __init__(
        self, public: Callable[[TreePlace], bytes], private: Mapping[TreePlace, Ed25519PrivateKey]
    ) -> None:
        self._public, self._private = public, private

    @classmethod
    def in_one_process(cls) -> Self:
        """A key of its own for every place, drawn when it is first needed: to play all parties."""
        drawn = _Drawn()
        return cls(lambda place: drawn[place].public_key().public_bytes_raw(), drawn)

    def sign(self, message: bytes, sender: TreePlace, receiver: TreePlace) -> bytes:
        """The signature of a message, 64 bytes."""
        try:
            private = self._private[sender]
        except KeyError:
            raise ProtocolError("no-key", party=sender.name) from None
        return private.sign(_text(message, receiver))

    def check(
        self, message: bytes, signature: bytes, sender: TreePlace, receiver: TreePlace
    ) -> None:
        """That the party at ``sender`` has sent this message to ``receiver``."""
        try:
            key = Ed25519PublicKey.from_public_bytes(self._public(sender))
            key.verify(signature, _text(message, receiver))
        except (InvalidSignature, ValueError):
            raise ProtocolError(
                "not-signed-by-sender", receiver=receiver.name, sender=sender.name
            ) from None


class _Drawn(dict[TreePlace, Ed25519PrivateKey]):
    def __missing__(self, place: TreePlace) -> Ed25519PrivateKey:
        return self.setdefault(place, Ed25519PrivateKey.generate())


class Sent(Document):
    """What is signed of a message: study, session, sender and number are in it."""

    DOMAIN = "tree message 2"
    message: str  # Its SHA-256, in hex
    receiver: str


def _text(message: bytes, receiver: TreePlace) -> bytes:
    return Sent(message=hashlib.sha256(message).hexdigest(), receiver=receiver.name).text


# -- What is merged up a tree: a monoid, such as sums with their noise modulo 2**64.


Totals = tuple[NDArray[np.uint64], ...]
Value = TypeVar("Value")


class Content(ABC, Generic[Value]):
    """A kind of state, as messages carry it and nodes merge it."""

    kind: str
    request_digest: str  # SHA-256, in hex, of everything that two states must share to be merged
    message_bytes: int  # Bytes of numbers in a message, at the most

    @abstractmethod
    def arrays(self, value: Value) -> Mapping[str, NDArray[Any]]:
        """A state as the arrays of a message."""

    @abstractmethod
    def read(self, message: Message) -> Value:
        """The state that a message carries."""

    @abstractmethod
    def merged(self, first: Value | None, second: Value) -> Value:
        """Both states as one; ``first`` may be overwritten, ``second`` is not."""


class Sums(Content[Totals]):
    """The noisy sums of a round."""

    kind = "sums"

    def __init__(self, queries: Sequence[SumQuery]) -> None:
        self.sizes = tuple(query.accumulator.size for query in queries)
        self.request_digest = digest_of([_description(query) for query in queries])
        self.message_bytes = 8 * sum(self.sizes)

    def arrays(self, value: Totals) -> Mapping[str, NDArray[Any]]:
        return {f"sum {index}": total for index, total in enumerate(value)}

    def read(self, message: Message) -> Totals:
        return tuple(
            message.array(f"sum {index}", dtype="u8", shape=(size,))
            for index, size in enumerate(self.sizes)
        )

    def merged(self, first: Totals | None, second: Totals) -> Totals:
        """Sum by sum, modulo 2**64."""
        if first is None:
            return tuple(total.astype(np.uint64) for total in second)
        for total, more in zip(first, second, strict=True):
            total += more
        return first


def _description(query: SumQuery) -> list[Any]:
    """Everything that decides what a sum is, and what noise it has."""
    sums = query.accumulator
    return [
        type(sums).__name__,
        sums.statistic,
        sums.layout,
        list(sums.shape),
        sums.grid,
        [_plain(part) for part in sums.merge_key()],
        query.record.model_dump_json(),
    ]


def _plain(part: Any) -> str:
    if isinstance(part, np.ndarray):
        little = np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<"))
        return f"{little.shape} {hashlib.sha256(little.tobytes()).hexdigest()}"
    return repr(float(part)) if isinstance(part, float) else repr(part)


def digest_of(parts: Sequence[Any]) -> str:
    """SHA-256, in hex, of what states must share."""
    return hashlib.sha256(repr(list(parts)).encode()).hexdigest()


# -- What parties of a tree tell each other: a state, whose it is, and on what way it came.
#
# A message is about leaves that no earlier message of its sender was about: what arrives after a
# party has sent goes up in a *supplement*, a message of its own. So states only ever add up.
#
# The bytes are a message's, then its sender's signature of them for its parent.


STEP = "merge"
# Of a message's header: names, hashes and a few numbers.
_LARGEST_HEADER = 1 << 13
_LONGEST_NAME = 200

Leaves = NDArray[np.bool_]


class _TreeBody(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    serial: int = Field(ge=0, lt=1 << 31)
    kind: Annotated[str, StringConstraints(max_length=64)]
    request_digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    least: tuple[int, ...] = Field(max_length=32)


@dataclass(frozen=True)
class TreeMessage(Generic[Value]):
    """What a party sends its parent."""

    sender: TreePlace
    serial: int  # 0 for a party's first message, 1 for its first supplement, and so on
    leaves: Leaves  # Of the leaves under the sender, those that are in the state
    # For each level from 1 to the sender's own: the fewest leaves in any message that a party of
    # that level took on these leaves' way to the sender
    least: tuple[int, ...]
    value: Value  # The state


@dataclass(frozen=True)
class TreeCodec(Generic[Value]):
    """What all messages of one run have in common."""

    tree: MergeTree
    content: Content[Value]  # What is merged
    study: str  # Hash of what the parties agreed on
    session: str  # Name of the run
    keys: TreeKeys  # Who signs what; with the private keys of the parties that are here

    def __post_init__(self) -> None:
        if max(len(self.study), len(self.session)) > _LONGEST_NAME:
            raise ProtocolError("name-too-long", longest_name=_LONGEST_NAME)

    def write(self, content_message: TreeMessage[Value]) -> bytes:
        """The bytes of a message to its sender's parent, signed."""
        receiver = self.tree.parent(content_message.sender)
        if receiver is None:
            raise ProtocolError("the-root")
        body = _TreeBody(
            serial=content_message.serial,
            kind=self.content.kind,
            request_digest=self.content.request_digest,
            least=content_message.least,
        )
        arrays = {
            "leaves": np.packbits(content_message.leaves),
            **self.content.arrays(content_message.value),
        }
        fields = body.model_dump(mode="json")
        data = encode(
            Message(STEP, self.study, self.session, content_message.sender.name, fields, arrays)
        )
        return data + self.keys.sign(data, content_message.sender, receiver)

    def read(self, data: bytes, *, receiver: TreePlace) -> TreeMessage[Value]:
        limit = self.content.message_bytes + self.tree.leaf_count // 8 + 1 + _LARGEST_HEADER
        sender = _sender_of(data[: _LARGEST_HEADER + 8])
        if sender is None:
            raise ProtocolError(
                "malformed", sender=receiver.name, what="tree of a message that came"
            )
        if not (self.tree.holds(sender) and self.tree.parent(sender) == receiver):
            raise ProtocolError("not-a-child", receiver=receiver.name, sender=sender.name)
        signed_part, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
        if len(signed_part) <= limit:  # a larger one is refused as such
            self.keys.check(signed_part, signature, sender, receiver)
        message = decode(signed_part, sender=sender.name, limit=limit)
        expect(message, step=STEP, study=self.study, session=self.session)
        body = message.read(_TreeBody)
        self._check_content(sender, body)
        leaves = self._leaves(sender, message)
        _check_least(sender, body.least, int(np.count_nonzero(leaves)))
        return TreeMessage(sender, body.serial, leaves, body.least, self.content.read(message))

    def _check_content(self, sender: TreePlace, body: _TreeBody) -> None:
        if body.kind != self.content.kind:
            raise ProtocolError(
                "other-kind", sender=sender.name, kind=body.kind, own=self.content.kind
            )
        if body.request_digest != self.content.request_digest:
            raise ProtocolError("other-sketch", sender=sender.name)

    def _leaves(self, sender: TreePlace, message: Message) -> Leaves:
        count = len(self.tree.under(sender))
        packed = message.array("leaves", dtype="b1", shape=(-(-count // 8),))
        bits = np.unpackbits(packed).astype(bool)
        if bits[count:].any() or not bits.any():
            raise _malformed(sender, "list of leaves")
        return bits[:count]


def _check_least(sender: TreePlace, least: tuple[int, ...], count: int) -> None:
    """A message at one level is a sum of whole messages of the level below."""
    steps = (1, *least, count)
    if len(least) != sender.level or any(a > b for a, b in pairwise(steps)):
        raise _malformed(sender, "list of smallest messages")


def _malformed(sender: TreePlace, what: str) -> ProtocolError:
    return ProtocolError("malformed", sender=sender.name, what=what)


def _sender_of(start: bytes) -> TreePlace | None:
    size = int.from_bytes(start[4:8], "little")
    if start[:4] != MAGIC or size > len(start) - 8:
        return None
    try:
        sender = json.loads(start[8 : 8 + size])["sender"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return TreePlace.of(sender) if isinstance(sender, str) else None
