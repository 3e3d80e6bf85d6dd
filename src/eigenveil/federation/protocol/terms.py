"""A settled study: what all parties of a study work with, found once from its fields.

Who takes part, the plan, the weights, who draws what noise, which masks. A party settles its study
when it starts (:func:`settle`), and hands the terms on; nothing works them out again.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, cast

from eigenveil.errors import PrivacyError, ProtocolError
from eigenveil.federation.ledger.entries import UNIT
from eigenveil.federation.ledger.placing import Wanted
from eigenveil.federation.masks import MASKS, UNMASKED, Mask
from eigenveil.federation.protocol.messages import Opened
from eigenveil.federation.protocols import PROTOCOLS, Protocol
from eigenveil.federation.study.study import WEIGHT_BITS, Study
from eigenveil.models.plan import BasePlan
from eigenveil.models.schedule import Step
from eigenveil.models.shapes import rehearse
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.calibration import Shape, grids_of, record_of
from eigenveil.privacy.releases import ReleaseRecord, Sharing
from eigenveil.privacy.views import Federation, ProtocolName, guarantees


@dataclass(frozen=True, eq=False)
class Terms:
    """A settled study; made by :func:`settle`, and compared by identity."""

    study: Study  # With its protocol settled, wherever something is run
    plan: BasePlan
    names: tuple[str, ...]  # Sites that take part
    hash: str  # Of the study

    def check_views(self) -> None:
        """Raise unless something can be claimed against every adversary, before any release."""
        try:
            self._claims()
        except PrivacyError as error:
            largest = self._largest_epsilon() if error.code == "no-claim-against-view" else 0.0
            if not largest:
                raise
            raise PrivacyError(
                "no-claim-at-this-epsilon", why=error.message, largest=largest
            ) from None

    def _claims(self) -> None:
        guarantees(
            rehearse(self.plan, self.plan.budgets, self.sharings),
            self.federation(self.fewest),
            delta=self.study.delta,
            adjacency=self.study.adjacency,
        )

    def _largest_epsilon(self) -> float:
        """That can be claimed against every adversary, by bisection, rounded down; 0: none."""
        study = self.study

        def holds(epsilon: float) -> bool:
            """Whether the study has claims with another target."""
            try:
                settle(study.with_epsilon(epsilon))._claims()
            except PrivacyError:
                return False
            return True

        low, high = 0.0, study.epsilon
        while high - low > 0.01 * high:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if holds(middle) else (low, middle)
            if high < 0.01 * study.epsilon:
                return 0.0
        digits = 10.0 ** (math.floor(math.log10(low)) - 1)
        rounded = math.floor(low / digits) * digits
        return rounded if holds(rounded) else 0.0

    @property
    def fewest(self) -> int:
        """Sites that must be left for the noise to be what was promised."""
        return self.study.fewest_sites if len(self.names) > 1 else 1

    def check_count(self, count: int) -> None:
        """Enough sites for the noise to be what was promised, and no more than there are."""
        if not self.fewest <= count <= len(self.names):
            raise ProtocolError("too-few-for-noise", sites=count, fewest=self.fewest)

    @cached_property
    def opened(self) -> Opened:
        """Requests to the sites of this process."""
        return Opened()

    @cached_property
    def protocol(self) -> Protocol:
        return PROTOCOLS[self.study.protocol]

    @cached_property
    def masks(self) -> Mask:
        """Masks of the sums; none where there is nobody to hide among."""
        return MASKS[self.study.masks] if len(self.names) > 1 else UNMASKED

    @cached_property
    def public_columns(self) -> Mapping[str, Any]:
        return self.study.public_columns

    def partners(self, name: str, members: Sequence[str]) -> tuple[str, ...]:
        """With whom a site agrees on a secret, where so many are members, by name."""
        return self.masks.partners(name, members, self.study.degree)

    @property
    def mends(self) -> bool:
        """Whether masks that lost sites leave behind are taken off: sites share secrets then."""
        return self.masks.mends and self.study.dropouts > 0

    @property
    def exchanges(self) -> int:
        """Questions that a site answers in all, one after the other."""
        paired = 1 + self.mends  # keys; what masks are repaired with
        of_round = 1 + 2 * self.mends + self.masks.needs_helper  # of the helper, not the site
        return 1 + paired + of_round * len(self.plan.rounds) + 1

    @cached_property
    def weight_bits(self) -> int:
        """Bits that the sites' weights need; 0 when all are 1."""
        all_set = reduce(operator.or_, (self._weights[name] for name in self.names))
        lowest = (all_set & -all_set).bit_length() - 1
        return max(0, WEIGHT_BITS - lowest)

    def weight(self, name: str) -> float:
        """Factor on every row of a site."""
        return math.ldexp(self._weights[name], -WEIGHT_BITS)

    def place(self, name: str) -> int | None:
        """Which of the plan's sites one is, where each has a centre of its own."""
        return self.names.index(name) if self.plan.sites else None

    @cached_property
    def _weights(self) -> Mapping[str, int]:
        return self.study.weights()

    def federation(self, taking_part: int) -> Federation:
        """What the guarantees depend on, for a run in which so many sites took part."""
        alone, degree = len(self.names) == 1, self.study.degree
        return Federation(
            protocol=cast("ProtocolName", self.study.protocol),  # settled: never "auto"
            masks=self.masks.name,
            sites=len(self.names),
            taking_part=taking_part,
            collusion=0 if alone else self.study.collusion,
            dropouts=0 if alone else self.study.dropouts,
            neighbours=degree if 0 < degree < len(self.names) - 1 else None,
            sites_per_unit=1 if alone else self.study.sites_per_unit,
        )

    def sharing(self, step: Step) -> Sharing:
        if self.protocol.is_unmasked(step):
            return self.federation(len(self.names)).alone(weight_bits=self.weight_bits)
        return self._sharing

    @cached_property
    def sharings(self) -> Mapping[Step, Sharing]:
        return {step: self.sharing(step) for step in self.plan.fractions}

    @cached_property
    def _sharing(self) -> Sharing:
        most = len(self.names)
        return self.federation(most).sharing(weight_bits=self.weight_bits)

    @cached_property
    def _steps(self) -> Mapping[str, Step]:
        return {each.name: each.step for each in self.plan.schedule}

    def step_of(self, name: str) -> Step:
        """The plan's step that pays for a release, by its name."""
        step = self._steps.get(name)
        if step is None:
            raise ProtocolError("not-in-plan", what=f"{name!r:.60}")
        return step

    def record(
        self, name: str, shape: Shape, *, scale: float, grid: int, weight: float
    ) -> ReleaseRecord:
        """The record of a sum with this noise, its sensitivity worked out from the sum itself."""
        step = self.step_of(name)
        sharing, kind = self.sharing(step), self.plan.noises[step].name
        # finer than it need be, it would show how many rows it takes to leave 64 bits
        finest, coarsest = grids_of(kind, scale, shape, sharing)
        if not finest <= grid <= coarsest:
            raise ProtocolError(
                "bad-query",
                what=f"{name} on a grid of 2**{grid}, which does not fit the sum and its noise,",
            )
        try:
            return record_of(
                shape,
                name=name,
                adjacency=self.study.adjacency,
                kind=kind,
                scale=scale,
                grid=grid,
                sharing=sharing,
                weight=weight,
            )
        except ValueError:  # a record that no proof covers
            raise ProtocolError(
                "bad-query", what=f"{name} with {kind} noise, with which it cannot be released,"
            ) from None

    def reservation(self, name: str, *, replacing: bool = False) -> Loss:
        """The most that a session can cost a site.

        With ``replacing``, for neighbours of which one row is changed, whatever those of the study
        are: each step at the worst of what it may release.
        """
        weight = self.weight(name)
        # a pure weight is one step below the site's target: room for the sampler's error, which no
        # weight makes smaller
        most = weight if weight == 1.0 else weight + math.ldexp(1.0, -WEIGHT_BITS)
        return self.plan.reservation(weight=weight, pure_weight=most, replacing=replacing)

    def wanted(self, name: str, data_set: str) -> Wanted:
        return Wanted(
            data_set,
            self.study.adjacency,
            self.reservation(name),
            self.reservation(name, replacing=True),
            self.study.unit or UNIT,
        )


def settle(study: Study) -> Terms:
    """The terms of a study: each party makes them once, when it starts."""
    return Terms(study, study.plan(study.width), study.active, study.hash)
