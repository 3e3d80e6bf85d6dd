"""Dividing a privacy target over the steps of a fit, always ending on the private side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eigenveil.checks import LARGEST_EPSILON
from eigenveil.errors import PrivacyError
from eigenveil.privacy.accountant import (
    NEGLIGIBLE,
    Loss,
    check_delta,
    check_epsilon,
    delta_below_resolution,
    gaussian_equivalent,
    largest_that,
    mu_beside_pure,
    mu_of_epsilon,
    pure_epsilon_beside,
)
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.mechanisms.base import SamplingError
from eigenveil.privacy.releases import ReleaseRecord

# A hair of the budget, so that rounding, of the noise scales and of the conversion from delta, can
# never overspend it.
_MARGIN = 1.0 - 1e-10


@dataclass(frozen=True)
class StepBudget:
    """What one step may spend: ``mu`` (Gaussian) or ``epsilon`` (pure); exactly one is set."""

    mu: float | None = None
    epsilon: float | None = None

    def scaled(self, fraction: float) -> StepBudget:
        """A part of this budget: ``share`` of mu squared, or of epsilon."""
        if self.mu is not None:
            return StepBudget(mu=self.mu * math.sqrt(fraction))
        assert self.epsilon is not None
        return StepBudget(epsilon=self.epsilon * fraction)


def split_budget(
    fractions: Mapping[str, float],
    *,
    epsilon: float,
    delta: float,
    pure_steps: frozenset[str] = frozenset(),
    error: SamplingError = SamplingError(0.0, 0.0),  # noqa: B008 - immutable
) -> dict[str, StepBudget]:
    """Divide (epsilon, delta) over steps: by fractions of mu squared; of epsilon with delta 0.

    Beside Gaussian steps, pure ones divide what the exact composition leaves. ``error`` is that of
    all Gaussian steps together.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    epsilon = min(epsilon, LARGEST_EPSILON)
    total = math.fsum(fractions.values())
    parts = {step: fraction / total for step, fraction in fractions.items() if fraction > 0}
    if delta == 0:
        return {step: StepBudget(epsilon=epsilon * part * _MARGIN) for step, part in parts.items()}
    usable = (delta - error.cost(epsilon)) * math.exp(-2 * error.log_ratio)
    if epsilon <= 2 * error.log_ratio:
        raise PrivacyError("epsilon-below-resolution", epsilon=epsilon)
    if usable <= 0:
        raise delta_below_resolution(delta)
    epsilon -= 2 * error.log_ratio
    mu = mu_of_epsilon(epsilon, usable) * _MARGIN
    budgets = {
        step: StepBudget(mu=mu * math.sqrt(part))
        for step, part in parts.items()
        if step not in pure_steps
    }
    pure = {step: part for step, part in parts.items() if step in pure_steps}
    if pure:
        spent = math.sqrt(math.fsum(b.mu * b.mu for b in budgets.values() if b.mu is not None))
        # beside the whole, so that both kinds keep their hair of the budget
        rest = pure_epsilon_beside(spent / _MARGIN, epsilon=epsilon, delta=usable) * _MARGIN
        whole = math.fsum(pure.values())
        budgets |= {s: StepBudget(epsilon=rest * part / whole) for s, part in pure.items()}
    return budgets


# -- The caps of an account: what adaptively chosen releases may add up to within (epsilon, delta).
#
# A budget that is checked by the joint privacy-loss distribution of what was spent is no valid
# filter where Gaussian and pure releases are chosen one after the other: whoever chooses may take
# the cheaper kind for the outcome at hand. An account therefore fixes caps before anything is
# released, one for the sum of mu squared, one for the sum of pure epsilons, and room for the
# samplers' errors; the product of Gaussian noise and randomised response at the caps meets the
# budget, and bounds every adaptive choice within them (docs/proofs/accounts.md; tables.md,
# section 6).


# Below the caps that the budget allows, more than all rounding: 1e-10 is kept back by a study.
_CAP_MARGIN = 1.0 - 1e-11
# Of epsilon and of delta, for the samplers' errors, where nothing states how much is needed.
_LOG_RATIO_ROOM, _DISTANCE_ROOM = 2.0**-14, 2.0**-20
NOTHING = Loss()


def usual_room(epsilon: float, delta: float) -> SamplingError:
    """Room for the samplers' errors that a budget can spare without being noticed."""
    epsilon = min(epsilon, LARGEST_EPSILON)
    return SamplingError(
        epsilon * _LOG_RATIO_ROOM, delta * _DISTANCE_ROOM / (1.0 + math.exp(epsilon))
    )


def caps_of(epsilon: float, delta: float, *, pure: float = 0.0, room: SamplingError) -> Loss:
    """The caps of an account, rounded to the private side; epsilon 0 closes it.

    ``pure`` is set aside for pure releases beside Gaussian ones. With delta 0 all is pure.
    """
    check_delta(delta)
    if epsilon != 0:
        check_epsilon(epsilon)
    largest = min(epsilon, LARGEST_EPSILON)
    part = delta > 0 and 0 < pure < epsilon
    if not part and pure != 0:
        raise PrivacyError("pure-not-a-part", pure=pure, epsilon=epsilon, delta=delta)
    if epsilon == 0:
        return NOTHING
    if delta == 0:
        return Loss(pure=epsilon * _CAP_MARGIN, distance=NEGLIGIBLE)
    left = largest - 2 * room.log_ratio
    usable = (delta - room.cost(largest)) * math.exp(-2 * room.log_ratio)
    if left <= 0 or usable <= 0:
        raise PrivacyError(
            "no-room-for-samplers",
            log_ratio=room.log_ratio,
            distance=room.distance,
            epsilon=epsilon,
            delta=delta,
        )
    mu = mu_beside_pure(pure, epsilon=left, delta=usable)
    return Loss(mu * mu * _CAP_MARGIN, pure * _CAP_MARGIN, room.log_ratio, room.distance)


def rooms_for(loss: Loss, epsilon: float, delta: float) -> list[SamplingError]:
    """Rooms that an account may have whose first session costs ``loss``, the best first."""
    # enough for as many sessions like it as there is mu squared for; at the least its own
    usual, own = usual_room(epsilon, delta), SamplingError(loss.log_ratio, loss.distance)
    if delta == 0 or epsilon == 0:
        return [usual]
    whole = mu_beside_pure(0.0, epsilon=min(epsilon, LARGEST_EPSILON), delta=delta) ** 2
    times = max(1.0, whole / loss.mu_squared) if loss.mu_squared > 0 else 1.0
    like_it = SamplingError(
        max(usual.log_ratio, times * own.log_ratio), max(usual.distance, times * own.distance)
    )
    return [usual, like_it, own]


def as_gaussian(loss: Loss) -> Loss:
    """The same with its pure part at its Gaussian equivalent (docs/proofs/accounts.md, claim 2)."""
    return Loss(
        mu_squared=loss.mu_squared + gaussian_equivalent(loss.pure) ** 2,
        log_ratio=loss.log_ratio,
        distance=loss.distance,
    )


def pure_of_gaussian(mu_squared: float) -> float:
    """Largest pure epsilon whose Gaussian equivalent is within ``mu_squared``: rounded down."""
    if mu_squared == 0:  # squares of tiny numbers are zero, too
        return 0.0
    return largest_that(lambda pure: gaussian_equivalent(pure) ** 2 <= mu_squared, LARGEST_EPSILON)


# -- one row more or less, counted where one row is changed


def replaced(record: ReleaseRecord) -> ReleaseRecord:
    """The same release for neighbours of which one row is changed."""
    return record.model_copy(update={"adjacency": "replace-one"})


def counted(record: ReleaseRecord, adjacency: Adjacency) -> ReleaseRecord:
    """A release as an account under ``adjacency`` counts it."""
    if record.adjacency == adjacency:
        return record
    if record.adjacency == "replace-one":
        raise PrivacyError("replaced-rows-not-counted", release=record.name)
    return replaced(record)


def cost_of(records: Iterable[ReleaseRecord], adjacency: Adjacency | None = None) -> Loss:
    """The loss of releases, as an account under ``adjacency`` counts each, or under their own.

    A pure one's has what its sampler adds (accounts.md, claim 5).
    """
    found = []
    for record in records:
        loss = Loss.of(record if adjacency is None else counted(record, adjacency))
        found.append(loss.as_pure() if record.pure else loss)
    return Loss.total(found)
