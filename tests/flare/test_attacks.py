"""Attackers on the real network, in the middle of a study: with other parties' kits, or with none.

It would have found a site that answers, charges, deletes or ends anything for somebody else than
the aggregator, a study that somebody without its lead's kit ends, and a way to keep newcomers out.

Ten messages of a kind of each attacker in every run, a hundred in make nightly (soak_tools.py).
"""

import json
import os
import random
import socket
import ssl
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")

from fault_tools import PATIENCE, FaultyFederation, pca_study, until
from nvflare.private.defs import CellMessageHeaderKeys, JobFailureMsgKey, RequestHeader

import eigenveil
from eigenveil.errors import ProtocolError
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol.envelope import Correspondent, Envelope, open_sealed, seal
from eigenveil.federation.protocol.messages import AGGREGATOR, REFUSED, Message, decode, encode
from eigenveil.network.channel import ABORT, BYE, CHANNEL, TOPIC
from eigenveil.network.signed import identity_of, party_called, signed_abort
from federation_tools import SITES
from soak_tools import MANY, count

ATTACKER = Path(__file__).with_name("attacker_process.py")
LIMIT = 1 << 24


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with FaultyFederation(tmp_path_factory.mktemp("attacks"), approve="manual") as found:
        found.start("aggregator", *SITES)
        found.wait_connected(*SITES, timeout=PATIENCE)
        yield found


@pytest.fixture(scope="module")
def halted(federation):
    """A study in its second round, in which west waits for a file; it ends well in the end."""
    study, go = pca_study("attacked"), federation.folder / "go"
    federation.notify("west", step="round 2", until=str(go))
    job = federation.run(study, timeout=400.0, wait=False)
    until(lambda: "mischief in round 2" in federation.said("west"))
    until(lambda: "answered round 2" in federation.said("north"))
    before = {name: facts(federation, name) for name in SITES}
    yield study, job
    for name in SITES:
        assert facts(federation, name) == before[name]
    go.touch()
    with federation.session() as session:
        status = federation.wait(session, job, timeout=PATIENCE)
        assert status.state == "finished", status.error
    assert federation.same_as_in_process(job, study)
    until(federation.all_free)
    federation.check_books()


def facts(federation, name):
    """What an attacker must not have changed at a site."""
    kit = federation.kit(name)
    kept = (kit.key, kit.certificate, kit.root_certificate, *sorted(kit.local.rglob("*.json")))
    return (
        {file.name: file.read_bytes() for file in kept},
        [entry.hash for entry in Ledger(federation.ledger(name)).entries()],
        json.loads(kit.session_file.read_text())["now"],
        federation.said(name).count("is over for this site"),
    )


def questions(federation, name):
    """Whatever was brought to a site so far."""
    return [each.read_bytes() for each in sorted((federation.folder / "seen" / name).iterdir())]


def attack(federation, kit, endpoint, orders):
    """What came of an attacker's orders."""
    place = federation.folder / f"attack-{uuid.uuid4()}"
    orders_file, answers = place.with_suffix(".orders"), place.with_suffix(".answers")
    orders_file.write_text(json.dumps(orders))
    source = str(Path(eigenveil.__file__).parents[1])
    words = [ATTACKER, kit, endpoint, "localhost", federation.port, orders_file, answers]
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env=os.environ | {"PYTHONPATH": source, "HOME": str(federation.home)},
        capture_output=True,
        timeout=60 + 10 * len(orders),
        check=False,
    )
    assert answers.exists(), done.stderr.decode()[-3000:]
    found = json.loads(answers.read_text())
    return found["token"], found["found"]


def genuine(federation, name, step):
    """A question that the aggregator signed for a site."""
    site = identity_of(federation.kit(name))
    for data in reversed(questions(federation, name)):
        found = open_sealed(
            data,
            site,
            sender=Correspondent(AGGREGATOR, "aggregator", "localhost"),
            recipient=name,
            limit=LIMIT,
        )
        if found.step == step:
            return found
    raise AssertionError(f"{name} was never asked {step}")


def round_8(federation, name):
    """The last question, made into one that spends all that it can."""
    asked = genuine(federation, name, "round 2")
    message = decode(asked.payload, sender=AGGREGATOR, limit=LIMIT)
    body = dict(message.body) | {"round_number": 8}
    spends = Message("round 8", message.study, message.session, AGGREGATOR, body, message.arrays)
    return replace(asked, step="round 8", payload=encode(spends))


def with_less_noise(federation, name):
    """The last question once more, with a tenth of the noise."""
    asked = genuine(federation, name, "round 2")
    message = decode(asked.payload, sender=AGGREGATOR, limit=LIMIT)
    queries = [each | {"scale": each["scale"] / 10} for each in message.body["queries"]]
    return replace(
        asked, payload=encode(replace(message, body={**message.body, "queries": queries}))
    )


def order(origin, to, channel, topic, **more):
    return {"origin": origin, "to": to, "channel": channel, "topic": topic} | more


def query(origin, to, data, **more):
    return order(origin, to, CHANNEL, TOPIC, payload=data.hex(), **more)


def forgeries(federation, identity, job, origins, *, replays=2):
    """All that was shown to work once, and more of its kind."""
    found = []
    spend = round_8(federation, "north")
    bye = Envelope(spend.study, spend.session, BYE, AGGREGATOR, "north")
    mine = [seal(each, identity)[0] for each in (spend, bye)]
    replayed = random.sample(questions(federation, "north"), replays)
    for origin in origins:
        for folder in ("startup", "local"):
            found.append(order(origin, "north", "admin", "train.delete_run", body=folder))
            admin = {RequestHeader.JOB_ID: folder}
            found.append(order(origin, "north", "admin", "train.deploy", body="x", admin=admin))
        admin = {RequestHeader.JOB_ID: job}
        found.append(order(origin, "north", "admin", "train.abort", body="", admin=admin))
        found.append(order(origin, "north", "admin", "sys.shell", body="cat startup/client.key"))
        found += [query(origin, "north", each) for each in (*mine, *replayed)]
        found.append(query(origin, "north", mine[0], stream=False))
        found.append(order(origin, f"server.{job}", "server_command", "abort", fields={}))
        failed = {JobFailureMsgKey.JOB_ID: job, JobFailureMsgKey.CODE: 101}
        found.append(order(origin, "server", "task", "report_job_failure", fields=failed))
        headers = {CellMessageHeaderKeys.JOB_ID: job}
        finished = {"execution_error": True}
        listener = ("server", "server_parent_listener", "update_run_status")
        found.append(order(origin, *listener, fields=finished, headers=headers))
        found.append(order(origin, "north", "cellnet.channel", "bye", payload=""))
    return found


def volley(federation, name):
    """By kind, many questions: of bits that nobody signed, one again and again, and in disorder."""
    known = questions(federation, name)
    return {
        "forged": [damaged(random.choice(known)) for _ in range(MANY)],
        "replayed": [random.choice(known)] * MANY,
        "reordered": random.choices(known, k=MANY),
    }


def damaged(data):
    changed = bytearray(data)
    changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def notify(who, messages, accepted):
    """Count them: all of one kind are accepted or none."""
    for kind, each in messages.items():
        count(kind, f"the network, with {who}", len(each), len(each) if accepted else 0)


def is_silence(answer):
    """Nobody has answered, or only to say no."""
    none = answer["content"] in ("None", "", "{}")
    return none and (answer["code"] != "ok" or answer["content"] == "")


def said_nothing(answers):
    assert all(map(is_silence, answers)), [each for each in answers if not is_silence(each)]


@pytest.mark.parametrize("who", ["helper", "lead"])
def test_with_another_partys_kit(federation, halted, who):
    """In the aggregator's name, in that of the job's process, and in its own."""
    _, job = halted
    kit = federation.kit(who)
    endpoint = f"_admin_{uuid.uuid4()}" if who == "lead" else who
    origins, before = ("server", f"server.{job}", endpoint, "south"), facts(federation, "north")
    messages = volley(federation, "north")
    messages["forged"] += [
        seal(genuine(federation, "north", "round 2"), identity_of(kit))[0] for _ in range(MANY)
    ]
    orders = forgeries(federation, identity_of(kit), job, origins)
    orders += [
        query(random.choice(origins), "north", each) for many in messages.values() for each in many
    ]
    token, answers = attack(federation, kit.folder, endpoint, orders)
    assert token["__token__"] == "server"  # FLARE gives it away: it must be worth nothing
    silent = all(map(is_silence, answers)) and facts(federation, "north") == before
    notify(f"the kit of a {who}", messages, accepted=not silent)
    said_nothing(answers)


def test_with_the_aggregators_kit(federation, halted):
    """Whoever has it is the aggregator and can stop a study, but has no more than the study."""
    _, job = halted
    kit = federation.kit("aggregator")
    identity, endpoint = identity_of(kit), f"server.{uuid.uuid4()}"
    spend = round_8(federation, "north")
    stale = {"session": "0" * 24}, {"study": "0" * 64}
    signed = [
        with_less_noise(federation, "north"),
        *(replace(spend, **other) for other in stale),
        *(replace(spend, step=BYE, payload=b"", **other) for other in stale),
        replace(spend, step="round 2"),
    ]
    sealed = [seal(each, identity) for each in signed]
    messages, before = volley(federation, "north"), facts(federation, "north")
    replayed = messages["replayed"] + messages["reordered"]
    orders = [
        *(query(endpoint, "north", data) for data, _ in sealed),
        *(query(endpoint, "north", data) for data in replayed),
        *(query(endpoint, "south", data) for data in replayed),
        *(query(endpoint, "north", data) for data in messages["forged"]),
        *forgeries(federation, identity_of(federation.kit("helper")), job, (endpoint,), replays=0),
    ]
    _, answers = attack(federation, kit.folder, endpoint, orders)
    of_signed, answers = answers[: len(sealed)], answers[len(sealed) :]
    codes = []
    for (_, mark), answer in zip(sealed, of_signed, strict=True):
        reply = open_sealed(
            bytes.fromhex(answer["content"]),
            identity,
            sender=party_called("north"),
            recipient=AGGREGATOR,
            limit=LIMIT,
        )
        assert reply.request_digest == mark
        if reply.payload:
            inside = decode(reply.payload, sender="north", limit=LIMIT)
            assert inside.step == REFUSED
            codes.append(inside.body["code"])
        else:
            codes.append(reply.code)
    assert codes == ["step-differs", *4 * ["not-admitted"], "bad-request"]
    size = len(replayed)
    same, other, answers = answers[:size], answers[size : 2 * size], answers[2 * size :]
    false, answers = answers[:MANY], answers[MANY:]
    notify("the aggregator's kit", messages, accepted=facts(federation, "north") != before)
    assert {answer["content"] for answer in (*other, *false)} == {""}
    for answer in same:  # the stored answer, or a refusal: nothing is computed anew
        assert answer["content"] not in ("None", "")
    for answer in answers:
        assert answer["code"] != "ok" or answer["content"] in ("", "None"), answer


ENDING = ("abort_job", "delete_job", "shutdown server", "restart server", "remove_client north")


def test_a_login_of_the_leads_ends_nothing(federation, halted):
    """Its session without its key: FLARE's commands are gone, other words are not the lead's."""
    study, job = halted
    name, lead = federation.kit("lead").name, identity_of(federation.kit("lead"))
    run = json.loads(federation.kit("north").session_file.read_text())["now"]
    mine = {"study": run["study"], "session": run["session"]}
    assert mine["study"] == study.hash
    words = [b"", b"x" * 100]
    for who in ("helper", "aggregator", "north"):
        words.append(signed_abort(identity_of(federation.kit(who)), name, **mine))
    words.append(signed_abort(lead, name, **(mine | {"session": "0" * 24})))
    words.append(signed_abort(lead, name, **(mine | {"study": "0" * 64})))
    word = Envelope(**mine, step=ABORT, sender="lead", recipient=AGGREGATOR)
    for changes in ({"step": BYE}, {"recipient": "north"}, {"sender": AGGREGATOR}):
        words.append(seal(replace(word, **changes), lead)[0])
    true = signed_abort(lead, name, **mine)
    words += [damaged(true) for _ in range(MANY)]
    with federation.session() as session:
        for command in ENDING:
            text = f"{command} {job}" if command.endswith("job") else command
            said = session._flare.api.server_execute(text)
            assert said["meta"]["status"] == "error", (command, said)
            assert "Unknown command" in said["meta"]["info"]
        for each in words:
            with pytest.raises(ProtocolError) as error:
                session._command(f"eigenveil_abort {job} {each.hex()}")
            assert error.value.code == "not-allowed"
        running = session.status(job).state == "running"
        notify("a login of the lead's, to end it", {"forged": words}, accepted=not running)
        assert running


def test_what_flare_stops_goes_on(federation, halted):
    """Its job runner, for whatever reason, stops the job at the aggregator and tells all sites."""
    _, job = halted
    kit, process = federation.kits["aggregator"], federation.job_process()
    (kit / "stop").write_text(job)
    until((kit / "stopped").exists)
    time.sleep(11.0)  # FLARE waits 10 s before it kills a job that was told to stop
    assert process.is_running()
    with federation.session() as session:
        assert session.status(job).state == "running"


def test_without_a_kit(federation, halted):
    """No party listens in the clear, no site at all, and no certificate is no connection."""
    assert halted
    ours = {name: psutil.Process(process.pid) for name, process in federation.processes.items()}
    ports = []
    for name, process in ours.items():
        for each in (process, *process.children(recursive=True)):
            found = [c.laddr for c in each.net_connections() if c.status == psutil.CONN_LISTEN]
            assert name == "aggregator" or not found, (name, found)
            ports += found
    assert {port.ip for port in ports} == {"127.0.0.1"}
    assert federation.port in {port.port for port in ports}
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for port in ports:
        assert not answers(port.port, lambda plain: plain)
        assert not answers(port.port, context.wrap_socket)
    messages = volley(federation, "north")
    heard = [
        answers(federation.port, context.wrap_socket, each)
        for many in messages.values()
        for each in many
    ]
    notify("no kit", messages, accepted=any(heard))
    assert not any(heard)


def answers(port, wrap, said=b""):
    """Whether anything of HTTP comes back."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
            connection = wrap(plain)
            connection.sendall(b"GET /f3 HTTP/1.1\r\nHost: localhost\r\n\r\n" + said)
            return b"HTTP" in connection.recv(1000)
    except OSError:  # ssl.SSLError is one
        return False


def test_idle_connections_keep_nobody_out(federation, halted):
    """200 connections that say nothing: a newcomer's handshake takes at most a second longer."""
    assert halted
    kit = federation.kit("helper")
    context = ssl.create_default_context(cafile=str(kit.root_certificate))
    context.check_hostname = False
    context.load_cert_chain(kit.certificate, kit.key)
    idle = [socket.create_connection(("127.0.0.1", federation.port)) for _ in range(200)]
    try:
        time.sleep(0.5)
        begun = time.monotonic()
        with (
            socket.create_connection(("127.0.0.1", federation.port), timeout=20) as plain,
            context.wrap_socket(plain) as wrapped,
        ):
            wrapped.sendall(b"GET /f3 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert wrapped.recv(100)
        assert time.monotonic() - begun < 1.0 + 10 * slowness()
    finally:
        for each in idle:
            each.close()


def slowness():
    """How long this machine takes now for something that takes a millisecond."""
    begun = time.monotonic()
    subprocess.run(["true"], check=True)
    return time.monotonic() - begun
