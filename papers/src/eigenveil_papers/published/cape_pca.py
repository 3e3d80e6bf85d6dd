"""CAPE exactly as published (paper 001, Algorithm 3 and section 3.1): for reproduction only.

Its noise is argued from the marginal variance of one message, but the aggregator sees all messages
together: with S sites the real mu of its view is ``sqrt(2S/(S+1))`` times the claimed one, and more
with colluding sites (:func:`eigenveil.privacy.views.published_cape_mu`). Never certified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigenveil.errors import DataError, PrivacyError
from eigenveil.privacy.gaussian import classic_sigma
from eigenveil.privacy.guarantee import Guarantee
from eigenveil.privacy.views import published_cape_mu
from eigenveil_papers.published.moments import (
    RankBy,
    Sites,
    check_components,
    leading,
    mirrored,
    second_moments,
    unique_entries,
)
from eigenveil_papers.published.result import CLASSIC, PublishedPCA, Seed, all_messages, claimed
from eigenveil_papers.published.sn import gauss_claim, gauss_deviation

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


# -- CAPE and capePCA as published (paper 001, algorithms 3 and 1): reproduction, never certified.
#
# Every message is really made. The authors' public code (hafizimtiaz/capePCA) makes none: it adds
# the pooled noise once and calls that CAPE. What is wrong is the argument: each message alone
# hides its site's row as claimed, but the aggregator sees all of them, and they add up to much
# less noise. Its mu is ``sqrt(2S/(S+1))`` times the claimed one, more with colluding sites
# (:func:`eigenveil.privacy.views.published_cape_mu`).


@dataclass(frozen=True, kw_only=True)
class PublishedMean:
    """The mean that CAPE's aggregator computes, and what it computes it from.

    Attributes
    ----------
    mean : array
        Of the sites' statistics, with the noise of one curator; the shape of one statistic.
    messages : Messages
        ``sent`` and ``known``, both (S, ...): what the sites sent, and the part of it that the
        aggregator drew.
    deviation : float
        tau, of the noise of one message less what the aggregator drew; ``tau / S`` is the mean's.
    claim : Guarantee
        As the paper states it: never certified, and its caveats say why.
    as_published : bool
        Always True.
    """

    mean: FloatArray
    messages: Messages
    deviation: float
    claim: Guarantee
    as_published: bool = True


def cape(
    statistics: ArrayLike | Sequence[ArrayLike],
    *,
    sensitivity: float,
    epsilon: float,
    delta: float,
    random_state: Seed = None,
) -> PublishedMean:
    """CAPE (algorithm 3): the mean of the sites' statistics with the noise of one curator.

    Site s sends ``a_s + e_s + f_s + g_s``; the e_s add up to 0, the aggregator takes its own f_s
    off again. Variances by equation 2 with ``tau = sensitivity sqrt(2 ln(1.25/delta)) / epsilon``.

    Parameters
    ----------
    statistics : array of shape (S, ...)
        One statistic a site, of equally many rows each; every entry gets noise of its own (give a
        symmetric matrix as the entries of its triangle).
    sensitivity : float
        What one changed row moves one site's statistic by, above 0 (the paper: 1/N_s).
    epsilon, delta : float
        The guarantee claimed, ``epsilon > 0`` and ``0 < delta < 1``.
    random_state : int, Generator or None

    Raises
    ------
    DataError
        When there is no site, statistics differ in shape or are not finite, or the sensitivity is
        not above 0.
    PrivacyError
        When epsilon or delta is out of range.
    """
    exact = _statistics(statistics)
    if not (sensitivity > 0 and np.isfinite(sensitivity)):
        raise DataError(
            f"sensitivity = {sensitivity!r} is none.",
            hint="Give what one changed row moves a site's statistic by, above 0.",
        )
    tau = classic_sigma(sensitivity, epsilon, delta, reproduction=True)
    made = cape_messages(exact, tau, np.random.default_rng(random_state))
    return PublishedMean(
        mean=np.asarray((made.sent - made.known).mean(axis=0)),
        messages=made,
        deviation=tau,
        claim=claimed(
            epsilon,
            delta,
            *((CLASSIC,) if epsilon > 1 else ()),
            _short(len(exact)),
            calculation="the classic calibration of one message's marginal noise",
            view="aggregator",
        ),
    )


def capepca(
    sites: Sites,
    *,
    n_components: int,
    epsilon: float,
    delta: float,
    row_bound: float | None = None,
    rank_by: RankBy = "magnitude",
    random_state: Seed = None,
) -> PublishedPCA:
    """The protocol capePCA (algorithm 1): CAPE on second moments, and the mean's directions.

    ``messages`` and ``known`` hold a (D, D) matrix for each site; ``released`` is the mean over
    rows of all sites, and ``deviation`` that of each entry of its triangle, ``tau / S``, which is
    Analyze Gauss's for the pooled rows. A message's noise has deviation tau, what the aggregator
    drew not counted.

    Parameters
    ----------
    sites : sequence of arrays of shape (n_s, D), or of SecondMoment
        One for each site, all with equally many rows.
    n_components : int
        K, at most D.
    epsilon, delta : float
        The guarantee claimed, ``epsilon > 0`` and ``0 < delta < 1``.
    row_bound : float or None
        A public bound on the rows' norms, by which they are divided. Without one it is the largest
        norm found at any site, which is not private.
    rank_by : {"magnitude", "value"}
        Directions by singular value, as published, or by eigenvalue.
    random_state : int, Generator or None

    Raises
    ------
    DataError
        When there is no site, sites have other features or other numbers of rows, rows are no
        finite matrix or break the bound, or there are too few features.
    PrivacyError
        When epsilon or delta is out of range.
    """
    moments = second_moments(sites, row_bound=row_bound)
    size = moments[0].features
    check_components(n_components, size)
    if len({each.rows for each in moments}) > 1:
        raise DataError(
            f"The sites have {', '.join(str(each.rows) for each in moments)} rows.",
            hint="capePCA as published is for equally many rows at each site.",
            code="sites-differ",
        )
    tau = gauss_deviation(moments[0].rows, epsilon=epsilon, delta=delta)
    made = symmetric_messages(
        [each.mean for each in moments], tau, np.random.default_rng(random_state)
    )
    released = (made.sent - made.known).mean(axis=0)
    strengths, components = leading(released, n_components, rank_by=rank_by)
    return PublishedPCA(
        components=components,
        strengths=strengths,
        released=released,
        deviation=tau / len(moments),
        row_bound=moments[0].row_bound,
        claim=gauss_claim(
            epsilon,
            delta,
            _short(len(moments)),
            public_bound=all(each.public_bound for each in moments),
            view="aggregator",
        ),
        messages=tuple(made.sent),
        known=tuple(made.known),
    )


def symmetric_messages(
    moments: Sequence[FloatArray], tau: float, rng: np.random.Generator
) -> Messages:
    """CAPE's messages of symmetric arrays: the noise, too, is symmetric.

    Parameters
    ----------
    moments : sequence of S arrays of shape (D, ..., D)
    tau : float
        The deviation each site claims for every unique entry of its message.
    rng : Generator
    """
    size, modes = moments[0].shape[0], moments[0].ndim
    made = cape_messages(np.zeros((len(moments), unique_entries(size, modes))), tau, rng)
    known = mirrored(made.known, size, modes)
    return Messages(np.stack(moments) + mirrored(made.sent, size, modes), known)


def _short(sites: int) -> str:
    return all_messages(published_cape_mu(sites, claimed_mu=1.0))


def _statistics(statistics: ArrayLike | Sequence[ArrayLike]) -> FloatArray:
    try:
        exact = np.asarray(statistics, dtype=np.float64)
    except (TypeError, ValueError):
        exact = np.zeros(0)
    if exact.ndim < 1 or exact.size == 0 or not np.all(np.isfinite(exact)):
        raise DataError(
            "The sites' statistics are not finite numbers of one shape.",
            hint="Give one array for each of one site or more, all of the same shape.",
        )
    return exact
