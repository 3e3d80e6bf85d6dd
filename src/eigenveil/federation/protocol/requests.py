"""The aggregator's requests to parties, repeated until there is an answer, and the transport."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from eigenveil.errors import EigenveilError, ProtocolError, received_code
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import (
    AGGREGATOR,
    REFUSED,
    Message,
    decode,
    encode,
    expect,
)
from eigenveil.federation.secagg.keys import Context
from eigenveil.models.rounds import Round
from eigenveil.moments.describe import describe

Replies = tuple[dict[str, bytes], dict[str, EigenveilError]]


class Transport(Protocol):
    """Carries messages to parties and brings their answers back."""

    def call(self, method: str, payloads: Mapping[str, bytes], timeout: float) -> Replies:
        """Give each named party its message: answers, and failures, by name.

        A party that does not answer within ``timeout`` seconds is a failure; a repeated request
        with the same bytes it gives the same answer.
        """


@dataclass(frozen=True)
class Call:
    """What a role wants carried."""

    method: str
    payloads: Mapping[str, bytes]
    timeout: float


# -- How the aggregator sends a query: the same one again until there is an answer, or none to
# expect.


Calls = Generator[Call, Replies, None]
Take = Callable[[str, Message], None]
TRIES = 3
# Most bytes of an answer that has no numbers.
SMALL = 1 << 20


class Requests:
    """Calls of one session."""

    def __init__(
        self, study: str, session: str, timeout: float, progress: Callable[[str, int], None] | None
    ) -> None:
        self._study, self._session, self._timeout = study, session, timeout
        self._notify = progress or _silent
        self.missing: dict[str, str] = {}
        self.listed = ""

    def query(
        self,
        step: str,
        names: Sequence[str],
        request: Callable[[str], bytes],
        take: Take,
        limit: int,
        tries: int = TRIES,
    ) -> Calls:
        """Ask each party and take its answer; who fails, after some tries, is missing."""
        waiting, failed = list(names), dict[str, str]()
        for _ in range(tries):
            if not waiting:
                break
            replies, failures = yield Call(
                step, {name: request(name) for name in waiting}, self._timeout
            )
            again = []
            for name in waiting:
                try:
                    take(name, self._answer(name, step, replies, failures, limit))
                    failed.pop(name, None)
                    self._notify(step, 1)
                except _Refused as refused:
                    failed[name] = refused.message  # asking again changes nothing
                except EigenveilError as error:
                    failed[name] = error.message
                    again.append(name)
            waiting = again
        self.missing.update(failed)

    def message(
        self, step: str, body: BaseModel, arrays: Mapping[str, NDArray[Any]] | None = None
    ) -> Message:
        fields = body.model_dump(mode="json")
        return Message(step, self._study, self._session, AGGREGATOR, fields, arrays or {})

    def payload(
        self, step: str, body: BaseModel, arrays: Mapping[str, NDArray[Any]] | None = None
    ) -> bytes:
        return encode(self.message(step, body, arrays))

    def ask(
        self,
        step: str,
        names: Sequence[str],
        body: BaseModel,
        take: Take,
        limit: int,
        *,
        arrays: Mapping[str, NDArray[Any]] | None = None,
        tries: int = TRIES,
    ) -> Calls:
        """The same query to each party."""
        payload = self.payload(step, body, arrays)
        return self.query(step, names, lambda _: payload, take, limit, tries)

    def too_few(self, what: str) -> ProtocolError:
        """The error that ends a study, naming who is missing and why."""
        gone = "; ".join(f"site {name}: {why}" for name, why in sorted(self.missing.items()))
        return ProtocolError("too-few-sites", what=what, gone=gone)

    @property
    def context(self) -> Context:
        return Context(self._study, self._session, self.listed)

    def _answer(
        self,
        name: str,
        step: str,
        replies: Mapping[str, bytes],
        failures: Mapping[str, EigenveilError],
        limit: int,
    ) -> Message:
        if name in failures:
            raise failures[name]
        if name not in replies:
            raise ProtocolError("no-answer")
        message = decode(replies[name], sender=name, limit=max(limit, SMALL))
        if message.step == REFUSED:
            refusal = message.read(payloads.Refusal)
            text = "".join(letter for letter in refusal.text if letter.isprintable())
            code = received_code(refusal.code)
            raise _Refused.relayed(f"{text} ({code})", code=code)
        return expect(message, step=step, study=self._study, session=self._session)


def round_request(
    queries: Round, features: int, round_number: int, members: str | None
) -> tuple[payloads.RoundRequest, dict[str, NDArray[np.float64]]]:
    """The body and the arrays of a round's request; ``members`` are those that can be lost."""
    arrays: dict[str, NDArray[np.float64]] = {}
    reported = []
    for index, query in enumerate(queries):
        description, found = describe(query.accumulator, features)
        arrays |= {f"{name} {index}": array for name, array in found.items()}
        noise = query.record.noise
        assert noise.grid is not None
        reported.append(
            payloads.QueryBody(
                name=query.name, description=description, scale=noise.scale, grid=noise.grid
            )
        )
    body = payloads.RoundRequest(
        round_number=round_number, members=members, queries=tuple(reported)
    )
    return body, arrays


class _Refused(ProtocolError):
    """A party refuses, and gives the reason."""


def _silent(what: str, sites: int) -> None:
    del what, sites
