"""Many sites: captured energy by protocol, bytes, cost against the number of sites, overhead."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import real_data, second_moment
from benchmarks.report import Report
from eigenveil import FederatedPCA, PrivatePCA
from eigenveil.federated.running import requested_budget, site_rows
from eigenveil.federation.ledger.heads import HeadsFile
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.ledger.store import LedgerStore
from eigenveil.federation.protocol import site, sums
from eigenveil.federation.protocol.terms import Terms, settle
from eigenveil.federation.secagg.client import SecaggClient
from eigenveil.linalg.eigen import leading_eigenpairs, single_threaded_blas
from eigenveil.linalg.subspace import captured_energy
from eigenveil.models import driver
from eigenveil.models.pca.estimator import FittedPCA
from eigenveil.privacy import classic_sigma

RUNS = 10
SITES, COMPONENTS, SKETCH = 10, 50, 100


def run(report: Report) -> None:
    """All numbers of federations."""
    _utility(report)
    with single_threaded_blas():  # threads that wait for work would count as work
        _overhead(report)
        _many(report)
    _scaling(report)


def _utility(report: Report) -> None:
    section = "Many sites: MNIST, S=10, K=50, epsilon=1, delta=1e-2, exactly centred rows"
    data = real_data()
    if "mnist" not in data:
        report.note(section, "MNIST", "skipped: ../shared/data is absent")
        return
    rows = data["mnist"][0] - data["mnist"][0].mean(axis=0)
    moment = second_moment(rows)
    parts = np.array_split(rows, SITES)
    asked: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-2, "center": False}

    def mean(fit: Callable[[], FittedPCA]) -> float:
        found = [captured_energy(moment, fit().components_) for _ in range(RUNS)]
        return float(np.mean(found))

    pooled = mean(lambda: PrivatePCA(COMPONENTS, **asked).fit(rows))
    report.note(section, "PrivatePCA on all rows", f"{pooled:.3f}")
    wanted = {"cape": 0.89, "sketch": 0.80, "dpdispca": 0.64, "full": 0.0, "local": 0.0}
    for protocol, least in wanted.items():
        size: dict[str, Any] = {"sketch_size": SKETCH} if protocol in ("sketch", "dpdispca") else {}
        model = FederatedPCA(COMPONENTS, protocol=protocol, **size, **asked)
        measured = mean(lambda model=model: model.fit(parts))  # type: ignore[misc]
        if protocol == "cape":
            report.add(
                section, "cape less PrivatePCA, in size", abs(measured - pooled), 0.01, at_most=True
            )
        if least:
            report.add(section, protocol, measured, least)
        else:
            report.note(section, protocol, f"{measured:.3f}")
        sent = max(model.traffic_["site1"].sent_by_step.values())
        features = rows.shape[1]
        values = {"sketch": features * SKETCH, "dpdispca": features * SKETCH}.get(
            protocol, features * (features + 1) // 2
        )
        report.add(
            section,
            f"{protocol}: largest message, in bytes a value of the moment",
            sent / values,
            8.2,
            at_most=True,
        )
    report.note(section, "DPdisPCA as published", f"{_published_dpdispca(parts, moment):.3f}")
    report.note(section, "capePCA as published", f"{_published_cape(parts, moment):.3f}")


def _published_dpdispca(parts: list[NDArray[np.float64]], moment: NDArray[np.float64]) -> float:
    """Paper 000: means over rows, largest norm, sensitivity 1/N_s, every triangle entry alike."""
    rng = np.random.default_rng()
    largest = max(float(np.linalg.norm(part, axis=1).max()) for part in parts)
    found = []
    for _ in range(RUNS):
        total = np.zeros_like(moment)
        for part in parts:
            noisy = _published_release(part / largest, len(part), rng)
            values, vectors = leading_eigenpairs(noisy, SKETCH)
            total += (vectors.T * np.maximum(values, 0.0)) @ vectors
        found.append(captured_energy(moment, leading_eigenpairs(total, COMPONENTS)[1]))
    return float(np.mean(found))


def _published_cape(parts: list[NDArray[np.float64]], moment: NDArray[np.float64]) -> float:
    """Paper 001: the pooled noise that it claims, on means over rows."""
    rng = np.random.default_rng()
    rows = np.concatenate(parts)
    rows = rows / np.linalg.norm(rows, axis=1).max()
    found = []
    for _ in range(RUNS):
        noisy = _published_release(rows, len(rows), rng)
        found.append(captured_energy(moment, leading_eigenpairs(noisy, COMPONENTS)[1]))
    return float(np.mean(found))


def _published_release(
    rows: NDArray[np.float64], count: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    sigma = classic_sigma(1.0 / count, 1.0, 1e-2, reproduction=True)
    upper = np.triu(rng.normal(0.0, sigma, (rows.shape[1], rows.shape[1])))
    return np.asarray(rows.T @ rows / count + upper + np.triu(upper, 1).T)


Clock = Callable[[], float]


@contextmanager
def _timed(owner: Any, name: str, key: str, now: Clock, spent: dict[str, float]) -> Iterator[None]:
    """Add up under a key the time that a function takes, while the block runs."""
    original = getattr(owner, name)

    def timed(*args: Any, **options: Any) -> Any:
        start = now()
        try:
            return original(*args, **options)
        finally:
            spent[key] += now() - start

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _overhead(report: Report) -> None:
    section = "Many sites: the protocol's own work, S=10, D=784, 6000 rows a site (float32)"
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((6000, 784), dtype=np.float32) for _ in range(SITES)]
    rows = site_rows(parts, for_one="PrivatePCA")
    model = FederatedPCA(COMPONENTS, protocol="cape", precision="single")
    model.fit([part[:200] for part in parts])
    terms = settle(model.study_of(rows))
    grams, runs = [], []
    for _ in range(4):
        grams.append(_processor(lambda: [part.T @ part for part in parts]))
        spent: dict[str, float] = defaultdict(float)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            ledgers = {name: _durable(folder, name, terms) for name in terms.names}
            for owner, name, key in _CLOCKED:
                now = time.perf_counter if key == "disk" else time.process_time
                stack.enter_context(_timed(owner, name, key, now, spent))
            whole = _processor(partial(model.fit_rows, rows, ledgers=ledgers))
        # a commit calls for the answer: noise, mask, and its bytes
        ledger = spent["ledger"] - spent["noise"] - spent["answer"]
        own = whole - spent["rows"] - spent["noise"] - spent["factors"] - ledger
        runs.append((own, ledger, whole, spent))
    gram = min(grams)
    own, ledger, whole, spent = min(runs, key=lambda found: found[0] + found[1])
    what = "masks, messages, adding up, over the sites' Gram matrices"
    report.add(section, what, own / gram, 2.0, at_most=True)
    what = "the same and the sites' durable ledgers"
    report.add(section, what, (own + ledger) / gram, 1.5, at_most=True)
    report.note(
        section,
        "processor seconds",
        f"whole {whole:.2f}; own {own:.2f}; ledgers {ledger:.2f}, beside {spent['disk']:.2f} s "
        f"of waiting for the disk and writing; Gram {gram:.2f}; rows {spent['rows']:.2f}; "
        f"noise {spent['noise']:.2f}; factors {spent['factors']:.2f}",
    )


def _durable(folder: Path, name: str, terms: Terms) -> Ledger:
    """A site's ledger as it is kept: what it says outlasts a power failure."""
    ledger = Ledger(folder / f"{name}.ledger", heads=HeadsFile(folder / f"{name}.heads"))
    ledger.set_budget(requested_budget(terms))
    return ledger


# Of profiles by samples, 2026-11-27.
_SHARES = {
    "100 sites": "reading and adding up rows 27 %, noise 23 %, streams of masks 23 %, keys of "
    "masks and letters 9 %, the aggregator 5 %",
    "1000 sites": "sealing and opening letters (ML-KEM, X25519) 24 %, masks and their keys 20 %, "
    "noise 12 %, rows 10 %",
}


def _many(report: Report) -> None:
    section = "Many sites in one process, default plan, K = 10"
    rng = np.random.default_rng(0)
    model, single = FederatedPCA(10), PrivatePCA(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what nothing shows above the noise
        parts = [rng.standard_normal((600, 784)) for _ in range(100)]
        pooled = np.concatenate(parts)
        ratios = []
        for _ in range(3):
            many = _processor(partial(model.fit, parts))
            one = _processor(partial(single.fit, pooled))
            ratios.append((many / one, many, one))
        ratio, many, one = sorted(ratios)[1]
        what = "100 sites of 600 x 784 over a fit of all rows, processor seconds"
        report.add(section, what, ratio, 2.5, at_most=True)
        report.note(section, "processor seconds of both", f"{many:.2f} and {one:.2f}")
        parts = [rng.standard_normal((60, 64)) for _ in range(1000)]
        seconds = min(_processor(partial(model.fit, parts)) for _ in range(2))
    what = "1000 sites of 60 x 64, processor seconds"
    report.add(section, what, seconds, 10.0, at_most=True)
    for what, shares in _SHARES.items():
        report.note(section, f"where the time goes, {what}", shares)


def _processor(call: Callable[[], object]) -> float:
    """Seconds of all processors that a call takes."""
    start = time.process_time()
    call()
    return time.process_time() - start


_CLOCKED: list[tuple[Any, str, str]] = [
    (sums, "accumulate", "rows"),
    (sums, "noisy_integers", "noise"),
    (driver, "_step", "factors"),
    (site, "encode", "answer"),
    (SecaggClient, "mask", "answer"),
    *((Ledger, name, "ledger") for name in ("begin", "commit", "state", "end")),
    (HeadsFile, "note", "disk"),
    (LedgerStore, "commit", "disk"),
]


_CHILD = """
import sys, time
import numpy as np
from eigenveil import FederatedPCA

def peak():  # kibibytes; the resource module's figure would begin at the parent's
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

sites = int(sys.argv[1])
rng = np.random.default_rng(0)
parts = [rng.standard_normal((100, 784), dtype=np.float32) for _ in range(sites)]
model = FederatedPCA(20, protocol="cape", precision="single")
model.fit(parts[:3])
before = peak()
start, used = time.perf_counter(), time.process_time()
model.fit(parts)
took, used = time.perf_counter() - start, time.process_time() - used
after = peak()
moved = model.traffic_["site2"]
print(took, used, (after - before) / 1024, moved.sent + moved.received)
"""


def _scaling(report: Report) -> None:
    section = "Many sites: 784 features, 100 rows a site, cape"
    per_site: dict[int, float] = {}
    memory: dict[int, float] = {}
    for sites in (10, 100, 1000):
        found = subprocess.run(
            [sys.executable, "-c", _CHILD, str(sites)], capture_output=True, text=True, check=True
        ).stdout.split()
        seconds, used, memory[sites], moved = (float(part) for part in found)
        per_site[sites] = seconds / sites
        report.note(
            section,
            f"S = {sites}",
            f"{seconds:.1f} s ({used:.1f} s of a processor), "
            f"{1000 * per_site[sites]:.0f} ms a site, {memory[sites]:.0f} MiB over the start, "
            f"{moved / 2**20:.2f} MiB a site",
        )
    report.add(
        section,
        "cost of a site, S = 1000 over S = 10",
        per_site[1000] / per_site[10],
        1.3,
        at_most=True,
    )
    report.add(
        section,
        "memory, S = 1000 less S = 100, MiB",
        memory[1000] - memory[100],
        64.0,
        at_most=True,
    )
