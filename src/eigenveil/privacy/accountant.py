"""Composition of recorded releases into one guarantee.

All Gaussian: exact in mu. All pure: the epsilons add up. Mixed: the exact product of the Gaussian
and of the randomised response that dominates the pure releases together (docs/proofs/accounts.md,
claims 3 and 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass

from scipy.special import erfinv, ndtri_exp

from eigenveil.errors import PrivacyError
from eigenveil.privacy.gaussian import (
    check_delta,
    check_epsilon,
    delta_of_mu,
    epsilon_of_mu,
    mu_of_epsilon,
)
from eigenveil.privacy.guarantee import Adjacency, Guarantee
from eigenveil.privacy.releases import ReleaseRecord
from eigenveil.privacy.sampling import SamplingError

# A chance that counts as none in a pure guarantee: no sampler that ends in bounded time avoids one.
NEGLIGIBLE = 2.0**-80
# Sums of the same numbers in another order differ by less.
_ROUNDING = 1.0 + 1e-12


@dataclass(frozen=True)
class Loss:
    """What releases cost together: losses add up, adaptively as well.

    ``mu_squared`` of the Gaussian releases, ``pure`` epsilons of the others, and the bounds on how
    far drawn noise is from proved noise.
    """

    mu_squared: float = 0.0
    pure: float = 0.0
    log_ratio: float = 0.0
    distance: float = 0.0

    @classmethod
    def of(cls, record: ReleaseRecord) -> Loss:
        """The loss of one release."""
        error = record.sampling_error()
        return cls(
            mu_squared=0.0 if record.pure else record.mu() ** 2,
            pure=record.epsilon() if record.pure else 0.0,
            log_ratio=error.log_ratio,
            distance=error.distance,
        )

    @classmethod
    def total(cls, losses: Iterable[Loss]) -> Loss:
        """The sum, in an order that changes nothing."""
        parts = list(losses)
        return cls(
            mu_squared=math.fsum(p.mu_squared for p in parts),
            pure=math.fsum(p.pure for p in parts),
            log_ratio=math.fsum(p.log_ratio for p in parts),
            distance=math.fsum(p.distance for p in parts),
        )

    def minus(self, other: Loss) -> Loss:
        """What is left of this, part by part; no part is below 0."""
        return Loss(
            mu_squared=max(0.0, self.mu_squared - other.mu_squared),
            pure=max(0.0, self.pure - other.pure),
            log_ratio=max(0.0, self.log_ratio - other.log_ratio),
            distance=max(0.0, self.distance - other.distance),
        )

    def joined(self, other: Loss) -> Loss:
        """Of each part the larger one."""
        return Loss(*map(max, astuple(self), astuple(other)))

    def within(self, caps: Loss) -> bool:
        """Whether no part is larger than that of ``caps``: what an account needs."""
        return (
            self.mu_squared <= caps.mu_squared
            and self.pure <= caps.pure
            and self.log_ratio <= caps.log_ratio
            and self.distance <= caps.distance
        )

    def covers(self, other: Loss, *, rounding: float = _ROUNDING) -> bool:
        """Whether what ``other`` costs is within this, whatever delta it is counted at.

        Where all is pure, part of the loss may come as the sampler's log-ratio, which adds twice to
        epsilon; beside Gaussian noise a log-ratio also shrinks delta, so there every part needs
        room of its own.
        """
        mine, its = self, other
        if self.mu_squared == 0 == other.mu_squared:
            mine, its = self.as_pure(), other.as_pure()
        return its.within(
            Loss(
                mine.mu_squared * rounding,
                mine.pure * rounding,
                mine.log_ratio * rounding,
                mine.distance * rounding,
            )
        )

    def as_pure(self) -> Loss:
        """The same with the sampler's log-ratio in epsilon: of pure releases."""
        assert self.mu_squared == 0
        return Loss(pure=self.pure + 2 * self.log_ratio, distance=self.distance)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon at this delta."""
        error = SamplingError(self.log_ratio, self.distance)
        if self.mu_squared > 0 or NEGLIGIBLE < error.distance < math.inf:
            return _epsilon_with_error(math.sqrt(self.mu_squared), self.pure, delta, error)
        if not (math.isfinite(error.log_ratio) and error.distance <= NEGLIGIBLE):
            raise delta_below_resolution(0.0)
        return self.pure + 2 * error.log_ratio


def compose(
    records: Sequence[ReleaseRecord],
    *,
    delta: float,
    adjacency: Adjacency,
    view: str = "outsider",
    caveats: Sequence[str] = (),
    reasons_not_certified: Sequence[str] = (),
) -> Guarantee:
    """The guarantee of a sequence of releases at the given delta."""
    check_delta(delta)
    for record in records:
        if record.adjacency != adjacency:
            raise PrivacyError(
                "other-adjacency", release=record.name, own=record.adjacency, wanted=adjacency
            )
    loss = Loss.total(Loss.of(record) for record in records)
    epsilon = loss.epsilon(delta)
    gaussian = loss.mu_squared > 0
    if not gaussian:
        how = "adding up pure epsilons"
    elif loss.pure == 0:
        how = "exact Gaussian-DP composition and conversion"
    else:
        how = "exact composition of Gaussian noise and of randomised response for the rest"
    return Guarantee(
        epsilon=epsilon,
        delta=delta if gaussian else 0.0,
        mu=math.sqrt(loss.mu_squared) if gaussian and loss.pure == 0 else None,
        adjacency=adjacency,
        view=view,
        calculation=how,
        certified=not reasons_not_certified,
        caveats=(*reasons_not_certified, *caveats),
    )


def pure_epsilon_beside(mu: float, *, epsilon: float, delta: float) -> float:
    """Largest pure epsilon that may be released beside Gaussian releases of total ``mu``.

    Rounded to the private side.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if mu == 0:
        return epsilon
    if delta_of_mu(mu, epsilon) > delta:
        raise PrivacyError("moment-takes-all", mu=mu, epsilon=epsilon, delta=delta)

    return _largest(lambda pure: _within(mu, pure, epsilon, delta), epsilon)


def gaussian_equivalent(pure: float) -> float:
    """Smallest mu for which whatever is ``pure``-DP is mu-GDP (rounded up).

    ``mu = 2 Phi^-1(e^pure / (1 + e^pure))``: docs/proofs/accounts.md, claim 1.
    """
    if pure < 1.0:  # Phi(z) - 1/2 = tanh(pure / 2) / 2, without cancellation
        half = math.sqrt(2.0) * float(erfinv(math.tanh(pure / 2.0)))
    else:
        half = -float(ndtri_exp(-pure - math.log1p(math.exp(-pure))))
    return 2.0 * half * (1.0 + 1e-12)


def delta_of_product(mu: float, pure: float, epsilon: float) -> float:
    """Smallest delta at ``epsilon`` of a mu-GDP release beside randomised response of ``pure``.

    The response moves the Gaussian's privacy loss by ``pure`` one way or the other
    (docs/proofs/accounts.md, claim 3).
    """
    likely = 1.0 / (1.0 + math.exp(-pure))
    unlikely = math.exp(-pure) * likely
    return likely * _delta_at(mu, epsilon - pure) + unlikely * _delta_at(mu, epsilon + pure)


def mu_beside_pure(pure: float, *, epsilon: float, delta: float) -> float:
    """Largest total mu of Gaussian releases that may be made beside ``pure``: rounded down.

    The inverse of :func:`pure_epsilon_beside`.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if pure == 0:
        return mu_of_epsilon(epsilon, delta)
    if not 0 < pure < epsilon or delta == 0:
        raise PrivacyError("bad-pure-epsilon", pure=pure, epsilon=epsilon, delta=delta)
    most = mu_of_epsilon(epsilon, delta)
    return _largest(lambda mu: _within(mu, pure, epsilon, delta), most)


def _within(mu: float, pure: float, epsilon: float, delta: float) -> bool:
    """Whether a Gaussian release and randomised response are together (epsilon, delta)-DP."""
    return delta_of_product(mu, pure, epsilon) * _ROUNDING <= delta


def _largest(fits: Callable[[float], bool], most: float) -> float:
    """The largest number up to ``most`` that fits, where all below it do."""
    if fits(most):
        return most
    low, high = 0.0, most
    while (middle := (low + high) / 2) not in (low, high):  # the lower end fits
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _delta_at(mu: float, epsilon: float) -> float:
    """:func:`delta_of_mu` of any sign of epsilon."""
    if epsilon >= 0:
        return delta_of_mu(mu, epsilon)
    return -math.expm1(epsilon) + math.exp(epsilon) * delta_of_mu(mu, -epsilon)


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
    return PrivacyError("delta-below-resolution", delta=delta)


def _epsilon(mu: float, pure: float, delta: float) -> float:
    if pure == 0:
        return epsilon_of_mu(mu, delta)
    if delta == 0:
        return math.inf
    if _within(mu, pure, 0.0, delta):
        return 0.0
    low, high = 0.0, epsilon_of_mu(mu, delta) + pure
    while (middle := (low + high) / 2) not in (low, high):  # the upper end is private
        low, high = (low, middle) if _within(mu, pure, middle, delta) else (middle, high)
    return high
