"""The private power method as paper 003 runs it (Hardt & Price 2014): never certified.

L rounds of ``Y = A V + G``, V the QR factor of Y, with ``A = X'X`` of rows of norm at most 1. What
is wrong: the Gaussian noise is in proportion to the largest entry of V, which hides one entry of A
changed by 1 but not a row, which changes ``A V`` by up to 1 in Frobenius norm whatever the entries
of V are; and the number of rounds comes from the exact singular values.
"""

from __future__ import annotations

import math

import numpy as np

from eigenveil.errors import DataError
from eigenveil.linalg.eigen import fix_signs, orthonormal_basis
from eigenveil.privacy.accountant import check_delta, check_epsilon
from eigenveil_papers.published.moments import (
    PublishedMoment,
    Rows,
    check_components,
    second_moment,
)
from eigenveil_papers.published.result import ONE_ENTRY, ROUNDS, PublishedPCA, Seed, claimed
from eigenveil_papers.published.trackers import checked_count

_MOST_ROUNDS = 10_000


def private_power(
    X: Rows,
    *,
    n_components: int,
    epsilon: float,
    delta: float = 0.0,
    n_iter: int | None = None,
    row_bound: float | None = None,
    random_state: Seed = None,
) -> PublishedPCA:
    """The private power method: L noisy rounds, Gaussian noise with delta and Laplace without.

    Each entry of G is N(0, s^2), ``s = max|V| sqrt(4 K L ln(1/delta)) / epsilon``; with
    ``delta = 0`` it is Laplace of scale ``2 K L sqrt(D) / epsilon`` (paper 003, section 3, which
    leaves open whether this, too, is times max|V|: without, pure epsilon does hold for a row).
    ``deviation`` is s without its factor max|V|, or the scale of the Laplace noise; there is no
    ``released`` matrix; ``strengths`` are the lengths of the last Y's columns, each without its
    share in those before it.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee claimed, ``epsilon > 0`` and ``0 <= delta < 1``.
    n_iter : int or None
        L; by default :func:`rounds`, of the exact singular values and so not private.
    X, n_components, row_bound, random_state
        As in :func:`eigenveil_papers.published.analyze_gauss`.
    """
    moment = second_moment(X, row_bound=row_bound)
    check_components(n_components, moment.features)
    check_epsilon(epsilon)
    check_delta(delta)
    count = rounds(moment, n_components) if n_iter is None else checked_count("n_iter", n_iter)
    shape, rng = (moment.features, n_components), np.random.default_rng(random_state)
    scale = noise_scale(*shape, rounds=count, epsilon=epsilon, delta=delta)
    basis = orthonormal_basis(rng.standard_normal(shape))
    triangle = np.zeros((n_components, n_components))
    for _ in range(count):
        if delta:
            noise = rng.normal(scale=scale * float(np.abs(basis).max()), size=shape)
        else:
            noise = rng.laplace(scale=scale, size=shape)
        basis, triangle = np.linalg.qr(moment.total @ basis + noise)
    return PublishedPCA(
        components=fix_signs(np.ascontiguousarray(basis.T)),
        strengths=np.abs(np.diag(triangle)),
        deviation=scale,
        row_bound=moment.row_bound,
        claim=claimed(
            epsilon,
            delta,
            *((ONE_ENTRY,) if delta else ()),
            *((ROUNDS,) if n_iter is None else ()),
            calculation="the published noise of each round",
            public_bound=moment.public_bound,
        ),
    )


def noise_scale(
    features: int, components: int, *, rounds: int, epsilon: float, delta: float
) -> float:
    """Deviation of Gaussian noise for ``max|V| = 1``, or the scale of Laplace noise (delta 0)."""
    if delta == 0:
        return 2 * components * rounds * math.sqrt(features) / epsilon
    return math.sqrt(4 * components * rounds * math.log(1 / delta)) / epsilon


def rounds(moment: PublishedMoment, n_components: int) -> int:
    """L, from the exact singular values of the rows: ``s_K / (s_K - s_{K+1}) ln D``, rounded up."""
    roots = np.sqrt(np.append(moment.spectrum, 0.0))
    last, after = float(roots[n_components - 1]), float(roots[n_components])
    needed = last * math.log(moment.features)
    if needed > _MOST_ROUNDS * (last - after):
        raise DataError("power-rounds", n_components=n_components, n_components_2=n_components + 1)
    return max(1, math.ceil(needed / (last - after))) if last > after else 1
