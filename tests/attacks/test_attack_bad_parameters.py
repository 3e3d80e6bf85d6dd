"""Parameters that cannot be: refused in the plan, before anything is released.

Before, ``PrivatePCA(mechanism="power", power_rounds=-1)`` released the scale and the centre, then
died of an UnboundLocalError, without saying what was spent; others died of overflows, and a
thousand million rounds of all memory.
"""

from __future__ import annotations

import numpy as np
import pytest

import eigenveil
from eigenveil.errors import DataError, PrivacyError
from eigenveil.noise.source import SecureSource, SeededSource

NAN, INF = float("nan"), float("inf")
WHOLE = [-1, 0, True, np.True_, 2.0, 2.5, "2", NAN, 10**30, [2], b"2"]
POSITIVE = [-1.0, 0.0, NAN, INF, -INF, 1e308, 1e-320, True, "1", [1.0], 10**400, 1j]
CHOICE = ["", "none of these", 1, True, None, ["auto"], NAN]
FLAG = ["yes", 2, NAN, None]
BAD = {
    "n_components": WHOLE,
    "sketch_size": WHOLE,
    "power_rounds": [*WHOLE, 1001],
    "horizon": WHOLE,
    "forgetting": [0.0, -0.5, 1.5, NAN, INF, True, "1", [1.0], None],
    "neighbours": WHOLE,
    "epsilon": [each for each in POSITIVE if each != 1e-320] + [None],
    "delta": [-1e-9, 1.0, 2.0, NAN, INF, True, "0.1", None, [0.1]],
    "row_bound": POSITIVE,
    "row_norm": [*POSITIVE[:-3], "none of these", [1.0], None],
    "noise_variance": [-1.0, NAN, INF, 1e308, True, "1", [1.0]],
    "mechanism": CHOICE,
    "adjacency": CHOICE,
    "protocol": CHOICE,
    "masks": CHOICE,
    "invalid": CHOICE,
    "pair": CHOICE,
    "covariance_type": CHOICE,
    "publish": CHOICE,
    "noise": CHOICE,
    "collusion": [-1, True, 1.5, "1", NAN, 10**30, None],
    "dropouts": [-1, True, 1.5, "1", NAN, 10**30, None],
    "alpha0": [-1.0, 1e-9, 1e9, NAN, INF, True, "1", "most", [1.0], None],
    "clip_documents": FLAG,
    "whiten": FLAG,
    "center": ["yes", NAN, [1.0], [NAN] * 4, [1e308] * 4, {}, None],
    "budget_split": [
        {},
        {"moment": -1.0},
        {"moment": NAN},
        {"moment": "1"},
        {"moment": True},
        {"moment": 1e308, "scale": 1e308},
        {"moment": 1.0, "scale": 1e-300, "center": 1.0, "tensor": 1.0},
        {"none of these": 1.0},
        {3: 1.0},
        "moment=1",
        [1.0],
    ],
    "site_epsilon": [{"a": -1.0}, {"a": NAN}, {"nobody": 1.0}, {"a": 1e308}, {"a": "1"}, [1.0]],
    "expected_rows": WHOLE,
    "unit": ["", "a\n", 1, True, ["id"]],
    "max_rows_per_unit": [*WHOLE, 2],  # of no unit
    "sites_per_unit": [*WHOLE, 3],  # of two sites
    "scale": ["privat", "", True, 2.0, NAN, [NAN] * 4, [-1.0, 1.0, 1.0, 1.0], [1.0]],
    "ranges": ["private", 1.0, [[1.0] * 4], [[1.0] * 4, [0.0] * 4], [[NAN] * 4, [1.0] * 4]],
    "covariates": [[], (), "age", 0, ["nobody"], [4], [0, 0], [-1], [True], [1.0], [0, "b"], {0}],
    "ledger": [1, True, [], NAN],
    "data_set": ["rows", "", 1, True],  # without a ledger
    "missing": ["none", "drop", True, NAN, 1],
    "random_state": ["1", -1, 1.5, [1], NAN, True],
}
ONE = ["PrivatePCA", "PrivateGaussianMixture", "PrivateTopicModel", "PrivateStreamingPCA"]
SITES = ["FederatedPCA", "FederatedGaussianMixture", "FederatedTopicModel"]
TOGETHER = {
    "power_rounds": {"mechanism": "power"},
    "horizon": {"publish": "continual", "adjacency": "replace-one"},
    "forgetting": {"publish": "blocks"},
}
CASES = [
    (name, parameter, value)
    for name in ONE + SITES
    for parameter in getattr(eigenveil, name)._get_param_names()
    for value in BAD.get(parameter, [])
]


def test_every_parameter_is_here():
    for name in ONE + SITES:
        assert set(getattr(eigenveil, name)._get_param_names()) <= set(BAD), name


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    CASES,
    ids=[f"{name}-{parameter}-{str(value)[:20]}" for name, parameter, value in CASES],
)
def test_nothing_is_released(name, parameter, value, monkeypatch):
    drawn = []
    for source in (SecureSource, SeededSource):
        monkeypatch.setattr(source, "words", lambda *_: drawn.append(1) or 1 / 0)
    rows = np.random.default_rng(0).integers(1, 5, (40, 4)).astype(float)
    model = getattr(eigenveil, name)(**TOGETHER.get(parameter, {}) | {parameter: value})
    with pytest.raises((DataError, PrivacyError)) as caught:
        model.fit({"a": rows[:20], "b": rows[20:]} if name in SITES else rows)
    assert not drawn
    assert getattr(caught.value, "spent", None) is None
    assert caught.value.hint
