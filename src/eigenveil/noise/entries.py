"""The independent entries of an array with a symmetry, one after the other, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.noise.cube import Number, tensor_from_entries, tensor_indices
from eigenveil.privacy.statistics import Layout


def coordinates(layout: Layout, array: NDArray[Any]) -> NDArray[Any]:
    """The independent entries, shape (size,): the lower triangle where it is symmetric.

    Of a tensor, those with ``i >= j >= k``, in the order of :func:`tensor_indices`.
    """
    match layout:
        case "symmetric":
            return np.asarray(array[np.tri(array.shape[0], dtype=bool)])
        case "tensor":
            return np.asarray(array[tensor_indices(array.shape[0])])
        case _:
            return array.ravel()


def from_coordinates(
    layout: Layout, shape: tuple[int, ...], entries: NDArray[Number]
) -> NDArray[Number]:
    """The whole array with these independent entries."""
    match layout:
        case "symmetric":
            whole = np.empty(shape, dtype=entries.dtype)
            lower = np.tri(shape[0], dtype=bool)
            whole[lower] = entries
            np.copyto(whole, whole.T.copy(), where=~lower)
            return whole
        case "tensor":
            return tensor_from_entries(shape[0], entries)
        case _:
            return entries.reshape(shape)
