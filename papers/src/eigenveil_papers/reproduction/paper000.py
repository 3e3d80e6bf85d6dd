"""Figures 1 and 2 of paper 000: DPdisPCA's captured energy against everything it depends on."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from eigenveil_papers.reproduction.distributed_cases import (
    ALL,
    PAPERS,
    SITES_STYLES,
    chosen,
    drawn,
    panel,
    panel_tasks,
)
from eigenveil_papers.reproduction.distributed_pca import Sweep
from eigenveil_papers.reproduction.experiment import Experiment, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import panel_grid
from eigenveil_papers.reproduction.given import pca_of_sites
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.paper000_claims import THEIRS, figure1_claims, figure2_claims

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
    "mnist": {"epsilon": 35.0, "rows": 9.0, "sites": 35.0, "rank": 9.0, "delta": 5.0},
    "synthetic": {"epsilon": 4.0, "rows": 3.5, "sites": 3.0, "rank": 1.0, "delta": 1.0},
    "covtype": {"epsilon": 0.5, "rows": 0.2, "sites": 0.3, "rank": 0.2, "delta": 0.2},
    "digits": {"epsilon": 0.5, "rows": 0.2, "sites": 0.3, "rank": 0.2, "delta": 0.2},
}
_COSTS["fashion-mnist"] = _COSTS["mnist"]


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


def _tasks1(settings: RunSettings) -> list[RunTask]:
    return _tasks(settings, FIGURE_1)


def _tasks2(settings: RunSettings) -> list[RunTask]:
    return _tasks(settings, ("delta",))


def _draw(numbers: Numbers, settings: RunSettings, sweeps: Sequence[Sweep], title: str) -> Figure:
    names = chosen(settings)
    panels = [
        panel(name, sweep, settings, ours=THEIRS, sweeps=sweeps)
        for sweep in sweeps
        for name in names
    ]
    return panel_grid(
        drawn(numbers, _DRAWN), panels, SITES_STYLES, columns=max(2, len(names)), title=title
    )


def _draw1(numbers: Numbers, settings: RunSettings) -> Figure:
    return _draw(numbers, settings, FIGURE_1, "Captured energy of private PCA of several sites")


def _draw2(numbers: Numbers, settings: RunSettings) -> Figure:
    return _draw(numbers, settings, ("delta",), "Captured energy against delta")


_SETTING = """\
Captured energy tr(V'AV) of K directions, over that of the exact directions of all rows. As in
the authors' script (the paper prints none of it): delta = 0.01, S = 10 sites of 1000 rows (500 of
COVTYPE), R = 2K; as in the text K = 50 (10 for COVTYPE) and rows centred
by their exact mean and divided by the largest norm, which is not private; error bars are standard
errors over runs, each with its own noise and its own rows at each
site. The published methods have their own noise (its calibration, and the sensitivity 1/N for one
row changed, which is sqrt(2) short) and rank directions by singular value, as the authors' code
does: under much noise half of them then belong to negative eigenvalues, and energy is less than
with eigenvalues (measured as "dpdispca-by-value")."""

_OURS = """\
Eigenveil's series promise the same (epsilon, delta) for one row changed, by exact calibration.
"eigenveil" and "eigenveil-sketch" (messages D x R, as DPdisPCA's) get the same centred rows, divide
each by its own norm and spend all on the second moment; "eigenveil-all" gets the rows as they are
and nothing is assumed. In the first three runs of the panels over epsilon they are studies of ten
sites with real masked messages (FederatedPCA; against the aggregator, no sites colluding); else one
curator with the same record of noise (PrivatePCA), for the masked sum carries just that, and a test
compares the two. Where a fit finds the rows too few for its epsilon it returns nothing; random
directions stand for it."""

_ROWS = """\
The panels over N end with the rows at hand, and those over S share out at most 20,000. Their
synthetic covariance is not in the paper; K variances from 10 to 1, the others uniform up to 0.5, is
what their script says and what their stored curves fit. Where a data set is not at hand another
stands in, and the titles say so."""

_NORM = """\
Why curves differ from the authors' by more than their errors: their MNIST curves are lower wherever
noise matters, as if it were 18 % larger. That factor is fitted: with it one run of ours is within
0.01 of theirs over epsilon and 0.02 over delta. The cause is not established. Their rows are the
training set's, and a largest norm 9 % above that of the test set's 10,000 rows would do it, but
those do not suggest so much: the largest of 10,000 is 3 % above that of 1000."""

_DIFFERENCES1 = """\
In the panels over R the authors' "local" has R directions for R below K, here K; those over S are
of fewer rows here. djICA's stored curve is zero throughout; what is drawn is its sequential
scheme."""

_DIFFERENCES2 = """\
The text says K = 50 for MNIST, the authors' script of this panel takes K = 10, and so do we (their
"local" falls to 0.035, where 50 random directions have 0.077). Besides, their scripts measure
energy in all 60,000 rows' second moment and take its share of what the sample's directions have."""

FIG1 = Experiment(
    name="000-fig1",
    title="DPdisPCA: captured energy against epsilon, rows, sites and R",
    paper="000",
    about=" ".join([_SETTING, _OURS, _ROWS, _NORM, _DIFFERENCES1]).replace("\n", " "),
    datasets=ALL,
    tasks=_tasks1,
    draw=_draw1,
    claims=figure1_claims,
    given=pca_of_sites,
    runs="10",
)

FIG2 = Experiment(
    name="000-fig2",
    title="DPdisPCA: captured energy against delta",
    paper="000",
    about=" ".join([_SETTING, _OURS, _ROWS, _NORM, _DIFFERENCES2]).replace("\n", " "),
    datasets=ALL,
    tasks=_tasks2,
    draw=_draw2,
    claims=figure2_claims,
    given=pca_of_sites,
    runs="10",
)

__all__ = ["FIG1", "FIG2", "PAPERS"]
