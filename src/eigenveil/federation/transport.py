"""What carries messages: two verbs, and nothing of mathematics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from eigenveil.errors import EigenveilError

Replies = tuple[dict[str, bytes], dict[str, EigenveilError]]


class Transport(Protocol):
    """Carries messages to parties and brings their answers back."""

    def sites(self) -> Sequence[str]:
        """Names of the parties that can be reached."""
        ...

    def call(self, method: str, payloads: Mapping[str, bytes], timeout: float) -> Replies:
        """Give each named party its message: answers, and failures, by name.

        A party that does not answer within ``timeout`` seconds is a failure; asked again with the
        same bytes it gives the same answer.
        """
        ...


@dataclass(frozen=True)
class Call:
    """What a role wants carried."""

    method: str
    payloads: Mapping[str, bytes]
    timeout: float
