"""How far components are from the true ones, whatever their order.

Distances are Euclidean, in the rows' units. Signs are not matched: components of a symmetric tensor
of three modes have one.
"""

from __future__ import annotations

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from eigenveil.errors import DataError


def component_error(found: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    """The mean over found rows of the distance to the nearest true one (the papers' q_comp).

    Several found rows may share a true one, so a component that was missed need not be seen:
    :func:`matched_error` sees it.

    Parameters
    ----------
    found : array of shape (K, D)
    true : array of shape (K', D)

    Raises
    ------
    DataError
        When the rows cannot be compared: no rows, other columns, or not finite.
    """
    return float(np.mean(np.min(_distances(found, true), axis=1)))


def matched(
    found: NDArray[np.float64], true: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The pairing of found with true rows, each used once, of the least total distance.

    Parameters
    ----------
    found : array of shape (K, D)
    true : array of shape (K', D)
        ``K' >= K``.

    Returns
    -------
    order : array of shape (K,), int
        The true row of each found one: ``true[order]`` lies beside ``found``.
    distances : array of shape (K,)

    Raises
    ------
    DataError
        When the rows cannot be compared, or there are fewer true ones than found ones.
    """
    distances = _distances(found, true)
    if len(found) > len(true):
        raise DataError(
            f"{len(found)} rows cannot be matched with {len(true)}, each used once.",
            hint="Exchange the two, or compare by component_error.",
            code="too-few-rows",
        )
    rows, order = scipy.optimize.linear_sum_assignment(distances)  # rows come in order
    return order.astype(np.int64), distances[rows, order]


def matched_error(found: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    """The mean distance of matched rows (see :func:`matched`); never below component_error."""
    return float(np.mean(matched(found, true)[1]))


def _distances(found: NDArray[np.float64], true: NDArray[np.float64]) -> NDArray[np.float64]:
    """All distances, shape (K, K')."""
    if found.ndim != 2 or true.ndim != 2 or found.shape[1] != true.shape[1]:
        raise DataError(
            f"Rows of shapes {found.shape} and {true.shape} cannot be compared.",
            hint="Give two matrices of one component a row, with equally many columns.",
            code="component-shape",
        )
    for name, rows in (("found", found), ("true", true)):
        if rows.size == 0 or not np.all(np.isfinite(rows)):
            raise DataError(
                f"The {name} components are {'not finite' if rows.size else 'empty'}.",
                hint="Give at least one row, of finite numbers.",
                code="component-values",
            )
    return np.asarray(np.linalg.norm(found[:, None, :] - true[None, :, :], axis=2))
