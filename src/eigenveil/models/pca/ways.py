"""Ways to release a second moment: whole with noise, as directions, as a sketch, round by round.

PCA's choice of ``mechanism`` names a mechanism, which releases the whole moment or draws directions
from it, or one of two ways that release less: there the noise is the usual one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Protocol

from eigenveil.models.plan import Planned
from eigenveil.noise.bingham import check_feasible
from eigenveil.privacy.mechanisms import MECHANISMS
from eigenveil.privacy.statistics import STATISTICS, StatisticName


class Sized(Protocol):
    """What a way is chosen for: a plan of PCA."""

    @property
    def features(self) -> int: ...  # noqa: D102
    @property
    def n_components(self) -> int: ...  # noqa: D102
    @property
    def sketch_columns(self) -> int: ...  # noqa: D102
    @property
    def power_rounds(self) -> int: ...  # noqa: D102


class Way(ABC):
    """One way; ``statistic`` is what is released."""

    statistic: StatisticName
    counts: ClassVar[bool] = True
    """Whether what is released does not depend on how many components are wanted of it."""

    def columns(self, plan: Sized) -> int | None:
        """Columns of what is released, D rows; ``None`` where it is the whole moment."""
        del plan
        return None

    @abstractmethod
    def values(self, plan: Sized) -> int:
        """Numbers in all that is released."""

    def schedule(self, plan: Sized) -> list[Planned]:
        """The releases, in order."""
        del plan
        return [Planned("second moment", "moment", self.statistic)]

    def check(self, features: int, components: int) -> None:
        """Raise where it is hopeless."""
        del features, components


class Whole(Way):
    """The whole moment, with noise."""

    statistic = "second-moment"

    def values(self, plan: Sized) -> int:
        """Of a symmetric matrix."""
        return plan.features * (plan.features + 1) // 2


class Directions(Way):
    """Directions that the moment makes likely, and nothing else."""

    statistic = "bingham-vectors"
    counts = False

    def values(self, plan: Sized) -> int:
        """Of a direction a component."""
        return plan.features * plan.n_components

    def schedule(self, plan: Sized) -> list[Planned]:
        """Each direction is a draw of its own."""
        return [Planned("second moment", "moment", self.statistic, draws=plan.n_components)]

    def check(self, features: int, components: int) -> None:
        """A decomposition a direction."""
        check_feasible(features, components)


class OneSketch(Way):
    """The moment times a public matrix, at once (privacy.md, section 6)."""

    statistic = "sketch"

    def columns(self, plan: Sized) -> int:
        """As many as the sketch's."""
        return plan.sketch_columns

    def values(self, plan: Sized) -> int:
        """Of the sketch."""
        return plan.features * plan.sketch_columns

    def schedule(self, plan: Sized) -> list[Planned]:
        """One release."""
        del plan
        return [Planned("sketch", "moment", self.statistic)]


class Power(Way):
    """The moment times what the round before released: power iteration."""

    statistic = "sketch"
    counts = False

    def columns(self, plan: Sized) -> int:
        """One a component."""
        return plan.n_components

    def values(self, plan: Sized) -> int:
        """Of all rounds."""
        return plan.features * plan.n_components * plan.power_rounds

    def schedule(self, plan: Sized) -> list[Planned]:
        """A release a round, each with the same part of the budget."""
        fraction = 1.0 / plan.power_rounds
        return [
            Planned(f"power round {power_round + 1}", "moment", self.statistic, fraction=fraction)
            for power_round in range(plan.power_rounds)
        ]


WHOLE, DIRECTIONS, SKETCH, POWER = Whole(), Directions(), OneSketch(), Power()
LESS: Mapping[str, Way] = MappingProxyType({"power": POWER, "sketch": SKETCH})
"""Ways that a choice names itself."""

CHOICES: tuple[str, ...] = (
    *(each.name for way in (WHOLE, DIRECTIONS) for each in STATISTICS[way.statistic].mechanisms),
    *LESS,
)
"""What PCA's ``mechanism`` may be, beside ``"auto"``."""


def way_of(choice: str) -> Way:
    """The way that a choice of ``mechanism`` stands for."""
    if choice in LESS:
        return LESS[choice]
    return WHOLE if MECHANISMS[choice].added else DIRECTIONS


def noise_of(choice: str, *, pure: bool) -> str:
    """The mechanism that hides the moment under a choice of ``mechanism``."""
    if choice in LESS:
        return STATISTICS[LESS[choice].statistic].usual(pure=pure).name
    return choice
