"""What a run leaves in its folder: figures, numbers and verdicts."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.csv

from eigenveil.errors import OutputError
from eigenveil.files import replacing
from eigenveil.io.write import write_columns
from eigenveil_papers.reproduction import figure, runner
from eigenveil_papers.reproduction.data import NAMES, Source, find
from eigenveil_papers.reproduction.experiment import Claim, Experiment, Given, RunSettings
from eigenveil_papers.reproduction.given import LANGUAGE, runs_of, this_machine
from eigenveil_papers.reproduction.headlines import headline
from eigenveil_papers.reproduction.numbers import Measured, Numbers

MEANS, RUNS, CLAIMS = ".csv", ".runs.csv.gz", ".json"


@dataclass(frozen=True, kw_only=True)
class Reproduced:
    experiment: Experiment
    numbers: Numbers
    claims: tuple[Claim, ...]
    files: tuple[Path, ...]  # Figures (PNG, SVG), means (CSV) and runs (CSV, gzip), claims (JSON)


def make(
    experiment: Experiment,
    settings: RunSettings,
    *,
    out: Path,
    jobs: int = 1,
    progress: runner.Progress | None = None,
    restart: bool = False,
) -> Reproduced:
    numbers = runner.run(
        experiment, settings, out=out, jobs=jobs, progress=progress, restart=restart
    )
    return write(experiment, settings, numbers, out)


def redraw(experiment: Experiment, settings: RunSettings, *, out: Path) -> Reproduced:
    """Draw and judge anew what an earlier run measured, at its scale, without measuring.

    The rows need not be at hand: their shapes and names are those of the earlier run.
    """
    numbers = read_runs(out / f"{experiment.name}{RUNS}")
    path = out / f"{experiment.name}{CLAIMS}"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        settings = replace(
            settings,
            scale=stored["scale"],
            data=stored["data"],
            runs=stored["repetitions"],
            sources=tuple(Source.of(each) for each in stored["sources"]),
        )
        tasks, machine = str(stored["tasks"]), str(stored["machine"])
    except (OSError, ValueError, KeyError, TypeError):
        raise _no_numbers(path) from None
    if tasks != _tasks_digest(experiment, settings):
        raise OutputError("other-settings", path=path)
    return write(experiment, settings, numbers, out, machine)


def write(
    experiment: Experiment,
    settings: RunSettings,
    numbers: Numbers,
    out: Path,
    machine: str | None = None,
) -> Reproduced:
    """Write figures, numbers and claims; the same numbers give the same bytes."""
    claims = tuple(experiment.claims(numbers, settings))
    machine = machine or this_machine()
    given = (
        *experiment.given(settings),
        runs_of(numbers, experiment.runs),
        Given(
            "language, libraries", machine, LANGUAGE[experiment.paper], "authors' scripts and text"
        ),
    )
    sources = settings.sources or tuple(
        find(name, settings).described() for name in experiment.datasets if name in NAMES
    )
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
        "tables": experiment.tables(numbers, settings),
        "headline": headline(experiment.name, numbers, settings, claims),
        "scale": settings.scale,
        "data": settings.data,
        "repetitions": settings.runs,
        "tasks": _tasks_digest(experiment, settings),
        "sources": [asdict(source) for source in sources],
        "machine": machine,
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
    """A compressed table of all that was measured: panel, series, x, value, run."""
    with TemporaryDirectory() as folder, replacing(path) as scratch:
        plain = Path(folder) / "runs.csv"
        _write(plain, ("panel", "series", "x", "value", "run"), numbers.measured)
        scratch.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))


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
