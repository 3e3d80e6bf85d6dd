"""Fitted results as tests need them: as if a fit had found something else."""

import copy
from dataclasses import replace

from eigenveil.models.result import model_digest


def with_factors(model, *, features=None, **changes):
    """The fitted model as if its fit had made other factors of its releases."""
    other, result = copy.copy(model), model._result
    factors = replace(result.factors, **changes)
    features = features or result.features
    digest = model_digest(factors, features=features, names=result.names)
    other._result = replace(
        result,
        factors=factors,
        features=features,
        certificate=result.certificate.model_copy(update={"model": digest}),
    )
    return other


def shown_by(model):
    """What a fitted estimator shows: its attributes whose names end with an underscore."""
    names = [name for name in dir(model) if name.endswith("_") and not name.startswith("_")]
    return {name: getattr(model, name) for name in names if hasattr(model, name)}
