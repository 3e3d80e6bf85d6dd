"""Sites, an aggregator and a lead as real processes: who may ask what, and what goes wrong."""

import json
import shutil
import time

import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")

from eigenveil.errors import DataError, OutputError, ProtocolError
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.network import certificates
from eigenveil.network.approvals import waiting_studies
from eigenveil.network.flare import authority
from eigenveil.network.flare import job as job_module
from eigenveil.network.flare.session import StudySession
from eigenveil.network.kit import open_kit
from federation_tools import SITES, Federation, in_process, pca_study

RNG = np.random.default_rng(3)
ROWS = {name: RNG.standard_normal((2000, 20)) * np.linspace(3.0, 0.3, 20) for name in SITES}


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with Federation(tmp_path_factory.mktemp("processes"), approve="manual") as found:
        found.start_all()
        yield found


@pytest.fixture
def session(federation):
    with federation.session() as found:
        yield found
    for name in SITES:
        federation.behave(name)


def prepared(federation, name, *, approved=SITES, **fields):
    study = pca_study(name, **fields)
    federation.give_rows(study, ROWS)
    for site in approved:
        federation.approve_at(site, study)
    return study


def until(check, seconds=40.0):
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


def mischief(federation, name, **fields):
    """Tells a site what to do wrong; whether it has done it."""
    before = federation.said(name).count("mischief in ")
    federation.notify(name, **fields)
    return lambda: federation.said(name).count("mischief in ") > before


def nothing_reserved(federation):
    return all(
        standing.reserved.mu_squared == 0 and standing.reserved.pure == 0
        for name in SITES
        for standing in Ledger(federation.ledger(name)).standings()
    )


def same_as_in_process(federation, session, job, study):
    found, wanted = federation.fetch(session, job), in_process(study, ROWS, federation)
    return np.array_equal(found.components_, wanted.components_)


def test_an_unapproved_study_waits_for_the_owner(federation, session):
    study = prepared(federation, "asking", approved=("north", "south"))
    job = session.submit(study)
    west = federation.kit("west")
    until(lambda: [each.hash for each in waiting_studies(west)] == [study.hash])
    status = session.status(job)
    assert status.state == "waiting"
    assert not [line for line in federation.said("west").splitlines() if "answered" in line]
    assert "waits for approval" in federation.said("west")
    until(lambda: "not approved" in str(session.status(job).missing))
    federation.approve_at("west", study, runs=1)
    assert waiting_studies(west) == []
    assert federation.wait(session, job).state == "finished"
    assert same_as_in_process(federation, session, job, study)
    assert session.studies()[job].state == "finished"
    assert nothing_reserved(federation)
    # that was the one run which west's owner approved: another one waits again
    again = session.submit(study)
    until(lambda: "not approved" in str(session.status(again).missing))
    assert [each.hash for each in waiting_studies(west)] == [study.hash]
    federation.decisions("west").refuse(study.hash, reason="once was enough", tell_lead=True)
    until(lambda: "owner: once was enough" in str(session.status(again).missing))
    session.abort(again)
    assert Ledger(federation.ledger("west")).verify().holds


def test_a_lead_asks_while_another_study_runs(federation, session):
    """A site that computes answers at once; so does one that is stopped, by name."""
    runs, asked = prepared(federation, "busy"), pca_study("next")
    caught = mischief(federation, "south", step="round 1", seconds=8.0)
    federation.approve_at("north", asked, runs=2)
    job = session.submit(runs, timeout=60.0)
    until(caught)
    begun = time.monotonic()
    found = {each.name: each for each in session.ask((*SITES, "east"), asked)}
    assert time.monotonic() - begun < 6.0
    answers = {name: found[name].answer for name in SITES}
    assert {name: each.state for name, each in answers.items()} == {
        "north": "approved", "south": "new", "west": "new",
    }  # fmt: skip
    assert answers["north"].runs == 2
    assert found["east"].problem == "not-a-member"
    assert [each.hash for each in waiting_studies(federation.kit("south"))][:1] == [asked.hash]
    assert federation.wait(session, job).state == "finished"  # the question disturbed nothing
    for name in ("south", "west"):  # the owner approved before the start: it begins at once
        federation.approve_at(name, asked, runs=1)
    federation.give_rows(asked, ROWS)
    assert federation.wait(session, session.submit(asked)).state == "finished"
    (north,) = [each for each in session.ask(SITES, asked) if each.name == "north"]
    assert (north.answer.state, north.answer.runs) == ("approved", 1)


def test_a_study_without_its_protocol_is_not_submitted(session):
    with pytest.raises(DataError) as error:
        session.submit(pca_study("open", protocol="auto"))
    assert error.value.code == "unsettled"


def test_what_is_not_there_is_said(federation, session):
    with pytest.raises(ProtocolError) as error:
        session.status("00000000-0000-0000-0000-000000000000")
    assert error.value.code == "no-such-job"
    with pytest.raises(OutputError) as busy, federation_lock(federation):
        pass
    assert busy.value.code == "kit-in-use"


def federation_lock(federation):
    from eigenveil.network.kit import lock

    return lock(federation.kit("north"))


def test_another_site_asks_in_the_aggregators_place(federation, session):
    """South is asked by north during a study: nothing is answered, the study goes on."""
    study = prepared(federation, "forged")
    caught = mischief(federation, "west", step="round 2", seconds=4.0)
    job = session.submit(study, timeout=30.0)
    until(caught)
    federation.notify("north", forge="south", job=job)
    forged = federation.kits["north"] / "forged.json"
    *asked, shell = json.loads(until(lambda: forged.exists() and forged.read_text()))
    assert asked == ["None"] * 3  # the aggregator does not carry it
    assert shell == "None"
    assert federation.wait(session, job).state == "finished"
    assert same_as_in_process(federation, session, job, study)


def test_a_late_answer_is_dropped_and_the_site_is_asked_again(federation, session):
    study = prepared(federation, "late")
    federation.notify("south", step="round 1", seconds=5.0)
    job = session.submit(study, timeout=3.0)
    assert federation.wait(session, job).state == "finished"
    assert same_as_in_process(federation, session, job, study)
    assert federation.summary(job)["missing"] == {}


def test_a_site_that_stays_silent_is_done_without(federation, session):
    study = prepared(federation, "silent", dropouts=1)
    federation.notify("south", step="round 1", seconds=12.0)
    job = session.submit(study, timeout=3.0)
    status = federation.wait(session, job)
    assert status.state == "finished", status.error
    assert set(federation.fetch(session, job).missing_) == {"south"}
    until(lambda: nothing_reserved(federation))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_site_that_is_started_again_goes_on(federation, session, when):
    study = prepared(federation, f"killed-{when}")
    federation.notify("south", step="round 2", die=when)
    job = session.submit(study, timeout=40.0)
    process = federation.processes["south"]
    times = federation.said("south").count(" is connected to ")
    process.wait(40)
    assert federation.kit("south").session_file.exists()
    federation.start("south")
    federation.wait_connected("south", times=times + 1)
    status = federation.wait(session, job)
    assert status.state == "finished", status.error
    assert federation.fetch(session, job).missing_ == {}
    assert not federation.kit("south").session_file.exists()
    assert nothing_reserved(federation)


def test_abort(federation, session):
    study = prepared(federation, "aborted")
    caught = mischief(federation, "west", step="round 2", seconds=6.0)
    job = session.submit(study, timeout=60.0)
    until(caught)
    begun = time.monotonic()
    session.abort(job)
    status = federation.wait(session, job)
    assert status.state == "aborted"
    assert time.monotonic() - begun < 10.0
    until(lambda: nothing_reserved(federation))
    assert not federation.kit("west").session_file.exists()


def test_code_in_a_job_is_refused(federation, session, monkeypatch):
    study = prepared(federation, "byoc")
    write = job_module.write_job

    def with_code(order, ordered, folder):
        write(order, ordered, folder)
        custom = folder / "app" / "custom"
        custom.mkdir()
        (custom / "evil.py").write_text("raise SystemExit")

    monkeypatch.setattr("eigenveil.network.flare.session.write_job", with_code)
    job = session.submit(study)
    status = federation.wait(session, job)
    assert status.state == "failed"
    assert "BYOC" in status.error.message
    assert not any("byoc" in line for line in federation.said("north").splitlines())


def test_other_classes_are_refused(federation, session, monkeypatch):
    study = prepared(federation, "classes")
    place = federation.folder / "evil"
    evil = {"path": "subprocess.Popen", "args": {"args": ["touch", str(place)]}}
    other = job_module.client_config() | {"components": [{"id": "x", **evil}]}
    monkeypatch.setattr(job_module, "client_config", lambda: other)
    job = session.submit(study)
    assert federation.wait(session, job).state == "failed"
    assert not place.exists()
    assert "requests something that is not eigenveil's" in federation.said("north")


def test_who_is_no_lead_submits_nothing(federation, session, tmp_path, monkeypatch):
    """A member's certificate of the same root: the aggregator does not take its job."""
    study = prepared(federation, "member")
    job = session.submit(study)
    kit = member_kit(federation, tmp_path / "member", monkeypatch)
    with StudySession(kit) as member:
        for forbidden in (
            lambda: member.submit(study),
            lambda: member.status(job),
            lambda: member.abort(job),
            lambda: member.fetch(job, tmp_path),
            member.studies,
        ):
            with pytest.raises(ProtocolError) as error:
                forbidden()
            assert error.value.code == "not-allowed"
    assert federation.wait(session, job).state == "finished"


def member_kit(federation, folder, monkeypatch):
    """The lead's kit with a certificate of FLARE's role "member"."""
    shutil.copytree(federation.kits["lead"], folder)
    kit, registrar = open_kit(folder), federation.kit("registrar")
    monkeypatch.setitem(authority._FLARE_ROLE, "lead", "member")
    certificate = authority.sign(
        certificates.read_certificate(registrar.certificate),
        certificates.read_key(registrar.key),
        role="lead",
        name=kit.name,
        org=kit.org,
        public_key=certificates.read_key(kit.key).public_key(),
    )
    kit.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
    return kit


def test_withdrawn_approvals_hold_from_the_next_message_on(federation, session):
    study = prepared(federation, "withdrawn")
    caught = mischief(federation, "west", step="round 2", seconds=3.0)
    job = session.submit(study, timeout=10.0)
    until(caught)
    federation.decisions("north").revoke(study.hash, reason="a change of mind")
    status = federation.wait(session, job)
    assert status.state == "failed"
    assert "north: its owner has not approved this study" in status.error.message


def test_the_aggregators_process_dies_and_the_study_goes_on(federation, session):
    study = prepared(federation, "beheaded")
    caught = mischief(federation, "west", step="round 2", seconds=6.0)
    job = session.submit(study, timeout=60.0)
    until(caught)
    federation.job_process().kill()
    federation.behave("west")
    assert federation.wait(session, job).state == "finished"
    assert same_as_in_process(federation, session, job, study)
    assert nothing_reserved(federation)


def test_the_aggregator_is_killed_and_started_again(federation):
    study = prepared(federation, "restarted")
    caught = mischief(federation, "west", step="round 2", seconds=6.0)
    with federation.session() as session:
        job = session.submit(study, timeout=60.0)
        until(caught)
        federation.kill("aggregator")
    federation.behave("west")
    with pytest.raises(ProtocolError) as error:
        StudySession(federation.kit("lead"), timeout=2.0)
    assert error.value.code == "no-aggregator"
    federation.start("aggregator")

    def session_again():
        try:
            return federation.session()
        except ProtocolError:
            return None

    with until(session_again) as session:
        again = session.submit(study)  # waits for the one that goes on
        for each in (job, again):
            assert federation.wait(session, each).state == "finished"
            assert same_as_in_process(federation, session, each, study)
    assert nothing_reserved(federation)
