"""Clocks that differ: a sentence says so, and nothing else depends on them."""

import datetime

import pytest
from identity_tools import DAY, NOW, Registrar

from eigenveil.errors import DataError, ProtocolError
from eigenveil.federation.protocol import envelope as envelope_module
from eigenveil.federation.protocol.envelope import (
    Correspondent,
    Envelope,
    clocks_differ,
    open_sealed,
    seal,
)
from eigenveil.federation.protocol.messages import AGGREGATOR
from eigenveil.federation.x509_identity import check_signature
from eigenveil.network.certificates import check_dates

SENT = Envelope("", "", "join", "aggregator", "north", sent=1e9)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, ""),
        (119, ""),
        (-119, ""),
        (600, "10 minutes ahead of that of aggregator"),
        (-5 * 3600, "5.0 hours behind that of aggregator"),
        (400 * 86400, "400 days ahead of"),
    ],
)
def test_a_sentence_says_that_clocks_differ(seconds, words):
    found = clocks_differ(SENT, now=1e9 + seconds)
    assert words in found
    assert bool(found) == bool(words)


def test_the_time_of_an_envelope_is_signed_and_decides_nothing(monkeypatch):
    registrar = Registrar()
    north, aggregator = registrar.identity("north"), registrar.identity(AGGREGATOR)
    monkeypatch.setattr(envelope_module.time, "time", lambda: 1e9)
    data, _ = seal(Envelope("ab" * 32, "cd" * 12, "join", "north", AGGREGATOR), north)
    monkeypatch.undo()
    sender = Correspondent("north", "site", "north")
    found = open_sealed(data, aggregator, sender=sender, recipient=AGGREGATOR, limit=0)
    assert found.sent == 1e9
    assert "days ahead of that of north" in clocks_differ(found)
    changed = data.replace(b'"sent":1000000000.0', b'"sent":1000000001.0')
    assert changed != data
    with pytest.raises(ProtocolError):
        open_sealed(changed, aggregator, sender=sender, recipient=AGGREGATOR, limit=0)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (NOW - 400 * DAY, "the clocks of this machine and the registrar's differ"),
        (NOW + 400 * DAY, "it must be renewed, or this clock is ahead"),
    ],
)
def test_a_certificate_that_is_not_valid_by_this_clock(now, words):
    north = Registrar().identity("north")
    with pytest.raises(ProtocolError, match=words) as error:
        check_signature(b"", b"", north.pem, root=north.root, role="site", name="north", now=now)
    assert f"{now:%Y-%m-%d %H:%M}" in error.value.message


def test_the_owners_own_certificate():
    north = Registrar().identity("north")
    early = NOW - datetime.timedelta(days=30)
    with pytest.raises(DataError, match=f"this machine's clock says {early:%Y-%m-%d}") as error:
        check_dates(north.certificate, "north", now=early)
    assert error.value.code == "certificate-early"
