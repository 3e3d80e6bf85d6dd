"""How long a study takes: more of it takes longer."""

import pytest

from eigenveil.errors import DataError
from eigenveil.planning.duration import Network, duration
from federation_tools import study_of


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
