"""Probes and metrics: what a party's owner can watch, and that rows are in none of it."""

import json
import math
import re
import urllib.error
import urllib.request

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")

from study_tools import Federation, ended, until

from eigenveil.cli.service import Service, StudyEvents
from eigenveil.errors import OutputError
from eigenveil.moments.source import ArrayRows
from eigenveil.network.health import (
    LONGEST_SILENCE,
    STEPS,
    Activity,
    WatchedParty,
    exposition,
    parse_address,
    serve,
)
from eigenveil.network.results import Progress
from federation_tools import SITES, make_federation
from refusal_tools import refuses


def after_a_study(folder, rows):
    with Federation(folder) as federation, federation.lead() as lead:
        for name in SITES:
            federation.sites[name]._open_rows = lambda study: ArrayRows(
                rows, names=None, origin="rows"
            )
        run = lead.submit(federation.study)
        assert ended(lead, run).state == "finished"
        site = federation.sites["north"]
        until(lambda: site.activity.messages["over"])
        site.activity.last = 1.0
        watched = WatchedParty(site.folder, site.activity, federation.ledgers["north"])
        _, text = exposition(watched)
    return [line for line in text.decode().splitlines() if "days_left" not in line]


def test_metrics_are_the_same_whatever_the_rows_are(tmp_path):
    rng = np.random.default_rng(0)
    few, many = rng.random((300, 4)), 2 * rng.random((900, 4)) - 1
    found = [after_a_study(tmp_path / str(i), rows) for i, rows in enumerate((few, many))]
    assert found[0] == found[1]
    text = "\n".join(found[0])
    assert set(re.findall(r"# TYPE eigenveil_(\w+)", text)) == {
        *("up", "ready", "messages_total", "runs_total", "last_question_timestamp_seconds"),
        *("budget_epsilon", "budget_spent_epsilon", "budget_left_epsilon"),
    }
    assert set(re.findall(r"(\w+)=", text)) == {"step", "data_set", "unit"}
    assert 'eigenveil_messages_total{step="round"}' in text
    assert 'eigenveil_budget_epsilon{data_set="default",unit="row"} 20.0' in text


def get(server, path):
    host, port = server.server_address[:2]
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=10) as answer:
        return answer.status, answer.read().decode()


def test_probes(tmp_path):
    party, now = make_federation(tmp_path)["north"], [0.0]
    watched = WatchedParty(party, Activity(clock=lambda: now[0]))
    server = serve("127.0.0.1:0", watched)
    try:
        assert get(server, "/healthz") == (200, "ok\n")
        for reached, ready in ((-math.inf, False), (0.0, True), (-LONGEST_SILENCE - 1, False)):
            watched.activity.reached_at = reached
            if ready:
                assert get(server, "/readyz") == (200, "ready\n")
                continue
            with refuses(503, kind=urllib.error.HTTPError):
                get(server, "/readyz")
        status, text = get(server, "/metrics")
        assert status == 200
        assert "eigenveil_members_days_left 89." in text
        assert "eigenveil_ready 0.0" in text
        assert "eigenveil_studies" not in text
        for path in ("/", "/../etc/passwd", "/metrics/x"):
            with refuses(404, kind=urllib.error.HTTPError):
                get(server, path)
        with refuses("cannot-listen", kind=OutputError):
            serve(f"127.0.0.1:{server.server_address[1]}", watched)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("text", ["9102", "localhost:9102", "127.0.0.1:", "1.2.3.4:70000", ":80"])
def test_what_is_no_address(text):
    with refuses("bad-metrics-address"):
        parse_address(text)


def test_labels_are_of_a_fixed_list():
    activity = Activity()
    for step in ("round 3", "unmask 1", "x" * 100, "", "hello"):
        activity.note(step)
    assert set(activity.messages) <= {*STEPS, "other"}
    assert activity.messages["other"] == 3


def test_events_as_json(capsys):
    service = Service(None, log_json=True, quiet=False)
    say = service.speaker("north", lambda: {"study": "ab", "session": "cd"})
    say("A \x1b[31mline\u2028 of\ntext")
    out = capsys.readouterr().out
    assert out.isascii()
    assert out.count("\n") == 1
    found = json.loads(out)
    assert (found["party"], found["study"], found["session"]) == ("north", "ab", "cd")
    assert found["event"].startswith("A ")


def test_an_aggregators_studies_are_told_of_once(tmp_path):
    party, told = make_federation(tmp_path)["aggregator"], []
    events = StudyEvents(party, lambda ids, text: told.append((ids["run"], text)))
    progress = Progress(party.results / "cd" / "status.json", "visits", "ab", "cd")
    for state in ("waiting", "running", "running", "finished"):
        progress.state = state
        progress.write()
        events.look()
    assert ["finished" in text for _, text in told] == [False, False, True]
    assert {session for session, _ in told} == {"cd"}
