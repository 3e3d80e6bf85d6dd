"""The contents of the messages: one pair of models for each step, request and reply.

Numbers that are large travel as arrays beside the body, and so do sealed texts.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from eigenveil.federation.sealing import SEALING_BYTES
from eigenveil.moments.describe import Description
from eigenveil.privacy.certificate import Certificate
from eigenveil.privacy.statistics import Layout

# As many rounds as the longest fit has, that of a mixture.
MOST_ROUNDS = 12
# Sums of a round.
MOST_QUERIES = 3

Key = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
SealingKey = Annotated[str, StringConstraints(pattern=rf"^[0-9a-f]{{{2 * SEALING_BYTES}}}$")]
Share = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Signature = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]
# Of sites of the study: eigenveil.federation.secagg.consistency.bitmap.
Members = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})+$", max_length=1 << 14)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def fields(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class Proof(_Body):
    """That keys are a party's: a signature by its key of the list of members."""

    signature: Signature


class PublicKeys(_Body):
    """A party's keys of a session: what only it may read is sealed for this one."""

    sealing: SealingKey
    proof: Proof | None = None

    @property
    def raw(self) -> bytes:
        return bytes.fromhex(self.sealing)

    def proved(self) -> tuple[str, ...]:
        """What a proof is about."""
        return (self.sealing,)


class JoinRequest(_Body):
    """The aggregator opens a session."""


class JoinReply(_Body):
    """The columns of a site's table, its keys, and the digest of the list of members that it has.

    ``seeded`` means that its noise is for a rehearsal, ``dependent`` that on its processor a row's
    rounding depends on its neighbours: the result cannot be certified. ``newlines_in_cells``: of
    its text files a quoted cell may go on over the ends of lines.
    """

    columns: tuple[str, ...] | None
    features: int = Field(gt=0)
    keys: PublicKeys
    listed: Key | Literal[""] = ""
    seeded: bool = False
    dependent: bool = False
    newlines_in_cells: bool = False


class KeysRequest(_Body):
    """Who takes part, all sites of the study but the lost; keys of those this site agrees with."""

    lost: tuple[Name, ...] = ()
    partners: dict[Name, PublicKeys]


class LettersReply(_Body):
    """The array ``letters`` has one for each partner, by name, shape (partners, bytes)."""


class SharesRequest(_Body):
    """Letters that partners sealed for this site: the array ``letters``, in this order."""

    senders: tuple[Name, ...]


class SharesReply(_Body):
    """The array ``packets`` has one for each round."""


class Done(_Body):
    """Nothing more to say."""


class QueryBody(_Body):
    """One noisy sum of a round."""

    name: str = Field(max_length=64)
    description: Description
    scale: float = Field(ge=2.0**-60, le=2.0**60)
    grid: int = Field(ge=-100, le=40)


class RoundRequest(_Body):
    """The sums of a round; arrays are named ``center i``, ``basis i``, ``scale i`` and so on.

    The first names those that can be lost, where some can, and has the ``letters`` otherwise.
    """

    round_number: int = Field(ge=1, le=MOST_ROUNDS)
    members: Members | None = None
    queries: tuple[QueryBody, ...] = Field(min_length=1, max_length=MOST_QUERIES)


class SurvivorsRequest(_Body):
    """Which sites' messages are in a round's sum."""

    round_number: int = Field(ge=1, le=MOST_ROUNDS)
    survivors: Members


class SurvivorsReply(_Body):
    """The site's signature of what it received: :mod:`eigenveil.federation.secagg.consistency`."""

    signature: Signature


class UnmaskRequest(_Body):
    """Who has signed the set of survivors that this site signed: array ``signatures``, by name."""

    round_number: int = Field(ge=1, le=MOST_ROUNDS)
    signed: Members


class UnmaskReply(_Body):
    """Shares of own masks of neighbours that survived, and of repair secrets of the lost."""

    own: dict[Name, Share]
    repair: dict[Name, Share]


class PartBody(_Body):
    """One of a round's sums, as :class:`eigenveil.federation.masks.Part`."""

    size: int = Field(gt=0)
    deviation: float = Field(gt=0, le=2.0**90)
    layout: Layout


class MasksRequest(_Body):
    """Asks the helper for the masks of some sites in a round; ``letters`` are theirs to it."""

    round_number: int = Field(ge=1, le=MOST_ROUNDS)
    request_digest: Key = Field(description="fingerprint of the round's request")
    sites: dict[Name, PublicKeys] = Field(description="whose masks are wanted now")
    parts: tuple[PartBody, ...] = Field(min_length=1, max_length=MOST_QUERIES)


class HelperKey(_Body):
    """The helper's keys."""

    keys: PublicKeys


class EndRequest(_Body):
    """The session is over; its certificate is to be signed by those who agree with it."""

    outcome: str = Field(max_length=200)
    certificate: Certificate | None = None


class EndReply(_Body):
    """The site's signature of the certificate, where there is one."""

    signature: Signature | None = None


class Refusal(_Body):
    """Why a role does not answer: a code, and a sentence that holds nothing computed from rows."""

    code: str = Field(max_length=64)
    text: str = Field(max_length=500)
