"""What comes out of a whole study carries the recorded noise: no more, no less.

The histogram of norms is released first, from rows all of one norm: 323 coordinates a run, whose
exact values are known.
"""

import math

import numpy as np
import pytest

from eigenveil import FederatedPCA
from eigenveil.federation.protocol.sums import RoundTotals
from eigenveil.moments.histograms import BINS
from statistics_tools import FALSE_ALARM, OFF_BY_30_PERCENT, REJECTED, gaussian_variance, kolmogorov

SITES = {"a": 500, "b": 300, "c": 700}


@pytest.fixture
def released(monkeypatch):
    """Releases of each run's first round, as the aggregator has them."""
    found = []
    original = RoundTotals.releases

    def releases(self, arrived):
        out = original(self, arrived)
        if "scale" in out:
            found.append(out["scale"])
        return out

    monkeypatch.setattr(RoundTotals, "releases", releases)
    return found


def noise_of(released, runs=5, **options):
    """Noise of all coordinates of all runs, and the recorded scale."""
    rng = np.random.default_rng()
    rows = {}
    for name, count in SITES.items():
        drawn = rng.standard_normal((count, 3))
        rows[name] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * 1.1
    for _ in range(runs):
        FederatedPCA(1, epsilon=8.0, **options).fit(rows)
    values = np.array([release.values for release in released])
    total = sum(SITES.values())
    exact = np.zeros(BINS + 1)
    exact[BINS] = total
    exact[int(np.argmax(values.mean(axis=0)[:BINS]))] = total
    return (values - exact).ravel(), released[0].record


CASES = [
    {"masks": "modular"},
    {"masks": "modular", "dropouts": 1},
    {"masks": "modular", "collusion": 1},
    {"masks": "pairwise"},
    {"masks": "helper", "collusion": 1},
    {"protocol": "full"},
]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_gaussian_noise_is_that_of_the_shares_that_arrived(options, released):
    noise, record = noise_of(released, **options)
    deviation = record.noise.scale
    assert gaussian_variance(noise, deviation**2) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert gaussian_variance(noise, (factor * deviation) ** 2) < REJECTED
    lost = options.get("dropouts", 0) + options.get("collusion", 0)
    needed = record.noise.scale * math.sqrt((3 - lost) / 3)  # of one curator
    assert record.sensitivity() / needed == pytest.approx(record_of_one(options).mu(), rel=1e-6)


def record_of_one(options):
    """The first release of the same study with one site."""
    target = {k: v for k, v in options.items() if k == "protocol"}
    rows = np.random.default_rng(0).standard_normal((1500, 3))
    return FederatedPCA(1, epsilon=8.0, **target).fit([rows]).certificate_.releases[0]


@pytest.mark.thorough
def test_shared_laplace_noise_is_laplace(released):
    noise, record = noise_of(released, runs=40, delta=0.0)
    # 1/2048 of the variance is the smoothing's; Massart's bound does not see it at this size

    def cdf(values, scale=record.noise.scale):
        half = 0.5 * np.exp(-np.abs(values) / scale)
        return np.where(values < 0, half, 1 - half)

    assert kolmogorov(noise, cdf) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert kolmogorov(noise, lambda v, f=factor: cdf(v, f * record.noise.scale)) < REJECTED
