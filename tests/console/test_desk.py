"""The process beside the console: a site's studies, decisions and ledger, for real."""

import json

import pytest
from console_tools import PASSWORD
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eigenveil.console.desk.lead import LeadDesk
from eigenveil.console.desk.ledger import LedgerPages
from eigenveil.console.desk.serve import Answering, answer
from eigenveil.console.desk.site import SiteDesk
from eigenveil.console.desk.table import TableDesk
from eigenveil.console.settings import Rows
from eigenveil.console.workers import made_error
from eigenveil.errors import DecisionRefused, EigenveilError, ProtocolError
from eigenveil.federation.ledger.decisions import public_pem
from eigenveil.federation.ledger.ledger import Budget, Ledger, SessionKey
from eigenveil.network import approvals
from eigenveil.network.decisions import Decisions
from eigenveil.network.kit import FILE
from eigenveil.privacy.accountant import Loss
from kit_tools import site_kit, study_of

STUDY = study_of()


@pytest.fixture
def place(tmp_path):
    kit = site_kit(tmp_path)
    ledger = Ledger(tmp_path / "north.ledger", durable=False)
    ledger.set_budget(Budget("default", "add-remove", 5.0, 1e-6))
    approvals.ask_owner(kit, STUDY)
    return kit, ledger, tmp_path / "north.ledger"


@pytest.fixture
def desk(place):
    return SiteDesk(Rows(kit=str(place[0].folder), ledger=str(place[2])))


@pytest.fixture
def key(place):
    """Of ann, who is in the list."""
    found = Ed25519PrivateKey.generate()
    Decisions(place[0], place[1]).appoint("ann", "approver", public_pem(found.public_key()))
    return found.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()).hex()


def test_a_waiting_study_in_words_with_its_cost(desk):
    (found,) = desk.studies()["waiting"]
    assert found["cost"]["covered"] is True
    assert found["cost"]["epsilon"] <= 1.01
    assert found["cost"]["after"].startswith("left: epsilon 4.")
    assert not found["views"][0]["protected"]  # the worst first
    assert "only the sum over all sites is visible" in found["sent"]
    assert any(not each["protected"] for each in found["views"])
    json.dumps(found, allow_nan=False)
    health = desk.health()
    assert health["days"] >= 0
    assert health["account"]["epsilon"] == 5.0
    assert not health["running"]


def test_a_decision_is_in_the_ledger_signed_by_the_approver(desk, key, place):
    found = desk.decide("approve", STUDY.hash, "ann", key, purpose="care", runs=3, seen=0)
    assert (found["state"], found["left"], found["by"]) == ("approved", 3, ["ann"])
    assert place[1].verify().holds
    (shown,) = desk.study(STUDY.hash)["history"]
    assert (shown["by"], shown["purpose"], shown["problem"]) == ("ann", "care", "")
    kinds = [each["kind"] for each in desk.ledger(1)["entries"]]
    assert kinds[0] == "decision"
    assert "for care" in desk.ledger(1, "decision")["entries"][0]["text"]
    found = desk.decide("revoke", STUDY.hash, "ann", key, reason="over", seen=1)
    assert found["state"] == "revoked"


def test_a_replayed_or_late_or_unsigned_decision_changes_nothing(desk, key, place):
    stranger = Ed25519PrivateKey.generate()
    other = stranger.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()).hex()
    with pytest.raises(DecisionRefused):
        desk.decide("approve", STUDY.hash, "ann", other)
    with pytest.raises(DecisionRefused):
        desk.decide("approve", STUDY.hash, "vic", key)
    with pytest.raises(ProtocolError) as refused:
        desk.decide("approve", STUDY.hash, "ann", key, seen=1)
    assert refused.value.code == "decided-meanwhile"
    changed = study_of(epsilon=2.0)
    with pytest.raises(ProtocolError) as refused:
        desk.decide("approve", changed.hash, "ann", key)
    assert refused.value.code == "study-changed"
    assert desk.study(STUDY.hash)["standing"]["waits"]
    assert not [each for each in place[1].entries() if each.kind == "decision"]


def test_a_study_whose_file_was_changed_is_not_shown_as_it_was(desk, place):
    assert desk.studies()["waiting"]
    file = place[0].waiting / f"{STUDY.hash}.json"
    file.write_text(study_of(epsilon=2.0).model_dump_json())
    with pytest.raises(EigenveilError, match="another study"):
        desk.studies()


def test_the_ledger_is_added_up_by_what_is_new(place):
    _, ledger, path = place
    pages = LedgerPages(str(path))
    first = pages.books()
    for number in range(60):
        key = SessionKey(STUDY.hash, f"run-{number}")
        ledger.begin(key, data_set="default", adjacency="add-remove", reserve=Loss(1e-6), state=b"")
        ledger.end(key, "done")
    found = pages.page(1)
    assert pages.books() is first  # added to
    assert (found["count"], found["pages"], len(found["entries"])) == (121, 3, 50)
    assert found["entries"][0]["number"] == 121
    assert pages.page(99)["page"] == 3
    assert pages.books().standing("default") == Ledger(path).standings()[0]
    assert pages.page(1, only="budget")["count"] == 1


def test_a_lead_drafts_a_study_and_sees_what_it_would_give(tmp_path):
    kit = tmp_path / "lead"
    (kit / "startup").mkdir(parents=True)
    fields = {"format": "eigenveil-kit-1", "role": "lead", "name": "lea@example.org", "org": "o",
              "host": "localhost", "port": 1, "project": "p"}  # fmt: skip
    (kit / FILE).write_text(json.dumps(fields))
    for name in ("client.crt", "client.key", "rootCA.pem", "fed_admin.json"):
        (kit / "startup" / name).touch()
    desk = LeadDesk(Rows(kit=str(kit)))
    out = tmp_path / "s.toml"
    found = desk.draft(
        str(out),
        {"name": "s", "task": "pca", "columns": ["a", "b", "c", "d"], "components": 2,
         "epsilon": 1.0, "sites": [{"name": "north"}, {"name": "south"}, {"name": "west"}]},
    )  # fmt: skip
    shown = desk.study(str(out))
    assert shown["hash"] == found["hash"]
    assert shown["bytes"] > 0
    curve = desk.curve(str(out), 2000, "power:1.0")
    energies = [each["energy"] for each in curve["points"]]
    assert len(energies) > 5
    assert energies[-1] > 0.9
    json.dumps(curve, allow_nan=False)


def test_an_analysts_table_has_options_and_a_curve(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,b,c\n1,2,3\n4,5,6\n")
    desk = TableDesk(Rows(data=(str(table),), ledger=str(tmp_path / "t.ledger")))
    assert desk.table()["columns"] == ["a", "b", "c"]
    options = {each["name"]: each for each in desk.options()}
    assert options["n_components"]["option"] == "--components"
    assert "auto" in options["mechanism"]["choices"]
    assert desk.ledger(1)["count"] == 0
    curve = desk.curve({"n_components": "2"}, 1000, "power:1.0")
    assert curve["points"][-1]["energy"] > 0.9
    json.dumps(curve, allow_nan=False)


def test_errors_cross_to_the_console_as_they_were_raised(tmp_path):
    def call(method, arguments):
        raise DecisionRefused("No.", hint="Ask.", code="wrong-role")

    found = json.loads(answer(call, json.dumps({"number": 1, "method": "x", "arguments": {}})))
    error = made_error(found["error"])
    assert isinstance(error, DecisionRefused)
    assert (error.code, error.hint) == ("wrong-role", "Ask.")
    found = json.loads(answer(call, "not JSON"))
    assert found["error"]["code"] == "unexpected"
    call = Answering("table", Rows(data=("none",)))
    found = json.loads(
        answer(call, json.dumps({"number": 1, "method": "_private", "arguments": {}}))
    )
    assert found["error"]["code"] == "unexpected"
    assert PASSWORD not in str(found)
