"""What a fit of PCA is asked to do: checked, frozen, and made before any data is touched."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from eigenveil.checks import check_positive, check_whole, is_number, one_of
from eigenveil.errors import DataError, PrivacyError
from eigenveil.estimators.plans import (
    CENTRED_SCALE,
    INVALID,
    LEAST_SHARE,
    BasePlan,
    Planned,
    Step,
    centre_schedule,
    check_choice,
    check_components,
    check_pure,
    check_row_bound,
    check_split,
    check_wish,
)
from eigenveil.estimators.ways import (
    CHOICES,
    DIRECTIONS,
    SKETCH,
    Way,
    noise_of,
    way_of,
)
from eigenveil.privacy.mechanisms import NoiseKind
from eigenveil.privacy.statistics import STATISTICS, StatisticName

MECHANISMS = CHOICES
STEPS: tuple[Step, ...] = ("scale", "centre", "moment", "variance")

# Shares of mu squared (privacy.md, section 8; tables.md, section 2a), and of epsilon where all is
# pure: epsilons add up where mus add in squares, so a small step must be paid more.
_SHARES: dict[Step, float] = {"scale": 0.04, "centre": 0.14, "moment": 0.78, "variance": 0.04}
_PURE_SHARES: dict[Step, float] = {"scale": 0.08, "centre": 0.20, "moment": 0.69, "variance": 0.03}
# Parts of the scale's share: of the norms of the rows, about the first centre, and about the second
# where they are needed before the second moment.
_SCALES = (0.75, 0.25)
_SCALES_AUTO = (0.6, 0.2, 0.2)
# Parts of the centre's share: its two stages, and the mean that is left in the prepared rows, which
# pure noise would hide at any price worth paying.
_CENTRES = (0.3, 0.35, 0.35)
_PURE_CENTRES = (0.4, 0.6)

_STATISTICS: dict[Step, StatisticName] = {
    "scale": "norm-histogram",
    "centre": "row-sum",
    "variance": "component-energy",
}

POWER_ROUNDS = 4
# Each is a release of its own; long before so many, none shows anything above its noise.
MOST_POWER_ROUNDS = 1000

MEAN_LEFT = "mean of prepared rows"
ENERGIES = "explained variance"


class Plan(BasePlan):
    """Everything about a fit of PCA that is decided before data is touched.

    ``row_norm`` is "unit", "auto", "max", or a public number.
    """

    one_pass: ClassVar[bool] = False
    """Whether everything is released in one round, so that rows are read once."""

    mechanism: Annotated[str, *one_of(MECHANISMS)]
    row_norm: Literal["unit", "auto", "max"] | float
    power_rounds: int

    @property
    def way(self) -> Way:
        """In which the second moment is released."""
        return way_of(self.mechanism)

    @property
    def sketched(self) -> bool:
        """Whether the second moment is released as a sketch that says so."""
        return self.way is SKETCH

    @property
    def removes_mean(self) -> bool:
        """Whether the mean that is left in the prepared rows is released, and taken off."""
        return self.centred == "private" and not self.pure and self.way is not DIRECTIONS

    @property
    def schedule(self) -> tuple[Planned, ...]:
        """Norms and centre, norms about it, the second moment and mean, the variances."""
        before, beside = self._centred_scale()
        first, *later = self.way.schedule(self)
        found: list[Planned] = []
        if self.centred == "private":
            *stages, left = _CENTRES if self.removes_mean else (*_PURE_CENTRES, 0.0)
            found += centre_schedule(
                bounded=self.row_bound is not None,
                scale=_SCALES_AUTO[:2] if before else _SCALES,
                centre=(stages[0], stages[1]),
            )
            if left:
                beside = [Planned(MEAN_LEFT, "centre", "row-sum", share=left, beside=True), *beside]
        found += [*before, first, *beside, *later]
        if "variance" in self.shares:
            rest = 1.0 - sum(one.share for one in (*before, *beside) if one.step == "variance")
            found.append(Planned(ENERGIES, "variance", "component-energy", share=rest))
        return tuple(found)

    def _centred_scale(self) -> tuple[list[Planned], list[Planned]]:
        """The norms of centred rows, before the moment or read beside it: one pass for both."""
        wanted = self.one_pass or self.row_norm == "auto" or "variance" in self.shares
        if not wanted or self.row_bound is not None:
            return [], []
        private, auto = self.centred == "private", self.row_norm == "auto"
        beside = self.one_pass or (private and not auto)
        # under a private centre the scale's budget was spent before it
        share = (_SCALES_AUTO[2] if auto else 0.5) if private else 1.0
        step: Step = "variance" if private and not auto else "scale"
        planned = Planned(CENTRED_SCALE, step, "norm-histogram", share=share, beside=beside)
        return ([], [planned]) if beside else ([planned], [])

    def kind(self, step: Step) -> NoiseKind:
        """The noise of a step."""
        if step == "moment":
            return noise_of(self.mechanism, pure=self.pure)
        return STATISTICS[_STATISTICS[step]].usual(pure=self.pure).name

    def released_values(self) -> int:
        """Number of coordinates of all releases together, rounded up."""
        d, k = self.features, self.n_components
        return self.way.values(self) + 3 * d + 3 * 330 + k + 4


def make_plan(
    *,
    features: int,
    rows: int | None,
    n_components: int,
    epsilon: float,
    delta: float,
    mechanism: str,
    adjacency: str,
    row_norm: str | float,
    row_bound: float | None,
    center: bool | NDArray[np.float64],
    budget_split: dict[str, float] | None,
    sketch_size: int | None,
    power_rounds: int | None = None,
    noise_draws: int = 1,
    invalid: str = "zero",
) -> Plan:
    """Check every parameter and settle every choice.

    Raises
    ------
    PrivacyError, DataError
        Naming the parameter and what it may be.
    """
    check_wish(epsilon, delta, adjacency)
    check_choice("mechanism", mechanism, ("auto", *MECHANISMS))
    if mechanism == "auto":
        mechanism = STATISTICS["second-moment"].usual(pure=delta == 0).name
    check_pure("second-moment", mechanism, delta)
    if isinstance(row_norm, str):
        check_choice("row_norm", row_norm, ("unit", "auto", "max"))
    else:
        check_positive(
            "row_norm",
            row_norm,
            hint="Give a public bound on the norm of a centred row, or 'unit', 'auto' or 'max'.",
        )
    check_row_bound(row_bound)
    check_choice("invalid", invalid, INVALID)
    check_components(n_components, features)
    way_of(mechanism).check(features, n_components)
    centred = "public" if isinstance(center, np.ndarray) else "private" if center else "no"
    if sketch_size is not None:
        check_whole("sketch_size", sketch_size)
    if power_rounds is not None:
        check_whole("power_rounds", power_rounds, most=MOST_POWER_ROUNDS)
    if sketch_size is None:
        sketch_size = 4 * n_components
    elif sketch_size < n_components:
        raise DataError(
            f"sketch_size = {sketch_size} is less than n_components = {n_components}.",
            hint="Use at least n_components; 2 to 4 times as many is usual.",
        )
    plan = Plan(
        features=features,
        n_components=n_components,
        epsilon=float(epsilon),
        delta=float(delta),
        mechanism=mechanism,
        adjacency=adjacency,
        row_norm=row_norm,
        row_bound=row_bound,
        centred=centred,
        shares={"moment": 1.0},
        sketch_size=min(features, sketch_size),
        power_rounds=power_rounds or POWER_ROUNDS,
        rows=rows if adjacency == "replace-one" else None,
        noise_draws=noise_draws,
        invalid=invalid,
    )
    shares = _shares(plan, budget_split)
    return plan.model_copy(update={"shares": shares})


def _shares(plan: Plan, wished: dict[str, float] | None) -> dict[Step, float]:
    """Shares of the steps that this fit takes, adding up to 1."""
    defaults = _PURE_SHARES if plan.pure else _SHARES
    check_split(wished)
    given = dict(defaults) if wished is None else dict(wished)
    if wished is None and plan.centred != "private":
        given["scale"] /= 2  # there is one histogram then
    for step, share in given.items():
        check_choice("a step of budget_split", step, STEPS)
        if not (is_number(share) and (share == 0 or LEAST_SHARE <= share <= 1 / LEAST_SHARE)):
            raise PrivacyError(
                f"budget_split[{step!r}] = {share!r:.60} is not a non-negative number: "
                f"0, or {LEAST_SHARE:g} to {1 / LEAST_SHARE:g}.",
                hint="Shares are relative: {'moment': 0.9, 'centre': 0.1}, for example.",
            )
    given = {step: share for step, share in given.items() if share > 0}
    if "moment" not in given:
        raise PrivacyError(
            "budget_split gives the second moment nothing.",
            hint="Give 'moment' most of the budget.",
        )
    if plan.centred != "private":
        given.pop("centre", None)
    elif "centre" not in given:
        raise PrivacyError(
            "center=True needs a share of the budget for 'centre'.",
            hint="Give it one in budget_split, or give center=False or a public array.",
        )
    wants_scale = plan.centred == "private" or plan.row_norm == "auto" or "variance" in given
    if plan.row_bound is not None or not wants_scale:
        given.pop("scale", None)
    elif "scale" not in given:
        raise PrivacyError(
            "Without row_bound this fit needs a share of the budget for 'scale'.",
            hint="Give it one in budget_split, or give a public row_bound.",
        )
    if plan.row_bound is not None and plan.row_norm == "auto":
        raise DataError(
            "row_norm='auto' chooses from the released norms, and row_bound skips releasing them.",
            hint="Give row_norm='unit' or a number with row_bound, or leave row_bound out.",
        )
    if plan.way is DIRECTIONS and "variance" not in given:
        raise PrivacyError(
            f"mechanism={plan.mechanism!r} releases directions only.",
            hint="Give 'variance' a share of the budget.",
        )
    total = math.fsum(given.values())
    return {step: given[step] / total for step in STEPS if step in given}
