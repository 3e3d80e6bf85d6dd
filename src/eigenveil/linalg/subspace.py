"""Subspaces with strengths: how good one is, and the merge of two (paper 002, algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from eigenveil.linalg.eigen import leading_eigenpairs


@dataclass(frozen=True)
class Subspace:
    """Leading directions of some rows, and how strong the rows are along each.

    Attributes
    ----------
    basis : array of shape (D, r)
        Orthonormal columns.
    strengths : array of shape (r,)
        Singular values of the rows, not negative, descending.
    """

    basis: NDArray[np.float64]
    strengths: NDArray[np.float64]

    @property
    def rank(self) -> int:
        """Number of directions."""
        return self.strengths.size


def subspace_of(rows: NDArray[np.float64], *, rank: int) -> Subspace:
    """The leading ``rank`` singular directions of ``rows``, shape (n, D): the paper's SVD_r."""
    _, strengths, directions = scipy.linalg.svd(rows, full_matrices=False, check_finite=False)
    return Subspace(np.ascontiguousarray(directions[:rank].T), strengths[:rank])


def merge(first: Subspace, second: Subspace, *, rank: int, forgetting: float = 1.0) -> Subspace:
    """The leading ``rank`` directions of the rows of both (paper 002, algorithm 2: Merge_r).

    Exact where ``rank`` is at least the rank of the rows together and both subspaces are exact
    (lemma 1). ``forgetting`` multiplies the first one's strengths.
    """
    return _merged(first.basis, first.strengths * forgetting, second.basis, second.strengths, rank)


def append(
    subspace: Subspace, rows: NDArray[np.float64], *, rank: int, forgetting: float = 1.0
) -> Subspace:
    """The leading directions of a subspace's rows and further ones: the paper's SSVD_r.

    That is Merge_r of the subspace and the rows, shape (b, D), as if their columns were
    orthonormal with strengths 1.
    """
    if subspace.rank == 0:
        return subspace_of(rows, rank=rank)
    ones = np.ones(rows.shape[0])
    return _merged(subspace.basis, subspace.strengths * forgetting, rows.T, ones, rank)


def _merged(
    basis: NDArray[np.float64],
    strengths: NDArray[np.float64],
    others: NDArray[np.float64],
    weights: NDArray[np.float64],
    rank: int,
) -> Subspace:
    inside = basis.T @ others
    rest = others - basis @ inside
    # what rounding left inside the basis is taken off too: "twice is enough" (Kahan, Parlett)
    again = basis.T @ rest
    rest -= basis @ again
    inside += again
    outer, corner = scipy.linalg.qr(rest, mode="economic", check_finite=False)
    size = basis.shape[1]
    core = np.zeros((size + corner.shape[0], size + weights.size))
    core[np.arange(size), np.arange(size)] = strengths
    core[:size, size:] = inside * weights
    core[size:, size:] = corner * weights
    turn, values, _ = scipy.linalg.svd(core, full_matrices=False, check_finite=False)
    kept = turn[:, :rank]
    merged = basis @ kept[:size] + outer @ kept[size:]
    return Subspace(merged, values[:rank])


def captured_energy(second_moment: NDArray[np.float64], components: NDArray[np.float64]) -> float:
    """``tr(V' A V)`` of components (K, D) as a fraction of the best possible (the papers' q)."""
    q = float(np.einsum("kd,de,ke->", components, second_moment, components, optimize=True))
    best, _ = leading_eigenpairs(second_moment, components.shape[0])
    return q / float(np.sum(best))
