"""What the commands and the console do, as functions that return values and print nothing.

Each module is imported when one of its names is used: ``from eigenveil import app``, then
``app.fit.fit_table(...)``. So the help of a command needs none of the libraries.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eigenveil.app import approvers as approvers
    from eigenveil.app import audit as audit
    from eigenveil.app import budgets as budgets
    from eigenveil.app import certify as certify
    from eigenveil.app import decisions as decisions
    from eigenveil.app import derive as derive
    from eigenveil.app import exchange as exchange
    from eigenveil.app import federation as federation
    from eigenveil.app import fit as fit
    from eigenveil.app import forecasts as forecasts
    from eigenveil.app import ledger as ledger
    from eigenveil.app import plan as plan
    from eigenveil.app import report as report
    from eigenveil.app import results as results
    from eigenveil.app import rows as rows
    from eigenveil.app import schema as schema
    from eigenveil.app import site as site
    from eigenveil.app import study as study
    from eigenveil.app import study_draft as study_draft
    from eigenveil.app import study_plan as study_plan
    from eigenveil.app import transform as transform
    from eigenveil.app import tree as tree
    from eigenveil.app import variants as variants
    from eigenveil.app import watch as watch


def __getattr__(name: str) -> Any:
    if find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
