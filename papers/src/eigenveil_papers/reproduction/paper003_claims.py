"""What paper 003's figures 1 and 2 say, and this project beside them, held against the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from eigenveil_papers.reproduction.experiment import Claim, Settings
from eigenveil_papers.reproduction.matched_utility import matched_utility
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.paper003_methods import (
    ADD_REMOVE,
    DATA,
    LEVEL,
    claim_of,
    compare,
    epsilon_ratios,
    in_words,
    name_of,
    outperforms,
    present,
)

_PUBLISHED = ("analyze-gauss", "private-power", "wishart-sn", "private-power-pure", "ppca")
_FULL = 98.0  # from here on a curve has no room to rise
_TARGET = 10.0  # the project's: this many times more epsilon for the published method


def figure1_claims(numbers: Numbers, settings: Settings) -> list[Claim]:
    """Claims about captured energy against epsilon, and about privacy."""
    del settings
    panels = present(numbers, "epsilon")
    return [
        _rises(numbers, panels, "epsilon", "Section 4, figure 1"),
        outperforms(
            "Analyze Gauss vastly outperforms the private power method.",
            "Section 4, figure 1",
            numbers,
            panels,
            [("analyze-gauss", "private-power"), ("analyze-gauss", "private-power-pure")],
            least=20.0,
        ),
        outperforms(
            "SN outperforms the private power method and PPCA.",
            "Section 4, figure 1",
            numbers,
            panels,
            [(("wishart-sn"), of) for of in ("private-power", "private-power-pure", "ppca")],
        ),
        _matches(numbers, panels),
        _theorem1(numbers),
        _nine_tenths(numbers),
        epsilon_ratios(
            "What the repair of SN costs: at most 4 times its epsilon for the same energy, where"
            " neighbours have one row changed (of which 2 for halving epsilon).",
            numbers,
            panels,
            ("wishart-sn", "wishart-repaired"),
            "times SN's",
            most=4.0,
        ),
        epsilon_ratios(
            "What the repair of SN costs: at most 1.5 times its epsilon for the same energy, where"
            " neighbours have one row more or less.",
            numbers,
            panels,
            ("wishart-sn", ADD_REMOVE),
            "times SN's",
            most=1.5,
        ),
        epsilon_ratios(
            "Analyze Gauss as published needs at least 10 times our epsilon for the same energy"
            " and delta (unit rows; isometric, exactly calibrated noise).",
            numbers,
            panels,
            ("eigenveil", "analyze-gauss"),
            "times ours",
            least=_TARGET,
        ),
        epsilon_ratios(
            "With delta = 1e-6 ours still needs no more epsilon than Analyze Gauss with the paper's"
            " delta.",
            numbers,
            panels,
            ("eigenveil-strict", "analyze-gauss"),
            "times ours",
            least=1.0,
        ),
        epsilon_ratios(
            "Pure epsilon, sound: PPCA as published needs at least 10 times our epsilon for the"
            " same energy.",
            numbers,
            panels,
            ("eigenveil-pure", "ppca"),
            "times ours",
            least=_TARGET,
        ),
        epsilon_ratios(
            "Pure epsilon, sound: the private power method with Laplace noise needs at least 10"
            " times our epsilon for the same energy.",
            numbers,
            panels,
            ("eigenveil-pure", "private-power-pure"),
            "times ours",
            least=_TARGET,
        ),
        _dominates(numbers, panels),
        _dominates_sn(numbers, panels),
        _exact_sampling(numbers, panels),
    ]


def figure2_claims(numbers: Numbers, settings: Settings) -> list[Claim]:
    """Claims about captured energy against the number of rows."""
    del settings
    panels = present(numbers, "rows")
    return [
        _rises(numbers, panels, "rows", "Section 4, figure 2"),
        _best_of(numbers, panels),
        outperforms(
            "The private power method suffers from too much noise: every other method captures"
            " more.",
            "Section 4, figure 2",
            numbers,
            panels,
            [
                ("analyze-gauss", "private-power"),
                ("wishart-sn", "private-power-pure"),
                ("ppca", "private-power-pure"),
            ],
        ),
        _steep(numbers, panels),
        _rows_saved(numbers, panels),
        _dominates(numbers, panels),
        _dominates_sn(numbers, panels),
        _exact_sampling(numbers, panels),
    ]


# Claims of the paper


def _rises(numbers: Numbers, panels: Sequence[str], axis: str, where: str) -> Claim:
    statement = {
        "epsilon": "For all data sets the captured energy increases with epsilon.",
        "rows": "The captured energy increases with the number of rows.",
    }[axis]
    found, good = [], []
    for panel in panels:
        falls, flat, count = [], [], 0
        for series in _PUBLISHED:
            curve = numbers.curve(panel, series)
            if curve.x.size < 2:
                continue
            count += 1
            error = np.hypot(curve.error[1:], curve.error[:-1])
            if np.any(np.diff(curve.mean) < -np.maximum(1.0, 3.0 * error)):
                falls.append(series)
            if curve.mean[-1] - curve.mean[0] < 1.0 and curve.mean[0] < _FULL:
                flat.append(series)
        if not count:
            continue
        parts = [f"{count - len({*falls, *flat})} of {count} published series rise throughout"]
        parts += [f"falling somewhere: {', '.join(falls)}"] if falls else []
        parts += [f"flat: {', '.join(flat)}"] if flat else []
        found.append(f"{name_of(panel)}: {', '.join(parts)}")
        bad = len({*falls, *flat})
        good += [False] * bad + [True] * (count - bad)
    return claim_of(statement, where, found, good)


def _matches(numbers: Numbers, panels: Sequence[str]) -> Claim:
    found, good = [], []
    for panel in panels:
        seen = compare(numbers, panel, "wishart-sn", "analyze-gauss")
        if not seen.x.size:
            continue
        near = np.flatnonzero(seen.gains < -1.0)
        last = f"{seen.gains[-1]:+.2f} points at epsilon {seen.x[-1]:g}"
        good.append(bool(seen.gains[-1] > -1.0))
        first = 0 if near.size == 0 else int(near[-1]) + 1
        since = f", within a point from {seen.x[first]:g} on" if first < seen.x.size else ""
        worst = int(np.argmin(seen.gains))
        found.append(
            f"{name_of(panel)}: SN less Analyze Gauss {last}{since}, "
            f"{seen.gains[worst]:+.1f} at {seen.x[worst]:g}"
        )
    statement = "For large enough epsilon SN matches Analyze Gauss, which promises less."
    return claim_of(statement, "Section 4, figure 1", found, good)


def _theorem1(numbers: Numbers) -> Claim:
    statement = "Theorem 1: SN is epsilon-differentially private."
    measured, formula = (numbers.curve("witness", of) for of in ("wishart-sn", "formula"))
    if not measured.x.size or not formula.x.size:
        return claim_of(statement, "Theorem 1", [], [])
    seen = ", ".join(
        f"{100 * value:.1f} % at epsilon {x:g} (1 - exp(-epsilon) = {100 * -math.expm1(-x):.1f} %)"
        for x, value in zip(measured.x, measured.mean, strict=True)
    )
    text = (
        "an event of chance 0 with one of two neighbours happens with the other in "
        f"{seen}: SN is (epsilon, 1 - exp(-epsilon))-private at best"
    )
    return claim_of(statement, "Theorem 1", [text], [bool(np.all(measured.mean <= 1e-3))])


def _nine_tenths(numbers: Numbers) -> Claim:
    statement = "k is such that the leading subspace holds at least 90 % of the energy."
    found, good = [], []
    for name in DATA:
        panel = f"{name}-share"
        for series in ("centred", "as they are"):
            fewest = numbers.at(panel, f"fewest, {series}", 90.0)
            if math.isnan(fewest):
                continue
            curve = numbers.curve(panel, series)
            shares = ", ".join(
                f"k = {x:.0f}: {y:.1f} %" for x, y in zip(curve.x, curve.mean, strict=True)
            )
            rows = "centred rows" if series == "centred" else "rows as they are"
            found.append(f"{name}, {rows}: 90 % from k = {fewest:.0f} on ({shares})")
            wanted = 50.0 if name == "mnist" else 10.0
            good.append(numbers.at(panel, series, wanted) >= LEVEL)
    claim = claim_of(statement, "Section 4", found, good)
    if not any(name.startswith("mnist") for name in numbers.panels):
        return claim
    note = (
        " The text's k = 500 for MNIST is taken for '50)' scanned wrongly: its bracket is missing,"
        " and paper 000 has k = 50"
    )
    return Claim(
        statement=claim.statement,
        where=claim.where,
        measured=claim.measured + note + ".",
        verdict=claim.verdict,
    )


def _best_of(numbers: Numbers, panels: Sequence[str]) -> Claim:
    published = {
        "delta > 0": ("analyze-gauss", ["private-power"]),
        "delta = 0": ("wishart-sn", ["private-power-pure", "ppca"]),
    }
    found, good = [], []
    for panel in panels:
        for kind, (best, others) in published.items():
            for other in others:
                seen = compare(numbers, panel, best, other)
                if seen.x.size:
                    found.append(
                        f"{name_of(panel)}, {kind}, {best} against {other}: {in_words(seen)}"
                    )
                    good.append(seen.behind == 0 and seen.ahead > 0)
    statement = "Analyze Gauss is the best with delta > 0, SN the best with delta = 0."
    return claim_of(statement, "Section 4, figure 2", found, good)


def _steep(numbers: Numbers, panels: Sequence[str]) -> Claim:
    found, good = [], []
    for panel in panels:
        for series in ("analyze-gauss", "wishart-sn", "ppca"):
            curve = numbers.curve(panel, series)
            if curve.x.size < 2:
                continue
            rise = curve.mean[-1] - curve.mean[0]
            found.append(
                f"{name_of(panel)}, {series}: {curve.mean[0]:.1f} to {curve.mean[-1]:.1f} % from "
                f"{curve.x[0]:.0f} to {curve.x[-1]:.0f} rows"
            )
            good.append(bool(rise >= 20.0))
    statement = "Analyze Gauss, SN and PPCA improve steeply with the number of rows (20 points)."
    return claim_of(statement, "Section 4, figure 2", found, good)


# Claims of this project


def _rows_saved(numbers: Numbers, panels: Sequence[str]) -> Claim:
    pairs = [("eigenveil", "analyze-gauss"), ("eigenveil-pure", "ppca")]
    found, good = [], []
    for panel in panels:
        for better, worse in pairs:
            ratio = matched_utility(
                numbers.curve(panel, better), numbers.curve(panel, worse), LEVEL
            )
            if math.isnan(ratio.ratio):
                continue
            found.append(f"{name_of(panel)}, {worse}: {ratio} times the rows of {better}")
            good.append(ratio.ratio > 1.0)
    statement = "The published methods need more rows for 90 % of the energy than the sound ones."
    return claim_of(statement, "eigenveil", found, good)


def _dominates(numbers: Numbers, panels: Sequence[str]) -> Claim:
    pairs = [
        ("eigenveil", "analyze-gauss"),
        ("eigenveil", "private-power"),
        ("eigenveil-pure", "ppca"),
        ("eigenveil-pure", "private-power-pure"),
    ]
    found, good = [], []
    for panel in panels:
        for ours, theirs in pairs:
            seen = compare(numbers, panel, ours, theirs)
            if seen.x.size:
                found.append(f"{name_of(panel)}, {ours} against {theirs}: {in_words(seen)}")
                good.append(seen.behind == 0)
    statement = (
        "At the same promise no published method captures more than the sound one beside it"
        " (SN apart, which promises falsely)."
    )
    return claim_of(statement, "eigenveil", found, good)


def _dominates_sn(numbers: Numbers, panels: Sequence[str]) -> Claim:
    found, good = [], []
    for panel in panels:
        for ours in ("wishart-repaired", ADD_REMOVE, "eigenveil-pure"):
            seen = compare(numbers, panel, ours, "wishart-sn")
            if seen.x.size:
                found.append(f"{name_of(panel)}, {ours}: {in_words(seen)}")
                good.append(seen.behind == 0)
    statement = "The sound methods of pure epsilon capture as much as SN, whose promise is false."
    return claim_of(statement, "eigenveil", found, good)


def _exact_sampling(numbers: Numbers, panels: Sequence[str]) -> Claim:
    found, good = [], []
    for panel in panels:
        seen = compare(numbers, panel, "ppca-exact", "ppca")
        if seen.x.size:
            found.append(f"{name_of(panel)}: {in_words(seen)}")
            good.append(seen.behind == 0)
    statement = (
        "The exponential mechanism sampled exactly, one vector after the other with the epsilon"
        " divided among them, captures as much as PPCA's chain, which draws all at once and proves"
        " nothing."
    )
    return claim_of(statement, "eigenveil", found, good)
