"""The computable theorems at toy scale: what is promised, what is counted, and wrong numbers.

Bounds of norms fail with chance 1e-6 by their own statement, at about half of what they allow on
average; tasks are seeded by what they do, so that verdicts are the same every time.
"""

import math

import numpy as np
import pytest

from eigenveil_papers.published.moments import with_gaussian
from eigenveil_papers.published.sn import wishart_noise
from eigenveil_papers.reproduction import theory_bounds, theory_streams
from eigenveil_papers.reproduction.experiment import RunSettings
from eigenveil_papers.reproduction.numbers import Measured, Numbers
from eigenveil_papers.reproduction.page import EXPERIMENTS

TOY = RunSettings(scale="toy")


VERDICTS = {
    "003-theorem2": ["holds"] * 3,
    "001-bounds": ["holds"] * 3 + ["does not hold"],
    "001-costs": ["holds", "holds", "does not hold"],
    "001-unequal": ["in part", "in part", "does not hold", "in part"],
    "000-orders": ["holds", "holds", "holds", "in part"],
    "002-lemma2": ["holds", "holds", "holds", "does not hold", "holds"],
}


@pytest.mark.parametrize("name", VERDICTS)
def test_every_theorem_has_a_verdict(measured, name):
    claims = EXPERIMENTS[name].claims(measured(name), TOY)
    assert [claim.verdict for claim in claims] == VERDICTS[name]
    assert all(math.isfinite(row.value) for row in measured(name).measured)


@pytest.mark.parametrize("panel", ["energy-epsilon", "distance-features"])
def test_one_fit_above_its_bound_is_enough_to_refute_it(measured, panel):
    rows = list(measured("003-theorem2").measured)
    at = next(i for i, row in enumerate(rows) if (row.panel, row.series) == (panel, "measured"))
    bound = measured("003-theorem2").at(panel, "bound", rows[at].x)
    rows[at] = rows[at]._replace(value=1.01 * bound)
    claims = EXPERIMENTS["003-theorem2"].claims(Numbers(rows), TOY)
    which = theory_bounds.MEASURES.index(panel.split("-")[0])
    assert claims[which].verdict == "in part"  # one of its two sweeps


def test_a_bound_is_for_each_fit_and_not_for_their_mean():
    """One of 40 fits above it, and a mean that is shown to be far below it."""

    def of(worst):
        shares = [worst] + [0.1 + 0.001 * run for run in range(1, 40)]
        rows = [Measured("p", "measured", 1.0, 7.0 * of, run) for run, of in enumerate(shares)]
        return Numbers(rows + [Measured("p", "bound", 1.0, 7.0, run) for run in range(40)])

    assert theory_bounds.bounded("", "", of(0.2), ["p"]).verdict == "holds"
    found = theory_bounds.bounded("", "", of(1.01), ["p"])
    assert found.verdict == "in part"
    assert "1 at the worst of 40 fits" in found.measured


@pytest.mark.parametrize("features", [4, 32, 128])
def test_the_norms_that_bounds_are_drawn_for_hold_and_are_no_multiples(features):
    rng = np.random.default_rng()
    for most, norms in (
        (
            theory_bounds.norm_of_wishart(features, 0.3),
            [np.linalg.norm(wishart_noise(features, 0.3, rng), 2) for _ in range(20)],
        ),
        (
            theory_bounds.norm_of_gauss(features, 0.7),
            [
                np.linalg.norm(with_gaussian(np.zeros((features, features)), 0.7, rng), 2)
                for _ in range(20)
            ],
        ),
    ):
        assert max(norms) <= most  # false with chance 2e-5 by the bound, by far less in fact
        assert np.mean(norms) > most / (3.0 if features > 4 else 10.0)


def test_the_proofs_inequalities_hold_for_any_noise():
    """Without chance: the three bounds for the spectral norm that the noise really has."""
    rng = np.random.default_rng()
    for scale in (0.01, 0.1, 1.0, 10.0):
        exact = np.diag(np.sort(rng.uniform(0, 1, 12)))
        noise = with_gaussian(np.zeros((12, 12)), scale, rng)
        found = theory_bounds.measures(exact, exact + noise, 3)
        most = theory_bounds.promised(exact, 3, float(np.linalg.norm(noise, 2)))
        assert np.all(np.array(found) <= np.array(most) * (1 + 1e-9))


def test_a_message_that_is_not_counted_is_seen(measured):
    rows = [
        row._replace(value=row.value - 64) if row.series == "counted" else row
        for row in measured("001-costs").measured
    ]
    claims = EXPERIMENTS["001-costs"].claims(Numbers(rows), TOY)
    assert [claim.verdict for claim in claims[:2]] == ["does not hold", "does not hold"]


def test_a_variance_of_another_order_is_seen(measured):
    rows = [
        row._replace(value=row.value * 1.5) if row.series == "full" else row
        for row in measured("000-orders").measured
    ]
    assert EXPERIMENTS["000-orders"].claims(Numbers(rows), TOY)[2].verdict == "does not hold"


def test_where_a_curve_reaches_the_level_is_interpolated():
    def of(*values):
        return theory_streams.needed(np.arange(1.0, len(values) + 1), np.array(values))

    assert of(0.2, 0.6, 0.8) == (pytest.approx(2.5), 0)
    assert of(0.2, 0.6) == (2.0, 1)
    assert of(0.9, 0.95) == (1.0, -1)


@pytest.mark.parametrize(
    ("curves", "below", "above"),
    [
        ({16: (0.2, 0.6), 64: (0.2, 0.8)}, True, False),  # the small D needs more than is known
        ({16: (0.2, 0.8), 64: (0.2, 0.6)}, False, True),
        ({16: (0.9, 0.9), 64: (0.2, 0.8)}, False, True),  # the small D needs less
        ({16: (0.2, 0.8), 64: (0.9, 0.9)}, True, False),
        ({16: (0.2, 0.8), 64: (0.2, 0.8)}, False, False),
    ],
)
def test_where_only_a_bound_of_the_rows_is_known_so_it_is_of_the_exponent(curves, below, above):
    """A curve that never reaches the level must not count as one that grows slowly."""
    numbers = Numbers(
        Measured(f"d{size}", "mod-sulq", x, value, run)
        for size, values in curves.items()
        for x, value in enumerate(values, start=1)
        for run in range(3)
    )
    found = theory_streams.growth(numbers, "mod-sulq")
    assert (found.below, found.above) == (below, above)


def test_the_exponent_is_that_of_the_rows_and_its_interval_that_of_the_runs():
    exponents = np.array([0.1, 0.2, 0.3, 0.4])
    numbers = Numbers(
        Measured(f"d{size}", "mod-sulq", x * size**exponent, value, run)
        for run, exponent in enumerate(exponents)
        for size in (16, 32, 128)
        for x, value in ((1.0, 0.2), (2.0, 0.6), (3.0, 0.8))
    )
    found = theory_streams.growth(numbers, "mod-sulq")
    assert found.value == pytest.approx(0.25)
    assert found.error == pytest.approx(np.std(exponents, ddof=1) / 2)
    assert found.free == 3


def test_rows_that_grow_faster_than_the_order_are_seen(measured):
    """As if every D needed rows in proportion to D^2 in place of D^1.5."""
    rows = [
        row._replace(x=row.x * math.sqrt(int(row.panel[1:]))) if row.panel[0] == "d" else row
        for row in measured("002-lemma2").measured
    ]
    claims = EXPERIMENTS["002-lemma2"].claims(Numbers(rows), TOY)
    assert [claim.verdict for claim in claims[:3]] == ["does not hold"] * 3
