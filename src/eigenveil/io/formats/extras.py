"""Libraries that come with an extra, with a clear error where one is missing."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from eigenveil.errors import DataError


def library(name: str, *, extra: str, what: str) -> ModuleType:
    """Import a library that only some installations have."""
    try:
        return import_module(name)
    except ImportError:
        raise DataError(
            "extra-missing", what=what, library=name.partition(".")[0], extra=extra
        ) from None
