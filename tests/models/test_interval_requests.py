"""What of any estimator's intervals cannot be asked is one sentence, and nothing is computed."""

import json
import math
from functools import cache

import numpy as np
import pytest

from eigenveil import (
    DataError,
    FederatedCovariance,
    FederatedGaussianMixture,
    FederatedPCA,
    FederatedTopicModel,
    PrivateCovariance,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateStreamingPCA,
    PrivateTopicModel,
)
from eigenveil.models.stored import NotFittedError
from refusal_tools import refuses

COUNTED = (
    PrivatePCA, PrivateStreamingPCA, FederatedPCA, PrivateGaussianMixture, FederatedGaussianMixture,
    PrivateTopicModel, FederatedTopicModel,
)  # fmt: skip
KINDS = (*COUNTED, PrivateCovariance, FederatedCovariance)
pytestmark = pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@cache
def table(rows=600):
    rng = np.random.default_rng(0)
    themes = rng.dirichlet(np.full(6, 0.2), 2)[rng.integers(2, size=rows)]
    return np.array([rng.multinomial(12, theme) for theme in themes], dtype=np.float64)


def fitted(kind, rows=600, **options):
    counted = {"n_components": 2} if kind in COUNTED else {}
    model = kind(**{"epsilon": 4.0, "delta": 1e-5, "random_state": 0} | counted | options)
    halves = np.array_split(table(rows), 2)
    federated = kind.__name__.startswith("Federated")
    return model.fit({"a": halves[0], "b": halves[1]} if federated else table(rows))


@each_kind
def test_levels_kinds_and_models_that_are_not_fitted(kind):
    model = fitted(kind)
    for level in (0, 1, -0.1, 1.5, math.nan, "0.95", None, True):
        with refuses("bad-level"):
            model.intervals(level)
    with refuses("unknown-choice", "table, population"):
        model.intervals(of="both")
    assert model._result.later == {}
    with pytest.raises(NotFittedError):
        kind().intervals()


@each_kind
def test_results_of_other_versions_without_releases_and_without_records(kind, monkeypatch):
    model = fitted(kind)
    with monkeypatch.context() as patched:
        patched.setattr("eigenveil.models.intervals.asked.version", lambda _: "9.9")
        with pytest.raises(
            DataError, match=r"made by eigenveil .* this is eigenveil 9\.9"
        ) as error:
            model.intervals()
    assert error.value.code == "intervals-of-other-version"
    result = model._result
    certificate = result.certificate
    object.__setattr__(result, "certificate", certificate.model_copy(update={"releases": ()}))
    with refuses("intervals-of-nothing"):
        model.intervals()
    object.__setattr__(result, "certificate", certificate)
    object.__setattr__(result.factors, "released", {})
    with refuses("intervals-of-nothing"):
        model.intervals()
    assert result.later == {}


@each_kind
def test_of_nothing_usable_each_number_has_an_interval_or_a_reason(kind):
    model = fitted(kind, rows=40, epsilon=0.05)
    assert not model.usable_.any()
    for of in ("table", "population"):
        for quantity in model.intervals(of=of).values():
            columns = quantity.columns()
            assert all(
                (why == "") == (low <= high) for why, low, high in
                zip(columns["why"], columns["lower"], columns["upper"], strict=True)
            )  # fmt: skip
        json.dumps(model.intervals(of=of).as_dict(), allow_nan=False)


@pytest.mark.parametrize("kind", COUNTED, ids=lambda kind: kind.__name__)
def test_of_one_component(kind):
    model = fitted(kind, n_components=1)
    found = model.intervals()
    of_components = [each for each in found.values() if {"component", "topic"} & set(each.axes)]
    assert all(each.estimate.shape[0] == 1 for each in of_components)
    if "weight" in found and found["weight"].shown.all():
        assert found["weight"].lower <= 1.0 <= found["weight"].upper
