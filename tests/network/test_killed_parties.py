"""Parties that are killed at any moment, over real carriers: nothing is lost or charged twice."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from contract import opener
from study_tools import impatient, one_release

from eigenveil.errors import EigenveilError
from eigenveil.federated.running import requested_budget
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol.terms import settle
from eigenveil.network.lead import LeadSession
from federation_tools import SITES, make_federation
from soak_tools import count, times

KILLS = times(450)  # by each carrier
PATIENCE = 60.0
# Kills of an aggregator in one run: who is started again and again in vain gives the run up.
AGGREGATOR = 4
# Kills in one run, after which it must come to its end.
MOST = 40


class Processes:
    """The parties of a study, each one a process that is killed and started again."""

    def __init__(self, folder, address):
        here = Path(__file__).with_name("party_processes.py")
        self._forks = subprocess.Popen(
            [sys.executable, here, folder, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.pids = {}

    def start(self, name):
        self._forks.stdin.write(f"{name}\n".encode())
        self._forks.stdin.flush()
        self.pids[name] = int(self._forks.stdout.readline())

    def kill(self, name):
        os.kill(self.pids[name], signal.SIGKILL)
        with suppress(ProcessLookupError):
            while True:  # until its port is free
                os.kill(self.pids[name], 0)
                time.sleep(0.001)

    def close(self):
        for pid in self.pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._forks.stdin.close()
        self._forks.wait()


def _address(kind, folder):
    if kind == "folder":
        (folder / "share").mkdir()
        return f"folder:{folder / 'share'}"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return f"https://localhost:{port}"


@pytest.mark.parametrize("kind", ["folder", "https"])
def test_parties_that_are_killed_lose_nothing_and_charge_once(tmp_path, kind):
    study, draw = one_release(), random.Random()
    address = _address(kind, tmp_path)
    parties = make_federation(tmp_path / "parties", study, address=address)
    address = parties["lead"].mailbox_address()
    ledgers = {name: Ledger(tmp_path / f"{name}.ledger") for name in SITES}
    for ledger in ledgers.values():
        budget = requested_budget(settle(study))
        ledger.set_budget(replace(budget, epsilon=budget.epsilon * 10_000, delta=0.9))
    processes = Processes(tmp_path, address)
    killed, runs = 0, []
    try:
        for name in ("aggregator", *SITES):
            processes.start(name)
        lead = LeadSession(parties["lead"], opener(address)(parties["lead"]))
        with lead, impatient():
            while killed < KILLS:
                runs.append(_tried(lambda: lead.submit(study)))
                left, most = (AGGREGATOR, MOST) if len(runs) > 1 else (0, 0)
                end, pause = time.monotonic() + PATIENCE, draw.choice([0.02, 0.1, 0.4])
                while not (status := _tried(lambda: lead.status(runs[-1]))).is_over:
                    assert time.monotonic() < end, status
                    for _ in range(min(draw.randrange(4), most)):
                        time.sleep(draw.expovariate(1 / pause))
                        name = draw.choice([*SITES, "aggregator"] if left else SITES)
                        processes.kill(name)
                        killed, most = killed + 1, most - 1
                        left -= name == "aggregator"
                        end = time.monotonic() + PATIENCE
                        processes.start(name)
                assert status.state == "finished", status
                _, signed = _tried(lambda: lead.result(runs[-1], study))
                assert set(signed.sites) == set(SITES)
    finally:
        processes.close()
    count("killed", f"parties over {kind}", killed)
    for ledger in ledgers.values():
        sessions = {each.key.session: each for each in ledger.sessions()}
        assert set(runs) <= set(sessions)
        # the first run, in which nobody was killed, says what one costs
        spent = [(len(sessions[run].charges), sessions[run].spent()) for run in runs]
        assert spent == [spent[0]] * len(runs)
        assert not any(sessions[run].is_open for run in runs)


def _tried(ask):
    """What the aggregator answers when it is there again."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except EigenveilError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
