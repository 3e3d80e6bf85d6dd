"""Paper 001's figures 3 to 5: component errors of mixtures and topics, and the tensors' noise."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from eigenveil_papers.reproduction.authors import authors
from eigenveil_papers.reproduction.experiment import Claim, Experiment, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import SERIES_STYLES, Panel, SeriesStyle, panel_grid
from eigenveil_papers.reproduction.given import tensors
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.paper001_tensor_claims import tensor_claims
from eigenveil_papers.reproduction.paper001_tensor_noise import whitened_noise
from eigenveil_papers.reproduction.paper001_tensor_panels import (
    DELTA,
    Model,
    Sweep,
    delta_sweeps,
    error_sweeps,
    error_tasks,
    short,
)
from eigenveil_papers.reproduction.tables import about

# AGN's result is capeAGN's in law; the authors' own setting (data.repeated_sites) is for the
# claims. They are measured and not drawn.
_NOT_DRAWN = {"agn", "capeagn-repeated", "exact-repeated", "exact-one-start"}
_NOISE = "-noise"
_STYLES = SERIES_STYLES | {
    "local": SeriesStyle("one site alone (AGN)", "baseline-4"),
    "capeagn": SeriesStyle("capeAGN (AGN: the same noise)", "paper"),
    "agn": SeriesStyle("capeAGN (AGN: the same noise)", "paper"),
    "avn": SeriesStyle("AVN, one data set", "paper-2"),
    "eigenveil-uncentred": SeriesStyle("Eigenveil, rows not centred", "ours-2"),
    "random": SeriesStyle("random vectors", "random"),
}
_XLABELS = {"epsilon": "ε", "rows": "rows N of all sites", "delta": "δ"}


def _noise_tasks(model: Model, settings: RunSettings) -> list[RunTask]:
    """Over epsilon at the paper's larger size, and over the number of features at epsilon = 1."""
    size, count, rows = settings.pick((50, 10, 100_000), (50, 10, 50_000), (20, 3, 20_000))
    epsilons = settings.pick((0.01, 0.1, 1.0, 10.0), (1.0, 10.0), (1.0,))
    sizes = settings.pick((20, 100), (), ()) if model == "mixture" else ()
    over, by_size = f"{model}{_NOISE}-epsilon", f"{model}{_NOISE}-features"
    targets: dict[int, list[list[object]]] = {
        size: [[over, epsilon, epsilon, DELTA] for epsilon in epsilons]
    }
    if sizes:
        for one in (size, *sizes):
            targets.setdefault(one, []).append([by_size, float(one), 1.0, DELTA])
    return [
        RunTask(
            whitened_noise,
            {
                "model": model,
                "size": one,
                "count": count,
                "rows": rows,
                "targets": requested,
                "draws": settings.pick(2, 2, 4),
            },
            run,
            (1.0 + one / 30) * len(requested),
        )
        for one, requested in targets.items()
        for run in settings.repetitions()
    ]


def _tasks(model: Model, settings: RunSettings) -> list[RunTask]:
    sweeps, repeated = error_sweeps(model, settings), model == "mixture"
    errors = error_tasks(sweeps, settings.repetitions(), repeated=repeated)
    return [*errors, *_noise_tasks(model, settings)]


def _draw_errors(model: Model, numbers: Numbers, settings: RunSettings) -> Figure:
    task = _noise_tasks(model, settings)[0].arguments
    at = f"D={task['size']}, K={task['count']}, N={short(task['rows'])}"
    noise = [
        Panel(
            f"{model}{_NOISE}-{over}",
            f"noise in the whitened third moment\n{of}, δ={DELTA:g}, S=5",
            axis,
            "root mean square",
            yscale="log",
        )
        for over, of, axis in (
            ("epsilon", at, "ε"),
            ("features", "K=10, N=100k, ε=1", "features D"),
        )
    ]
    panels = [*map(_panel, error_sweeps(model, settings)), *noise]
    what = {"mixture": "Mixtures of Gaussians", "topics": "Single-topic documents"}[model]
    title = f"{what}: error of the components"
    return panel_grid(_drawn(numbers), panels, _STYLES, columns=2, title=title)


def _panel(sweep: Sweep) -> Panel:
    title = f"{sweep.model}: {sweep.statement}" if sweep.over == "delta" else sweep.statement
    fixed = "S=5" if sweep.over == "delta" else f"δ={DELTA:g}, S=5"
    return Panel(
        sweep.panel,
        f"{title}, {fixed}",
        _XLABELS[sweep.over],
        "error of components",
        yscale="log",
        authors=authors("component_error", sweep.authors),
    )


def _drawn(numbers: Numbers) -> Numbers:
    return Numbers(
        row for row in numbers.measured if _NOISE in row.panel or row.series not in _NOT_DRAWN
    )


def _draw_delta(numbers: Numbers, settings: RunSettings) -> Figure:
    panels = [_panel(sweep) for sweep in delta_sweeps(settings)]
    title = "Error of the components against δ"
    return panel_grid(_drawn(numbers), panels, _STYLES, columns=2, title=title)


def _claims(name: str, model: Model, numbers: Numbers, settings: RunSettings) -> list[Claim]:
    size = _noise_tasks(model, settings)[0].arguments["size"]
    return tensor_claims(name, numbers, error_sweeps(model, settings), model, size)


_experiment = partial(Experiment, given=tensors, runs="10")

FIG3 = _experiment(
    name="001-fig3",
    title="Mixtures of Gaussians by tensor decomposition: component error against ε and N",
    about=about("001-fig3"),
    tasks=partial(_tasks, "mixture"),
    draw=partial(_draw_errors, "mixture"),
    claims=partial(_claims, "001-fig3", "mixture"),
)


FIG4 = _experiment(
    name="001-fig4",
    title="Single-topic documents by tensor decomposition: component error against ε and N",
    about=about("001-fig4"),
    tasks=partial(_tasks, "topics"),
    draw=partial(_draw_errors, "topics"),
    claims=partial(_claims, "001-fig4", "topics"),
)


FIG5 = _experiment(
    name="001-fig5",
    title="Mixtures and topics by tensor decomposition: component error against δ",
    about=about("001-fig5"),
    tasks=lambda settings: error_tasks(delta_sweeps(settings), settings.repetitions()),
    draw=_draw_delta,
    claims=lambda numbers, settings: tensor_claims("001-fig5", numbers, delta_sweeps(settings)),
)
