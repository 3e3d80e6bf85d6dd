"""Streams: errors of all trackers on the data of paper 002's Figure 4, time a row, memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import IncrementalPCA

from benchmarks.data import power_law, real_data
from benchmarks.report import Report
from benchmarks.speed import paired, peak_memory
from eigenveil import StreamingPCA
from eigenveil_papers.published.data import synth
from eigenveil_papers.published.frequent_directions import FrequentDirections
from eigenveil_papers.published.spirit import Spirit
from eigenveil_papers.published.trackers import BlockPower, Grouse

Rows = NDArray[np.float64]

RANK = 6  # the paper's, as the block
BLOCK = 25
# What a method may hold: 32 rows of D numbers. StreamingPCA holds its directions and one block;
# Frequent Directions a buffer of twice its sketch.
SKETCH = 16
# "paper": SSVD_r itself, 6 + 25 rows. "more": 16 directions kept, 6 told, blocks of 16. The default
# keeps 16 directions too, with the paper's blocks.
OURS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"n_oversamples": 0},
    "more": {"n_oversamples": SKETCH - RANK, "block_size": SKETCH},
}
_SYNTH = (0.01, 0.1, 0.5, 1.0, 2.0)
_DRAWS = 3
_REAL = ("mnist", "wine", "motes light", "motes volt")


def run(report: Report) -> None:
    """All numbers of streams."""
    _errors(report)
    _times(report)
    _memory(report)
    _large(report)


def data_sets() -> dict[str, list[Rows]]:
    """Name to data sets alike, over which errors are averaged; what is not at hand is left out."""
    found = {
        f"Synth({alpha:g})": [
            synth(alpha, features=100, rows=5000, random_state=seed) for seed in range(_DRAWS)
        ]
        for alpha in _SYNTH
    }
    real = real_data()
    return {**found, **{name: [real[name][0]] for name in _REAL if name in real}}


def trackers() -> dict[str, Callable[[], Any]]:
    """Name to a new tracker of rows that are not centred."""
    return {
        **{name: partial(StreamingPCA, RANK, **asked) for name, asked in OURS.items()},
        "FD 12": lambda: FrequentDirections(n_components=RANK),
        "FD 16": lambda: FrequentDirections(n_components=RANK, sketch_rows=SKETCH),
        "robust FD 16": lambda: FrequentDirections(
            n_components=RANK, sketch_rows=SKETCH, robust=True
        ),
        "GROUSE": lambda: Grouse(n_components=RANK, random_state=0),
        "SPIRIT": lambda: Spirit(n_components=RANK, forgetting=1.0),
        "block power": lambda: BlockPower(n_components=RANK, block=100, random_state=0),
    }


def centered_trackers() -> dict[str, Callable[[], Any]]:
    """Name to a new tracker of centred rows."""
    return {
        "default, centred": lambda: StreamingPCA(RANK, center=True),
        "paper, centred": lambda: StreamingPCA(RANK, center=True, **OURS["paper"]),
        "more, centred": lambda: StreamingPCA(RANK, center=True, **OURS["more"]),
        "IncrementalPCA": lambda: IncrementalPCA(RANK),
    }


def errors(components: Rows, rows: Rows, exact: Rows) -> tuple[float, float]:
    """``|P - P_exact|_F/sqrt(2 r)``, and the reconstruction's RMSE over the exact subspace's."""
    difference = components.T @ components - exact.T @ exact
    distance = float(np.linalg.norm(difference)) / np.sqrt(2 * len(exact))
    return distance, _residual(rows, components) / _residual(rows, exact)


def _residual(rows: Rows, components: Rows) -> float:
    return float(np.linalg.norm(rows - (rows @ components.T) @ components))


def mean_errors(
    make: Callable[[], Any], sets: list[Rows], *, centered: bool = False
) -> tuple[float, float]:
    """Both errors of one tracker, the means over data sets alike."""
    found = []
    for rows in sets:
        model = make()
        for start in range(0, len(rows) - len(rows) % BLOCK, BLOCK):
            model.partial_fit(rows[start : start + BLOCK])
        seen = rows[: len(rows) - len(rows) % BLOCK]  # IncrementalPCA refuses shorter blocks
        seen = seen - seen.mean(axis=0) if centered else seen
        exact = np.linalg.svd(seen, full_matrices=False)[2][:RANK]
        reported = model.components_ if hasattr(model, "components_") else model.components
        found.append(errors(reported, seen, exact))
    distance, ratio = np.mean(found, axis=0)
    return float(distance), float(ratio)


def _errors(report: Report) -> None:
    section = (
        "Streams of the paper's Figure 4, r = 6: projection distance |P - P_exact|_F/sqrt(2 r) / "
        "RMSE of the reconstruction over the exact subspace's"
    )
    rivals = ("FD 12", "FD 16", "GROUSE")
    for name, sets in data_sets().items():
        found = {who: mean_errors(make, sets) for who, make in trackers().items()}
        centered = {
            who: mean_errors(make, sets, centered=True) for who, make in centered_trackers().items()
        }
        for who, (distance, ratio) in {**found, **centered}.items():
            report.note(section, f"{name}: {who}", f"{distance:.2e} / {ratio:.5f}")
        for who, wanted in (("default", rivals), ("more", rivals), ("paper", ("GROUSE",))):
            against = f"of '{who}' beside the best of {', '.join(wanted)}"
            # all are exact where D is below the sketch
            best = min(found[rival][0] for rival in wanted) + 1e-12
            report.add(section, f"{name}: distance {against}", found[who][0], best, at_most=True)
            best = min(found[rival][1] for rival in wanted) - 1 + 1e-12
            what = f"{name}: RMSE beyond the exact one's, as a share, {against}"
            report.add(section, what, found[who][1] - 1, best, at_most=True)


def feed(model: Any, rows: Rows, length: int) -> None:
    """Give all rows, a few a call."""
    for start in range(0, len(rows), length):
        model.partial_fit(rows[start : start + length])


def _times(report: Report) -> None:
    section = "Streams: microseconds a row and the ratio to IncrementalPCA's (median of pairs)"
    for features in (11, 48, 100, 784):
        for length in (BLOCK, 10 * BLOCK):
            rows = power_law(4000 if features > 500 else 10_000, features, 1.0)
            for name, more in ((", paper", 0), ("", 10)):
                ours = StreamingPCA(RANK, block_size=length, n_oversamples=more)
                mine, theirs, ratio = paired(
                    partial(feed, ours, rows, length),
                    partial(feed, IncrementalPCA(RANK), rows, length),
                )
                what = f"D={features}, blocks of {length}{name}"
                each = [f"{1e6 * seconds / len(rows):.1f}" for seconds in (mine, theirs)]
                report.note(section, what, " and ".join(each))
                report.add(section, f"{what}: ratio", ratio, 1.0, at_most=True)


def _memory(report: Report) -> None:
    section = "Streams: peak memory of arrays in D x (r + b) numbers of 8 bytes"
    for features in (784, 5000):
        for name, asked in OURS.items():
            directions = RANK + asked.get("n_oversamples", 10)
            unit = 8 * features * (directions + asked.get("block_size", BLOCK))
            for count in (500, 5000):
                rows = power_law(count, features, 1.0, rotate=False)
                feed(StreamingPCA(RANK, **asked), rows[:100], 100)  # what is imported once
                model = StreamingPCA(RANK, **asked)
                used = peak_memory(partial(feed, model, rows, 100))
                what = f"D={features}, '{name}', {count} rows"
                report.add(section, what, used / unit, 4.0, at_most=True)


_LARGE = """
import re, time
import numpy as np
from eigenveil import StreamingPCA

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 2**10

rng = np.random.default_rng(0)
scale = np.arange(1, 101) ** -0.5
chunk = np.empty((10_000, 100))

def generate():
    rng.standard_normal(out=chunk)
    np.multiply(chunk, scale, out=chunk)

generate()
StreamingPCA(6).fit(chunk)  # libraries take their work space once
open("/proc/self/clear_refs", "w").write("5")  # the peak counts from here
before = peak()
model = StreamingPCA(6)
seconds = 0.0
for _ in range(1000):
    generate()
    start = time.perf_counter()
    model.partial_fit(chunk)
    seconds += time.perf_counter() - start
found = model.components_
assert model.n_samples_seen_ == 10_000_000
print(seconds, peak() - before)
"""


def _large(report: Report) -> None:
    section = "Streams: 10 million rows x 100, generated on the fly, r = 6, blocks of 25"
    done = subprocess.run(
        [sys.executable, "-c", _LARGE], capture_output=True, text=True, check=True
    )
    seconds, memory = (float(word) for word in done.stdout.split())
    report.note(section, "seconds of tracking", f"{seconds:.0f}")
    report.note(section, "microseconds a row", f"{seconds / 10:.2f}")
    report.add(section, "MiB beyond the chunk that is generated", memory, 4.0, at_most=True)
