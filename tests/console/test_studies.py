"""Studies as the console's runs start them, over a federation in this process."""

import json
import signal
import sys
from pathlib import Path

import pytest

from eigenveil.app import study_draft
from eigenveil.console import running
from eigenveil.console.desk.lead import LeadDesk
from eigenveil.console.desk.results import Results
from eigenveil.console.settings import Rows
from eigenveil.federation.study.file import write_toml

sys.path.append(str(Path(__file__).parents[1] / "network"))
from study_tools import Federation, until


class Told(list):
    """The events of a run."""

    def tell(self, event, **fields):
        self.append({"event": event, **fields})


def test_the_sites_are_asked_and_a_study_is_run_and_ended(tmp_path, monkeypatch):
    with Federation(tmp_path / "federation") as federation:
        for module in (running, study_draft):
            monkeypatch.setattr(module, "open_lead", lambda _: federation.lead())
        write_toml(federation.study, tmp_path / "s.toml")
        rows, asked = Rows(party="lead"), {"file": str(tmp_path / "s.toml")}
        events = Told()
        running.ask(rows, asked, tmp_path / "none", events)
        assert (events[0]["agreed"], len(events[0]["sites"])) == (True, 3)
        json.dumps(events[0], allow_nan=False)
        running.study(rows, asked, tmp_path / "result", events)
        moved = [each for each in events if each["event"] == "moved"]
        assert max(each["answered"] for each in moved if each["step"]) == 3
        shown = Results().result(str(tmp_path / "result"))
        assert (shown["word"], "study.toml" in shown["downloads"]) == ("VALID", True)
        assert shown["figures"]
        folder = tmp_path / "federation"  # where the lead's own is
        desk = LeadDesk(Rows(party=str(next(folder.rglob("lead/party.json")).parent)))
        assert (
            "all in the federation of the registrar"
            in desk.result(str(tmp_path / "result"))["signed"]
        )
        desk._registrar = "a" * 64
        assert desk.result(str(tmp_path / "result"))["word"] == "NOT VALID"
        federation.sites["west"].decision = "waiting"

        def interrupt(event, **fields):
            if fields.get("missing"):
                assert "west" in fields["missing"]
                signal.raise_signal(signal.SIGINT)

        events.tell = interrupt
        with pytest.raises(KeyboardInterrupt):
            running.study(rows, asked, tmp_path / "other", events)
        assert not (tmp_path / "other").exists()
        with federation.lead() as lead:
            until(lambda: "aborted" in {each.state for each in lead.studies().values()})
