"""Studies between organisations: seconds of each step, three sites on this machine over TLS."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from socket import socket
from typing import Any

import numpy as np

from benchmarks.report import Report

SITES = ("north", "south", "west")
SECTION = "between organisations: three sites, private PCA over NVIDIA FLARE"
# Name, features, rows a site, and what the study says.
_STUDIES = (
    ("784 features, cape", 784, 2000, ("--protocol", "cape", "--components", "10")),
    (
        "5000 features, sketch of 200",
        5000,
        500,
        ("--protocol", "sketch", "--sketch-size", "200", "--components", "10"),
    ),
)
_MOST = 2.0


def run(report: Report) -> None:
    """Seconds of the longest round of each study, and of all."""
    if find_spec("nvflare") is None:
        report.note(SECTION, "all", "skipped: NVIDIA FLARE is not installed ('.[flare]')")
        return
    for name, features, rows, words in _STUDIES:
        with tempfile.TemporaryDirectory(prefix="eigenveil-") as place:
            summary = _measured(Path(place), features, rows, words)
        steps: dict[str, float] = summary["seconds_by_step"]
        longest = max(taken for step, taken in steps.items() if step.startswith("round"))
        report.add(SECTION, f"{name}: longest round, s", longest, _MOST, at_most=True)
        report.note(SECTION, f"{name}: all rounds, s", f"{summary['seconds']:.2f}")


def _measured(folder: Path, features: int, rows: int, words: tuple[str, ...]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    study = folder / "study.toml"
    named = [word for site in SITES for word in ("--site", site)]
    _run("study", "new", study, *named, "--features", features, "--epsilon", "2", *words)
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    _run("flare", "provision", study, "--out", folder / "kits", "--port", port)
    with _processes() as start:
        start("aggregator", "start", "--kit", folder / "kits/aggregator")
        for site in SITES:
            np.save(folder / f"{site}.npy", rng.normal(size=(rows, features)))
            start(
                *("site", "start", "--kit", folder / "kits" / site, "--approve", "all"),
                *("--data", folder / f"{site}.npy", "--ledger", folder / f"{site}.ledger"),
                *("--budget-epsilon", "2"),
            )
        time.sleep(15)  # until all are there
        _run("study", "run", study, "--kit", folder / "kits/lead", "--out", folder / "result")
    (found,) = (folder / "kits/aggregator/results").glob("*/summary.json")
    return dict(json.loads(found.read_text()))


def _command(*words: object) -> list[str]:
    call = "from eigenveil.cli.app import main; main()"
    return [sys.executable, "-c", call, *(str(word) for word in words)]


def _run(*words: object) -> None:
    subprocess.run(_command(*words), check=True, capture_output=True, text=True)


@contextmanager
def _processes() -> Iterator[Callable[..., None]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: object) -> None:
        quiet = subprocess.DEVNULL
        started.append(subprocess.Popen(_command(*words), stdout=quiet, stderr=quiet))

    try:
        yield start
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)
