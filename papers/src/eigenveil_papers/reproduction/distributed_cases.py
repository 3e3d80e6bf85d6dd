"""The data sets, settings and positions of papers 000 and 001's PCA figures, and their panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eigenveil_papers.reproduction.authors import AuthorsCurve, authors
from eigenveil_papers.reproduction.data import Source, find, load, title_of
from eigenveil_papers.reproduction.distributed_pca import Setting, Sweep, captured_energy, shape_of
from eigenveil_papers.reproduction.experiment import RunSettings, RunTask
from eigenveil_papers.reproduction.figure import SERIES_STYLES, Panel, SeriesStyle
from eigenveil_papers.reproduction.numbers import Numbers

PAPERS = ("synthetic", "mnist", "covtype")
"""The data sets of both papers."""
ROTATED = "synthetic-rotated"
"""The synthetic rows, whose directions are the features' own in the papers, in other axes."""
CHOICES = ("synthetic", ROTATED, "mnist", "covtype", "digits")
"""Those that are run if none is named, where a figure shows digits too."""
ALL = (*CHOICES, "fashion-mnist")
"""Those that may be named."""

DELTA = 0.01
SITES = 10
EPSILONS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
DELTAS = (1e-4, 5e-4, 0.001, 0.005, 0.01, 0.05)
RATIOS = (0.26, 0.5, 0.76, 1.0, 2.0, 4.0)
"""R over K; the authors' R are 13, 25, 38, 50, 100 and 200 for K = 50."""
COUNTS = (1000, 2000, 5000, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000)
SITE_COUNTS = (5, 10, 20, 50, 100)
MOST_ROWS = 60_000
"""The papers' rows of MNIST and of COVTYPE, which they drew at random from all."""
_ROWS_OVER_SITES = 20_000
_STUDY = 0.4  # seconds that the protocol takes more, a position
_MADE_UP = {"full": (60_000, 200, 50), "fast": (20_000, 200, 50), "toy": (2000, 30, 8)}


@dataclass(frozen=True, kw_only=True)
class DataSetUse:
    components: int  # K
    rows: int  # At each site, where the panel is not about that
    epsilon: float  # Of the panels over rows, sites and R
    epsilon_for_delta: float
    # K of the panel over delta, where it is another: the text says 50 for MNIST, the authors'
    # script takes 10
    components_for_delta: int | None = None
    runs: int = 20  # At full scale


CASES: Mapping[str, DataSetUse] = {
    "synthetic": DataSetUse(components=50, rows=1000, epsilon=0.5, epsilon_for_delta=1.0),
    "mnist": DataSetUse(
        components=50,
        rows=1000,
        epsilon=1.0,
        epsilon_for_delta=2.0,
        components_for_delta=10,
        runs=5,
    ),
    "covtype": DataSetUse(components=10, rows=500, epsilon=0.1, epsilon_for_delta=0.5),
    "digits": DataSetUse(components=10, rows=179, epsilon=0.5, epsilon_for_delta=1.0),
}
CASES = {**CASES, "fashion-mnist": CASES["mnist"], ROTATED: replace(CASES["synthetic"], runs=10)}
_TITLES = {"synthetic": "synthetic", ROTATED: "synthetic, rotated"}
_STORED = {"synthetic": "synth", "mnist": "mnist", "covtype": "covtype"}
_SWEEPS: Mapping[Sweep, str] = {
    "epsilon": "epsilon",
    "rows": "samples",
    "sites": "S",
    "rank": "R",
    "delta": "delta",
}
_AXES: Mapping[Sweep, str] = {
    "epsilon": "epsilon",
    "rows": "N, rows of all sites",
    "sites": "S, sites",
    "rank": "R / K",
    "delta": "delta",
}


def chosen(settings: RunSettings, names: Sequence[str] = CHOICES[:-1]) -> tuple[str, ...]:
    return tuple(names) if settings.data is None else (settings.data,)


def data_of(name: str, settings: RunSettings) -> dict[str, Any]:
    if name in _TITLES:
        rows, features, components = _MADE_UP[settings.scale]
        made_up = {"rows": rows, "features": features, "components": components}
        return {"made_up": {**made_up, "rotated": name == ROTATED}}
    source = find(name, settings)
    more = {"rows": MOST_ROWS} if len(load(source).X) > MOST_ROWS else {}
    return {"source": source.as_arguments(), **more}


def panel_tasks(
    name: str,
    sweep: Sweep,
    settings: RunSettings,
    *,
    series: Sequence[str],
    cost: float,
    studies: int = 0,
) -> list[RunTask]:
    data, setting, values, share = _planned(name, sweep, settings)
    arguments = {
        "name": name,
        "data": data,
        "sweep": sweep,
        "values": values,
        "setting": setting.as_arguments(),
        "series": list(series),
    }
    runs = settings.repetitions(full=CASES[name].runs, fast=1 if name == "mnist" else 2)
    return [
        RunTask(
            captured_energy,
            {**arguments, "protocol": run < studies},
            run,
            share * (cost + (_STUDY * len(values) if run < studies else 0.0)),
        )
        for run in runs
    ]


def _planned(
    name: str, sweep: Sweep, settings: RunSettings
) -> tuple[dict[str, Any], Setting, list[float], float]:
    """Of a panel: the rows, what is fixed, the positions, and their share of the full scale's."""
    data, case = data_of(name, settings), CASES[name]
    n, features = shape_of(data)
    components = min(_components(name, sweep), max(2, features // 4))
    sites = settings.pick(SITES, SITES, 4)
    rows = min(case.rows * SITES, n) // sites * sites
    setting = Setting(
        components=components,
        intermediate=min(features, 2 * components),
        sites=sites,
        rows=rows if sweep != "sites" else min(_ROWS_OVER_SITES, n),
        epsilon=case.epsilon_for_delta if sweep == "delta" else case.epsilon,
        delta=DELTA,
    )
    shape = {"rows": n, "features": features, "components": components}
    values = positions(sweep, settings, **shape, sites=sites)
    if sweep == "sites":  # equally many rows at each, however many
        whole = max(int(value) for value in values)
        setting = replace(setting, rows=setting.rows // whole * whole)
    share = len(values) / len(positions(sweep, RunSettings(), **shape, sites=SITES))
    return data, setting, values, share


def _components(name: str, sweep: Sweep) -> int:
    case = CASES[name]
    other = case.components_for_delta if sweep == "delta" else None
    return other or case.components


def positions(
    sweep: Sweep, settings: RunSettings, *, rows: int, features: int, components: int, sites: int
) -> list[float]:
    """Where a panel is measured: the authors' positions as far as the rows at hand go."""
    match sweep:
        case "epsilon":
            return list(settings.pick(EPSILONS, (0.1, 1.0, 10.0), (0.1, 10.0)))
        case "delta":
            return list(settings.pick(DELTAS, (1e-4, 0.001, 0.05), (1e-4, 0.05)))
        case "rank":
            wanted: tuple[float, ...] = settings.pick(RATIOS, (0.26, 1.0, 2.0), (0.5, 2.0))
            columns = [max(1, round(ratio * components)) for ratio in wanted]
            return [r / components for r in dict.fromkeys(columns) if r <= features]
        case "sites":
            return [float(s) for s in settings.pick(SITE_COUNTS, (5, 20), (4, 20))]
    whole = rows // sites * sites
    within: list[float] = [float(count) for count in COUNTS if count < whole]
    if len(within) < 2:  # few rows: a stand-in, or digits
        within = [float(whole // 10 // sites * sites), float(whole // 3 // sites * sites)]
    within.append(float(min(whole, COUNTS[-1])))
    few = [within[0], within[len(within) // 2], within[-1]]
    return settings.pick(within, list(dict.fromkeys(few)), [within[0], within[-1]])


def panels_of(
    names: Sequence[str],
    sweeps: Sequence[Sweep],
    settings: RunSettings,
    *,
    ours: Mapping[str, str],
) -> list[Panel]:
    """As in the paper: its rows are sweeps, its columns data sets; other data sets after it."""
    pairs = [(name, sweep) for name in names for sweep in sweeps]
    of_paper = [(name, sweep) for sweep in sweeps for name in PAPERS if len(sweeps) > 1]
    letters = dict(zip(of_paper, "abcdefghijkl", strict=False))
    return [
        Panel(
            f"{name}-{sweep}",
            letter=letters.get((name, sweep), ""),
            title=f"{title(name, settings)}\n{_fixed(name, sweep, settings)}",
            xlabel=_AXES[sweep],
            ylabel="captured energy",
            ylim=(0.0, 1.04),
            authors=authors_curves(name, sweep, settings, ours=ours),
        )
        for name, sweep in sorted(pairs, key=[*letters, *pairs].index)
    ]


def _fixed(name: str, sweep: Sweep, settings: RunSettings) -> str:
    setting = _planned(name, sweep, settings)[1]
    said = {
        "epsilon": f"ε={setting.epsilon:g}",
        "delta": f"δ={setting.delta:g}",
        "sites": f"S={setting.sites}",
        "rows": f"N={setting.rows:,}",
    }
    said.pop(sweep, None)
    return ", ".join([*said.values(), f"K={setting.components}"])


def title(name: str, settings: RunSettings) -> str:
    return _TITLES[name] if name in _TITLES else title_of(find(name, settings))


def authors_curves(
    name: str, sweep: Sweep, settings: RunSettings, *, ours: Mapping[str, str]
) -> dict[str, AuthorsCurve]:
    """What the authors stored of a panel, by our series; nothing for rows that are not theirs."""
    if name not in _STORED or settings.scale == "toy":
        return {}
    if name != "synthetic" and Source.of(data_of(name, settings)["source"]).stand_in_for:
        return {}
    found = authors("captured_energy", f"{_STORED[name]}_vs_{_SWEEPS[sweep]}")
    k = CASES[name].components if sweep == "rank" else 1
    return {ours[of]: (x / k, values) for of, (x, values) in found.items() if of in ours}


def comparable(
    name: str, sweep: Sweep, settings: RunSettings, *, ours: Mapping[str, str]
) -> dict[str, AuthorsCurve]:
    """Those of the authors' curves that are of the same thing as ours.

    Over S theirs are of 20,000 rows, and ours only where there are so many; and their local one has
    R directions where R is below K, ours K.
    """
    curves = authors_curves(name, sweep, settings, ours=ours)
    if sweep == "sites" and shape_of(data_of(name, settings))[0] < _ROWS_OVER_SITES:
        return {}
    if sweep == "rank":
        for of in curves.keys() & {"local", "local-exact"}:
            x, values = curves[of]
            curves[of] = (x[x >= 1.0], values[x >= 1.0])
    return curves


def drawn(numbers: Numbers, series: Sequence[str]) -> Numbers:
    """Only these series: others were measured for the claims."""
    return Numbers(row for row in numbers.measured if row.series in series)


CENTRED = "exact centre (not private)"
SITES_STYLES: dict[str, SeriesStyle] = SERIES_STYLES | {
    "eigenveil": SeriesStyle(f"Eigenveil, {CENTRED}", "ours"),
    "eigenveil-sketch": SeriesStyle(f"Eigenveil, sketch, {CENTRED}", "ours-sketch"),
}
"""Where the rows of ours are not taken as they are, legends say so."""
