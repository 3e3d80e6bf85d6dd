"""Libraries that come with an extra, with a clear error where one is missing."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from eigenveil.errors import DataError


def library(name: str, *, extra: str, what: str) -> ModuleType:
    """Import a library that only some installations have.

    Parameters
    ----------
    name : str
        The module.
    extra : str
        The extra of this package that brings it.
    what : str
        What needs it, as the subject of a sentence, such as "A .h5ad file".

    Raises
    ------
    DataError
        With code ``extra-missing``, when it is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        raise DataError(
            f"{what} needs the library {name.partition('.')[0]}, which is not installed.",
            hint=f"pip install 'eigenveil[{extra}]'.",
            code="extra-missing",
        ) from None
