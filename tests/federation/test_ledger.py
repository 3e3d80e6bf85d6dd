"""What a ledger promises, wherever it is kept: budgets hold, answers repeat, sessions end."""

import hashlib
import json
import math
import os
from dataclasses import replace

import pytest

from eigenveil.federation.ledger.ledger import Draft, Ledger
from eigenveil.privacy.accountant import Loss
from ledger_tools import (
    COST,
    DELTA,
    ONE,
    ROWS,
    begin,
    budget_of,
    commit,
    filled,
    key_of,
    loss_of,
    refused,
    release,
    room_for,
    with_budget,
)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "ledger.sqlite")
    return request.getfixturevalue("server").url()


@pytest.fixture
def ledger(place):
    return with_budget(place)


# -- budgets


def test_the_latest_budget_counts_and_none_is_forgotten(ledger):
    assert ledger.budget("others") is None
    for epsilon in (3, 0.5, 0.0):
        ledger.set_budget(budget_of(epsilon))
        assert ledger.budget(ROWS) == budget_of(epsilon)
    kinds = [(entry.kind, entry.body["budget"]["epsilon"]) for entry in ledger.entries()]
    assert kinds == [("budget", e) for e in (room_for(4, COST), 3.0, 0.5, 0.0)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"epsilon": -1.0}, "bad-epsilon"),
        ({"epsilon": math.inf}, "bad-epsilon"),
        ({"epsilon": "1"}, "bad-epsilon"),
        ({"delta": 1.0}, "bad-delta"),
        ({"adjacency": "next-door"}, "bad-adjacency"),
        ({"data_set": ""}, "bad-name"),
        ({"data_set": "a\x1b[2Jb"}, "bad-name"),
        ({"data_set": "a" * 201}, "bad-name"),
    ],
)
def test_what_is_no_budget_is_refused(tmp_path, change, code):
    refused(code, Ledger(tmp_path / "new").set_budget, replace(budget_of(1.0), **change))
    assert not (tmp_path / "new").exists()


def test_no_session_without_a_budget(place):
    error = refused("no-budget", begin, Ledger(place), key_of(), COST)
    assert "eigenveil ledger budget" in error.hint
    assert Ledger(place).verify().holds


def test_accounts_of_other_data_sets_are_apart(ledger):
    ledger.set_budget(budget_of(room_for(1, COST), data_set="others"))
    begin(ledger, key_of("s1"), COST, data_set="others")
    begin(ledger, key_of("s2", "b2"), Loss.total([COST] * 4))
    for standing in ledger.standings():
        assert standing.left.mu_squared < 1e-6 * COST.mu_squared
        assert standing.left_epsilon < 1e-3


def test_a_budget_is_filled_to_the_last_and_not_beyond(ledger):
    for number in range(4):
        begin(ledger, key_of(study=f"study {number}"), COST)
    before = list(ledger.entries())
    error = refused("over-budget", begin, ledger, key_of(study="one more"), COST)
    for part in (f"epsilon = {COST.epsilon(DELTA):.6g}", ROWS, "left: epsilon "):
        assert part in error.message
    assert "ledger end" in error.hint
    assert list(ledger.entries()) == before


def test_a_session_that_ended_takes_what_it_charged(ledger):
    begin(ledger, key_of(), Loss.total([COST] * 4))
    refused("over-budget", begin, ledger, key_of(study="b2"), COST)
    commit(ledger, key_of(), charges=[ONE])
    ledger.end(key_of(), "done")
    begin(ledger, key_of(study="b2"), Loss.total([COST] * 3))
    refused("over-budget", begin, ledger, key_of(study="c3"), loss_of(release(1e-3)))


def test_standing_tells_spent_reserved_and_left(ledger):
    begin(ledger, key_of(), Loss.total([COST] * 3))
    commit(ledger, key_of(), charges=[ONE])
    (standing,) = ledger.standings()
    assert standing.budget == ledger.budget(ROWS)
    assert standing.spent == COST
    assert standing.spent_epsilon == COST.epsilon(DELTA)
    assert standing.reserved.mu_squared == pytest.approx(2 * COST.mu_squared, rel=1e-12)
    left = standing.caps.mu_squared - 3 * COST.mu_squared
    assert standing.left.mu_squared == pytest.approx(left, rel=1e-12)
    assert standing.left_epsilon == standing.left.epsilon(DELTA)
    ledger.set_budget(budget_of(0.1))
    assert ledger.standings()[0].left_epsilon == 0.0


def test_a_budget_whose_delta_gives_no_epsilon_has_nothing_left(ledger):
    begin(ledger, key_of(), COST)
    commit(ledger, key_of(), charges=[ONE])
    ledger.set_budget(budget_of(5.0, delta=0.0))
    (standing,) = ledger.standings()
    assert standing.spent_epsilon == math.inf
    assert (standing.left, standing.left_epsilon, standing.left_pure) == (Loss(), 0.0, 0.0)
    refused("over-budget", begin, ledger, key_of(study="b2"), COST)


def test_an_open_session_fixes_what_its_account_counts(ledger):
    begin(ledger, key_of(), COST)
    other = budget_of(1.0, adjacency="replace-one")
    refused("account-fixed", ledger.set_budget, other)
    ledger.end(key_of(), "nothing was charged")
    ledger.set_budget(other)


# -- beginning and ending


def test_begin_again_returns_the_stored_state(ledger):
    assert begin(ledger, key_of(), COST, state=b"first") == b"first"
    assert begin(ledger, key_of(), COST, state=b"second") == b"first"
    assert ledger.state(key_of()) == b"first"
    assert [entry.kind for entry in ledger.entries()] == ["budget", "begin"]
    ledger.end(key_of(), "done")
    refused("session-ended", begin, ledger, key_of(), COST)
    refused("session-ended", ledger.state, key_of())
    refused("session-ended", commit, ledger, key_of())


def test_an_open_session_does_not_go_on_with_other_rows(ledger):
    ledger.set_budget(budget_of(9.0, data_set="others"))
    begin(ledger, key_of(), COST)
    refused("session-differs", begin, ledger, key_of(), COST, data_set="others")


def test_a_new_session_of_a_study_takes_the_place_of_the_old(ledger):
    ledger.set_budget(budget_of(9.0, data_set="others"))
    begin(ledger, key_of("s1"), Loss.total([COST] * 3))
    begin(ledger, key_of("s1", study="b2"), COST)
    begin(ledger, key_of("elsewhere"), COST, data_set="others")
    commit(ledger, key_of("s1"), charges=[ONE])
    begin(ledger, key_of("s2"), Loss.total([COST] * 2))
    outcomes = {a.key: a.outcome for a in ledger.sessions()}
    assert outcomes == {
        key_of("s1"): "replaced",
        key_of("s1", study="b2"): None,
        key_of("elsewhere"): None,
        key_of("s2"): None,
    }
    assert ledger.standings()[0].spent == COST
    assert not COST.within(ledger.standings()[0].left)
    # refused, it replaces nothing
    refused("over-budget", begin, ledger, key_of("s3"), Loss.total([COST] * 3))
    assert ledger.state(key_of("s2")) == b"state"


def test_what_is_no_loss_is_not_reserved(ledger):
    for wrong in (Loss(mu_squared=-0.1), Loss(log_ratio=math.inf), Loss(pure=math.nan)):
        refused("bad-reservation", begin, ledger, key_of(), wrong)
        refused("bad-reservation", begin, ledger, key_of(), COST, replacing=wrong)


def test_names_that_cannot_be_stored_or_shown_are_refused(ledger):
    begin(ledger, key_of(), COST)
    for name in ("", "a\x00b", "\ud800", "x" * 201, "two\nlines"):
        refused("bad-name", begin, ledger, key_of(name), COST)
        refused("bad-name", begin, ledger, key_of(study=name), COST)
        refused("bad-name", commit, ledger, key_of(), name)
        refused("bad-name", ledger.end, key_of(), name)


def test_names_and_notes_in_any_language(ledger):
    key = key_of("sitzung größe ∆", study="исследование")
    begin(ledger, key, COST, note="Ж\x1b\n\ud800ok")
    commit(ledger, key, "étape 1", charges=[ONE])
    assert ledger.sessions()[0].terms.note == "Жok"
    assert ledger.verify().holds


def test_end_drops_secrets_and_answers_and_can_be_said_again(ledger):
    begin(ledger, key_of(), COST)
    commit(ledger, key_of(), charges=[ONE])
    for outcome in ("done", "failed"):
        ledger.end(key_of(), outcome)
    assert [a.outcome for a in ledger.sessions()] == ["done"]
    assert ledger.answered(key_of(), "round 1")
    assert ledger.verify().holds


def test_end_study_frees_all_its_sessions(ledger):
    ledger.set_budget(budget_of(9.0, data_set="others"))
    begin(ledger, key_of("s1"), COST)
    begin(ledger, key_of("s2"), COST, data_set="others")
    begin(ledger, key_of("s3", study="b2"), COST)
    assert ledger.end_study("a1") == 2
    assert ledger.end_study("a1") == 0
    assert ledger.state(key_of("s3", study="b2")) == b"state"
    assert ledger.verify().holds


def test_sessions_that_were_never_begun(ledger):
    refused("unknown-session", ledger.state, key_of())
    refused("unknown-session", commit, ledger, key_of())
    refused("unknown-session", ledger.end, key_of(), "done")
    assert not ledger.answered(key_of(), "round 1")


# -- answers


def never():
    raise AssertionError("an answer that is stored was made again")


def test_an_answer_is_made_once(ledger):
    begin(ledger, key_of(), COST)
    big = os.urandom(300_000)
    assert not ledger.answered(key_of(), "round 1")
    assert commit(ledger, key_of(), charges=[ONE], reply=big, state=b"next") == big
    before = list(ledger.entries())
    again = Draft(never, charges=[ONE])
    assert ledger.commit(key_of(), "round 1", request=b"request", draft=lambda *_: again) == big
    assert list(ledger.entries()) == before
    assert before[-1].body["reply"] == hashlib.sha256(big).hexdigest()
    assert ledger.state(key_of()) == b"next"
    assert ledger.answered(key_of(), "round 1")


def test_what_is_settled_is_answered_no_more_and_nothing_to_another_question(ledger):
    begin(ledger, key_of(), COST)
    commit(ledger, key_of(), "round 1")
    refused("step-differs", commit, ledger, key_of(), "round 1", request=b"another")
    commit(ledger, key_of(), "round 2", settles=["round 1", "round 7"])
    refused("already-settled", commit, ledger, key_of(), "round 1")
    refused("step-differs", commit, ledger, key_of(), "round 1", request=b"another")
    assert commit(ledger, key_of(), "round 2") == b"reply"
    assert ledger.answered(key_of(), "round 1")
    assert ledger.verify().holds


def test_when_making_fails_nothing_happened(ledger):
    begin(ledger, key_of(), COST)
    commit(ledger, key_of(), "round 1")
    before = list(ledger.entries())

    def fail():
        raise ZeroDivisionError

    failing = Draft(fail, charges=[ONE], settles=["round 1"])
    with pytest.raises(ZeroDivisionError):
        ledger.commit(key_of(), "round 2", request=b"", draft=lambda *_: failing)
    assert list(ledger.entries()) == before
    assert commit(ledger, key_of(), "round 1") == b"reply"
    assert commit(ledger, key_of(), "round 2", charges=[ONE]) == b"reply"


def test_making_may_read_the_ledger(ledger):
    begin(ledger, key_of(), COST, state=b"1")

    def make():
        assert not ledger.answered(key_of(), "round 1")
        return b"reply", ledger.state(key_of()) + b"2"

    ledger.commit(key_of(), "round 1", request=b"", draft=lambda *_: Draft(make, charges=[ONE]))
    assert ledger.state(key_of()) == b"12"


def test_answers_without_releases_charge_nothing(ledger):
    begin(ledger, key_of(), COST)
    commit(ledger, key_of())
    assert [entry.kind for entry in ledger.entries()] == ["budget", "begin", "answer"]
    assert ledger.standings()[0].spent == Loss()


# -- charges


def test_charges_stay_within_the_reservation(ledger):
    begin(ledger, key_of(), Loss.total([COST] * 2))
    for step in ("round 1", "round 2"):
        commit(ledger, key_of(), step, charges=[ONE])
    less = [release(1e-3)]
    error = refused("beyond-reservation", commit, ledger, key_of(), "round 3", charges=less)
    assert "mu^2" in error.message
    assert not ledger.answered(key_of(), "round 3")
    commit(ledger, key_of(), "round 3")


def test_charges_stay_within_what_an_account_of_changed_rows_counts(ledger):
    """The session reserves for a changed row what is enough for an added one only."""
    one = release(0.05).model_copy(update={"statistic": "second-moment"})
    ledger.set_budget(budget_of(1.0, adjacency="replace-one"))
    begin(ledger, key_of("short"), loss_of(one), replacing=loss_of(one))
    refused("beyond-reservation", commit, ledger, key_of("short"), charges=[one])
    begin(ledger, key_of("enough", "a2"), loss_of(one))
    commit(ledger, key_of("enough", "a2"), charges=[one])


def test_every_part_of_a_loss_must_be_reserved():
    """Beside Gaussian noise a reserved epsilon does not cover a log-ratio: that shrinks delta."""
    needed = loss_of(ONE, release(0.1, kind="laplace"))
    assert needed.covers(needed)
    for part in ("mu_squared", "pure", "log_ratio", "distance"):
        spare = {} if part == "pure" else {"pure": needed.pure + 1}
        less = {part: 0.999 * getattr(needed, part)}
        assert not replace(needed, **less, **spare).covers(needed)


@pytest.mark.parametrize("others", [(), (ONE,)], ids=["alone", "beside Gaussian noise"])
def test_a_pure_reservation_covers_the_sampler_of_pure_noise(ledger, others):
    ledger.set_budget(budget_of(100.0))
    pure, less = release(0.5, kind="laplace"), release(1e-6, kind="laplace")
    assert loss_of(pure).log_ratio > 0
    begin(ledger, key_of(), Loss.total([loss_of(pure).as_pure(), *map(loss_of, others)]))
    commit(ledger, key_of(), charges=[pure, *others])
    refused("beyond-reservation", commit, ledger, key_of(), "round 2", charges=[less])


def test_charges_are_under_the_adjacency_of_their_session(ledger):
    begin(ledger, key_of(), Loss.total([COST] * 4))
    other = release(0.1, adjacency="replace-one")
    refused("other-adjacency", commit, ledger, key_of(), charges=[other])


# -- the chain


def test_the_chain_can_be_recomputed_by_anyone(ledger):
    previous = "0" * 64
    for number, entry in enumerate(filled(ledger).entries(), start=1):
        found = json.loads(entry.line())
        sealed = {k: found[k] for k in ("number", "time", "kind", "body", "previous")}
        text = json.dumps(sealed, sort_keys=True, separators=(",", ":"))
        assert found["previous"] == previous
        assert found["number"] == number
        assert found["hash"] == hashlib.sha256(text.encode()).hexdigest()
        previous = found["hash"]
    verdict = ledger.verify()
    assert (verdict.holds, verdict.wrong, verdict.last) == (True, None, previous)
    assert verdict.entries == 8


def test_entries_come_in_pages_without_a_gap(ledger):
    every = list(filled(ledger).entries())
    for size in (1, 2, 7):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("eigenveil.federation.ledger.ledger._PAGE", size)
            assert list(ledger.entries()) == every
