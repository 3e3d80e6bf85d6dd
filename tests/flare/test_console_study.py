"""A study from its draft to its result through the consoles of a lead and of a site's owner."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "console"))
pytest.importorskip("starlette")
from console_tools import OPEN, PASSWORD, Visitor, hidden
from federation_tools import SITES, Federation

from eigenveil.console.settings import Rows
from eigenveil.console.signing import new_key
from eigenveil.console.workers import DeskProcess
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.network.decisions import Decisions

SECONDS = 300


def console(place, section, rows):
    found = Visitor(place, section, desk=DeskProcess(section, rows))
    object.__setattr__(found.settings, "rows", rows)
    return found


def until(what, seconds=SECONDS):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.5)
    return found


@pytest.fixture(autouse=True)
def _ended():
    yield
    while OPEN:
        OPEN.pop().__exit__(None, None, None)


def test_a_study_from_its_draft_to_the_picture_of_its_result(tmp_path):
    with Federation(tmp_path, approve="manual") as federation:
        columns = [f"c{number}" for number in range(6)]
        lead = console(tmp_path / "l", "lead", Rows(kit=str(federation.kits["lead"])))
        lead.add("lea", "lead", key=False)
        lead.sign_in("lea")
        form = {name: hidden(lead.client.get("/drafts/new").text, name) for name in
                ("csrf", "number")}  # fmt: skip
        form |= {"name": "heart", "components": "2", "epsilon": "5", "delta": "1e-5",
                 "sites": "\n".join(SITES), "columns": ",".join(columns)}  # fmt: skip
        assert lead.client.post("/drafts/new", data=form).status_code == 303
        page = lead.client.get("/drafts/heart")
        assert "Start the study" in page.text
        study = page.text.split("Hash: <code>")[1][:64]
        rng = np.random.default_rng(0)
        for name in SITES:
            place = federation.rows / name
            values = rng.standard_normal((400, 6)) * [9, 6, 1, 1, 1, 1]
            np.save(place / "heart.npy", values)
        federation.start_all()
        form = {name: hidden(page.text, name) for name in ("csrf", "number")}
        begun = lead.client.post("/drafts/heart/start", data=form)
        assert begun.status_code == 303, begun.text
        run = begun.headers["location"]

        # a steward at north, by the pages; the other sites' owners by the command's function
        rows = Rows(kit=str(federation.kits["north"]), ledger=str(federation.ledger("north")))
        north = console(tmp_path / "n", "site", rows)
        private, public = new_key(PASSWORD)
        north.console.accounts.add("ann", "owner", PASSWORD, key=private)
        Decisions(federation.kit("north"), Ledger(federation.ledger("north"))).appoint(
            "ann", "owner", public
        )
        north.sign_in("ann")
        until(lambda: study in north.client.get("/studies").text)
        page = north.client.get(f"/studies/{study}")
        assert "the budget" in page.text.lower()
        form = {name: hidden(page.text, name) for name in ("csrf", "number", "hash", "seen")}
        form |= {"action": "approve", "often": "once", "purpose": "care"}
        answer = north.client.post(f"/studies/{study}/decide", data=form)
        assert answer.headers["location"].endswith("done=approved"), answer.text
        for name in ("south", "west"):
            decisions = Decisions(federation.kit(name), Ledger(federation.ledger(name)))
            until(lambda each=decisions: (each.kit.waiting / f"{study}.json").exists())
            decisions.approve(study)

        page = until(lambda: _over(lead.client.get(run)))
        assert "finished" in page, page
        page = until(lambda: _drawn(lead.client.get(run)))
        assert page.count('class="picture"') == 2
        assert "aggregator" in page.split("Certificate</h2>")[1]
        ledger = north.client.get("/ledger?only=charge").text
        assert "heart" in ledger
        found = Decisions(federation.kit("north"), Ledger(federation.ledger("north")))
        assert found.standing(study).state == "used"
        assert Ledger(federation.ledger("north")).verify().holds


def _over(page):
    return page.text if "state running" not in page.text else None


def _drawn(page):
    return page.text if 'class="picture"' in page.text else None
