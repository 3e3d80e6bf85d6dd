"""Every sensitivity against a search for the worst pair of neighbours among rows of norm 1."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from eigenveil.privacy.guarantee import ADJACENCIES
from eigenveil.privacy.releases import Noise, ReleaseRecord

D = 3
BASIS, _ = np.linalg.qr(np.random.default_rng().standard_normal((D, D)))


def l1(v):
    return np.sum(np.abs(v))


def nuclear(v):
    return np.sum(np.linalg.svd(v.reshape(D, D))[1])


l2 = np.linalg.norm


def moment(x):
    return np.outer(x, x).ravel()  # the Frobenius norm is the isometric one


def sketch(clip):
    def one(x):
        seen = BASIS[:, :2].T @ x
        return np.outer(x, seen * min(1.0, clip / max(np.linalg.norm(seen), 1e-300))).ravel()

    return one


def energies(gain):
    def one(x):
        along = gain * (BASIS[:, :2].T @ x) ** 2
        return np.append(along, max(0.0, gain * (x @ x) - along.sum()))

    return one


# statistic, noise, parameters, norm, contribution of a row without the count
CASES = {
    "row sum": ("row-sum", "gaussian", {}, l2, lambda x: x),
    "row sum, count": ("row-sum", "gaussian", {"count_weight": 0.25}, l2, lambda x: x),
    "row sum, heavy count": ("row-sum", "vector", {"count_weight": 2.0}, l2, lambda x: x),
    "second moment": ("second-moment", "gaussian", {}, l2, moment),
    "second moment, trace": ("second-moment", "wishart", {}, nuclear, moment),
    "sketch": ("sketch", "gaussian", {"clip": 0.03}, l2, sketch(0.03)),
    "energies": ("component-energy", "gaussian", {}, l2, energies(1.0)),
    "energies, L1": ("component-energy", "laplace", {}, l1, energies(1.0)),
    "energies, count": (
        "component-energy",
        "gaussian",
        {"gain": 1.1, "count_weight": 0.25},
        l2,
        energies(1.1),
    ),
    "energies, count, L1": (
        "component-energy",
        "laplace",
        {"gain": 1.1, "count_weight": 0.25},
        l1,
        energies(1.1),
    ),
}


def record(statistic, kind, adjacency, parameters=None):
    noise = Noise(kind=kind, scale=1.0, size=9, grid=-26)
    return ReleaseRecord(
        name="test", statistic=statistic, adjacency=adjacency, noise=noise, **(parameters or {})
    )


def in_ball(z):
    return z / max(1.0, np.linalg.norm(z))


def worst(contribution, norm, count_weight, adjacency):
    """The largest change found, from random starts and from the axes of the basis."""

    def change(z):
        if adjacency == "add-remove":
            return norm(np.append(contribution(in_ball(z)), count_weight)[: 9 + bool(count_weight)])
        return norm(contribution(in_ball(z[:D])) - contribution(in_ball(z[D:])))

    rows = 1 if adjacency == "add-remove" else 2
    first, _, outside = BASIS.T
    axes = [
        s * v for v in (*BASIS.T, 0.03 * first + outside, 0.03 * first - outside) for s in (1, -1)
    ]
    starts = [np.concatenate(pair) for pair in product(axes, repeat=rows)]
    starts += list(np.random.default_rng().standard_normal((30, rows * D)))
    best = max(starts, key=change)
    found = [change(best)]
    for start in [best, *starts[-30:]]:
        found.append(-minimize(lambda z: -change(z), start, method="Nelder-Mead").fun)
    return max(found)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("case", CASES)
def test_claim_is_the_worst_case_found(case, adjacency):
    statistic, kind, parameters, norm, contribution = CASES[case]
    claimed = record(statistic, kind, adjacency, parameters).sensitivity()
    found = worst(contribution, norm, parameters.get("count_weight", 0.0), adjacency)
    assert 0.999 * claimed <= found <= claimed * (1 + 1e-9)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("clip", [0.3, 0.8, 1.0])
def test_sketch_with_a_wide_clip_moves_less_than_claimed(clip, adjacency):
    claimed = record("sketch", "gaussian", adjacency, {"clip": clip}).sensitivity()
    found = worst(sketch(clip), l2, 0.0, adjacency)
    assert 0.7 * claimed <= found <= claimed * (1 + 1e-9)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_histogram(adjacency):
    one_hot = np.eye(4)
    if adjacency == "add-remove":  # the count is released too
        changes = [np.append(bin_, 1.0) for bin_ in one_hot]
    else:
        changes = [a - b for a, b in product(one_hot, repeat=2)]
    for kind, norm in (("gaussian", l2), ("laplace", l1)):
        claimed = record("norm-histogram", kind, adjacency).sensitivity()
        assert max(map(norm, changes)) == pytest.approx(claimed, rel=1e-15)


def bingham_loss(moment_, one, two):
    """Largest log ratio of the densities exp(u' A u) on the circle, by quadrature."""
    angle = (np.arange(40_000) + 0.5) * (math.pi / 40_000)
    u = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    logs = []
    for extra in (one, two):
        score = np.einsum("ni,ij,nj->n", u, moment_ + extra, u)
        logs.append(score - score.max() - math.log(np.mean(np.exp(score - score.max()))))
    return np.max(np.abs(logs[0] - logs[1]))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_exponential_mechanism_loses_what_is_claimed(adjacency):
    """The exact privacy loss over data sets and neighbours; scale 1, one draw."""
    claimed = record("bingham-vectors", "bingham", adjacency).epsilon()
    rng, losses = np.random.default_rng(), []
    data = [np.diag([0.0, 1e4])]  # next to such data a row along the weak axis is seen best
    data += [np.diag([0.0, s]) for s in rng.exponential(20, 6)]
    for base in data:
        rows = [in_ball(z) for z in rng.standard_normal((4, 2)) * 3] + [np.eye(2)[0], np.eye(2)[1]]
        for x, y in product(rows, repeat=2):
            other = 0.0 if adjacency == "add-remove" else np.outer(y, y)
            losses.append(bingham_loss(base, np.outer(x, x), other))
    assert 0.999 * claimed <= max(losses) <= claimed * (1 + 1e-9)
