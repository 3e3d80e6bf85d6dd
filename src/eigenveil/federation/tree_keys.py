"""Who may speak for which place of a tree: every party signs its messages to its parent.

A node takes a message only with a signature by the key of the place that it says it comes from,
made for this very node in this run: so nobody's sums pass as another's, or as an earlier run's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.errors import ProtocolError
from eigenveil.federation.keys import is_signed
from eigenveil.federation.tree import Place


class TreeKeys:
    """The keys of a run, as one process has them.

    Parameters
    ----------
    public : callable
        The Ed25519 key of each place, 32 bytes, as all parties have agreed.
    private : mapping
        The keys of the parties that are here; none of any other.
    """

    def __init__(
        self, public: Callable[[Place], bytes], private: Mapping[Place, Ed25519PrivateKey]
    ) -> None:
        self._public, self._private = public, private

    @classmethod
    def in_one_process(cls) -> Self:
        """A key of its own for every place, drawn when it is first needed: to play all parties."""
        drawn = _Drawn()
        return cls(lambda place: drawn[place].public_key().public_bytes_raw(), drawn)

    def sign(self, message: bytes, sender: Place, receiver: Place) -> bytes:
        """The signature of a message, 64 bytes.

        Raises
        ------
        ProtocolError
            ``no-key`` where the sender's key is not here.
        """
        try:
            private = self._private[sender]
        except KeyError:
            raise ProtocolError(
                f"{sender.name}: its private key is not here, so nothing is signed for it.",
                hint="Give a party the key of its own place.",
                code="no-key",
            ) from None
        return private.sign(_text(message, receiver))

    def check(self, message: bytes, signature: bytes, sender: Place, receiver: Place) -> None:
        """That the party at ``sender`` has sent this message to ``receiver``.

        Raises
        ------
        ProtocolError
            ``bad-signature``.
        """
        if not is_signed(_text(message, receiver), self._public(sender), signature):
            raise ProtocolError(
                f"{receiver.name}: a message that says it is of {sender.name} is not signed by it.",
                hint="It is refused; somebody else made it, or it was changed on the way.",
                code="bad-signature",
            )


class _Drawn(dict[Place, Ed25519PrivateKey]):
    def __missing__(self, place: Place) -> Ed25519PrivateKey:
        return self.setdefault(place, Ed25519PrivateKey.generate())


def _text(message: bytes, receiver: Place) -> bytes:
    """What is signed: study, session, sender and number are in the message."""
    return b"eigenveil tree 1" + hashlib.sha256(message).digest() + receiver.name.encode()
