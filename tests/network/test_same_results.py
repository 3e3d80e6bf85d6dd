"""A study releases the same integers over every carrier as in one process, whatever goes wrong."""

import random
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from contract import CARRIERS, Lossy
from federation.roles_tools import sums_seen
from soak_tools import count, times
from study_tools import Federation, ended, one_release, rows_of

from eigenveil.errors import EigenveilError
from eigenveil.federated.running import InProcess, carry, requested_budget
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.terms import settle
from eigenveil.network import lead as lead_module
from eigenveil.network import parties, questions
from eigenveil.network.lead import LeadSession
from eigenveil.noise.source import SeededSource
from federation_tools import SITES, identities, study_of
from noise_tools import silence

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


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """A carrier that loses mail is asked again soon."""
    for module, name, seconds in (
        (lead_module, "_AGAIN", 0.2),
        (questions, "AGAIN", 0.2),
        (questions, "SELDOM", 0.5),
        (questions, "WAIT", 0.2),
        (parties, "RETRY", 0.1),
        (parties, "HELLO", 0.5),
        (parties, "WAIT", 0.2),
    ):
        monkeypatch.setattr(module, name, seconds)


@contextmanager
def running(study, folder, opens, badly, **options):
    """A federation whose carrier is bad, a lead whose carrier is not, and a run."""
    with (
        Federation(folder, study, opens=badly, **options) as federation,
        LeadSession(federation.parties["lead"], opens(federation.parties["lead"])) as lead,
    ):
        yield federation, lead, lead.submit(study)


@pytest.mark.parametrize("wrong", ["nothing", "everything"])
@pytest.mark.parametrize("carrier", CARRIERS)
def test_the_same_integers_over_every_carrier(carrier, wrong, tmp_path):
    study = study_of(epsilon=60.0) if carrier == "memory" else one_release()
    wanted, outcome = alone(study, tmp_path)
    (tmp_path / "mail").mkdir()
    seed = random.SystemRandom().getrandbits(64)
    print("seed", seed)
    with CARRIERS[carrier](tmp_path / "mail") as opens, sums_seen() as rounds:
        badly = Lossy(opens, seed, part=0.15 if wrong == "everything" else 0.0)
        with running(study, tmp_path, opens, badly, seed=SEED) as (federation, lead, run):
            assert (found := ended(lead, run, 120)).state == "finished", found.error
            model, signed = lead.result(run, study)
            check(federation, run, wanted, integers(rounds))
    assert set(signed.sites) == set(SITES)
    assert np.array_equal(model.components_, outcome.factors.components)
    assert (badly.wrong > 20) == (wrong == "everything")
