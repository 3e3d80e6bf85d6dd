"""One sentence about each figure, with numbers that were measured, for the front page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

import numpy as np

from eigenveil_papers.reproduction.data import NAMES, find, title_of
from eigenveil_papers.reproduction.experiment import Claim, Outcome, RunSettings
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.rule import OURS
from eigenveil_papers.reproduction.tables import read_tables

Sentence = Callable[[Numbers, RunSettings], str]


def at(
    what: str, panels: Sequence[str], axis: str, x: float, series: str, *, digits: str = ".2f"
) -> Sentence:
    """The means of some series in the first of these panels that was measured, nearest to x."""
    names = series.split()

    def sentence(numbers: Numbers, settings: RunSettings) -> str:
        for panel in panels:
            first = numbers.curve(panel, names[0])
            if first.x.size:
                near = float(first.x[np.argmin(np.abs(np.log(first.x) - math.log(x)))])
                values = [
                    f"{_LABELS[name]} {value:{digits}}"
                    for name in names
                    if not math.isnan(value := numbers.at(panel, name, near))
                ]
                return f"{what} ({_shown(panel, settings)}, {axis} {near:g}): {', '.join(values)}."
        return ""

    return sentence


def _shown(panel: str, settings: RunSettings) -> str:
    name = next((of for of in NAMES if panel == of or panel.startswith(f"{of}-")), "")
    return title_of(find(name, settings)) if name else panel.partition("-")[0]


def _errors(model: str) -> Sentence:
    """Component errors of capeAGN over ours, at all points of all panels of a model."""

    def sentence(numbers: Numbers, settings: RunSettings) -> str:
        del settings
        ratios = [
            theirs / ours
            for panel in numbers.panels
            if panel.startswith(model) and "-noise-" not in panel
            for one, other in (
                (numbers.curve(panel, "eigenveil"), numbers.curve(panel, "capeagn")),
            )
            for x, ours in zip(one.x, one.mean, strict=True)
            if not math.isnan(theirs := other.at(float(x)))
        ]
        if not ratios:
            return ""
        lower = sum(ratio > 1 for ratio in ratios)
        return (
            "Error of the components: capeAGN's mean is larger than Eigenveil's at "
            f"{lower} of {len(ratios)} points, by a median factor of {np.median(ratios):.2g} "
            f"({min(ratios):.2g} to {max(ratios):.2g})."
        )

    return sentence


def _witness(numbers: Numbers) -> str:
    seen = numbers.at("witness", "wishart-sn", 1.0)
    if math.isnan(seen):
        return ""
    return (
        f" At epsilon 1 {seen:.0%} of SN's releases show that a row was there; of a private "
        "method none would."
    )


_LABELS = {
    "eigenveil": "Eigenveil",
    "eigenveil-all": "Eigenveil with everything private",
    "eigenveil-pure": "Eigenveil with delta = 0",
    "pooled": "pooled rows",
    "capepca": "capePCA",
    "full": "sites that send D x D",
    "dpdispca": "DPdisPCA",
    "local": "one site alone",
    "fpca-open": "FPCA without a mask",
    "fpca": "FPCA as in the text",
    "mod-sulq": "MOD-SuLQ",
    "random": "a random direction",
    "frequent-directions": "Frequent Directions",
    "spirit": "SPIRIT",
    "incremental": "incremental PCA",
    "exact": "not private",
    "analyze-gauss": "Analyze Gauss",
    "wishart-sn": "SN as published",
    "wishart-repaired": "SN repaired",
    "ppca": "PPCA",
    "djica": "djICA, not private",
    "capedjica": "capeDJICA as published",
    "capedjica-true": "capeDJICA at equal guarantee",
}
HEADLINES: Mapping[str, Sentence] = {
    figure: at(what, panels.split(), axis, float(x), series, digits=digits)
    for figure, what, panels, axis, x, series, digits in read_tables("headlines.md")["headlines"]
} | {"001-fig3": _errors("mixture"), "001-fig4": _errors("topics"), "001-fig5": _errors("")}
"""By experiment; others have the sentence of :func:`counted`."""


def headline(name: str, numbers: Numbers, settings: RunSettings, claims: Sequence[Claim]) -> str:
    found = HEADLINES[name](numbers, settings) if name in HEADLINES else ""
    return found + _witness(numbers) * (name == "003-fig1") or counted(claims)


def counted(claims: Sequence[Claim]) -> str:
    """At how many positions the paper's claims have which outcome."""
    theirs = [claim.verdict for claim in claims if claim.where != OURS]
    counts = {o: sum(v.count(o) for v in theirs) for o in get_args(Outcome)}
    told = ", ".join(f"{o} at {count}" for o, count in counts.items() if count)
    return f"The paper's {len(theirs)} claims about it, by positions: {told}." if told else ""
