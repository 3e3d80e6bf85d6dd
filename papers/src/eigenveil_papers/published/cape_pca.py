"""CAPE and capePCA exactly as published (paper 001, Algorithms 3 and 1, section 3.1).

For reproduction only, never certified. Every message is really made; the authors' public code
(hafizimtiaz/capePCA) makes none: it adds the pooled noise once and calls that CAPE. What is wrong
is the argument: each message alone hides its site's row as claimed, but the aggregator sees all of
them. With S equal sites the real mu of its view is ``sqrt(2S/(S+1))`` times the claimed one, and
more with colluding sites (:func:`eigenveil.privacy.views.published_cape_mu`); of sites that differ
:func:`times_claimed` computes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigenveil.errors import DataError, PrivacyError
from eigenveil.privacy.accountant import classic_sigma
from eigenveil.privacy.guarantee import Guarantee
from eigenveil.privacy.views import mu_of_view, published_cape_mu
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
from eigenveil_papers.published.sn import gauss_claim

FloatArray = NDArray[np.float64]


class Variances(NamedTuple):
    """Of the zero-sum noise e, the aggregator's noise f and the site's own noise g."""

    e: float
    f: float
    g: float


class Messages(NamedTuple):
    """All that is sent between the parties in a round of CAPE; each of shape (S, ...).

    ``sent``: by the sites to the aggregator. ``known``: f_s, by the aggregator to the sites.
    ``helper``: e_s, by the helper to the sites.
    """

    sent: FloatArray
    known: FloatArray
    helper: FloatArray


class NoisePlan(NamedTuple):
    """The noise of all sites, and their weights in the aggregator's mean.

    ``weights`` (S,) add up to 1; ``variances`` has one entry a site; ``requirements`` (S,) are the
    deviations that e + g and f + g have; ``pooled`` is that of the mean.
    """

    weights: FloatArray
    variances: tuple[Variances, ...]
    requirements: FloatArray
    pooled: float
    equal: bool


Layout = Literal["entries", "literal", "symmetric"]
"""Of e, f and g: all on each entry; e and f on each, g symmetric; or all symmetric."""


def published_variances(sites: int, tau: float) -> Variances:
    """Of sites with equally many rows (equation 2), ``tau`` being one site's claimed deviation."""
    return Variances(e=(1 - 1 / sites) * tau**2, f=(1 - 1 / sites) * tau**2, g=tau**2 / sites)


def unequal_variances(
    weights: Sequence[float], requirements: Sequence[float], pooled: float
) -> list[Variances]:
    """The published solution for sites with different requirements (section 3.1), one a site.

    The ``weights`` of the sites in the mean add up to 1; e + g and f + g have deviation tau_s at
    each site (``requirements``), the aggregate tau_c (``pooled``). The last site is treated apart,
    so the answer depends on the order of the sites; and it is not the only solution: for equal
    sites it fails for every S > 3, where :func:`published_variances` satisfies all that is asked.
    """
    squares = np.asarray(weights, dtype=float) ** 2
    needed = np.asarray(requirements, dtype=float) ** 2
    last = len(squares) - 1
    if last < 1 or needed.size != squares.size or not squares.all():
        raise PrivacyError("cape-weights", weights=squares.size, size_2=needed.size)
    balance = pooled**2 - float(squares[:last] @ needed[:last])
    at_last = needed[last] / 2 - balance / (2 * squares[last])
    zero_sum = squares[last] * at_last / (squares * last)
    zero_sum[last] = at_last
    own = needed - zero_sum
    masked = math.sqrt(float(np.max(squares * needed)))
    for noise, values in (("e", zero_sum), ("g", own)):
        _check_feasible(noise, values, needed, masked, pooled)
    return [
        Variances(e=max(0.0, float(e)), f=max(0.0, float(e)), g=max(0.0, float(g)))
        for e, g in zip(zero_sum, own, strict=True)
    ]


def _check_feasible(
    noise: str, values: FloatArray, needed: FloatArray, masked: float, pooled: float
) -> None:
    below = np.flatnonzero(values < -1e-12 * needed)  # nothing but rounding is forgiven
    if below.size:
        site = int(below[0])
        raise PrivacyError(
            "cape-infeasible",
            site=site + 1,
            size=values.size,
            noise=noise,
            values=values[site],
            masked=masked,
            pooled=pooled,
        )


def equal_plan(sites: int, tau: float) -> NoisePlan:
    """Of sites with equally many rows and one requirement ``tau`` (equation 2)."""
    return NoisePlan(
        weights=np.full(sites, 1.0 / sites),
        variances=(published_variances(sites, tau),) * sites,
        requirements=np.full(sites, tau),
        pooled=tau / sites,
        equal=True,
    )


def unequal_plan(
    weights: Sequence[float], requirements: Sequence[float], pooled: float
) -> NoisePlan:
    """Of sites that differ, by the published solution; as :func:`unequal_variances`."""
    return NoisePlan(
        weights=np.asarray(weights, dtype=float),
        variances=tuple(unequal_variances(weights, requirements, pooled)),
        requirements=np.asarray(requirements, dtype=float),
        pooled=pooled,
        equal=False,
    )


def times_claimed(plan: NoisePlan) -> FloatArray:
    """For each site, mu of the aggregator's view over the mu that its requirement stands for, (S,).

    The Mahalanobis length of a shift of the site's message, given all sites' messages less what
    the aggregator drew: ``sqrt(2S/(S+1))`` of equal sites, and of others in exact arithmetic.

    It is the largest over all entries of a symmetric statistic in the literal form too. An entry
    that has m places there has m independent masks, whose mean has covariance E/m; with the own
    noise's covariance G its squared loss is ``s'(E/m + G)^-1 s <= m s'(E + G)^-1 s``, and the
    Frobenius norm, in which a row is bounded, counts that entry m times.
    """
    sites = len(plan.weights)
    if plan.equal:
        return np.full(sites, published_cape_mu(sites, claimed_mu=1.0))
    weights = [Fraction(float(weight)) for weight in plan.weights]
    own = [Fraction(each.g) for each in plan.variances]
    masks = np.zeros((sites, sites), dtype=object)
    for site in range(sites - 1):
        variance, share = Fraction(plan.variances[site].e), weights[site] / weights[-1]
        masks[site, site] += variance
        masks[site, -1] -= share * variance
        masks[-1, site] -= share * variance
        masks[-1, -1] += share**2 * variance
    covariance = masks + np.diag(np.array(own, dtype=object))
    found = [mu_of_view(covariance, shift) for shift in np.eye(sites, dtype=int)]
    return np.asarray(np.array(found) * plan.requirements)


def gain(rows: Sequence[int]) -> float:
    """Variance of independent noise over that of CAPE, ``N^2/S^2 sum(1/N_s^2)`` (proposition 1).

    At least S, the number of sites, and S when all ``rows`` per site are equal.
    """
    total = Fraction(sum(rows), len(rows)) ** 2 * sum(Fraction(1, int(n) ** 2) for n in rows)
    return float(total)


def cape_messages(
    statistics: ArrayLike, plan: NoisePlan, rng: np.random.Generator, *, layout: Layout = "entries"
) -> Messages:
    """The messages ``a_s + e_s + f_s + g_s`` of Algorithm 3, and the noise that others drew.

    Of one statistic a site, (S, ...). Layout "entries": every entry gets e, f and g of its own.
    "literal": the text of capePCA and capeAGN, where the helper's and the aggregator's arrays
    (D, ..., D) have independent entries and only the site's own noise is symmetric. "symmetric":
    all three are.
    """
    exact = np.asarray(statistics, dtype=np.float64)
    sites, size, modes = exact.shape[0], exact.shape[-1], exact.ndim - 1
    unique = () if layout == "entries" else (unique_entries(size, modes),)
    theirs = unique if layout == "symmetric" else exact.shape[1:]
    ours = unique or exact.shape[1:]
    deviations = np.sqrt(np.array(plan.variances)).T.reshape(3, sites, *[1] * len(theirs))
    zero_sum = _zero_sum(plan, rng, theirs)
    known = rng.normal(scale=1.0, size=(sites, *theirs)) * deviations[1]
    own = rng.normal(scale=1.0, size=(sites, *ours)) * deviations[2].reshape(-1, *[1] * len(ours))
    if layout == "symmetric":
        zero_sum, known = mirrored(zero_sum, size, modes), mirrored(known, size, modes)
    if layout != "entries":
        own = mirrored(own, size, modes)
    return Messages(sent=exact + zero_sum + known + own, known=known, helper=zero_sum)


def _zero_sum(plan: NoisePlan, rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """The helper's e_s, whose weighted sum is 0."""
    sites = len(plan.weights)
    if plan.equal:
        drawn = rng.normal(scale=plan.requirements[0], size=(sites, *shape))
        return np.asarray(drawn - drawn.mean(axis=0))
    deviations = np.sqrt([each.e for each in plan.variances[:-1]])
    drawn = rng.normal(scale=1.0, size=(sites - 1, *shape))
    drawn *= deviations.reshape(-1, *[1] * len(shape))
    last = -np.tensordot(plan.weights[:-1] / plan.weights[-1], drawn, axes=1)
    return np.concatenate([drawn, last[None]])


def weighted_mean(made: Messages, weights: FloatArray) -> FloatArray:
    """What the aggregator computes: ``sum_s weight_s (sent_s - known_s)``."""
    return np.asarray(np.tensordot(weights, made.sent - made.known, axes=1))


@dataclass(frozen=True, kw_only=True)
class PublishedMean:
    """The mean that CAPE's aggregator computes, and what it computes it from."""

    # Weighted, of the sites' statistics, with the pooled noise; the shape of one statistic
    mean: FloatArray
    messages: Messages  # Everything that was sent, three arrays (S, ...)
    plan: NoisePlan  # The noise of every site, and its weight
    deviation: float  # Of the noise of the mean
    claim: Guarantee  # As the paper states it: never certified, and its caveats say why
    as_published: bool = True  # Always True


Each = float | Sequence[float]
"""One number for all sites, or one for each."""


def cape(
    statistics: ArrayLike | Sequence[ArrayLike],
    *,
    sensitivity: Each,
    epsilon: Each,
    delta: Each,
    weights: Sequence[float] | None = None,
    aggregator_noise: bool = True,
    random_state: Seed = None,
) -> PublishedMean:
    """CAPE (algorithm 3): the mean of the sites' statistics with the noise of one curator.

    Site s sends ``a_s + e_s + f_s + g_s``; the e_s add up to 0, the aggregator takes its own f_s
    off again. Variances by equation 2 with ``tau = sensitivity sqrt(2 ln(1.25/delta)) / epsilon``.
    Where sensitivities, targets or weights differ, it is the protocol of section 3.1: the helper's
    noise has weighted sum 0, the mean is weighted, and one curator's noise is that of the
    strictest site's target.

    Parameters
    ----------
    statistics : array of shape (S, ...)
        One statistic a site; every entry gets noise of its own (give a symmetric matrix as the
        entries of its triangle).
    sensitivity : float, or sequence of S
        What one changed row moves one site's statistic by, above 0 (the paper: 1/N_s).
    epsilon, delta : float, or sequence of S
        The guarantee claimed, ``epsilon > 0`` and ``0 < delta < 1``.
    weights : sequence of S floats, or None
        Of the sites in the aggregator's mean, by their quality say: above 0; they are divided by
        their sum. None: in proportion to the sites' rows, which is to 1/sensitivity.
    aggregator_noise : bool
        Whether the aggregator sends f_s. False (section 3, for ``S > 2`` and two sites or more that
        do not collude): messages are ``a_s + e_s + g_s``, and ``messages.known`` is 0. The
        aggregator sees what it sees anyway; all others see what it does.
    random_state : int, Generator or None
    """
    exact = _statistics(statistics)
    plan = plan_of_sites(len(exact), sensitivity, epsilon, delta, weights)
    if not aggregator_noise:
        plan = plan._replace(variances=tuple(each._replace(f=0.0) for each in plan.variances))
    made = cape_messages(exact, plan, np.random.default_rng(random_state))
    highest = float(np.max(epsilon))
    return PublishedMean(
        mean=weighted_mean(made, plan.weights),
        messages=made,
        plan=plan,
        deviation=plan.pooled,
        claim=claimed(
            highest,
            float(np.max(delta)),
            *((CLASSIC,) if highest > 1 else ()),
            _short(plan),
            calculation="the classic calibration of one message's marginal noise",
            view="aggregator",
        ),
    )


def plan_of_sites(
    sites: int, sensitivity: Each, epsilon: Each, delta: Each, weights: Sequence[float] | None
) -> NoisePlan:
    """Equation 2 where nothing differs, and section 3.1's solution else; as :func:`cape`."""
    moved = _per_site(sensitivity, sites, "sensitivity")
    target = _per_site(epsilon, sites, "epsilon"), _per_site(delta, sites, "delta")
    taus = [
        classic_sigma(float(of), float(e), float(d), reproduction=True)
        for of, e, d in zip(moved, *target, strict=True)
    ]
    wanted = 1.0 / moved if weights is None else _per_site(weights, sites, "weight")
    shares = wanted / wanted.sum()
    if all(len(set(each)) == 1 for each in (taus, shares.tolist())):
        return equal_plan(sites, taus[0])
    one_curator = 1.0 / float(np.sum(1.0 / moved))
    pooled = classic_sigma(
        one_curator, float(target[0].min()), float(target[1].min()), reproduction=True
    )
    return unequal_plan(shares.tolist(), taus, pooled)


def _per_site(given: Each, sites: int, what: str) -> FloatArray:
    values = np.asarray(given, dtype=np.float64)
    if values.ndim > 1 or (values.ndim == 1 and len(values) != sites):
        raise DataError("not-one-a-site", count=values.size, what=what, sites=sites)
    spread = np.broadcast_to(values, sites)
    # an epsilon or a delta is refused with the range that it may have, by the calibration
    if what in ("sensitivity", "weight") and not (np.all(spread > 0) and np.isfinite(spread).all()):
        raise DataError("bad-cape-number", what=what, given=given)
    return np.asarray(spread)


def capepca(
    sites: Sites,
    *,
    n_components: int,
    epsilon: Each,
    delta: Each,
    weights: Sequence[float] | None = None,
    noise: Literal["literal", "symmetric"] = "literal",
    row_bound: float | None = None,
    rank_by: RankBy = "magnitude",
    random_state: Seed = None,
) -> PublishedPCA:
    """The protocol capePCA (algorithm 1): CAPE on second moments, and the mean's directions.

    ``messages``, ``known`` and ``helper`` hold a (D, D) matrix for each site; ``released`` is the
    weighted mean of the sites' second moments, and ``deviation`` that of each entry of its
    triangle: with equal sites ``tau / S``, which is Analyze Gauss's for the pooled rows. A
    message's noise has deviation tau, what the aggregator drew not counted.

    Sites of unequal rows, targets or weights go by section 3.1 (see :func:`cape`).

    Parameters
    ----------
    sites : sequence of S arrays of shape (n_s, D), or of SecondMoment
    epsilon, delta : float, or sequence of S
        The guarantee claimed, ``epsilon > 0`` and ``0 < delta < 1``.
    weights : sequence of S floats, or None
        Of the sites in the mean; None: in proportion to their rows.
    noise : {"literal", "symmetric"}
        Of helper and aggregator: D x D independent entries as in the text, or one for each entry
        of the triangle. The result has the same law, its messages have not: who adds a literal one
        to its transpose has averaged the helper's noise off the diagonal.
    n_components, row_bound, rank_by, random_state
        As in :func:`eigenveil_papers.published.dpdispca`.
    """
    moments = second_moments(sites, row_bound=row_bound)
    check_components(n_components, moments[0].features)
    sensitivity = [1.0 / each.rows for each in moments]
    plan = plan_of_sites(len(moments), sensitivity, epsilon, delta, weights)
    means, rng = np.stack([each.mean for each in moments]), np.random.default_rng(random_state)
    made = cape_messages(means, plan, rng, layout=noise)
    mean = weighted_mean(made, plan.weights)
    released = (mean + mean.T) / 2.0  # the helper's noise cancels but for rounding
    strengths, components = leading(released, n_components, rank_by=rank_by)
    public = all(each.public_bound for each in moments)
    most = float(np.max(epsilon)), float(np.max(delta))
    return PublishedPCA(
        components=components,
        strengths=strengths,
        released=released,
        deviation=plan.pooled,
        row_bound=moments[0].row_bound,
        claim=gauss_claim(*most, _short(plan), public_bound=public, view="aggregator"),
        messages=tuple(made.sent),
        known=tuple(made.known),
        helper=tuple(made.helper),
    )


def _short(plan: NoisePlan) -> str:
    return all_messages(float(times_claimed(plan).max()))


def _statistics(statistics: ArrayLike | Sequence[ArrayLike]) -> FloatArray:
    try:
        exact = np.asarray(statistics, dtype=np.float64)
    except (TypeError, ValueError):
        exact = np.zeros(0)
    if exact.ndim < 1 or exact.size == 0 or not np.all(np.isfinite(exact)):
        raise DataError("statistics-differ")
    return exact
