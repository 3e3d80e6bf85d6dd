"""Dividing a privacy wish over the steps of a fit, always ending on the private side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from eigenveil.errors import PrivacyError
from eigenveil.privacy.accountant import delta_below_resolution, pure_epsilon_beside
from eigenveil.privacy.gaussian import check_delta, check_epsilon, mu_of_epsilon
from eigenveil.privacy.sampling import SamplingError

# A hair of the budget, so that rounding, of the noise scales and of the conversion from delta, can
# never overspend it.
_MARGIN = 1.0 - 1e-10
# A larger wish is met with this one's noise, a small part of a single row: nothing is gained
# beyond, and the sampler's own error could no longer be covered.
LARGEST_EPSILON = 40.0


@dataclass(frozen=True)
class StepBudget:
    """What one step may spend: ``mu`` (Gaussian) or ``epsilon`` (pure); exactly one is set."""

    mu: float | None = None
    epsilon: float | None = None

    @property
    def is_pure(self) -> bool:
        """Whether the step must use a pure mechanism."""
        return self.epsilon is not None

    def scaled(self, share: float) -> StepBudget:
        """A part of this budget: ``share`` of mu squared, or of epsilon."""
        if self.mu is not None:
            return StepBudget(mu=self.mu * math.sqrt(share))
        assert self.epsilon is not None
        return StepBudget(epsilon=self.epsilon * share)


def split_budget(
    shares: Mapping[str, float],
    *,
    epsilon: float,
    delta: float,
    pure_steps: frozenset[str] = frozenset(),
    error: SamplingError = SamplingError(0.0, 0.0),  # noqa: B008 - immutable
) -> dict[str, StepBudget]:
    """Divide (epsilon, delta) over steps by shares.

    Parameters
    ----------
    shares : mapping of step to share
        Non-negative; normalised to add up to 1. Of mu squared for Gaussian steps; of epsilon when
        ``delta = 0``. With ``delta > 0`` and pure steps, Gaussian steps take their share of mu
        squared, and the pure steps divide what the exact composition leaves.
    error : SamplingError
        Of all Gaussian steps together.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    epsilon = min(epsilon, LARGEST_EPSILON)
    total = math.fsum(shares.values())
    parts = {step: share / total for step, share in shares.items() if share > 0}
    if delta == 0:
        return {step: StepBudget(epsilon=epsilon * part * _MARGIN) for step, part in parts.items()}
    usable = (delta - error.cost(epsilon)) * math.exp(-2 * error.log_ratio)
    if epsilon <= 2 * error.log_ratio:
        raise PrivacyError(
            f"epsilon = {epsilon:g} is below what the sampling error of the noise allows.",
            hint="Give a larger epsilon; 0.1 to 4 are usual.",
            code="epsilon-below-resolution",
        )
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
