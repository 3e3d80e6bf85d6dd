"""The pages of a site's owner: decisions about what was shown, once, by whoever may."""

import shlex
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from console_tools import STUDY, Visitor, hidden, standing, study

from eigenveil.cli.app import COMMANDS
from eigenveil.console.settings import Rows
from eigenveil.errors import DecisionRefused


@pytest.fixture
def visitor(tmp_path):
    found = Visitor(tmp_path, "site")
    found.client = found.browser("ann")
    return found


def form_of(client, action="approve", **fields):
    page = client.get(f"/studies/{STUDY}")
    found = {name: hidden(page.text, name) for name in ("csrf", "number", "hash", "seen")}
    return found | {"action": action, "often": "once", "password": "of the key"} | fields


def decide(visitor, form, client=None):
    return (client or visitor.client).post(f"/studies/{STUDY}/decide", data=form)


def decided(visitor):
    return [arguments for method, arguments in visitor.desk.asked if method == "decide"]


def test_what_is_asked_is_shown_in_words(visitor):
    page = visitor.client.get("/studies").text
    assert "heart" in page
    assert "the budget covers it" in page
    page = visitor.client.get(f"/studies/{STUDY}").text
    assert "&lt;b&gt;bmi" in page
    assert "<b>bmi" not in page
    assert "the aggregator" in page
    assert STUDY in page


@pytest.mark.parametrize(
    ("often", "runs", "until"),
    [
        ({"often": "once"}, 1, None),
        ({"often": "runs", "runs": "7"}, 7, None),
        ({"often": "until", "until": "2100-05-01"}, None, "2100-05-01"),
    ],
)
def test_an_approval_says_how_often_and_is_of_the_approvers_key(visitor, often, runs, until):
    form = form_of(visitor.client, purpose="heart\nfailure", **often)
    assert decide(visitor, form).headers["location"] == f"/studies/{STUDY}?done=approved"
    (made,) = decided(visitor)
    assert (made["study"], made["by"], made["password"]) == (STUDY, "ann", "of the key")
    terms = {"reason": "", "purpose": "heart failure", "runs": runs, "until": until}
    assert made["terms"] == terms
    assert visitor.logged()[0] == "decided: approve"


@pytest.mark.parametrize(
    ("action", "fields", "options", "terms"),
    [
        ("approve", {"purpose": "care; rm -rf /", "reason": "--as=eve"}, [],
         ["--reason=--as=eve", "--purpose=care; rm -rf /", "--runs=1"]),
        ("approve", {"often": "until", "until": "2100-05-01"},
         ["--data-set", "heart failure"], ["--until=2100-05-01"]),
        ("refuse", {"reason": "no 'use'", "tell": "yes"}, [], ["--reason=no 'use'", "--tell-lead"]),
        ("revoke", {}, ["--ledger", "postgresql://h/n"], []),
    ],
)  # fmt: skip
def test_who_has_no_key_here_signs_at_the_terminal(tmp_path, action, fields, options, terms):
    """With a command that is about the rows of the console."""
    places = {options[0][2:].replace("-", "_"): options[1]} if options else {}
    visitor = Visitor(tmp_path, "site", rows=Rows(party="p", **places))
    bob = visitor.browser("bob")
    page = bob.get(f"/studies/{STUDY}").text
    assert "not at this console" in page
    assert "Password of your key" not in page
    answer = decide(visitor, form_of(bob, action, where="terminal", **fields), bob)
    assert answer.status_code == 200
    words = shlex.split(unescape(answer.text.split("<pre")[1].split(">", 1)[1].split("</pre>")[0]))
    place = ["=".join(options)] if options else []
    wanted = ["eigenveil", "site", action, STUDY, "--party", "p", "--as", "bob", *place, *terms]
    assert words == wanted
    assert decided(visitor) == []
    found = COMMANDS["site"].load("site").commands[action]
    known = {option for each in found.params for option in each.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known


def test_ten_wrong_passwords_of_a_key_end_the_session(visitor):
    def wrong(**_):
        raise DecisionRefused.relayed("Wrong.", code="wrong-password")

    visitor.desk.answers["decide"] = wrong
    for _ in range(10):
        assert decide(visitor, form_of(visitor.client)).status_code == 403
    assert visitor.client.get("/studies").headers["location"] == "/sign-in"


def test_a_refusal_needs_a_reason_and_a_replayed_form_does_nothing(visitor):
    form = form_of(visitor.client, "refuse")
    assert "needs a reason" in decide(visitor, form).text
    form = form_of(visitor.client, "refuse", reason="no use")
    assert decide(visitor, form).status_code == 303
    assert decide(visitor, form).status_code == 409
    assert len(decided(visitor)) == 1
    assert visitor.logged()[0] == "refused: form-used"


LONG = f"{datetime.now(UTC) + timedelta(days=36_600):%Y-%m-%d}"


@pytest.mark.parametrize(
    "wrong",
    [
        {"often": "runs", "runs": "0"},
        {"often": "runs", "runs": "many"},
        {"often": "until", "until": "2001-01-01"},
        {"often": "until", "until": "9999-12-31"},
        {"often": "until", "until": LONG},
        {"often": "until", "until": ""},
        {"often": "always"},
        {"action": "grant"},
        {"hash": "b" * 64},
        {"csrf": "x"},
        {"number": "x"},
    ],
    ids=str,
)
def test_forms_that_cannot_be_decide_nothing(visitor, wrong):
    assert decide(visitor, form_of(visitor.client) | wrong).status_code in (400, 403, 409)
    assert decided(visitor) == []


def test_what_is_decided_can_be_revoked(visitor):
    history = [
        {"by": "ann", "action": "approve", "time": "2030-01-01 10:00", "purpose": "care",
         "reason": "", "entry": 3, "problem": ""}
    ]  # fmt: skip
    approved = standing(state="approved", approved=True, waits=False, left=2)
    visitor.desk.answers["study"] = lambda **_: study(standing=approved, history=history)
    page = visitor.client.get(f"/studies/{STUDY}").text
    assert "Revoke and sign" in page
    assert "Approve and sign" not in page
    decide(visitor, form_of(visitor.client, "revoke"))
    assert decided(visitor)[0]["action"] == "revoke"
