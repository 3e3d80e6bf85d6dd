"""A study releases the same integers over every carrier as in one process, whatever goes wrong."""

import random
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
import study_tools
from contract import CARRIERS, Lossy
from study_tools import Federation, finished, impatient, one_release, rows_of

from eigenveil.federated.running import InProcess, carry, requested_budget
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.terms import settle
from eigenveil.network.attendant import Attendant
from eigenveil.network.lead import LeadSession
from eigenveil.noise.source import SeededSource
from federation.roles_tools import sums_seen
from federation_tools import SITES, identities, study_of
from mailbox_tools import MemoryMailboxes
from noise_tools import silence
from soak_tools import count, seldom, times

SEED = 11


def integers(rounds):
    """What sites' messages added up to, by release; the same wherever there are several."""
    found = {}
    for queries, sums in rounds:
        for query, total in zip(queries, sums, strict=True):
            known = found.setdefault(query.name, total)
            assert np.array_equal(known, total)
    return found


def alone(study, folder, *, seed=SEED):
    """The integers of a run in one process, and its outcome."""
    terms, known, sites = settle(study), identities(SITES), {}
    for number, name in enumerate(SITES):
        ledger = Ledger(folder / f"{name}.alone", durable=False, heads=None)
        ledger.set_budget(requested_budget(terms))
        sites[name] = Site(
            name=name,
            terms=terms,
            rows=rows_of(name, width=study.width),
            ledger=ledger,
            source=SeededSource(seed + number),
            identity=known[name],
        )
    with sums_seen() as rounds:
        outcome = carry(Aggregator(terms).run(), InProcess(sites))
    return integers(rounds), outcome


def check(federation, run, wanted, found):
    """The same integers, and each site charged once, with nothing left open."""
    assert found.keys() == wanted.keys()
    for name, total in wanted.items():
        assert np.array_equal(found[name], total), name
    for name in SITES:
        ledger = federation.ledgers[name]
        (session,) = ledger.sessions()
        assert session.key.session == run
        assert not session.is_open
        charged = [record.name for _, each in session.charges for record in each.releases]
        assert sorted(charged) == sorted(wanted)
        assert ledger.verify().holds


class Killed(BaseException):
    """A party ends here, as by kill -9: nothing that it would have done is done."""


class Mortal:
    """A party's mailbox that kills it now and then: before it puts or forgets, or afterwards."""

    def __init__(self, mailbox, chance):
        self._mailbox, self._chance = mailbox, chance

    def _may_end(self):
        if self._chance.random() < 0.4:
            raise Killed

    def _does(self, work, *told):
        self._may_end()
        work(*told)
        self._may_end()

    def put(self, *told):
        self._does(self._mailbox.put, *told)

    def forget(self, *told):
        self._does(self._mailbox.forget, *told)

    def take(self, *told):
        found = self._mailbox.take(*told)
        if found:
            self._may_end()
        return found


@contextmanager
def running(carrier, study, folder, *, part=0.0, seed=SEED):
    """A federation whose carrier does a part of all it does wrong, and a lead whose does not."""
    federation, place = Federation(folder, study, seed=seed), folder / "mail"
    place.mkdir()
    chance = random.SystemRandom().getrandbits(64)
    print("seed", chance)
    with CARRIERS[carrier](place, federation.parties["aggregator"]) as opens:
        federation.opens = badly = Lossy(opens, chance, part=part)
        with federation, LeadSession(who := federation.parties["lead"], opens(who)) as lead:
            yield federation, lead, badly


@pytest.mark.parametrize("part", [0.0, *[0.1] * times(10)])
@pytest.mark.parametrize("carrier", CARRIERS)
def test_the_same_integers_over_every_carrier(carrier, part, tmp_path):
    study = study_of(epsilon=60.0) if carrier == "memory" and not part else one_release()
    wanted, outcome = alone(study, tmp_path)
    with sums_seen() as rounds, running(carrier, study, tmp_path, part=part) as found:
        federation, lead, badly = found
        run = lead.submit(study)
        finished(lead, run, 120)
        model, signed = lead.result(run, study)
        check(federation, run, wanted, integers(rounds))
    assert set(signed.sites) == set(SITES)
    assert np.array_equal(model.components_, outcome.factors.components)
    assert bool(badly.wrong) == bool(part)


_BIRTH = threading.Lock()  # a site's decisions are replaced while it is made


def lives(federation, name, over, deaths):
    """A site that is started again whenever it was killed; all it knows is on its disk."""
    chance, place = random.Random(), federation.folder / f"{name}.ledger"
    mailbox = Mortal(federation.opens(federation.parties[name]), chance)
    while not over.is_set():
        with _BIRTH:
            party = study_tools.Site(federation.parties[name], Ledger(place, durable=False))
            mortal = Attendant(party, mailbox)
        try:
            while not over.is_set():
                mortal.turn(0.05)
        except Killed:
            deaths.append(name)


def test_sites_are_killed_at_every_step_and_nothing_is_lost_or_charged_twice(tmp_path):
    study, kills, run_number = one_release(), seldom(9_000), 0
    with silence(), impatient():
        wanted, _ = alone(study, tmp_path)
        while kills > 0:
            run_number += 1
            folder = tmp_path / str(run_number)
            federation, over, deaths = Federation(folder, study), threading.Event(), []
            federation.start_aggregator()
            threads = [
                threading.Thread(target=lives, args=(federation, name, over, deaths))
                for name in SITES
            ]
            for each in threads:
                each.start()
            try:
                with federation.lead() as lead, sums_seen() as rounds:
                    run = lead.submit(study)
                    finished(lead, run, 120)
                    _, signed = lead.result(run, study)
            finally:
                over.set()
                for each in threads:
                    each.join()
                federation.stop_aggregator()
            check(federation, run, wanted, integers(rounds))
            assert set(signed.sites) == set(SITES)
            kills -= len(deaths)
            count("killed", "sites over a mailbox, in process", len(deaths))


@pytest.mark.parametrize("seed", range(times(10)))
def test_parties_that_are_stopped_at_any_moment_lose_and_charge_nothing_twice(tmp_path, seed):
    """Also the aggregator; three studies go on at once."""
    draw, boxes = random.Random(seed), MemoryMailboxes()
    world = Lossy(lambda party: boxes.of(party.name), seed, part=0.05)
    studies = [one_release(name=f"study-{number}") for number in range(3)]
    stopped = 0
    with Federation(tmp_path, opens=world) as federation, federation.lead() as lead:
        runs = [lead.submit(each) for each in studies]
        while stopped < 12:
            time.sleep(draw.random() * 0.15)
            name = draw.choice(["aggregator", *SITES])
            if name == "aggregator":
                federation.stop_aggregator()
                federation.start_aggregator()
            else:
                federation.stop(name)
                federation.start(name)
            stopped += 1
        for run in runs:
            finished(lead, run, 120)
    for ledger in federation.ledgers.values():
        assert ledger.verify().holds
        sessions = {each.key.session: each for each in ledger.sessions()}
        assert set(sessions) == set(runs)
        for each in sessions.values():
            steps = [charge.step for _, charge in each.charges]
            assert len(set(steps)) == len(steps) > 0
            assert not each.is_open
    count("killed", "parties of three studies in one process, over a bad carrier", stopped)
