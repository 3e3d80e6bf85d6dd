"""Studies and files through real networks: nothing is lost, nothing made up is believed."""

import itertools
import os
import random
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from networks import CLIENTS, KINDS, VERSION, Flare
from study_tools import SITES, Federation, ended, one_release, until

import soak_tools
from eigenveil.network.carriers.folder import FolderMailbox, RelayCarrier, folder_name
from eigenveil.network.carriers.shelves import LocalShelf
from eigenveil.network.mailbox import digest_of

FORGED = 200


def box(spool):
    return FolderMailbox(LocalShelf(spool), "in", lambda name: f"out/{folder_name(name)}")


def exchange(network, size, seconds=120, names=CLIENTS):
    """A file to each client and one from it, which must be the same when they come out."""
    server = box(network.spools["aggregator"])
    sent = {name: (os.urandom(size), os.urandom(size)) for name in names}
    for name, (out, back) in sent.items():
        server.put(name, out)
        box(network.spools[name]).put("aggregator", back)
    for name, (out, back) in sent.items():
        for place, body in ((network.spools[name], out), (network.spools["aggregator"], back)):
            path = place / "in" / f"{digest_of(body)}.eve"
            until(path.exists, seconds)
            assert path.read_bytes() == body
            path.unlink()


def test_files_pass_whole_also_when_a_relay_is_killed(network):
    exchange(network, 1000)
    large, name = (100, "north") if isinstance(network, Flare) else (20, "")
    exchange(network, large << 20, names=CLIENTS[:1])
    if name:  # in Flower it takes minutes: see below
        until(lambda: network.kill_relay(name), 60)
        exchange(network, 50_000)


def through(network):
    """What opens a party's mailbox in the network."""
    return lambda party: RelayCarrier().open(party, f"flare:{network.spools[party.name]}")


class Forger:
    """A member's mailbox in a network that sends changed copies of all that the member sends."""

    def __init__(self, inner, left, seed):
        self.inner, self.left, self.chance = inner, left, random.Random(seed)
        self.take, self.forget, self.close = inner.take, inner.forget, inner.close
        self.old = []

    def put(self, recipient, envelope):
        self.inner.put(recipient, envelope)
        for _ in range(6):
            if next(self.left, None) is None:
                return
            where = self.chance.randrange(len(envelope))
            changed = bytearray(envelope)
            changed[where] ^= 1 << self.chance.randrange(8)
            if self.old and self.chance.random() < 0.3:  # halves of two letters
                changed[where:] = self.chance.choice(self.old)[where:]
            self.inner.put(recipient, bytes(changed))
        self.old.append(envelope)


def test_a_study_through_a_network_is_the_study_in_one_process(network, tmp_path):
    study = one_release()
    with Federation(tmp_path / "plain", study, seed=3) as plain, plain.lead() as lead:
        run = lead.submit(study)
        assert ended(lead, run).state == "finished"
        wanted, _ = lead.result(run)

    left, seeds = iter(range(FORGED)), itertools.count()

    def opened(party):
        return Forger(through(network)(party), left, next(seeds))

    with Federation(tmp_path / "net", study, opens=opened, seed=3) as federation:
        with federation.lead(timeout=120) as lead:
            begun = time.monotonic()
            run = lead.submit(study)
            found = ended(lead, run, 240)
            seconds = time.monotonic() - begun
            assert found.state == "finished", found.error
            model, _ = lead.result(run)  # signed by all sites
        assert next(left, None) is None, "fewer forged messages than wanted"
        assert np.array_equal(model.components_, wanted.components_)
        for name in SITES:  # charged once
            assert len(federation.ledgers[name].sessions()) == 1
    soak_tools.count("forged", f"messages through {type(network).__name__}", FORGED)
    print(f"{type(network).__name__}: {seconds:.1f} s from the order to the end")


@pytest.mark.thorough
def test_studies_end_as_wanted_while_processes_of_the_network_are_killed(network, tmp_path):
    """With kill -9, at random: of relays alone, and of all that a party's network has."""
    chance, kills, models = random.Random(), Counter(), []
    with Federation(tmp_path, one_release(), opens=through(network)) as federation:
        for ledger in federation.ledgers.values():
            budget = ledger.budget("default")
            ledger.set_budget(replace(budget, epsilon=100 * budget.epsilon))
        with federation.lead(timeout=600) as lead:
            while kills.total() < soak_tools.times(50):
                run = lead.submit(federation.study, timeout=3600)
                time.sleep(chance.uniform(0, 5 if isinstance(network, Flare) else 40))
                name = chance.choice((network.server, *CLIENTS))
                if chance.random() < 0.5:
                    kills["relay"] += until(lambda who=name: network.kill_relay(who), 120)
                else:
                    network.kill(name)
                    network.start(name)
                    kills["network"] += 1
                assert (found := ended(lead, run, 900)).state == "finished", found.error
                models.append(lead.result(run)[0])
                print(dict(kills), round(time.monotonic()), flush=True)
        for name in SITES:
            assert len(federation.ledgers[name].sessions()) == len(models)
    soak_tools.count("killed", f"processes of {type(network).__name__}", kills.total())


@pytest.mark.skipif("flare" not in KINDS, reason="only FLARE has lists of classes")
@pytest.mark.parametrize("carry", [False, True])
def test_a_network_without_the_relay_says_so_unless_the_job_brings_it(tmp_path, carry):
    with Flare(tmp_path, VERSION, allowed=False, carry=carry) as network:
        if carry:
            exchange(network, 1000)
        else:
            until(lambda: "say 'eigenveil relay flare-kit' there" in network.said("keep"), 60)
