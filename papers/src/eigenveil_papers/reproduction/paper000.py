"""Figures 1 and 2 of paper 000: DPdisPCA's captured energy against everything it depends on."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from eigenveil_papers.reproduction.distributed_cases import (
    ALL,
    PAPERS,
    ROTATED,
    SITES_STYLES,
    chosen,
    drawn,
    panel_tasks,
    panels_of,
)
from eigenveil_papers.reproduction.distributed_pca import Sweep
from eigenveil_papers.reproduction.experiment import Experiment, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import panel_grid
from eigenveil_papers.reproduction.given import pca_of_sites
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.paper000_claims import THEIRS, figure1_claims, figure2_claims
from eigenveil_papers.reproduction.tables import about

FIGURE_1: tuple[Sweep, ...] = ("epsilon", "rows", "sites", "rank")
_PUBLISHED = ("pooled", "full", "dpdispca", "local")
_EXACT = ("dispca", "local-exact")
_SERIES: dict[Sweep, tuple[str, ...]] = {
    "epsilon": (
        *_PUBLISHED,
        "djica",
        *_EXACT,
        "eigenveil",
        "eigenveil-sketch",
        "eigenveil-all",
        "dpdispca-by-value",
    ),
    "rows": (*_PUBLISHED, *_EXACT, "eigenveil", "eigenveil-sketch"),
    "sites": (*_PUBLISHED, *_EXACT, "eigenveil", "eigenveil-sketch"),
    "rank": (*_PUBLISHED, *_EXACT, "eigenveil", "eigenveil-sketch"),
    "delta": (*_PUBLISHED, *_EXACT, "eigenveil", "eigenveil-sketch"),
}
_DRAWN = tuple(series for series in _SERIES["epsilon"] if series != "dpdispca-by-value")
_COSTS: dict[str, dict[Sweep, float]] = {
    "mnist": {"epsilon": 42.0, "rows": 10.0, "sites": 38.0, "rank": 10.0, "delta": 6.5},
    "synthetic": {"epsilon": 5.2, "rows": 4.0, "sites": 3.1, "rank": 1.5, "delta": 2.6},
    "covtype": {"epsilon": 0.8, "rows": 0.2, "sites": 0.4, "rank": 0.2, "delta": 0.3},
    "digits": {"epsilon": 0.5, "rows": 0.2, "sites": 0.3, "rank": 0.2, "delta": 0.2},
}
_COSTS |= {"fashion-mnist": _COSTS["mnist"], ROTATED: _COSTS["synthetic"]}


def _tasks(settings: RunSettings, sweeps: Sequence[Sweep]) -> list[RunTask]:
    tasks = []
    for name in chosen(settings):
        if settings.scale == "toy" and name == "mnist" and settings.data is None:
            continue  # too large for a second
        for sweep in sweeps:
            tasks += panel_tasks(
                name,
                sweep,
                settings,
                series=_series(name, sweep, settings),
                cost=_COSTS[name][sweep],
                studies=settings.pick(3, 1, 1) if sweep == "epsilon" else 0,
            )
    return tasks


def _series(name: str, sweep: Sweep, settings: RunSettings) -> list[str]:
    """What is measured: without the slowest series where they would take most of the time."""
    slow = ("djica", "dpdispca-by-value") if (name, settings.scale) == ("mnist", "fast") else ()
    return [series for series in _SERIES[sweep] if series not in slow]


def _draw(numbers: Numbers, settings: RunSettings, sweeps: Sequence[Sweep], title: str) -> Figure:
    panels = panels_of(chosen(settings), sweeps, settings, ours=THEIRS)
    columns = min(3, 1 + len(sweeps))
    return panel_grid(drawn(numbers, _DRAWN), panels, SITES_STYLES, columns=columns, title=title)


FIG1 = Experiment(
    name="000-fig1",
    title="DPdisPCA: captured energy against epsilon, rows, sites and R",
    about=about("000-fig1"),
    datasets=ALL,
    tasks=lambda settings: _tasks(settings, FIGURE_1),
    draw=lambda numbers, settings: _draw(
        numbers, settings, FIGURE_1, "Captured energy of private PCA of several sites"
    ),
    claims=figure1_claims,
    given=pca_of_sites,
    runs="10",
)

FIG2 = Experiment(
    name="000-fig2",
    title="DPdisPCA: captured energy against delta",
    about=about("000-fig2"),
    datasets=ALL,
    tasks=lambda settings: _tasks(settings, ("delta",)),
    draw=lambda numbers, settings: _draw(
        numbers, settings, ("delta",), "Captured energy against delta"
    ),
    claims=figure2_claims,
    given=pca_of_sites,
    runs="10",
)

__all__ = ["FIG1", "FIG2", "PAPERS"]
