"""What a run leaves in its folder: figures, numbers and verdicts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from eigenveil.errors import OutputError
from eigenveil.files import replacing
from eigenveil.io.write import write_columns
from eigenveil_papers.reproduction import figure, runner
from eigenveil_papers.reproduction.experiment import Claim, Experiment, RunSettings
from eigenveil_papers.reproduction.given import runs_of
from eigenveil_papers.reproduction.headlines import headline
from eigenveil_papers.reproduction.numbers import Measured, Numbers

MEANS, RUNS, CLAIMS = ".csv", ".runs.csv", ".json"


@dataclass(frozen=True, kw_only=True)
class Reproduced:
    """What a person gets of an experiment."""

    experiment: Experiment
    numbers: Numbers
    claims: tuple[Claim, ...]
    files: tuple[Path, ...]  # Figures (PNG, SVG), means and runs (CSV), claims (JSON)


def make(
    experiment: Experiment,
    settings: RunSettings,
    *,
    out: Path,
    jobs: int = 1,
    progress: runner.Progress | None = None,
    restart: bool = False,
) -> Reproduced:
    """Measure, draw, judge and write: see :func:`eigenveil_papers.reproduction.runner.run`."""
    numbers = runner.run(
        experiment, settings, out=out, jobs=jobs, progress=progress, restart=restart
    )
    return write(experiment, settings, numbers, out)


def redraw(experiment: Experiment, settings: RunSettings, *, out: Path) -> Reproduced:
    """Draw and judge anew what an earlier run measured, at its scale, without measuring."""
    numbers = read_runs(out / f"{experiment.name}{RUNS}")
    path = out / f"{experiment.name}{CLAIMS}"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        settings = replace(
            settings, scale=stored["scale"], data=stored["data"], runs=stored["repetitions"]
        )
        tasks = str(stored["tasks"])
    except (OSError, ValueError, KeyError):
        raise _no_numbers(path) from None
    # titles and what was used are of the data that are found now
    if tasks != _tasks_digest(experiment, settings):
        raise OutputError("other-settings", path=path)
    return write(experiment, settings, numbers, out)


def write(experiment: Experiment, settings: RunSettings, numbers: Numbers, out: Path) -> Reproduced:
    """Write figures, numbers and claims; the same numbers give the same bytes."""
    claims = tuple(experiment.claims(numbers, settings))
    given = (*experiment.given(settings), runs_of(numbers, experiment.runs))
    pictures = figure.save(experiment.draw(numbers, settings), out / experiment.name)
    files = [out / f"{experiment.name}{end}" for end in (MEANS, RUNS, CLAIMS)]
    write_means(numbers, files[0])
    write_runs(numbers, files[1])
    values = {
        "name": experiment.name,
        "paper": experiment.paper,
        "title": experiment.title,
        "about": experiment.about,
        "differences": experiment.differences,
        "headline": headline(experiment.name, numbers, settings, claims),
        "scale": settings.scale,
        "data": settings.data,
        "repetitions": settings.runs,
        "tasks": _tasks_digest(experiment, settings),
        "given": [asdict(each) for each in given],
        "claims": [asdict(claim) for claim in claims],
    }
    with replacing(files[2]) as scratch:
        scratch.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    for path in files:
        path.chmod(0o644)
    return Reproduced(
        experiment=experiment, numbers=numbers, claims=claims, files=(*pictures, *files)
    )


def _tasks_digest(experiment: Experiment, settings: RunSettings) -> str:
    """Of what is measured: the data's files, the arguments and the runs."""
    keys = sorted(task.key for task in experiment.tasks(settings))
    return hashlib.sha256("".join(keys).encode()).hexdigest()[:32]


def write_means(numbers: Numbers, path: Path) -> None:
    """A table of the curves: panel, series, x, mean, standard_error, deviation, runs."""
    rows = [
        (panel, series, *values)
        for panel in numbers.panels
        for series in numbers.series(panel)
        for curve in (numbers.curve(panel, series),)
        for values in zip(
            curve.x.tolist(),
            curve.mean.tolist(),
            curve.error.tolist(),
            curve.deviation.tolist(),
            curve.runs.tolist(),
            strict=True,
        )
    ]
    names = ("panel", "series", "x", "mean", "standard_error", "deviation", "runs")
    _write(path, names, rows)


def write_runs(numbers: Numbers, path: Path) -> None:
    """A table of everything that was measured: panel, series, x, value, run."""
    _write(path, ("panel", "series", "x", "value", "run"), numbers.measured)


_WORDS = ("panel", "series")
_COUNTS = ("run", "runs")


def _write(path: Path, names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    kinds = [str if n in _WORDS else np.int64 if n in _COUNTS else np.float64 for n in names]
    write_columns(
        path,
        [(n, np.array(c, dtype=kind)) for n, c, kind in zip(names, columns, kinds, strict=True)],
    )


def read_runs(path: Path) -> Numbers:
    """What :func:`write_runs` wrote."""
    types = {"panel": pa.string(), "series": pa.string(), "x": pa.float64(), "value": pa.float64()}
    try:
        table = pyarrow.csv.read_csv(
            path,
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={**types, "run": pa.int64()}, null_values=[]
            ),
        )
        columns = [table.column(name).to_pylist() for name in (*types, "run")]
    except (OSError, KeyError, pa.ArrowException):
        raise _no_numbers(path) from None
    return Numbers(Measured(*row) for row in zip(*columns, strict=True))


def _no_numbers(path: Path) -> OutputError:
    return OutputError("no-numbers", path=path)
