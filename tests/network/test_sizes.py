"""Every message of every kind of study fits its step's bound, and the large ones nearly fill it."""

import numpy as np
import pytest

from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import make_study
from eigenveil.models.task import TASKS
from eigenveil.network.sizes import SMALL, Sizes
from federation.roles_tools import DELTA, Consortium, Wire, carry, lost_at, rows_of
from federation_tools import identities

NAMED = {"features": None, "columns": tuple(f'a "column" {n}, µ\n' for n in range(5))}
STUDIES = [
    {},
    {"row_bound": 9.0},
    {"mechanism": "gaussian", "center": False, "row_bound": 9.0},
    {"protocol": "full"},
    {"protocol": "dpdispca", "center": False},
    {"protocol": "sketch", "features": 40},
    {"protocol": "local"},
    {"masks": "pairwise"},
    {"masks": "helper"},
    {"sites": 6, "dropouts": 1},
    {"sites": 6, "dropouts": 2, "collusion": 1, "row_bound": None},
    {"sites": 9, "neighbours": 4},
    {"epsilon": 40.0, "delta": 0.0},
    {"features": 200, "components": 20},
    {"scale": "private"},
    {"missing": "pairs"},
    {"row_norm": "auto"},
    {"components": 0.9},
    NAMED | {"covariates": [0, 3]},
    *({"task": task} for task in TASKS if task != "pca"),
    {"task": "gaussian-mixture", "covariance_type": "full", "components": 4, "features": 40},
    {"task": "gaussian-mixture", "covariance_type": "tied", "components": "auto"},
    {"task": "topic-model", "protocol": "sketch", "features": 40},
]


def a_study(fields):
    usual = {"name": "t", "features": 5, "components": 2, "protocol": "cape", "sites": 3}
    fields = usual | {"epsilon": 30.0, "delta": DELTA} | fields
    if not TASKS[fields.get("task", "pca")].counted:
        fields["components"] = None
    fields["sites"] = [{"name": f"s{n}"} for n in range(fields["sites"])]
    return make_study(**fields)


def carried(study, folder, fate=None, rows=300):
    found, known = rows_of(study, rows), identities(tuple(study.names))
    if study.task == "topic-model":
        rng = np.random.default_rng(0)
        found = {name: rng.poisson(3.0, each.shape).astype(float) for name, each in found.items()}
    consortium = Consortium(study, folder, rows=found, times=3.0, identities=known)
    wire = Wire(consortium.parties, fate)
    aggregator = Aggregator(settle(study), identity=known["aggregator"])
    carry(aggregator.run(), wire)
    return wire.carried


@pytest.mark.parametrize("fields", STUDIES, ids=str)
def test_every_message_fits(fields, tmp_path):
    study = a_study(fields)
    lost = study.dropouts and lost_at(("s1", "round 1"), ("s0", "survivors 1"))
    steps, sizes = set(), Sizes(study)
    for _, step, question, answer in carried(study, tmp_path, lost or None):
        room = sizes.bound(step), sizes.bound(step, answer=True)
        assert len(question) <= room[0], (step, len(question), room)
        assert len(answer) <= room[1], (step, len(answer), room)
        steps.add(step.partition(" ")[0])
    assert {"join", "round", "end"} <= steps


def test_a_gram_matrix_is_hardly_larger_for_it(tmp_path):
    study = a_study({"features": 784, "components": 10, "sites": 2, "mechanism": "gaussian"})
    sizes, bounds = {}, Sizes(study)
    for _, step, question, answer in carried(study, tmp_path, rows=60):
        sizes[step, False] = len(question)
        sizes[step, True] = len(answer)
    padded = {key: bounds.bound(key[0], answer=key[1]) for key in sizes}
    large = max(sizes, key=sizes.get)
    assert sizes[large] > 8 * 784 * 785 // 2
    assert padded[large] <= 1.005 * sizes[large]
    assert sum(padded.values()) <= 1.2 * sum(sizes.values())
    assert bounds.bound("another") == SMALL
