"""A federation that runs studies in this process: aggregator, sites and lead over mailboxes."""

import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np

from eigenveil.federated.running import requested_budget
from eigenveil.federation.approvals.record import StudyStanding
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol.terms import settle
from eigenveil.moments.source import ArrayRows
from eigenveil.network import attendant, endpoint, parties, questions
from eigenveil.network.attendant import Attendant
from eigenveil.network.lead import LeadSession
from eigenveil.network.parties import HelperParty, SiteParty
from eigenveil.network.service import AggregatorService
from eigenveil.noise.source import SeededSource
from federation_tools import SITES, make_federation, study_of
from mailbox_tools import MemoryMailboxes

PATIENCE = 60.0


def rows_of(name, count=40, width=4):
    """Some rows of a site, the same each time."""
    number = sum(name.encode())
    array = np.random.default_rng(number).normal(size=(count, width))
    return ArrayRows(array * np.arange(width, 0, -1), names=None, origin=name)


def one_release(**fields):
    """A study that takes few exchanges."""
    return study_of(**({"row_bound": 4.0, "mechanism": "gaussian"} | fields))


@contextmanager
def impatient():
    """Parties look, try and ask again soon."""
    with (
        mock.patch.multiple(attendant, WAIT=0.2, RETRY=0.1, HELLO=0.5),
        mock.patch.multiple(endpoint, AGAIN=0.2, SELDOM=0.5),
        mock.patch.multiple(questions, WAIT=0.2, GRACE=0.3, LAST_WORDS=0.5),
    ):
        yield


class Site(SiteParty):
    """A site whose owner decides here: ``decision`` is a state of a standing."""

    decision = "approved"

    def __init__(self, folder, ledger, *, seed=None, rows=None, said=None):
        source = None if seed is None else SeededSource(seed)
        self.said = [] if said is None else said
        with mock.patch.object(parties, "Decisions"):
            super().__init__(
                folder,
                lambda study: rows or rows_of(folder.name, width=study.width),
                ledger,
                source=source,
                say=self.said.append,
            )

    def standing(self, study):
        return StudyStanding(self.decision)

    def _may_run(self, run):
        return self.standing(run.key.study).approved


class Federation:
    """All parties of a study; each can be stopped and started again, as after a kill."""

    def __init__(self, folder, study=None, *, opens=None, seed=None, parties=None):
        self.study, self.folder, self.seed = study or one_release(), folder, seed
        folder.mkdir(exist_ok=True)
        self.parties = parties or make_federation(folder / "parties", self.study)
        boxes = MemoryMailboxes()
        self.opens = opens or (lambda party: boxes.of(party.name))
        self.ledgers = {}
        for name in self.study.names:
            ledger = self.ledgers[name] = Ledger(folder / f"{name}.ledger", durable=False)
            budget = requested_budget(settle(self.study))
            ledger.set_budget(replace(budget, epsilon=budget.epsilon * 20))
        self.running, self.sites, self.attendants, self.said = {}, {}, {}, []
        self.service, self._open = None, ExitStack()

    def __enter__(self):
        self._open.enter_context(impatient())
        self.start_aggregator()
        for name in self.parties:
            if self.parties[name].role in ("site", "helper"):
                self.start(name)
        return self

    def __exit__(self, *_):
        for name in list(self.running):
            self.stop(name)
        self.stop_aggregator()
        self._open.close()

    def start(self, name, party=None):
        """A site or helper in a thread of its own."""
        folder, stop = self.parties[name], threading.Event()
        if party is None and folder.role == "helper":
            party = HelperParty(folder, say=self.said.append)
        elif party is None:
            seed = None if self.seed is None else self.seed + SITES.index(name)
            party = Site(folder, self.ledgers[name], seed=seed)
        mailbox = self.opens(folder)
        attendant = self.attendants[name] = Attendant(party, mailbox)
        thread = threading.Thread(target=attendant.serve, args=(stop,), daemon=True)
        thread.start()
        self.running[name], self.sites[name] = (stop, mailbox, thread), party
        return party

    def stop(self, name):
        """End a party in the middle of whatever it does."""
        stop, mailbox, thread = self.running.pop(name)
        stop.set()
        mailbox.close()
        thread.join(30)

    def start_aggregator(self, **options):
        mailbox = self.opens(self.parties["aggregator"])
        self.service = AggregatorService(
            self.parties["aggregator"], mailbox, say=self.said.append, **options
        )
        self.service.start()

    def stop_aggregator(self):
        self.service.close()

    def lead(self, name="lead", **options):
        """A session of a lead."""
        return LeadSession(self.parties[name], self.opens(self.parties[name]), **options)


def until(condition, seconds=PATIENCE):
    """Wait for something; what it is then."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return found


def ended(lead, run, seconds=PATIENCE):
    """The status of a run when it is over."""
    return until(lambda: (found := lead.status(run)).is_over and found, seconds)


def finished(lead, run, seconds=PATIENCE):
    """It ended well."""
    found = ended(lead, run, seconds)
    assert found.state == "finished", found.error
    return found
