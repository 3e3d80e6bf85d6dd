"""What the commands and the console do, as functions that return values and print nothing.

Each module is imported when one of its names is used: ``from eigenveil import app``, then
``app.fit.fit_table(...)``. So the help of a command needs none of the libraries.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eigenveil.app import certify, fit, forecasts, plan, results, rows, watch

__all__ = ["certify", "fit", "forecasts", "plan", "results", "rows", "watch"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
