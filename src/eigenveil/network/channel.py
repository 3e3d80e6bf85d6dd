"""The channel between an aggregator's job and a party: steps, sizes, and codes.

A reply is bytes that the party's role made, or a code alone: no text of an exception, no traceback
and nothing computed from rows leaves a site on this channel. Both travel in envelopes that their
senders signed (:mod:`eigenveil.federation.protocol.envelope`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from eigenveil.federation.protocol import payloads
from eigenveil.federation.study.study import Study

CHANNEL = "eigenveil"
# "ask": a question of a job's process to a party. "whereabouts": of a party to the aggregator.
# "survey": of a lead to a party, before a study runs (:mod:`eigenveil.network.survey`).
TOPIC, WHEREABOUTS, SURVEY = "ask", "whereabouts", "survey"
# A lead's requests of the aggregator, beyond FLARE's own commands.
PARTIES_COMMAND, ASK_COMMAND = "eigenveil_parties", "eigenveil_ask"
STATUS_COMMAND, RESULT_COMMAND = "eigenveil_status", "eigenveil_result"
ABORT_COMMAND = "eigenveil_abort"
# Beside the steps of the protocol. "hello": are you there, and was this run admitted?
# "bye": the run is over. "order", "abort": its lead wants it to begin, to end.
HELLO, BYE, ORDER, ABORT = "hello", "bye", "order", "abort"

NO_ANSWER, UNREACHABLE, ABORTED, RESTARTED = "no-answer", "unreachable", "aborted", "restarted"
NOT_ADMITTED, NOT_APPROVED, TROUBLE, DATA = "not-admitted", "not-approved", "problem", "data"
OWNER_REFUSED = "owner-refused"
BAD_MEMBERS, OLDER_MEMBERS = "bad-members", "older-members"
OTHER_SESSION, BAD_REQUEST, REFUSED = "other-session", "bad-request", "job-refused"
UNSIGNED = "unsigned"
# What an aggregator states of a run.
GOING_ON, OVER, UNKNOWN = "going-on", "over", "unknown"
# What may be different a moment later, when a job begins.
PASSING = (NO_ANSWER, UNREACHABLE, NOT_ADMITTED, OLDER_MEMBERS)
_SENTENCES = {
    NO_ANSWER: "it did not answer in time",
    UNREACHABLE: "it cannot be reached",
    ABORTED: "the study was stopped",
    RESTARTED: "it was started again",
    NOT_ADMITTED: "it does not take part in this run",
    NOT_APPROVED: "its owner has not approved this study",
    OWNER_REFUSED: "its owner refused this study",
    BAD_MEMBERS: "its list of members and the aggregator's do not follow from each other, or one "
    "cannot be read: ask the registrar which one holds",
    OLDER_MEMBERS: "it has seen a newer list of members, which the aggregator takes over",
    OTHER_SESSION: "it takes part in another run of this study",
    REFUSED: "it refused this run; its owner finds the reason in the site's own log",
    BAD_REQUEST: "it does not understand the request",
    UNSIGNED: "it sent nothing that it has signed: a message was damaged or forged on the way, or "
    "certificates of it or of the aggregator are not good",
    DATA: "its rows cannot be used as they are; its owner finds the reason in the site's own log",
    TROUBLE: "it cannot answer; its owner finds the reason in the site's own log",
}
CODES = tuple(_SENTENCES)


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
    """Asks one party one question and brings back what came of it."""

    def query(self, name: str, step: str, payload: bytes, timeout: float, stop: Stop) -> Answer:
        """The party's answer; never raises for what the party or the network does.

        ``stop`` ends the waiting early.
        """
        ...


class Stop:
    """Ends the waiting for one answer; FLARE reads ``triggered`` (and at ``value``)."""

    def __init__(self) -> None:
        self.triggered = False
        self.value: object = None

    def trigger(self, value: object = True) -> None:
        """End it."""
        self.value = value
        self.triggered = True


def sentence(code: str) -> str:
    """A code in words."""
    return _SENTENCES.get(code, _SENTENCES[TROUBLE])


# -- How large a message of a study can be: what is larger is refused before it is read.


# Bytes beside numbers: names and codes of a message, and keys, certificates and shares of a party.
_SMALL = 1 << 21
_EACH_PARTY = 1 << 13
# A column's name in a join, and masks that the helper seals at once.
_LONG_NAME = 256
_HELD = 1 << 26
# Of a lead's question with its study, and of a site's answer with its schema.
MOST_SURVEYED = 1 << 20
# Of any other message that FLARE's services send each other: jobs, registrations, results.
MOST_OF_FLARE = 1 << 23


def largest_message(study: Study) -> int:
    """Most bytes of a question or an answer of this study, generously."""
    plan = study.plan(study.width)
    numbers = payloads.MOST_QUERIES * plan.requested_values() + plan.released_values()
    held = _HELD if study.masks == "helper" else 0
    beside = _SMALL + _EACH_PARTY * len(study.sites) + _LONG_NAME * study.width
    return beside + 8 * numbers + held
