"""Charging a fit of one table to a ledger: what a fit says of itself, and what charges it.

The ledger stands above the models and is found by name, as a task's parts are: whoever fits without
one never loads its database library.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from eigenveil.errors import DataError
from eigenveil.files import Place
from eigenveil.models.options import Options
from eigenveil.models.plan import BasePlan
from eigenveil.models.task import part
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.releases import ReleaseRecord

if TYPE_CHECKING:
    from eigenveil.federation.ledger.ledger import Ledger

LedgerPlace: TypeAlias = "str | os.PathLike[str] | Ledger"
_BEGIN = "federation.ledger.fits:begin_fit"


class Charges(Protocol):
    """What a fit's releases are charged to."""

    counted: bool  # Whether they are charged at all
    accounts: tuple[str, ...]  # The ledger, and its accounts that are charged

    def charge(self, records: Sequence[ReleaseRecord]) -> None:
        """Charge releases, durably, before their noise is drawn."""

    def end(self, outcome: str) -> None:
        """No more releases come: what was reserved and not charged is free again."""


class _Uncharged:
    """No ledger: nothing is charged."""

    counted = False
    accounts: tuple[str, ...] = ()

    def charge(self, records: Sequence[ReleaseRecord]) -> None:
        """Nothing."""

    def end(self, outcome: str) -> None:
        """Nothing."""


UNCHARGED: Charges = _Uncharged()


@dataclass(frozen=True)
class FitTerms:
    """What a fit says of itself to a ledger."""

    adjacency: Adjacency
    # What one neighbour has more, or other, than the other: all rows of a unit, or one row
    unit: str | None
    epsilon: float  # Its target: the budget of an account that is opened for it
    delta: float
    pure_part: float
    reserve: Loss  # The most that it costs, under its own adjacency, and where one unit is changed
    replacing: Loss
    note: str  # For the owner, who reads it in the ledger

    @classmethod
    def of(cls, plan: BasePlan, *, by: str) -> FitTerms:
        """Those of a plan, whatever its number of rows; ``by`` is the estimator's name."""
        return cls(
            adjacency=plan.adjacency,
            unit=plan.unit,
            epsilon=plan.epsilon,
            delta=plan.delta,
            pure_part=plan.pure_part,
            reserve=plan.reservation(),
            replacing=plan.reservation(replacing=True),
            note=f"{by}, noise: {plan.noise_source}, plan {plan.hash}",
        )


def begin_charges(
    options: Options, plan: BasePlan, *, files: Sequence[Place] | None = None
) -> Charges:
    """Reserve what a fit may cost, before any of its rows is read."""
    if options.ledger is None:
        if options.data_set is not None:
            raise options.refused("data_set", "data-set-without-ledger", data_set=options.data_set)
        return UNCHARGED
    if getattr(plan, "row_norm", None) == "max":
        raise options.refused("row_norm", "norm-not-private")
    terms = FitTerms.of(plan, by=options.owner)
    charges: Charges = part(_BEGIN)(options.ledger, options.data_set, files, terms)
    return charges


def no_data_set() -> DataError:
    """The error of rows that no account can be found for."""
    return DataError("no-data-set")
