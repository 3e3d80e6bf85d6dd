"""Who a party is: a key that signs, and the federation's list that says whose key is whose.

Masks hide a site's message only if the keys that they are made with are those of other sites. So
each party signs the keys of a session with the key that the list of members has for it, and takes
keys of others only with such a signature. The digest of the list is part of what is signed: parties
that hold different lists understand nothing of each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.errors import ProtocolError
from eigenveil.federation.members import ROLES, Membership, Role
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import HELPER
from eigenveil.federation.public_key import SIGNATURE_BYTES, PublicKey, Signer
from eigenveil.federation.secagg.keys import Context
from eigenveil.federation.signed import Document

__all__ = [
    "ROLES",
    "SIGNATURE_BYTES",
    "Identity",
    "Membership",
    "PublicKey",
    "Role",
    "Signer",
]


class SessionKeys(Document):
    DOMAIN = "keys 3"
    federation: str
    members: str  # The digest of the list of members
    study: str
    session: str
    name: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Identity:
    """A party's name, what signs for it, and who it knows."""

    name: str
    role: Role
    signer: Signer
    members: Membership

    def sign(self, text: bytes) -> bytes:
        return self.signer.sign(text)

    def verify(self, text: bytes, signature: bytes, *, role: str, name: str) -> None:
        """Raise where a text is not signed by the party of this role and name."""
        if not self.members.key(role=role, name=name).verify(text, signature):
            raise _refused(name, "the signature does not hold")

    def signed(self, keys: payloads.PublicKeys, context: Context, name: str) -> payloads.PublicKeys:
        """The same keys with a proof that they are this party's in this session."""
        signature = self.sign(self._text(keys.proved(), context, name)).hex()
        return keys.model_copy(update={"proof": payloads.Proof(signature=signature)})

    def check(
        self, keys: tuple[str, ...], proof: payloads.Proof | None, context: Context, name: str
    ) -> None:
        """Raise where keys are not proved to be those of the party called ``name``."""
        if proof is None:
            raise _refused(name, "its keys are not signed")
        role = "helper" if name == HELPER else "site"
        text = self._text(keys, context, name)
        self.verify(text, bytes.fromhex(proof.signature), role=role, name=name)

    def _text(self, keys: tuple[str, ...], context: Context, name: str) -> bytes:
        return SessionKeys(
            federation=self.members.federation,
            members=self.members.digest,
            study=context.study,
            session=context.session,
            name=name,
            keys=keys,
        ).text


def _refused(name: str, what: str) -> ProtocolError:
    return ProtocolError("bad-identity", party=name, what=what)
