"""DPdisPCA and what paper 000 compares it with, as published: for reproduction, never certified.

Each site's second moment gets the noise of Analyze Gauss for that site's rows, so each claim is one
site's, against whoever sees its message. What is wrong is what is wrong with Analyze Gauss
(:mod:`eigenveil_papers.published.sn`). All ranks are by singular value, as in the text and in the
authors' public code (hafizimtiaz/capePCA); ``rank_by="value"`` is the better
choice under much noise.

What the text leaves open is as in that code: ``local`` is the last site. One thing is not: their
scripts plot as djICA's energy that of DPdisPCA's subspace, here djICA is djICA.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np

from eigenveil.errors import DataError
from eigenveil.linalg.eigen import left_singular
from eigenveil.privacy.guarantee import Guarantee
from eigenveil_papers.published.moments import (
    PublishedMoment,
    RankBy,
    Sites,
    check_components,
    leading,
    pooled_moment,
    second_moments,
    with_gaussian,
)
from eigenveil_papers.published.result import FloatArray, PublishedPCA, Seed
from eigenveil_papers.published.sn import (
    GaussTarget,
    analyze_gauss,
    gauss_claim,
    gauss_deviation,
)


def dpdispca(
    sites: Sites,
    *,
    n_components: int,
    intermediate: int,
    epsilon: float,
    delta: float,
    row_bound: float | None = None,
    rank_by: RankBy = "magnitude",
    random_state: Seed = None,
) -> PublishedPCA:
    """DPdisPCA (paper 000, algorithm 1): each site sends the root of its noisy second moment.

    ``messages`` holds ``P_s = U_R S_R^(1/2)`` of shape (D, R) for each site, S the singular values
    of ``A_s + E_s``; ``released`` is the aggregator's mean of ``P_s P_s'``; ``deviation`` is the
    largest of a site's noise.

    Parameters
    ----------
    sites : sequence of arrays of shape (n_s, D), or of SecondMoment
        One for each site. The aggregator's mean gives each site the same weight.
    n_components : int
        K, at most D.
    intermediate : int
        R, columns of a message, at most D. K of them at least are of use.
    epsilon, delta : float
        The guarantee claimed at each site, ``epsilon > 0`` and ``0 < delta < 1``.
    row_bound : float or None
        A public bound on the rows' norms, by which they are divided. Without one it is the largest
        norm found at any site, which is not private.
    rank_by : {"magnitude", "value"}
        Directions of a site by singular value, as published, or by eigenvalue, negative ones at 0.
    random_state : int, Generator or None
    """
    moments = _prepared(sites, row_bound, n_components, intermediate)
    taus, noisy = _noisy(moments, epsilon, delta, random_state)
    messages = tuple(_root(each, intermediate, rank_by) for each in noisy)
    released = _proxy(messages)
    strengths, components = leading(released, n_components, rank_by="value")  # none is negative
    return PublishedPCA(
        components=components,
        strengths=strengths,
        released=released,
        deviation=max(taus),
        row_bound=moments[0].row_bound,
        claim=_site_claim(epsilon, delta, moments),
        messages=messages,
    )


def dispca(
    sites: Sites, *, n_components: int, intermediate: int, row_bound: float | None = None
) -> PublishedPCA:
    """The scheme without noise (Feldman et al., as paper 000 has it): claims nothing.

    Parameters as in :func:`dpdispca`.
    """
    moments = _prepared(sites, row_bound, n_components, intermediate)
    messages = tuple(_root(each.mean, intermediate, "magnitude") for each in moments)
    released = _proxy(messages)
    strengths, components = leading(released, n_components, rank_by="value")
    return PublishedPCA(
        components=components,
        strengths=strengths,
        released=released,
        row_bound=moments[0].row_bound,
        claim=None,
        messages=messages,
    )


def djica(
    sites: Sites,
    *,
    n_components: int,
    intermediate: int,
    epsilon: float,
    delta: float,
    row_bound: float | None = None,
    rank_by: RankBy = "magnitude",
    random_state: Seed = None,
) -> PublishedPCA:
    """DjICA's sequential scheme (reference 13 of paper 000): each site hands on to the next.

    A site makes the D x R root of its noisy second moment (a sum over rows here, noise of deviation
    ``tau n_s``), puts it beside what it got from the site before, and hands on the R leading
    directions of both with their strengths. The last one's are the answer. ``messages`` holds what
    each site hands on, ``released`` is ``P P'`` of the last.

    The authors visit the sites in random order and cut R at the rank of a site's rows; here the
    order is that of ``sites``, and R is R. Parameters as in :func:`dpdispca`;
    ``intermediate`` is at least ``n_components``.
    """
    moments = _prepared(sites, row_bound, n_components, intermediate)
    if intermediate < n_components:
        raise DataError("intermediate", intermediate=intermediate, n_components=n_components)
    taus, noisy = _noisy(moments, epsilon, delta, random_state)
    messages: list[FloatArray] = []
    for moment, matrix in zip(moments, noisy, strict=True):
        own = _root(matrix * moment.rows, intermediate, rank_by)
        both = np.hstack([own, *messages[-1:]])
        strengths, directions = left_singular(both, intermediate)
        messages.append(directions.T * strengths)
    return PublishedPCA(
        components=directions[:n_components],
        strengths=strengths[:n_components] ** 2,
        released=messages[-1] @ messages[-1].T,
        deviation=max(tau * moment.rows for tau, moment in zip(taus, moments, strict=True)),
        row_bound=moments[0].row_bound,
        claim=_site_claim(epsilon, delta, moments, view="site"),
        messages=tuple(messages),
    )


def full(
    sites: Sites,
    *,
    n_components: int,
    epsilon: float,
    delta: float,
    row_bound: float | None = None,
    rank_by: RankBy = "magnitude",
    random_state: Seed = None,
) -> PublishedPCA:
    """The baseline "full" (paper 000; "conv" in 001): sites send all of ``A_s + E_s``, (D, D).

    ``released`` is their mean, ``deviation`` the largest of a site's noise. Parameters as in
    :func:`dpdispca`.
    """
    moments = _prepared(sites, row_bound, n_components)
    taus, noisy = _noisy(moments, epsilon, delta, random_state)
    released = np.mean(noisy, axis=0)
    strengths, components = leading(released, n_components, rank_by=rank_by)
    return PublishedPCA(
        components=components,
        strengths=strengths,
        released=released,
        deviation=max(taus),
        row_bound=moments[0].row_bound,
        claim=_site_claim(epsilon, delta, moments),
        messages=tuple(noisy),
    )


def local(
    sites: Sites,
    *,
    n_components: int,
    site: int = -1,
    row_bound: float | None = None,
    **target: Unpack[GaussTarget],
) -> PublishedPCA:
    """The baseline "local": Analyze Gauss at one ``site``, the last one as in the authors' code.

    Parameters as in :func:`dpdispca`.
    """
    moments = _prepared(sites, row_bound, n_components)
    if not -len(moments) <= site < len(moments):
        raise DataError("no-such-site", site=site, moments=len(moments))
    return analyze_gauss(moments[site], n_components=n_components, **target)


def pooled(
    sites: Sites,
    *,
    n_components: int,
    row_bound: float | None = None,
    **target: Unpack[GaussTarget],
) -> PublishedPCA:
    """The baseline "pooled": Analyze Gauss by somebody who has the rows of all sites.

    Parameters as in :func:`dpdispca`.
    """
    moment = pooled_moment(_prepared(sites, row_bound, n_components))
    return analyze_gauss(moment, n_components=n_components, **target)


def _prepared(
    sites: Sites, row_bound: float | None, n_components: int, intermediate: int = 1
) -> list[PublishedMoment]:
    moments = second_moments(sites, row_bound=row_bound)
    check_components(n_components, moments[0].features)
    check_components(intermediate, moments[0].features, name="intermediate components")
    return moments


def _noisy(
    moments: Sequence[PublishedMoment], epsilon: float, delta: float, random_state: Seed
) -> tuple[list[float], list[FloatArray]]:
    """Each site's deviation, and its second moment with noise of it."""
    rng = np.random.default_rng(random_state)
    taus = [gauss_deviation(each.rows, epsilon=epsilon, delta=delta) for each in moments]
    pairs = zip(moments, taus, strict=True)
    return taus, [with_gaussian(moment.mean, tau, rng) for moment, tau in pairs]


def _root(matrix: FloatArray, columns: int, rank_by: RankBy) -> FloatArray:
    """``U_R S_R^(1/2)``, shape (D, R)."""
    values, vectors = leading(matrix, columns, rank_by=rank_by)
    return np.asarray(vectors.T * np.sqrt(np.maximum(values, 0.0)))


def _proxy(messages: Sequence[FloatArray]) -> FloatArray:
    """The aggregator's mean of ``P_s P_s'``, by which every site weighs the same."""
    side_by_side = np.hstack(messages)
    return np.asarray(side_by_side @ side_by_side.T / len(messages))


def _site_claim(
    epsilon: float, delta: float, moments: Sequence[PublishedMoment], *, view: str = "aggregator"
) -> Guarantee:
    return gauss_claim(
        epsilon, delta, public_bound=all(each.public_bound for each in moments), view=view
    )
