"""Documents that are signed: one text of each, and who has signed it."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from eigenveil.errors import ProtocolError
from eigenveil.federation.public_key import PublicKey, Signer

KeyText = Annotated[
    str, StringConstraints(pattern=r"^(ed25519:[0-9a-f]{64}|p256:0[23][0-9a-f]{64})$")
]
SignatureText = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]


def canonical(value: object) -> str:
    """The one JSON text of a value: keys in order, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


class Document(BaseModel):
    """What is signed: fixed once made, and nothing beside its fields.

    ``DOMAIN`` names its kind and version. It is part of what is signed, so that nothing else that
    a party signs is one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    DOMAIN: ClassVar[str] = ""

    @property
    def text(self) -> bytes:
        assert self.DOMAIN
        return f"eigenveil {self.DOMAIN}\n{canonical(self.model_dump(mode='json'))}".encode()

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text).hexdigest()


T = TypeVar("T", bound=Document)


class Signed(BaseModel, Generic[T]):
    """A document, and signatures of it by the keys that made them."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    said: T
    signatures: Annotated[dict[KeyText, SignatureText], Field(max_length=64)]

    @classmethod
    def by(cls, said: T, *signers: Signer) -> Self:
        return cls(said=said, signatures={}).also(*signers)

    @classmethod
    def read(cls, data: bytes | str, *, limit: int, what: str) -> Self:
        """What :meth:`line` wrote; no signature is checked yet."""
        try:
            if len(data) > limit:
                raise ValueError
            found = cls.model_validate_json(data)
            if found.line() != (data.encode() if isinstance(data, str) else data):
                raise ValueError  # there is one text of what is said
            return found
        except (ValidationError, ValueError):
            raise ProtocolError("bad-document", what=f"{what[:1].upper()}{what[1:]}") from None

    def also(self, *signers: Signer) -> Self:
        more = {each.public_key.text: each.sign(self.said.text).hex() for each in signers}
        return self.model_copy(update={"signatures": {**self.signatures, **more}})

    def holds(self, key: PublicKey) -> bool:
        found = self.signatures.get(key.text)
        return found is not None and key.verify(self.said.text, bytes.fromhex(found))

    def check(self, key: PublicKey, who: str) -> None:
        if not self.holds(key):
            raise ProtocolError("not-signed", who=who, what=self.said.DOMAIN.rpartition(" ")[0])

    def line(self) -> bytes:
        """As it is kept and sent."""
        return canonical(self.fields()).encode()

    def fields(self) -> dict[str, Any]:
        return self.model_dump(mode="json")
