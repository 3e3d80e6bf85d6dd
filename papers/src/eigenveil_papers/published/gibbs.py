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
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from eigenveil.linalg.eigen import fix_signs, orthonormal_basis
from eigenveil.linalg.threads import small_matrix_threads
from eigenveil.noise.bingham import bingham_vector
from eigenveil.noise.source import SeededSource
from eigenveil.privacy.gaussian import check_epsilon
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
    X : array of shape (n, D), or SecondMoment
        Not centred: centre the rows by something public if they need it.
    n_components : int
        K, at most D.
    epsilon : float
        The guarantee claimed, above 0; delta is 0.
    burn_in : int
        Sweeps over all columns, from a uniformly random start. With one component one is enough.
    row_bound : float or None
        A public bound on the rows' norms, by which they are divided. Without one it is the largest
        norm found, which is not private.
    random_state : int, Generator or None

    Raises
    ------
    DataError
        When the rows are no finite matrix or break the bound, or there are too few features.
    PrivacyError
        When epsilon is out of range.
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

    Parameters
    ----------
    exponent : array of shape (D, D), symmetric
    count : int
        K.
    sweeps : int
        Each draws every column anew, given the others.
    rng : Generator
    """
    size = len(exponent)
    source = SeededSource(rng)
    with small_matrix_threads(size):
        columns = orthonormal_basis(rng.standard_normal((size, count)))
        for _ in range(1 if count == 1 else sweeps):
            for k in range(count):
                others = np.delete(columns, k, axis=1)
                complement = scipy.linalg.qr(others, check_finite=False)[0][:, count - 1 :]
                inside = complement.T @ exponent @ complement
                energies, turn = scipy.linalg.eigh(inside, check_finite=False, driver="evd")
                columns[:, k] = complement @ (turn @ bingham_vector(energies, source))
    return columns
