"""Three sites, an aggregator and a lead on one machine, each a process of its own: private PCA.

    python examples/sites_demo.py [FOLDER] [--carrier https|folder|flare|flower]

Makes every party's folder, starts everything on the loopback interface, runs the study of ``make
demo``, certifies the result, shows a ledger, and stops everything it started, whatever happens.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from eigenveil.cli.app import own_call

SITES = {"north": "digits-1.parquet", "south": "digits-2.parquet", "west": "digits-3.parquet"}
STUDY = (
    *("--one-row-per-person", "--components", "10", "--epsilon", "1", "--delta", "1e-6"),
    *("--protocol", "cape"),
)
SECONDS_TO_CONNECT, SECONDS_TO_STOP = 60.0, 15.0


def run(*words: str | Path) -> None:
    """Run a command to its end, and say which."""
    print("\n$ eigenveil", *words, flush=True)
    subprocess.run(own_call(*words), check=True)


@contextmanager
def running(folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are stopped at the end, by their ids, in the order in which they began."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        yield started
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what was started is stopped in any case
        for process in reversed(started):
            process.terminate()
        until = time.monotonic() + SECONDS_TO_STOP
        for process in started:
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        print(f"\nstopped {len(started)} processes; their logs are in {folder}/*.txt")


def start(name: str, folder: Path, *words: str | Path) -> subprocess.Popen[bytes]:
    """Start a party in a process group of its own; its lines go to a file."""
    print("\n$ eigenveil", *words, "&", flush=True)
    with (folder / f"{name}.txt").open("wb") as log:
        return subprocess.Popen(
            own_call(*words), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


def wait_for(words: str, log: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait until a party says something; ends where one of them has ended."""
    until = time.monotonic() + SECONDS_TO_CONNECT
    while words not in log.read_text(encoding="utf-8"):
        if time.monotonic() > until or any(process.poll() is not None for process in processes):
            sys.exit(f"{log.stem} is not connected: {log.read_text(encoding='utf-8')}")
        time.sleep(0.2)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def network(folder: Path, parties: Path, carrier: str) -> AbstractContextManager[Any]:
    """A FLARE or Flower network, with a relay beside each party."""
    if carrier not in ("flare", "flower"):
        return nullcontext()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "carriers"))
    networks = import_module("networks")
    os.environ[networks.relays.SAME_USER] = "1"  # all of this is one user's
    place = (folder / "network").absolute()
    place.mkdir()
    spools = {name: (parties / name / "mail").absolute() for name in ("aggregator", "lead", *SITES)}
    kind = networks.Flare if carrier == "flare" else networks.Flower
    print(f"\nstarting a {carrier} network in {place}", flush=True)
    return cast("AbstractContextManager[Any]", kind(place, spools=spools))


def main(folder: Path, carrier: str) -> None:
    """Make the parties' folders, run the study, stop everything."""
    if folder.exists() and not (folder / "rows").is_dir():
        sys.exit(f"{folder} exists and is not of this demonstration: choose another folder.")
    shutil.rmtree(folder, ignore_errors=True)
    rows, parties, study = folder / "rows", folder / "parties", folder / "study.toml"
    subprocess.run([sys.executable, Path(__file__).with_name("digits.py"), rows], check=True)
    sites = [word for name in SITES for word in ("--site", name)]
    run("study", "new", study, *sites, "--from", rows / SITES["north"], *STUDY)
    address = {
        "https": f"https://localhost:{free_port()}",
        "folder": f"folder:{(folder / 'share').absolute()}",
    }.get(carrier, f"{carrier}:")
    run("federation", "new", "--all", study, "--out", parties, "--address", address)
    with running(folder) as processes, network(folder, parties, carrier):
        aggregator = ("aggregator", "start", "--party", parties / "aggregator")
        processes.append(start("aggregator", folder, *aggregator))
        for name, file in SITES.items():
            place = ("--party", parties / name, "--data", rows / file)
            books = ("--ledger", folder / f"{name}.ledger", "--budget-epsilon", "1")
            words = ("site", "start", *place, *books, "--approve", "all")
            processes.append(start(name, folder, *words))
        for name in SITES:
            wait_for("is connected", folder / f"{name}.txt", processes)
        run("study", "run", study, "--party", parties / "lead", "--out", folder / "result")
        run("certify", folder / "result", "--registrar", parties / "lead")
        print("\nwhat north was asked:")
        print((folder / "north.txt").read_text(encoding="utf-8"))
        run("ledger", "show", folder / "north.ledger")


if __name__ == "__main__":
    wanted = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    wanted.add_argument("folder", nargs="?", type=Path, default=Path("demo/sites"))
    wanted.add_argument(
        "--carrier", choices=("https", "folder", "flare", "flower"), default="https"
    )
    asked = wanted.parse_args()
    # ended from outside: stop the others all the same
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        main(asked.folder, asked.carrier)
    except KeyboardInterrupt:
        sys.exit(130)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
