"""How long a study takes: what is counted is what a study does, and more of it takes longer."""

import numpy as np
import pytest

from eigenveil.errors import DataError
from eigenveil.federated.running import InProcess, carry
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.terms import settle
from eigenveil.moments.source import ArrayRows
from eigenveil.planning.duration import Network, duration
from eigenveil.planning.forecast import forecast
from federation_tools import SITES, study_of


@pytest.mark.parametrize("fields", [{}, {"dropouts": 1, "collusion": 0}], ids=["plain", "dropouts"])
def test_exchanges_are_those_of_a_run(tmp_path, fields):
    study, random = (
        study_of(features=30, epsilon=9.0, delta=1e-5, **fields),
        np.random.default_rng(1),
    )
    sites = {}
    for name in SITES:
        ledger = Ledger(tmp_path / name)
        ledger.set_budget(Budget("default", study.adjacency, 90.0, 1e-4))
        rows = ArrayRows(random.normal(size=(300, 30)) * 5, names=None, origin=name)
        sites[name] = Site(name=name, terms=settle(study), rows=rows, ledger=ledger)
    transport, asked = InProcess(sites), []
    inner = transport.call

    def call(method, payloads, timeout):
        asked.append(method)
        return inner(method, payloads, timeout)

    transport.call = call
    carry(Aggregator(settle(study)).run(), transport)
    # hello, bye and the certificate's signatures are between organisations only
    assert duration(study, 900).exchanges == len(asked) + 3, asked
    steps = transport.traffic["north"].sent_by_step
    sent = sum(size for step, size in steps.items() if step.startswith("round"))
    assert abs(sent - forecast(study, 30, None).round_bytes) < 3000  # headers of 7 rounds


def test_more_of_anything_takes_longer():
    def taken(rows=3000, network=None, **fields):
        return duration(study_of(delta=1e-5, **fields), rows, network)

    usual = taken(features=50)
    assert taken(features=50, network=Network(latency=2.0)).exchanging > usual.exchanging
    slow = taken(features=50, network=Network(megabits=1.0))
    assert slow.carrying == pytest.approx(100 * usual.carrying)
    assert taken(3_000_000, features=50).sites > 10 * usual.sites
    assert taken(features=500).sites > usual.sites
    assert taken(None, features=50).sites < usual.sites
    assert "number is not given" in taken(None, features=50).why()
    assert usual.seconds == pytest.approx(
        usual.starting + usual.exchanging + usual.carrying + usual.sites + usual.aggregator
    )


@pytest.mark.parametrize("wrong", [{"latency": -1.0}, {"megabits": 0.0}, {"latency": float("nan")}])
def test_a_network_that_cannot_be(wrong):
    with pytest.raises(DataError):
        Network(**wrong)
