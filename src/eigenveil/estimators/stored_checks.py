"""What can be wrong in a file that should hold a model."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOT_A_MODEL = (
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    OSError,
    EOFError,
    OverflowError,
    MemoryError,  # a damaged length
    SyntaxError,  # a damaged header of an array
    RuntimeError,  # an encrypted archive
    tokenize.TokenError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)
"""What reading a cut, changed or foreign file raises."""
# Their lengths are not that of the components; the last may be undefined.
_OF_FEATURES, _OF_ANY_LENGTH, _MAY_BE_NAN = "mean", "strengths", "explained_variance_ratio"


def check_model_arrays(arrays: Mapping[str, NDArray[Any]], features: object, names: object) -> None:
    """Raise where a model's arrays do not belong together.

    Parameters
    ----------
    arrays : mapping
        The first is the matrix of components, shape (k, D); the others have k entries, but for the
        mean and the strengths.
    features, names
        D, and the features' names or ``None``.

    Raises
    ------
    ValueError
        Naming the array.
    """
    first = next(iter(arrays))
    if arrays[first].ndim != 2:
        raise ValueError(f"{first} has {arrays[first].ndim} dimensions")
    count, width = arrays[first].shape
    if type(features) is not int or width != features:
        raise ValueError(f"{first} has {width} columns")
    if names is not None and not (isinstance(names, list) and len(names) == width):
        raise ValueError(f"{first} has {width} columns, and as many names there are not")
    for name, array in arrays.items():
        size = {first: (count, width), _OF_FEATURES: (width,)}.get(name, (count,))
        if name == _OF_ANY_LENGTH:
            size = (array.size,)
        if array.shape != size or array.dtype.kind not in "biuf":
            raise ValueError(f"{name} is {array.dtype} of shape {array.shape}")
        if name != _MAY_BE_NAN and not np.isfinite(array).all():
            raise ValueError(f"{name} has entries that are not finite")
