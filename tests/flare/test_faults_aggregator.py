"""An aggregator that is killed in each phase, or asks for what it must not have: real processes."""

import json
import shutil

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")

from fault_tools import PATIENCE, ROWS, SITES, FaultyFederation, pca_study, until

from eigenveil.errors import ProtocolError
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.network.approvals import waiting_studies
from eigenveil.network.flare import job as job_module
from eigenveil.network.flare import session as session_module
from eigenveil.network.flare.session import StudySession
from eigenveil.network.kit import open_kit, write_config
from eigenveil.network.status import read_progress
from eigenveil.privacy.accountant import Loss
from soak_tools import SOAK, count, times

ROUNDS = 6  # of the study below: norms, centre, both again, second moment, variances
PHASES = (
    "join",
    "keys",
    "shares",
    *(
        f"{step} {round_number}"
        for round_number in range(1, ROUNDS + 1)
        for step in ("round", "survivors", "unmask")
    ),
    "sign",
    "finish",
)
# one round is as another: make nightly kills in all, else the first and the last stand
KILLED = PHASES if SOAK >= 1 else tuple(p for p in PHASES if not p.endswith(tuple("2345")))


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with FaultyFederation(tmp_path_factory.mktemp("aggregator"), approve="manual") as found:
        found.start("aggregator", *SITES)
        found.wait_connected(*SITES)
        yield found


@pytest.fixture(autouse=True)
def in_order(federation):
    yield
    federation.honest()


# -- killed


def test_the_phases_are_those_of_the_study(federation):
    study = pca_study("phases", dropouts=1)
    status = federation.run(study)
    assert status.state == "finished"
    steps = {file.stem.split("-", 2)[2] for file in (federation.folder / "tap").glob("*/*.reply")}
    assert steps == set(PHASES)
    federation.check_books()


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_jobs_process_is_killed_in_each_phase(federation, when):
    """The aggregator goes on with the run; sites stay up, and are charged once."""
    study = pca_study(f"cut-off-{when}", dropouts=1)
    pids = {name: federation.processes[name].pid for name in federation.processes}
    # half of the phases before a question to north, the others after its answer
    for phase in KILLED[when == "after" :: 2] * times(3):
        federation.notify("aggregator", step=phase, site="north", die="job", when=when)
        status = federation.run(study)
        count("killed", "a study's process at the aggregator", 1)
        check_gone_on(federation, study, status, phase)
    assert pids == {name: process.pid for name, process in federation.processes.items()}


def test_the_whole_aggregator_is_killed(federation):
    """The server and its job together; started again, it goes on where it was."""
    study = pca_study("felled", dropouts=1)
    pids = {name: federation.processes[name].pid for name in SITES}
    for phase in ("join", "shares", "round 2", "unmask 3", "finish") * times(3):
        federation.notify("aggregator", step=phase, site="north", die="tree", when="after")
        job = federation.run(study, wait=False)
        assert federation.processes["aggregator"].wait(PATIENCE) == -9
        federation.check_books(all_free=False)
        count("killed", "an aggregator", 1)
        if phase == "join":
            with pytest.raises(ProtocolError) as error:
                federation.state(job)
            assert error.value.code == "no-aggregator"
        federation.honest()
        with federation.session() as session:
            status = federation.wait(session, job, timeout=PATIENCE)
        check_gone_on(federation, study, status, phase)
    assert pids == {name: federation.processes[name].pid for name in SITES}


def check_gone_on(federation, study, status, phase):
    """As if nobody had been killed: the same result, charged once, and nothing left over."""
    assert status.state == "finished", (phase, status, status.error)
    assert status.missing == {}
    assert federation.same_as_in_process(status.job, study)
    progress = read_progress(federation.kit("aggregator").results / status.job)
    assert progress["restarts"] == 1
    assert not list(federation.kit("aggregator").journals.glob("*"))
    until(federation.all_free)
    federation.check_books()
    check_charged_alike(federation, study)


def test_a_study_that_is_lost_frees_what_it_had_reserved(federation):
    """Its journal is lost as well; without a new run sites find out that it is over."""
    study = pca_study("deserted")
    federation.notify("aggregator", step="round 2", site="north", die="tree", when="before")
    job = federation.run(study, wait=False)
    assert federation.processes["aggregator"].wait(PATIENCE) == -9
    (federation.kit("aggregator").journals / job).unlink()
    federation.honest()
    status = federation.state(job)
    assert status.state == "lost"
    assert "Run it again" in status.error.hint
    until(federation.all_free)
    federation.check_books()
    assert federation.run(study).state == "finished"


# -- asking for what it must not have


@pytest.mark.parametrize("dropouts", [0, 1])
def test_what_a_site_does_not_answer(federation, dropouts):
    """After all rounds an aggregator asks again, otherwise, earlier, later, and for more."""
    study = pca_study(f"greedy-{dropouts}", dropouts=dropouts)
    federation.notify("aggregator", step="sign", site="north", attack="late")
    status = federation.run(study)
    assert status.state == "finished", status.error
    found = attack(federation, status.job, "late")
    unmaskings = {
        f"{kind} {what}": code
        for kind in ("survivors", "unmask")
        for what, code in (
            ("again", "answered"),
            ("of another set", "step-differs"),
            ("of an earlier round", "step-differs"),
            ("of a round to come", "bad-unmask"),
        )
    }
    assert found == {
        "same round again": "answered",
        "same round, less noise": "step-differs",
        "earlier round again": "already-settled",
        "earlier round, less noise": "step-differs",
        "one round more": "not-in-plan",
        "one round more, little noise": "not-in-plan",
        "much later round": "other-round",
        "other study": "other-study",
        "other session": "other-session",
        "join in another session": "other-session",
        "keys of others": "step-differs",
        "no message": "malformed",
        "a shell": "unknown-step",
    } | (unmaskings if dropouts else {})
    # asked again, the same bytes
    replies = [each[1] for each in federation.tapped(status.job, "north", f"round {ROUNDS}")]
    again = [each[1] for each in federation.tapped(status.job, "north", "attack same round again")]
    assert replies == again
    if dropouts:
        replies = [each[1] for each in federation.tapped(status.job, "north", f"unmask {ROUNDS}")]
        again = [each[1] for each in federation.tapped(status.job, "north", "attack unmask again")]
        assert replies == again
    assert federation.same_as_in_process(status.job, study)
    until(federation.all_free)
    federation.check_books()
    check_charged_alike(federation, study)


def test_a_round_before_the_keys_and_one_of_another_run(federation):
    study = pca_study("too-early")
    assert federation.run(study).state == "finished"
    federation.notify("aggregator", step="keys", site="north", attack="early")
    status = federation.run(study)
    assert status.state == "finished", status.error
    assert attack(federation, status.job, "early") == {
        "round before keys": "out-of-order",
        "replayed from another run": "other-session",
    }
    until(federation.all_free)
    federation.check_books()
    check_charged_alike(federation, study)


def attack(federation, job, which):
    return json.loads((federation.folder / "tap" / job / f"attack-{which}.json").read_text())


def check_charged_alike(federation, study):
    """North, which was asked for more, was charged what the others were charged."""
    charged = [
        [each.charged() for each in Ledger(federation.ledger(name)).sessions()][-1]
        for name in SITES
    ]
    assert charged == [charged[0]] * len(SITES)
    assert charged[0].mu_squared > 0


def test_a_study_that_is_not_approved(federation):
    """The aggregator brings it without asking whether it may: nothing is answered."""
    study = pca_study("forced")
    federation.give_rows(study, ROWS)
    for name in ("south", "west"):
        federation.approve_at(name, study)
    (federation.kits["aggregator"] / "careless").touch()
    with federation.session() as session:
        job = session.submit(study)
        status = federation.wait(session, job, timeout=PATIENCE)
    assert status.state == "failed", status
    assert "north: its owner has not approved this study" in status.error.message
    assert [each.name for each in waiting_studies(federation.kit("north"))] == ["forced"]
    assert not any(
        account.terms.note == "forced" for account in Ledger(federation.ledger("north")).sessions()
    )
    until(federation.all_free)
    federation.check_books()


def test_another_study_under_an_approved_ones_name(federation, monkeypatch):
    """FLARE is told of a study that all have approved, the job holds another one."""
    approved, other = pca_study("harmless"), pca_study("harmless", epsilon=50.0)
    assert approved.hash != other.hash
    for name in SITES:
        federation.approve_at(name, approved)
    write = job_module.write_job

    def disguised(order, ordered, folder):
        write(order, ordered, folder)
        meta = json.loads((folder / "meta.json").read_text())
        meta["custom_props"][job_module.STUDY_PROPERTY] = approved.model_dump(mode="json")
        (folder / "meta.json").write_text(json.dumps(meta))

    monkeypatch.setattr("eigenveil.network.flare.session.write_job", disguised)
    with federation.session() as session:
        job = session.submit(other)
        status = federation.wait(session, job, timeout=PATIENCE)
    assert status.state == "failed", status
    for name in SITES:
        assert f"{name}: its owner has not approved this study" in status.error.message
    federation.check_books()


def test_more_budget_than_is_left(federation):
    """A study that all approve, for which one site's budget does not suffice."""
    study = pca_study("dear", epsilon=30.0, dropouts=0)
    ledger = Ledger(federation.ledger("south"))
    before = ledger.standings()[0]
    little = Budget("default", "add-remove", before.spent_epsilon + 3.0, 1e-2)
    assert federation.decisions("south").set_budget(little)
    status = federation.run(study)
    assert status.state == "failed"
    assert status.error.code == "too-few-sites"
    assert "site south: its budget does not cover this study (budget)" in status.error.message
    assert "30" not in status.error.message  # and says no number of it
    assert "a session requests epsilon" in federation.said("south")
    assert ledger.standings()[0].spent == before.spent
    until(federation.all_free)
    federation.check_books()
    spared = pca_study("dear-spared", epsilon=30.0, dropouts=1)
    status = federation.run(spared)
    assert status.state == "finished", status.error
    with federation.session() as session:
        assert set(federation.fetch(session, status.job).missing_) == {"south"}
    assert ledger.standings()[0].spent == before.spent
    assert before.reserved == Loss()
    assert federation.decisions("south").set_budget(Budget("default", "add-remove", 500.0, 0.5))
    until(federation.all_free)
    federation.check_books()


def test_a_site_is_no_lead(federation, tmp_path, monkeypatch):
    """With north's certificate, under the lead's name or its own: nobody listens to it."""
    monkeypatch.setattr(session_module, "prepare", write_config)  # other software checks nothing
    for name in (federation.kit("lead").name, "north"):
        with pytest.raises(ProtocolError) as error:
            StudySession(disguised(federation, tmp_path, name))
        assert error.value.code in ("refused", "not-let-in", "no-aggregator")


def disguised(federation, folder, name):
    """A lead's kit with north's key and certificate."""
    place = folder / name
    shutil.copytree(federation.kits["lead"], place)
    for each in ("client.key", "client.crt"):
        shutil.copy(federation.kits["north"] / "startup" / each, place / "startup" / each)
    description = place / "eigenveil-kit.json"
    description.write_text(json.dumps(json.loads(description.read_text()) | {"name": name}))
    return open_kit(place)
