"""What a fit of PCA does: checked, frozen, and made before any data is touched."""

from __future__ import annotations

import operator
from dataclasses import replace
from functools import cached_property
from numbers import Integral
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from eigenveil.checks import one_of
from eigenveil.errors import DataError
from eigenveil.models.model_options import MOST_COMPONENTS
from eigenveil.models.options import Options
from eigenveil.models.pca.auto import choose
from eigenveil.models.pca.ways import (
    ADAPTIVE,
    CHOICES,
    DIRECTIONS,
    POWER,
    SKETCH,
    Way,
    noise_of,
    way_of,
)
from eigenveil.models.plan import (
    BasePlan,
    check_components,
    check_pure,
    columns_of_sketch,
    fields_of,
    fractions_of,
)
from eigenveil.models.scale import NormScale, choose_bound
from eigenveil.models.schedule import (
    CENTERED_SCALE,
    COUNTS_OF_HOLES,
    NO_BOUND,
    NO_NORMS,
    SITE_MEANS,
    Planned,
    Step,
    center_schedule,
    column_schedule,
    exactly,
)
from eigenveil.moments.histograms import MAGNITUDE_BINS, RANGE_BINS
from eigenveil.privacy.mechanisms import Mechanism
from eigenveil.privacy.statistics import STATISTICS, StatisticName

MECHANISMS = CHOICES

# Shares of mu squared (privacy.md, section 8; tables.md, section 2a), and of epsilon where all is
# pure: epsilons add up where mus add in squares, so a small step must be paid more.
_FRACTIONS: dict[Step, float] = {
    "columns": 0.43,
    "missing": 0.03,
    "scale": 0.06,
    "center": 0.13,
    "covariates": 0.43,
    "moment": 0.77,
    "variance": 0.04,
}
_PURE_FRACTIONS: dict[Step, float] = {
    "columns": 0.67,
    "missing": 0.08,
    "scale": 0.08,
    "center": 0.20,
    "covariates": 0.43,
    "moment": 0.69,
    "variance": 0.03,
}
# Parts of the scale's share: of the norms of the rows, about the first centre, and about the second
# where they are needed before the second moment.
_SCALES = (0.75, 0.25)
_SCALES_AUTO = (0.6, 0.2, 0.2)
# Parts of the centre's share: its two stages, and the mean that is left in the prepared rows, which
# pure noise would hide at any price worth paying.
_CENTERS = (0.3, 0.35, 0.35)
_PURE_CENTERS = (0.4, 0.6)
# The centre's share where sites have their own, of what it is else; and their part of it.
OF_SITES, _SITE_MEANS = 3.0, 0.75
# Of the mean that is left, where rows seen through a first release have one, too.
_FIRST_MEAN = 0.5

_STATISTICS: dict[Step, StatisticName] = {
    "columns": "column-histogram",
    "scale": "norm-histogram",
    "center": "row-sum",
    "variance": "component-energy",
    "scores": "score-histogram",
}

POWER_ROUNDS = 4

MEAN_LEFT = "mean of prepared rows"
ADAPTED_MEAN = "mean of adapted rows"
ENERGIES = "explained variance"
# Of the rows before covariates are taken off: their norms, and their second moment.
JOINT_SCALE = "scale of rows with covariates"
COVARIATES = "second moment with covariates"

# Of the scores along the first components, where they are asked for: their histogram, the cells of
# one along one component, and the sides of one along two. And its share of all.
SCORES: Step = "scores"
CELLS, SIDES = range(4, 129), range(2, 33)
_SIZES = tuple(sorted({*CELLS, *(side * side for side in SIDES)}))
_SCORES_SHARE = 0.10
MOST_GROUPS = 12


class Plan(BasePlan):
    """Everything about a fit of PCA that is decided before data is touched.

    ``row_norm`` is "unit", "auto", "max", or a public number. With ``variance_share`` the number of
    components follows from what is released: the fewest that explain this share of the variance, or
    with 1 all that stand above the noise; ``n_components`` is then the most that there can be.
    ``covariates`` are the numbers of the columns whose effects are taken off the others; ``scores``
    asks for a histogram of the scores, ``scores_by`` numbers of columns, each 1 in rows of one.
    """

    one_pass: ClassVar[bool] = False
    """Whether everything is released in one round, so that rows are read once."""

    mechanism: Annotated[str, *one_of(MECHANISMS)]
    row_norm: Literal["unit", "auto", "max"] | float
    power_rounds: int
    variance_share: float | None = None
    covariates: tuple[int, ...] = ()
    scores: bool = False
    scores_by: tuple[int, ...] = Field(default=(), exclude_if=operator.not_)

    @property
    def aside(self) -> tuple[int, ...]:
        """Columns that have no part in the components: covariates, or groups."""
        return self.covariates or self.scores_by

    @cached_property
    def way(self) -> Way:
        return way_of(self.mechanism)

    @property
    def sketched(self) -> bool:
        """Whether the second moment is released as a sketch that records it."""
        return self.way is SKETCH

    def options_otherwise(self) -> dict[str, Any]:
        rounds = self.power_rounds if self.way is POWER else None
        share = self.variance_share
        chosen = {} if share is None else {"n_components": "auto" if share == 1.0 else share}
        otherwise = {"power_rounds": rounds, "covariates": self.covariates or None}
        otherwise["scores_by"] = self.scores_by or None
        return super().options_otherwise() | otherwise | chosen

    def context(self) -> dict[str, Any]:
        """What makes this plan beside its options; parties may send factors of so many columns."""
        return super().context() | {"sketch_columns": self.sketch_columns}

    @cached_property
    def removes_mean(self) -> bool:
        """Whether the mean that is left in the prepared rows is released, and taken off."""
        return self.centered == "private" and not self.pure and self.way is not DIRECTIONS

    @cached_property
    def refines_scales(self) -> bool:
        """Whether columns' scales are read once more off the second moment's diagonal."""
        return self.scaled == "private" and self.way.whole

    def _schedule(self) -> tuple[Planned, ...]:
        """Columns, norms and centre, norms about it, the second moment and mean, the variances."""
        before, beside = self._centered_scale()
        auto = self.row_norm == "auto"
        first, *later = self.way.schedule(self)
        later_beside: list[Planned] = []
        found = self.counts_of_holes()
        found += column_schedule(self.features) if self.finds_scales else ()
        if self.centered == "private":
            *stages, left = _CENTERS if self.removes_mean else (*_PURE_CENTERS, 0.0)
            common = 1.0 - _SITE_MEANS if self.sites else 1.0
            stages, left = [part * common for part in stages], left * common
            found += center_schedule(
                bounded=self.row_bound is not None,
                scale=_SCALES_AUTO[:2] if auto and (before or beside) else _SCALES,
                center=(stages[0], stages[1]),
                near=self.finds_scales,
            )
            if self.sites:
                many = exactly(self.sites * (self.features + 1))
                own = Planned(SITE_MEANS, "center", "row-sum", _SITE_MEANS, sizes=many, counts=True)
                found.append(own)
            if left:
                # beside each release of the whole moment the mean of the rows that it is of
                part = _FIRST_MEAN if self.way.adapts(self) else 1.0
                mean = Planned(MEAN_LEFT, "center", "row-sum", fraction=left * part, beside=True)
                beside = [mean, *beside]
                if self.way.adapts(self):
                    many, rest = exactly(self.way.seen_columns(self)), left * (1.0 - part)
                    mean = Planned(ADAPTED_MEAN, "center", "row-sum", rest, beside=True, sizes=many)
                    later_beside = [mean]
        if self.covariates:
            if self.centered != "private" and self.row_bound is None:
                rest = 1.0 - sum(one.fraction for one in before if one.step == "scale")
                found.append(
                    Planned(JOINT_SCALE, "scale", "norm-histogram", fraction=rest, ends=NO_BOUND)
                )
            found.append(Planned(COVARIATES, "covariates", "second-moment"))
        found += [*before, first, *beside, *later, *later_beside]
        if "variance" in self.fractions:
            rest = 1.0 - sum(one.fraction for one in (*before, *beside) if one.step == "variance")
            if self.row_bound is None and self.centered != "private" and not self.covariates:
                found[-1] = replace(found[-1], ends=NO_NORMS)
            found.append(Planned(ENERGIES, "variance", "component-energy", fraction=rest))
        if self.scores:
            sizes = tuple(size * max(1, len(self.scores_by)) for size in _SIZES)
            found.append(Planned(SCORES, SCORES, "score-histogram", sizes=sizes))
        if self.counts_of_holes():  # one pass for these and what comes first without them
            found[1] = replace(found[1], beside=True)
        return tuple(found)

    def _centered_scale(self) -> tuple[list[Planned], list[Planned]]:
        """The norms of centred rows, before the moment or read beside it: one pass for both.

        Under a public bound they count the rows, where that is needed and nothing else does.
        """
        if self.row_bound is not None and "scale" in self.fractions:
            return [], [Planned(CENTERED_SCALE, "scale", "norm-histogram", beside=True)]
        wanted = self.one_pass or self.row_norm == "auto" or "variance" in self.fractions
        # of columns of variance 1 the norms are known, and those before the centre will do
        known = self.finds_scales and not self.covariates
        if not wanted or self.row_bound is not None or known:
            return [], []
        private, auto = self.centered == "private", self.row_norm == "auto"
        # what "adaptive" releases first is of unit rows, and its second release alone needs norms
        beside = self.one_pass or (private and (not auto or self.way is ADAPTIVE))
        # under a private centre the scale's budget was spent before it
        fraction = (_SCALES_AUTO[2] if auto else 0.5) if private else 1.0
        if self.covariates and not private:
            fraction = 0.5  # the rest is for the norms before covariates are taken off
        step: Step = "variance" if private and not auto else "scale"
        planned = Planned(CENTERED_SCALE, step, "norm-histogram", fraction=fraction, beside=beside)
        return ([], [planned]) if beside else ([planned], [])

    def choose_bound(self, scale: NormScale, *, edge: float) -> float:
        """Norm at which rows are shortened for ``row_norm="auto"``; 0 where all get norm 1.

        ``edge`` is the largest eigenvalue that the moment's noise alone shows.
        """
        return choose_bound(scale, edge=edge, components=self.n_components)

    def _noise(self, step: Step) -> Mechanism:
        if step in ("moment", "covariates"):
            return noise_of(self.mechanism, pure=self.pure)
        if step == "missing":
            return STATISTICS[COUNTS_OF_HOLES[self.missing]].usual(pure=self.pure)
        return STATISTICS[_STATISTICS[step]].usual(pure=self.pure)

    @cached_property
    def widest_basis(self) -> int:
        return max(super().widest_basis, self.way.seen_columns(self))

    def released_values(self) -> int:
        d, k = self.features, self.n_components
        columns = d * (MAGNITUDE_BINS + 2 * RANGE_BINS) if self.finds_scales else 0
        pairs = d * (d + 1) // 2 if self.missing == "pairs" else 0
        joint = d * (d + 1) // 2 + 330 if self.covariates else 0
        scores = _SIZES[-1] * max(1, len(self.scores_by)) if self.scores else 0
        joint += self.sites * (d + 1)
        fixed = 4 * d + 4 * 330 + 2 * k + 4
        return self.way.values(self) + fixed + columns + pairs + joint + scores


def make_plan(
    options: Options,
    *,
    features: int,
    sketch_columns: int | None = None,
    noise_draws: int = 1,
    variables: int | None = None,
    sites: int = 0,
) -> Plan:
    """The settled plan; ``sketch_columns`` are those of factors, where sites may send some."""
    mechanism, chosen = options.mechanism, None
    if options.n_components is None:
        options = options.changed(n_components=all_components(options, features))
    if mechanism == "auto":
        chosen = choose(options, features, whole=sketch_columns is not None)
        mechanism = chosen.mechanism
    check_pure("second-moment", mechanism, options.delta)
    way = way_of(mechanism)
    components, share = _components(options, features, way, mechanism)
    _check_together(options, way, mechanism, features, components)
    covariates = _columns_aside("covariates", options, features, way, mechanism)
    groups = _columns_aside("scores_by", options, features, way, mechanism)
    _check_groups(options, groups)
    left = features - len(covariates or groups)
    if not isinstance(options.n_components, Integral):
        components = min(components, left)
    elif components > left:
        raise options.refused(
            "n_components", "too-many-with-covariates", components=components, columns=left
        )
    fewest = components if share is None else 1
    columns = columns_of_sketch(options, fewest, sketched=way is SKETCH, features=features)
    if chosen is not None and chosen.columns is not None:
        columns = chosen.columns
    elif share is not None and options.given_columns is None:
        columns = min(features, 4 * components)
    plan = Plan(
        n_components=min(components, columns) if way is SKETCH else components,
        variance_share=share,
        mechanism=mechanism,
        row_norm=options.row_norm if isinstance(options.row_norm, str) else float(options.row_norm),
        fractions={"moment": 1.0},
        sketch_columns=columns if sketch_columns is None else sketch_columns,
        power_rounds=int(options.power_rounds or POWER_ROUNDS),
        covariates=covariates,
        scores=bool(options.get("scores", False)),
        scores_by=groups,
        sites=sites,
        **fields_of(options, features=features, noise_draws=noise_draws, variables=variables),
    )
    return plan.model_copy(update={"fractions": _fractions(plan, options)})


def _check_together(
    options: Options, way: Way, mechanism: str, features: int, components: int
) -> None:
    """Raise where options cannot be beside each other."""
    way.check(features, components, pure=options.delta == 0)
    if options.power_rounds is not None and way is not POWER:
        raise options.refused(
            "power_rounds",
            "unused-parameter",
            of="mechanism='power'",
            found=mechanism,
            given=options.power_rounds,
            usual=None,
        )
    if options.missing in COUNTS_OF_HOLES and not way.even:
        raise options.refused(
            "missing", "cannot-correct", missing=options.missing, mechanism=mechanism
        )
    if options.row_bound is not None and options.row_norm == "auto":
        raise DataError("row-norm-without-norms")
    if options.row_norm == "max" and (options.scale is not None or options.ranges is not None):
        raise options.refused("row_norm", "largest-norm-unscaled")


def all_components(options: Options, features: int) -> int:
    """As many as there are columns, less those aside, which have numbers."""
    return max(1, features - len(options.get("covariates") or options.get("scores_by") or ()))


def _components(
    options: Options, features: int, way: Way, mechanism: str
) -> tuple[int, float | None]:
    """How many components there are, or can be, and the share of the variance that they shall have.

    The latter is ``None`` where their number is given.
    """
    wanted = options.n_components
    if isinstance(wanted, Integral):
        check_components(int(wanted), features)
        return int(wanted), None
    if not way.counts:
        raise options.refused(
            "n_components", "components-not-whole", mechanism=mechanism, wanted=wanted
        )
    return min(features, MOST_COMPONENTS), 1.0 if isinstance(wanted, str) else float(wanted)


def _columns_aside(
    name: str, options: Options, features: int, way: Way, mechanism: str
) -> tuple[int, ...]:
    """Numbers of the columns that have no part in the components, ascending; none by default."""
    given = options.get(name)
    if given is None:
        return ()
    for place in given:
        if isinstance(place, str) or place >= features:
            raise options.refused(name, "no-such-covariate", place=place, last=features - 1)
    if len(given) == features:
        raise options.refused(name, "all-covariates")
    wrong = {
        f"mechanism={mechanism!r}, which does not release the whole second moment once": (
            not way.even
        ),
        f"missing={options.missing!r}, as entries of them may be missing": options.missing
        != "leave-out",
        "row_norm='max', which is of reproductions": options.row_norm == "max",
    }
    for why, refused in wrong.items():
        if refused:
            raise options.refused(name, "covariates-beside", why=why)
    return tuple(sorted(int(place) for place in given))


def _check_groups(options: Options, groups: tuple[int, ...]) -> None:
    """Raise where scores cannot be counted by these groups."""
    if not groups:
        return
    if not options.get("scores", False):
        raise options.refused("scores_by", "scores-by-without-scores")
    if options.covariates is not None:
        raise options.refused("scores_by", "covariates-beside", why="covariates")
    if not 2 <= len(groups) <= MOST_GROUPS:
        raise options.refused("scores_by", "score-groups", given=len(groups), most=MOST_GROUPS)


def _fractions(plan: Plan, options: Options) -> dict[Step, float]:
    """Shares of the steps that this fit takes, adding up to 1."""
    split = options.budget_split
    variance = split is None or split.get("variance", 0) > 0 or plan.way is DIRECTIONS
    private = plan.centered == "private"
    joint = bool(plan.covariates)
    holes = plan.missing in COUNTS_OF_HOLES
    if plan.row_bound is None:
        scale = private or plan.row_norm == "auto" or variance or joint
    else:  # what is left of a moment is told by the number of rows
        scale = holes and not private
    taken = {"scale": scale, "center": private, "moment": True, "variance": variance}
    taken |= {"columns": plan.finds_scales, "missing": holes}
    taken["covariates"] = joint
    usual = {
        step: fraction
        for step, fraction in (_PURE_FRACTIONS if plan.pure else _FRACTIONS).items()
        if taken[step]
    }
    if plan.sites and not private:
        raise options.refused("center", "no-center-of-sites")
    if plan.sites:
        usual["center"] *= OF_SITES
    if not private and "scale" in usual and not joint:
        usual["scale"] /= 2  # there is one histogram then
    if plan.scores and not variance:
        raise options.refused("scores", "scores-without-variances")
    if plan.scores:
        usual[SCORES] = sum(usual.values()) * _SCORES_SHARE / (1.0 - _SCORES_SHARE)
    return fractions_of(options, usual)
