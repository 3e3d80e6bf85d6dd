"""Experiments at toy scale, each measured once for all tests and all processes of pytest."""

import fcntl
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from eigenveil.linalg.eigen import single_threaded_blas
from eigenveil_papers.reproduction import figure, page, paper002_trees, results
from eigenveil_papers.reproduction.experiment import RunSettings
from eigenveil_papers.reproduction.numbers import Measured, Numbers

RUNS = {"000-orders": 10, "002-lemma2": 6, "002-fig2": 6, "001-fig5": 2}
RUNS |= {"002-fig3": 2, "002-fig4ab": 2, "002-fig4df": 2, "003-fig1": 3}
"""With fewer, intervals of the first three are too wide to show anything; of others there are 4."""


@pytest.fixture(scope="session")
def _nowhere(tmp_path_factory):
    return str(tmp_path_factory.mktemp("empty"))


@pytest.fixture(autouse=True)
def only_what_is_shipped(monkeypatch, _nowhere):
    """Stand-ins, wherever the tests run: the same tasks and so the same points."""
    monkeypatch.setenv("EIGENVEIL_SHARED", _nowhere)


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures are empty files."""

    def save(figure, stem):
        paths = [Path(f"{stem}{end}") for end in (".png", ".svg")]
        for path in paths:
            path.touch()
        return tuple(paths)

    monkeypatch.setattr(figure, "save", save)


def measure(name: str) -> Numbers:
    """What all tasks give, seeded by what they do."""
    settings = RunSettings(scale="toy", runs=RUNS.get(name, 4))
    with single_threaded_blas(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper002_trees, "processors", lambda: 1)  # leaves one after the other
        return Numbers(
            Measured(*point, task.run)
            for task in page.EXPERIMENTS[name].tasks(settings)
            for point in task.work(np.random.default_rng(int(task.key, 16)), **task.arguments)
        )


@pytest.fixture
def measured(tmp_path_factory, only_what_is_shipped) -> Callable[[str], Numbers]:
    """An experiment's numbers, by its name."""
    folder = tmp_path_factory.getbasetemp()
    shared = (folder.parent if folder.name.startswith("popen-") else folder) / "measured"
    shared.mkdir(exist_ok=True)

    def numbers(name: str) -> Numbers:
        kept = shared / f"{name}.csv.gz"
        with kept.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                results.write_runs(measure(name), kept)
        return results.read_runs(kept)

    return numbers
