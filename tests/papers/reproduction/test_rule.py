"""The rule that judges every claim: its rates, its symmetry, and mutants that favour one side.

Counts of random verdicts are held against their promised rates with a chance of false alarm below
1e-8; each mutant is rejected by the check that the rule passes.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from eigenveil_papers.reproduction import effects, rule
from eigenveil_papers.reproduction.experiment import Claim, Verdict
from eigenveil_papers.reproduction.numbers import Measured, Numbers
from statistics_tools import FALSE_ALARM, REJECTED

ENERGY = rule.Measure(unit="of the exact energy", margin=0.005)
ERRORS = rule.Measure(unit="", margin=1.05, ratio=True, less=True)
X = (0.1, 1.0, 10.0)
FORMS = {name: getattr(rule.Scope, name) for name in ("better", "no_worse", "same")}


def numbers_of(**series) -> Numbers:
    """Values of shape (positions, runs), by series."""
    return Numbers(
        Measured("panel", name, float(x), float(value), run)
        for name, values in series.items()
        for x, runs in enumerate(np.atleast_2d(values), start=1)
        for run, value in enumerate(runs)
    )


def about(means, *, spread=0.01, runs=10, rng=None):
    """Runs about means; without a generator exactly of that spread."""
    means = np.atleast_1d(np.asarray(means, dtype=float))
    if rng is not None:
        return means[:, None] + spread * rng.standard_normal((means.size, runs))
    unit = np.linspace(-1.0, 1.0, runs)
    return means[:, None] + spread * unit / np.std(unit, ddof=1)


def scope(numbers, measure=ENERGY, where="Figure 1"):
    return rule.Scope(numbers, where, ["panel"], measure)


def verdict(form, first, second, measure=ENERGY, where="Figure 1"):
    found = scope(numbers_of(a=first, b=second), measure, where)
    return form(found, "a is", "a", "b").verdict.outcome


# What the verdicts are


@pytest.mark.parametrize(
    ("gains", "better", "no_worse", "same"),
    [
        ([0.1, 0.2], "shown", "shown", "contradicted"),
        ([0.0, 0.2], "contradicted", "shown", "contradicted"),
        ([0.0, 0.0], "contradicted", "shown", "shown"),
        ([-0.1, 0.2], "contradicted", "contradicted", "contradicted"),
        ([-0.1, 0.0], "contradicted", "contradicted", "contradicted"),
        ([-0.1, -0.2], "contradicted", "contradicted", "contradicted"),
    ],
)
def test_clear_wins_ties_and_losses(gains, better, no_worse, same):
    first, second = about(gains, spread=0.001), np.zeros((2, 10))
    found = {name: verdict(form, first, second) for name, form in FORMS.items()}
    assert found == {"better": better, "no_worse": no_worse, "same": same}


@pytest.mark.parametrize("form", FORMS.values())
def test_noise_or_a_single_run_tells_nothing(form):
    assert verdict(form, about([0.02, 0.02], spread=0.5), np.zeros((2, 10))) == "undecided"
    assert verdict(form, [[0.9], [0.9]], [[0.1], [0.1]]) == "undecided"


def test_errors_are_compared_as_factors_and_less_is_better():
    half, whole = np.exp(about(np.log([0.5, 0.5]))), np.exp(about(np.log([1.0, 1.0]), spread=0.0))
    assert verdict(rule.Scope.better, half, whole, ERRORS) == "shown"
    assert verdict(rule.Scope.better, whole, half, ERRORS) == "contradicted"


def test_runs_are_paired():
    common = about([0.5, 0.5], spread=0.3)
    assert verdict(rule.Scope.better, common + about([0.02, 0.02], spread=0.001), common) == "shown"


def test_positions_are_counted_and_the_worst_names_the_whole():
    of = Verdict.of
    assert of([]).outcome == of(["not tested"]).outcome == "not tested"
    assert of(["shown", "not tested"]).outcome == "shown"
    assert of(["shown", "undecided", "not tested"]).outcome == "undecided"
    assert of(["shown", "contradicted", "undecided"]).outcome == "contradicted"
    found = of(["shown", "shown", "contradicted", "undecided", "not tested"], "smallest: 1")
    assert str(found) == (
        "shown at 2 of 4 positions, contradicted at 1, undecided at 1; not tested at 1 more; "
        "smallest: 1"
    )
    assert str(of(["not tested"], "smallest: 1")) == "not tested at any of 1 positions"


@pytest.mark.parametrize(
    ("asks", "level", "possible", "tested"),
    [
        ("at most", 1.0, (0.0, 0.9), False),  # a bound that is above the largest value there is
        ("at most", 1.0, (0.0, 1.1), True),
        ("at least", 0.2, (0.3, 1.0), False),
        ("at least", 0.2, (0.1, 1.0), True),
        ("better", 0.0, (0.1, 1.0), False),
        ("better", 0.0, (0.0, 1.0), True),
        ("same", 0.0, (-0.001, 0.001), False),
        ("same", 0.0, (-0.001, 0.1), True),
        ("somewhere", 0.2, (0.3, 1.0), False),
    ],
)
def test_a_claim_that_cannot_fail_is_not_tested(asks, level, possible, tested):
    effect = effects.Effect("", 0.5, 0.0, possible=rule.Interval(*possible))
    part = rule.ClaimPart("", (effect,), asks, level)
    assert (rule.decide("", "", [part], ENERGY).verdict.outcome != "not tested") is tested


def test_rising_is_from_end_to_end_and_nowhere_down():
    def of(means, spread=0.001):
        panel = numbers_of(a=about(means, spread=spread))
        return scope(panel).rises("a rises", "a").verdict.outcome

    assert of([0.1, 0.3, 0.5]) == "shown"
    assert of([0.1, 0.6, 0.5]) == of([0.5, 0.3, 0.1]) == of([0.5, 0.5, 0.5]) == "contradicted"
    assert of([0.1]) == "not tested"


def test_a_curve_that_rises_at_its_last_point_may_reach_the_level_beyond_it():
    def of(means, level=0.95):
        panel = numbers_of(a=about(means, spread=0.0))
        return scope(panel).reaches("a is there", "a", level).verdict.outcome

    assert of([0.1, 0.5, 0.8]) == "not tested"
    assert of([0.1, 0.8, 0.8]) == "contradicted"
    assert of([0.1, 0.5, 0.96]) == "shown"


def test_epsilon_ratios_have_intervals_and_bounds():
    x = np.array(X)

    def curves(shift, spread):
        rows = []
        for run in range(10):
            moved = math.exp(spread * (run - 4.5) / 3.0)
            rows += [Measured("panel", "a", at, 1 - math.exp(-at), run) for at in x]
            rows += [Measured("panel", "b", at, 1 - math.exp(-at * moved / shift), run) for at in x]
        return Numbers(rows)

    def of(numbers, **asked):
        return scope(numbers).epsilon_ratios("", "a", "b", positions=[1.0], **asked)

    clear = curves(5.0, 0.05)
    assert of(clear, least=3.0).verdict.outcome == of(clear, most=8.0).verdict.outcome == "shown"
    assert (
        of(clear, least=8.0).verdict.outcome
        == of(clear, most=3.0).verdict.outcome
        == "contradicted"
    )
    assert of(curves(5.0, 2.0), least=3.0).verdict.outcome == "undecided"
    far = curves(500.0, 0.05)  # b never gets there: a bound, which may prove and not disprove
    assert of(far, least=5.0).verdict.outcome == "shown"
    assert of(far, least=50.0).verdict.outcome == "undecided"
    assert of(far, most=5.0).verdict.outcome == "contradicted"
    with pytest.raises(ValueError, match="one of"):
        of(clear)


def test_effects_margins_and_power_are_printed():
    claim = scope(numbers_of(a=about([0.1, 0.2]), b=np.zeros((2, 10)))).better("a", "a", "b")
    assert "ahead at 2 of 2" in claim.measured
    assert "+0.200 (+0.192 to +0.208) at 2" in claim.measured
    assert claim.compared.startswith("Margin 0.005 of the exact energy; 95 % intervals for all 2")
    assert "chance 90 %" in claim.verdict.smallest
    assert claim.verdict.smallest in str(claim.verdict)


# Its rates


def test_intervals_of_epsilon_ratios_hold_the_truth():
    """The jackknife is an approximation: it may miss 8 % of the time in place of 5."""
    rng, x, missed, times = np.random.default_rng(), np.geomspace(0.1, 30.0, 9), 0, 400
    for _ in range(times):
        rows = [
            Measured("p", series, at, 1 - math.exp(-at / slower) + 0.01 * noise, run)
            for series, slower in (("a", 1.0), ("b", 5.0))
            for at in x
            for run, noise in enumerate(rng.standard_normal(8))
        ]
        (found,) = rule.ratios(Numbers(rows), "p", "a", "b", None, 0.6)
        low, high = found.interval(1)
        truth = math.log(_at(x, 5.0) / _at(x, 1.0))
        missed += not low <= truth <= high
    assert too_many(missed, times, 0.08) > FALSE_ALARM


def _at(x, slower):
    """Where the curve of true means, interpolated as measured ones are, comes to 0.6."""
    return math.exp(np.interp(0.6, 1 - np.exp(-x / slower), np.log(x)))


def at_random(gain, *, positions=6, runs=6, times=1500, measure=ENERGY, spread=0.01):
    """At how many positions better(a, b) and better(b, a) are shown, many times."""
    rng = np.random.default_rng()
    found = []
    for _ in range(times):
        shared = about(np.zeros(positions), runs=runs, rng=rng)
        gains = about(np.full(positions, gain), spread=spread, runs=runs, rng=rng)
        numbers = numbers_of(a=shared + gains, b=shared)
        found.append(
            [
                scope(numbers, measure).better("", first, second).verdict.shown
                for first, second in (("a", "b"), ("b", "a"))
            ]
        )
    return np.array(found)


def too_many(seen, times, rate):
    """The p-value of so many where at most this rate is promised."""
    return float(stats.binom.sf(seen - 1, times, rate))


def leads(found):
    return int(np.sum(found > 0))


@pytest.mark.thorough
def test_where_nothing_differs_neither_is_said_to_be_ahead():
    """At the margin itself, the worst case: either side errs at most half of 5 %."""
    found = at_random(ENERGY.margin)
    assert too_many(leads(found[:, 0]), len(found), effects.MISSES / 2) > FALSE_ALARM
    none = at_random(0.0)
    seen = [leads(none[:, side]) for side in (0, 1)]
    for count in seen:
        assert too_many(count, len(none), effects.MISSES / 2) > FALSE_ALARM
    assert stats.binomtest(seen[0], max(1, sum(seen)), 0.5).pvalue > FALSE_ALARM


@pytest.mark.parametrize("mutant", ["three errors", "not together"])
def test_intervals_that_are_too_narrow_are_found(mutant, monkeypatch):
    interval = effects.Effect.interval

    def narrow(self, count):
        if mutant == "not together":
            return interval(self, 1)
        return effects.Interval(self.value - 2 * self.error, self.value + 2 * self.error)

    monkeypatch.setattr(effects.Effect, "interval", narrow)
    found = at_random(ENERGY.margin, times=500)  # the wider of the two errs at 0.15 of them
    assert too_many(leads(found[:, 0]), len(found), effects.MISSES / 2) < REJECTED


def test_what_is_said_to_be_showable_is_shown_as_often():
    runs, positions, spread = 6, 1, 0.01
    effect = effects.Effect("", 0.0, spread / math.sqrt(runs), runs - 1)
    gain = ENERGY.margin + effect.showable(positions)
    found = at_random(gain, positions=positions, runs=runs)
    held = leads(found[:, 0])
    assert stats.binom.cdf(held, len(found), effects.POWER - 0.05) > FALSE_ALARM
    assert not leads(found[:, 1])
    # a tenth of it is shown seldom: the number means something
    gain = ENERGY.margin + 0.1 * effect.showable(positions)
    small = at_random(gain, positions=positions, runs=runs, times=500)
    assert np.mean(small[:, 0] > 0) < 0.3


# Its symmetry


def check_symmetry(decide) -> None:
    """The same data with names exchanged, and under any heading, give the same verdict."""
    for gain, spread in product(np.linspace(-0.03, 0.03, 61), (0.0, 0.002, 0.01)):
        first, second = about([gain, gain / 3], spread=spread, runs=5), np.zeros((2, 5))
        for asks in ("better", "not worse", "same"):
            found = set()
            for where, names in (("Figure 1", "ab"), ("eigenveil", "ab"), ("eigenveil", "ba")):
                one, two = names
                numbers = numbers_of(**{one: first, two: second})
                part = rule.ClaimPart(
                    f"{one} beside {two}", rule.effects(numbers, "panel", one, two, ENERGY), asks
                )
                found.add(decide(f"{one} is better", where, [part], ENERGY).verdict.outcome)
            assert len(found) == 1


def test_it_does_not_ask_whose_claim_it_is():
    check_symmetry(rule.decide)


def no_clear_loss(statement, where, parts, measure) -> Claim:
    """For this package's own claims what cannot be told counts as said: it was so once."""
    claim = rule.decide(statement, where, parts, measure)
    if where == "eigenveil" and claim.verdict.outcome == "undecided":
        return replace(claim, verdict=Verdict(shown=1))
    return claim


def own_margin(statement, where, parts, measure) -> Claim:
    if where == "eigenveil":
        measure = replace(measure, margin=measure.margin / 4)
    return rule.decide(statement, where, parts, measure)


def cannot_lose(statement, where, parts, measure) -> Claim:
    claim = rule.decide(statement, where, parts, measure)
    if where == "eigenveil" and claim.verdict.outcome == "contradicted":
        return replace(claim, verdict=Verdict(undecided=1))
    return claim


@pytest.mark.parametrize("mutant", [no_clear_loss, own_margin, cannot_lose])
def test_rules_that_favour_this_package_are_found(mutant):
    with pytest.raises(AssertionError):
        check_symmetry(mutant)


@pytest.mark.parametrize("form", [rule.Scope.better, rule.Scope.no_worse])
def test_a_claim_and_its_opposite_do_not_both_come_out(form):
    rng = np.random.default_rng()
    for gain in (-0.1, 0.1):
        first, second = about([gain] * 3, rng=rng, spread=0.001), np.zeros((3, 10))
        said = {verdict(form, first, second), verdict(form, second, first)}
        assert said == {"shown", "contradicted"}


# Everything is judged by it


def test_no_other_module_makes_a_verdict():
    """A claim made by hand would not have been compared with anything, or by a rule of its own."""
    folder = Path(rule.__file__).parent
    makers = {
        path.name
        for path in folder.glob("*.py")
        if re.search(r"(?<!class )\bClaim\(", path.read_text(encoding="utf-8"))
    }
    assert makers == {"rule.py"}
