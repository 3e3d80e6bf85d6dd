"""Genotypes of a biobank's size: time, memory, captured energy and the plan's forecast of it.

``python -m benchmarks genotypes`` measures a small one;
``python -m benchmarks.genotypes 100000 20000`` one of that many samples and variants (500 MB).
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Report
from eigenveil import PrivatePCA
from eigenveil.io import FileRows, ReadOptions, open_rows
from eigenveil.models.task import task_named
from eigenveil.planning.predict import parse_spectrum, predict

Array = NDArray[np.float64]

SAMPLES, VARIANTS = 20_000, 1_000
POPULATIONS, FST, COMPONENTS, EPSILON, DELTA = 11, 0.1, 10, 1.0, 1e-6
SECTION = "Genotypes: simulated .bed of 11 populations (Balding-Nichols, Fst 0.1), K = 10, sketch"
_AT_A_TIME = 256
_ALLELES = (("A", "G"), ("C", "A"), ("G", "T"), ("T", "C"))


def simulate(folder: Path, samples: int, variants: int, *, seed: int = 0) -> tuple[Path, Path]:
    """A .bed of equal populations (Balding and Nichols 1995), and a manifest of their variants.

    Allele frequencies p are even from 0.1 to 0.9 among the ancestors, and of a population
    Beta(p (1 - F) / F, (1 - p) (1 - F) / F). Sample i is of population i modulo their number.
    """
    rng = np.random.default_rng(seed)
    bed, manifest = folder / "simulated.bed", folder / "simulated.tsv"
    population = np.arange(samples) % POPULATIONS
    ancestral = rng.uniform(0.1, 0.9, variants)
    odds = (1.0 - FST) / FST
    first, second = (odds * p[:, None] for p in (ancestral, 1.0 - ancestral))
    drifted = rng.beta(first, second, size=(variants, POPULATIONS))
    # two copies by one draw of 16 bits
    ends = np.stack([(1.0 - drifted) ** 2, 1.0 - drifted**2]) * 65536.0
    ends = np.minimum(ends, 65535.0).astype(np.uint16)
    whole = -(-samples // 4) * 4
    with bed.open("wb") as file:
        file.write(bytes([0x6C, 0x1B, 1]))
        for start in range(0, variants, _AT_A_TIME):
            none, one = ends[:, start : start + _AT_A_TIME]
            drawn = rng.integers(0, 65536, (none.shape[0], samples), dtype=np.uint16)
            # codes 3, 2, 0 for 0, 1, 2 copies
            codes = np.zeros((none.shape[0], whole), np.uint8)
            codes[:, :samples] = 2 * (drawn < one[:, population])
            codes[:, :samples] += drawn < none[:, population]
            packed = codes[:, 0::4] | codes[:, 1::4] << 2 | codes[:, 2::4] << 4
            file.write((packed | codes[:, 3::4] << 6).tobytes())
    # those of a public panel of the same populations
    known = np.clip(drifted.mean(axis=1), 0.01, 0.99)
    with bed.with_suffix(".bim").open("w") as file, manifest.open("w") as public:
        public.write("id\tchrom\tpos\tcounted\tother\tfrequency\n")
        for j in range(variants):
            counted, other = _ALLELES[j % 4]
            file.write(f"1\trs{j}\t0\t{j + 1}\t{counted}\t{other}\n")
            public.write(f"rs{j}\t1\t{j + 1}\t{counted}\t{other}\t{known[j]:.6g}\n")
    bed.with_suffix(".fam").write_text("".join(f"0 i{i} 0 0 0 -9\n" for i in range(samples)))
    return bed, manifest


def run(report: Report) -> None:
    """The small size."""
    found = measure(SAMPLES, VARIANTS)
    report.note(SECTION, "samples x variants", f"{SAMPLES} x {VARIANTS}")
    for name, value in found.items():
        report.note(SECTION, name, f"{value:.3g}")


def measure(samples: int, variants: int) -> dict[str, float]:
    """What one fit takes and captures, by name."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        started = time.perf_counter()
        bed, manifest = simulate(Path(name), samples, variants)
        found["simulating, s"] = time.perf_counter() - started
        _said(found)
        rows = open_rows([bed], read=ReadOptions(variants=manifest))
        started, used = time.perf_counter(), time.process_time()
        count = sum(block.values.shape[0] for block in rows.blocks())
        assert count == samples
        found["one reading, s"] = time.perf_counter() - started
        found["one reading, s of processors"] = time.process_time() - used
        _said(found)
        model = _estimator()
        started, used = time.perf_counter(), time.process_time()
        model.fit_rows(rows)
        found["fit, s"] = time.perf_counter() - started
        found["fit, s of processors"] = time.process_time() - used
        found["largest memory, GiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        found["usable components"] = float(np.sum(model.usable_))
        _said(found)
        found["captured energy"] = captured(rows, model.components_)
        _said(found)
    found["forecast of it"] = forecast(samples, variants)
    return found


def _estimator() -> Any:
    return PrivatePCA(
        COMPONENTS, epsilon=EPSILON, delta=DELTA, mechanism="sketch", center=False, random_state=0
    )


def captured(rows: FileRows, components: Array) -> float:
    """Part of the energy of the populations' own directions that components have.

    The K = populations - 1 directions are those of the means of the populations; of so many samples
    they are the leading ones.
    """
    means, count = np.zeros((POPULATIONS, rows.features)), 0
    for block in rows.blocks():
        population = (count + np.arange(block.values.shape[0])) % POPULATIONS
        count += population.size
        for each in range(POPULATIONS):
            means[each] += block.values[population == each].sum(axis=0, dtype=np.float64)
    exact = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)[2][:COMPONENTS]
    ours = theirs = 0.0
    both = np.vstack([components, exact]).astype(np.float32).T
    for block in rows.blocks():
        squares = np.sum((block.values @ both).astype(np.float64) ** 2, axis=0)
        ours += squares[:COMPONENTS].sum()
        theirs += squares[COMPONENTS:].sum()
    return ours / theirs


def forecast(samples: int, variants: int) -> float:
    """What the plan says, of rows whose K directions have the share that Fst gives them."""
    share = 2.0 * FST * (1.0 - 1.0 / POPULATIONS)
    options = _estimator()._options()
    plan = task_named("pca").make_plan(options, features=variants)
    spectrum = parse_spectrum(f"spike:{COMPONENTS}:{share:.6g}", variants)
    quality = predict(plan, spectrum, rows=samples).captured_energy
    return float("nan") if quality is None else quality


def _said(found: dict[str, float]) -> None:
    name, value = next(reversed(found.items()))
    sys.stderr.write(f"{name}: {value:.4g}\n")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for each, number in measure(int(sys.argv[1]), int(sys.argv[2])).items():
        sys.stdout.write(f"{each}: {number:.4g}\n")
