"""How many directions a tracked subspace needs (paper 002, equation 4: AdjustRank)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.linalg.subspace import Subspace

_IN_SPAN = 1e-6  # what is left of a unit vector below which it says nothing new


def check_shares(alpha: float, beta: float) -> None:
    """Raise unless ``0 <= alpha < beta <= 100``, both in percent."""
    if not 0 <= alpha < beta <= 100:
        raise DataError(
            f"The bounds alpha = {alpha!r} and beta = {beta!r} on the last share are no interval.",
            hint="Give percentages with 0 <= alpha < beta <= 100; the paper takes 1 and 10.",
            code="rank-bounds",
        )


def last_share(subspace: Subspace) -> float:
    """``E_r = s_r / sum s`` in percent (equation 4); 0 where there is no strength at all."""
    total = float(np.sum(subspace.strengths))
    # divided first: the only direction has a share of 100 exactly
    return 100 * (float(subspace.strengths[-1]) / total) if total > 0 else 0.0


def adjust_rank(
    subspace: Subspace, *, alpha: float = 1.0, beta: float = 10.0, most: int | None = None
) -> Subspace:
    """One direction more, one less or the same, by the share of the last one: AdjustRank.

    To be called once for each block of rows, after the block has been folded in.

    Above ``beta`` the first canonical vector after the r-th, ``e_{r+1}``, is made orthonormal to
    the basis and appended (the next one that is not in its span, where it is). Its strength is 0.
    The paper writes ``Sigma_[r+1]``, which a subspace of rank r does not have; as part of the rank
    r approximation's own Sigma it is 0. That is also the sound choice: the strengths never claim
    energy that the rows do not have, and folding the next block in at rank r + 1 gives exactly
    what it would give without the placeholder. Repeating the last strength instead would add a
    made-up row ``s_r e_{r+1}`` that is never forgotten. A placeholder that the next block does not
    fill has share 0 and is dropped again. Below ``alpha`` the last direction is dropped.

    Parameters
    ----------
    subspace : Subspace
        Of rank r. Where all its strengths are 0 there are no shares, and nothing changes.
    alpha, beta : float
        Bounds on the last share, in percent, ``0 <= alpha < beta <= 100``.
    most : int or None
        No more directions than this; never more than there are features, nor fewer than 1.

    Raises
    ------
    DataError
        When ``alpha`` and ``beta`` are no interval within 0 to 100, or ``most`` is below 1.
    """
    check_shares(alpha, beta)
    if most is not None and most < 1:
        raise DataError(f"At most {most} directions are none.", hint="Give most=1 or more.")
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
