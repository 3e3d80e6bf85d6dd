"""The independent entries of an array with a symmetry, one after the other, and back."""

from __future__ import annotations

from itertools import permutations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.privacy.statistics import Layout, tensor_size


def coordinates(layout: Layout, array: NDArray[Any]) -> NDArray[Any]:
    """The independent entries: the lower triangle, or those of a tensor with ``i >= j >= k``."""
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


Number = TypeVar("Number", np.int64, np.float64)
Index = NDArray[np.intp]


def tensor_indices(rows: int) -> tuple[Index, Index, Index]:
    """Indices ``i >= j >= k`` of the unique entries, in their order."""
    first, second = np.tril_indices(rows)
    length = second + 1  # so many k for each pair of i and j
    start = np.cumsum(length) - length
    third = np.arange(tensor_size(rows)) - np.repeat(start, length)
    return np.repeat(first, length), np.repeat(second, length), third


def tensor_copies(rows: int) -> NDArray[np.int64]:
    """How many entries of the tensor equal each unique one: 1 (iii), 3 (iij, ijj) or 6 (ijk)."""
    i, j, k = tensor_indices(rows)
    alike = (i == j).astype(np.intp) + (j == k)
    copies: NDArray[np.int64] = np.choose(alike, [6, 3, 1])
    return copies


def tensor_from_entries(rows: int, entries: NDArray[Number]) -> NDArray[Number]:
    """The symmetric tensor with these unique entries, in their order."""
    tensor = np.empty((rows, rows, rows), dtype=entries.dtype)
    for place in permutations(tensor_indices(rows)):
        tensor[place] = entries
    return tensor
