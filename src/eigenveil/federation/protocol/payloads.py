"""The contents of the messages: one pair of models for each step, request and reply.

Numbers that are large travel as arrays beside the body. Keys and sealed texts are hexadecimal.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from eigenveil.moments.describe import Description
from eigenveil.privacy.certificate import Certificate
from eigenveil.privacy.statistics import Layout

# Rounds that a session has keys for: as many as the longest fit has, that of a mixture.
MOST_ROUNDS = 12
# Sums of a round.
MOST_QUERIES = 3

Key = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Hex = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})*$", max_length=4096)]
Share = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Signature = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]
# Of sites of the study: eigenveil.federation.secagg.consistency.bitmap.
Members = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})+$", max_length=1 << 14)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def fields(self) -> dict[str, Any]:
        """The body as plain JSON values."""
        return self.model_dump(mode="json")


class Proof(_Body):
    """That keys are a party's: its certificate, and a signature by the certificate's key."""

    certificate: Annotated[str, StringConstraints(max_length=1 << 14)] = ""
    signature: Hex


class PublicKeys(_Body):
    """One site's keys: one for each round's masks, one for what only it may read, one it signs by.

    The last is an Ed25519 key, all others are X25519 keys.
    """

    rounds: tuple[Key, ...] = Field(min_length=MOST_ROUNDS, max_length=MOST_ROUNDS)
    channel: Key
    signing: Key
    proof: Proof | None = None

    def agreeing(self) -> tuple[str, ...]:
        """Those that secrets are agreed on with."""
        return (*self.rounds, self.channel)

    def digest(self) -> str:
        """SHA-256, in hex, of those that secrets are agreed on with."""
        return hashlib.sha256("".join(self.agreeing()).encode()).hexdigest()

    def proved(self) -> tuple[str, ...]:
        """What a proof of them all is about: who need not see all needs no more than this."""
        return (self.signing, self.digest())


class SignerProof(_Body):
    """That a key which signs is a party's, for those who do not see that party's other keys."""

    digest: Key
    proof: Proof


class JoinRequest(_Body):
    """The aggregator opens a session."""


class JoinReply(_Body):
    """The columns of a site's table, and its keys.

    ``seeded`` means that its noise is for a rehearsal, ``dependent`` that on its processor a row's
    rounding depends on its neighbours: the result cannot be certified. ``newlines_in_cells``: of
    its text files a quoted cell may go on over the ends of lines.
    """

    columns: tuple[str, ...] | None
    features: int = Field(gt=0)
    keys: PublicKeys
    seeded: bool = False
    dependent: bool = False
    newlines_in_cells: bool = False


class KeysRequest(_Body):
    """Who takes part: all sites of the study but the lost; keys of those it concerns this site.

    Where sites may be lost, the array ``signers`` has the signing keys of all that take part, in
    the study's order, shape (sites, 32); between organisations ``proofs`` are those of the others.
    """

    lost: tuple[Name, ...] = ()
    proofs: dict[Name, SignerProof] = {}
    neighbours: dict[Name, PublicKeys]
    helper: Key | None = None
    helper_proof: Proof | None = None


class KeysReply(_Body):
    """Shares of this site's secrets, sealed for each holder."""

    sealed: dict[Name, Hex] = {}


class SharesRequest(_Body):
    """Who has shared, and the shares that neighbours among them sealed for this site."""

    members: Members
    sealed: dict[Name, Hex]


class Done(_Body):
    """Nothing more to say."""


class QueryBody(_Body):
    """One noisy sum of a round."""

    name: str = Field(max_length=64)
    description: Description
    scale: float = Field(ge=2.0**-60, le=2.0**60)
    grid: int = Field(ge=-100, le=40)


class RoundRequest(_Body):
    """The sums of a round; arrays are named ``center i``, ``basis i``, ``scale i`` and so on."""

    round_number: int = Field(ge=1, le=MOST_ROUNDS)
    queries: tuple[QueryBody, ...] = Field(min_length=1, max_length=MOST_QUERIES)


class SurvivorsRequest(_Body):
    """Which sites' messages are in a round's sum."""

    round_number: int = Field(ge=1, le=MOST_ROUNDS)
    survivors: Members


class SurvivorsReply(_Body):
    """The site's signature of what it received: :mod:`eigenveil.federation.secagg.consistency`."""

    signature: Signature


class UnmaskRequest(_Body):
    """Who has signed the set of survivors that this site signed.

    The arrays are ``signatures``, shape (sites that signed, 64), and ``signers`` as in the step
    ``keys``.
    """

    round_number: int = Field(ge=1, le=MOST_ROUNDS)
    signed: Members


class UnmaskReply(_Body):
    """Shares of the own masks of neighbours that survived, and of the pair secrets of the lost."""

    own: dict[Name, Share]
    pair: dict[Name, Share]


class PartBody(_Body):
    """One of a round's sums, as :class:`eigenveil.federation.secagg.masks.Part`."""

    size: int = Field(gt=0)
    deviation: float = Field(gt=0, le=2.0**90)
    layout: Layout


class MasksRequest(_Body):
    """Asks the helper for the masks of some sites in a round."""

    round_number: int = Field(ge=1, le=MOST_ROUNDS)
    request_digest: Key = Field(description="fingerprint of the round's request")
    channels: dict[Name, Key] = Field(description="the sites whose masks are wanted now")
    proved: dict[Name, PublicKeys] = Field(
        default={}, description="all keys of these sites, for a helper that checks signatures"
    )
    parts: tuple[PartBody, ...] = Field(min_length=1, max_length=MOST_QUERIES)


class HelperKey(_Body):
    """The helper's channel key."""

    channel: Key
    proof: Proof | None = None


class SignRequest(_Body):
    """The certificate of the study, to be signed by those who agree with it."""

    certificate: Certificate


class SignReply(_Body):
    """The site's signature of it: :mod:`eigenveil.federation.protocol.certificates`."""

    proof: Proof


class FinishRequest(_Body):
    """The session is over."""

    outcome: str = Field(max_length=200)


class Refusal(_Body):
    """Why a role does not answer: a code, and a sentence that holds nothing computed from rows."""

    code: str = Field(max_length=64)
    text: str = Field(max_length=500)
