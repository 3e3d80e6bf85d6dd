"""The fields of every plan: what is decided about a fit before any data is touched."""

from __future__ import annotations

import math
import operator
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from eigenveil.errors import DataError, PrivacyError
from eigenveil.models.display import plan_html
from eigenveil.models.options import Options
from eigenveil.models.schedule import CENTER, COUNTS_OF_HOLES, OBSERVED, SCALE, Planned, Step
from eigenveil.moments.preparation import Apart
from eigenveil.moments.rows import Precision
from eigenveil.privacy.accountant import NEGLIGIBLE, Loss
from eigenveil.privacy.budget import StepBudget, split_budget
from eigenveil.privacy.certificate import plan_hash
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.mechanisms import MECHANISMS, Mechanism
from eigenveil.privacy.mechanisms.base import SamplingError, lattice_error
from eigenveil.privacy.releases import NoiseSource, Settled
from eigenveil.privacy.statistics import STATISTICS, StatisticName

Missing = Literal["leave-out", "zero", "independent", "pairs"]
# Of a pure reservation, for events that no sampler avoids; what is charged is far less.
_PURE_DISTANCE = NEGLIGIBLE / 16


class BasePlan(Settled):
    """What the plans of all tasks have in common.

    ``centered`` is "private", "public" or "no"; ``fractions`` divide the budget over the steps
    that are taken; ``sketch_columns`` is the number of columns of a sketch; ``noise_draws`` is how
    many draws of lattice noise make up a released value, and ``noise_source`` where they come from;
    ``missing`` says what becomes of entries that were not observed; ``precision`` in which
    arithmetic rows are prepared, however they are stored; ``unit``
    names whose rows are protected together, each counting 1 over ``max_rows_per_unit`` or over
    their number, where that is larger; ``sites`` is how many have a centre of their own;
    ``scaled`` is where columns' scales come from, ``ranged`` whether public ranges of columns are
    given, and ``variables`` how many there are: a category's
    columns are one; ``winsorize`` is the share of a column's entries that is clipped at either end.
    """

    of_documents: ClassVar[bool] = False  # Whether its rows are documents' numbers of words

    features: int
    n_components: int
    epsilon: float
    delta: float
    adjacency: Adjacency
    row_bound: float | None
    centered: Literal["private", "public", "no"]
    fractions: dict[Step, float]
    sketch_columns: int
    noise_draws: int = Field(default=1, ge=1)
    noise_source: NoiseSource = "operating system"
    missing: Missing = "leave-out"
    precision: Precision = "double"
    unit: str | None = None
    max_rows_per_unit: int = 1
    scaled: Literal["private", "public", "no"] = "no"
    ranged: bool = False
    winsorize: float | None = None
    variables: int = Field(default=1, ge=1)
    sites: int = Field(default=0, ge=0, exclude_if=operator.not_)

    def _repr_html_(self) -> str:
        return plan_html(self)

    def drawn_from(self, *, secure: bool) -> Self:
        """The plan, saying where the noise comes from."""
        source: NoiseSource = "operating system" if secure else "seeded"
        if source == self.noise_source:
            return self
        return self.model_copy(update={"noise_source": source})

    @cached_property
    def holes(self) -> bool:
        """Whether an entry that is not a number was not observed, rather than wrong."""
        return self.missing != "leave-out"

    def counts_of_holes(self) -> list[Planned]:
        """The release of what was observed, where it is corrected for: before all others."""
        counts = COUNTS_OF_HOLES.get(self.missing)
        return [] if counts is None else [Planned(OBSERVED, "missing", counts)]

    @property
    def apart(self) -> Apart | None:
        """Categories whose levels are not shortened with a row's other entries."""
        return None

    @property
    def kept(self) -> float:
        """What they leave of a prepared row's squared norm."""
        return 1.0 if self.apart is None else self.apart.kept

    @cached_property
    def weighted(self) -> bool:
        """Whether rows have weights: those of a unit that may have several."""
        return self.unit is not None

    @cached_property
    def finds_scales(self) -> bool:
        """Whether columns' scales are found in histograms: there are no public ranges."""
        return self.scaled == "private" and not self.ranged

    @property
    def hash(self) -> str:
        """SHA-256 of the plan's canonical JSON."""
        return plan_hash(self.model_dump(mode="json"))

    @cached_property
    def pure(self) -> bool:
        return self.delta == 0

    @abstractmethod
    def _noise(self, step: Step) -> Mechanism:
        """The noise of a step that the plan takes."""

    @cached_property
    def noises(self) -> Mapping[Step, Mechanism]:
        return MappingProxyType({step: self._noise(step) for step in self.fractions})

    @property
    @abstractmethod
    def sketched(self) -> bool:
        """Whether the second moment is released as a sketch."""

    @property
    def rank(self) -> int:
        """Directions that a moment shows at most: of mixtures fewer than components, perhaps."""
        return int(min(self.n_components, self.sketch_columns))

    def options_otherwise(self) -> dict[str, Any]:
        """Options that make this plan, where the plan has no field of their name or another value.

        A public centre is zero.
        """
        public = (0.0,) * self.features
        return {
            "center": public if self.centered == "public" else self.centered == "private",
            "budget_split": dict(self.fractions),
            "sketch_size": self.sketch_columns if self.sketched else None,
            "scale": {"private": "private", "public": (1.0,) * self.features}.get(self.scaled),
            "ranges": ((0.0, 1.0),) * self.features if self.ranged else None,
        }

    def context(self) -> dict[str, Any]:
        return {
            "features": self.features,
            "noise_draws": self.noise_draws,
        } | {
            name: value
            for name, value, there in (
                ("variables", self.variables, self.finds_scales),
                ("sites", self.sites, self.sites > 0),
            )
            if there
        }

    @abstractmethod
    def _schedule(self) -> tuple[Planned, ...]:
        """The schedule, from the fields alone."""

    @cached_property
    def schedule(self) -> tuple[Planned, ...]:
        """Every release that a fit of this plan makes, in order.

        It follows from the plan alone: no released value adds a release, leaves one out, or moves
        budget from one to another.
        """
        return self._schedule()

    @cached_property
    def _by_name(self) -> Mapping[str, Planned]:
        return {release.name: release for release in self.schedule}

    @cached_property
    def rounds(self) -> tuple[tuple[Planned, ...], ...]:
        """The schedule by rounds: what is released together, in order."""
        found: list[tuple[Planned, ...]] = []
        for release in self.schedule:
            found[-1:] = [(*found[-1], release)] if release.beside else [*found[-1:], (release,)]
        return tuple(found)

    def is_counted_before(self, name: str) -> bool:
        """Whether the number of rows is known before the release of this name."""
        names = list(self._by_name)
        earlier = names[: names.index(name)]
        return not {SCALE, CENTER}.isdisjoint(earlier)

    def planned(self, name: str) -> Planned:
        return self._by_name[name]

    def step_of(self, statistic: StatisticName) -> Step | None:
        """The step that releases a statistic, if one does."""
        return next((one.step for one in self.schedule if one.statistic == statistic), None)

    @cached_property
    def widest_basis(self) -> int:
        """Most columns of a matrix through which a sum sees rows."""
        return max(self.sketch_columns, self.n_components)

    @abstractmethod
    def released_values(self) -> int:
        """Number of coordinates of all releases together, rounded up."""

    def requested_values(self) -> int:
        """Most numbers in the arrays of a query: a basis; centre, middles, scales and variables."""
        return self.features * (self.widest_basis + 4)

    @cached_property
    def pure_steps(self) -> frozenset[Step]:
        """Steps whose noise is not Gaussian."""
        return frozenset(step for step, noise in self.noises.items() if noise.pure)

    @property
    def mixed(self) -> bool:
        """Whether some steps have Gaussian noise and others pure noise."""
        return 0 < len(self.pure_steps) < len(self.fractions)

    @cached_property
    def budgets(self) -> Mapping[Step, StepBudget]:
        return MappingProxyType(
            dict(
                _divided(
                    tuple(self.fractions.items()),
                    self.epsilon,
                    self.delta,
                    self.pure_steps,
                    self._sampling_error,
                )
            )
        )

    def check_budget(self) -> None:
        """Raise where the target cannot be met."""
        self.budgets  # noqa: B018 - settled, or refused

    def reservation(
        self, *, weight: float = 1.0, pure_weight: float = 1.0, replacing: bool = False
    ) -> Loss:
        """The most that a run can cost, under the plan's adjacency."""
        error = self._sampling_error
        ratios = self._replacing_ratios if replacing else {}
        parts = [(budget, ratios.get(step, 1.0)) for step, budget in self.budgets.items()]
        return Loss(
            mu_squared=math.fsum((b.mu * weight * r) ** 2 for b, r in parts if b.mu is not None),
            pure=math.fsum(b.epsilon * pure_weight * r for b, r in parts if b.epsilon is not None),
            log_ratio=0.0 if self.pure else error.log_ratio,
            distance=(0.0 if self.pure else error.distance)
            + (_PURE_DISTANCE if self.pure_steps else 0.0),
        )

    @property
    def pure_part(self) -> float:
        """Of epsilon, what an account must set aside for its pure steps beside Gaussian ones."""
        pure = [b.epsilon for b in self.budgets.values() if b.epsilon is not None]
        return math.fsum(pure) * (1.0 + 1e-10) if self.mixed else 0.0

    @cached_property
    def _replacing_ratios(self) -> dict[Step, float]:
        """How much more each step costs if a row is changed: the worst of what it releases."""
        found: dict[Step, float] = {}
        for planned in self.schedule if self.adjacency == "add-remove" else ():
            norm = self.noises[planned.step].norm
            ratio = STATISTICS[planned.statistic].replacing_ratio(norm)
            found[planned.step] = max(found.get(planned.step, 1.0), ratio)
        return found

    @cached_property
    def _sampling_error(self) -> SamplingError:
        return lattice_error(self.released_values(), steps_a_scale=2.0**26, draws=self.noise_draws)


@lru_cache(maxsize=64)
def _divided(
    fractions: tuple[tuple[Step, float], ...],
    epsilon: float,
    delta: float,
    pure: frozenset[str],
    error: SamplingError,
) -> tuple[tuple[Step, StepBudget], ...]:
    """Steps and what they may spend; remembered."""
    budgets = split_budget(
        {str(step): fraction for step, fraction in fractions},
        epsilon=epsilon,
        delta=delta,
        pure_steps=pure,
        error=error,
    )
    return tuple((step, budgets[step]) for step, _ in fractions)


def columns_of_sketch(options: Options, components: int, *, sketched: bool, features: int) -> int:
    """Columns R of a sketch of D features for K components: those that were given, or 4 K."""
    given = options.given_columns
    if given is None:
        return min(features, 4 * components)
    if not sketched:
        raise options.refused("sketch_size", "no-sketch-made", given=given)
    if given < components:
        raise options.refused("sketch_size", "small-sketch", components=components, given=given)
    return min(features, int(given))


def fractions_of(options: Options, usual: Mapping[Step, float]) -> dict[Step, float]:
    """Shares of the steps that a fit takes, adding up to 1.

    One rule for every task: ``budget_split`` gives every step that the fit takes a share, and no
    other step. A share of 0 is none.
    """
    split = options.budget_split
    given = {step: fraction for step, fraction in (split or {}).items() if fraction > 0}
    if split is None:
        given = dict(usual)
    hint = f"This fit takes the steps {', '.join(usual)}: give a share to each, and to no other."
    for step in given:
        if step not in usual:
            raise options.refused("budget_split", "unneeded-step", step=step, way_out=hint)
    for step in usual:
        if step not in given:
            raise options.refused("budget_split", "step-without-share", step=step, way_out=hint)
    total = math.fsum(given.values())
    return {step: given[step] / total for step in usual if step in given}


def check_pure(statistic: StatisticName, mechanism: str, delta: float) -> None:
    """Raise where a mechanism is to give pure epsilon and cannot."""
    named = MECHANISMS.get(mechanism)
    if delta == 0 and named is not None and not named.pure:
        instead = STATISTICS[statistic].usual(pure=True).name
        raise PrivacyError(
            "pure-needs-other-mechanism",
            name="mechanism",
            value=mechanism,
            instead=f"mechanism={instead!r} (or 'auto')",
        )


def check_components(n_components: int, features: int) -> None:
    if not 1 <= n_components <= features:
        raise DataError(
            "too-many-components", name="n_components", components=n_components, features=features
        )


def fields_of(
    options: Options,
    *,
    features: int,
    noise_draws: int,
    variables: int | None = None,
) -> Any:
    """The fields that the plan of every task has of its options, but components and fractions.

    Where a task has no ``row_bound`` and no ``center``, nothing is bounded or subtracted.
    """
    bound = options.get("row_bound")
    scaled, ranged = scale_kind(options), options.get("ranges") is not None
    finds_scales = scaled == "private" and not ranged
    winsorize = options.get("winsorize")
    if winsorize is not None and not finds_scales:
        raise options.refused("winsorize", "winsorize-without-quantiles", given=winsorize)
    if options.get("unit") is None and options.get("max_rows_per_unit", 1) != 1:
        raise options.refused(
            "max_rows_per_unit", "no-units-to-bound", max_rows_per_unit=options.max_rows_per_unit
        )
    return {
        "features": features,
        "epsilon": float(options.epsilon),
        "delta": float(options.delta),
        "adjacency": options.adjacency,
        "row_bound": None if bound is None else float(bound),
        "centered": center_kind(options.get("center", False)),
        "noise_draws": noise_draws,
        "missing": options.get("missing", "leave-out"),
        "precision": options.get("precision", "double"),
        "unit": options.get("unit"),
        "max_rows_per_unit": int(options.get("max_rows_per_unit", 1)),
        "scaled": scaled,
        "ranged": ranged,
        "winsorize": None if winsorize is None else float(winsorize),
        "variables": (variables or features) if finds_scales else 1,
    }


def scale_kind(options: Options) -> Literal["private", "public", "no"]:
    """Where columns' scales come from, by the options ``scale`` and ``ranges``."""
    scale, ranged = options.get("scale"), options.get("ranges") is not None
    if scale is None:
        return "no"
    if not isinstance(scale, str):
        if ranged:
            raise options.refused("scale", "scales-given-twice")
        return "public"
    if not ranged and center_kind(options.get("center", False)) != "private":
        raise options.refused("scale", "scale-without-center")
    return "private"


def center_kind(center: object) -> Literal["private", "public", "no"]:
    """What is subtracted, by the parameter ``center``."""
    if isinstance(center, bool) or not hasattr(center, "__len__"):
        return "private" if center else "no"
    return "public"
