"""The console beside its targets: time and bytes of pages, and memory of its process."""

from __future__ import annotations

import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Report

SECTION = "console: a site with 10000 ledger entries and 50 waiting studies"
_ENTRIES, _STUDIES, _TIMES = 10_000, 50, 15
_COMMAND = "from eigenveil.cli.app import main; main()"


def run(report: Report) -> None:
    """Times of pages (median), bytes of the first, and peak memory."""
    if find_spec("starlette") is None:
        report.note(SECTION, "all", "skipped: needs '.[console]'")
        return
    with tempfile.TemporaryDirectory(prefix="eigenveil-") as place:
        _measure(Path(place), report)


def _measure(folder: Path, report: Report) -> None:
    import httpx

    party, ledger = _site(folder)
    state = folder / "state"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["--party", str(party), "--ledger", str(ledger), "--state", str(state)]
    server = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, "console", *words, "--port", str(port)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            assert server.stdout is not None
            link = re.findall(r"http\S+", server.stdout.readline())[0]
            _until_there(client)
            answer, seconds = _median(client, "/sign-in")
            parts = [answer, client.get("/static/console.css"), client.get("/static/htmx.min.js")]
            size = sum(len(each.content) for each in parts) / 1000
            report.add(SECTION, "first page, ms", 1000 * seconds, 200, at_most=True)
            report.add(SECTION, "first page with style and script, kB", size, 150, at_most=True)
            client.get(link).raise_for_status()
            for name, path in (
                ("waiting studies", "/studies"),
                ("ledger, the newest page", "/ledger"),
                ("ledger, the oldest page", "/ledger?page=9999"),
                ("ledger, charges alone", "/ledger?only=charge"),
                ("health", "/health"),
            ):
                begun = time.perf_counter()
                client.get(path).raise_for_status()
                first = time.perf_counter() - begun
                _, seconds = _median(client, path)
                report.add(SECTION, f"{name}, ms", 1000 * seconds, 300, at_most=True)
                report.note(SECTION, f"{name}, the first time after the start, ms",
                            f"{1000 * first:.0f}")  # fmt: skip
        text = Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8")
        peak = int(re.findall(r"VmHWM:\s+(\d+)", text)[0]) / 1024
        report.add(SECTION, "peak memory of the console's process, MB", peak, 150, at_most=True)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)


def _median(client: Any, path: str) -> tuple[Any, float]:
    taken = []
    for _ in range(_TIMES):
        begun = time.perf_counter()
        answer = client.get(path).raise_for_status()
        taken.append(time.perf_counter() - begun)
    return answer, statistics.median(taken)


def _until_there(client: Any) -> None:
    import httpx

    until = time.monotonic() + 120
    while True:
        try:
            client.get("/alive").raise_for_status()
            return
        except httpx.TransportError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _site(folder: Path) -> tuple[Path, Path]:
    """The folder of a site where studies wait, and a long ledger."""
    from eigenveil import PrivatePCA
    from eigenveil.app.federation import new_all
    from eigenveil.federation.approvals import studies as approvals
    from eigenveil.federation.ledger.entries import BeginBody, Budget, ChargeBody, EndBody
    from eigenveil.federation.ledger.ledger import Ledger
    from eigenveil.federation.ledger.store import open_store
    from eigenveil.federation.study.study import make_study
    from eigenveil.privacy.accountant import Loss

    usual: dict[str, Any] = {
        "features": 20,
        "components": 3,
        "epsilon": 0.01,
        "delta": 1e-6,
        "protocol": "cape",
        "sites": [{"name": name} for name in ("north", "south", "west")],
    }
    parties = new_all(make_study(name="first", **usual), folder / "parties").parties
    party = parties["north"]
    for number in range(_STUDIES):
        fields = usual | {"epsilon": 0.01 + number / 1e4}
        approvals.ask_owner(party, make_study(name=f"study-{number:02}", **fields))
    place = folder / "north.ledger"
    Ledger(place).set_budget(Budget("default", "add-remove", 100.0, 1e-6))
    rows = np.random.default_rng(0).standard_normal((500, 4))
    model = PrivatePCA(2, epsilon=1.0, delta=1e-6, mechanism="gaussian").fit(rows)
    record = model.certificate_.releases[-1]
    nothing = Loss(1e-6)
    with open_store(place, durable=False).writing() as writer:
        for number in range((_ENTRIES - 1) // 3):
            about = {"study": f"{number:064x}", "session": "one"}
            writer.append(
                BeginBody(
                    **about,
                    data_set="default",
                    unit="row",
                    adjacency="add-remove",
                    reserve=nothing,
                    counted="add-remove",
                    taken=nothing,
                    pure_as_gaussian=False,
                    state="0" * 64,
                    note=f"study {number}",
                )
            )
            writer.append(
                ChargeBody(
                    **about,
                    step="round 1",
                    request="0" * 64,
                    reply="0" * 64,
                    state=None,
                    releases=(record,),
                )
            )
            writer.append(EndBody(**about, outcome="finished"))
    return party.folder, place
