"""One sentence about each figure, with numbers that were measured, for the front page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

import numpy as np

from eigenveil_papers.reproduction.data import NAMES, find, title_of
from eigenveil_papers.reproduction.experiment import Claim, RunSettings, Verdict
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.rule import OURS

Sentence = Callable[[Numbers, RunSettings], str]


def at(
    what: str,
    panels: Sequence[str],
    axis: str,
    x: float,
    names: Mapping[str, str],
    *,
    digits: str = ".2f",
) -> Sentence:
    """The means of some series in the first of these panels that was measured, nearest to x."""

    def sentence(numbers: Numbers, settings: RunSettings) -> str:
        for panel in panels:
            first = numbers.curve(panel, next(iter(names)))
            if first.x.size:
                near = float(first.x[np.argmin(np.abs(np.log(first.x) - math.log(x)))])
                values = [
                    f"{name} {value:{digits}}"
                    for series, name in names.items()
                    if not math.isnan(value := numbers.at(panel, series, near))
                ]
                return f"{what} ({_shown(panel, settings)}, {axis} {near:g}): {', '.join(values)}."
        return ""

    return sentence


def _shown(panel: str, settings: RunSettings) -> str:
    """The data of a panel by the name of what was really used."""
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
            "Error of the components: capeAGN's is larger than Eigenveil's at "
            f"{lower} of {len(ratios)} points, by a median factor of {np.median(ratios):.2g} "
            f"({min(ratios):.2g} to {max(ratios):.2g})."
        )

    return sentence


def _witness(numbers: Numbers, settings: RunSettings) -> str:
    found = _ENERGY(numbers, settings)
    seen = numbers.at("witness", "wishart-sn", 1.0)
    if not math.isnan(seen):
        found += (
            f" At epsilon 1 {seen:.0%} of SN's releases show that a row was there; of a private "
            "method none would."
        )
    return found


_PURE = {
    "wishart-sn": "SN as published",
    "wishart-repaired": "SN repaired",
    "eigenveil-pure": "Eigenveil with delta = 0",
    "ppca": "PPCA",
}
_ENERGY = at(
    "Per cent of the exact directions' energy",
    ["covtype-epsilon", "synthetic-epsilon"],
    "epsilon",
    0.1,
    _PURE,
    digits=".0f",
)
_SITES = {
    "eigenveil": "Eigenveil",
    "eigenveil-all": "Eigenveil with everything private",
    "pooled": "pooled rows",
    "capepca": "capePCA",
    "full": "sites that send D x D",
    "dpdispca": "DPdisPCA",
    "local": "one site alone",
}
_PANELS = ("mnist", "synthetic", "digits", "fashion-mnist", "covtype")

HEADLINES: Mapping[str, Sentence] = {
    "000-fig1": at(
        "Share of the exact directions' energy",
        [f"{name}-epsilon" for name in _PANELS],
        "epsilon",
        1.0,
        _SITES,
    ),
    "000-fig2": at(
        "Share of the exact directions' energy",
        [f"{name}-delta" for name in _PANELS],
        "delta",
        1e-4,
        _SITES,
    ),
    "001-fig2": at(
        "Share of the exact directions' energy",
        [f"{name}-epsilon" for name in _PANELS],
        "epsilon",
        1.0,
        _SITES,
    ),
    "001-fig3": _errors("mixture"),
    "001-fig4": _errors("topics"),
    "001-fig5": _errors(""),
    "002-fig2": at(
        "Share of the best plane's energy",
        [f"{name}-energy" for name in (*_PANELS, "wine")],
        "components",
        2.0,
        {
            "fpca-open": "FPCA without a mask",
            "fpca": "FPCA with the text's mask",
            "mod-sulq": "MOD-SuLQ",
            "eigenveil": "Eigenveil",
        },
        digits=".3f",
    ),
    "002-fig3": at(
        "Cosine q_A of the found first direction to the true one",
        ["alpha=1", "alpha=0.5"],
        "epsilon",
        1.0,
        {
            "fpca": "FPCA as in the text",
            "mod-sulq": "MOD-SuLQ",
            "eigenveil": "Eigenveil",
            "random": "a random direction",
        },
    ),
    "002-fig4": at(
        "Root mean square error beyond that of PCA of all rows, as the authors' scripts run it",
        ["motes-light-own-scripted"],
        "rows read",
        1e9,
        {
            "fpca-open": "FPCA",
            "frequent-directions": "Frequent Directions",
            "spirit": "SPIRIT",
            "incremental": "incremental PCA",
            "eigenveil": "Eigenveil without noise",
        },
        digits=".2g",
    ),
    "003-fig1": _witness,
    "003-fig2": at(
        "Per cent of the exact directions' energy",
        ["covtype-rows", "synthetic-rows"],
        "rows",
        1e9,
        {"analyze-gauss": "Analyze Gauss", "eigenveil": "Eigenveil", **_PURE},
        digits=".0f",
    ),
    "003-table1": at(
        "Per cent of errors of a linear classifier",
        ["synthetic", "covtype"],
        "training rows",
        6000.0,
        {
            "exact": "not private",
            "analyze-gauss": "Analyze Gauss",
            "eigenveil": "Eigenveil",
            "wishart-sn": "SN as published",
            "eigenveil-pure": "Eigenveil with delta = 0",
        },
    ),
}
"""By experiment; others have the sentence of :func:`counted`."""


def headline(name: str, numbers: Numbers, settings: RunSettings, claims: Sequence[Claim]) -> str:
    """What stands below an experiment's picture."""
    found = HEADLINES[name](numbers, settings) if name in HEADLINES else ""
    return found or counted(claims)


def counted(claims: Sequence[Claim]) -> str:
    """How many of the paper's claims have which verdict."""
    counts = Counter(claim.verdict for claim in claims if claim.where != OURS)
    told = ", ".join(f"{v} {counts[v]}" for v in get_args(Verdict) if counts[v])
    return f"Of the paper's {sum(counts.values())} claims about it: {told}." if told else ""
