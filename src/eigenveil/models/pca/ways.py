"""Ways to release a second moment: whole with noise, twice, as directions, a sketch, or in rounds.

PCA's choice of ``mechanism`` names a mechanism, which releases the whole moment or draws directions
from it, or one of the ways that have a name: there the noise is the usual one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from eigenveil.errors import PrivacyError
from eigenveil.models.schedule import Planned, exactly
from eigenveil.noise.bingham import check_feasible
from eigenveil.privacy.mechanisms import MECHANISMS, Mechanism
from eigenveil.privacy.statistics import STATISTICS, StatisticName

if TYPE_CHECKING:
    from eigenveil.models.pca.plan import Plan

# Of mu squared, for the first of two releases; where it is of unit rows and decides how long rows
# are to be in the second. And of what is left, for what is released between them.
_FIRST_LOOK, _FIRST_OF_UNIT_ROWS, _BETWEEN = 0.5, 0.35, 0.06
# The least part for the moment inside a sketch's range, whose noise is small; and the largest
# eigenvalue of that noise over the sketch's, at the most, as rows reach 1.3 times less far in it.
_INSIDE, _EDGES = 0.05, math.sqrt(2.0) / 1.3
MOMENT, ADAPTED = "second moment", "adapted second moment"
# Between the two: how long rows are through what the second could see them; or what whole rows have
# along the directions that unit rows show.
ADAPTED_NORMS, WHOLE_ENERGIES = "scale of adapted rows", "variance along first directions"


class Way(ABC):
    """One way; ``statistic`` is what is released."""

    statistic: StatisticName
    counts: ClassVar[bool] = True
    """Whether what is released does not depend on how many components are wanted of it."""
    whole: ClassVar[bool] = False
    """Whether the whole second moment follows from it."""
    even: ClassVar[bool] = False
    """Whether that has the same noise in all directions, so that it can be corrected for others."""

    def columns(self, plan: Plan) -> int | None:
        """Columns of what is released, D rows; ``None`` where it is the whole moment."""
        del plan
        return None

    @abstractmethod
    def values(self, plan: Plan) -> int:
        """Numbers in all that is released."""

    def largest(self, plan: Plan) -> int:
        """Numbers in the largest message of a site."""
        return self.values(plan)

    def seen_columns(self, plan: Plan) -> int:
        """Columns of the matrix through which rows are seen; 0 where there is none."""
        return self.columns(plan) or 0

    def adapts(self, plan: Plan) -> bool:
        """Whether a last release is of rows seen through what the first one shows."""
        del plan
        return False

    def schedule(self, plan: Plan) -> list[Planned]:
        """The releases, in order."""
        del plan
        return [Planned(MOMENT, "moment", self.statistic)]

    def check(self, features: int, components: int, *, pure: bool) -> None:
        """Raise where it is hopeless."""
        del features, components, pure


class Whole(Way):
    """The whole moment, with noise."""

    statistic = "second-moment"
    whole = even = True

    def values(self, plan: Plan) -> int:
        return plan.features * (plan.features + 1) // 2


class Adaptive(Whole):
    """The whole moment twice: the second time of rows in which its directions are more even.

    Only under Gaussian noise: there two releases that turn out to be of the same rows are exactly
    one of the whole budget (docs/proofs/adaptive.md).
    """

    even = False

    def values(self, plan: Plan) -> int:
        return 2 * super().values(plan)

    def largest(self, plan: Plan) -> int:
        return super().values(plan)

    def seen_columns(self, plan: Plan) -> int:
        return plan.features

    def adapts(self, plan: Plan) -> bool:
        del plan
        return True

    def schedule(self, plan: Plan) -> list[Planned]:
        part = _FIRST_OF_UNIT_ROWS if plan.row_norm == "auto" else _FIRST_LOOK
        left, between = 1.0 - part, []
        if plan.row_norm == "auto":
            few = _BETWEEN * left
            between = [Planned(WHOLE_ENERGIES, "moment", "component-energy", fraction=few)]
        elif not isinstance(plan.row_norm, str):
            few = _BETWEEN * left
            between = [Planned(ADAPTED_NORMS, "moment", "norm-histogram", fraction=few)]
        return [
            Planned(MOMENT, "moment", self.statistic, fraction=part),
            *between,
            Planned(
                ADAPTED,
                "moment",
                self.statistic,
                fraction=left - sum(each.fraction for each in between),
            ),
        ]

    def check(self, features: int, components: int, *, pure: bool) -> None:
        del features, components
        if pure:
            usual = STATISTICS[self.statistic].usual(pure=True).name
            raise PrivacyError(
                "pure-needs-other-mechanism",
                name="mechanism",
                value="adaptive",
                instead=f"mechanism={usual!r} (or 'auto')",
            )


class Directions(Way):
    """Directions that the moment makes likely, and nothing else."""

    statistic = "bingham-vectors"
    counts = False

    def values(self, plan: Plan) -> int:
        return plan.features * plan.n_components

    def schedule(self, plan: Plan) -> list[Planned]:
        return [Planned(MOMENT, "moment", self.statistic, draws=plan.n_components)]

    def check(self, features: int, components: int, *, pure: bool) -> None:
        del pure
        check_feasible(features, components)


class RangeSketch(Way):
    """The moment times a public matrix (privacy.md, section 6), then the moment inside its range.

    The second release is of R x R numbers, and tells the directions of the range apart. Not where
    rows are read once; nor of pure epsilon, where a small part of the budget has much noise.
    """

    statistic = "sketch"

    def columns(self, plan: Plan) -> int:
        return plan.sketch_columns

    def adapts(self, plan: Plan) -> bool:
        return not plan.one_pass and not plan.pure

    def values(self, plan: Plan) -> int:
        inside = plan.sketch_columns * (plan.sketch_columns + 1) // 2 if self.adapts(plan) else 0
        return self.largest(plan) + inside

    def largest(self, plan: Plan) -> int:
        return plan.features * plan.sketch_columns

    def schedule(self, plan: Plan) -> list[Planned]:
        if not self.adapts(plan):
            return [Planned("sketch", "moment", self.statistic)]
        sizes = exactly(self.values(plan) - self.largest(plan))
        wide = math.sqrt(plan.features / plan.sketch_columns)
        part = max(_INSIDE, (_EDGES / (1.0 + wide)) ** 2)
        return [
            Planned("sketch", "moment", self.statistic, fraction=1.0 - part),
            Planned(ADAPTED, "moment", "second-moment", fraction=part, sizes=sizes),
        ]


class Power(Way):
    """The moment times what the round before released: power iteration."""

    statistic = "sketch"
    counts = False

    def columns(self, plan: Plan) -> int:
        return plan.n_components

    def values(self, plan: Plan) -> int:
        return plan.features * plan.n_components * plan.power_rounds

    def schedule(self, plan: Plan) -> list[Planned]:
        fraction = 1.0 / plan.power_rounds
        return [
            Planned(f"power round {power_round + 1}", "moment", self.statistic, fraction=fraction)
            for power_round in range(plan.power_rounds)
        ]


WHOLE, ADAPTIVE, DIRECTIONS = Whole(), Adaptive(), Directions()
SKETCH, POWER = RangeSketch(), Power()
NAMED: Mapping[str, Way] = MappingProxyType(
    {"adaptive": ADAPTIVE, "power": POWER, "sketch": SKETCH}
)
"""Ways that a choice names itself."""

CHOICES: tuple[str, ...] = (
    *(each.name for way in (WHOLE, DIRECTIONS) for each in STATISTICS[way.statistic].mechanisms),
    *NAMED,
)
"""What PCA's ``mechanism`` may be, beside ``"auto"``."""


def way_of(choice: str) -> Way:
    """The way that a choice of ``mechanism`` stands for."""
    if choice in NAMED:
        return NAMED[choice]
    return WHOLE if MECHANISMS[choice].added else DIRECTIONS


def noise_of(choice: str, *, pure: bool) -> Mechanism:
    """The mechanism that hides the moment under a choice of ``mechanism``."""
    if choice in NAMED:
        return STATISTICS[NAMED[choice].statistic].usual(pure=pure)
    return MECHANISMS[choice]
