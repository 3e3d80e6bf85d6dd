"""djICA, DP-djICA and capeDJICA: independent components of sites by gradient steps of Infomax.

For reproduction only, never certified. Read: djICA's algorithm 1 and its constants (Baker et al.
2018, NeuroImage 186, PMC7246038; the authors' MRN-Code/djica_paper_code_release); of capeDJICA
(Imtiaz et al., arXiv 1910.12913 and IEEE TSP 69, 2021) only the abstracts: correlated noise in
place of each site's own, in the decentralised PCA and in the gradients. Chosen here, where the text
could not be read:

- one step is the mean over all rows of a site (algorithm 1), so the rate is that of means; the
  authors' code sums over small blocks, which privacy would pay for by the block;
- what a row adds to a message, ``(1 - 2y)(u, 1)'`` of R x (R + 1) numbers, is shortened as a whole
  to the norm ``clip``; the identity and W are public and are put to it by the aggregator;
- ``pca_share`` of mu^2 goes to the PCA, the rest equally to ``n_iter`` steps;
- rows are seen through capePCA's directions, whitened by its released strengths;
- the claim composes by the moments accountant: ``epsilon = mu^2/2 + mu sqrt(2 ln(1/delta))``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.errors import DataError
from eigenveil.privacy.accountant import check_delta, check_epsilon, mu_of_epsilon
from eigenveil.privacy.guarantee import Guarantee
from eigenveil.privacy.views import published_cape_mu
from eigenveil_papers.published.cape_pca import cape_messages, equal_plan, weighted_mean
from eigenveil_papers.published.moments import (
    PublishedMoment,
    check_alike,
    check_components,
    finite_rows,
    leading,
    mirrored,
    pooled_moment,
    second_moments,
)
from eigenveil_papers.published.result import SPECTRAL_NORM, FloatArray, Seed, all_messages, claimed
from eigenveil_papers.published.trackers import checked_count

_ANNEAL, _DEGREES = 0.9, 60.0  # the rate's factor where two steps are further apart than this
_STOP = 1e-6  # a step's squared norm that ends the iterations
_SPHERE = 2.0  # deviation of whitened rows


@dataclass(frozen=True, kw_only=True)
class GradientPrivacy:
    """What DP-djICA and capeDJICA promise for one row replaced by another, and how.

    ``noise``: "conventional", each site all of its own, or "cape", of which only the pooled part is
    left in a sum. ``clip`` is the norm to which a row's part of a step is shortened. With
    ``true_guarantee`` the noise is that with which (epsilon, delta) holds against the aggregator
    but for the largest norm and floating point: exact composition, the PCA's sensitivity
    sqrt(2)/N_s, and all of CAPE's messages seen together; without, it is as published.
    """

    noise: Literal["conventional", "cape"] = "cape"
    epsilon: float
    delta: float
    true_guarantee: bool = False
    clip: float = 6.0
    pca_share: float = 0.35

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        _check("noise", self.noise, "conventional or cape", self.noise in ("conventional", "cape"))
        _check("clip", self.clip, "above 0 and finite", 0.0 < self.clip < math.inf)
        _check("pca_share", self.pca_share, "between 0 and 1", 0.0 < self.pca_share < 1.0)

    def deviations(self, sites: int, rows: int, n_iter: int) -> tuple[float, float]:
        """Of the noise of one site's messages: the PCA's entries, and a step's."""
        mu, moved = moments_mu(self.epsilon, self.delta), 1.0
        if self.true_guarantee:
            mu, moved = mu_of_epsilon(self.epsilon, self.delta), math.sqrt(2.0)
            mu /= published_cape_mu(sites, claimed_mu=1.0) if self.noise == "cape" else 1.0
        step = mu * rows * math.sqrt((1.0 - self.pca_share) / n_iter)
        return moved / (mu * rows * math.sqrt(self.pca_share)), 2.0 * self.clip / step

    def claim(self, sites: int) -> Guarantee:
        """Never certified."""
        caveats = [SPECTRAL_NORM]
        if self.noise == "cape":
            caveats.insert(0, all_messages(published_cape_mu(sites, claimed_mu=1.0)))
        return claimed(
            self.epsilon,
            self.delta,
            *(() if self.true_guarantee else caveats),
            calculation="exact composition"
            if self.true_guarantee
            else "the moments of single messages",
            public_bound=False,
            view="aggregator",
        )

    def mean(
        self, statistics: FloatArray, deviation: float, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """The aggregator's mean of the sites' statistics, and what they sent."""
        if self.noise == "cape":
            plan = equal_plan(len(statistics), deviation)
            made = cape_messages(statistics, plan, rng)
            return weighted_mean(made, plan.weights), made.sent
        sent = statistics + rng.normal(scale=deviation, size=statistics.shape)
        return sent.mean(axis=0), sent


def moments_mu(epsilon: float, delta: float) -> float:
    """Mu of Gaussian releases whose moments give epsilon: ``mu^2/2 + mu sqrt(2 ln(1/delta))``."""
    half = math.sqrt(2.0 * math.log(1.0 / delta))
    return math.sqrt(half**2 + 2.0 * epsilon) - half


@dataclass(frozen=True, kw_only=True)
class PublishedICA:
    """Independent components as djICA finds them, and the guarantee that is claimed for them."""

    unmixing: FloatArray  # (R, D): sources are these times rows, up to order, sign and scale
    steps: int  # Gradient steps that were taken
    claim: Guarantee | None  # Never certified; None without noise
    deviations: tuple[float, float]  # Of a site's message: the PCA's entries, and a step's
    sent: FloatArray  # The last step's messages (S, R, R + 1)
    as_published: bool = True  # False where the noise is that of a true guarantee


def joint_ica(
    sites: Sequence[ArrayLike],
    *,
    n_components: int,
    privacy: GradientPrivacy | None = None,
    n_iter: int = 80,
    rate: float = 1.0,
    random_state: Seed = None,
) -> PublishedICA:
    """djICA, or with ``privacy`` DP-djICA or capeDJICA.

    Parameters
    ----------
    sites : sequence of S arrays of shape (n_s, D)
        Rows, centred; with privacy all sites have equally many. Those of the PCA are divided by the
        largest norm found at any site, which is not private.
    n_components : int
        R, at most D.
    privacy : GradientPrivacy or None
    n_iter : int
        Most gradient steps; as many are paid for.
    rate : float
        Of the first step, on mean gradients; 0.9 times it at turns of more than 60 degrees.
    random_state : int, Generator or None
    """
    rows = [finite_rows(site) for site in sites]
    moments = second_moments(rows)
    check_components(n_components, moments[0].features)
    checked_count("n_iter", n_iter)
    _check("rate", rate, "above 0 and finite", 0.0 < rate < math.inf)
    deviations, clip = (0.0, 0.0), math.inf
    if privacy is not None:
        check_alike([len(each) for each in rows], "rows")
        deviations = privacy.deviations(len(rows), len(rows[0]), n_iter)
        clip = privacy.clip
    rng = np.random.default_rng(random_state)
    whitener = _whitener(moments, n_components, privacy, deviations[0], rng)
    steps = GradientSteps(privacy, deviations[1], clip, n_iter, rng)
    W, taken, sent = steps.run([each @ whitener.T for each in rows], rate)
    return PublishedICA(
        unmixing=np.asarray(W @ whitener),
        steps=taken,
        claim=None if privacy is None else privacy.claim(len(rows)),
        deviations=deviations,
        sent=sent,
        as_published=privacy is None or not privacy.true_guarantee,
    )


def _whitener(
    moments: Sequence[PublishedMoment],
    count: int,
    privacy: GradientPrivacy | None,
    deviation: float,
    rng: np.random.Generator,
) -> FloatArray:
    """The linear map (R, D) after which rows have deviation 2 along each direction released."""
    mean, features = pooled_moment(moments).mean, moments[0].features
    if privacy is not None:
        entries = np.stack([each.mean[np.tril_indices(features)] for each in moments])
        mean = mirrored(privacy.mean(entries, deviation, rng)[0], features, 2)
    strengths, directions = leading(mean, count)
    floor = max(float(strengths[0]) * 1e-12, np.finfo(float).tiny)
    scales = _SPHERE / np.sqrt(np.maximum(strengths, floor)) / moments[0].row_bound
    return np.asarray(directions * scales[:, None])


class GradientSteps(NamedTuple):
    """Algorithm 1: the sites' gradients, and the aggregator's steps."""

    privacy: GradientPrivacy | None
    deviation: float  # Of a message's entries
    clip: float
    most: int  # Steps
    rng: np.random.Generator

    def run(self, seen: Sequence[FloatArray], rate: float) -> tuple[FloatArray, int, FloatArray]:
        """W of the whitened rows of the sites, the steps taken, and what the last one sent."""
        count = seen[0].shape[1]
        shares = np.array([len(each) for each in seen]) / np.mean([len(each) for each in seen])
        W, b, before, sent = np.eye(count), np.zeros(count), np.zeros(0), np.zeros(0)
        for step in range(self.most):
            messages = np.stack([gradient(each @ W.T + b, self.clip) for each in seen])
            messages *= shares[:, None, None]
            together, sent = messages.mean(axis=0), messages
            if self.privacy is not None:
                together, sent = self.privacy.mean(messages, self.deviation, self.rng)
            change = rate * (np.eye(count) + together[:, :-1]) @ W
            W, b = W + change, b + rate * together[:, -1]
            if float(np.sum(change**2)) < _STOP:
                return W, step + 1, sent
            if not before.size:
                before = change
            elif _angle(change, before) > _DEGREES:
                rate, before = rate * _ANNEAL, change
        return W, self.most, sent


def gradient(u: FloatArray, clip: float) -> FloatArray:
    """What a site sends in a step: the mean of its rows' shortened ``(1 - 2y)(u, 1)'``, (R, R + 1).

    With the logistic y, whose ``1 - 2y`` is ``-tanh(u/2)``. One row replaced moves it by at most
    ``2 clip / n``.
    """
    slopes = -np.tanh(u / 2.0)
    wide = np.column_stack([u, np.ones(len(u))])
    norms = np.linalg.norm(slopes, axis=1) * np.linalg.norm(wide, axis=1)
    kept = np.minimum(1.0, clip / np.maximum(norms, np.finfo(float).tiny))
    return np.asarray((slopes * kept[:, None]).T @ wide / len(u))


def _check(name: str, value: object, wanted: str, holds: bool) -> None:
    if not holds:
        raise DataError("out-of-range", name=name, value=repr(value), wanted=wanted)


def _angle(one: FloatArray, other: FloatArray) -> float:
    """Degrees between two steps."""
    length = float(np.linalg.norm(one) * np.linalg.norm(other))
    return math.degrees(math.acos(np.clip(float(np.sum(one * other)) / length, -1.0, 1.0)))
