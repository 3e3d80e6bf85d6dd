"""Which loops over rows are used: the compiled ones, where they are wanted and fit, or NumPy's."""

from __future__ import annotations

import importlib
import os
import warnings
from functools import cache
from types import ModuleType

INTERFACE = 2
"""Of the compiled loops that this module calls."""


@cache
def compiled() -> ModuleType | None:
    """The compiled loops, where they are wanted and fit."""
    if os.environ.get("EIGENVEIL_LOOPS") == "numpy":
        return None
    try:
        found = importlib.import_module("eigenveil.moments._loops")
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError):
            _warn(f"they do not load: {error}")
        return None
    if found.INTERFACE != INTERFACE:
        _warn("they are of another version of eigenveil")
        return None
    return found


def _warn(why: str) -> None:
    warnings.warn(
        f"eigenveil's compiled loops are not used, as {why}. Results are the same, fits are slower."
        " Install eigenveil again.",
        RuntimeWarning,
        stacklevel=2,
    )


def in_use() -> str:
    """Which loops are used: "compiled" or "numpy"."""
    return "numpy" if compiled() is None else "compiled"
