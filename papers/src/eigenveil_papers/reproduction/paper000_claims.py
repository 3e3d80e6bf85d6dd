"""What paper 000 says about its figures, and this project beside it, held against the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from eigenveil_papers.reproduction.authors import AuthorsCurve
from eigenveil_papers.reproduction.distributed_cases import ALL, SITES, chosen, comparable
from eigenveil_papers.reproduction.distributed_claims import (
    AUTHORS,
    ENERGY,
    LEVELS,
    as_authors,
    sharper,
)
from eigenveil_papers.reproduction.distributed_pca import Sweep
from eigenveil_papers.reproduction.experiment import Claim, RunSettings
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.rule import TIMES, ClaimPart, Effect, ratios
from eigenveil_papers.reproduction.tables import claims_of

THEIRS = {
    name: name for name in ("pooled", "full", "dpdispca", "local", "dispca", "local-exact", "djica")
}
"""The authors' series are drawn beside ours of the same name."""

_PRIVATE = ("pooled", "full", "dpdispca", "local")


def _panels(numbers: Numbers, *sweeps: Sweep) -> list[str]:
    return [
        f"{name}-{sweep}" for sweep in sweeps for name in ALL if f"{name}-{sweep}" in numbers.panels
    ]


def figure1_claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    sweeps: tuple[Sweep, ...] = ("epsilon", "rows", "sites", "rank")
    return claims_of(
        "000-fig1",
        numbers,
        ENERGY,
        {
            "epsilon": _panels(numbers, "epsilon"),
            "rows": _panels(numbers, "rows"),
            "every": _panels(numbers, *sweeps),
        },
        {
            "smaller dimension": _smaller_dimension(numbers),
            "sharper": sharper(numbers, "dpdispca"),
            "saturates in sites": _saturates_in_sites(numbers),
            "saturates in rank": _saturates_in_rank(numbers),
            "as authors": as_authors(numbers, _theirs(numbers, settings, sweeps)),
        },
        others={"smaller dimension": TIMES, "as authors": AUTHORS},
        ratio={"positions": LEVELS},
        half=f"{_HALF:.0%}",
        sites=SITES,
    )


def figure2_claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    panels = _panels(numbers, "delta")
    return claims_of(
        "000-fig2",
        numbers,
        ENERGY,
        {"every": panels, "smallest and best": (_smallest_and_best(numbers, panels), panels)},
        {"as authors": as_authors(numbers, _theirs(numbers, settings, ("delta",)))},
        others={"as authors": AUTHORS},
        sites=SITES,
    )


def _smallest_and_best(numbers: Numbers, panels: Sequence[str]) -> Numbers:
    """Numbers at one position a panel: ours at the smallest delta, their best at any."""
    rows = []
    for panel in panels:
        ours = numbers.curve(panel, "eigenveil")
        if not ours.x.size:
            continue
        rows += [
            row._replace(x=0.0)
            for row in numbers.measured
            if (row.panel, row.series) == (panel, "eigenveil") and row.x == ours.x[0]
        ]
        tops = {}
        for of in _PRIVATE:
            curve = numbers.curve(panel, of)
            if curve.x.size:
                best = int(np.argmax(curve.mean))
                tops[of] = (float(curve.mean[best]), float(curve.x[best]))
        if not tops:
            continue
        top = max(tops, key=lambda of: tops[of][0])
        rows += [
            row._replace(series="best", x=0.0)
            for row in numbers.measured
            if (row.panel, row.series, row.x) == (panel, top, tops[top][1])
        ]
    return Numbers(rows)


def _theirs(
    numbers: Numbers, settings: RunSettings, sweeps: Sequence[Sweep]
) -> dict[str, dict[str, AuthorsCurve]]:
    return {
        f"{name}-{sweep}": comparable(name, sweep, settings, ours=THEIRS)
        for sweep in sweeps
        for name in chosen(settings)
        if f"{name}-{sweep}" in numbers.panels
    }


_HALF = 0.6  # of the exact energy: above what any of the random subspaces has


def _smaller_dimension(numbers: Numbers) -> list[ClaimPart]:
    """COVTYPE has 54 features, the synthetic rows 200, MNIST 784."""
    names = [of for of in ("covtype", "synthetic", "mnist") if f"{of}-epsilon" in numbers.panels]
    parts = []
    for small, large in pairwise(names):
        both = numbers.together({(f"{of}-epsilon", "dpdispca"): of for of in (small, large)})
        found = ratios(both, "", small, large, None, _HALF)
        parts.append(ClaimPart(f"{large} over {small}", found, "at least"))
    return parts


def _saturates_in_sites(numbers: Numbers) -> list[ClaimPart]:
    parts = []
    for panel in _panels(numbers, "sites"):
        x, values = numbers.complete(panel, "dpdispca")
        if len(x) < 3 or not len(values):
            continue
        steps = values[:, :-1] - values[:, 1:]
        name = panel.removesuffix("-sites")
        fall = Effect.of(f"{x[0]:g} to {x[-1]:g} sites", values[:, 0] - values[:, -1])
        flat = Effect.of("half the first step less the last", 0.5 * steps[:, 0] - steps[:, -1])
        parts.append(ClaimPart(f"{name}, lost", (fall,), "better"))
        parts.append(ClaimPart(f"{name}, flattening", (flat,), "at least"))
    return parts


def _saturates_in_rank(numbers: Numbers) -> list[ClaimPart]:
    parts = []
    for panel in _panels(numbers, "rank"):
        x, values = numbers.complete(panel, "dpdispca")
        if len(x) < 3 or not len(values):
            continue
        at_k = int(np.argmin(np.abs(np.array(x) - 1.0)))
        if not 0 < at_k < len(x) - 1:
            continue
        name = panel.removesuffix("-rank")
        before = values[:, at_k] - values[:, 0]
        beyond = np.abs(values[:, -1] - values[:, at_k])
        parts.append(ClaimPart(f"{name}, up to R = K", (Effect.of("", before),), "better"))
        less = Effect.of("that less the change beyond", before - beyond)
        parts.append(ClaimPart(f"{name}, flattening", (less,), "at least"))
    return parts
