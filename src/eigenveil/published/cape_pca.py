"""CAPE and capePCA as published (paper 001, algorithms 3 and 1): reproduction, never certified.

Every message is really made. The authors' public code (hafizimtiaz/capePCA) makes none: it adds the
pooled noise once and calls that CAPE. What is wrong is the argument: each message alone hides its
site's row as claimed, but the aggregator sees all of them, and they add up to much less noise. Its
mu is ``sqrt(2S/(S+1))`` times the claimed one, more with colluding sites
(:func:`eigenveil.privacy.views.published_cape_mu`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.errors import DataError
from eigenveil.privacy.gaussian import classic_sigma
from eigenveil.privacy.guarantee import Guarantee
from eigenveil.privacy.views import published_cape_mu
from eigenveil.published.caveats import CLASSIC, all_messages
from eigenveil.published.correlated import FloatArray, Messages, cape_messages
from eigenveil.published.moments import Sites, check_components, second_moments
from eigenveil.published.result import PublishedPCA, Seed, claimed
from eigenveil.published.sn import gauss_claim, gauss_deviation
from eigenveil.published.symmetric import RankBy, leading, mirrored, unique_entries


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
