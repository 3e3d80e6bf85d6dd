"""What protocols would give, and which one is chosen."""

from functools import cache

import numpy as np
import pytest

from eigenveil import DataError
from eigenveil.federation.study.study import make_study
from eigenveil.linalg.subspace import captured_energy
from eigenveil.planning import protocol
from eigenveil.planning.forecast import forecast, noise_factors, pooled
from eigenveil.planning.predict import parse_spectrum
from eigenveil.planning.protocol import choose_protocol


def study(**changes):
    usual = {
        "name": "trial",
        "features": 60,
        "components": 5,
        "protocol": "cape",
        "sites": [{"name": f"site-{i}"} for i in range(4)],
    }
    return make_study(**(usual | changes))


def energy(made, rows, fits=4):
    """Mean over so many fits: of four its spread is below 0.02."""
    return forecast(made, made.width, rows, fits=fits).captured_energy


# -- forecasts


def test_hidden_sums_are_as_good_as_pooled_rows():
    for delta in (1e-6, 0.0):
        made = study(delta=delta)
        best = pooled(made, 60, 4000, fits=4).captured_energy
        assert abs(energy(made, 4000) - best) < 0.03


def test_protocols_are_in_the_order_that_theory_says():
    made = study(epsilon=0.5, features=100, components=10)
    found = {p: energy(made.changed(protocol=p), 4000) for p in ("cape", "full", "local")}
    assert found["cape"] > found["full"] + 0.01
    assert found["full"] > found["local"] + 0.05


def test_colluding_lost_and_wishing_sites_cost_energy():
    made = study(epsilon=0.5)
    plain = energy(made, 3000)
    assert energy(made.changed(collusion=3), 3000) < plain - 0.05
    assert energy(made.changed(dropouts=1, collusion=1), 3000) < plain - 0.02
    wishing = made.changed(sites=[{"name": f"s{i}", "epsilon": 0.25} for i in range(4)])
    # the same as all wishing for less, and as half the rows
    less = energy(wishing, 3000)
    assert abs(less - energy(made.changed(epsilon=0.25), 3000)) < 0.03
    assert less < plain - 0.05


def test_noise_factors():
    made = study(collusion=1, dropouts=1)
    plan = made.plan(60)
    assert noise_factors(made, plan) == dict.fromkeys(plan.fractions, np.sqrt(2.0))
    full = made.changed(protocol="full")
    assert noise_factors(full, full.plan(60))["moment"] == 2.0
    pure = made.changed(delta=0.0, dropouts=0)  # 61 columns in 3 shares of 21, of which 4 come
    assert noise_factors(pure, pure.plan(60))["moment"] == np.sqrt(84 / 61)


def dpdispca(made, spectrum, rows, rng):
    """The protocol by hand: centred rows, exact isometric noise, no other step's noise."""
    d, rank = made.width, made.sketch_columns
    data = rng.standard_normal((rows, d)) * np.sqrt(spectrum)
    sigma = 1.0 / made.plan(d).budgets["moment"].mu
    total = np.zeros((d, d))
    for part in np.array_split(data, len(made.sites)):
        unit = part / np.linalg.norm(part, axis=1, keepdims=True)
        square = sigma * rng.standard_normal((d, d))
        values, vectors = np.linalg.eigh(unit.T @ unit + (square + square.T) / 2)
        kept = vectors[:, -rank:]
        total += (kept * np.maximum(values[-rank:], 0.0)) @ kept.T
    _, vectors = np.linalg.eigh(total)
    return captured_energy(data.T @ data, vectors[:, -made.components :].T)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_dpdispca_is_forecast_as_it_comes_out(epsilon):
    # means of ten with spreads below 0.015 each
    made = study(protocol="dpdispca", epsilon=epsilon)
    spectrum, rng = parse_spectrum("power:1.0", 60), np.random.default_rng()
    measured = np.mean([dpdispca(made, spectrum, 4000, rng) for _ in range(10)])
    assert abs(energy(made, 4000, fits=10) - measured) < 0.05


def test_many_sites_of_dpdispca_are_simulated_with_fewer():
    made = study(protocol="dpdispca", sites=[{"name": f"s{i}"} for i in range(40)], features=20)
    found = forecast(made, 20, 40_000, fits=4)
    assert "simulated with 16 sites" in found.note
    assert 0.5 < found.captured_energy <= 1


def test_sizes_are_counted():
    d, k = 60, 5
    sizes = {
        p: forecast(study(protocol=p), d, None) for p in ("cape", "sketch", "dpdispca", "full")
    }
    assert sizes["cape"].message_bytes == sizes["full"].message_bytes == 8 * d * (d + 1) // 2
    assert sizes["sketch"].message_bytes == 8 * d * 4 * k
    assert sizes["dpdispca"].message_bytes == 8 * d * 2 * k
    r = 4 * k  # the second moment is released twice
    again = {"cape": sizes["cape"].message_bytes, "sketch": 8 * r * (r + 1) // 2}
    for p, found in sizes.items():
        assert found.captured_energy is None
        assert 0 < found.round_bytes - found.message_bytes - again.get(p, 0) < 10_000
        assert found.memory_bytes > found.message_bytes
    bare = study(center=False, row_bound=1.0, budget_split={"moment": 1.0})
    found = forecast(bare, d, None)
    assert found.round_bytes == 2 * found.message_bytes
    once = forecast(study(center=False, row_bound=1.0, mechanism="gaussian"), d, None)
    assert once.round_bytes - once.message_bytes < 100


def test_forecasts_repeat_and_say_why_there_is_none():
    made = study()
    once = forecast(made, 60, 2000, fits=2)
    assert forecast(made, 60, 2000, fits=2) == once
    assert forecast(made, 60, 2000, parse_spectrum("power:1.0", 60), fits=2) == once
    assert "too few" in forecast(made, 60, 3).note
    found = forecast(made.changed(epsilon=0.001), 60, 100)
    assert found.captured_energy is None
    assert "nothing above its noise" in found.note
    with pytest.raises(DataError, match="spectrum"):
        forecast(made, 60, 1000, "other:1")


# -- choosing


def auto(**changes):
    return study(protocol="auto", **changes)


def test_pure_epsilon_and_single_sites_leave_no_choice():
    for made in (auto(delta=0.0, features=9000), auto(sites=[{"name": "a"}], features=9000)):
        assert choose_protocol(made, 9000).protocol == "cape"


def test_without_rows_the_sizes_decide():
    small = choose_protocol(auto(), 60)
    assert small.protocol == "cape"
    assert "14.3 KiB" in small.reason
    large = choose_protocol(auto(features=20_000), 20_000)
    assert large.protocol == "sketch"
    assert "too large" in large.reason
    # who says how large a sketch is wants one
    wide = choose_protocol(auto(sketch_size=15), 60)
    assert wide.protocol == "sketch"


def test_predicted_energy_decides(monkeypatch):
    monkeypatch.setattr(protocol, "forecast", cache(forecast))
    made = auto(expected_rows=4000, components=10, epsilon=0.5)
    found = choose_protocol(made, 60)
    cape, sketch = (
        protocol.forecast(made.with_protocol(p), 60, 4000, "power:1.0").captured_energy
        for p in ("cape", "sketch")
    )
    assert abs(cape - sketch) > 0.01
    assert found.protocol == ("cape" if cape > sketch else "sketch")
    assert f"{cape:.3f}" in found.reason
    assert f"{sketch:.3f}" in found.reason
    assert "4,000 rows" in found.reason
    assert made.settled().protocol == found.protocol


def test_equal_predictions_leave_it_to_the_message():
    made = auto(expected_rows=10_000_000, components=2, features=20)
    found = choose_protocol(made, 20, "spike:2:0.9")
    assert found.protocol == "sketch"
    assert "sends less" in found.reason


def test_where_nothing_can_be_predicted_the_sizes_decide():
    found = choose_protocol(auto(expected_rows=100, epsilon=0.001), 60)
    assert found.protocol == "cape"
    assert "small enough" in found.reason


def test_more_memory_than_machines_have_is_never_chosen():
    made = auto(features=60_000, expected_rows=1_000_000)
    assert choose_protocol(made, 60_000).protocol == "sketch"
