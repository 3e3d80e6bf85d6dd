"""What paper 003's figures 1 and 2 say, and this project beside them, held against the numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eigenveil_papers.reproduction.experiment import Claim, RunSettings
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.paper003_methods import DATA
from eigenveil_papers.reproduction.rule import (
    TIMES,
    ClaimPart,
    Effect,
    Measure,
    effects,
    paired,
    ratios,
    values,
)
from eigenveil_papers.reproduction.tables import claims_of

ENERGY = Measure(unit="points of the exact energy", margin=0.5, digits=".1f", most=100.0)
"""Captured energy in per cent of the exact directions'."""
LEVEL = 90.0
"""Per cent of the exact subspace's energy at which epsilons are compared."""


def present(numbers: Numbers, axis: str) -> list[str]:
    return [panel for name in DATA if (panel := f"{name}-{axis}") in numbers.panels]


def figure1_claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings
    panels = present(numbers, "epsilon")
    return claims_of(
        "003-fig1",
        numbers,
        ENERGY,
        {"every": panels},
        {
            "vastly": _vastly(numbers, panels),
            "matches": _matches(numbers, panels),
            "theorem 1": _theorem1(numbers),
            "nine tenths": _nine_tenths(numbers),
            "ours beside": _in_pairs(numbers, panels, _SOUND),
        },
        others={
            "theorem 1": Measure(unit="frequency", margin=0.0),
            "nine tenths": Measure(unit="per cent of the energy", margin=0.0, digits=".1f"),
        },
        ratio={"level": LEVEL},
    )


def figure2_claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings
    panels = present(numbers, "rows")
    gauss = ("analyze-gauss", "private-power")
    wishart = ("wishart-sn", "private-power-pure")
    return claims_of(
        "003-fig2",
        numbers,
        ENERGY,
        {"every": panels},
        {
            "best": _in_pairs(numbers, panels, (gauss, wishart, ("wishart-sn", "ppca"))),
            "too much noise": _in_pairs(
                numbers, panels, (gauss, wishart, ("ppca", "private-power-pure"))
            ),
            "steep": _steep(numbers, panels),
            "rows saved": _rows_saved(numbers, panels),
            "ours beside": _in_pairs(numbers, panels, _SOUND),
        },
        others={"rows saved": TIMES},
    )


_SOUND = (
    ("eigenveil", "analyze-gauss"),
    ("eigenveil", "private-power"),
    ("eigenveil-pure", "ppca"),
    ("eigenveil-pure", "private-power-pure"),
)


def _in_pairs(
    numbers: Numbers, panels: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> list[ClaimPart]:
    return [
        ClaimPart(
            f"{_name_of(panel)}, {first} beside {second}",
            effects(numbers, panel, first, second, ENERGY),
            "better",
        )
        for panel in panels
        for first, second in pairs
    ]


def _name_of(panel: str) -> str:
    return panel.rsplit("-", 1)[0]


# Claims of the paper


def _vastly(numbers: Numbers, panels: Sequence[str]) -> list[ClaimPart]:
    return [
        ClaimPart(
            f"{_name_of(panel)}, beside {other}",
            effects(numbers, panel, "analyze-gauss", other, ENERGY),
            "somewhere",
            20.0,
        )
        for panel in panels
        for other in ("private-power", "private-power-pure")
    ]


def _matches(numbers: Numbers, panels: Sequence[str]) -> list[ClaimPart]:
    found = {of: effects(numbers, of, "wishart-sn", "analyze-gauss", ENERGY) for of in panels}
    return [ClaimPart(_name_of(of), each[-1:], "not worse") for of, each in found.items()]


def _theorem1(numbers: Numbers) -> list[ClaimPart]:
    """An event of chance 0 with one of two neighbours has at most chance 0 with the other."""
    seen = values(numbers, "witness", "wishart-sn")
    return [ClaimPart("frequency of the event", seen, "at most", 1e-3)]


def _nine_tenths(numbers: Numbers) -> list[ClaimPart]:
    parts = []
    for name in DATA:
        wanted = 50.0 if name == "mnist" else 10.0
        for series in ("centred", "as they are"):
            share = numbers.at(f"{name}-share", series, wanted)
            if not np.isnan(share):
                effect = Effect(f"k = {wanted:g}", share, 0.0)
                parts.append(ClaimPart(f"{name}, {series}", (effect,), "at least", LEVEL))
    return parts


def _steep(numbers: Numbers, panels: Sequence[str]) -> list[ClaimPart]:
    parts = []
    for panel in panels:
        for series in ("analyze-gauss", "wishart-sn", "ppca"):
            found = numbers.by_run(panel, series)
            x = sorted(found)
            if len(x) > 1:
                at = f"{x[0]:g} to {x[-1]:g} rows"
                rise = paired(at, found[x[-1]], found[x[0]], ENERGY)
                parts.append(ClaimPart(f"{_name_of(panel)}, {series}", rise, "at least", 20.0))
    return parts


# Claims of this project


def _rows_saved(numbers: Numbers, panels: Sequence[str]) -> list[ClaimPart]:
    return [
        ClaimPart(
            f"{_name_of(panel)}, {worse} over {ours}",
            ratios(numbers, panel, ours, worse, None, LEVEL),
            "at least",
        )
        for panel in panels
        for ours, worse in (("eigenveil", "analyze-gauss"), ("eigenveil-pure", "ppca"))
    ]
