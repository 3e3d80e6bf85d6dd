"""A federation whose parties can be told what to do wrong, and what must hold whatever they did."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import numpy as np

from eigenveil.errors import ProtocolError
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol.messages import decode
from federation_tools import SITES, SOURCES, Federation, in_process, pca_study

RNG = np.random.default_rng(3)
ROWS = {name: RNG.standard_normal((1000, 20)) * np.linspace(3.0, 0.3, 20) for name in SITES}
# Seconds; generous, for a machine that does other things too.
PATIENCE = 90.0
HERE = Path(__file__).parent


class FaultyFederation(Federation):
    """Every party does what its ``mischief.json`` says; the aggregator's jobs are tapped."""

    process = HERE / "faulty_process.py"
    settled: frozenset[str] = frozenset()
    """Jobs that are in the books no longer: a ledger was put in another's place since."""

    def environment(self, name):
        temporary = self.folder / "tmp" / name
        temporary.mkdir(parents=True, exist_ok=True)
        own = {"TMPDIR": str(temporary)}
        if name == "aggregator":
            own["PYTHONPATH"] = os.pathsep.join((str(HERE / "dishonest"), SOURCES))
        return own

    def run(self, study, *, timeout=20.0, wait=True, rows=ROWS):
        """Submit a study, all approving; with ``wait`` how it ended, else the job."""
        self.give_rows(study, rows)
        for name in {each.name for each in study.sites} & set(self.sites):
            self.approve_at(name, study)
        with self.session() as session:
            job = session.submit(study, timeout=timeout)
            if not wait:
                return job
            return self.wait(session, job, timeout=PATIENCE)

    def state(self, job):
        with self.session() as session:
            return session.status(job)

    def start_again(self, *names):
        """Start killed sites; return when they are connected."""
        times = {name: self.said(name).count(" is connected to ") for name in names}
        for name in names:
            self.processes[name].wait(PATIENCE)
        self.start(*names)
        for name in names:
            self.wait_connected(name, times=times[name] + 1, timeout=PATIENCE)

    def honest(self):
        """Everybody behaves from now on, and lives."""
        for name in ("aggregator", *self.sites):
            self.behave(name)
            (self.kits[name] / "full").unlink(missing_ok=True)
            (self.kits[name] / "careless").unlink(missing_ok=True)
        for name in self.sites:
            if self.processes[name].poll() is not None:
                self.start_again(name)
        if self.processes["aggregator"].poll() is not None:
            self.start("aggregator")
        until(self.can_be_reached)

    def can_be_reached(self):
        """Whether the aggregator answers and knows that all sites are there."""
        try:
            with self.session() as session:
                there = session._flare.get_system_info().client_info
                return {each.name for each in there} >= set(self.sites)
        except ProtocolError as error:
            if error.code != "no-aggregator":
                raise
            return False

    def tapped(self, job, name="*", step="*"):
        """Requests and replies that a job's process saw, in order."""
        files = sorted((self.folder / "tap" / job).glob(f"*-{name}-{step}.reply"))
        return [(f.with_suffix(".request").read_bytes(), f.read_bytes()) for f in files]

    # -- what must hold

    def same_as_in_process(self, job, study):
        with self.session() as session:
            found = self.fetch(session, job)
        return np.array_equal(found.components_, in_process(study, ROWS, self).components_)

    def check_books(self, *, all_free=True):
        """Every ledger holds; what any job received of a round is charged; the rest is free."""
        for name in self.sites:
            ledger = Ledger(self.ledger(name))
            verification = ledger.verify()
            assert verification.holds, verification.explanation
            accounts = {account.key.session: account for account in ledger.sessions()}
            for account in accounts.values():
                assert account.terms.reserve.covers(account.charged())
            for standing in ledger.standings():
                if all_free:
                    assert (standing.reserved.mu_squared, standing.reserved.pure) == (0, 0), name
                spent = sum(each.charged().mu_squared for each in accounts.values())
                assert np.isclose(standing.spent.mu_squared, spent, rtol=1e-12)
            for job in self.jobs() - self.settled:
                for _, reply in self.tapped(job, name, "round *"):
                    self._check_charged(name, accounts, reply)

    def jobs(self):
        """Of which messages were tapped."""
        return {job.name for job in (self.folder / "tap").glob("*")}

    def settle(self):
        """Check all books, before one of them is put away or taken back."""
        self.check_books()
        self.settled = frozenset(self.jobs())

    def _check_charged(self, name, accounts, reply):
        if reply[:4] != b"EVM1":
            return
        message = decode(reply, sender=name, limit=len(reply))
        if not message.step.startswith("round"):
            return  # a refusal
        charges = accounts[message.session].charges
        digest = hashlib.sha256(reply).hexdigest()
        assert [c.reply for _, c in charges if c.step == message.step] == [digest]

    def all_free(self):
        return all(
            standing.reserved.mu_squared == 0 and standing.reserved.pure == 0
            for name in self.sites
            for standing in Ledger(self.ledger(name)).standings()
        )


def until(check, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


__all__ = ["PATIENCE", "ROWS", "SITES", "FaultyFederation", "pca_study", "until"]
