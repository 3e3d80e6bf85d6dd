"""What the figures of paper 002 share: its private forms, also as its authors' code has them.

Two forms of figure 3's and 2's FPCA are measured. As the text has it, a block of b rows is divided
by b and its mask is lemma 2's for n = b. As the authors' code has it, the block is divided by b and
the mask is lemma 2's for the length of the whole stream: n/b times less noise than the text says.
Their symmetric MOD-SuLQ, too, differs from equation 6: the entries below the diagonal hold the
second moment twice and no noise; and the form that is not symmetric has equation 6's deviation.
"""

from __future__ import annotations

import math

import numpy as np

from eigenveil.linalg.eigen import left_singular
from eigenveil.linalg.subspace import Subspace, append
from eigenveil.privacy.accountant import epsilon_of_mu, mu_of_epsilon
from eigenveil.privacy.statistics import second_moment
from eigenveil_papers.published.federated_pca import FPCA, streaming_mod_sulq
from eigenveil_papers.published.sulq import omega, symmetric_omega
from eigenveil_papers.reproduction.numbers import FloatArray

RANK, BLOCK = 6, 25
"""r and b of the paper's section 4.1."""
MOVED = second_moment("replace-one")
"""How far a row of norm at most 1, replaced by another, moves the sum of outer products."""


def fpca_as_coded(
    rows: FloatArray, *, epsilon: float, delta: float, columns: int, rng: np.random.Generator
) -> FloatArray:
    """Components (r, D) of FPCA with the mask that the authors' code draws."""
    count, features = rows.shape
    deviation = omega(epsilon, delta, features, count)
    kept = Subspace(np.zeros((features, 0)), np.zeros(0))
    for start in range(0, count - BLOCK + 1, BLOCK):
        block = rows[start : start + BLOCK]
        found = streaming_mod_sulq(block, rank=RANK, deviation=deviation, columns=columns, rng=rng)
        kept = append(kept, found.basis.T, rank=RANK)
    return np.asarray(kept.basis.T)


def leaf_of(rows: FloatArray, rank: int = RANK) -> Subspace:
    """What FPCA without a mask has of a leaf's rows, in blocks of b."""
    tracker = FPCA(n_components=rank, block=BLOCK, adapt=False)
    return tracker.partial_fit(rows).finish().subspace


def mod_sulq_as_coded(
    rows: FloatArray, *, symmetric: bool, epsilon: float, delta: float, rng: np.random.Generator
) -> FloatArray:
    """First direction (1, D) of MOD-SuLQ as the authors' code has it.

    The "symmetric" one is exact below the diagonal; the other has D^2 independent entries of
    equation 6's deviation, which is the symmetric mask's, in place of lemma 2's.
    """
    count, features = rows.shape
    moment = rows.T @ rows / count
    deviation = symmetric_omega(epsilon, delta, features, count)
    mask = rng.normal(scale=deviation, size=(features, features))
    if symmetric:
        mask = np.triu(mask) + np.tril(moment, -1)
    return left_singular(moment + mask, 1)[1]


def needed_deviation(epsilon: float, delta: float, rows: int) -> float:
    """The deviation that the exact Gaussian mechanism needs on a second moment of so many rows.

    In isometric coordinates, for one row of norm at most 1 replaced by another.
    """
    return MOVED / mu_of_epsilon(epsilon, delta) / rows


def epsilon_as_coded(
    epsilon: float, delta: float, *, features: int, rows: int, row_norm: float = 1.0
) -> float:
    """The epsilon that the mask of :func:`fpca_as_coded` gives at this delta, for rows so long.

    That mask is Gaussian, with the same deviation for every entry, on a block's second moment.
    """
    moved = MOVED * row_norm**2 / BLOCK
    return epsilon_of_mu(moved / omega(epsilon, delta, features, rows), delta)


def alignment(first: FloatArray, components: FloatArray) -> float:
    """q_A: the cosine of the angle between the first components, without sign."""
    return min(1.0, abs(float(first @ components[0])))


def overlap(exact: FloatArray, components: FloatArray) -> float:
    """Mean squared cosine of the principal angles of two subspaces (K, D): 0 to 1."""
    return float(np.linalg.norm(exact @ components[: len(exact)].T) ** 2) / len(exact)


def random_alignment(features: int) -> float:
    """The mean of q_A for a direction drawn uniformly: Gamma(D/2)/(sqrt(pi) Gamma((D+1)/2))."""
    return math.exp(math.lgamma(features / 2) - math.lgamma((features + 1) / 2)) / math.sqrt(
        math.pi
    )
