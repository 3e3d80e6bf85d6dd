"""Studies between organisations: seconds of each step, three sites on this machine over TLS."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from socket import socket
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.report import Report

SITES = ("north", "south", "west")
SECTION = "between organisations: three sites, private PCA over NVIDIA FLARE"
SIGNING = "between organisations: ten sites of 6000 rows, 784 features, cape, without a network"
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
    _signing(report)
    for name, features, rows, words in _STUDIES:
        with tempfile.TemporaryDirectory(prefix="eigenveil-") as place:
            summary = _measured(Path(place), features, rows, words)
        steps: dict[str, float] = summary["seconds_by_step"]
        longest = max(taken for step, taken in steps.items() if step.startswith("round"))
        report.add(SECTION, f"{name}: longest round, s", longest, _MOST, at_most=True)
        report.note(SECTION, f"{name}: all rounds, s", f"{summary['seconds']:.2f}")
        ratio = _estimated(summary, rows) / summary["seconds"]
        report.note(SECTION, f"{name}: estimated by study plan, over measured", f"{ratio:.2f}")


class _Spent:
    """Processor seconds that calls of some functions take, in all threads."""

    def __init__(self) -> None:
        self.seconds, self.calls, self._guard = 0.0, 0, threading.Lock()

    def of(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, watched."""

        def watched(*rest: Any, **named: Any) -> Any:
            begun = time.thread_time()
            try:
                return call(*rest, **named)
            finally:
                with self._guard:
                    self.seconds += time.thread_time() - begun
                    self.calls += 1

        return watched


def _signing(report: Report) -> None:
    """What envelopes and proofs of keys cost: all parties in one process, no network in between."""
    from eigenveil.federation import identity
    from eigenveil.federation.ledger.ledger import Budget, Ledger
    from eigenveil.federation.protocol.aggregator import Aggregator
    from eigenveil.federation.protocol.terms import settle
    from eigenveil.federation.study.study import make_study
    from eigenveil.moments.source import ArrayRows
    from eigenveil.network import parties, signed
    from eigenveil.network.flare.job import sign_job
    from eigenveil.network.flare.provision import provision
    from eigenveil.network.kit import open_kit
    from eigenveil.network.runner import carry_to_the_end
    from eigenveil.network.transport import FlareTransport

    names = [f"site{number}" for number in range(10)]
    study = make_study(
        name="signed",
        features=784,
        components=10,
        epsilon=2.0,
        delta=1e-6,
        protocol="cape",
        sites=[{"name": name} for name in names],
    )
    spent, rng = _Spent(), np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="eigenveil-") as place, ExitStack() as undo:
        folder = Path(place)
        kits = provision(study, folder / "kits", host="localhost", port=1)
        for module, name in (
            (parties, "seal"),
            (signed, "open_sealed"),
            (signed, "seal"),
            (identity.Identity, "signed"),
            (identity.Identity, "check"),
        ):
            undo.enter_context(mock.patch.object(module, name, spent.of(getattr(module, name))))
        order, there = sign_job(study, "a1" * 12, 600.0), {}
        for number, name in enumerate(names):
            ledger = Ledger(folder / f"{name}.ledger")
            ledger.set_budget(Budget("default", study.adjacency, 2.0, 1e-6))
            rows = ArrayRows(rng.normal(size=(6000, 784)), names=None, origin=name)
            party = parties.SiteParty(
                open_kit(kits[name]),
                lambda _, rows=rows: rows,  # type: ignore[misc]
                ledger,
                approve="all",
                say=lambda _: None,
            )
            party.admit(f"0f0f0f0f-0000-4000-8000-0f0f0f0f0f{number:02x}", order, lambda: None)
            there[name] = party
        begun, wall = time.process_time(), time.monotonic()
        wire = signed.SignedWire(
            _Direct(there),
            signed.identity_of(open_kit(kits["aggregator"])),
            study=study.hash,
            session=order.session,
            limit=1 << 30,
        )
        transport = FlareTransport(wire, names, lambda: False)
        carry_to_the_end(Aggregator(settle(study), session=order.session).run(), transport)
        transport.bye()
        taken, wall = time.process_time() - begun, time.monotonic() - wall
    report.note(SIGNING, "envelopes and proofs made and checked", str(spent.calls))
    report.note(SIGNING, "all of the study, processor seconds", f"{taken:.2f}")
    report.note(SIGNING, "all of the study, seconds", f"{wall:.2f}")
    report.note(SIGNING, "signing and checking, processor seconds", f"{spent.seconds:.2f}")
    report.note(SIGNING, "its share of the processor seconds", f"{spent.seconds / taken:.3f}")
    share = spent.seconds / wall
    report.add(SIGNING, "its share of the study's seconds", share, 0.05, at_most=True)


class _Direct:
    """Carries envelopes to parties of this process."""

    def __init__(self, there: Mapping[str, Any]) -> None:
        self._there = there

    def carry(self, name: str, data: bytes, timeout: float, stop: object) -> bytes | str:
        """The party's answer."""
        del timeout, stop
        answer = self._there[name].answer(data)
        return bytes(answer.result() if isinstance(answer, Future) else answer)


def _estimated(summary: Mapping[str, Any], rows: int) -> float:
    """Seconds that 'study plan' says, from the first question on, without a network's latency."""
    from eigenveil.federation.study.study import parse_study
    from eigenveil.planning.duration import Network, duration

    network = Network(latency=0.0, megabits=1e4)
    found = duration(parse_study(summary["study"]), len(SITES) * rows, network)
    return found.seconds - found.starting


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
    from eigenveil.federation.study.file import read_study

    return {**json.loads(found.read_text()), "study": read_study(study).model_dump(mode="json")}


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
