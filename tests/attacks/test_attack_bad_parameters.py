"""Parameters that cannot be: refused in the plan, before anything is released."""

import numpy as np
import pytest

from eigenveil.errors import DataError, PrivacyError
from eigenveil.models.options import options_of
from eigenveil.models.task import TASKS
from eigenveil.noise.source import SecureSource, SeededSource

ESTIMATORS = [
    (task, path) for task in TASKS.values() for path in task.estimators if path != "tracking"
]
BAD = [
    ("budget_split", {}),
    ("center", [1.0]),
    ("center", [1e308] * 4),
    ("covariates", ["nobody"]),
    ("covariates", [4]),
    ("data_set", "rows"),  # without a ledger
    ("max_rows_per_unit", 2),  # of no unit
    ("power_rounds", -1),
    ("horizon", -1),
    ("forgetting", 1.5),
    ("ranges", [[1.0, 0.0]] * 4),
    ("scale", [-1.0, 1.0, 1.0, 1.0]),
    ("scale", [1.0]),
    ("site_epsilon", {"nobody": 1.0}),
    ("sites_per_unit", 3),  # of two sites
]
TOGETHER = {
    "power_rounds": {"mechanism": "power"},
    "horizon": {"publish": "continual", "adjacency": "replace-one"},
    "forgetting": {"publish": "blocks"},
}


@pytest.mark.parametrize(("name", "value"), BAD, ids=str)
def test_nothing_is_released(name, value, monkeypatch):
    drawn, tried = [], 0
    for source in (SecureSource, SeededSource):
        monkeypatch.setattr(source, "words", lambda *_: drawn.append(1) or 1 / 0)
    rows = np.random.default_rng(0).integers(1, 5, (40, 4)).astype(float)
    for task, path in ESTIMATORS:
        if name not in options_of(task.name, path):
            continue
        model = task.estimator(path)(**TOGETHER.get(name, {}) | {name: value})
        with pytest.raises((DataError, PrivacyError)) as caught:
            model.fit({"a": rows[:20], "b": rows[20:]} if path == "sites" else rows)
        assert not drawn
        assert getattr(caught.value, "spent", None) is None
        assert caught.value.hint
        tried += 1
    assert tried
