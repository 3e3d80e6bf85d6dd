"""Studies and files through real networks: nothing is lost, nothing made up is believed."""

import itertools
import os
import random
import time

import numpy as np
import pytest
from networks import CLIENTS, KINDS, VERSION, Flare
from study_tools import SITES, Federation, ended, one_release, until

from eigenveil.network.carriers.folder import (
    FolderMailbox,
    LocalShelf,
    RelayCarrier,
    folder_name,
)
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


def test_files_pass_whole_also_when_relays_are_killed(network):
    exchange(network, 1000)
    exchange(network, (100 if isinstance(network, Flare) else 20) << 20, names=CLIENTS[:1])
    for name in (network.server, "north"):
        until(lambda who=name: network.kill_relay(who), 60)
        exchange(network, 50_000, seconds=150)


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
        address = f"flare:{network.spools[party.name]}"
        return Forger(RelayCarrier().open(party, address), left, next(seeds))

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
    print(f"{type(network).__name__}: {seconds:.1f} s from the order to the end")


@pytest.mark.skipif("flare" not in KINDS, reason="only FLARE has lists of classes")
@pytest.mark.parametrize("carry", [False, True])
def test_a_network_without_the_relay_says_so_unless_the_job_brings_it(tmp_path, carry):
    with Flare(tmp_path, VERSION, allowed=False, carry=carry) as network:
        if carry:
            exchange(network, 1000)
        else:
            until(lambda: "say 'eigenveil relay flare-kit' there" in network.said("keep"), 60)
