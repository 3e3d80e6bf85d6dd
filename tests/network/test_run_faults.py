"""Whatever carries messages: a study releases what it would in one process, or nothing at all."""

import functools
import random
import time

import contract
import numpy as np
import pytest
from contract import CARRIERS, Lossy
from study_tools import Federation, Site, ended, one_release, rows_of, until

from eigenveil.errors import EigenveilError
from eigenveil.federated.running import InProcess, carry, requested_budget
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.site import Site as SiteRole
from eigenveil.federation.protocol.terms import settle
from eigenveil.network import attendant, endpoint
from eigenveil.network.envelopes import Envelope
from eigenveil.network.folder import identity_of, sealing_of
from eigenveil.network.members import line
from eigenveil.network.post import Post
from eigenveil.network.registrar import Registrar
from eigenveil.noise.source import SeededSource
from federation_tools import SITES, identities
from mailbox_tools import MemoryKeys, MemoryMailboxes
from soak_tools import MANY, count, times

SEED = 5


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """What is lost is put again before long."""
    monkeypatch.setattr(endpoint, "AGAIN", 0.1)
    monkeypatch.setattr(endpoint, "SELDOM", 0.4)
    monkeypatch.setattr(attendant, "HELLO", 0.1)
    monkeypatch.setattr(attendant, "RETRY", 0.05)


@functools.cache
def in_one_process(folder):
    """The components of the study that sites with these seeds make."""
    study, who = one_release(), identities()
    terms, sites = settle(study), {}
    for number, name in enumerate(SITES):
        ledger = Ledger(folder / f"{name}.ledger", durable=False)
        ledger.set_budget(requested_budget(terms))
        sites[name] = SiteRole(
            name=name, terms=terms, rows=rows_of(name), ledger=ledger,
            source=SeededSource(SEED + number), identity=who[name],
        )  # fmt: skip
    aggregator = Aggregator(terms, identity=who["aggregator"])
    return carry(aggregator.run(), InProcess(sites)).factors.components


@pytest.mark.parametrize("seed", range(times(10)))
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_carrier_that_does_its_worst_changes_nothing(tmp_path, tmp_path_factory, carrier, seed):
    wanted = in_one_process(tmp_path_factory.getbasetemp())
    (tmp_path / "mail").mkdir()
    with CARRIERS[carrier](tmp_path / "mail") as opens:
        world = Lossy(opens, seed, part=0.1)
        with Federation(
            tmp_path / "all", opens=world, seed=SEED, parties=contract.parties()
        ) as federation:
            lead = federation.lead()
            run = lead.submit(federation.study)
            assert (found := ended(lead, run)).state == "finished", found.error
            model, _ = lead.result(run)
    assert np.array_equal(model.components_, wanted)
    assert world.wrong > 5


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
            assert (found := ended(lead, run, 120)).state == "finished", found.error
    for ledger in federation.ledgers.values():
        assert ledger.verify().holds
        sessions = {each.key.session: each for each in ledger.sessions()}
        assert set(sessions) == set(runs)
        for each in sessions.values():
            steps = [charge.step for _, charge in each.charges]
            assert len(set(steps)) == len(steps) > 0
            assert not each.is_open
    count("killed", "parties of three studies in one process, over a bad carrier", stopped)


def test_nothing_forged_replayed_or_of_somebody_else_has_an_effect(tmp_path):
    """Messages of a run that was, changed and unchanged, while another one waits."""
    boxes = MemoryMailboxes()
    world = Lossy(lambda party: boxes.of(party.name), 1, part=0.0)
    kept = []
    with Federation(tmp_path, opens=world) as federation, federation.lead() as lead:
        put = boxes.of

        class Noting:
            def __init__(self, name):
                self.box = put(name)

            def put(self, recipient, envelope):
                kept.append((recipient, envelope))
                self.box.put(recipient, envelope)

            def __getattr__(self, name):
                return getattr(self.box, name)

        federation.stop_aggregator()
        federation.opens = lambda party: Noting(party.name)
        federation.start_aggregator()
        for name in SITES:
            federation.stop(name)
            federation.start(name)
        assert ended(lead, lead.submit(federation.study)).state == "finished"
        federation.sites["west"].decision = "waiting"
        run = lead.submit(one_release(name="second"))
        until(lambda: lead.status(run).answered == 2)

        def standing():
            books = [[str(each) for each in federation.ledgers[n].sessions()] for n in SITES]
            return books, lead.status(run).state

        before = standing()
        draw, tried = random.Random(3), 0
        places = ["aggregator", *SITES]
        for number in range(20 * MANY):
            recipient, envelope = draw.choice(kept)
            kind = number % 4
            data = envelope if kind == 0 else world.damaged(envelope)
            world.chance = draw
            box = boxes.of("lead")
            box.put(draw.choice(places) if kind == 3 else recipient, data)
            tried += 1
        for sender, step in [("south", "round 1"), ("lead", "join"), ("south", "over")]:
            party = federation.parties[sender]
            post = Post(identity_of(party), sealing_of(party), MemoryKeys())
            post.learn(federation.attendants["north"].at.post.hello(sender))
            letter = Envelope(
                federation.study.hash, run, step, sender, "north", run.encode() + bytes(64)
            )
            boxes.of(sender).put("north", post.seal(letter, bound=4096)[0])
            tried += 1
        until(lambda: not any(len(boxes.mail[name]) > 1 for name in places))
        assert standing() == before
        federation.sites["west"].decision = "approved"
        assert ended(lead, run).state == "finished"
        count("forged", "messages to an aggregator and sites in a run", tried)


def test_a_newer_list_is_passed_on_and_one_that_forked_is_refused(tmp_path):
    with Federation(tmp_path) as federation, federation.lead() as lead:
        newer = Registrar(tmp_path / "parties" / "registrar").renew()
        federation.parties["aggregator"].known.adopt(line(newer))
        digest = federation.parties["aggregator"].known.digest
        assert federation.parties["north"].known.digest != digest
        run = lead.submit(federation.study)
        assert (found := ended(lead, run)).state == "finished", found.error
        assert {federation.parties[name].known.digest for name in SITES} == {digest}
    with pytest.raises(EigenveilError):
        federation.parties["north"].known.adopt(b"{}")


def test_a_site_that_hears_of_a_run_that_is_over_does_not_admit_it_again(tmp_path):
    with Federation(tmp_path) as federation, federation.lead() as lead:
        run = lead.submit(federation.study)
        assert ended(lead, run).state == "finished"
        ended_file = federation.parties["north"].ended_file
        until(lambda: ended_file.exists() and run in ended_file.read_text())
        again = Site(federation.parties["north"], federation.ledgers["north"])
        assert run in again.runs.over
        assert again.runs.find(run) is None
