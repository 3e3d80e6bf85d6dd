"""What the calls of scikit-learn around a fit show, which the fit's own arguments do not.

An estimator is not told which steps of a pipeline were fitted to its rows before, nor of groups
that a search gives to its splitter alone. The frames that call it hold both. What is found there
warns, and decides nothing: no frame, as in a search's worker process, is no promise.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

from eigenveil.errors import WeakPrivacyWarning, callers_level
from eigenveil.models.constraints import Configured

# Of scikit-learn, by the parameter that says what they would learn of rows; by none: nothing.
_TOLD = {
    "CountVectorizer": "vocabulary",
    "FrozenEstimator": None,  # fitted elsewhere, to rows that its owner answers for
    "GaussianRandomProjection": "n_components",
    "OneHotEncoder": "categories",
    "OrdinalEncoder": "categories",
    "PolynomialFeatures": None,
    "SparseRandomProjection": "n_components",
}
_BY_FREQUENCY = ("min_frequency", "max_categories")
_GROUPS = (
    "The search or cross-validation gives groups= to its splitter alone: the fits protect each row "
    "by itself, not all rows of a group together. For these give the estimator unit='COLUMN' and a "
    "frame with that column; or make it a step of a Pipeline and give STEP__groups= as well."
)
_STEPS = (
    "Before this fit, {steps} learned from all rows: that is released without noise, and the "
    "guarantee does not hold for it. Leave such steps out (scale='private' is counted), or wrap "
    "what was fitted to public rows in FrozenEstimator."
)


def warn_of_callers(*, of_units: bool) -> None:
    """Warn of what scikit-learn did with the rows of a fit that it calls."""
    pipelines: Any = getattr(sys.modules.get("sklearn.pipeline"), "Pipeline", ())
    learned: dict[str, None] = {}
    grouped = False
    for module, known in _frames():
        if isinstance(owner := known.get("self"), pipelines):
            learned |= dict.fromkeys(_learned_before(owner))
        if module.startswith("sklearn.model_selection."):
            routed = known.get("params")
            given = routed.get("groups") if isinstance(routed, Mapping) else None
            grouped |= any(each is not None for each in (known.get("groups"), given))
    if learned:
        steps = _STEPS.format(steps=" and ".join(learned))
        warnings.warn(steps, WeakPrivacyWarning, stacklevel=callers_level())
    if grouped and not of_units:
        warnings.warn(_GROUPS, WeakPrivacyWarning, stacklevel=callers_level())


def _frames() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Module and variables of each of scikit-learn's functions that is being called."""
    frame = inspect.currentframe()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("sklearn."):
            yield module, frame.f_locals
        frame = frame.f_back


def _learned_before(pipeline: Any) -> Iterator[str]:
    """Steps of a pipeline that learn from rows before the private one; none if that is unseen."""
    steps = [(name, step) for name, step in pipeline.steps if isinstance(step, BaseEstimator)]
    before = list(takewhile(lambda named: not _is_private(named[1]), steps))
    for name, step in before if len(before) < len(steps) else ():
        if _learns(step):
            yield f"{type(step).__name__} (step {name!r})"


def _is_private(step: BaseEstimator) -> bool:
    return isinstance(step, Configured) or any(map(_is_private, _inner(step)))


def _learns(step: BaseEstimator) -> bool:
    """Whether what a step's fit keeps depends on rows, and not on its parameters alone."""
    kind, given = type(step).__name__, _given(step)
    if kind in _TOLD and type(step).__module__.startswith("sklearn."):
        told = "" if (name := _TOLD[kind]) is None else given.get(name)
        by_rows = told is None or (isinstance(told, str) and told == "auto")
        return by_rows or any(given.get(name) is not None for name in _BY_FREQUENCY)
    if inner := _inner(step):
        return any(map(_learns, inner))
    try:
        return bool(get_tags(step).requires_fit)
    except Exception:  # of a step that is older than these, or careless
        return True


def _inner(step: BaseEstimator) -> list[BaseEstimator]:
    """The estimators that one is made of: of a pipeline, a union, a transformer of columns."""
    parts = []
    for value in _given(step).values():
        named = isinstance(value, list) and all(isinstance(each, tuple) for each in value)
        parts += [each[1] for each in value if len(each) > 1] if named else [value]
    return [each for each in parts if isinstance(each, BaseEstimator)]


def _given(step: BaseEstimator) -> dict[str, Any]:
    try:
        return dict(step.get_params(deep=False))
    except Exception:  # of a step that does not keep them
        return {}
