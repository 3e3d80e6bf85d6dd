"""Sites, aggregator and lead on the command line, without a network and without FLARE."""

import json
import signal
from dataclasses import replace

import numpy as np
import pytest

from eigenveil.cli.commands.site_decisions import PASSWORD
from eigenveil.cli.presenters.screen import Screen
from eigenveil.cli.presenters.site_console import BudgetTarget, check_budget
from eigenveil.cli.presenters.study_cost import Owner
from eigenveil.errors import DataError, ProtocolError
from eigenveil.federation.ledger.heads import HeadsFile
from eigenveil.federation.ledger.ledger import Budget, Ledger
from eigenveil.federation.ledger.tables import Head
from eigenveil.federation.study.file import write_toml
from eigenveil.federation.study.study import make_study
from eigenveil.network.kit import FILE, FORMAT
from kit_tools import site_kit

SITES = ("north", "south", "west")


def make_kit(folder, role, name):
    """A kit by hand: whole enough to be opened, of no use to connect with."""
    who = "server" if role == "aggregator" else "client"
    configuration = {"aggregator": "fed_server.json", "lead": "fed_admin.json"}
    (folder / "startup").mkdir(parents=True)
    (folder / "local").mkdir()
    names = (f"{who}.crt", f"{who}.key", "rootCA.pem", configuration.get(role, "fed_client.json"))
    for file in names:
        (folder / "startup" / file).write_text("")
    fields = {"role": role, "name": name, "org": name, "project": "trial"}
    fields |= {"format": FORMAT, "host": "localhost", "port": 1}
    (folder / FILE).write_text(json.dumps(fields))
    return folder


def study_of(name="trial", **fields):
    usual = {"features": 4, "components": 2, "protocol": "cape", "epsilon": 1.0}
    sites = [{"name": each} for each in SITES]
    return make_study(**({"name": name, "sites": sites} | usual | fields))


def put(kit, study, pile="waiting", name=None):
    folder = kit / "local" / pile
    folder.mkdir(exist_ok=True)
    file = folder / f"{name or study.hash}.json"
    file.write_text(json.dumps(study.model_dump(mode="json")))
    return file


@pytest.fixture
def kit(tmp_path):
    return site_kit(tmp_path).folder


def decided(kit):
    return {file.stem for file in (kit / "local" / "decided").iterdir()}


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "north.ledger"
    Ledger(path).set_budget(Budget("default", "add-remove", 1.5, 1e-6))
    return path


@pytest.fixture
def known(kit, ledger):
    """The ledger is known, as after 'site start'."""
    Owner(str(ledger)).keep(kit / "local")
    return ledger


@pytest.fixture
def approve(run, kit):
    return lambda *words: run("site", "approve", "--kit", kit, *words)


def test_list_says_what_a_study_would_do_and_cost(approve, kit, ledger):
    study = study_of(columns=["age", "[b]weight", "bmi"], features=None)
    put(kit, study)
    status, out, err = approve("--list", "--ledger", ledger)
    assert (status, err) == (0, "")
    flat = " ".join(out.split())
    for words in (
        "trial: pca, 2 components of 3 columns (age, [b]weight, bmi)",
        "the sites send second moments under",
        "against the aggregator: (1, 1e-06)-differential privacy or better",
        "It can cost at most epsilon = 1 at delta = 1e-06",
        "The budget, epsilon = 1.5 at delta = 1e-06 (add-remove), covers it; left: epsilon 1.5",
        f"site approve --kit {kit} {study.hash[:12]}",
        study.hash,
    ):
        assert " ".join(words.split()) in flat, words
    assert approve("--ledger", ledger)[1] == out  # without a word: the list
    assert not decided(kit)


def test_list_compares_with_what_is_left(approve, kit, ledger):
    put(kit, study_of(epsilon=2.0))
    put(kit, study_of("public-counts", adjacency="replace-one"))
    out = " ".join(approve("--list", "--ledger", ledger)[1].split())
    assert "does NOT cover it: the site would refuse" in out
    assert out.count("does NOT cover it: the site would refuse") == 2  # it publishes its row count
    assert "--ledger, what is left" in " ".join(approve("--list")[1].split())


def test_list_of_a_study_that_asks_nothing_here(approve, run, tmp_path):
    other = make_kit(tmp_path / "south", "site", "south")
    put(other, study_of(protocol="local"))
    out = run("site", "approve", "--kit", other)[1]
    assert "sends no query to this site" in out


def test_list_for_programs(approve, kit, ledger):
    study = study_of()
    put(kit, study)
    status, out, _ = approve("--list", "--ledger", ledger, "--json")
    found = json.loads(out)
    assert status == 0
    assert found["approved"] == []
    (study_cost,) = found["waiting"]
    assert (study_cost["hash"], study_cost["protocol"]) == (study.hash, "cape")
    assert study_cost["cost"]["covered"] is True
    assert study_cost["cost"]["epsilon"] == pytest.approx(1.0, abs=1e-3)


def test_approve_takes_the_first_letters_and_keeps_the_whole_study(approve, kit, ledger):
    study, other = study_of(), study_of("other")
    put(kit, study)
    put(kit, other)
    status, out, _ = approve(study.hash[:8], "--ledger", ledger)
    assert status == 0
    assert f"approved: study trial, {study.hash}" in out.replace("\n", "")
    kept = json.loads((kit / "local" / "decided" / f"{study.hash}.json").read_text())
    assert make_study(**kept) == study
    assert [file.stem for file in (kit / "local" / "waiting").iterdir()] == [other.hash]
    assert "for ONE run; then it waits again" in out
    status, out, _ = approve(study.hash, "--ledger", ledger, "--runs", 3)
    assert "for 3 more runs" in out
    status, out, _ = approve(study.hash, "--ledger", ledger, "--until", "2999-01-31")
    assert "for any number of runs until 2999-01-31 23:59 UTC" in out
    assert approve(study.hash, "--ledger", ledger, "--until", "tomorrow")[0] == 2
    assert approve(study.hash, "--ledger", ledger, "--until", "2020-01-31")[0] == 3


def test_nothing_is_approved_where_the_cost_cannot_be_told(approve, kit, tmp_path):
    study = study_of()
    put(kit, study)
    status, _, err = approve(study.hash, "--ledger", tmp_path / "no.ledger")
    assert status == 7
    assert "there is no ledger" in err
    assert not decided(kit)


def test_approve_all(approve, kit, known):
    studies = [study_of(), study_of("other")]
    for study in studies:
        put(kit, study)
    status, out, _ = approve("--all", "--json")
    assert status == 0
    assert set(json.loads(out)["approved"]) == {study.hash for study in studies}
    assert "No study waits" in approve("--all")[1]


def test_a_study_file_is_approved_before_anybody_asks(approve, kit, known, tmp_path):
    study = study_of(protocol="auto")
    write_toml(study, tmp_path / "study.toml")
    status, out, _ = approve(tmp_path / "study.toml", "--json")
    assert status == 0
    (approved,) = json.loads(out)["approved"]
    stored = json.loads((kit / "local" / "decided" / f"{approved}.json").read_text())
    assert stored["protocol"] == "cape"  # as 'study run' settles it
    write_toml(study_of(sites=[{"name": "east"}, {"name": "west"}]), tmp_path / "others.toml")
    status, _, err = approve(tmp_path / "others.toml")
    assert status == 3
    assert "north is not a site of study trial" in err
    assert approve(tmp_path / "absent.toml")[0] == 3


def test_a_decision_needs_a_ledger(approve, kit):
    put(kit, study_of())
    status, _, err = approve(study_of().hash)
    assert status == 7
    assert "decisions are recorded in it" in err
    assert not decided(kit)


def test_revoke(approve, run, kit, known):
    study = study_of()
    put(kit, study)
    revoke = lambda *words: run("site", "revoke", "--kit", kit, *words)  # noqa: E731
    assert revoke(study.hash[:10])[0] == 3
    assert approve(study.hash, "--runs", 5)[0] == 0
    assert revoke("0" * 12)[0] == 3
    status, out, _ = revoke(study.hash[:10], "--reason", "project ended")
    assert status == 0
    assert "stays spent" in out
    assert revoke(study.hash[:10])[0] == 3
    assert "revoked by owner: project" in " ".join(approve("--list")[1].split())
    assert run("ledger", "verify", known)[0] == 0
    shown = run("ledger", "show", known)[1]
    assert "project ended" in " ".join(shown.split())
    found = json.loads(run("ledger", "show", known, "--json")[1])["decisions"]
    assert [(each["action"], each["by"], each["holds"]) for each in found] == [
        ("approve", "owner", True),
        ("revoke", "owner", True),
    ]


def test_refuse(approve, run, kit, known):
    study = study_of()
    put(kit, study)
    refuse = lambda *words: run("site", "refuse", "--kit", kit, *words)  # noqa: E731
    assert refuse(study.hash)[0] == 2  # without a reason
    status, out, _ = refuse(study.hash[:12], "--reason", "no legal basis")
    assert status == 0
    assert "The lead is not told the reason" in out
    assert "No study waits" in approve("--list")[1]


def test_two_approvers_by_the_two_person_rule(approve, run, kit, known, monkeypatch):
    study = study_of()
    put(kit, study)
    approver = lambda *words: run("site", "approver", words[0], "--kit", kit, *words[1:])  # noqa: E731
    monkeypatch.setenv(PASSWORD, "four words are enough")
    assert approver("rule", 2)[0] == 3  # there is one
    for name in ("ann", "bob"):
        status, out, _ = approver("add", name)
        assert status == 0
        assert (kit / "approvers" / f"{name}.key").exists()
    assert approver("add", "ann")[0] == 7  # her key is there
    assert approver("add", "carl", "--role", "boss")[0] == 2
    assert approver("add", "carl", "--role", "viewer")[0] == 0
    assert "takes two of them" in approver("rule", 2)[1]
    status, out, _ = approve(study.hash, "--as", "ann", "--purpose", "audit")
    assert status == 0
    assert "ann agreed, and a second approver must as well" in out
    assert approve(study.hash, "--as", "carl")[0] == 7  # he has no key
    assert json.loads(approve(study.hash, "--as", "bob", "--json")[1])["approved"] == [study.hash]
    assert "by ann and bob" in " ".join(run("site", "status", "--kit", kit)[1].split())
    monkeypatch.setenv(PASSWORD, "another password")
    status, _, err = run("site", "revoke", "--kit", kit, study.hash, "--as", "bob")
    assert status == 3
    assert "the password is wrong" in err
    found = json.loads(approver("list", "--json")[1])
    assert [each["name"] for each in found["approvers"]] == ["owner", "ann", "bob", "carl"]
    assert approver("remove", "bob")[0] == 0
    assert run("ledger", "verify", known)[0] == 0


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("abc",), 3, "'abc' is too short"),
        (("0123456789",), 3, "No study with a hash that begins with 0123456789 waits"),
        (("0123456789", "--all"), 2, "exclude each other"),
        (("--list", "0123456789"), 2, "exclude each other"),
    ],
)
def test_approve_refuses(approve, kit, words, status, said):
    put(kit, study_of())
    found, _, err = approve(*words)
    assert found == status
    assert said in err
    assert "hint:" in err


def test_a_hash_that_two_studies_begin_with(approve, kit, monkeypatch):
    from eigenveil.cli.presenters import study_cost

    monkeypatch.setattr(study_cost, "_SHORTEST", 0)
    put(kit, study_of())
    put(kit, study_of("other"))
    status, _, err = approve("")
    assert status == 3
    assert "2 studies" in err
    assert "Give more of the hash" in err


def test_a_study_that_would_redraw_the_screen_is_not_shown(approve, kit):
    study = study_of(columns=["a\x1b[2K", "b", "c"], features=None)
    put(kit, study)
    status, out, _ = approve("--list")
    assert status == 0
    assert "\x1b" not in out
    assert "1 more cannot be shown on a terminal" in out
    assert approve(study.hash[:12])[0] == 3
    assert json.loads(approve("--all", "--json")[1]) == {"approved": [], "second": []}


def test_a_file_that_holds_another_study_than_it_says(approve, kit):
    put(kit, study_of(), name="0" * 64)
    status, _, err = approve("--list")
    assert status == 3
    assert "holds another study than its name states" in err


def test_status_of_a_site(run, kit):
    study = study_of()
    put(kit, study)
    status, out, _ = run("site", "status", "--kit", kit)
    assert status == 0
    for words in ("site north does not run", "localhost:1", "waits for approval", "--list"):
        assert words in out, words
    found = json.loads(run("site", "status", "--kit", kit, "--json")[1])
    assert found["running"] is False
    assert found["waiting"] == [{"hash": study.hash, "name": "trial"}]


def test_commands_want_their_own_kit(run, tmp_path, kit):
    study = tmp_path / "study.toml"
    write_toml(study_of(), study)
    cases = (
        ("aggregator", "start", "--kit", kit),
        ("study", "run", study, "--kit", kit, "--out", tmp_path / "result"),
        ("study", "status", "--kit", kit),
        ("study", "abort", "0123", "--kit", kit),
    )
    for words in cases:
        status, _, err = run(*words)
        assert status == 3, words
        assert "is the kit of a site, not of a" in err, words
    assert not (tmp_path / "result").exists()
    lead = make_kit(tmp_path / "lead", "lead", "lead@eigenveil.local")
    assert "not of a site" in run("site", "start", "--kit", lead)[2]
    assert "not of a site" in run("site", "approve", "--kit", lead)[2]
    status, _, err = run("site", "start", "--kit", tmp_path / "nowhere")
    assert status == 7
    assert "is not there" in err


@pytest.fixture
def start(run, kit, tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((5, 4)))
    return lambda *words: run("site", "start", "--kit", kit, *words)


def test_site_start_wants_rows_a_ledger_and_a_budget(start, tmp_path, ledger):
    rows = ("--data", tmp_path / "rows.npy")
    cases = (
        ((), 2, "--data is missing"),
        (rows, 2, "--ledger is missing"),
        (("--approve", "some"), 2, "not manual or all"),
        (("--data", tmp_path / "no.npy", "--ledger", ledger), 3, "no.npy"),
        ((*rows, "--ledger", tmp_path / "new"), 3, "has no budget for data set 'default'"),
        ((*rows, "--ledger", ledger, "--data-set", "x"), 3, "has no budget for data set 'x'"),
        ((*rows, "--ledger", ledger, "--budget-delta", 0.1), 2, "--budget-epsilon is missing"),
        ((*rows, "--ledger", ledger, "--budget-epsilon", 9), 3, "has a budget for"),
        ((*rows, "--ledger", tmp_path / "new", "--budget-epsilon", -1), 4, "epsilon = -1"),
        ((*rows, "--ledger", ledger, "--exclude", "a"), 3, "no column names"),
    )
    for words, wanted, said in cases:
        status, _, err = start(*words)
        assert said in err, (words, err)
        assert "hint:" in err
        assert status == wanted, (words, err)
    new = f"sqlite:///{tmp_path}/new"
    assert "has no budget" in start(*rows, "--ledger", new)[2]
    assert not (tmp_path / "new").exists()


def test_a_site_s_budget_has_its_unit(tmp_path):
    target = BudgetTarget("default", "add-remove", 2.0, None, unit="patient")
    check_budget(str(tmp_path / "l"), target, Screen(quiet=True))
    assert Ledger(tmp_path / "l").budget("default").unit == "patient"
    check_budget(str(tmp_path / "l"), target, Screen(quiet=True))
    with pytest.raises(DataError, match="one patient") as caught:
        check_budget(str(tmp_path / "l"), replace(target, unit="row"), Screen(quiet=True))
    assert caught.value.code == "budget-exists"


def test_site_start_tries_the_second_place_of_heads(start, tmp_path, ledger):
    """Before any study can ask, and before a ledger is made."""
    rows = ("--data", tmp_path / "rows.npy", "--budget-epsilon", 2, "--ledger")
    gone = "postgresql://north:geheim@127.0.0.1:1/heads?ledger=north"
    stamps, root = ("--timestamps", "http://127.0.0.1:1/tsr"), ("--authority", tmp_path / "none")
    cases = (
        (("--heads", tmp_path / "none" / "heads"), 7, "No such file"),
        (("--heads", gone), 7, "127.0.0.1"),
        (("--heads", tmp_path / "heads", *stamps), 2, "go together"),
        (("--heads", tmp_path / "heads", *root), 2, "go together"),
        (("--heads", tmp_path / "heads", *stamps, *root), 7, "No such file"),
        (stamps, 2, "--heads is missing"),
    )
    for words, wanted, said in cases:
        for place in (tmp_path / "new", ledger):
            before = ledger.read_bytes()
            status, _, err = start(*rows, place, *words)
            assert (status, said in err, "geheim" in err) == (wanted, True, False), (words, err)
            assert "hint:" in err
            assert ledger.read_bytes() == before
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "heads").exists()


def test_site_start_refuses_a_ledger_that_was_cut(start, tmp_path, ledger):
    """It has fewer entries than were noted."""
    heads = tmp_path / "heads"
    HeadsFile(heads).note(Head(1000, "ab" * 32))
    words = ("--data", tmp_path / "rows.npy", "--ledger", ledger, "--heads", heads)
    status, _, err = start(*words)
    assert (status, "entry 1000 was noted there" in err) == (3, True)


def test_a_noise_helper_has_no_rows(run, tmp_path):
    helper = make_kit(tmp_path / "helper", "helper", "helper")
    status, _, err = run("site", "start", "--kit", helper, "--ledger", tmp_path / "l")
    assert status == 2
    assert "noise helper's" in err


def test_study_run_refuses_before_it_asks_anybody(run, tmp_path):
    study, lead = tmp_path / "study.toml", make_kit(tmp_path / "lead", "lead", "a@b.example")
    write_toml(study_of(), study)
    words = ("study", "run", study, "--kit", lead, "--out", tmp_path / "result")
    (tmp_path / "result").mkdir()
    status, _, err = run(*words)
    assert status == 7
    assert "exists" in err
    (tmp_path / "result").rmdir()
    assert run(*words, "--timeout", 0)[0] == 2
    assert run(*words, "--wait-for-sites", -1)[0] == 2
    assert list(tmp_path.glob("*result*")) == []


def test_commands_say_that_flare_is_not_installed(run, start, tmp_path, ledger, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    lead = make_kit(tmp_path / "lead", "lead", "a@b.example")
    aggregator = make_kit(tmp_path / "aggregator", "aggregator", "localhost")
    answers = (
        run("study", "status", "--kit", lead),
        run("aggregator", "start", "--kit", aggregator),
        start("--data", tmp_path / "rows.npy", "--ledger", ledger),
    )
    for status, _, err in answers:
        assert status == 7
        assert "NVIDIA FLARE is not installed" in err
        assert "pip install" in err


class Session:
    """A lead's session that says what a test wants."""

    def __init__(self, *statuses):
        self.statuses, self.aborted, self.fetched = list(statuses), [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, study, *, timeout):
        self.study, self.timeout = study, timeout
        return "a-job"

    def status(self, job):
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]

    def abort(self, job):
        self.aborted.append(job)

    def fetch(self, job, folder):
        raise AssertionError("there is no result")


def status_of(state, **fields):
    from eigenveil.network.flare.session import StudyStatus

    return StudyStatus("a-job", "trial", "", state, "RUNNING", **fields)


@pytest.fixture
def query(run, tmp_path, monkeypatch):
    """'study run' of a study with these statuses: status, output, errors, session."""
    from eigenveil.cli.commands import study_run

    monkeypatch.setattr(study_run, "_EVERY", 0.01)
    monkeypatch.setattr(study_run, "_BELIEVED", 0.05)
    write_toml(study_of(protocol="auto"), tmp_path / "study.toml")

    def call(*statuses, words=(), abort=None, kind=Session):
        session = kind(*statuses)
        if abort is not None:
            session.abort = abort
        monkeypatch.setattr(study_run, "open_session", lambda kit: session)
        line = ("study", "run", tmp_path / "study.toml", "--out", tmp_path / "result")
        found = run(*line, *words)
        assert not list(tmp_path.glob("*result*"))
        return (*found, session)

    return call


def test_study_run_settles_the_protocol_and_tells_what_changes(query):
    error = DataError("site north: no.", hint="Mend it.", code="data")
    waiting = status_of("waiting", missing={"south": "not connected"})
    running = status_of("running", step="round 2", answered=3)
    failed = status_of("failed", error=error)
    status, out, err, session = query(waiting, waiting, running, failed, words=("--timeout", 7))
    assert status == 3
    assert err.splitlines() == [
        "connecting to the aggregator, which takes some seconds",
        "submitted: the aggregator brings it to each site, whose owner decides about it",
        "waiting; south: not connected",
        "round 2: 3 answered",
        "error: site north: no.",
        "hint: Mend it.",
    ]
    assert "a-job" in out
    assert (session.study.protocol, session.timeout) == ("cape", 7)


def test_study_run_waits_only_so_long_for_sites(query):
    waiting = status_of("waiting", missing={"south": "not connected"})
    status, _, err, session = query(waiting, words=("--wait-for-sites", 0.05))
    assert status == 6
    assert "south: not connected" in err
    assert "--wait-for-sites" in err
    assert session.aborted == ["a-job"]


def test_a_lost_study_is_only_believed_when_it_stays_lost(query):
    error = ProtocolError("It failed.", code="killed")
    status, _, err, _ = query(status_of("lost"), status_of("failed", error=error))
    assert (status, "It failed." in err) == (6, True)
    status, _, err, _ = query(status_of("lost"))
    assert status == 6
    assert "the aggregator stopped in the middle of it" in err


def test_ctrl_c_aborts_and_again_leaves_it_running(query):
    class Impatient(Session):
        def status(self, job):
            signal.raise_signal(signal.SIGINT)
            return status_of("running")

    def wait_on(job):
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    status, _, err, session = query(status_of("running"), kind=Impatient)
    assert status == 130
    assert session.aborted == ["a-job"]
    assert "aborted: what sites have answered stays spent" in err
    status, _, err, _ = query(status_of("running"), abort=wait_on, kind=Impatient)
    assert status == 130
    assert "left running; it is followed by: eigenveil study status a-job" in err
    assert signal.getsignal(signal.SIGINT) is before


def test_study_run_gives_up_an_aggregator_that_says_nothing(query, monkeypatch):
    from eigenveil.cli.commands import study_run

    monkeypatch.setattr(study_run, "_SILENT", 0.05)

    class Silent(Session):
        def status(self, job):
            raise ProtocolError("It cannot be reached.", code="no-aggregator")

    status, _, err, session = query(status_of("running"), kind=Silent)
    assert status == 6
    assert "has not answered for 0.05 s: It cannot be reached." in err
    assert "eigenveil study status a-job" in err
    assert "eigenveil study fetch a-job --out FOLDER" in err
    assert session.aborted == []  # nobody said that it should


def test_study_run_gives_up_a_study_that_stands_still(query, monkeypatch):
    """Its process at the aggregator is stopped, and the aggregator answers all the same."""
    from eigenveil.cli.commands import study_run

    monkeypatch.setattr(study_run, "_STALLED", 0.05)
    waiting, running = status_of("waiting"), status_of("running", step="round 2", answered=1)
    words = ("--timeout", 0.01)
    status, _, err, session = query(*[waiting] * 20, running, words=words)
    assert status == 6
    assert "has made no progress for 0.08 s" in err
    assert "eigenveil study fetch a-job --out FOLDER" in err
    assert session.aborted == []


def test_study_run_waits_for_a_study_that_goes_on(query, monkeypatch):
    from eigenveil.cli.commands import study_run

    monkeypatch.setattr(study_run, "_STALLED", 0.5)
    steps = [status_of("running", step="round 2", answered=n) for n in range(100)]
    failed = status_of("failed", error=ProtocolError("It failed.", code="killed"))
    status, _, err, _ = query(*steps, failed, words=("--timeout", 0.01))
    assert (status, "It failed." in err) == (6, True)


def test_study_run_goes_on_after_a_moment_of_silence(query):
    class Hesitant(Session):
        calls = 0

        def status(self, job):
            self.calls += 1
            if self.calls < 3:
                raise ProtocolError("It cannot be reached.", code="no-aggregator")
            return status_of("failed", error=ProtocolError("It failed.", code="killed"))

    status, _, err, _ = query(status_of("running"), kind=Hesitant)
    assert (status, "It failed." in err) == (6, True)


def test_a_result_that_cannot_be_fetched_is_fetched_later(query):
    class Stalled(Session):
        def fetch(self, job, folder):
            raise ProtocolError("It cannot be reached.", code="no-aggregator")

    status, _, err, _ = query(status_of("finished"), kind=Stalled)
    assert status == 6
    assert "has finished; its result could not be fetched: It cannot be reached." in err
    assert "eigenveil study fetch a-job --out FOLDER" in err


def test_the_aggregator_listens_where_it_is_told(run, tmp_path, monkeypatch):
    from eigenveil.network.flare import entry

    found = []
    monkeypatch.setattr("eigenveil.network.flare.authority.need_flare", lambda: None)
    monkeypatch.setattr(
        entry, "run_aggregator", lambda kit, **how: found.append(how["listen"]) or 0
    )
    kit = make_kit(tmp_path / "aggregator", "aggregator", "aggregator.example.org")
    _, out, err = run("aggregator", "start", "--kit", kit)
    assert "listens on 127.0.0.1:" in out + err
    assert "only from this machine: change it with --listen" in out + err
    _, out, err = run("aggregator", "start", "--kit", kit, "--listen", "0.0.0.0")
    assert "listens on 0.0.0.0:" in out + err
    assert "only from this machine" not in out + err
    assert found == ["127.0.0.1", "0.0.0.0"]
    status, _, err = run("aggregator", "start", "--kit", kit, "--listen", "everywhere")
    assert (status, "is not an IPv4 address" in err) == (2, True)
    status, _, err = run("aggregator", "start", "--kit", kit, "--listen", "192.0.2.1")
    assert (status, "cannot be listened on" in err) == (7, True)
