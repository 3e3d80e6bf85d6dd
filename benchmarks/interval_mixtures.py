"""What intervals of mixtures are to hold, of some tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax

from eigenveil.models.intervals.replayed import ReplayedRounds, replayed
from eigenveil.models.mixture.plan import SUMS
from eigenveil.moments.em import EMSums, Mixture

Array = NDArray[np.float64]


def _clusters(rows: int, features: int, apart: float, *, uneven: bool = False) -> Array:
    """Four clusters; uneven ones differ in numbers, widths and directions."""
    rng = np.random.default_rng(rows + features)
    means = np.linalg.qr(rng.standard_normal((features, features)))[0][:4] * apart / np.sqrt(2)
    shares = np.array([0.4, 0.3, 0.2, 0.1]) if uneven else np.full(4, 0.25)
    own = rng.choice(4, rows, p=shares)
    found = rng.standard_normal((rows, features))
    if uneven:
        turns = rng.standard_normal((4, features, features)) * 0.3 / np.sqrt(features)
        turns = turns + np.diag(np.linspace(0.6, 1.4, features))
        found = np.einsum("ni,nij->nj", found, turns[own])
    return np.asarray(means[own] + found)


MIXTURES: dict[str, Callable[[], Array]] = {
    "clusters": lambda: _clusters(20_000, 10, 6.0),
    "clusters, near": lambda: _clusters(20_000, 6, 3.5),
    "clusters, uneven": lambda: _clusters(20_000, 8, 6.0, uneven=True),
    "clusters, 2000 rows": lambda: _clusters(2000, 5, 7.0),
}


def _shared(mixture: Mixture, rows: Array) -> Array:
    """The part of each row that each component has, (n, K)."""
    apart = rows[:, None, :] - mixture.means
    factors = mixture.factors
    seen = np.einsum("nki,kij->nkj", apart, factors) if factors.ndim == 3 else apart * factors[None]
    return np.asarray(softmax(mixture.logs - 0.5 * np.sum(seen**2, axis=2), axis=1))


def mixture_truths(model: Any, rows: Array) -> Iterator[tuple[str, Array]]:
    """Means, parts and covariances of the rows as the mixture before the last sum shares them."""
    again = replayed(model._result)
    assert isinstance(again, ReplayedRounds), again
    plan = model._result.plan
    sums = again.queries[f"{SUMS} {plan.count_of(SUMS)}"].accumulator
    assert isinstance(sums, EMSums)
    rule, mixture = sums.rule, sums.mixture
    about = rows if rule.center is None else rows - rule.center
    prepared = about / np.maximum(np.linalg.norm(about, axis=1), rule.bound)[:, None]
    shares = _shared(mixture, prepared)
    means, covariances = [], []
    for share, mean, reach in zip(shares.T, mixture.means, mixture.reaches, strict=True):
        apart = prepared - mean
        apart /= np.maximum(1.0, np.linalg.norm(apart, axis=1) / reach)[:, None]
        held = max(float(share.sum()), 1e-300)
        step = share @ apart / held
        means.append(mean + step)
        covariances.append((apart.T * share) @ apart / held - np.outer(step, step))
    parts = shares.sum(axis=0)
    center = np.zeros(rows.shape[1]) if rule.center is None else rule.center
    found = center + rule.bound * np.array(means)
    away = np.linalg.norm(model.means_[:, None] - found, axis=2)
    order = linear_sum_assignment(away)[1]
    yield "weight", parts[order] / parts.sum()
    yield "mean", found[order]
    whole = np.array(covariances)[order] * rule.bound**2
    if plan.covariance_type == "tied":
        yield "covariance", np.tensordot(parts[order] / parts.sum(), whole, axes=1)
    elif plan.covariance_type == "full":
        yield "covariance", whole
    else:
        diagonal = np.diagonal(whole, axis1=1, axis2=2)
        yield "covariance", diagonal if plan.covariance_type == "diag" else diagonal.mean(axis=1)
