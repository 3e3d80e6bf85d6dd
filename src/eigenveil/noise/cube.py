"""Symmetric tensors of three modes by their unique entries ``T_ijk``, ``i >= j >= k``.

Everything that lists the entries lists them in this order: by ``i``, then ``j``, then ``k``.
"""

from __future__ import annotations

from itertools import permutations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.privacy.statistics import tensor_rows, tensor_size

__all__ = [
    "tensor_copies",
    "tensor_from_entries",
    "tensor_indices",
    "tensor_rows",
    "tensor_size",
]

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
