"""How much the rows of a site with a smaller target count.

Noise of a sum is common to all its sites. A site whose rows count with a weight moves the sum by so
much less, and the common noise then gives it what it targets (privacy.md, section 5).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from eigenveil.errors import PrivacyError
from eigenveil.models.plan import BasePlan
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.budget import split_budget
from eigenveil.privacy.mechanisms.base import SamplingError, lattice_error


def site_weight(plan: BasePlan, site: str, epsilon: float, *, whole: int) -> int:
    """Weight of a site's rows, in parts of ``whole``: the largest that meets the site's target."""
    error = lattice_error(plan.released_values(), steps_a_scale=2.0**26, draws=plan.noise_draws)
    try:
        if plan.mixed:
            weight = _of_mixed_noise(plan, epsilon, error, whole)
        else:
            weight = _of_one_kind(plan, epsilon, error, whole)
    except PrivacyError as problem:
        raise PrivacyError.relayed(
            f"site {site!r}: {problem.message}", hint=problem.hint, code=problem.code
        ) from None
    if weight < 1:
        raise PrivacyError(
            "weight-too-small", site=site, epsilon=epsilon, most=plan.epsilon, whole=whole
        )
    return weight


# Bits of a coarse weight at the least, and the part of itself that it may lose.
_FEWEST_BITS = 5
_LOST = 1 / 16


def coarse_weights(weights: Mapping[str, int], *, bits: int) -> dict[str, int]:
    """The same weights, in parts of ``2**bits``, with as few bits of them as lose little.

    A weighted sum takes more of its 64 bits the finer the weights are: every bit halves the number
    of rows that fit.
    """
    for kept in range(_FEWEST_BITS, bits):
        low = bits - kept
        coarse = {site: weight >> low << low for site, weight in weights.items()}
        if all(coarse[site] >= (1 - _LOST) * weight for site, weight in weights.items()):
            return coarse
    return dict(weights)


def _of_one_kind(plan: BasePlan, epsilon: float, error: SamplingError, whole: int) -> int:
    """The share of the study's mu (of epsilon, if delta = 0) that the site targets."""
    own = _spendable(epsilon, plan.delta, error)
    weight = math.floor(whole * own / _spendable(plan.epsilon, plan.delta, error))
    if plan.pure and weight < whole:
        weight -= 1  # for the sampler's own error, which no weight makes smaller
    return weight


def _of_mixed_noise(plan: BasePlan, epsilon: float, error: SamplingError, whole: int) -> int:
    """The largest weight at which all releases together cost no more than the target."""
    if epsilon >= plan.epsilon:
        return whole
    budgets = plan.budgets.values()
    mu_squared = math.fsum(b.mu**2 for b in budgets if b.mu is not None)
    pure = math.fsum(b.epsilon for b in budgets if b.epsilon is not None)

    def cost(weight: int) -> float:
        part = weight / whole
        # one part more of what is pure: room for the sampler's error, which no weight makes smaller
        return _mixed_cost(
            Loss(mu_squared * part**2, pure * (part + 1 / whole), *error), plan.delta
        )

    low, high = 0, whole
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= epsilon else (low, middle)
    return low


@lru_cache(maxsize=256)
def _mixed_cost(loss: Loss, delta: float) -> float:
    return loss.epsilon(delta)


@lru_cache(maxsize=256)
def _spendable(epsilon: float, delta: float, error: SamplingError) -> float:
    """What a target leaves for a fit's releases together: mu, or epsilon if delta = 0."""
    budget = split_budget({"all": 1.0}, epsilon=epsilon, delta=delta, error=error)["all"]
    spendable = budget.epsilon if budget.mu is None else budget.mu
    assert spendable is not None
    return spendable
