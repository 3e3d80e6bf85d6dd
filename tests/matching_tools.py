"""Pairing found components with true ones, whatever their order; signs are not matched."""

import numpy as np
import scipy.optimize


def matched(found, true):
    """The true row of each found one, each used once, of the least total distance; distances."""
    assert len(found) <= len(true)
    distances = np.linalg.norm(found[:, None, :] - true[None, :, :], axis=2)
    rows, order = scipy.optimize.linear_sum_assignment(distances)  # rows come in order
    return order, distances[rows, order]


def matched_error(found, true):
    """The mean distance of matched rows."""
    return float(np.mean(matched(found, true)[1]))
