"""CAPE exactly as published (paper 001, Algorithm 3 and section 3.1): for reproduction only.

Its noise is argued from the marginal variance of one message, but the aggregator sees all messages
together: with S sites the real mu of its view is ``sqrt(2S/(S+1))`` times the claimed one, and more
with colluding sites (:func:`eigenveil.privacy.views.published_cape_mu`). Never certified.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigenveil.errors import PrivacyError

FloatArray = NDArray[np.float64]


class Variances(NamedTuple):
    """Of the zero-sum noise e, the aggregator's noise f and the site's own noise g."""

    e: float
    f: float
    g: float


class Messages(NamedTuple):
    """What the sites sent, and the part of it that the aggregator drew; both (S, ...)."""

    sent: FloatArray
    known: FloatArray


def published_variances(sites: int, tau: float) -> Variances:
    """Of sites with equally many rows (equation 2), ``tau`` being one site's claimed deviation."""
    return Variances(e=(1 - 1 / sites) * tau**2, f=(1 - 1 / sites) * tau**2, g=tau**2 / sites)


def unequal_variances(
    weights: Sequence[float], requirements: Sequence[float], pooled: float
) -> list[Variances]:
    """The published solution for sites with different requirements (section 3.1), one a site.

    The last site is treated apart, so the answer depends on the order of the sites; and it is not
    the only solution: for equal sites it fails for every S > 3, where
    :func:`published_variances` satisfies all that is asked.

    Parameters
    ----------
    weights : sequence of S floats
        Of the sites in the aggregator's mean; they add up to 1.
    requirements : sequence of S floats
        Deviations tau_s that e + g and f + g must have at each site.
    pooled : float
        Deviation tau_c that the aggregate is to have.

    Raises
    ------
    PrivacyError
        When a variance is negative: the message names the site, the noise and the variance.
    """
    squares = np.asarray(weights, dtype=float) ** 2
    needed = np.asarray(requirements, dtype=float) ** 2
    last = len(squares) - 1
    if last < 1 or needed.size != squares.size or not squares.all():
        raise PrivacyError(
            f"CAPE cannot combine {squares.size} weights and {needed.size} requirements.",
            hint="Give a positive weight and a requirement for each of two sites or more.",
        )
    balance = pooled**2 - float(squares[:last] @ needed[:last])
    at_last = needed[last] / 2 - balance / (2 * squares[last])
    zero_sum = squares[last] * at_last / (squares * last)
    zero_sum[last] = at_last
    own = needed - zero_sum
    for noise, values in (("e", zero_sum), ("g", own)):
        _check_feasible(noise, values, needed)
    return [
        Variances(e=max(0.0, float(e)), f=max(0.0, float(e)), g=max(0.0, float(g)))
        for e, g in zip(zero_sum, own, strict=True)
    ]


def _check_feasible(noise: str, values: FloatArray, needed: FloatArray) -> None:
    below = np.flatnonzero(values < -1e-12 * needed)  # nothing but rounding is forgiven
    if below.size:
        site = int(below[0])
        raise PrivacyError(
            f"Site {site + 1} of {values.size} would need noise {noise} of variance "
            f"{values[site]:.6g}: the published solution does not exist here.",
            hint="The problem itself may have another: for equal sites use published_variances. "
            "Or weight the sites' statistics and give all of them one noise level.",
            code="cape-infeasible",
        )


def gain(rows: Sequence[int]) -> float:
    """Variance of independent noise over that of CAPE, ``N^2/S^2 sum(1/N_s^2)`` (proposition 1).

    At least S, the number of sites, and S when all ``rows`` per site are equal.
    """
    total = Fraction(sum(rows), len(rows)) ** 2 * sum(Fraction(1, int(n) ** 2) for n in rows)
    return float(total)


def cape_messages(statistics: ArrayLike, tau: float, rng: np.random.Generator) -> Messages:
    """The messages ``a_s + e_s + f_s + g_s`` of Algorithm 3, really made.

    Parameters
    ----------
    statistics : array of shape (S, ...)
        One statistic a site; every entry gets noise of its own (give a symmetric matrix as the
        entries of its triangle).
    tau : float
        The deviation each site claims for its message.
    """
    exact = np.asarray(statistics, dtype=np.float64)
    variances = published_variances(exact.shape[0], tau)
    drawn = rng.normal(scale=tau, size=exact.shape)
    zero_sum = drawn - drawn.mean(axis=0)
    known = rng.normal(scale=np.sqrt(variances.f), size=exact.shape)
    own = rng.normal(scale=np.sqrt(variances.g), size=exact.shape)
    return Messages(sent=exact + zero_sum + known + own, known=known)


def cape_sum(
    statistics: ArrayLike, tau: float, rng: np.random.Generator
) -> tuple[FloatArray, Messages]:
    """The sum that the aggregator computes, and the messages it computes it from.

    For reproduction, never certified: the noise of the sum has variance ``tau^2`` (``tau^2 / S^2``
    that of the published mean, the pooled one), but against the aggregator, who knows every f_s,
    the messages give ``sqrt(2S/(S+1))`` times the claimed mu. Parameters as in
    :func:`cape_messages`; the sum has the shape of one statistic.
    """
    messages = cape_messages(statistics, tau, rng)
    return np.asarray((messages.sent - messages.known).sum(axis=0)), messages
