"""The pages of a site's owner: decisions about what was shown, once, by whoever may."""

from datetime import UTC, datetime

import pytest
from console_tools import PASSWORD, STUDY, Visitor, hidden, standing, study

from eigenveil.errors import ProtocolError


@pytest.fixture
def visitor(tmp_path):
    found = Visitor(tmp_path, "site")
    found.add()
    found.sign_in()
    return found


def form_of(client, action="approve", **fields):
    page = client.get(f"/studies/{STUDY}")
    found = {name: hidden(page.text, name) for name in ("csrf", "number", "hash", "seen")}
    return found | {"action": action, "often": "once"} | fields


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
    for path in ("/ledger", "/health", "/log"):
        assert visitor.client.get(path).status_code == 200


@pytest.mark.parametrize(
    ("often", "runs", "until"),
    [
        ({"often": "once"}, 1, None),
        ({"often": "runs", "runs": "7"}, 7, None),
        ({"often": "until", "until": "2100-05-01"}, None, datetime(2100, 5, 2, tzinfo=UTC)),
    ],
)
def test_an_approval_says_how_often_and_is_of_the_approvers_key(visitor, often, runs, until):
    form = form_of(visitor.client, purpose="heart\nfailure", **often)
    assert decide(visitor, form).headers["location"] == f"/studies/{STUDY}?done=approved"
    (made,) = decided(visitor)
    assert made["study"] == STUDY
    assert (made["runs"], made["by"], made["purpose"]) == (runs, "ann", "heart failure")
    assert made["until"] == (None if until is None else until.isoformat())
    assert len(bytes.fromhex(made["key"])) == 32
    assert visitor.logged()[0] == "decided: approve"


def test_a_refusal_needs_a_reason_and_a_replayed_form_does_nothing(visitor):
    form = form_of(visitor.client, "refuse")
    assert "needs a reason" in decide(visitor, form).text
    form = form_of(visitor.client, "refuse", reason="no use")
    assert decide(visitor, form).status_code == 303
    assert decide(visitor, form).status_code == 409
    assert len(decided(visitor)) == 1
    assert visitor.logged()[0] == "refused: form-used"


@pytest.mark.parametrize(
    "wrong",
    [
        {"often": "runs", "runs": "0"},
        {"often": "runs", "runs": "many"},
        {"often": "until", "until": "2001-01-01"},
        {"often": "until", "until": "9999-12-31"},
        {"often": "until", "until": ""},
        {"often": "always"},
        {"action": "grant"},
        {"hash": "b" * 64},
        {"csrf": "x"},
        {"number": "x"},
    ],
)
def test_forms_that_cannot_be_decide_nothing(visitor, wrong):
    assert decide(visitor, form_of(visitor.client) | wrong).status_code in (400, 403, 409)
    assert decided(visitor) == []


def test_viewers_and_leads_decide_nothing(visitor):
    for name, role in (("vic", "viewer"), ("leo", "lead")):
        visitor.add(name, role, key=False)
        client = visitor.browser()
        visitor.sign_in(name, client=client)
        page = client.get("/account")
        form = {"csrf": hidden(page.text, "csrf"), "number": "1", "hash": STUDY}
        assert decide(visitor, form, client).status_code == 403
    assert decided(visitor) == []
    assert visitor.logged()[0] == "refused: wrong-role"


def test_a_study_that_changed_meanwhile_is_not_decided_about(visitor):
    def changed(**_):
        raise ProtocolError("It was changed.", hint="Look again.", code="study-changed")

    form = form_of(visitor.client)
    visitor.desk.answers["decide"] = changed
    answer = decide(visitor, form)
    assert answer.status_code == 409
    assert "It was changed." in answer.text
    assert visitor.logged()[0] == "refused: study-changed"


def test_of_two_approvers_at_once_the_second_sees_that_it_was_decided(visitor):
    visitor.add("bob", "approver")
    other = visitor.browser()
    visitor.sign_in("bob", client=other)
    first, second = form_of(visitor.client), form_of(other)
    count = [0]

    def once(seen, **_):
        if seen != count[0]:
            raise ProtocolError("Decided meanwhile.", code="decided-meanwhile")
        count[0] += 1
        return standing(state="approved")

    visitor.desk.answers["decide"] = once
    assert decide(visitor, first).status_code == 303
    assert decide(visitor, second, other).status_code == 409
    assert count == [1]


def test_a_key_that_is_locked_is_unlocked_by_its_password(visitor):
    session = next(iter(visitor.console.sessions._by_name.values()))
    session.key = None
    assert "Password of your key" in visitor.client.get(f"/studies/{STUDY}").text
    assert decide(visitor, form_of(visitor.client, password="wrong")).status_code == 400
    assert decided(visitor) == []
    assert decide(visitor, form_of(visitor.client, password=PASSWORD)).status_code == 303
    assert len(decided(visitor)) == 1
    for _ in range(9):
        guessed = decide(visitor, form_of(visitor.client, password="a guess"))
    assert guessed.status_code == 400
    assert decide(visitor, form_of(visitor.client, password=PASSWORD)).status_code == 429


def test_what_is_decided_can_be_revoked(visitor):
    visitor.desk.answers["study"] = lambda study: _approved()
    page = visitor.client.get(f"/studies/{STUDY}").text
    assert "Revoke and sign" in page
    assert "Approve and sign" not in page
    decide(visitor, form_of(visitor.client, "revoke"))
    assert decided(visitor)[0]["action"] == "revoke"


def _approved():
    history = [
        {"by": "ann", "action": "approve", "time": "2030-01-01 10:00", "purpose": "care",
         "reason": "", "entry": 3, "problem": ""}
    ]  # fmt: skip
    return study(
        standing=standing(state="approved", approved=True, waits=False, left=2), history=history
    )
