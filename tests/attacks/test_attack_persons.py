"""A person with many rows turns the first component of a fit that protects rows.

One of 4000 persons has 3000 of 20000 rows, all in a direction of its own. At eps = 1 that direction
was the first component of every fit, and the certificate was right: of rows. With the column of
persons named, each counts once, and the component is that of all the others, of one table and of
sites. Here each is shown beyond the noise: the angle to the exact component of what is summed is at
most 2 |N| / gap (Yu, Wang, Samworth 2015), and noise of scale s in D columns has a norm above
s (sqrt(2 D) + t) with a chance of exp(-t^2 / 2) at most, below 1e-9 here.
"""

import math

import numpy as np
import pandas as pd
import pytest

from eigenveil import FederatedPCA, PrivatePCA

D, ROWS, PERSON, OTHERS = 20, 20000, 3000, 4000
CHANCE = 1e-9


def table():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((ROWS, D))
    rows[:, 0] *= math.sqrt(5.0)
    rows[-PERSON:] = 7.0 * np.eye(D)[1]
    ids = rng.integers(0, OTHERS, ROWS)
    ids[-PERSON:] = OTHERS
    return rows, ids


ROWS_, IDS = table()


def exact_moment(weights):
    unit = ROWS_ / np.linalg.norm(ROWS_, axis=1, keepdims=True)
    return (unit * weights[:, None]).T @ unit


def fitted(how, **options):
    one = {"epsilon": 1.0, "delta": 1e-5, "center": False, **options}
    frame = pd.DataFrame(ROWS_, columns=[f"x{number}" for number in range(D)])
    if options:
        frame["person"] = IDS
    if how == "table":
        return PrivatePCA(2, **one).fit(frame)
    site = IDS % 3  # all rows of a person are at one
    parts = {name: frame[site == number] for number, name in enumerate(("north", "south", "west"))}
    return FederatedPCA(2, protocol="cape", **one).fit(parts)


def is_along(model, weights, axis):
    """Whether the first component is within 30 degrees of the axis; first, that it must be."""
    values, vectors = np.linalg.eigh(exact_moment(weights))
    precision = [
        record.noise.scale**-2
        for record in model.certificate_.releases
        if record.statistic == "second-moment"
    ]
    scale = sum(precision) ** -0.5  # of the releases together
    noise = scale * (math.sqrt(2 * D) + math.sqrt(2 * math.log(1 / CHANCE)))
    own = math.degrees(math.acos(min(1.0, abs(vectors[axis, -1]))))
    assert 2 * noise / (values[-1] - values[-2]) + math.sin(math.radians(own)) < 0.5
    return abs(model.components_[0, axis]) > math.cos(math.radians(30))


@pytest.mark.parametrize("how", ["table", "sites"])
def test_a_person_with_many_rows_turns_no_component(how):
    counts = np.bincount(IDS)
    assert is_along(fitted(how, unit="person"), 1 / counts[IDS], 0)


def test_where_rows_are_protected_it_did():
    model = fitted("table")
    assert model.guarantee_.certified
    assert is_along(model, np.ones(ROWS), 1)
