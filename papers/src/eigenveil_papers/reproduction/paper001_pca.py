"""Figure 2 of paper 001: capePCA's captured energy, and the project's headline beside it."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from eigenveil_papers.reproduction.distributed_cases import (
    ALL,
    CHOICES,
    DELTA,
    SITES,
    SITES_STYLES,
    chosen,
    comparable,
    drawn,
    panel,
    panel_tasks,
)
from eigenveil_papers.reproduction.distributed_claims import (
    ENERGY,
    LEVELS,
    TARGET,
    as_authors,
    at_its_guarantee,
)
from eigenveil_papers.reproduction.distributed_pca import Sweep
from eigenveil_papers.reproduction.experiment import Claim, Experiment, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import SeriesStyle, panel_grid
from eigenveil_papers.reproduction.given import pca_of_sites
from eigenveil_papers.reproduction.numbers import Measured, Numbers
from eigenveil_papers.reproduction.rule import OURS, Scope

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
    "mnist": {"epsilon": 25.0, "rows": 8.0, "delta": 6.0},
    "synthetic": {"epsilon": 2.5, "rows": 2.0, "delta": 0.7},
    "covtype": {"epsilon": 0.4, "rows": 0.2, "delta": 0.1},
    "digits": {"epsilon": 0.4, "rows": 0.2, "delta": 0.1},
}
_COSTS["fashion-mnist"] = _COSTS["mnist"]


def _panels(settings: RunSettings) -> list[tuple[str, Sweep]]:
    """The paper's nine, and those of digits, which are always at hand."""
    return [(name, sweep) for sweep in SWEEPS for name in chosen(settings, CHOICES)]


def _tasks(settings: RunSettings) -> list[RunTask]:
    tasks = []
    for name, sweep in _panels(settings):
        if settings.scale == "toy" and name == "mnist" and settings.data is None:
            continue  # too large for a second
        tasks += panel_tasks(name, sweep, settings, series=_SERIES[sweep], cost=_COSTS[name][sweep])
    return tasks


def _draw(numbers: Numbers, settings: RunSettings) -> Figure:
    panels = [
        panel(name, sweep, settings, ours=THEIRS, sweeps=SWEEPS)
        for name, sweep in _panels(settings)
    ]
    return panel_grid(
        drawn(numbers, _DRAWN),
        panels,
        SITES_STYLES | {"dpdispca": SeriesStyle("DPdisPCA", "paper-2")},
        columns=4 if settings.data is None else 3,
        title="Captured energy of capePCA and of Eigenveil",
    )


def _claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    epsilon, rows, delta = (
        [f"{name}-{sweep}" for name in ALL if f"{name}-{sweep}" in numbers.panels]
        for sweep in SWEEPS
    )
    panels = [*epsilon, *rows, *delta]
    where = "Section 6.1, figure 2"
    over_epsilon = Scope(numbers, f"{where} (a)-(c)", epsilon, ENERGY)
    theirs = {
        f"{name}-{sweep}": comparable(name, sweep, settings, ours=THEIRS)
        for name, sweep in _panels(settings)
        if f"{name}-{sweep}" in numbers.panels
    }
    return [
        Scope(numbers, "Section 4", epsilon, ENERGY).same(
            "capePCA has the utility of pooled rows with Analyze Gauss.", "capepca", "pooled"
        ),
        *(
            Scope(numbers, where, panels, ENERGY).better(
                f"capePCA clearly outperforms {name}.", "capepca", other
            )
            for name, other in (
                ("DPdisPCA", "dpdispca"),
                ("the conventional way, all noise at each site", "conv"),
                ("one site alone", "local"),
            )
        ),
        over_epsilon.rises("As epsilon increases, the captured energy increases.", "capepca"),
        over_epsilon.reaches(
            "capePCA reaches the optimal energy for some parameter choices (here: 95 % of it).",
            "capepca",
            0.95,
        ),
        Scope(numbers, f"{where} (d)-(f)", rows, ENERGY).rises(
            "The utility increases with the rows at each site.", "capepca"
        ),
        Scope(numbers, f"{where} (g)-(i)", delta, ENERGY).rises(
            "Lower delta means more noise: the energy rises with delta.", "capepca"
        ),
        as_authors(
            "The authors' stored curves, taken as figure 2's, come out.",
            "Figure 2",
            numbers,
            theirs,
        ),
        *_ten_times(numbers, settings, epsilon),
        Scope(numbers, OURS, panels, ENERGY).better(
            "At the same (epsilon, delta) Eigenveil captures more than every published method of "
            "this figure.",
            "eigenveil",
            ("capepca", *_OTHERS),
        ),
    ]


def _ten_times(numbers: Numbers, settings: RunSettings, epsilon: list[str]) -> Iterator[Claim]:
    headline = [of for of in ("mnist-epsilon", "digits-epsilon") if of in epsilon]
    others = [of for of in epsilon if of not in headline]
    first = (
        "Headline: on MNIST and digits {} needs at least 10 times the epsilon for the same energy."
    )
    moved = _at_guarantee(numbers, settings, epsilon)
    for statement, found, panels, ours, theirs in (
        (first.format("DPdisPCA"), numbers, headline, "eigenveil", "dpdispca"),
        (first.format("capePCA"), numbers, headline, "eigenveil", "capepca"),
        (" on the other data, too.", numbers, others, "eigenveil", "capepca"),
        (
            " of ours for one row more or less, for which 1/N really is the sensitivity.",
            numbers,
            epsilon,
            "eigenveil-add-remove",
            "capepca",
        ),
        (
            " also if its aggregator ranks by eigenvalue, better than as published.",
            numbers,
            epsilon,
            "eigenveil",
            "pooled-by-value",
        ),
        (
            " of ours with nothing assumed of the rows: centre and scale are private too.",
            numbers,
            epsilon,
            "eigenveil-all",
            "capepca",
        ),
        (
            ", if it is the one that its noise really gives against the aggregator for one row "
            "changed, in place of the one it claims.",
            moved,
            epsilon,
            "eigenveil",
            "capepca",
        ),
    ):
        whole = "" if panels is headline else "capePCA needs 10 times the epsilon"
        yield Scope(found, OURS, panels).epsilon_ratios(
            whole + statement, ours, theirs, least=TARGET, positions=LEVELS
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


_ABOUT = f"""\
Captured energy of K directions over that of the exact ones, as paper 000 measures it and with
its settings: delta = {DELTA}, S = {SITES} sites of 1000 rows (500 of COVTYPE, 179 of digits), K
= 50 (10 for COVTYPE and digits), exact centring and largest norm, which are not private; error
bars are standard errors over runs. capePCA runs the real protocol, zero-sum
noise and all; the authors' code adds the pooled noise once, and that is drawn as their curve.
"eigenveil" promises the same (epsilon, delta) against the same aggregator for one row changed:
the same centred rows, each divided by its own norm, isometric noise, exact calibration, all
spent on the second moment. It is run as one curator with the record of noise of the masked
protocol (a test compares the two; figure 1 of paper 000 runs the protocol). "eigenveil-all"
gets the rows as they are and assumes nothing; where it finds them too few for its epsilon and
returns nothing, random directions stand for it. The published noise is short of its claim: the
aggregator sees all messages together, which is sqrt(2S/(S+1)) in mu, and one row changed moves
the second moment by sqrt(2)/N, not 1/N; with this delta and a small epsilon the classic
calibration wastes more than that. One claim below compares at the epsilon that the noise really
gives. Directions are ranked by singular value as published; ranking by eigenvalue, better under
much noise, is measured too ("pooled-by-value"). The panels of digits are not the paper's: their
rows are always at hand. The panels over N end with the rows at hand. The authors' MNIST curves are
lower wherever noise matters, as if it were 18 % larger (a fitted factor; paper 000's figures say
more). The cause is not established: their rows are the training set, and a largest norm 9 %
above that of the test set's would do it, which those rows do not suggest. Against delta the
authors' script takes K = 10 for MNIST, as we do."""

FIG2 = Experiment(
    name="001-fig2",
    title="capePCA: captured energy against epsilon, rows and delta",
    paper="001",
    about=_ABOUT.replace("\n", " "),
    datasets=ALL,
    tasks=_tasks,
    draw=_draw,
    claims=_claims,
    given=pca_of_sites,
    runs="10",
)
