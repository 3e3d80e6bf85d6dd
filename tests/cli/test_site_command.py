"""``eigenveil site`` and ``ledger budget`` as those meet them who decide at a site."""

import json

import pytest

from eigenveil.app import federation
from eigenveil.app.decisions import Owner
from eigenveil.app.ledger import ledger_of
from eigenveil.cli.commands.approvers import PASSWORD
from eigenveil.federation.approvals import studies as approvals
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.ledger.ledger import Budget, Ledger, SessionKey
from eigenveil.privacy.accountant import Loss
from federation_tools import study_of
from ledger_tools import begin

STUDY = study_of()


@pytest.fixture
def place(party, tmp_path):
    """A site's ledger with a budget, and rows that it was started with."""
    file, rows = tmp_path / "north.ledger", tmp_path / "rows.csv"
    rows.write_text("a,b,c,d\n1,2,3,4\n")
    Owner.of(str(file), "default", [rows]).keep(party)
    Decisions(party, ledger_of(str(file), party)).set_budget(
        Budget("default", "add-remove", 5.0, 1e-6)
    )
    return file


@pytest.fixture
def site(run, party, place, monkeypatch):
    monkeypatch.setenv(PASSWORD, "four words are enough")
    approvals.ask_owner(party, STUDY)

    def call(*words, wanted=0):
        cut = 2 if words[0] == "approver" else 1
        status, out, err = run("site", *words[:cut], "--party", party.folder, *words[cut:])
        assert status == wanted, err or out
        return err if wanted else out

    return call


def desk_of(party, place, **more):
    return Decisions(party, Ledger(place, heads=None), **more)


def test_what_waits_is_shown_with_its_cost_approved_and_revoked(site, party, place):
    found = json.loads(site("approve", "--list", "--json"))
    (waiting,) = found["waiting"]
    assert (waiting["hash"], waiting["cost"]["covered"]) == (STUDY.hash, True)
    out = site("approve", "--list")
    assert "covers it" in out
    assert f"site approve --party {party.folder} {STUDY.hash[:12]}" in out
    out = site("approve", STUDY.hash[:12], "--runs", 3, "--purpose", "care")
    assert "for 3 more runs" in out
    (made,) = desk_of(party, place).history()
    assert (made.decision.data_set, len(made.decision.rows)) == ("default", 64)
    assert json.loads(site("status", "--json"))["approved"][0]["left"] == 3
    assert "revoked" in site("revoke", STUDY.hash[:12], "--reason", "over")
    assert "unknown" not in site("refuse", STUDY.hash[:12], "--reason", "no", "--tell-lead")
    assert "No study waits" in site("approve", "--all")
    out = site("approve", STUDY.hash[:12], "--any-rows", "--data-set", "another")
    assert "NO BUDGET" in out
    last = desk_of(party, place).history()[-1].decision
    assert (last.data_set, last.rows) == ("another", "")


def test_rows_that_changed_since_are_others(site, party, place, tmp_path):
    site("approve", STUDY.hash[:12])
    rows, desk = tmp_path / "rows.csv", desk_of(party, place)
    desk.check_rows(STUDY.hash, [rows])
    rows.write_text("a,b,c,d\n1,2,3,5\n")
    with pytest.raises(Exception, match="rows of 'default' that have changed"):
        desk.check_rows(STUDY.hash, [rows])


def test_who_decides_is_changed_by_those_who_do(site, party, place, run):
    key = site("approver", "add", "ann")
    assert f"approvers of north, federation {party.origin[:16]} (list 2)" in " ".join(key.split())
    ann = json.loads(site("approver", "list", "--json"))["approvers"][-1]
    assert ann["public_key"].startswith("ed25519:")
    site("approver", "add", "bob", "--as", "ann")
    site("approver", "rule", 2, "--as", "bob")
    out = site("approver", "remove", "owner", "--as", "ann")
    assert "once another approver has agreed" in out
    assert "signed by ann (key " in " ".join(out.split())
    assert json.loads(site("approver", "list", "--json"))["waiting"][0]["signed"] == ["ann"]
    assert "agreed" in site("approver", "agree", "--as", "bob")
    assert "being owner" in site("approve", STUDY.hash[:12], wanted=3)
    assert "second approver must" in site("approve", STUDY.hash[:12], "--as", "ann")
    assert "approved by ann and bob" in site("approve", STUDY.hash[:12], "--as", "bob")
    out = site("approver", "renew", "ann", "--as", "ann")
    assert "once another" in out  # her new key counts when bob has agreed
    words = ("--data-set", "default", "--epsilon", 6, "--party", party.folder)
    status, out, err = run("ledger", "budget", place, *words, "--as", "bob")
    assert (status, "A second approver must agree" in out) == (0, True), err
    status, out, _ = run("ledger", "show", place)
    assert "approvers of north, federation" in out
    assert status == 0


def test_heads_of_a_site_are_in_its_folder(site, party, place, run):
    site("approve", STUDY.hash[:12])
    (heads,) = (party.folder / "heads").iterdir()
    out = run.done("ledger", "verify", place, "--party", party.folder)
    assert str(heads) in out.replace("\n", "")
    assert "heads that were noted elsewhere are in the chain" in " ".join(out.split())
    kept = place.read_bytes()
    site("revoke", STUDY.hash[:12])
    place.write_bytes(kept)  # an old copy, in which the study may run
    assert "noted there" in site("approve", STUDY.hash[:12], wanted=3)
    status, out, _ = run("ledger", "verify", place, "--party", party.folder)
    assert (status, "noted elsewhere, is missing" in " ".join(out.split())) == (8, True)


@pytest.mark.parametrize("whose", ["another site's", "nobody's"])
def test_a_ledger_that_is_not_the_sites_is_refused_at_its_start(run, parties, tmp_path, whose):
    file = tmp_path / "some.ledger"
    budget = Budget("default", "add-remove", 5.0, 1e-6)
    if whose == "nobody's":
        Ledger(file).set_budget(budget)
    else:
        Decisions(parties["south"], Ledger(file)).set_budget(budget)
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n1,2\n")
    words = ("--party", parties["north"].folder, "--data", rows, "--ledger", file)
    err = run.fails("site", "start", *words, status=3)
    said = "begun without approvers" if whose == "nobody's" else "is the ledger of south"
    assert said in " ".join(err.split())


def test_a_budget_of_a_site_is_given_once_and_signed(run, party, place, tmp_path):
    words = ("site", "start", "--party", party.folder, "--data", tmp_path / "rows.csv")
    status, _, err = run(*words, "--ledger", place, "--budget-epsilon", 9)
    assert (status, "has a budget" in err) == (3, True)
    status, _, err = run(*words, "--ledger", tmp_path / "new.ledger")
    assert (status, "no budget is set" in err) == (3, True)
    assert not (tmp_path / "new.ledger").exists()
    ledger = Ledger(place, heads=None)
    begin(ledger, SessionKey(STUDY.hash, "s"), Loss(1e-3), data_set="default")
    assert ledger.verify().holds


def test_an_owner_decides_again_after_the_party_got_a_new_key(site, party, place):
    asked, registrar = federation.replace_key(party.folder), party.folder.parent / "registrar"
    listed = federation.admit(registrar, [asked.request], [asked.fingerprint])
    federation.take(party.folder, listed.file)
    said = " ".join(site("approve", STUDY.hash[:12], wanted=3).split())
    former = said.rpartition("--key ")[2].partition(")")[0]
    site("approver", "renew", "owner", "--key", former)  # asks for no password: it has none
    site("approve", STUDY.hash[:12])
