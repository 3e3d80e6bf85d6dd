"""PPCA as published (Chaudhuri, Sarwate & Sinha 2013; paper 003 compares it): never certified.

The exponential mechanism draws V of density ``exp(n epsilon/2 tr(V'AV))`` among matrices with
orthonormal columns, a matrix Bingham law. Drawn exactly that is pure epsilon for one row replaced
by another. As published it is drawn by Hoff's Gibbs sampler (2009), one column after the other
given the rest; a chain that is cut off has another law, and nobody has a bound on how much that
costs. The sound sampler is in :mod:`eigenveil.noise.bingham` (one vector after the other):
``PrivatePCA(mechanism="bingham")``.

Given the rest, a column is a Bingham vector in the orthogonal complement of the others. Hoff draws
it by an inner chain over its coordinates; here it is drawn exactly, by rejection, so that each of
these steps is worth many of his. With one component the first draw is exact.

No step decomposes a D x D matrix. In the eigenbasis of the exponent, found once, the envelope of
the rejection is a Gaussian of diagonal precision held to K - 1 linear constraints: one K x K
Cholesky factor, which all proposals of a step share (:class:`_Envelope`). A step costs
O(D K (K + h)), h being the directions in which the exponent alone would outgrow the envelope, and
a proposal O(D (K + h)); an eigendecomposition in the complement would cost O(D^3).
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg

from eigenveil.linalg.eigen import fix_signs, orthonormal_basis, small_matrix_threads
from eigenveil.privacy.accountant import check_epsilon
from eigenveil_papers.published.moments import Rows, check_components, second_moment
from eigenveil_papers.published.result import MARKOV_CHAIN, FloatArray, PublishedPCA, Seed, claimed
from eigenveil_papers.published.trackers import checked_count


def ppca(
    X: Rows,
    *,
    n_components: int,
    epsilon: float,
    burn_in: int = 50,
    row_bound: float | None = None,
    random_state: Seed = None,
) -> PublishedPCA:
    """PPCA: directions drawn by Gibbs sampling from the matrix Bingham law.

    The law knows the subspace only: components come in no order, and ``strengths`` are NaN. Nothing
    else is released and no noise is added.

    Parameters
    ----------
    epsilon : float
        The guarantee claimed, above 0; delta is 0.
    burn_in : int
        Sweeps over all columns, from a uniformly random start. With one component one is enough.
    X, n_components, row_bound, random_state
        As in :func:`eigenveil_papers.published.analyze_gauss`.
    """
    moment = second_moment(X, row_bound=row_bound)
    check_components(n_components, moment.features)
    check_epsilon(epsilon)
    columns = bingham_gibbs(
        moment.total * (epsilon / 2),
        n_components,
        sweeps=checked_count("burn_in", burn_in),
        rng=np.random.default_rng(random_state),
    )
    return PublishedPCA(
        components=fix_signs(np.ascontiguousarray(columns.T)),
        strengths=np.full(n_components, np.nan),
        row_bound=moment.row_bound,
        claim=claimed(
            epsilon,
            0.0,
            MARKOV_CHAIN,
            calculation="the exponential mechanism",
            public_bound=moment.public_bound,
        ),
    )


def bingham_gibbs(
    exponent: FloatArray, count: int, *, sweeps: int, rng: np.random.Generator
) -> FloatArray:
    """A matrix (D, K) with orthonormal columns, about of density ``exp(tr(V' exponent V))``.

    Each sweep draws every column anew, given the others.
    """
    size = len(exponent)
    with small_matrix_threads(size):
        energies, axes = scipy.linalg.eigh(exponent, check_finite=False, driver="evd")
        columns = orthonormal_basis(rng.standard_normal((size, count)))
        for _ in range(1 if count == 1 else sweeps):
            for k in range(count):
                others = np.delete(columns, k, axis=1)
                held = float(energies @ np.square(columns[:, k]))
                columns[:, k] = best_envelope(energies, others, held).accepted(rng)
        return np.asarray(axes @ columns)


# One step: a Bingham vector that is orthogonal to some columns


class DirectionProposals:
    """Proposals for ``u`` of density ``exp(sum_i e_i u_i^2)`` on the sphere where ``C'u = 0``.

    As in :mod:`eigenveil.noise.bingham`, u is the direction of a Gaussian y. Its precision is
    ``M = t - 2 diag(e)`` within the complement of the columns of ``others``, C, where it must be
    positive; on all of R^D it need not be. So it is split as ``M = D - F F'``, D diagonal and at
    least 1 everywhere, F of one column for each of the h entries of M below 1. With
    ``w = D^(1/2) y``, P the projection on the complement of ``D^(-1/2) C`` and
    ``G = P D^(-1/2) F``, the precision of w there is ``I - G G'``: its inverse's root needs the
    h x h matrix ``G'G`` alone.

    Any ``level`` t for which M is positive in the complement gives the same law of u. ``trace`` and
    ``squared``, of the covariance of y and of its square, are infinite where M is not; the fewest
    proposals are refused where the trace is 1.
    """

    def __init__(self, energies: FloatArray, others: FloatArray, level: float) -> None:
        self.energies, self.others, self.level = energies, others, level
        precision = level - 2.0 * energies
        scale = np.maximum(precision, 1.0)
        self.root = 1.0 / np.sqrt(scale)
        scaled = others * self.root[:, None]
        factor = scipy.linalg.cholesky(scaled.T @ scaled, lower=True, check_finite=False)
        # orthonormal columns with the span of the scaled constraints; the inverse of the small
        # factor and one product take a third of the time of solving for all rows
        inverse = scipy.linalg.solve_triangular(
            factor, np.eye(len(factor)), lower=True, check_finite=False
        )
        self.closed = scaled @ inverse.T
        low = np.flatnonzero(precision < 1.0)
        lengths = np.sqrt((scale - precision)[low]) * self.root[low]
        inside = -self.closed @ (self.closed[low].T * lengths)
        inside[low, np.arange(low.size)] += lengths
        squares, turn = scipy.linalg.eigh(inside.T @ inside, check_finite=False)
        self.wide = inside @ turn
        self.trace = self.squared = math.inf
        if low.size == 0 or squares[-1] < 1.0:
            left = 1.0 - squares
            self.gain = 1.0 / (np.sqrt(left) * (1.0 + np.sqrt(left)))
            basis = np.hstack([self.closed, self.wide])
            weights = np.concatenate([-np.ones(others.shape[1]), 1.0 / left])
            shares = np.square(self.root)
            along = shares @ np.square(basis)
            self.trace = float(np.sum(shares) + weights @ along)
            products = basis.T @ (basis * shares[:, None])
            self.squared = float(
                np.sum(shares**2)
                + 2.0 * weights @ (shares**2 @ np.square(basis))
                + weights @ np.square(products) @ weights
            )

    def above(self) -> float:
        """Where M is not positive: a level above this one that is still below the best.

        The direction w of the most negative precision has the energy ``u'diag(e)u`` along
        ``D^(-1/2) w``, and the best level is above twice any energy, plus 1.
        """
        squares = np.square(self.root * self.wide[:, -1])
        return 2.0 * float(self.energies @ squares / np.sum(squares)) + 1.0

    def linear(self, normal: FloatArray) -> FloatArray:
        """Vectors y, one a row, of as many rows of D standard normal numbers."""
        w = normal - (normal @ self.closed) @ self.closed.T
        w += ((w @ self.wide) * self.gain) @ self.wide.T
        return np.asarray(w * self.root)

    def proposals(self, normal: FloatArray) -> FloatArray:
        """Their directions u."""
        y = self.linear(normal)
        y -= (y @ self.others) @ self.others.T  # rounding
        return np.asarray(y / np.linalg.norm(y, axis=1, keepdims=True))

    def accepted(self, rng: np.random.Generator) -> FloatArray:
        """The first proposal that is kept."""
        size, fixed = self.others.shape
        free = size - fixed
        top = 0.5 * (self.level - free) + 0.5 * free * math.log(free)
        batch = _FIRST
        while True:
            u = self.proposals(rng.standard_normal((batch, size)))
            held = np.square(u) @ self.energies
            log_kept = held + 0.5 * free * np.log(self.level - 2.0 * held) - top
            kept = np.flatnonzero(np.log(rng.random(batch)) < log_kept)
            if kept.size:
                return np.asarray(u[kept[0]])
            batch = min(2 * batch, _MOST)


_FIRST, _MOST = 4, 256  # proposals made at once
_LOSS = 0.05  # the share of proposals that may be lost to a level that is not the best


def best_envelope(energies: FloatArray, others: FloatArray, held: float) -> DirectionProposals:
    """The envelope whose trace is about 1, for the fewest refused proposals.

    One over the trace, g, rises with the level t and is concave, with a slope between ``1/q`` and 1
    (q = D - K + 1): Newton's steps within a bracket. The law of what is drawn is the same wherever
    the search ends. ``held`` is ``u'diag(e)u`` of any unit vector in the complement: the best level
    is above ``2 held``, and near ``2 held + q`` if the vector has about the law to be drawn.
    """
    size, fixed = others.shape
    free = size - fixed
    within = float(np.sum(energies) - energies @ np.sum(np.square(others), axis=1))
    low = max(free + 2.0 * within / free, 2.0 * held + 1.0)  # Jensen's inequality: g <= 1 there
    high = free + 2.0 * float(np.max(energies))
    level = min(max(low, 2.0 * held + free), high)
    while True:
        envelope = DirectionProposals(energies, others, level)
        gain = 1.0 / envelope.trace
        near = gain > 0.0 and 0.25 * (gain - 1.0) ** 2 < _LOSS * envelope.squared
        if near or high - low <= 1e-12 * high:
            return envelope
        if gain == 0.0:
            low = level = min(max(envelope.above(), level + 1.0), high)
            continue
        if gain < 1.0:
            low = level
        else:
            high = level
        level += (1.0 - gain) * envelope.trace**2 / envelope.squared
        if not low < level < high:
            level = 0.5 * (low + high)
