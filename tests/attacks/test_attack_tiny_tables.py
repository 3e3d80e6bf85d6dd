"""Fits of every estimator to tiny tables: none may fail once something was released."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

import eigenveil
from eigenveil.errors import NoisyResultWarning
from eigenveil.federation.protocol.certificates import check
from soak_tools import SOAK

_RNG = np.random.default_rng(0)
TABLES = {
    "normal": lambda n, d: _RNG.standard_normal((n, d)),
    "zero": lambda n, d: np.zeros((n, d)),
    "constant": lambda n, d: np.full((n, d), 7.0),
    "huge": lambda n, d: _RNG.standard_normal((n, d)) * 1e150,
    "not numbers": lambda n, d: np.full((n, d), np.nan),
}
ONE = {"n_components": 1}
FITS = {
    "PrivatePCA": [
        ONE,
        {"n_components": 0.9},
        {"n_components": "auto", "row_bound": 1.0},
        ONE | {"row_bound": 1.0},
        ONE | {"row_norm": "auto"},
        ONE | {"center": False},
        ONE | {"adjacency": "replace-one"},
        ONE | {"delta": 0.0},
        *(ONE | {"mechanism": name} for name in ("sketch", "power", "bingham")),
    ],
    "PrivateCovariance": [{}, {"row_bound": 1.0}, {"center": False}, {"delta": 0.0}],
    "PrivateGaussianMixture": [{}, ONE, {"row_bound": 1.0}],
    "PrivateTopicModel": [{}, ONE, {"clip_documents": False}, {"alpha0": 1.0}, {"alpha0": "auto"}],
    "PrivateStreamingPCA": [ONE, ONE | {"publish": "continual", "horizon": 2}],
    "FederatedPCA": [{"n_components": "auto"}],
    "FederatedCovariance": [{}],
    "FederatedGaussianMixture": [{}],
    "FederatedTopicModel": [{}],
}


ROWS_AND_FEATURES = ((1, 1), (2, 5), (5, 2))
RATE, FALSE_ALARM = 0.01, 1e-9


def is_noise_taken_for_a_component(model, table, rows, features):
    """Fit; the result is nothing, says so and is certified, but where a component is usable."""
    sites = type(model).__name__.startswith("Federated")
    X = {name: table(rows, features) for name in "abc"} if sites else table(rows, features)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X)
    assert check(model.certificate_).holds
    assert not any(issubclass(warning.category, RuntimeWarning) for warning in caught)
    said = [str(w.message) for w in caught if issubclass(w.category, NoisyResultWarning)]
    if model.usable_.any():
        return True
    assert len(said) >= 1
    assert any(way in said[-1] for way in ("rows", "row_bound"))
    return False


# Noise alone is taken for a component in 1 % of the fits at most; of all fits of an estimator more
# are than the binomial law allows with probability 1e-9.
@pytest.mark.parametrize("name", FITS)
def test_a_fit_of_a_tiny_table_gives_a_result_and_a_warning(name):
    cases = list(product(FITS[name], TABLES.values(), ROWS_AND_FEATURES))
    if SOAK < 1:  # of each fit and table one shape
        cases = [case for place, case in enumerate(cases) if place % 3 == place // 3 % 3]
    taken = [
        is_noise_taken_for_a_component(getattr(eigenveil, name)(**options), table, *shape)
        for options, table, shape in cases
    ]
    assert sum(taken) <= binom.isf(FALSE_ALARM, len(taken), RATE)
