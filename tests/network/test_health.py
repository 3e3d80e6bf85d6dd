"""Probes and metrics: what a party's owner can watch, and that rows are in none of it."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")

from eigenveil.cli.service import StudyEvents, speaker
from eigenveil.errors import DataError, OutputError
from eigenveil.federated.running import InProcess, carry
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.federation.protocol.aggregator import Aggregator
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import make_study
from eigenveil.moments.source import ArrayRows
from eigenveil.network.certificates import new_key, pem
from eigenveil.network.health import LONGEST_SILENCE, Connection, parse_address, serve
from eigenveil.network.kit import Kit
from eigenveil.network.metrics import METRICS, SOURCES, STEPS, Activity, Party, exposition
from eigenveil.network.status import Progress


@dataclass
class Files:
    """A kit's certificate, and nothing else."""

    folder: Path
    kit: Kit = field(init=False)

    def __post_init__(self):
        self.kit = Kit(self.folder, "site", "north", "north", "localhost", 8102, "p")
        self.kit.startup.mkdir(parents=True)
        key, now = new_key(2048), datetime.now(UTC)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "north")])
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=30, minutes=1))
            .sign(key, SHA256())
        )
        for path in (self.kit.certificate, self.kit.root_certificate):
            path.write_bytes(pem(made))


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path / "kit")


def test_no_metric_is_computed_from_rows():
    """Each states its source, none of which has rows; and no label can carry a value of a row."""
    assert "rows" not in SOURCES
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert metric.source in SOURCES
        assert set(metric.labels) <= {"step", "data_set", "unit", "certificate", "state"}
        assert metric.help.endswith(".")


def after_a_study(folder, kit, rows):
    study = make_study(
        name="watched", row_bound=2.0,
        sites=[{"name": "north"}, {"name": "south"}], features=4, components=2,
        epsilon=1.0, delta=1e-6, protocol="cape", mechanism="gaussian",
    )  # fmt: skip
    folder.mkdir()
    activity, ledgers, sites = Activity(), {}, {}
    for name in study.names:
        ledgers[name] = Ledger(folder / name)
        ledgers[name].set_budget(Budget("default", study.adjacency, 3.0, 1e-5))
        source = ArrayRows(rows, names=None, origin=name)
        sites[name] = Site(name=name, terms=settle(study), rows=source, ledger=ledgers[name])
    transport = InProcess(sites)
    inner = transport.call

    def call(method, payloads, timeout):
        activity.note(method)
        return inner(method, payloads, timeout)

    transport.call = call
    carry(Aggregator(settle(study), session="ab" * 12).run(), transport)
    activity.last = 1.0
    _, text = exposition(Party(kit, activity, ledgers["north"]))
    return [line for line in text.decode().splitlines() if "days_left" not in line]


def test_metrics_are_the_same_whatever_the_rows_are(tmp_path, files):
    rng = np.random.default_rng(0)
    few, many = rng.random((300, 4)), 2 * rng.random((900, 4)) - 1
    found = [
        after_a_study(tmp_path / str(i), files.kit, rows) for i, rows in enumerate((few, many))
    ]
    assert found[0] == found[1]
    text = "\n".join(found[0])
    assert 'eigenveil_messages_total{step="round"}' in text
    assert 'eigenveil_budget_epsilon{data_set="default",unit="row"} 3.0' in text


def get(server, path):
    host, port = server.server_address[:2]
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=10) as answer:
        return answer.status, answer.read().decode()


def test_probes(files):
    ready = []
    party = Party(files.kit, Activity(is_ready=lambda: bool(ready)))
    server = serve("127.0.0.1:0", party)
    try:
        assert get(server, "/healthz") == (200, "ok\n")
        with pytest.raises(urllib.error.HTTPError) as error:
            get(server, "/readyz")
        assert error.value.code == 503
        ready.append(True)
        assert get(server, "/readyz") == (200, "ready\n")
        status, text = get(server, "/metrics")
        assert status == 200
        assert 'eigenveil_certificate_days_left{certificate="tls"} 30.0' in text
        assert "eigenveil_ready 1.0" in text
        assert "eigenveil_studies" not in text
        for path in ("/", "/../etc/passwd", "/metrics/x"):
            with pytest.raises(urllib.error.HTTPError) as error:
                get(server, path)
            assert error.value.code == 404
        with pytest.raises(OutputError) as error:
            serve(f"127.0.0.1:{server.server_address[1]}", party)
        assert error.value.code == "port-in-use"
    finally:
        server.shutdown()
        server.server_close()


def test_a_connection_is_up_while_heartbeats_are_answered():
    now = [0.0]
    connection = Connection(lambda: now[0])
    assert not connection.is_up()
    connection.answered()
    now[0] = LONGEST_SILENCE
    assert connection.is_up()
    now[0] += 0.1
    assert not connection.is_up()  # silence, on a connection that nobody closed
    connection.answered()
    connection.lost()
    assert not connection.is_up()


@pytest.mark.parametrize("text", ["9102", "localhost:9102", "127.0.0.1:", "1.2.3.4:70000", ":80"])
def test_what_is_no_address(text):
    with pytest.raises(DataError) as error:
        parse_address(text)
    assert error.value.code == "bad-address"


def test_labels_are_of_a_fixed_list():
    activity = Activity()
    for step in ("round 3", "unmask 1", "x" * 100, "", "hello"):
        activity.note(step)
    assert set(activity.messages) <= {*STEPS, "other"}
    assert activity.messages["other"] == 2


def test_events_as_json(capsys, tmp_path):
    say = speaker(
        quiet=False, log_json=True, who="north", run=lambda: {"study": "ab", "session": "cd"}
    )
    say("A \x1b[31mline\u2028 of\ntext")
    out = capsys.readouterr().out
    assert out.isascii()
    assert out.count("\n") == 1
    found = json.loads(out)
    assert (found["party"], found["study"], found["session"]) == ("north", "ab", "cd")
    assert found["event"].startswith("A ")


def test_an_aggregators_studies_are_told_of_once(tmp_path):
    kit = Kit(tmp_path, "aggregator", "localhost", "o", "localhost", 8102, "p")
    (kit.results / "job").mkdir(parents=True)
    told = []
    events = StudyEvents(kit, lambda ids, text: told.append((ids["session"], text)))
    progress = Progress(kit.results / "job" / "status.json", "visits", "ab", "cd")
    for state in ("waiting", "running", "running", "finished"):
        progress.state = state
        progress.write()
        events.look()
    assert [text for _, text in told] == [
        f"Study 'visits' is {state}, job job." for state in ("waiting", "running", "finished")
    ]
    assert {session for session, _ in told} == {"cd"}
