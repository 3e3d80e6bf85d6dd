"""Composition of recorded releases into one guarantee (docs/proofs/accounts.md, claims 3 and 4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from operator import le, sub
from types import TracebackType
from typing import Any, Self

from scipy.optimize import brentq
from scipy.special import erfinv, log_ndtr, ndtri_exp

from eigenveil.errors import PrivacyError
from eigenveil.privacy.guarantee import Adjacency, Guarantee
from eigenveil.privacy.mechanisms.base import SamplingError
from eigenveil.privacy.releases import ReleaseRecord

# A chance that counts as none in a pure guarantee: no sampler that ends in bounded time avoids one.
NEGLIGIBLE = 2.0**-80
# Codes of what a smaller delta than the samplers' errors is refused with.
BELOW_RESOLUTION = ("delta-below-resolution", "no-room-for-samplers")
# Sums of the same numbers in another order differ by less.
_ROUNDING = 1.0 + 1e-12


@dataclass(frozen=True)
class Loss:
    """What releases cost together: losses add up, adaptively as well."""

    mu_squared: float = 0.0
    pure: float = 0.0
    log_ratio: float = 0.0
    distance: float = 0.0

    @classmethod
    def of(cls, record: ReleaseRecord) -> Loss:
        error = record.sampling_error()
        return cls(
            mu_squared=0.0 if record.pure else record.mu() ** 2,
            pure=record.epsilon() if record.pure else 0.0,
            log_ratio=error.log_ratio,
            distance=error.distance,
        )

    @property
    def parts(self) -> tuple[float, float, float, float]:
        return (self.mu_squared, self.pure, self.log_ratio, self.distance)

    @classmethod
    def total(cls, losses: Iterable[Loss]) -> Loss:
        """The sum, in an order that changes nothing."""
        return cls(*map(math.fsum, zip(*(each.parts for each in losses), strict=True)))

    def minus(self, other: Loss) -> Loss:
        """What is left of this, part by part; no part is below 0."""
        apart = map(sub, self.parts, other.parts)
        return Loss(*(max(0.0, each) for each in apart))

    def joined(self, other: Loss) -> Loss:
        """Of each part the larger one."""
        return Loss(*map(max, self.parts, other.parts))

    def within(self, caps: Loss) -> bool:
        """Whether no part is larger than that of ``caps``: what an account needs."""
        return all(map(le, self.parts, caps.parts))

    def covers(self, other: Loss, *, rounding: float = _ROUNDING) -> bool:
        """Whether what ``other`` costs is within this, whatever delta it is counted at."""
        # where all is pure, part of the loss may come as the sampler's log-ratio, which adds twice
        # to epsilon; beside Gaussian noise a log-ratio also shrinks delta: every part needs room of
        # its own
        mine, its = self, other
        if self.mu_squared == 0 == other.mu_squared:
            mine, its = self.as_pure(), other.as_pure()
        return its.within(Loss(*(part * rounding for part in mine.parts)))

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


def all_within(losses: Iterable[Loss], caps: Loss) -> bool:
    """Whether each is a loss, of no part below 0, and within ``caps``."""
    return all(loss.within(caps) and Loss().within(loss) for loss in losses)


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
    loss = Loss.total(map(Loss.of, records))
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
    """Largest pure epsilon that may be released beside Gaussian releases of total ``mu``."""
    check_epsilon(epsilon)
    check_delta(delta)
    if mu == 0:
        return epsilon
    if delta_of_mu(mu, epsilon) > delta:
        raise PrivacyError("moment-takes-all", mu=mu, epsilon=epsilon, delta=delta)

    return largest_that(lambda pure: _within(mu, pure, epsilon, delta), epsilon)


def gaussian_equivalent(pure: float) -> float:
    """Smallest mu for which what is ``pure``-DP is mu-GDP, rounded up (accounts.md, claim 1)."""
    if pure < 1.0:  # Phi(z) - 1/2 = tanh(pure / 2) / 2, without cancellation
        half = math.sqrt(2.0) * float(erfinv(math.tanh(pure / 2.0)))
    else:
        half = -float(ndtri_exp(-pure - math.log1p(math.exp(-pure))))
    return 2.0 * half * (1.0 + 1e-12)


def delta_of_product(mu: float, pure: float, epsilon: float) -> float:
    """Smallest delta of a mu-GDP release beside randomised response (accounts.md, claim 3)."""
    likely = 1.0 / (1.0 + math.exp(-pure))
    unlikely = math.exp(-pure) * likely
    return likely * _delta_at(mu, epsilon - pure) + unlikely * _delta_at(mu, epsilon + pure)


def mu_beside_pure(pure: float, *, epsilon: float, delta: float) -> float:
    """Largest total mu of Gaussian releases that may be made beside ``pure``: rounded down."""
    check_epsilon(epsilon)
    check_delta(delta)
    if pure == 0:
        return mu_of_epsilon(epsilon, delta)
    if not 0 < pure < epsilon or delta == 0:
        raise PrivacyError("bad-pure-epsilon", pure=pure, epsilon=epsilon, delta=delta)
    most = mu_of_epsilon(epsilon, delta)
    return largest_that(lambda mu: _within(mu, pure, epsilon, delta), most)


def _within(mu: float, pure: float, epsilon: float, delta: float) -> bool:
    """Whether a Gaussian release and randomised response are together (epsilon, delta)-DP."""
    return delta_of_product(mu, pure, epsilon) * _ROUNDING <= delta


def largest_that(fits: Callable[[float], bool], most: float) -> float:
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


_LARGEST_MU = 1e6
MOST_EPSILON = 1e15
"""Of a target: beyond it nothing is promised that means anything."""


def delta_of_mu(mu: float, epsilon: float) -> float:
    """Smallest delta for which a mu-GDP release is (epsilon, delta)-DP."""
    # Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2), through log Phi so that it
    # keeps its relative precision when delta is far below the rounding of 1
    if mu < 0 or epsilon < 0:
        raise PrivacyError("negative-loss", mu=mu, epsilon=epsilon)
    if mu == 0:
        return 0.0
    upper = float(log_ndtr(-epsilon / mu + mu / 2))
    lower = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    # exp(upper) - exp(lower) without cancellation; upper >= lower always holds in exact arithmetic
    return max(0.0, -math.exp(upper) * math.expm1(min(0.0, lower - upper)))


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Smallest epsilon for which a mu-GDP release is (epsilon, delta)-DP (rounded up)."""
    check_delta(delta)
    if mu == 0 or delta_of_mu(mu, 0.0) <= delta:
        return 0.0
    if delta == 0:
        return math.inf
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1.0
    root = float(brentq(lambda e: delta_of_mu(mu, e) - delta, 0.0, high, xtol=1e-13, rtol=1e-14))
    return _step_until(root, lambda e: delta_of_mu(mu, e) <= delta, upwards=True)


def mu_of_epsilon(epsilon: float, delta: float) -> float:
    """Largest mu whose Gaussian release is (epsilon, delta)-DP (rounded down)."""
    check_epsilon(epsilon)
    check_delta(delta)
    if delta == 0:
        raise PrivacyError("pure-needs-pure-mechanism")
    if delta_of_mu(_LARGEST_MU, epsilon) <= delta:
        return _LARGEST_MU
    low = 1e-12
    while delta_of_mu(low, epsilon) > delta:
        low /= 1e6
        if low < 1e-100:
            raise PrivacyError("too-small-for-noise", epsilon=epsilon, delta=delta)
    root = float(
        brentq(
            lambda m: delta_of_mu(m, epsilon) - delta,
            low,
            _LARGEST_MU,
            xtol=1e-3 * low,
            rtol=1e-14,
            maxiter=1000,
        )
    )
    return _step_until(root, lambda m: delta_of_mu(m, epsilon) <= delta, upwards=False)


def classic_sigma(sensitivity: float, epsilon: float, delta: float, *, reproduction: bool) -> float:
    """The papers' ``Delta sqrt(2 ln(1.25/delta)) / epsilon``, proved only for ``epsilon <= 1``."""
    check_epsilon(epsilon)
    check_delta(delta)
    if delta == 0 or (epsilon > 1 and not reproduction):
        raise PrivacyError("classic-calibration", epsilon=epsilon, delta=delta)
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def check_epsilon(epsilon: float) -> None:
    if not (_is_real(epsilon) and 0 < epsilon <= MOST_EPSILON):
        raise PrivacyError("bad-epsilon", epsilon=epsilon, most=MOST_EPSILON)


def check_delta(delta: float) -> None:
    if not (_is_real(delta) and 0 <= delta < 1):
        raise PrivacyError("bad-delta", delta=delta)


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _step_until(value: float, holds: Callable[[float], bool], *, upwards: bool) -> float:
    """Move a root by growing multiples of its rounding until it is on the private side."""
    step = math.ulp(value)
    while not holds(value):
        value = value + step if upwards else value - step
        step *= 2
    return value


@dataclass
class Spending:
    """What a run has released so far; as a context it is reported by any exception that passes."""

    delta: float
    adjacency: Adjacency
    unit: str | None = None  # Whose rows are protected together
    reasons_not_certified: Sequence[str] = ()
    # Each is added before its noise is drawn
    records: list[ReleaseRecord] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.notify(error)

    def notify(self, error: BaseException) -> None:
        """Attach ``released``, ``spent`` and a note in words to an exception without them."""
        if not self.records or getattr(error, "released", None):
            return
        known: Any = error  # every exception takes attributes
        known.released = tuple(self.records)
        names = ", ".join(record.name for record in self.records)
        try:
            spent = compose(
                self.records,
                delta=self.delta,
                adjacency=self.adjacency,
                reasons_not_certified=self.reasons_not_certified,
            )
            known.spent = replace(spent, unit=self.unit)
        except PrivacyError as problem:  # what passes is more important
            error.add_note(f"Already released when it stopped: {names}. Its cost: {problem}")
            return
        error.add_note(f"Already released when it stopped: {names}. {known.spent}")
