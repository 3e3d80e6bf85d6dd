"""Subspaces with strengths: their rank, their merge, and distances (paper 002)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import lapack

from eigenveil.errors import DataError
from eigenveil.linalg.eigen import leading_eigenpairs

_IN_SPAN = 1e-6  # what is left of a unit vector below which it adds nothing new


def check_shares(alpha: float, beta: float) -> None:
    """Raise unless ``0 <= alpha < beta <= 100``, both in percent."""
    if not 0 <= alpha < beta <= 100:
        raise DataError("rank-bounds", alpha=alpha, beta=beta)


def last_share(subspace: Subspace) -> float:
    """``E_r = s_r / sum s`` in percent (equation 4); 0 where there is no strength at all."""
    total = float(np.sum(subspace.strengths))
    # divided first: the only direction has a share of 100 exactly
    return 100 * (float(subspace.strengths[-1]) / total) if total > 0 else 0.0


def adjust_rank(
    subspace: Subspace, *, alpha: float = 1.0, beta: float = 10.0, most: int | None = None
) -> Subspace:
    """One direction more, one less or the same, by the share of the last one: AdjustRank.

    Above ``beta`` the next canonical vector that is not in the span is appended, with strength 0,
    so that the strengths never claim energy that the rows do not have: the next block comes out as
    it would without the placeholder. Below ``alpha`` the last direction is dropped.
    """
    check_shares(alpha, beta)
    if most is not None and most < 1:
        raise DataError("out-of-range", name="most", value=most, wanted="1 or more")
    features, rank = subspace.basis.shape
    if not np.any(subspace.strengths > 0):
        return subspace
    share = last_share(subspace)
    limit = features if most is None else min(most, features)
    if share > beta and rank < limit:
        direction = _new_direction(subspace.basis)
        return Subspace(
            np.column_stack([subspace.basis, direction]), np.append(subspace.strengths, 0.0)
        )
    if share < alpha and rank > 1:
        return Subspace(subspace.basis[:, :-1], subspace.strengths[:-1])
    return subspace


def _new_direction(basis: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first of e_{r+1}, ..., e_D, e_1, ... that the basis does not span, made orthonormal."""
    features, rank = basis.shape
    for number in range(rank, rank + features):
        place = number % features
        direction = -(basis @ basis[place])
        direction[place] += 1.0
        length = float(np.linalg.norm(direction))
        if length <= _IN_SPAN:
            continue
        direction /= length
        direction -= basis @ (basis.T @ direction)  # rounding, magnified by 1/length
        return np.asarray(direction / np.linalg.norm(direction))
    raise AssertionError("a basis of fewer columns than features spans no whole space")


# -- Subspaces with strengths: how good one is, and the merge of two (paper 002, algorithm 2).


@dataclass(frozen=True)
class Subspace:
    """Leading directions of some rows, and how strong the rows are along each."""

    basis: NDArray[np.float64]  # Orthonormal columns
    strengths: NDArray[np.float64]  # Singular values of the rows, not negative, descending

    @property
    def rank(self) -> int:
        """Number of directions."""
        return self.strengths.size


def subspace_of(rows: NDArray[np.float64], *, rank: int) -> Subspace:
    """The leading ``rank`` singular directions of ``rows``, shape (n, D): the paper's SVD_r."""
    return _leading(np.array(rows, dtype=np.float64, order="C"), rank)


def merge(first: Subspace, second: Subspace, *, rank: int, forgetting: float = 1.0) -> Subspace:
    """The leading ``rank`` directions of the rows of both (paper 002, algorithm 2: Merge_r)."""
    rows = second.basis.T * second.strengths[:, None]
    return append(first, rows, rank=rank, forgetting=forgetting)


def append(
    subspace: Subspace, rows: NDArray[np.floating], *, rank: int, forgetting: float = 1.0
) -> Subspace:
    """The leading directions of a subspace's rows and further ones: the paper's SSVD_r."""
    size = subspace.rank
    stacked = np.empty((size + rows.shape[0], rows.shape[1]))
    np.multiply(subspace.basis.T, (subspace.strengths * forgetting)[:, None], out=stacked[:size])
    stacked[size:] = rows
    return _leading(stacked, rank)


def subspace_distance(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """The sine of the largest principal angle of the smaller subspace with the larger."""
    # from what is left of one basis outside the other, not from cosines: accurate where it is tiny
    if first.shape[0] != second.shape[0]:
        raise DataError("subspaces-differ", features=first.shape[0], other=second.shape[0])
    small, large = sorted((first, second), key=lambda basis: basis.shape[1])
    if small.shape[1] == 0:
        return 0.0
    outside = small - large @ (large.T @ small)
    return min(1.0, float(np.linalg.norm(outside, ord=2)))


# Numbers that were measured: below the order the triangle is as fast; above the other one LAPACK's
# driver for some eigenvectors beats the one for all.
_PRODUCTS_FROM = 24
_SOME_FROM = 100
# Squared singular values below this share of the first one are not taken from products.
_PRODUCTS_TO = 1e-5
_PANEL = 64  # LAPACK's blocks are at most as wide; sets the size of its work space


def _leading(rows: NDArray[np.float64], rank: int) -> Subspace:
    """The leading ``rank`` directions of rows in C order, shape (m, D), which are overwritten."""
    # all found anew, which keeps rounding from building up over many blocks; LAPACK is called
    # directly, as for 25 rows of 11 features the checks of scipy.linalg take longer than the work
    rank = min(rank, *rows.shape)
    if rank == 0:
        return Subspace(np.zeros((rows.shape[1], 0)), np.zeros(0))
    if max(_PRODUCTS_FROM, 2 * rank) <= min(rows.shape):
        found = _from_products(rows, rank)
        if found is not None:
            return found
    return _from_triangle(rows, rank)


def _from_products(rows: NDArray[np.float64], rank: int) -> Subspace | None:
    """By the eigenvectors of the rows' products, twice as fast; None where they lack precision.

    An eigenvector of the products strays, by rounding, into the direction j by about
    ``1e-16 s_1^2/(s_i^2 - s_j^2)``. One multiplication with the rows and a new orthonormal basis
    take the factor ``s_j/s_i`` off that: where the rest is 0, nothing of it is left.
    """
    count, features = rows.shape
    values, turn = _leading_of(rows @ rows.T if count <= features else rows.T @ rows, rank)
    if not values[-rank] > _PRODUCTS_TO * values[-1] > _SMALLEST:
        return None
    if count > features:
        turn, _ = _thin_qr(rows @ turn)
    basis, corner = _thin_qr(rows.T @ turn)
    inner, strengths = _left_singular(corner)
    return Subspace(np.asfortranarray(basis @ inner), strengths)


_SMALLEST = 1e-250  # products of smaller numbers lose digits


def _leading_of(
    products: NDArray[np.float64], rank: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues, ascending, the leading ``rank`` at the end, and their eigenvectors."""
    size = products.shape[0]
    if size < _SOME_FROM:
        values, vectors, failed = lapack.dsyevd(products)
        found = vectors[:, size - rank :]
    else:
        values, found, _, _, failed = lapack.dsyevr(
            products, range="I", il=size - rank + 1, iu=size, lwork=(_PANEL + 6) * size
        )
        values = values[:rank]
    if failed:
        return np.zeros(size), np.zeros((size, rank))  # no precision
    return values, found


def _from_triangle(rows: NDArray[np.float64], rank: int) -> Subspace:
    """By an orthogonal factorisation, and the singular vectors of its triangle turned back."""
    count, features = rows.shape
    columns = rows.T  # as LAPACK stores matrices
    if count >= features:
        turned, *_ = lapack.dgerqf(columns, lwork=_PANEL * features, overwrite_a=1)
        turn, strengths = _left_singular(np.triu(turned[:, count - features :]))
        return Subspace(np.array(turn[:, :rank], order="F"), strengths[:rank].copy())
    turned, tau, *_ = lapack.dgeqrf(columns, lwork=_PANEL * count, overwrite_a=1)
    turn, strengths = _left_singular(np.triu(turned[:count]))
    basis = np.zeros((features, rank), order="F")
    basis[:count] = turn[:, :rank]
    work = _PANEL * (rank + _PANEL + 1)
    basis, *_ = lapack.dormqr("L", "N", turned, tau, basis, work, overwrite_c=1)
    return Subspace(basis, strengths[:rank].copy())


def _thin_qr(columns: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """An orthonormal basis of tall (n, r) columns, and their triangle."""
    rank = columns.shape[1]
    turned, tau, *_ = lapack.dgeqrf(columns, lwork=_PANEL * rank)
    corner = np.triu(turned[:rank])
    basis, *_ = lapack.dorgqr(turned, tau, lwork=_PANEL * rank, overwrite_a=1)
    return basis, corner


def _left_singular(square: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Left singular vectors and singular values of a small matrix."""
    turn, values, _, failed = lapack.dgesdd(square, full_matrices=0)
    if failed:  # never seen for finite rows; the slower driver is known to be sturdier
        turn, values, _ = scipy.linalg.svd(square, lapack_driver="gesvd")
    return turn, values


def captured_energy(second_moment: NDArray[np.float64], components: NDArray[np.float64]) -> float:
    """``tr(V' A V)`` of components (K, D) as a fraction of the best possible (the papers' q)."""
    q = float(np.einsum("kd,de,ke->", components, second_moment, components, optimize=True))
    best, _ = leading_eigenpairs(second_moment, components.shape[0])
    return q / float(np.sum(best))
