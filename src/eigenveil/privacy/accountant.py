"""Composition of recorded releases into one guarantee.

All Gaussian: exact in mu. All pure: the epsilons add up. Mixed: privacy-loss distributions of the
``dp-accounting`` package, pessimistic, with every pure release replaced by the randomised response
that dominates it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from eigenveil.errors import PrivacyError
from eigenveil.privacy.gaussian import (
    check_delta,
    check_epsilon,
    delta_of_mu,
    epsilon_of_mu,
)
from eigenveil.privacy.guarantee import Adjacency, Guarantee
from eigenveil.privacy.releases import ReleaseRecord, SamplingError

# Grid of the privacy-loss distributions: pessimistic rounding, so coarser only costs accuracy.
_PLD_INTERVAL = 1e-4
# A chance that counts as none in a pure guarantee: no sampler that ends in bounded time avoids one.
NEGLIGIBLE = 2.0**-80


def total_mu(mus: Iterable[float]) -> float:
    """Composition of Gaussian releases, adaptive or not."""
    return math.sqrt(math.fsum(mu * mu for mu in mus))


def compose(
    records: Sequence[ReleaseRecord],
    *,
    delta: float,
    adjacency: Adjacency,
    caveats: Sequence[str] = (),
    reasons_not_certified: Sequence[str] = (),
) -> Guarantee:
    """The guarantee of a sequence of releases at the given delta.

    Raises
    ------
    PrivacyError
        When the records do not share ``adjacency``, or no finite epsilon follows from them.
    """
    check_delta(delta)
    for record in records:
        if record.adjacency != adjacency:
            raise PrivacyError(
                f"Release {record.name!r} is recorded under {record.adjacency}, "
                f"the guarantee under {adjacency}.",
                hint="Compose only releases with one adjacency.",
            )
    mus = [r.mu() for r in records if r.noise.kind == "gaussian"]
    pure = math.fsum(r.epsilon() for r in records if r.noise.kind != "gaussian")
    errors = [r.sampling_error() for r in records]
    error = SamplingError(
        math.fsum(e.log_ratio for e in errors), math.fsum(e.distance for e in errors)
    )
    mu = total_mu(mus)
    if not mus:
        if not (math.isfinite(error.log_ratio) and error.distance <= NEGLIGIBLE):
            raise delta_below_resolution(0.0)
        epsilon, out_delta = pure + 2 * error.log_ratio, 0.0
        how = "adding up pure epsilons"
    else:
        epsilon, out_delta = _epsilon_with_error(mu, pure, delta, error), delta
        how = (
            "exact Gaussian-DP composition and conversion"
            if pure == 0
            else "privacy-loss distributions (dp-accounting, pessimistic)"
        )
    return Guarantee(
        epsilon=epsilon,
        delta=out_delta,
        mu=mu if mus and pure == 0 else None,
        adjacency=adjacency,
        calculation=how,
        certified=not reasons_not_certified,
        caveats=(*reasons_not_certified, *caveats),
    )


def pure_epsilon_beside(mu: float, *, epsilon: float, delta: float) -> float:
    """Largest pure epsilon that may be released beside Gaussian releases of total ``mu``.

    Rounded to the private side.

    Raises
    ------
    PrivacyError
        When the Gaussian releases alone already use up the wish.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if mu == 0:
        return epsilon
    if delta_of_mu(mu, epsilon) > delta:
        raise PrivacyError(
            f"Gaussian releases of mu = {mu:.4g} leave nothing of epsilon = {epsilon:g}, "
            f"delta = {delta:g} for a pure release.",
            hint="Give the moment a larger share of the budget.",
        )

    def excess(pure: float) -> float:
        return _epsilon(mu, pure, delta) - epsilon

    low, high = 0.0, epsilon
    if excess(high) <= 0:
        return high
    for _ in range(
        30
    ):  # bisection keeps a private lower end; the answer is good to epsilon / 2**30
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) <= 0 else (low, middle)
    return low


def _epsilon_with_error(mu: float, pure: float, delta: float, error: SamplingError) -> float:
    """Smallest epsilon that also covers the sampler's error."""
    epsilon = 0.0
    for _ in range(100):  # increasing towards the smallest self-consistent epsilon
        usable = (delta - error.cost(epsilon)) * math.exp(-2 * error.log_ratio)
        if usable <= 0:
            break
        wider = _epsilon(mu, pure, usable) + 2 * error.log_ratio
        if wider <= epsilon * (1 + 1e-12):
            return wider
        epsilon = wider
    raise delta_below_resolution(delta)


def delta_below_resolution(delta: float) -> PrivacyError:
    """The error for a delta that the sampler's own error would use up."""
    return PrivacyError(
        f"delta = {delta:g} is below what the sampling error of so many released values allows.",
        hint="Give a larger delta or a smaller epsilon, or use mechanism='sketch'.",
        code="delta-below-resolution",
    )


def _epsilon(mu: float, pure: float, delta: float) -> float:
    if pure == 0:
        return epsilon_of_mu(mu, delta)
    if delta == 0:
        return math.inf
    # imported here: the package takes a second to load and only mixtures need it
    from dp_accounting.pld import common, privacy_loss_distribution

    gaussian = privacy_loss_distribution.from_gaussian_mechanism(
        standard_deviation=1.0 / mu, value_discretization_interval=_PLD_INTERVAL
    )
    response = privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(pure, 0.0),
        value_discretization_interval=_PLD_INTERVAL,
    )
    return float(gaussian.compose(response).get_epsilon_for_delta(delta))
