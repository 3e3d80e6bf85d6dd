"""``eigenveil ledger`` as the owner of rows meets it."""

import json
import sqlite3
import sys

import pytest

from eigenveil.errors import BudgetExceeded
from eigenveil.federation.ledger.books import Standing
from eigenveil.federation.ledger.heads import HeadsFile
from eigenveil.federation.ledger.ledger import Budget, Draft, Ledger, SessionKey
from eigenveil.federation.ledger.placing import budget_left_text
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.releases import Noise, ReleaseRecord
from ledger_tools import begin

STUDY = "9f" * 32
RELEASE = ReleaseRecord(
    name="row norms",
    statistic="norm-histogram",
    adjacency="add-remove",
    noise=Noise(kind="gaussian", scale=4.0, size=10, grid=-24),
)


@pytest.fixture
def run(run):
    return lambda *words: run("ledger", *words)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def used(path):
    """A budget, an open session that has charged, and one that ended."""
    ledger = Ledger(path)
    ledger.set_budget(Budget("patients", "add-remove", 3.0, 1e-6))
    for name in ("first", "[bold]second"):
        key = SessionKey(STUDY, name)
        reserve = Loss.total([Loss.of(RELEASE)] * 2)
        begin(ledger, key, reserve, data_set="patients")
        ledger.commit(
            key,
            "round 1",
            request=b"",
            draft=lambda *_: Draft(lambda: (b"reply", None), charges=[RELEASE]),
        )
    return path


def test_budget_makes_a_ledger_keeps_what_is_not_given_and_says_where_it_stands(path, run):
    words = ("budget", path, "--data-set", "[b]")
    status, _, err = run(*words)
    assert (status, "--epsilon" in err) == (2, True)
    status, _, err = run(*words, "--epsilon", -1, "--delta", 0)
    assert (status, "epsilon = -1" in err, path.exists()) == (4, True, False)
    status, out, err = run(*words, "--epsilon", 2)
    assert (status, err) == (0, "")
    assert "[b]: left: epsilon 2 for Gaussian studies at delta 1e-6, or epsilon " in out
    for more, kept in (
        ((), Budget("[b]", "add-remove", 2.0, 1e-6)),
        (("--delta", 1e-5), Budget("[b]", "add-remove", 2.0, 1e-5)),
        (("--epsilon", 3, "--pure-epsilon", 1), Budget("[b]", "add-remove", 3.0, 1e-5, 1.0)),
        (("--epsilon", 0, "--delta", 0, "--adjacency", "replace-one"),
         Budget("[b]", "replace-one", 0.0, 0.0)),
        (("--epsilon", 1, "--delta", 1e-6, "--unit", "patient id"),
         Budget("[b]", "replace-one", 1.0, 1e-6, unit="patient id")),
        (("--epsilon", 2), Budget("[b]", "replace-one", 2.0, 1e-6, unit="patient id")),
    ):  # fmt: skip
        if more:
            assert run(*words, *more, "--quiet") == (0, "", "")
        assert Ledger(path).budget("[b]") == kept
    assert "one patient id" in run("show", path)[1]
    assert run(*words, "--epsilon", 2, "--unit", "")[0] == 3
    # what a refusal advises
    wanted = {"data_set": "[b]", "adjacency": "replace-one", "unit": "patient id"}
    with pytest.raises(BudgetExceeded) as caught:
        begin(Ledger(path), SessionKey(STUDY, "s"), Loss(mu_squared=9.0), **wanted)
    assert "--data-set '[b]' --adjacency replace-one --unit 'patient id'" in caught.value.hint


def test_a_budget_that_was_charged_is_raised_for_a_reason_and_keeps_its_adjacency(used, run):
    words = ("budget", used, "--data-set", "patients", "--delta", 1e-6, "--quiet")
    status, _, err = run(*words, "--epsilon", 6)
    assert (status, "no reason is given" in err) == (2, True)
    assert run(*words, "--epsilon", 6, "--as", "board", "--reason", "year 2\x1b[2J")[0] == 0
    found = json.loads(run("show", used, "--json")[1])["budgets"]
    assert [(each["epsilon"], each["by"]) for each in found] == [(3.0, ""), (6.0, "board")]
    assert "\x1b" not in json.dumps(found)
    out = run("show", used)[1]
    for said in ("year 2", "patients", "replaced", "open", "1 release", "[bold]second", STUDY[:20]):
        assert said in out, said
    status, _, err = run(*words, "--epsilon", 3, "--adjacency", "replace-one")
    assert (status, "one row added or removed" in err) == (4, True)
    assert Ledger(used).verify().holds


def test_show_json(used, run):
    status, out, _ = run("show", used, "--json")
    found = json.loads(out)
    assert status == 0
    (standing,) = found["standings"]
    assert standing["data_set"] == "patients"
    assert 0 < standing["left_epsilon"] < 3
    assert 0 < standing["left_pure_epsilon"] < standing["left_epsilon"]
    left = standing["caps"]["mu_squared"] - 3 * RELEASE.mu() ** 2  # one charged, two reserved
    assert standing["left"]["mu_squared"] == pytest.approx(left, rel=1e-9)
    assert standing["caps"]["pure"] == 0
    assert [session["outcome"] for session in found["sessions"]] == ["replaced", None]
    assert found["sessions"][0]["charges"] == [
        {"entry": 3, "step": "round 1", "releases": ["row norms"]}
    ]
    run("budget", used, "--data-set", "patients", "--epsilon", 3, "--delta", 0, "--quiet")
    _, out, _ = run("show", used, "--json")
    assert "Infinity" not in out  # which JSON has not
    assert json.loads(out)["standings"][0]["spent_epsilon"] is None


def test_many_sessions_are_cut_to_the_last(used, run):
    ledger = Ledger(used)
    for turn in range(25):
        key = SessionKey(f"{turn:064x}", "s")
        begin(ledger, key, Loss(), data_set="patients")
    _, out, _ = run("show", used)
    assert "the last 20 of 27" in out
    assert "replaced" not in out


def test_verify(used, run):
    status, out, _ = run("verify", used)
    assert status == 0
    assert out.startswith("VALID")
    status, out, _ = run("verify", used, "--json")
    last = list(Ledger(used).entries())[-1]
    assert json.loads(out) == {
        "holds": True,
        "entries": 6,
        "last": last.hash,
        "wrong": None,
        "explanation": "Every entry is as it was written. Its budgets are unsigned: it has no "
        "approvers. All 5 heads that were noted elsewhere are in the chain.",
    }
    status, out, _ = run("verify", used, "--against", last.previous.upper())
    assert status == 0
    assert "that of entry 5." in out
    status, out, _ = run("verify", used, "--against", "0" * 64)
    assert (status, "No entry has the hash" in out) == (8, True)
    assert run("verify", used, "--against", "one")[0] == 2
    assert run("verify", used, "--quiet") == (0, "", "")


def test_verify_against_the_heads_in_a_file(used, tmp_path, run):
    heads = tmp_path / "heads"
    status, _, err = run("verify", used, "--heads", heads)
    assert (status, str(heads) in err) == (7, True)
    Ledger(used, heads=HeadsFile(heads)).end_study(STUDY)
    status, out, _ = run("verify", used, "--heads", heads)
    assert (status, "All 2 heads" in out) == (0, True)
    heads.write_text(heads.read_text().replace(": 7", ": 8"))
    status, out, _ = run("verify", used, "--heads", heads)
    assert (status, "Entry 8, noted elsewhere, is missing" in out) == (8, True)
    heads.write_text("seven\n")
    status, _, err = run("verify", used, "--heads", heads)
    assert (status, "holds no head" in err) == (3, True)
    status, _, err = run("verify", used, "--heads", "postgresql://north:geheim@127.0.0.1:1/heads")
    assert (status, "not a URL" in err, "geheim" in err) == (2, True, False)


def test_a_database_without_its_driver(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    status, _, err = run("verify", "postgresql://north@127.0.0.1:1/nowhere")
    assert (status, "pip install 'eigenveil[postgres]'" in err) == (7, True)


def test_verify_names_the_first_wrong_entry(used, run):
    connection = sqlite3.connect(used)
    connection.execute("DROP TRIGGER ledger_entries_no_update")
    connection.execute("UPDATE ledger_entries SET body = replace(body, '4.0', '5.0')")
    connection.commit()
    connection.close()
    status, out, _ = run("verify", used)
    assert status == 8
    assert out.startswith("NOT VALID")
    assert "Entry 3 " in out
    status, out, _ = run("verify", used, "--json")
    assert (status, json.loads(out)["wrong"]) == (8, 3)
    status, _, err = run("show", used)
    assert status == 3
    assert "entry 3" in err


def test_export(used, tmp_path, run):
    status, out, _ = run("export", used)
    entries = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [entry["kind"] for entry in entries] == [
        "budget", "begin", "charge", "end", "begin", "charge"
    ]  # fmt: skip
    assert out.splitlines() == [entry.line() for entry in Ledger(used).entries()]
    assert run("export", used, "--out", tmp_path / "entries.jsonl") == (0, "", "")
    assert (tmp_path / "entries.jsonl").read_text() == out
    status, _, err = run("export", used, "--out", tmp_path / "entries.jsonl")
    assert (status, "exists" in err) == (7, True)
    assert run("export", used, "--out", tmp_path / "entries.jsonl", "--overwrite") == (0, "", "")
    status, _, err = run("export", used, "--out", "/dev/null/entries.jsonl")
    assert (status, "hint:" in err) == (7, True)


def test_end_frees_what_is_reserved(used, run):
    status, out, _ = run("end", used, "--study", STUDY)
    assert status == 0
    assert out.startswith("1 session ended")
    assert [account.is_open for account in Ledger(used).sessions()] == [False, False]
    _, out, _ = run("end", used, "--study", STUDY)
    assert "nothing changed" in out
    assert run("end", used, "--study", "of another", "--quiet") == (0, "", "")


@pytest.mark.parametrize(
    "words", [("show",), ("show", "--json"), ("verify",), ("export",), ("end", "--study", STUDY)]
)
def test_looking_does_not_make_a_ledger(path, tmp_path, run, words):
    status, out, err = run(words[0], path, *words[1:])
    assert (status, out) == (7, "")
    assert str(path) in err
    assert "eigenveil ledger budget" in err
    status, _, err = run(words[0], tmp_path, *words[1:])
    assert status == 7
    assert list(tmp_path.iterdir()) == []
    path.write_text("some notes\n")
    status, _, err = run(words[0], path, *words[1:])
    assert status == 3
    assert "not a ledger" in err


def test_what_only_rounding_left_reads_0(path, run):
    left = Loss(mu_squared=1e-18)
    standing = Standing(Budget("a", "add-remove", 1.0, 1e-6), left, Loss(), Loss())
    assert budget_left_text(standing) == "left: nothing"
