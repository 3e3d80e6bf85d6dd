"""A new budget by a form of the console: signed and recorded as the command does it, or refused."""

import os
import shlex
from html import unescape

import pytest
from console_tools import PASSWORD, Asked, Visitor, hidden, put_run, site_with_key

from eigenveil.cli.app import COMMANDS
from eigenveil.console import running
from eigenveil.console.command import console
from eigenveil.console.desk.site import SiteDesk
from eigenveil.console.desk.table import TableDesk
from eigenveil.console.running import Events
from eigenveil.console.settings import Rows
from eigenveil.errors import BudgetExceeded
from eigenveil.federation.approvals import studies as approvals
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.approvals.keys import make_key
from eigenveil.federation.approvals.roster import key_file
from eigenveil.federation.ledger.ledger import Budget, Ledger, SessionKey
from eigenveil.federation.public_key import KeySigner
from eigenveil.privacy.accountant import Loss
from federation_tools import study_of
from ledger_tools import COST, ONE, begin, commit
from refusal_tools import refuses


def charged(ledger, data_set="default"):
    """Something is spent of an account: what ONE costs."""
    key = SessionKey("a" * 64, "run")
    begin(ledger, key, COST, data_set=data_set)
    commit(ledger, key, charges=[ONE])
    ledger.end(key, "done")


@pytest.fixture
def table(tmp_path):
    ledger = Ledger(tmp_path / "t.ledger", durable=False)
    ledger.set_budget(Budget("default", "add-remove", 3.0, 1e-6))
    charged(ledger)
    place = str(tmp_path / "t.ledger")
    found = Visitor(tmp_path, "table", Asked(TableDesk(Rows(data=("t.csv",), ledger=place))))
    found.ledger = ledger
    return found


def form_of(browser, place="/ledger/budget?data_set=default", **fields):
    """A form of the page, filled in."""
    page = browser.get(place).text
    found = {name: hidden(page, name) for name in ("csrf", "number", "data_set", "epsilon")}
    return found | {"delta": "1e-6", "reason": "a second analysis"} | fields


def entries(ledger):
    return list(ledger.entries())


def test_a_budget_of_a_table_is_raised_for_a_reason(table):
    ann = table.browser("ann")
    assert "/ledger/budget?data_set=default" in ann.get("/ledger").text
    form = form_of(ann)
    assert form["epsilon"] == "3"
    answer = ann.post("/ledger/budget", data=form | {"epsilon": "4.5"})
    assert answer.headers["location"] == "/ledger?done=budget"
    page = ann.get(answer.headers["location"]).text
    assert "The new budget is in the ledger." in page
    assert "epsilon 4.5 at delta 1e-6, by ann (a second analysis)" in page
    last = entries(table.ledger)[-1]
    assert (last.kind, last.body["by"], last.body["reason"]) == ("budget", "ann", form["reason"])
    assert table.ledger.standings()[0].budget.epsilon == 4.5
    assert table.ledger.verify().holds
    assert ann.post("/ledger/budget", data=form).status_code == 409  # it was sent
    assert table.logged()[:2] == ["refused: form-used", "set a budget"]


def test_a_ledger_is_checked_against_a_hash_that_was_noted(table):
    ann, last = table.browser("ann"), entries(table.ledger)[-1].hash
    assert f"hash <code>{last}</code>" in ann.get(f"/ledger/verify?against={last}").text
    page = ann.get(f"/ledger/verify?against={'0' * 64}").text
    assert "Not valid" in page
    assert ann.get("/ledger/verify?against=x").status_code == 400


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"epsilon": "0.01"}, "less than what is spent"),
        ({"delta": "1e-300"}, "less than what is spent"),
        ({"reason": " "}, "needs a reason"),
        ({"unit": "patient"}, "cannot be counted otherwise"),
        ({"epsilon": "much"}, "epsilon"),
        ({"epsilon": "-1"}, "epsilon"),
        ({"delta": "1"}, "delta"),
    ],
    ids=str,
)
def test_what_cannot_be_a_budget_is_refused_beside_the_form(table, wrong, said):
    ann, before = table.browser("ann"), entries(table.ledger)
    answer = ann.post("/ledger/budget", data=form_of(ann, epsilon="5") | wrong)
    assert answer.status_code == 400
    assert said in answer.text
    assert "Nothing was done." in answer.text
    assert entries(table.ledger) == before
    again = {name: hidden(answer.text, name) for name in ("csrf", "number", "data_set")}
    again |= {"epsilon": "5", "delta": "1e-6", "reason": "corrected"}
    assert ann.post("/ledger/budget", data=again).status_code == 303


def test_an_address_changes_nothing_of_what_an_account_is_said_to_count(table):
    page = table.browser("ann").get("/ledger/budget?data_set=default&unit=patient&adjacency=x").text
    assert "It counts adding or removing one row: that stays" in page


def test_a_form_of_others_or_of_before_changes_nothing(table):
    ann, bob, before = table.browser("ann"), table.browser("bob"), entries(table.ledger)
    form = form_of(ann, epsilon="5")
    assert ann.post("/ledger/budget", data=form | {"csrf": "x"}).status_code == 403
    assert bob.get("/ledger/budget").status_code == 403
    assert "/ledger/budget" not in bob.get("/ledger").text
    table.ledger.set_budget(Budget("default", "add-remove", 3.5, 1e-6))  # since it was shown
    assert ann.post("/ledger/budget", data=form).status_code == 409
    assert len(entries(table.ledger)) == len(before) + 1


def test_a_spent_budget_links_to_its_ledger_and_shows_no_command(table):
    hint = "Raise the budget: eigenveil ledger budget t.ledger --reason WHY."
    end = {"event": "failed", "code": "over-budget", "message": "It is used up.", "hint": hint,
           "spent": ""}  # fmt: skip
    run = put_run(table, end=end)
    page = table.browser("ann").get(f"/runs/{run.name}").text
    assert '<a class="button" href="/ledger">See what holds the budget' in page
    assert "eigenveil ledger" not in page


def test_a_fit_that_was_not_covered_runs_once_its_budget_is_raised(tmp_path):
    data, place = tmp_path / "t.csv", str(tmp_path / "t.ledger")
    data.write_text("a,b\n" + "1,2\n3,4\n" * 20)
    rows = Rows(data=(str(data),), ledger=place)
    given = {"n_components": "1", "epsilon": "1", "one_row_per_person": "yes"}

    def fit(number):
        out = tmp_path / f"result-{number}"
        running.fit(
            rows, {"kind": "pca", "given": given}, out, Events(os.open(os.devnull, os.O_WRONLY))
        )

    fit(1)
    with refuses("over-budget", kind=BudgetExceeded):
        fit(2)
    ann = Visitor(tmp_path, "table", Asked(TableDesk(rows))).browser("ann")
    link = unescape(ann.get("/ledger").text.split('href="/ledger/budget')[1].split('"')[0])
    form = form_of(ann, f"/ledger/budget{link}", epsilon="3")
    assert ann.post("/ledger/budget", data=form).status_code == 303
    fit(3)


def test_what_holds_a_budget_and_will_not_go_on_is_ended(table):
    key, ann = SessionKey("b" * 64, "lost"), table.browser("ann")
    begin(table.ledger, key, Loss(1e-3), data_set="default", note="a fit")
    page = ann.get("/ledger").text
    assert "Open sessions" in page
    form = {name: hidden(page, name) for name in ("csrf", "number", "study")}
    assert ann.post("/ledger/end", data=form).headers["location"] == "/ledger?done=ended"
    assert entries(table.ledger)[-1].kind == "end"
    assert "Open sessions" not in ann.get("/ledger").text
    assert ann.post("/ledger/end", data=form).status_code == 409


# -- at a site: signed


@pytest.fixture
def site(tmp_path):
    """A site whose budget counts rows, with a study that protects patients waiting."""
    party, ledger = site_with_key(tmp_path, "ann")
    desk = Decisions(party, ledger)
    desk.appoint("bob", "approver", KeySigner.new().public_key.text)  # whose key is elsewhere
    rows = Rows(party=str(party.folder), ledger=ledger.name)
    found = Visitor(tmp_path, "site", Asked(SiteDesk(rows)), rows=rows)
    found.party, found.ledger, found.decisions = party, ledger, desk
    return found


def test_a_budget_of_a_site_is_signed_by_the_approvers_key(site):
    ann, before = site.browser("ann"), len(entries(site.ledger))
    form = form_of(ann, epsilon="6", password="wrong")
    assert ann.post("/ledger/budget", data=form).status_code == 403
    assert len(entries(site.ledger)) == before
    form = form_of(ann, epsilon="6", password=PASSWORD)
    assert ann.post("/ledger/budget", data=form).status_code == 303
    (change,) = site.decisions.record().budgets[1:]
    assert (change.body.budget.epsilon, change.body.reason) == (6.0, "a second analysis")
    assert [str(each)[:9] for each in change.signed] == ["ann (key "]
    assert site.ledger.verify().holds


def test_who_has_a_key_elsewhere_gets_the_command(site):
    bob, before = site.browser("bob"), len(entries(site.ledger))
    answer = bob.post("/ledger/budget", data=form_of(bob, epsilon="6", reason="it's; more"))
    words = shlex.split(unescape(answer.text.split("<pre")[1].split(">", 1)[1].split("</pre>")[0]))
    assert words[:3] == ["eigenveil", "ledger", "budget"]
    assert {"--epsilon=6", "--reason=it's; more", "--as", "bob"} <= set(words)
    found = COMMANDS["ledger"].load("ledger").commands["budget"]
    known = {option for each in found.params for option in each.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known
    assert len(entries(site.ledger)) == before


def test_two_persons_set_exactly_the_same(site):
    made = make_key(key_file(site.party, "bob"), PASSWORD)
    site.decisions.renew("bob", made.public_key.text)
    site.decisions.set_needed(2)
    ann, bob = site.browser("ann"), site.browser("bob")
    answer = ann.post("/ledger/budget", data=form_of(ann, epsilon="6", password=PASSWORD))
    assert answer.headers["location"] == "/ledger?done=waits"
    assert site.ledger.budget("default").epsilon == 5.0
    page = bob.get("/ledger/budget?data_set=default").text
    assert "ann agreed to epsilon 6" in page
    form = form_of(bob, password=PASSWORD)
    assert form["epsilon"] == "6"  # proposed
    answer = bob.post("/ledger/budget", data=form)
    assert answer.headers["location"] == "/ledger?done=budget"
    assert site.ledger.budget("default").epsilon == 6.0


def test_the_partys_own_key_signs_for_one_person_on_this_machine_alone(site):
    alone = {own: SiteDesk(Rows(site.settings.rows.party, site.settings.rows.ledger, own_key=own))
             for own in (True, False)}  # fmt: skip
    assert [alone[own].budget("", "owner")["signs"] for own in alone] == ["own", "elsewhere"]
    assert [alone[True].budget("", name)["signs"] for name in ("ann", "bob")] == [
        "password", "elsewhere"
    ]  # fmt: skip
    given = {"epsilon": "7", "delta": "1e-6", "adjacency": "", "unit": "", "reason": "more"}
    with pytest.raises(Exception, match="key"):
        alone[False].set_budget("default", given, "owner", "")
    assert alone[True].set_budget("default", given, "owner", "") == ""
    assert site.ledger.budget("default").epsilon == 7.0


def test_no_console_of_several_people_signs_with_the_partys_key(site, monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr("eigenveil.console.app.run", started.append)
    here = {"party": site.party.folder, "state": tmp_path / "console"}
    console(**here)
    several = {"proxy_header": "X-User", "proxy_address": ["127.0.0.1"], "person": ["owner=owner"]}
    console(**here, **several, address="https://console.example.org")
    assert [each.rows.own_key for each in started] == [True, False]


def test_ten_wrong_passwords_end_the_session(site):
    ann = site.browser("ann")
    for _ in range(10):
        form = form_of(ann, epsilon="6", password="wrong")
        assert ann.post("/ledger/budget", data=form).status_code == 403
    assert ann.get("/ledger").headers["location"] == "/sign-in"


@pytest.mark.parametrize("untouched", [True, False])
def test_a_budget_that_counts_otherwise_is_mended_on_the_studys_page(site, untouched):
    study = study_of(unit="patient_id", features=None, columns=list("abcd"))
    approvals.ask_owner(site.party, study)
    if not untouched:
        charged(site.ledger)
    ann = site.browser("ann")

    def approve():
        page = ann.get(f"/studies/{study.hash}").text
        names = ("csrf", "number", "hash", "seen")
        form = {name: hidden(page, name) for name in names} | {"action": "approve"}
        sent = form | {"often": "once", "password": PASSWORD}
        return ann.post(f"/studies/{study.hash}/decide", data=sent)

    answer = approve()
    assert answer.status_code == 400
    assert "eigenveil ledger" not in answer.text
    page = ann.get(f"/studies/{study.hash}").text
    assert "hides adding or removing all rows of one patient_id" in page
    assert ("was charged and cannot be changed" in page) is not untouched
    link = unescape(page.split('href="/ledger/budget')[1].split('"')[0])
    form = form_of(ann, f"/ledger/budget{link}", password=PASSWORD, unit="patient_id")
    form |= {"study": study.hash, "adjacency": "add-remove"}
    assert form["epsilon"] == "5"
    answer = ann.post("/ledger/budget", data=form)
    assert answer.headers["location"] == f"/studies/{study.hash}?done=budget"
    name = "default" if untouched else "default by patient_id"
    assert site.ledger.budget(name).unit == "patient_id"
    if untouched:
        assert "counts something else" not in ann.get(f"/studies/{study.hash}").text
        assert approve().headers["location"].endswith("?done=approved")
