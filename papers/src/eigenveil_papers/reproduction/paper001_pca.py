"""Figure 2 of paper 001: capePCA's captured energy, and the project's headline beside it."""

from __future__ import annotations

from matplotlib.figure import Figure

from eigenveil_papers.reproduction.distributed_cases import (
    ALL,
    CHOICES,
    DELTA,
    ROTATED,
    SITES,
    SITES_STYLES,
    chosen,
    comparable,
    drawn,
    panel_tasks,
    panels_of,
)
from eigenveil_papers.reproduction.distributed_claims import (
    AUTHORS,
    ENERGY,
    LEVELS,
    as_authors,
    at_its_guarantee,
    sharper,
)
from eigenveil_papers.reproduction.distributed_pca import Sweep
from eigenveil_papers.reproduction.experiment import Claim, Experiment, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import SeriesStyle, panel_grid
from eigenveil_papers.reproduction.given import pca_of_sites
from eigenveil_papers.reproduction.numbers import Measured, Numbers
from eigenveil_papers.reproduction.tables import about, claims_of

SWEEPS: tuple[Sweep, ...] = ("epsilon", "rows", "delta")
THEIRS = {"pooled": "capepca", "full": "conv", "dpdispca": "dpdispca", "local": "local"}
"""The authors' capePCA adds the pooled noise once; their series, and ours drawn beside them."""

_OTHERS = ("dpdispca", "conv", "local")
_DRAWN = ("exact", "capepca", *_OTHERS, "eigenveil", "eigenveil-all")
_SERIES: dict[Sweep, tuple[str, ...]] = {
    "epsilon": (*_DRAWN, "pooled", "pooled-by-value", "eigenveil-add-remove"),
    "rows": tuple(series for series in _DRAWN if series != "eigenveil-all"),
    "delta": tuple(series for series in _DRAWN if series != "eigenveil-all"),
}
_COSTS: dict[str, dict[Sweep, float]] = {
    "mnist": {"epsilon": 30.0, "rows": 8.7, "delta": 8.5},
    "synthetic": {"epsilon": 4.4, "rows": 2.7, "delta": 1.1},
    "covtype": {"epsilon": 0.9, "rows": 0.2, "delta": 0.2},
    "digits": {"epsilon": 0.7, "rows": 0.1, "delta": 0.2},
}
_COSTS |= {"fashion-mnist": _COSTS["mnist"], ROTATED: _COSTS["synthetic"]}


def _panels(settings: RunSettings) -> list[tuple[str, Sweep]]:
    """The paper's nine, and those of rotated rows and of digits, which are always at hand."""
    return [(name, sweep) for name in chosen(settings, CHOICES) for sweep in SWEEPS]


def _tasks(settings: RunSettings) -> list[RunTask]:
    tasks = []
    for name, sweep in _panels(settings):
        if settings.scale == "toy" and name == "mnist" and settings.data is None:
            continue  # too large for a second
        tasks += panel_tasks(name, sweep, settings, series=_SERIES[sweep], cost=_COSTS[name][sweep])
    return tasks


def _draw(numbers: Numbers, settings: RunSettings) -> Figure:
    names = list(dict.fromkeys(name for name, _ in _panels(settings)))
    panels = panels_of(names, SWEEPS, settings, ours=THEIRS)
    return panel_grid(
        drawn(numbers, _DRAWN),
        panels,
        SITES_STYLES | {"dpdispca": SeriesStyle("DPdisPCA", "paper-2")},
        title="Captured energy of capePCA and of Eigenveil",
    )


def _claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    epsilon, rows, delta = (
        [f"{name}-{sweep}" for name in ALL if f"{name}-{sweep}" in numbers.panels]
        for sweep in SWEEPS
    )
    headline = [of for of in ("mnist-epsilon", "digits-epsilon") if of in epsilon]
    theirs = {
        f"{name}-{sweep}": comparable(name, sweep, settings, ours=THEIRS)
        for name, sweep in _panels(settings)
        if f"{name}-{sweep}" in numbers.panels
    }
    return claims_of(
        "001-fig2",
        numbers,
        ENERGY,
        {
            "epsilon": epsilon,
            "rows": rows,
            "delta": delta,
            "every": [*epsilon, *rows, *delta],
            "headline": headline,
            "others": [of for of in epsilon if of not in headline],
            "at its guarantee": (_at_guarantee(numbers, settings, epsilon), epsilon),
        },
        {"sharper": sharper(numbers, "capepca"), "as authors": as_authors(numbers, theirs)},
        others={"as authors": AUTHORS},
        ratio={"positions": LEVELS},
    )


def _at_guarantee(numbers: Numbers, settings: RunSettings, panels: list[str]) -> Numbers:
    """The panels over epsilon, capePCA's points moved to what its noise gives."""
    moved: list[Measured] = []
    for of in panels:
        name = of.removesuffix("-epsilon")
        task = panel_tasks(name, "epsilon", settings, series=(), cost=0.0)[0]
        setting = task.arguments["setting"]
        curve = numbers.curve(of, "capepca")
        real = at_its_guarantee(
            curve, rows=setting["rows"], sites=setting["sites"], delta=setting["delta"]
        )
        to = dict(zip(curve.x[-real.x.size :], real.x, strict=True)) if real.x.size else {}
        moved += [
            row._replace(x=float(to[row.x])) if row.series == "capepca" else row
            for row in numbers.measured
            if row.panel == of and (row.series != "capepca" or row.x in to)
        ]
    return Numbers(moved)


FIG2 = Experiment(
    name="001-fig2",
    title="capePCA: captured energy against epsilon, rows and delta",
    about=about("001-fig2", delta=DELTA, sites=SITES),
    datasets=ALL,
    tasks=_tasks,
    draw=_draw,
    claims=_claims,
    given=pca_of_sites,
    runs="10",
)
