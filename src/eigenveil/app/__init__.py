"""What the commands and the console do, as functions that return values and print nothing.

Each module is imported when one of its names is used: ``from eigenveil import app``, then
``app.fit.fit_table(...)``. So the help of a command needs none of the libraries.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eigenveil.app import (
        approvers,
        audit,
        budgets,
        certify,
        decisions,
        exchange,
        federation,
        fit,
        forecasts,
        ledger,
        plan,
        report,
        results,
        rows,
        schema,
        site,
        study,
        study_draft,
        study_plan,
        transform,
        tree,
        variants,
        watch,
    )

__all__ = [
    "approvers",
    "audit",
    "budgets",
    "certify",
    "decisions",
    "exchange",
    "federation",
    "fit",
    "forecasts",
    "ledger",
    "plan",
    "report",
    "results",
    "rows",
    "schema",
    "site",
    "study",
    "study_draft",
    "study_plan",
    "transform",
    "tree",
    "variants",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
