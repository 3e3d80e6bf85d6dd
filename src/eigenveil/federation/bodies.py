"""What the messages of each step say: one pair of models a step, request and reply.

Numbers that are large travel as arrays beside the body. Keys and sealed texts are hexadecimal.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from eigenveil.moments.accumulators import Layout
from eigenveil.moments.describe import Description

# Rounds that a session has keys for; a fit has at most six, that of a mixture.
MOST_ROUNDS = 8
# Sums of a round.
MOST_ASKS = 3

Key = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Hex = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})*$", max_length=4096)]
Share = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def fields(self) -> dict[str, Any]:
        """The body as plain JSON values."""
        return self.model_dump(mode="json")


class Proof(_Body):
    """That keys are a party's: its certificate, and a signature by the certificate's key."""

    certificate: Annotated[str, StringConstraints(max_length=1 << 14)]
    signature: Hex


class PublicKeys(_Body):
    """One site's keys: a key for each round's masks, and one for what only it may read."""

    rounds: tuple[Key, ...] = Field(min_length=MOST_ROUNDS, max_length=MOST_ROUNDS)
    channel: Key
    proof: Proof | None = None

    def every(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.rounds, self.channel)


class JoinRequest(_Body):
    """The aggregator opens a session."""


class JoinReply(_Body):
    """What a site's table looks like, and its keys; ``rows`` only where row counts are public.

    ``seeded`` says that its noise is for a rehearsal, ``dependent`` that on its processor a row's
    rounding depends on its neighbours: the result cannot be certified.
    """

    columns: tuple[str, ...] | None
    features: int = Field(gt=0)
    single: bool
    rows: int | None = Field(default=None, ge=0, le=2**48)
    keys: PublicKeys
    seeded: bool = False
    dependent: bool = False


class KeysRequest(_Body):
    """Who takes part: all sites of the study but the lost; keys of those it concerns this site."""

    lost: tuple[Name, ...] = ()
    neighbours: dict[Name, PublicKeys]
    helper: Key | None = None
    helper_proof: Proof | None = None
    rows: int | None = Field(
        default=None, ge=0, le=2**60, description="public rows of all sites, weighted"
    )


class KeysReply(_Body):
    """Shares of this site's secrets, sealed for each holder."""

    sealed: dict[Name, Hex] = {}


class SharesRequest(_Body):
    """Shares that neighbours sealed for this site."""

    sealed: dict[Name, Hex]


class Done(_Body):
    """Nothing more to say."""


class AskBody(_Body):
    """One noisy sum of a round."""

    name: str = Field(max_length=64)
    description: Description
    scale: float = Field(ge=2.0**-60, le=2.0**60)
    grid: int = Field(ge=-100, le=40)


class RoundRequest(_Body):
    """The sums of a round; arrays are named ``centre i`` and ``basis i``."""

    turn: int = Field(ge=1, le=MOST_ROUNDS)
    asks: tuple[AskBody, ...] = Field(min_length=1, max_length=MOST_ASKS)


class UnmaskRequest(_Body):
    """Which of the sites whose shares this one holds have answered a round, and which have not."""

    turn: int = Field(ge=1, le=MOST_ROUNDS)
    taking_part: int = Field(gt=0, description="sites whose message is in the sum")
    arrived: tuple[Name, ...]
    lost: tuple[Name, ...]


class UnmaskReply(_Body):
    """Shares of the own masks of those who answered, and of the pair secrets of those lost."""

    own: dict[Name, Share]
    pair: dict[Name, Share]


class PartBody(_Body):
    """One of a round's sums, as :class:`eigenveil.federation.masks.Part`."""

    size: int = Field(gt=0)
    deviation: float = Field(gt=0, le=2.0**90)
    layout: Layout


class MasksRequest(_Body):
    """Asks the helper for the masks of some sites in a round."""

    turn: int = Field(ge=1, le=MOST_ROUNDS)
    about: Key = Field(description="fingerprint of the round's request")
    channels: dict[Name, Key] = Field(description="the sites whose masks are wanted now")
    proved: dict[Name, PublicKeys] = Field(
        default={}, description="all keys of these sites, for a helper that checks signatures"
    )
    parts: tuple[PartBody, ...] = Field(min_length=1, max_length=MOST_ASKS)


class HelperKey(_Body):
    """The helper's channel key."""

    channel: Key
    proof: Proof | None = None


class FinishRequest(_Body):
    """The session is over."""

    outcome: str = Field(max_length=200)


class Refusal(_Body):
    """Why a role does not answer: a code, and a sentence that holds nothing computed from rows."""

    code: str = Field(max_length=64)
    text: str = Field(max_length=500)
