"""What envelopes between parties are about: steps beside the protocol's own, codes, and sizes.

An answer is bytes that a party's role made, or a code alone: no text of an exception, no traceback
and nothing computed from rows leaves a site.
"""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.errors import ProtocolError, received_code

# The aggregator to a party: the run is over.
OVER = "over"
# A lead to a party before a study runs, and to the aggregator.
SURVEY = "survey"
SUBMIT, STATUS, STUDIES, END, RESULT = "submit", "status", "studies", "end", "result"

NO_ANSWER, ABORTED, NOT_CONNECTED = "no-answer", "aborted", "not-connected"
NOT_ADMITTED, NOT_APPROVED, TROUBLE, DATA = "not-admitted", "not-approved", "problem", "data"
OWNER_REFUSED, REFUSED = "owner-refused", "order-refused"
OTHER_MEMBERS, BAD_MEMBERS = "other-members", "bad-members"
OTHER_SESSION, BAD_REQUEST = "other-session", "bad-request"
# A party says more once its owner has decided.
WAITS = (NOT_APPROVED,)
_SENTENCES = {
    NO_ANSWER: "it did not answer in time",
    NOT_CONNECTED: "nothing has come from it yet",
    ABORTED: "the study was stopped",
    NOT_ADMITTED: "it does not take part in this run",
    NOT_APPROVED: "its owner has not approved this study",
    OWNER_REFUSED: "its owner refused this study",
    OTHER_MEMBERS: "it has seen another list of members, which is being exchanged",
    BAD_MEMBERS: "its list of members and the aggregator's do not follow from each other, or one "
    "cannot be read: ask the registrar which one holds",
    OTHER_SESSION: "it takes part in another run of this study",
    REFUSED: "it refused this run; its owner finds the reason in the site's own log",
    BAD_REQUEST: "it does not understand the request",
    DATA: "its rows cannot be used as they are; its owner finds the reason in the site's own log",
    TROUBLE: "it cannot answer; its owner finds the reason in the site's own log",
}
CODES = tuple(_SENTENCES)
# Most bytes: of an order with its study, of a lead's question and its answer, and of a piece of a
# result.
MOST_STUDY = 1 << 24
MOST_SURVEYED = 1 << 20
PIECE = 1 << 20
# Random bytes before what a lead asks: each request is another one.
NONCE = 16
_SMALL = 1 << 12
_STEP = 1 << 12


@dataclass(frozen=True)
class Reply:
    """What came of a question: a payload, or why there is none."""

    code: str = ""
    payload: bytes = b""


def sentence(code: str) -> str:
    return _SENTENCES.get(code, _SENTENCES[TROUBLE])


def failure(code: str) -> ProtocolError:
    return ProtocolError.relayed(sentence(code), code=received_code(code))


def room(payload: bytes) -> int:
    """What a message beside the protocol is padded to: its size is public in steps of 4 KiB."""
    return max(_SMALL, -(-len(payload) // _STEP) * _STEP)


# -- The first question of a run brings the lead's order before
# the protocol's own message.


def opening(order: bytes, members: str, message: bytes) -> bytes:
    """Order, digest of the list of members that the run is under, and message as one payload."""
    return bytes.fromhex(members) + len(order).to_bytes(4, "little") + order + message


def opened(payload: bytes) -> tuple[bytes, str, bytes]:
    """The three of :func:`opening`."""
    end = 36 + int.from_bytes(payload[32:36], "little")
    if not 36 < end <= len(payload):
        raise ProtocolError("bad-request", what="The first question has no order")
    return payload[36:end], payload[:32].hex(), payload[end:]
