"""Parties in one process: real messages, serialised and counted, and no network."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.federation.transport import Call, Replies, Transport

Result = TypeVar("Result")


class Party(Protocol):
    """A role that answers messages."""

    def handle(self, request: bytes) -> bytes:
        """The answer."""
        ...


@dataclass
class Traffic:
    """What one party received and sent.

    Attributes
    ----------
    messages : int
        Requests that it answered.
    received, sent : int
        Bytes.
    sent_by_step : dict
        Bytes that it sent, by step.
    """

    messages: int = 0
    received: int = 0
    sent: int = 0
    sent_by_step: dict[str, int] = field(default_factory=dict)

    def count(self, step: str, request: bytes, reply: bytes) -> None:
        """Note one exchange."""
        self.messages += 1
        self.received += len(request)
        self.sent += len(reply)
        self.sent_by_step[step] = self.sent_by_step.get(step, 0) + len(reply)


class InProcess:
    """A transport that calls its parties one after the other."""

    def __init__(self, parties: Mapping[str, Party]) -> None:
        self._parties = dict(parties)
        self.traffic = {name: Traffic() for name in parties}

    def sites(self) -> Sequence[str]:
        """Names of the parties."""
        return tuple(self._parties)

    def call(self, method: str, payloads: Mapping[str, bytes], timeout: float) -> Replies:
        """Each party's answer; nobody is waited for here, so ``timeout`` does not matter."""
        del timeout
        replies: dict[str, bytes] = {}
        failures: dict[str, EigenveilError] = {}
        for name, request in payloads.items():
            party = self._parties.get(name)
            if party is None:
                failures[name] = ProtocolError("there is no such party here", code="unknown-party")
                continue
            replies[name] = party.handle(request)
            self.traffic[name].count(method, request, replies[name])
        return replies, failures


def carry(run: Generator[Call, Replies, Result], transport: Transport) -> Result:
    """Carry a role's calls until it has its result."""
    try:
        call = next(run)
        while True:
            call = run.send(transport.call(call.method, call.payloads, call.timeout))
    except StopIteration as end:
        result: Result = end.value
        return result
