"""What travels between an aggregator's job and a party: three verbs, bytes, and codes.

A reply is bytes that the party's role made, or a code alone: no text of an exception, no traceback
and nothing computed from rows leaves a site on this channel.

Every message carries its digest. TLS keeps others from changing it; the digest shows what was
damaged in a party's own machine, which would make nonsense of a masked sum without any error.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

CHANNEL = "eigenveil"
TOPIC = "ask"
# "hello": are you there, and was this job admitted? "step": a message of the protocol.
# "bye": the job is over.
Verb = Literal["hello", "step", "bye"]
VERBS: tuple[Verb, ...] = get_args(Verb)

NO_ANSWER, UNREACHABLE, ABORTED, RESTARTED = "no-answer", "unreachable", "aborted", "restarted"
NOT_ADMITTED, NOT_APPROVED, TROUBLE, DATA = "not-admitted", "not-approved", "trouble", "data"
OTHER_SESSION, BAD_REQUEST, REFUSED = "other-session", "bad-request", "job-refused"
DAMAGED = "damaged"
# What may be different a moment later, when a job begins.
PASSING = (NO_ANSWER, UNREACHABLE, NOT_ADMITTED)
_SENTENCES = {
    NO_ANSWER: "it did not answer in time",
    UNREACHABLE: "it cannot be reached",
    ABORTED: "the study was stopped",
    RESTARTED: "it was started again",
    NOT_ADMITTED: "it does not take part in this run",
    NOT_APPROVED: "its owner has not approved this study",
    OTHER_SESSION: "it takes part in another run of this study",
    REFUSED: "it refused this run; its owner finds the reason in the site's own log",
    BAD_REQUEST: "it does not understand the request",
    DAMAGED: "a message was damaged on the way",
    DATA: "its rows cannot be used as they are; its owner finds the reason in the site's own log",
    TROUBLE: "it cannot answer; its owner finds the reason in the site's own log",
}
_CODE = re.compile(r"[a-z][a-z0-9-]{0,63}")
_PROCESS = re.compile(r"[0-9a-f]{0,64}")


@dataclass(frozen=True)
class Answer:
    """What came of asking a party.

    Attributes
    ----------
    code : str
        Why there is no answer; empty where there is one.
    payload : bytes
        The answer.
    process : str
        Names the process that answered: another one, if the party was started again.
    """

    code: str = ""
    payload: bytes = b""
    process: str = ""


class Wire(Protocol):
    """Carries one question to one party and brings back what came of it."""

    def ask(self, name: str, verb: Verb, payload: bytes, timeout: float, stop: Stop) -> Answer:
        """The party's answer; never raises for what the party or the network does.

        ``stop`` ends the waiting early.
        """
        ...


class Stop:
    """Ends the waiting for one answer; FLARE looks at ``triggered`` (and at ``value``)."""

    def __init__(self) -> None:
        self.triggered = False
        self.value: object = None

    def trigger(self, value: object = True) -> None:
        """End it."""
        self.value = value
        self.triggered = True


def aggregator_of(job: str) -> str:
    """The name under which FLARE's network knows the aggregator's process of a job."""
    return f"server.{job}"


def sentence(code: str) -> str:
    """A code in words."""
    return _SENTENCES.get(code, _SENTENCES[TROUBLE])


def question(verb: Verb, payload: bytes) -> dict[str, Any]:
    """What is sent."""
    return {"verb": verb, "payload": payload, "digest": _digest(payload)}


def read_question(fields: object) -> tuple[Verb, bytes] | str:
    """What was sent, or the code that says why it cannot be read."""
    if not isinstance(fields, Mapping):
        return BAD_REQUEST
    verb, payload = fields.get("verb"), fields.get("payload")
    if verb not in VERBS or not isinstance(payload, bytes | bytearray | memoryview):
        return BAD_REQUEST
    if fields.get("digest") != _digest(payload):
        return DAMAGED
    return verb, bytes(payload)


def reply(answer: Answer) -> dict[str, Any]:
    """What is sent back."""
    return {
        "code": answer.code,
        "payload": answer.payload,
        "process": answer.process,
        "digest": _digest(answer.payload),
    }


def read_reply(fields: object) -> Answer:
    """What was sent back; anything that is no reply counts as trouble of that party."""
    if not isinstance(fields, Mapping):
        return Answer(TROUBLE)
    code, payload, process = fields.get("code"), fields.get("payload"), fields.get("process")
    if (
        not isinstance(code, str)
        or not isinstance(payload, bytes | bytearray | memoryview)
        or not isinstance(process, str)
        or not _PROCESS.fullmatch(process)
        or (code and not _CODE.fullmatch(code))
    ):
        return Answer(TROUBLE)
    if fields.get("digest") != _digest(payload):
        return Answer(DAMAGED, b"", process)
    return Answer(code, bytes(payload), process)


def _digest(payload: bytes | bytearray | memoryview) -> str:
    return hashlib.sha256(payload).hexdigest()
