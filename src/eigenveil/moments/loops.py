"""The loops over a block's rows, compiled where the package was built with a C compiler.

Without it, or with ``EIGENVEIL_LOOPS=numpy`` in the environment, NumPy does the same in more
passes: each entry and each norm is bit for bit the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.compiled import compiled

FloatArray = NDArray[np.floating[Any]]
New = Callable[[tuple[int, ...], Any], NDArray[Any]]
"""Makes an array of a shape and type, of any values."""

# Entries that one call of a loop is to take, for what it costs beside them to be little.
_LONG = 512

COMPILED: Any = compiled()
"""The compiled loops; ``None`` where NumPy's are used."""


def prepared(
    values: FloatArray,
    *,
    kind: Any,
    dtype: Any,
    offset: NDArray[np.float64] | None,
    factors: NDArray[np.float64] | None,
    limit: float,
    center: NDArray[np.float64] | None,
    new: New,
) -> FloatArray:
    """``clip((x - offset) * factors, -limit, limit) - center``, in ``kind``, as ``dtype``."""
    given = [None if each is None else each.astype(kind) for each in (offset, factors, center)]
    if limit == math.inf and all(each is None for each in given):
        return np.asarray(values, dtype=dtype, order="C")
    if values.strides[1] != values.itemsize:  # where rows lie by columns, NumPy turns them faster
        turned = new(values.shape, values.dtype)
        turned[...] = values
        values = turned
    flat, (shift, times, less) = _joined(values, given)
    if COMPILED is None or not (_plain(values) and flat.size):
        return _prepared(flat, kind, dtype, shift, times, limit, less).reshape(values.shape)
    found = new(values.shape, dtype)
    single = kind == np.float32
    into = found.reshape(flat.shape)
    COMPILED.prepared(flat, single, shift, times, limit, less, into)
    return found


def _prepared(
    values: FloatArray,
    kind: Any,
    dtype: Any,
    offset: FloatArray | None,
    factors: FloatArray | None,
    limit: float,
    center: FloatArray | None,
) -> FloatArray:
    found: FloatArray = np.asarray(values, dtype=kind, order="C")
    if offset is not None:
        found = found - offset
    if factors is not None:
        found = found * factors
    if limit != math.inf:
        found = np.clip(found, -limit, limit)
    if center is not None:
        found = found - center
    return np.asarray(found, dtype=dtype)


def _joined(
    rows: FloatArray, given: list[FloatArray | None]
) -> tuple[FloatArray, list[FloatArray | None]]:
    """Short rows, several as one; what goes with each entry is repeated."""
    count, width = rows.shape
    together = math.gcd(count, 1 << (max(1, _LONG // max(1, width)).bit_length() - 1))
    if together == 1 or not rows.flags.c_contiguous:
        return rows, given
    joined = rows.reshape(count // together, together * width)
    return joined, [None if each is None else np.tile(each, together) for each in given]


def takes(*arrays: FloatArray) -> bool:
    """Whether compiled loops take arrays: rows beside each other, of one type."""
    if COMPILED is None:
        return False
    kind = arrays[0].dtype
    return all(_plain(each) and each.flags.c_contiguous and each.dtype == kind for each in arrays)


def _plain(array: FloatArray) -> bool:
    """Whether entries are numbers as the processor has them."""
    return array.dtype in (np.float32, np.float64) and array.flags.aligned
