"""Real processes of a federation on the loopback interface, for tests; everything is stopped."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil

import eigenveil
from eigenveil.federated.base import fitted_of
from eigenveil.federated.running import InProcess, carry, finished_study
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.helper import Helper
from eigenveil.federation.protocol.messages import HELPER
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.terms import active_sites, settle
from eigenveil.federation.study.study import Study, make_study
from eigenveil.federation.x509_identity import Identity
from eigenveil.moments.source import ArrayRows
from eigenveil.network.decisions import Decisions
from eigenveil.network.flare.job import parties_of
from eigenveil.network.flare.provision import provision
from eigenveil.network.flare.session import StudySession
from eigenveil.network.kit import open_kit
from eigenveil.network.results import read_result_files
from eigenveil.noise.source import SeededSource

SITES = ("north", "south", "west")
SEEDS = {name: number for number, name in enumerate(SITES, start=11)}
PROCESS = Path(__file__).with_name("party_process.py")
# of the package, and of the tools that all tests share
SOURCES = os.pathsep.join(map(str, (Path(eigenveil.__file__).parents[1], PROCESS.parents[1])))


def pca_study(name, **fields):
    """Its second moment is released once, where that can be said: a round less."""
    once = fields.get("protocol", "cape") in ("cape", "local") and fields.get("delta", 1e-5) > 0
    fields = ({"mechanism": "gaussian"} if once else {}) | fields
    usual = {"features": 20, "components": 3, "epsilon": 5.0, "delta": 1e-5, "protocol": "cape"}
    sites = [{"name": each} for each in SITES]
    return make_study(**({"name": name, "sites": sites} | usual | fields))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Federation:
    """Kits and processes in a folder; use it in a ``with`` block."""

    process = PROCESS

    def __init__(self, folder: Path, *, approve: str = "all", sites: tuple[str, ...] = SITES):
        self.folder, self.approve, self.sites = folder, approve, sites
        self.port = free_port()
        founding = pca_study("founding", masks="helper")
        self.kits = provision(founding, folder / "kits", host="localhost", port=self.port)
        self.home = folder / "home"
        self.home.mkdir()
        self.rows = folder / "rows"
        self.processes: dict[str, subprocess.Popen] = {}
        self.started: dict[int, float] = {}
        for name in sites:
            (self.rows / name).mkdir(parents=True)
            Ledger(self.ledger(name)).set_budget(Budget("default", "add-remove", 3000.0, 0.5))
        atexit.register(self.stop)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def ledger(self, name):
        return self.folder / f"{name}.ledger"

    def kit(self, name):
        return open_kit(self.kits[name])

    def decisions(self, name) -> Decisions:
        return Decisions(self.kit(name), Ledger(self.ledger(name)))

    def approve_at(self, name, study: Study, *, runs: int | None = None) -> None:
        """The owner's decision, for any number of runs."""
        self.decisions(name).approve(study, runs=runs)

    # -- rows

    def give_rows(self, study: Study, rows: dict[str, np.ndarray]) -> None:
        for name, values in rows.items():
            np.save(self.rows / name / f"{study.name}.npy", values)

    # -- processes

    def environment(self, name: str) -> dict[str, str]:
        """More variables of a party's process."""
        return {}

    def start(self, *names: str) -> None:
        for name in names:
            words = [sys.executable, str(self.process), str(self.kits[name])]
            if name in self.sites:
                words += [str(self.rows / name), str(self.ledger(name)), str(SEEDS[name])]
                words.append(self.approve)
            own = {"HOME": str(self.home), "PYTHONPATH": SOURCES, "OMP_NUM_THREADS": "1"}
            # the same kernels as here, so that results can be compared bit for bit
            own |= {k: v for k, v in os.environ.items() if k.startswith("OPENBLAS_")}
            own |= self.environment(name)
            with (self.folder / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(
                    words,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    env={"PATH": os.environ["PATH"]} | own,
                    start_new_session=True,
                )
            self.processes[name] = process
            self._note(process.pid)

    def start_all(self, timeout: float = 60.0) -> None:
        self.start("aggregator", *self.sites, "helper")
        self.wait_connected(*self.sites, "helper", timeout=timeout)

    def wait_connected(self, *names: str, timeout: float = 60.0, times: int = 1) -> None:
        until = time.monotonic() + timeout
        for name in names:
            while self.said(name).count(" is connected to ") < times:
                assert time.monotonic() < until, f"{name}: {self.said(name)[-2000:]}"
                assert self.processes[name].poll() is None, f"{name}: {self.said(name)[-2000:]}"
                time.sleep(0.1)

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str) -> None:
        """kill -9 of a party's whole tree."""
        process = self.processes.pop(name)
        for each in self._tree(process.pid):
            each.kill()
        process.wait(10)

    def job_process(self) -> psutil.Process:
        """The process of the running job at the aggregator; without one, that which waits."""
        (found,) = psutil.Process(self.processes["aggregator"].pid).children()
        return found

    def stop(self) -> None:
        """Stop everything that was started, children included."""
        atexit.unregister(self.stop)
        alive = []
        for name in [*(n for n in self.processes if n != "aggregator"), "aggregator"]:
            if name in self.processes:
                process = self.processes.pop(name)
                alive += self._tree(process.pid)
                process.send_signal(signal.SIGTERM)
        psutil.wait_procs(alive, timeout=10)
        for pid, begun in self.started.items():
            try:
                each = psutil.Process(pid)
                if abs(each.create_time() - begun) < 2.0:
                    each.kill()
            except psutil.NoSuchProcess:
                pass
        for each in alive:
            if each.is_running():
                each.kill()

    def _note(self, pid: int) -> None:
        self.started[pid] = psutil.Process(pid).create_time()

    @staticmethod
    def _tree(pid: int) -> list[psutil.Process]:
        try:
            top = psutil.Process(pid)
            return [*top.children(recursive=True), top]
        except psutil.NoSuchProcess:
            return []

    # -- what tests tell parties

    def notify(self, name: str, **fields) -> None:
        """What the process of a site is to do wrong: see party_process.py."""
        place = self.kits[name] / "mischief.json"
        scratch = place.with_suffix(".tmp")
        scratch.write_text(json.dumps(fields))
        scratch.replace(place)

    def behave(self, name: str) -> None:
        (self.kits[name] / "mischief.json").unlink(missing_ok=True)

    # -- studies

    def session(self) -> StudySession:
        os.environ["HOME"] = str(self.home)
        return StudySession(self.kit("lead"))

    def wait(self, session, job, *states, timeout=90.0):
        until = time.monotonic() + timeout
        while True:
            found = session.status(job)
            if found.state in (states or ("finished", "failed", "aborted", "lost")):
                return found
            assert time.monotonic() < until, f"{found}\n{self.said('aggregator')[-3000:]}"
            time.sleep(0.2)

    def fetch(self, session, job):
        folder = self.folder / f"fetched-{job}"
        folder.mkdir(exist_ok=True)
        session.fetch(job, folder)
        return read_result_files(folder)

    def summary(self, job):
        return json.loads((self.folder / f"fetched-{job}" / "summary.json").read_text())


def in_process(study: Study, rows: dict[str, np.ndarray], federation: Federation):
    """The same study in one process, each site with its own seeded noise: its fitted model."""
    folder = federation.folder / "in-process"
    folder.mkdir(exist_ok=True)

    def identity(name):
        kit = federation.kit(name)
        return Identity.from_files(
            key=kit.key, certificate=kit.certificate, root=kit.root_certificate
        )

    parties = {}
    for name in active_sites(study):
        ledger = Ledger(folder / f"{study.name}-{name}.ledger", durable=False)
        ledger.set_budget(Budget("default", study.adjacency, 3000.0, 0.5))
        own = SeededSource(SEEDS[name])
        source = ArrayRows(rows[name], names=None, origin=f"site {name}")
        parties[name] = Site(
            name=name,
            terms=settle(study),
            rows=source,
            ledger=ledger,
            source=own,
            identity=identity(name),
        )
    if HELPER in parties_of(study):
        parties[HELPER] = Helper(settle(study), identity=identity(HELPER))
    transport = InProcess(parties)
    outcome = carry(Aggregator(settle(study), identity=identity("aggregator")).run(), transport)
    return fitted_of(finished_study(study, outcome, traffic=transport.traffic))
