"""Studies between organisations: seconds, bytes and memory, all parties on this machine."""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.report import Report

if TYPE_CHECKING:
    from eigenveil.federation.study.study import Study
    from eigenveil.moments.source import RowSource
    from eigenveil.network.mailbox import Mailbox

SECTION = "between organisations: private PCA over https, all parties on one machine"
# Sites, rows of each, features, and seconds that a study may take.
_CASES = ((10, 6000, 784, 15.0), (100, 600, 784, 60.0), (1000, 60, 64, 300.0))
_PROCESSES = 2  # of sites: each has many, with a thread and caches of its own each
_MIB = float(1 << 20)


def run(report: Report) -> None:
    """Seconds of each study, and what it costs a site."""
    if find_spec("uvicorn") is None or find_spec("httpx") is None:
        report.note(SECTION, "all", "skipped: the extra 'sites' is not installed")
        return
    for sites, rows, features, wanted in _CASES:
        name = f"{sites} sites of {rows} rows, {features} features"
        with tempfile.TemporaryDirectory(prefix="eigenveil-") as place:
            found = measured(Path(place), sites, rows, features)
        report.add(SECTION, f"{name}: seconds", found["seconds"], wanted, at_most=True)
        for what in ("processor seconds of all", "MiB a site sends", "MiB a site takes"):
            report.note(SECTION, f"{name}: {what}", f"{found[what]:.3g}")
        for what in ("MiB of memory a site", "MiB of memory of the aggregator"):
            report.note(SECTION, f"{name}: {what}", f"{found[what]:.1f}")
    report.note(SECTION, "load of the machine before, of others", f"{os.getloadavg()[2]:.1f}")


def measured(folder: Path, sites: int, rows: int, features: int) -> dict[str, float]:
    """One study, from its submission to the result that the lead has checked."""
    from eigenveil.app.federation import new_all
    from eigenveil.network.carriers.https import HttpsCarrier
    from eigenveil.network.lead import LeadSession

    study = _study(sites, features)
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    parties = new_all(study, folder, address=f"https://localhost:{port}").parties
    names = [each.name for each in study.sites]
    with _started(_aggregator, (parties["aggregator"].folder,)) as aggregator:
        aggregator.recv()
        shares = [names[at::_PROCESSES] for at in range(_PROCESSES)]
        with _all_started(
            [(_sites, ({n: parties[n].folder for n in share}, rows, study)) for share in shares]
        ) as processes:
            for each in processes:
                each.recv()
            lead = parties["lead"]
            with LeadSession(lead, HttpsCarrier().open(lead, lead.mailbox_address())) as session:
                spent = time.process_time()
                begun = time.monotonic()
                job = session.submit(study, timeout=3600.0)
                while not session.status(job).is_over:
                    time.sleep(0.2)
                session.result(job, study)
                seconds = time.monotonic() - begun
                own = time.process_time() - spent
            told = [_told(each) for each in processes]
        server = _told(aggregator)
    return {
        "seconds": seconds,
        "processor seconds of all": own + server["spent"] + sum(each["spent"] for each in told),
        "MiB a site sends": sum(each["sent"] for each in told) / sites / _MIB,
        "MiB a site takes": sum(each["taken"] for each in told) / sites / _MIB,
        "MiB of memory a site": sum(each["memory"] for each in told) / sites,
        "MiB of memory of the aggregator": server["memory"],
    }


def _study(sites: int, features: int) -> Study:
    from eigenveil.federation.study.study import make_study

    return make_study(
        name="many",
        features=features,
        components=10,
        epsilon=2.0,
        delta=1e-6,
        protocol="cape",
        sites=[{"name": f"site{number}"} for number in range(sites)],
    )


# -- Processes.


@contextmanager
def _started(call: Any, words: tuple[Any, ...]) -> Iterator[Connection]:
    with _all_started([(call, words)]) as (found,):
        yield found


@contextmanager
def _all_started(calls: Sequence[tuple[Any, tuple[Any, ...]]]) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("spawn")
    ends, processes = [], []
    for call, words in calls:
        here, there = context.Pipe()
        process = context.Process(target=call, args=(there, *words), daemon=True)
        process.start()
        there.close()
        ends.append(here)
        processes.append(process)
    try:
        yield ends
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(30)


def _told(process: Connection) -> dict[str, float]:
    process.send("over")
    found: dict[str, float] = process.recv()
    return found


def _memory() -> float:
    """MiB of this process now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / _MIB


def _most_memory() -> float:
    """MiB of this process at its most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _aggregator(told: Connection, folder: Path) -> None:
    from eigenveil.network.carriers.connections import MailLimits
    from eigenveil.network.carriers.serving import serve
    from eigenveil.network.folder import open_party
    from eigenveil.network.service import AggregatorService

    party, before = open_party(folder), _memory()
    many = MailLimits(address=4096, strangers=4096, head=30.0)  # all of one address, and at once
    with serve(party, host="127.0.0.1", limits=many) as server:
        service = AggregatorService(party, server.mailbox)
        service.start()
        told.send("ready")
        begun = time.process_time()
        told.recv()
        told.send({"spent": time.process_time() - begun, "memory": _most_memory() - before})
        told.recv()


class _Counting:
    """A mailbox, and the bytes of envelopes that went through it.

    Who waits for the network lets another party of the process compute: one at a time, since
    hundreds of threads that compute at once mostly wait for each other.
    """

    def __init__(self, mailbox: Mailbox, computing: threading.Lock) -> None:
        self._mailbox, self._computing, self.sent, self.taken = mailbox, computing, 0, 0

    def put(self, recipient: str, envelope: bytes) -> None:
        with self._waiting():
            self._mailbox.put(recipient, envelope)
        self.sent += len(envelope)

    def take(self, wait: float, known: Collection[str] = ()) -> list[bytes]:
        with self._waiting():
            found = self._mailbox.take(wait, known)
        self.taken += sum(map(len, found))
        return found

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self._computing.release()
        try:
            yield
        finally:
            self._computing.acquire()

    def forget(self, digests: Collection[str]) -> None:
        self._mailbox.forget(digests)

    def close(self) -> None:
        self._mailbox.close()


def _giving(rows: RowSource) -> Callable[[Study], RowSource]:
    return lambda _: rows


def _sites(told: Connection, folders: Mapping[str, Path], rows: int, study: Study) -> None:
    from eigenveil.federation.approvals.desk import Decisions
    from eigenveil.federation.ledger.ledger import Budget, Ledger
    from eigenveil.moments.source import ArrayRows
    from eigenveil.network.attendant import Attendant
    from eigenveil.network.carriers.https import HttpsCarrier
    from eigenveil.network.folder import open_party
    from eigenveil.network.parties import SiteParty

    before, rng = _memory(), np.random.default_rng(0)
    data = rng.normal(size=(rows, study.features or 1)).astype(np.float32)
    mailboxes, computing = [], threading.Lock()
    threading.stack_size(1 << 20)
    for name, folder in folders.items():
        opened = open_party(folder)
        ledger = Ledger(folder / "spent.ledger")
        found = ArrayRows(data, names=None, origin=name)
        party = SiteParty(opened, _giving(found), ledger, approve="all", say=lambda _: None)
        Decisions(opened, ledger).set_budget(Budget("default", study.adjacency, 2.0, 1e-6))
        mailbox = _Counting(HttpsCarrier().open(opened, opened.mailbox_address()), computing)
        mailboxes.append(mailbox)

        attendant = Attendant(party, mailbox)

        def serve(attendant: Attendant = attendant) -> None:
            while True:
                with computing:
                    reached = attendant.attend(20.0)
                if not reached:
                    time.sleep(1.0)

        threading.Thread(target=serve, daemon=True).start()
    told.send("ready")
    begun = time.process_time()
    told.recv()
    told.send(
        {
            "spent": time.process_time() - begun,
            "sent": sum(each.sent for each in mailboxes),
            "taken": sum(each.taken for each in mailboxes),
            "memory": _most_memory() - before,
        }
    )
    told.recv()
