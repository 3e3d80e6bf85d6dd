"""What a carrier is: a mailbox a member, into which anybody may put and from which nothing is lost.

At least once, in any order, late or never: roles answer a repeated question with their stored
answer, and nothing is believed of a carrier. One is a class in one file with an entry point of the
group ``eigenveil.carriers``, named by the scheme of its addresses; ``tests/network/contract.py``
says what all must do.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from importlib.metadata import entry_points
from typing import Protocol

from eigenveil.errors import ProtocolError, short_name
from eigenveil.network.folder import PartyFolder

GROUP = "eigenveil.carriers"
LARGEST = 1 << 28
"""Most bytes of an envelope that a carrier takes, whatever its study."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}")
# The extra that a scheme of ours needs.
_EXTRAS = {"https": "sites", "s3": "stores", "sftp": "stores", "gs": "stores"}


class CarrierError(ProtocolError):
    """A mailbox cannot be reached, or takes no more; a later try may help (``no-mailbox``)."""


class Mailbox(Protocol):
    """What one member may do with a carrier."""

    def put(self, recipient: str, envelope: bytes) -> None:
        """Leave an envelope; twice the same is once. Raises :class:`CarrierError`."""

    def take(self, wait: float, known: Collection[str] = ()) -> list[bytes]:
        """Own mail whose digest is not ``known``, oldest first; waits for some, removes nothing."""

    def forget(self, digests: Collection[str]) -> None:
        """Own mail that is dealt with, by digest."""

    def close(self) -> None:
        """End all waiting and give connections back."""


class Carrier(Protocol):
    """Opens mailboxes at addresses of one scheme."""

    scheme: str

    def open(self, party: PartyFolder, address: str) -> Mailbox: ...


def digest_of(envelope: bytes) -> str:
    return hashlib.sha256(envelope).hexdigest()


def check_recipient(name: str) -> str:
    """The name, if a member can have it: carriers make paths of it."""
    if not _NAME.fullmatch(name):
        raise ProtocolError("bad-name-of-party", name=short_name(name))
    return name


def open_mailbox(party: PartyFolder, address: str | None = None) -> Mailbox:
    """A party's mailbox at an address; by default at the one that the party uses."""
    where = address or party.mailbox_address()
    scheme = where.partition(":")[0]
    found = next(iter(entry_points(group=GROUP, name=scheme)), None)
    if found is None:
        raise ProtocolError(
            "no-carrier", address=short_name(where), known=", ".join(sorted(schemes())) or "none"
        )
    try:
        carrier: Carrier = found.load()()
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        raise ProtocolError(
            "carrier-incomplete",
            scheme=scheme,
            reason=error.name or error,
            extra=f"pip install 'eigenveil[{extra}]'" if extra else "Install what it names.",
        ) from None
    return carrier.open(party, where)


def schemes() -> Iterator[str]:
    return (each.name for each in entry_points(group=GROUP))
