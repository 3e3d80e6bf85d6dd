"""Gaussian differential privacy and its exact conversion to (epsilon, delta) and back.

A Gaussian release with L2 sensitivity ``Delta`` and noise standard deviation ``sigma`` is exactly
mu-GDP with ``mu = Delta / sigma``; releases compose as the root of the sum of squares
(docs/proofs/gaussian.md; Balle & Wang 2018; Dong, Roth & Su 2022).
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr

from eigenveil.checks import is_number
from eigenveil.errors import PrivacyError

_LARGEST_MU = 1e6
MOST_EPSILON = 1e15
"""Of a target: beyond it nothing is promised that means anything."""


def delta_of_mu(mu: float, epsilon: float) -> float:
    """Smallest delta for which a mu-GDP release is (epsilon, delta)-DP.

    ``delta = Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2)``, for every
    ``epsilon >= 0``.  Evaluated through ``log Phi`` so that it keeps its relative precision
    when delta is far below the rounding of 1.
    """
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
    """The papers' calibration ``Delta sqrt(2 ln(1.25/delta)) / epsilon``.

    Proved only for ``epsilon <= 1``; above it is refused unless the run is a reproduction.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if delta == 0 or (epsilon > 1 and not reproduction):
        raise PrivacyError("classic-calibration", epsilon=epsilon, delta=delta)
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that is not a positive finite number."""
    if not (is_number(epsilon) and 0 < epsilon <= MOST_EPSILON):
        raise PrivacyError("bad-epsilon", epsilon=epsilon, most=MOST_EPSILON)


def check_delta(delta: float) -> None:
    """Refuse a delta outside [0, 1)."""
    if not (is_number(delta) and 0 <= delta < 1):
        raise PrivacyError("bad-delta", delta=delta)


def _step_until(value: float, holds: object, *, upwards: bool) -> float:
    """Move a root by growing multiples of its rounding until it is on the private side."""
    assert callable(holds)
    step = math.ulp(value)
    while not holds(value):
        value = value + step if upwards else value - step
        step *= 2
    return value
