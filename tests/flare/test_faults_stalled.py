"""An aggregator that is stopped or killed while a lead waits: every wait ends, and says what to do.

The command runs in a process of its own, with deadlines that are short enough for a test.
"""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")

from fault_tools import PATIENCE, ROWS, SITES, FaultyFederation, pca_study, until

import eigenveil
from eigenveil.federation.study.file import write_toml

# Seconds that the lead waits: for the aggregator, and for progress beyond a site's tries.
SHORT = 5.0
LEAD = f"""
import os, signal, sys
from eigenveil.cli import study_run
from eigenveil.cli.app import main
from eigenveil.network.flare import session

study_run._SILENT = study_run._STALLED = {SHORT}
session._translated.__defaults__ = (3.0,)  # of one answer
session.StudySession.__init__.__kwdefaults__["timeout"] = 3.0  # of a connection
to_be_stopped, fetch = int(sys.argv.pop(1)), study_run._fetched

def fetched(*rest):
    if to_be_stopped:
        os.kill(to_be_stopped, signal.SIGSTOP)
    return fetch(*rest)

study_run._fetched = fetched
main()
"""


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with FaultyFederation(tmp_path_factory.mktemp("stalled")) as found:
        found.start("aggregator", *SITES)
        found.wait_connected(*SITES, timeout=PATIENCE)
        yield found


@contextmanager
def stopped(pid):
    """A process that stands still."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class Lead:
    """'study run', in a process of its own."""

    def __init__(self, federation, name, *, stop=0, timeout=60.0):
        self.federation, self.name = federation, name
        self.study = pca_study(name)
        federation.give_rows(self.study, ROWS)
        file = federation.folder / f"{name}.toml"
        write_toml(self.study, file)
        out = federation.folder / f"{name}-result"
        self.process = self.command(
            stop, "run", file, "--out", out, "--timeout", timeout, "--no-plots"
        )

    def command(self, stop, *words):
        source = str(Path(eigenveil.__file__).parents[1])
        line = ["study", *words, "--kit", self.federation.kits["lead"]]
        return subprocess.Popen(
            [sys.executable, "-c", LEAD, str(stop), *map(str, line)],
            env=os.environ | {"HOME": str(self.federation.home), "PYTHONPATH": source},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self):
        """Its standard output, its standard error; it has failed."""
        try:
            out, err = self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()
        assert self.process.returncode == 6, (out, err)
        assert not (self.federation.folder / f"{self.name}-result").exists()
        return out, " ".join(err.split())

    def fetch(self, job):
        """The result, later."""
        out = self.federation.folder / f"{self.name}-later"
        process = self.command(0, "fetch", job, "--out", out, "--no-plots")
        said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
        assert (out / "certificate.json").exists()


def job_in(err):
    (job,) = set(re.findall(r"eigenveil study fetch ([0-9a-f-]{36}) --out FOLDER", err))
    return job


def server(federation):
    return federation.processes["aggregator"].pid


def in_round_2(federation, name):
    """A study that waits for west, and the file that lets it go on."""
    go = federation.folder / f"go-{name}"
    before = federation.said("west").count("mischief in round 2")
    federation.notify("west", step="round 2", until=str(go))
    return go, lambda: federation.said("west").count("mischief in round 2") > before


def finished(federation, job):
    with federation.session() as session:
        return federation.wait(session, job, timeout=PATIENCE).state == "finished"


def test_stopped_at_the_start(federation):
    with stopped(server(federation)):
        _, err = Lead(federation, "early").ended()
    assert "cannot be reached" in err
    assert "eigenveil aggregator start" in err
    until(federation.can_be_reached)


def test_stopped_in_the_middle(federation):
    """The aggregator's own process: the study goes on once it does, and can be fetched."""
    go, there = in_round_2(federation, "middle")
    lead = Lead(federation, "middle")
    until(there)
    with stopped(server(federation)):
        _, err = lead.ended()
    assert f"has not answered for {SHORT:g} s" in err
    go.touch()
    until(federation.can_be_reached)
    assert finished(federation, job_in(err))
    lead.fetch(job_in(err))


def test_the_studys_process_is_stopped_in_the_middle(federation):
    """The aggregator answers and says that the study runs: it makes no progress."""
    go, there = in_round_2(federation, "still")
    lead = Lead(federation, "still", timeout=2.0)
    until(there)
    with stopped(federation.job_process().pid):
        _, err = lead.ended()
        go.touch()
    assert f"has made no progress for {3 * 2.0 + SHORT:g} s" in err
    assert finished(federation, job_in(err))
    lead.fetch(job_in(err))


def test_stopped_at_the_end(federation):
    """The study has finished when the aggregator stops: it says so, and how to fetch it."""
    lead = Lead(federation, "late", stop=server(federation))
    try:
        _, err = lead.ended()
    finally:
        os.kill(server(federation), signal.SIGCONT)
    assert "The study has finished; its result could not be fetched" in err
    until(federation.can_be_reached)
    lead.fetch(job_in(err))


def test_killed_in_the_middle(federation):
    _, there = in_round_2(federation, "killed")
    lead = Lead(federation, "killed")
    until(there)
    federation.kill("aggregator")
    _, err = lead.ended()
    assert f"has not answered for {SHORT:g} s" in err
    assert job_in(err)
