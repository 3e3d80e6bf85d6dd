"""The process beside the console: a site's studies, decisions and ledger, for real."""

import json

import pytest

from eigenveil.app.decisions import Owner
from eigenveil.console.desk.lead import LeadDesk
from eigenveil.console.desk.ledger import LedgerPages
from eigenveil.console.desk.site import SiteDesk
from eigenveil.console.desk.table import TableDesk
from eigenveil.console.desk.ways import kinds
from eigenveil.console.settings import Rows
from eigenveil.errors import DataError, DecisionRefused, EigenveilError, OutputError, ProtocolError
from eigenveil.federation.approvals import studies as approvals
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.approvals.keys import make_key
from eigenveil.federation.approvals.roster import key_file
from eigenveil.federation.ledger.ledger import Budget, Ledger, SessionKey
from eigenveil.federation.study.file import read_study
from eigenveil.models.task import TASKS
from eigenveil.privacy.accountant import Loss
from federation_tools import make_federation, study_of
from ledger_tools import begin
from refusal_tools import refuses

STUDY = study_of()
PASSWORD = "four words without sense"


@pytest.fixture
def place(tmp_path):
    party = make_federation(tmp_path)["north"]
    ledger = Ledger(tmp_path / "north.ledger", durable=False)
    Decisions(party, ledger).set_budget(Budget("default", "add-remove", 5.0, 1e-6))
    approvals.ask_owner(party, STUDY)
    return party, ledger, tmp_path / "north.ledger"


@pytest.fixture
def desk(place):
    return SiteDesk(Rows(party=str(place[0].folder), ledger=str(place[2])))


@pytest.fixture
def key(place):
    """The password of the key of ann, who is in the list."""
    made = make_key(key_file(place[0], "ann"), PASSWORD)
    Decisions(place[0], place[1]).appoint("ann", "approver", made.public_key.text)
    return PASSWORD


def decide(desk, action, study, by, password, *, seen=0, **terms):
    return desk.decide(action, study, by, password, seen, terms)


def test_a_waiting_study_in_words_with_its_cost(desk):
    (found,) = desk.studies()["waiting"]
    assert found["cost"]["covered"] is True
    assert found["cost"]["epsilon"] <= 1.01
    assert found["cost"]["after"].startswith("left: epsilon 4.")
    assert not found["views"][0]["protected"]  # the worst first
    assert "only their sum is visible" in found["sent"]
    assert any(not each["protected"] for each in found["views"])
    json.dumps(found, allow_nan=False)
    health = desk.health()
    assert health["days"] >= 0
    assert health["account"]["epsilon"] == 5.0
    assert not health["running"]


def test_a_console_may_start_before_its_site(place):
    party, ledger, path = place
    desk = SiteDesk(Rows(party=str(party.folder)))
    assert (desk.health()["ledger"], desk.budget("", "ann")["account"]) == ("", None)
    Owner.of(str(path), "default").keep(party)
    assert desk.health()["ledger"] == ledger.name
    assert desk.budget("", "ann")["account"]["epsilon"] == 5.0
    Owner.of(str(path), "by ward").keep(party)  # as it is started now
    assert desk.study(STUDY.hash, "ann")["data_set"] == "by ward"
    assert desk.study(STUDY.hash, "ann")["cost"]["budget"] is None


def test_a_decision_is_in_the_ledger_signed_by_the_approver(desk, key, place):
    found = decide(desk, "approve", STUDY.hash, "ann", key, purpose="care", runs=3, seen=0)
    assert (found["state"], found["left"], found["by"]) == ("approved", 3, ["ann"])
    assert place[1].verify().holds
    shown = desk.study(STUDY.hash, "ann")
    assert (shown["signs"], desk.study(STUDY.hash, "bob")["signs"]) == ("password", "elsewhere")
    (shown,) = shown["history"]
    assert (shown["by"][:9], shown["purpose"], shown["problem"]) == ("ann (key ", "care", "")
    kinds = [each["kind"] for each in desk.ledger(1)["entries"]]
    assert kinds[0] == "decision"
    assert "for care" in desk.ledger(1, "decision")["entries"][0]["text"]
    found = decide(desk, "revoke", STUDY.hash, "ann", key, reason="over", seen=1)
    assert found["state"] == "revoked"


def test_a_replayed_or_late_or_unsigned_decision_changes_nothing(desk, key, place):
    make_key(key_file(place[0], "vic"), key)
    with refuses("wrong-password", kind=DecisionRefused):
        decide(desk, "approve", STUDY.hash, "ann", "not the password")
    for name in ("vic", "owner"):  # a key that is in no list; the party's own, of which is no file
        with pytest.raises((DecisionRefused, OutputError)):
            decide(desk, "approve", STUDY.hash, name, key)
    with pytest.raises(DataError):
        decide(desk, "approve", STUDY.hash, "../approvers/ann", key)
    with refuses("decided-meanwhile", kind=ProtocolError):
        decide(desk, "approve", STUDY.hash, "ann", key, seen=1)
    changed = study_of(epsilon=2.0)
    with refuses("study-changed", kind=ProtocolError):
        decide(desk, "approve", changed.hash, "ann", key)
    assert desk.study(STUDY.hash, "ann")["standing"]["waits"]
    assert not [each for each in place[1].entries() if each.kind == "decision"]


def test_a_study_whose_file_was_changed_is_not_shown_as_it_was(desk, place):
    assert desk.studies()["waiting"]
    file = place[0].waiting / f"{STUDY.hash}.json"
    file.write_text(study_of(epsilon=2.0).model_dump_json())
    with pytest.raises(EigenveilError, match="another study"):
        desk.studies()


def test_the_ledger_is_added_up_by_what_is_new(place):
    _, ledger, path = place
    pages = LedgerPages(lambda: str(path))
    first = pages.books()
    for number in range(60):
        key = SessionKey(STUDY.hash, f"run-{number}")
        begin(ledger, key, Loss(1e-6), data_set="default")
        ledger.end(key, "done")
    found = pages.page(1, "", {})
    assert pages.books() is first  # added to
    assert (found["count"], found["pages"], len(found["entries"])) == (123, 3, 50)
    assert found["entries"][0]["number"] == 123
    assert pages.page(99, "", {})["page"] == 3
    assert pages.books().standing("default") == Ledger(path).standings()[0]
    assert pages.page(1, "budget", {})["count"] == 1


@pytest.fixture
def lead(tmp_path):
    return LeadDesk(Rows(party=str(make_federation(tmp_path)["lead"].folder)))


ONE = {"one_row_per_person": "yes", "site_epsilon": "south=0.5"}
OWN = {"name": "s", "columns": list("abcd"), "sites": ["north", "south", "west"]}


@pytest.mark.parametrize("task", TASKS)
def test_a_lead_drafts_a_study_of_every_task_and_sees_what_it_would_give(lead, task, tmp_path):
    out = tmp_path / "s.toml"
    given = {each["name"]: each["default"] for each in lead.form(task)["options"]}
    found = lead.draft(str(out), task, given | ONE | {"epsilon": "2", "collusion": "1"}, OWN)
    shown = lead.study(str(out))
    assert shown["hash"] == found
    study = read_study(out)
    assert (study.task, study.epsilon, study.collusion) == (task, 2.0, 1)
    assert [site.epsilon for site in study.sites] == [None, 0.5, None]
    (tmp_path / "broken.toml").write_text("task = 1")
    broken, listed = lead.drafts(str(tmp_path))
    assert broken["problem"]
    assert (listed["file"], listed["sites"]) == ("s", ["north", "south", "west"])
    known = {each["name"] for each in shown["expected"]}
    typed = {"topic_words": "1", "spectrum": "spike:1:0.9"}
    given = {name: text for name, text in typed.items() if name in known}
    found = lead.point(str(out), given, 400, 10.0)
    assert found["problem"] or 0 <= found["quality"] <= 1
    assert found["problem"] or (
        found["bytes"] > 0 and found["whose"] == "adding or removing one row"
    )
    json.dumps(found, allow_nan=False)


def test_a_draft_takes_the_columns_that_sites_share(lead, tmp_path):
    out = tmp_path / "s.toml"
    given = {each["name"]: each["default"] for each in lead.form("pca")["options"]}
    found = lead.draft(str(out), "pca", given | ONE | {"epsilon": "2"}, OWN)
    shown = lead.study(str(out))
    assert shown["bytes"] > 0
    told = {"format": "eigenveil-schema-1", "columns": [
        {"name": "ward", "role": "unit"}, {"name": "age", "kind": "number", "range": [0, 120]},
        {"name": "bmi", "kind": "number"}, {"name": "sex", "kind": "boolean"},
    ]}  # fmt: skip
    again = lead.redraft(str(out), str(tmp_path / "t.toml"), "t", told)
    made = read_study(tmp_path / "t.toml")
    assert (made.name, made.unit, made.columns) == ("t", "ward", ("age", "bmi", "sex"))
    assert made.table_schema.as_dict() == told
    assert again == made.hash != found


@pytest.mark.parametrize(
    ("task", "given", "own", "why"),
    [
        ("pca", {"epsilon": "much"}, {}, "must be a float"),
        ("pca", {"collusion": "7"}, {}, "collusion"),
        ("gaussian-mixture", {"protocol": "full"}, {}, "cape"),
        ("topic-model", {"n_components": "9"}, {}, "components"),
        ("pca", {"site_epsilon": "north=x"}, {}, "a dict of sites and their smaller epsilon"),
        ("pca", {"weights": "north=1"}, {}, "'south' has no weight"),
        ("pca", {}, {"columns": []}, "columns"),
        ("pca", {}, {"sites": ["north", "sout", "west"]}, "no site 'sout'"),
        ("pca", {"one_row_per_person": "no"}, {}, "whose each row is"),
        ("pca", {"unit": "person"}, {}, "says whose each row is"),
    ],
)
def test_a_study_that_cannot_be_leaves_no_file(lead, task, given, own, why, tmp_path):
    with pytest.raises(EigenveilError, match=why):
        lead.draft(str(tmp_path / "s.toml"), task, ONE | given, OWN | own)
    assert not (tmp_path / "s.toml").exists()


KINDS = [kind.name for kind in kinds()]


@pytest.mark.parametrize("kind", KINDS)
def test_an_analyst_sees_what_a_fit_of_every_kind_would_give(kind, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,b,c\n1,2,3\n4,5,6\n")
    desk = TableDesk(Rows(data=(str(table),), ledger=str(tmp_path / "t.ledger")))
    assert desk.table()["columns"] == ["a", "b", "c"]
    assert desk.ledger(1)["count"] == 0
    found = desk.point(kind, {"n_components": "2", "topic_words": "1"}, 400, 10.0)
    assert found["problem"] == ""
    assert found["quality"] is not None or "not simulated" in found["note"]
    assert found["bytes"] > 0
    assert found["memory"] > 0
    assert (found["delta"], found["whose"]) == (1e-6, "adding or removing one row")
    json.dumps(found, allow_nan=False)
    with pytest.raises(EigenveilError, match=r"must be|not understood"):
        desk.point(kind, dict.fromkeys(("spectrum", "distance", "topic_words"), "x"), 400, 1.0)
    if kind == "pca":
        assert found["quality"] > 0.9
        assert "between 1" in desk.point(kind, {"n_components": "9"}, 400, 1.0)["problem"]
