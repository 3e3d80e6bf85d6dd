"""What a fit of a mixture does: decided before any data is touched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from eigenveil.errors import DataError
from eigenveil.models.mixture.covariances import COVARIANCES, Covariances, CovarianceType
from eigenveil.models.options import Options
from eigenveil.models.plan import fractions_of
from eigenveil.models.schedule import CENTERED_SCALE, NO_BOUND, Planned, Step, center_schedule
from eigenveil.models.tensors.plan import TensorPlan, fields_of_tensors, usual_fractions
from eigenveil.moments.em import SQUARE_WEIGHT, coordinates_of
from eigenveil.moments.exact import Squares
from eigenveil.privacy.statistics import StatisticName

# Shares of the budget: of all histograms of norms, and of the centre, which need not be good, since
# any point near the rows will do.
_SCALE_SHARE, _CENTER_SHARE, _SCORES_SHARE = 0.06, 0.03, 0.05
# Parts of the centre's share: of its two stages.
_CENTERS = (0.45, 0.55)
# Of mixtures with a variance of their own: the sums' part of what is left, and their number.
_SUMS_PART, _SUMS = 0.5, (0.1, 0.15, 0.25, 0.5)
# Of other mixtures there is no third moment: the second moment's part of what is left; of the
# sums' share, what those about candidates have, how many there are, and how many sums follow.
_MOMENT_PART, _CANDIDATE_PART, _CANDIDATE_SUMS, _SUMS_AFTER = 0.2, 0.5, (0.5, 0.5), (1 / 3,) * 3
# Candidates for each component, at least and at most so many.
_CANDIDATES_EACH, _FEWEST_CANDIDATES, _MOST_CANDIDATES = 4, 16, 64
# Squares that sums may release: more would not fit into memory.
_MOST_SQUARES = 1 << 26

NO_COMPONENTS = "no component stands above the noise of the released pair moment"
# Cells of a histogram of scores along one direction, and the sides of one along two.
CELLS_OF_A_LINE, SIDES_OF_A_PLANE = range(8, 129), range(4, 33)
_CELLS = tuple(sorted({*CELLS_OF_A_LINE, *(side * side for side in SIDES_OF_A_PLANE)}))
# Components that are looked for at most, where there are few features.
_MOST_OF_FEW = 10

SCORES, PROJECTED = "scores", "scale of projected rows"
CANDIDATES, SUMS = "candidates", "sums"
"""Names of the sums of expectation maximisation, which are numbered from 1."""


class MixturePlan(TensorPlan):
    """A mixture of spherical Gaussians.

    ``noise_variance`` is public, in the data's units squared, or ``None``: found from the release.
    """

    task: Literal["gaussian-mixture"] = "gaussian-mixture"
    noise_variance: float | None = None
    covariance_type: CovarianceType = "spherical"
    candidates: int = Field(default=0, ge=0)

    @property
    def shape(self) -> type[Covariances]:
        return COVARIANCES[self.covariance_type]

    def released_values(self) -> int:
        sums: int = sum(one.sizes[-1] for one in self.schedule if one.sizes is not None)
        return super().released_values() + 2 * sums

    def requested_values(self) -> int:
        """Beside those of every plan, a mixture of the most components."""
        count = max(self.candidates, self.n_components)
        each = self.n_components * self.features
        factors = each * self.features if self.shape.matrices else each
        return super().requested_values() + count * (self.features + 3) + factors

    def count_of(self, name: str) -> int:
        """How many sums of this name there are."""
        return sum(each.name.startswith(f"{name} ") for each in self.schedule)

    def squares(self, name: str) -> Squares:
        """What the sums of this name release of products of two columns."""
        if name.startswith(CANDIDATES) or self.noise_variance is not None:
            return "none"
        return self.shape.squares

    @property
    def needs_centered_scale(self) -> bool:
        """Whether the norms of centred rows are released before the pair moment, or their count."""
        return self.row_bound is None or self.centered != "private"

    def _schedule(self) -> tuple[Planned, ...]:
        private, bounded = self.centered == "private", self.row_bound is not None
        histograms = self.shape.by_moments + self.needs_centered_scale
        histograms += 2 * (private and not bounded)
        part = 1.0 / max(1, histograms)
        pair: StatisticName = "sketch" if self.pair == "sketch" else "second-moment"
        found: list[Planned] = []
        if private:
            found += center_schedule(bounded=bounded, scale=(part, part), center=_CENTERS)
        if self.needs_centered_scale:
            ends = "" if private or bounded else NO_BOUND
            found.append(
                Planned(CENTERED_SCALE, "scale", "norm-histogram", fraction=part, ends=ends)
            )
        return (
            *found,
            Planned("pair moment", "moment", pair, ends=NO_COMPONENTS),
            Planned(SCORES, "scores", "score-histogram", sizes=_CELLS),
            *self._sums(part),
        )

    def _sums(self, part: float) -> list[Planned]:
        """What follows the pair moment."""
        if self.shape.by_moments:
            return [
                Planned(PROJECTED, "scale", "norm-histogram", fraction=part, beside=True),
                Planned("triple moment", "tensor", "third-moment"),
                *self._numbered(SUMS, _SUMS, 1.0),
            ]
        return [
            *self._numbered(CANDIDATES, _CANDIDATE_SUMS, _CANDIDATE_PART),
            *self._numbered(SUMS, _SUMS_AFTER, 1.0 - _CANDIDATE_PART),
        ]

    def _numbered(self, name: str, parts: tuple[float, ...], fraction: float) -> list[Planned]:
        """Sums of one name, with these parts of a fraction of the step's budget."""
        squares = self.squares(name)
        most = self.candidates if name == CANDIDATES else self.n_components
        least, two, last = (coordinates_of(squares, each, self.features) for each in (1, 2, most))
        return [
            Planned(
                f"{name} {number}",
                "sums",
                "em-sums",
                fraction=fraction * part,
                sizes=range(least, last + 1, two - least),
                square_weight=0.0 if squares == "none" else SQUARE_WEIGHT,
                counts=True,
            )
            for number, part in enumerate(parts, start=1)
        ]


def make_plan(options: Options, *, features: int, noise_draws: int = 1) -> MixturePlan:
    common = fields_of_tensors(
        MixturePlan, options, features=features, noise_draws=noise_draws, least=_MOST_OF_FEW
    )
    centered, variance = common["centered"], options.noise_variance
    seen = centered == "private" and common["pair"] == "full"
    if common["n_components"] >= features and variance is None and not seen:
        if common["auto_components"] and features > 1:  # so many moments show
            common["n_components"] = features - 1
        else:
            raise DataError("noise-variance-needs-room", features=features)
    shape, count = COVARIANCES[options.covariance_type], common["n_components"]
    if not shape.by_moments and variance is not None:
        raise options.refused("noise_variance", "noise-variance-not-spherical", kind=shape.name)
    products = features * features * (1 if shape.shared else count)
    if shape.matrices and products > _MOST_SQUARES:
        raise options.refused(
            "covariance_type",
            "covariances-too-large",
            type=shape.name,
            numbers=products,
            components=count,
            features=features,
        )
    plan = MixturePlan(
        **common,
        noise_variance=None if variance is None else float(variance),
        covariance_type=shape.name,
        candidates=0 if shape.by_moments else _candidates(count),
        fractions={},
    )
    scaled = {"scale"} & {release.step for release in plan.schedule}
    steps: dict[Step, float] = {"scale": _SCALE_SHARE} if scaled else {}
    if centered == "private":
        steps["center"] = _CENTER_SHARE
    steps["scores"] = _SCORES_SHARE
    fractions = fractions_of(options, _mixture_fractions(common, steps, shape))
    return plan.model_copy(update={"fractions": fractions})


def _candidates(components: int) -> int:
    return min(max(_CANDIDATES_EACH * components, _FEWEST_CANDIDATES), _MOST_CANDIDATES)


def _mixture_fractions(
    common: Mapping[str, Any], steps: Mapping[Step, float], shape: type[Covariances]
) -> dict[Step, float]:
    """Shares of mu squared, of epsilon where all is pure; they add up to 1."""
    if shape.by_moments:
        usual = usual_fractions(common, steps)
        moments: dict[Step, float] = {
            step: usual[step] * (1.0 - _SUMS_PART) for step in ("moment", "tensor")
        }
        return {**steps, **moments, "sums": math.fsum(moments.values()) / (1 / _SUMS_PART - 1)}
    rest = 1.0 - math.fsum(steps.values())
    return {**steps, "moment": _MOMENT_PART * rest, "sums": (1.0 - _MOMENT_PART) * rest}
