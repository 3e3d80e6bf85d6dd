"""Analyze Gauss and SN as published (paper 003; AG also in 000, 001): reproduction, not certified.

Both release the second moment with symmetric noise, and its leading directions. What is wrong: the
classic calibration of AG for ``sensitivity 1/n`` compares data sets with and without a row; for a
row replaced by another, which is how the papers define neighbours, the second moment moves by up to
sqrt(2)/n. The Wishart noise of SN is positive semi-definite, so that the support of what is
released moves with the data: it has no pure epsilon at all (docs/proofs; sound repair:
``PrivatePCA(mechanism="wishart")``).
"""

from __future__ import annotations

import math
from typing import Required, TypedDict

import numpy as np

from eigenveil.privacy.accountant import check_epsilon, classic_sigma
from eigenveil.privacy.guarantee import Guarantee
from eigenveil_papers.published.moments import (
    RankBy,
    Rows,
    check_components,
    leading,
    second_moment,
    with_gaussian,
)
from eigenveil_papers.published.result import (
    CLASSIC,
    SPECTRAL_NORM,
    WISHART,
    FloatArray,
    PublishedPCA,
    Seed,
    claimed,
)


class GaussTarget(TypedDict, total=False):
    """What :func:`analyze_gauss` takes besides rows, their bound and the number of components."""

    epsilon: Required[float]
    delta: Required[float]
    rank_by: RankBy
    random_state: Seed


def analyze_gauss(
    X: Rows,
    *,
    n_components: int,
    epsilon: float,
    delta: float,
    row_bound: float | None = None,
    rank_by: RankBy = "magnitude",
    random_state: Seed = None,
) -> PublishedPCA:
    """Analyze Gauss: ``X'X / n`` with N(0, tau^2) on every entry of its triangle.

    ``tau = sqrt(2 ln(1.25/delta)) / (n epsilon)`` (paper 003, section 3; paper 000, algorithm 1,
    steps 2 to 5). ``released`` is a mean over rows, ``deviation`` is tau.

    Parameters
    ----------
    X : array of shape (n, D), or SecondMoment
        Not centred: centre the rows by something public if they need it.
    n_components : int
        K, at most D.
    epsilon, delta : float
        The guarantee claimed, ``epsilon > 0`` and ``0 < delta < 1``.
    row_bound : float or None
        A public bound on the rows' norms, by which they are divided. Without one it is the largest
        norm found, which is not private.
    rank_by : {"magnitude", "value"}
        Directions by singular value, as published, or by eigenvalue.
    random_state : int, Generator or None
    """
    moment = second_moment(X, row_bound=row_bound)
    check_components(n_components, moment.features)
    tau = gauss_deviation(moment.rows, epsilon=epsilon, delta=delta)
    released = with_gaussian(moment.mean, tau, np.random.default_rng(random_state))
    strengths, components = leading(released, n_components, rank_by=rank_by)
    return PublishedPCA(
        components=components,
        strengths=strengths,
        released=released,
        deviation=tau,
        row_bound=moment.row_bound,
        claim=gauss_claim(epsilon, delta, public_bound=moment.public_bound),
    )


def gauss_deviation(rows: int, *, epsilon: float, delta: float) -> float:
    """``sqrt(2 ln(1.25/delta)) / (n epsilon)``, at every epsilon though proved up to 1 only."""
    return classic_sigma(1 / rows, epsilon, delta, reproduction=True)


def gauss_claim(
    epsilon: float, delta: float, *reasons: str, public_bound: bool, view: str = "outsider"
) -> Guarantee:
    """The claim of everything that is calibrated like Analyze Gauss."""
    return claimed(
        epsilon,
        delta,
        SPECTRAL_NORM,
        *((CLASSIC,) if epsilon > 1 else ()),
        *reasons,
        calculation="the classic calibration with sensitivity 1/n",
        public_bound=public_bound,
        view=view,
    )


def wishart_sn(
    X: Rows,
    *,
    n_components: int,
    epsilon: float,
    row_bound: float | None = None,
    random_state: Seed = None,
) -> PublishedPCA:
    """SN (paper 003, algorithm 1): ``X'X + Z Z'``, Z of D + 1 columns N(0, I / (2 epsilon)).

    ``released`` is a sum over rows, ``deviation`` is that of an entry of Z, 1/sqrt(2 epsilon).
    The paper claims pure epsilon (theorem 1), which is false: see the claim's caveats. Parameters
    as in :func:`analyze_gauss`.
    """
    moment = second_moment(X, row_bound=row_bound)
    check_components(n_components, moment.features)
    check_epsilon(epsilon)
    scale = 1 / math.sqrt(2 * epsilon)
    released = moment.total + wishart_noise(
        moment.features, epsilon, np.random.default_rng(random_state)
    )
    strengths, components = leading(released, n_components, rank_by="value")  # none is negative
    return PublishedPCA(
        components=components,
        strengths=strengths,
        released=released,
        deviation=scale,
        row_bound=moment.row_bound,
        claim=claimed(
            epsilon,
            0.0,
            WISHART,
            calculation="the ratio of Wishart densities where both are positive",
            public_bound=moment.public_bound,
        ),
    )


def wishart_noise(features: int, epsilon: float, rng: np.random.Generator) -> FloatArray:
    """One Wishart matrix (D, D) of D + 1 degrees of freedom and scale ``I / (2 epsilon)``."""
    columns = rng.normal(scale=1 / math.sqrt(2 * epsilon), size=(features, features + 1))
    return np.asarray(columns @ columns.T)
