"""What figure 3 of paper 002 says, and what was measured about it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from eigenveil.privacy.accountant import mu_of_epsilon
from eigenveil_papers.published.sulq import omega, sulq_omega, symmetric_omega
from eigenveil_papers.reproduction.experiment import Claim, RunSettings
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.paper002 import BLOCK, MOVED, epsilon_as_coded, random_alignment
from eigenveil_papers.reproduction.rule import (
    TIMES,
    ClaimPart,
    Effect,
    Measure,
    effects,
    paired,
    ratios,
)
from eigenveil_papers.reproduction.tables import claims_of

FEATURES, ROWS, DELTA = 20, 5000, 0.05
SMALL_DELTA = 1e-6
FIRST_BATCH = 500
OPEN = 1000.0
"""Epsilon where nearly no noise is left: what the spectrum itself allows."""
METHODS = {
    "fpca": "FPCA, as in the text",
    "fpca-as-coded": "FPCA, as coded",
    "mod-sulq-asymmetric": "MOD-SuLQ, not symmetric",
    "fpca-first-batch": f"FPCA, first batch of {FIRST_BATCH} rows",
    "mod-sulq-asymmetric-as-coded": "MOD-SuLQ, not symmetric, as coded",
    "mod-sulq": "MOD-SuLQ, symmetric",
    "mod-sulq-as-coded": "MOD-SuLQ, symmetric as coded",
    "eigenveil": "Eigenveil, streaming",
    "eigenveil-unit": "Eigenveil, unit rows",
}

ALIGNMENT = Measure(unit="in q_A", margin=0.02, digits=".2f", most=1.0)
NOISE = Measure(unit="times in the noise's deviation", margin=1.05, ratio=True, less=True)
_PUBLISHED = ("fpca", "mod-sulq-asymmetric", "mod-sulq")


def claims(numbers: Numbers, settings: RunSettings) -> Sequence[Claim]:
    del settings
    alphas = [panel for panel in numbers.panels if panel.startswith("alpha=")]
    alphas.sort(key=lambda panel: float(panel.removeprefix("alpha=")))
    really = ", ".join(
        f"{claimed:g}: {epsilon_as_coded(claimed, DELTA, features=FEATURES, rows=ROWS):.3g}"
        for claimed in (0.1, 1.0, 4.0)
    )
    to_4 = Numbers(row for row in numbers.measured if row.x <= 4.0)  # the paper's epsilons
    need, noise_asides = _noise(numbers)
    rate, rate_aside = _rate(need)
    return claims_of(
        "002-fig3",
        numbers,
        ALIGNMENT,
        {
            "alphas": alphas,
            "alphas to 4": (to_4, alphas),
            "steepest two": alphas[-2:],
            "steepest to 4": (to_4, alphas[-1:]),
        },
        {
            "uniform": _uniform(numbers, alphas),
            "need": [need],
            "rate": [rate],
            "ten times": _ten_times(numbers),
            "limits": _limits(numbers, alphas),
        },
        # the rate is computed: any difference is one
        others={"need": NOISE, "rate": replace(NOISE, margin=1.0), "ten times": TIMES},
        asides={
            "fpca-as-coded": "claimed epsilon, and the one that this mask gives at delta "
            f"{DELTA:g}: {really}",
            "need": noise_asides,
            "rate": rate_aside,
        },
        block=BLOCK,
        random=f"{random_alignment(FEATURES):.2f}",
        first=FIRST_BATCH,
        twice=2 * FEATURES,
        small=SMALL_DELTA,
        delta=DELTA,
        open=OPEN,
    )


def _uniform(numbers: Numbers, alphas: Sequence[str]) -> list[ClaimPart]:
    """The steepest spectrum against the flattest, at epsilon 4, for each method."""
    parts = []
    for method in (*_PUBLISHED, "eigenveil"):
        at_4 = [numbers.by_run(panel, method).get(4.0, {}) for panel in alphas]
        found = paired("4", at_4[-1], at_4[0], ALIGNMENT) if at_4 else ()
        parts.append(ClaimPart(METHODS[method], found, "better"))
    return parts


def _noise(numbers: Numbers) -> tuple[ClaimPart, str]:
    """Lemma 2 beside a mask with its own logarithm: 4 D / sqrt(2), and the logarithm of D^2."""
    small = omega(1.0, SMALL_DELTA, FEATURES, 1) * mu_of_epsilon(1.0, SMALL_DELTA) / MOVED
    need = effects(numbers, "noise", "needed", "mod-sulq-asymmetric", NOISE, axis="epsilon")
    others = [
        f"{METHODS[of]}: {NOISE.say(found[0].value)} to {NOISE.say(found[-1].value)}"
        for of in ("fpca", "mod-sulq", "eigenveil")
        if (found := effects(numbers, "noise", "needed", of, NOISE))
    ]
    others.append(f"lemma 2 at epsilon 1, delta {SMALL_DELTA:g}: {small:.3g}")
    part = ClaimPart(METHODS["mod-sulq-asymmetric"], need, "at least", math.log(2.0 * FEATURES))
    return part, "; ".join(others)


def _rate(need: ClaimPart) -> tuple[ClaimPart, str]:
    mask = omega(1.0, DELTA, FEATURES, ROWS)
    rate = mask / sulq_omega(1.0, DELTA, FEATURES, ROWS)
    over = mask / symmetric_omega(1.0, DELTA, FEATURES, ROWS)
    computed = (Effect("epsilon 1", -math.log(rate), 0.0),) if need.effects else ()
    part = ClaimPart("SuLQ's omega over lemma 2's", computed, "better")
    return part, f"lemma 2's is {over:.3g} times the symmetric mask's"


def _ten_times(numbers: Numbers) -> list[ClaimPart]:
    level = random_alignment(FEATURES) + 0.15
    parts = []
    for panel in (panel for panel in numbers.panels if panel.startswith("small-delta-")):
        for rival in ("mod-sulq", "mod-sulq-asymmetric"):
            theirs = numbers.curve(panel, rival)
            if theirs.x.size and float(theirs.mean[-1]) > level:  # else they find nothing
                found = ratios(numbers, panel, "eigenveil", rival, None, None)
                name = f"alpha={panel.rpartition('-')[2]}, {METHODS[rival]}"
                parts.append(ClaimPart(name, found, "at least", math.log(10.0)))
    return parts


def _limits(numbers: Numbers, alphas: Sequence[str]) -> list[ClaimPart]:
    parts = []
    for panel in alphas:
        runs = numbers.by_run(panel, "eigenveil-unit").get(OPEN)
        if runs:
            effect = Effect.of("", np.array(list(runs.values())))
            parts.append(ClaimPart(panel, (effect,), "at least", 0.95))
    return parts
