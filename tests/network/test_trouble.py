"""A share that fills up, and a clock that is wrong: one line each, and the study goes on."""

import errno
import os
import threading
import time
from types import SimpleNamespace

import pytest
from contract import opener
from study_tools import Federation, ended

from eigenveil.network import endpoint


@pytest.fixture
def federation(tmp_path):
    (tmp_path / "share").mkdir()
    with Federation(tmp_path, opens=opener(f"folder:{tmp_path / 'share'}")) as found:
        yield found


def test_a_share_that_is_full_is_said_and_the_study_goes_on_when_there_is_room(
    federation, monkeypatch
):
    real, full = os.rename, threading.Event()

    def rename(old, new, **more):
        # what the sites write: the lead and the aggregator find room
        if full.is_set() and threading.current_thread().name.startswith("eigenveil_"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(old, new, **more)

    monkeypatch.setattr(os, "rename", rename)
    with federation.lead() as lead:
        first = lead.submit(federation.study)
        assert ended(lead, first).state == "finished"
        full.set()
        second = lead.submit(federation.study)
        time.sleep(1.0)
        assert not lead.status(second).is_over
        full.clear()
        assert (found := ended(lead, second)).state == "finished", found.error
    for ledger in federation.ledgers.values():
        spent = [(len(each.charges), each.spent()) for each in ledger.sessions()]
        assert spent == [spent[0]] * 2


def test_a_clock_that_is_an_hour_behind_is_said_once(federation, monkeypatch):
    behind = SimpleNamespace(time=lambda: time.time() - 3600, monotonic=time.monotonic)
    monkeypatch.setattr(endpoint, "time", behind)
    with federation.lead() as lead:
        assert ended(lead, lead.submit(federation.study)).state == "finished"
    for site in federation.sites.values():
        told = [each for each in site.said if "clocks differ" in each]
        assert len(told) == 1, site.said
        assert "60 minutes ahead of this machine's" in told[0]
