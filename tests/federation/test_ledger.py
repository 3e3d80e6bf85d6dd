"""What a ledger promises, wherever it is kept: budgets hold, answers repeat, the chain tells."""

import hashlib
import json
import math
import os
import sqlite3
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from ledger_tools import (
    DELTA,
    ROWS,
    begin,
    budget_of,
    commit,
    key_of,
    loss_of,
    release,
    room_for,
)

from eigenveil.errors import (
    BudgetExceeded,
    DataError,
    OutputError,
    PrivacyError,
    ProtocolError,
)
from eigenveil.federation.ledger import store
from eigenveil.federation.ledger.entries import EndBody, seal
from eigenveil.federation.ledger.ledger import Draft, Ledger
from eigenveil.privacy.accountant import Loss

ONE = release(0.5)
COST = loss_of(ONE)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request):
    if request.param == "sqlite":
        return str(request.getfixturevalue("path"))
    return request.getfixturevalue("server").url()


def with_budget(place):
    """A ledger with a budget of four times COST."""
    made = Ledger(place)
    made.set_budget(budget_of(room_for(4, COST)))
    return made


@pytest.fixture
def ledger(place):
    return with_budget(place)


@pytest.fixture
def in_file(path):
    return with_budget(path)


@pytest.fixture(scope="module")
def filled_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("ledger") / "ledger"
    filled(with_budget(path))
    return path.read_bytes()


@pytest.fixture
def in_filled_file(path, filled_file):
    path.write_bytes(filled_file)
    return Ledger(path)


def refusal(family, code, call):
    with pytest.raises(family) as caught:
        call()
    assert caught.value.code == code, caught.value
    assert caught.value.hint
    return str(caught.value)


# -- budgets


def test_the_latest_budget_counts_and_none_is_forgotten(ledger):
    assert ledger.budget("others") is None
    for epsilon in (3, 0.5, 0.0):
        ledger.set_budget(budget_of(epsilon))
        assert ledger.budget(ROWS) == budget_of(epsilon)
    kinds = [(entry.kind, entry.body["budget"]["epsilon"]) for entry in ledger.entries()]
    assert kinds == [("budget", e) for e in (room_for(4, COST), 3.0, 0.5, 0.0)]


@pytest.mark.parametrize(
    ("change", "family", "code"),
    [
        ({"epsilon": -1.0}, PrivacyError, "bad-epsilon"),
        ({"epsilon": math.inf}, PrivacyError, "bad-epsilon"),
        ({"epsilon": "1"}, PrivacyError, "bad-epsilon"),
        ({"delta": 1.0}, PrivacyError, "bad-delta"),
        ({"adjacency": "next-door"}, PrivacyError, "bad-adjacency"),
        ({"data_set": ""}, DataError, "bad-name"),
        ({"data_set": "a\x1b[2Jb"}, DataError, "bad-name"),
        ({"data_set": "a" * 201}, DataError, "bad-name"),
    ],
)
def test_what_is_no_budget_is_refused(path, change, family, code):
    refusal(family, code, lambda: Ledger(path).set_budget(replace(budget_of(1.0), **change)))
    assert not path.exists()


def test_no_session_without_a_budget(place):
    text = refusal(DataError, "no-budget", lambda: begin(Ledger(place), key_of(), COST))
    assert "eigenveil ledger budget" in text
    assert Ledger(place).verify().holds


def test_accounts_of_other_data_sets_are_apart(ledger):
    ledger.set_budget(budget_of(room_for(1, COST), data_set="others"))
    begin(ledger, key_of("s1"), COST, data_set="others")
    begin(ledger, key_of("s2", "b2"), Loss.total([COST] * 4))
    for standing in ledger.standings():
        assert standing.left.mu_squared < 1e-6 * COST.mu_squared
        assert standing.left_epsilon < 1e-3


def test_a_budget_is_filled_to_the_last_and_not_beyond(ledger):
    for round_number in range(4):
        begin(ledger, key_of(study=f"study {round_number}"), COST)
    before = list(ledger.entries())
    text = refusal(
        BudgetExceeded, "over-budget", lambda: begin(ledger, key_of(study="one more"), COST)
    )
    for part in (f"epsilon = {COST.epsilon(DELTA):.6g}", ROWS, "left: epsilon ", "ledger end"):
        assert part in text
    assert list(ledger.entries()) == before


def test_a_session_that_ended_takes_what_it_charged(ledger):
    begin(ledger, key_of(), Loss.total([COST] * 4))
    refusal(BudgetExceeded, "over-budget", lambda: begin(ledger, key_of(study="b2"), COST))
    commit(ledger, key_of(), charges=[ONE])
    ledger.end(key_of(), "done")
    begin(ledger, key_of(study="b2"), Loss.total([COST] * 3))
    refusal(
        BudgetExceeded,
        "over-budget",
        lambda: begin(ledger, key_of(study="c3"), loss_of(release(1e-3))),
    )


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
    refusal(BudgetExceeded, "over-budget", lambda: begin(ledger, key_of(study="b2"), COST))


# -- beginning and ending


def test_begin_again_returns_the_stored_state(ledger):
    assert begin(ledger, key_of(), COST, state=b"first") == b"first"
    assert begin(ledger, key_of(), COST, state=b"second") == b"first"
    assert ledger.state(key_of()) == b"first"
    assert [entry.kind for entry in ledger.entries()] == ["budget", "begin"]
    ledger.end(key_of(), "done")
    for call in (
        lambda: begin(ledger, key_of(), COST),
        lambda: ledger.state(key_of()),
        lambda: commit(ledger, key_of()),
    ):
        refusal(ProtocolError, "session-ended", call)


def test_an_open_session_does_not_go_on_with_other_rows(ledger):
    ledger.set_budget(budget_of(9.0, data_set="others"))
    begin(ledger, key_of(), COST)
    refusal(
        ProtocolError,
        "session-differs",
        lambda: begin(ledger, key_of(), COST, data_set="others"),
    )


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
    refusal(
        BudgetExceeded, "over-budget", lambda: begin(ledger, key_of("s3"), Loss.total([COST] * 3))
    )
    assert ledger.state(key_of("s2")) == b"state"


@pytest.mark.parametrize(
    "reserve", [Loss(mu_squared=-0.1), Loss(log_ratio=math.inf), Loss(pure=math.nan)]
)
def test_what_is_no_loss_is_not_reserved(ledger, reserve):
    refusal(PrivacyError, "bad-reservation", lambda: begin(ledger, key_of(), reserve))


@pytest.mark.parametrize("name", ["", "a\x00b", "\ud800", "x" * 201, "two\nlines"])
def test_names_that_cannot_be_stored_or_shown_are_refused(ledger, name):
    begin(ledger, key_of(), COST)
    for call in (
        lambda: begin(ledger, key_of(name), COST),
        lambda: begin(ledger, key_of(study=name), COST),
        lambda: commit(ledger, key_of(), name),
        lambda: ledger.end(key_of(), name),
    ):
        refusal(ProtocolError, "bad-name", call)


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
    refusal(ProtocolError, "unknown-session", lambda: ledger.end(key_of("s9"), "done"))


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
    for call in (lambda: ledger.state(key_of()), lambda: commit(ledger, key_of())):
        refusal(ProtocolError, "unknown-session", call)
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
    again = ledger.commit(
        key_of(), "round 1", request=b"request", draft=lambda *_: Draft(never, charges=[ONE])
    )
    assert again == big
    assert list(ledger.entries()) == before
    assert before[-1].body["reply"] == hashlib.sha256(big).hexdigest()
    assert ledger.state(key_of()) == b"next"
    assert ledger.answered(key_of(), "round 1")


def test_a_step_is_not_answered_to_another_question(ledger):
    begin(ledger, key_of(), COST)
    commit(ledger, key_of())
    refusal(
        ProtocolError,
        "step-differs",
        lambda: commit(ledger, key_of(), request=b"another"),
    )


def test_what_is_settled_is_answered_no_more(ledger):
    begin(ledger, key_of(), COST)
    commit(ledger, key_of(), "round 1")
    commit(ledger, key_of(), "round 2", settles=["round 1", "round 7"])
    refusal(ProtocolError, "already-settled", lambda: commit(ledger, key_of(), "round 1"))
    refusal(
        ProtocolError,
        "step-differs",
        lambda: commit(ledger, key_of(), "round 1", request=b"another"),
    )
    assert commit(ledger, key_of(), "round 2") == b"reply"
    assert ledger.answered(key_of(), "round 1")
    assert ledger.verify().holds


def test_when_making_fails_nothing_happened(ledger):
    begin(ledger, key_of(), COST)
    commit(ledger, key_of(), "round 1")
    before = list(ledger.entries())

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ledger.commit(
            key_of(),
            "round 2",
            request=b"",
            draft=lambda *_: Draft(fail, charges=[ONE], settles=["round 1"]),
        )
    assert list(ledger.entries()) == before
    assert commit(ledger, key_of(), "round 1") == b"reply"
    assert commit(ledger, key_of(), "round 2", charges=[ONE]) == b"reply"


def test_making_may_read_the_ledger(ledger):
    begin(ledger, key_of(), COST, state=b"1")

    def make():
        assert not ledger.answered(key_of(), "round 1")
        state = ledger.state(key_of())
        return b"reply", state + b"2"

    ledger.commit(key_of(), "round 1", request=b"", draft=lambda *_: Draft(make, charges=[ONE]))
    assert ledger.state(key_of()) == b"12"


def test_answers_without_releases_charge_nothing(ledger):
    begin(ledger, key_of(), COST)
    commit(ledger, key_of())
    assert [entry.kind for entry in ledger.entries()] == ["budget", "begin", "answer"]
    assert ledger.standings()[0].spent == Loss()


def test_charges_stay_within_the_reservation(ledger):
    begin(ledger, key_of(), Loss.total([COST] * 2))
    for step in ("round 1", "round 2"):
        commit(ledger, key_of(), step, charges=[ONE])
    text = refusal(
        BudgetExceeded,
        "beyond-reservation",
        lambda: commit(ledger, key_of(), "round 3", charges=[release(1e-3)]),
    )
    assert "mu^2" in text
    assert not ledger.answered(key_of(), "round 3")
    commit(ledger, key_of(), "round 3")


def test_charges_stay_within_what_an_account_of_changed_rows_counts(ledger):
    """The session reserves for a changed row what is enough for an added one only."""
    one = release(0.05).model_copy(update={"statistic": "second-moment"})
    ledger.set_budget(budget_of(1.0, adjacency="replace-one"))
    begin(ledger, key_of("short"), loss_of(one), replacing=loss_of(one))
    with pytest.raises(BudgetExceeded) as refused:
        commit(ledger, key_of("short"), charges=[one])
    assert refused.value.code == "beyond-reservation"
    begin(ledger, key_of("enough", "a2"), loss_of(one))
    commit(ledger, key_of("enough", "a2"), charges=[one])


def test_an_open_session_fixes_what_its_account_counts(ledger):
    ledger.set_budget(budget_of(1.0))
    begin(ledger, key_of(), loss_of(release(0.05)))
    with pytest.raises(PrivacyError) as refused:
        ledger.set_budget(budget_of(1.0, adjacency="replace-one"))
    assert refused.value.code == "account-fixed"
    ledger.end(key_of(), "nothing was charged")
    ledger.set_budget(budget_of(1.0, adjacency="replace-one"))


@pytest.mark.parametrize("part", ["mu_squared", "pure", "log_ratio", "distance"])
def test_every_part_of_a_loss_must_be_reserved(part):
    """Beside Gaussian noise a reserved epsilon does not cover a log-ratio: that shrinks delta."""
    needed = loss_of(ONE, release(0.1, kind="laplace"))
    assert needed.covers(needed)
    spare = {} if part == "pure" else {"pure": needed.pure + 1}
    assert not replace(needed, **{part: 0.999 * getattr(needed, part), **spare}).covers(needed)


def test_noise_of_both_kinds_in_one_session(in_file):
    pure = release(0.1, kind="laplace")
    in_file.set_budget(budget_of(100.0))
    begin(in_file, key_of(), Loss.total([loss_of(ONE), loss_of(pure).as_pure()]))
    commit(in_file, key_of(), charges=[pure, ONE])
    refusal(
        BudgetExceeded,
        "beyond-reservation",
        lambda: commit(in_file, key_of(), "round 2", charges=[release(1e-6, kind="laplace")]),
    )


def test_a_pure_reservation_covers_the_sampler_of_pure_noise(ledger):
    pure = release(0.5, kind="laplace")
    cost = loss_of(pure)
    assert cost.log_ratio > 0
    begin(ledger, key_of(), Loss(pure=cost.pure + 2 * cost.log_ratio, distance=cost.distance))
    commit(ledger, key_of(), charges=[pure])
    refusal(
        BudgetExceeded,
        "beyond-reservation",
        lambda: commit(ledger, key_of(), "round 2", charges=[release(1e-6, kind="laplace")]),
    )


def test_charges_are_under_the_adjacency_of_their_session(ledger):
    begin(ledger, key_of(), Loss.total([COST] * 4))
    other = release(0.1, adjacency="replace-one")
    refusal(PrivacyError, "other-adjacency", lambda: commit(ledger, key_of(), charges=[other]))


# -- the chain


def filled(ledger):
    """Entries of every kind, an open session with stored and settled answers, and an ended one."""
    begin(ledger, key_of("s1"), COST)
    commit(ledger, key_of("s1"), charges=[ONE])
    ledger.end(key_of("s1"), "done")
    begin(ledger, key_of("s2"), Loss.total([COST] * 3))
    commit(ledger, key_of("s2"), "keys", charges=[release(0.1)])
    commit(ledger, key_of("s2"), "round 1", charges=[release(0.1)], settles=["keys"])
    commit(ledger, key_of("s2"), "round 2", state=b"secret")
    return ledger


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
    ledger = filled(ledger)
    every = list(ledger.entries())
    for size in (1, 2, 7):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("eigenveil.federation.ledger.ledger._PAGE", size)
            assert list(ledger.entries()) == every


def tamper(path, *statements):
    connection = sqlite3.connect(path)
    for (name,) in connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    ).fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        assert connection.execute(statement).rowcount == 1, statement
    connection.commit()
    connection.close()


CHANGES = {
    "number": "number = number + 100",
    "time": "time = '2020-01-01T00:00:00.000+00:00'",
    "kind": "kind = 'begin_'",
    "body": "body = replace(body, 'a', 'b')",
    "a number in the body": "body = replace(body, '0.', '1.')",
    "a space in the body": "body = body || ' '",
    "bytes for a body": "body = CAST(body AS BLOB)",
    "no JSON": "body = '{'",
    "bytes for a time": "time = CAST(time AS BLOB)",
    "previous": "previous = replace(previous, substr(previous, 1, 1), 'x')",
    "hash": "hash = upper(hash)",
    "no hash": "hash = ''",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("number", range(1, 9))
def test_a_change_in_any_field_of_any_entry_is_found(in_filled_file, path, number, change):
    (body,) = [entry.body for entry in in_filled_file.entries() if entry.number == number]
    if change == "a number in the body" and "0." not in json.dumps(body):
        return
    tamper(path, f"UPDATE ledger_entries SET {CHANGES[change]} WHERE number = {number}")
    verdict = in_filled_file.verify()
    assert not verdict.holds
    assert verdict.wrong == number, verdict
    # and nothing is begun on such a ledger
    refusal(DataError, "chain-broken", lambda: begin(in_filled_file, key_of(study="b2"), Loss()))
    refusal(DataError, "chain-broken", in_filled_file.standings)


@pytest.mark.parametrize("number", range(1, 9))
def test_a_missing_entry_is_found(in_filled_file, path, number):
    tamper(path, f"DELETE FROM ledger_entries WHERE number = {number}")
    verdict = in_filled_file.verify()
    assert (verdict.holds, verdict.wrong) == (False, number)


def test_a_cut_chain_with_a_new_end_is_found(in_filled_file, path):
    tamper(path, "DELETE FROM ledger_entries WHERE number = 8")
    refusal(DataError, "chain-broken", lambda: in_filled_file.set_budget(budget_of(9.0)))
    in_filled_file.end_study("a1")
    assert in_filled_file.verify().wrong == 8


def test_a_cut_chain_whose_head_was_cut_too_leaves_answers_without_a_charge(in_filled_file, path):
    last = list(in_filled_file.entries())[-3]
    tamper(
        path,
        "DELETE FROM ledger_entries WHERE number = 7",
        "DELETE FROM ledger_entries WHERE number = 8",
        "DELETE FROM ledger_states",
        f"UPDATE ledger_head SET count = 6, hash = '{last.hash}'",
        "DELETE FROM ledger_replies WHERE step = 'keys'",
    )
    assert in_filled_file.verify().wrong == 6


@pytest.mark.parametrize("number", range(1, 9))
def test_an_entry_that_was_changed_and_sealed_again_breaks_the_chain(in_filled_file, path, number):
    entry = list(in_filled_file.entries())[number - 1]
    new = seal(number, "2020-01-01T00:00:00.000+00:00", entry.kind, entry.body, entry.previous)
    tamper(
        path,
        f"UPDATE ledger_entries SET time = '{new.time}', hash = '{new.hash}' "
        f"WHERE number = {number}",
    )
    # the one after it does not follow; of the last one the head knows the hash
    assert in_filled_file.verify().wrong == min(number + 1, 8)


HEAD_CHANGES = {
    "count = count + 1": 9,
    "count = count - 1": 8,
    "hash = upper(hash)": 8,
}


@pytest.mark.parametrize("change", HEAD_CHANGES)
def test_a_changed_head_is_found(in_filled_file, path, change):
    tamper(path, f"UPDATE ledger_head SET {change}")
    assert in_filled_file.verify().wrong == HEAD_CHANGES[change]


BESIDE = {
    "UPDATE ledger_replies SET reply = x'00' WHERE step = 'round 2'": None,
    "UPDATE ledger_replies SET reply = x'00' WHERE session = 's1'": None,
    "UPDATE ledger_replies SET reply_hash = 'x' WHERE step = 'keys'": 6,
    "DELETE FROM ledger_replies WHERE session = 's1'": 3,
    "UPDATE ledger_replies SET session = 's0' WHERE step = 'round 2'": 8,
    "UPDATE ledger_replies SET request_hash = 'x' WHERE step = 'keys'": 6,
    "UPDATE ledger_replies SET request_hash = 'x' WHERE step = 'round 2'": 8,
    "UPDATE ledger_states SET state = x'00'": None,
    "DELETE FROM ledger_states": None,
    "UPDATE ledger_states SET session = 's1'": None,
    "UPDATE ledger_entries SET session = 's1' WHERE number = 6": 6,
    "UPDATE ledger_entries SET study = NULL WHERE number = 4": 4,
}


@pytest.mark.parametrize("change", BESIDE)
def test_tables_that_do_not_go_with_the_chain_are_found(in_filled_file, path, change):
    tamper(path, change)
    verdict = in_filled_file.verify()
    assert (verdict.holds, verdict.wrong) == (False, BESIDE[change])
    assert verdict.explanation


def test_entries_that_never_could_have_been_are_found(in_filled_file, path):
    """Sealed as they should be, by someone who knows how."""
    with in_filled_file.store.writing() as writer:
        writer.append(EndBody(study="a1", session="s1", outcome="again"))
    assert in_filled_file.verify().wrong == 9


def test_the_database_itself_refuses_to_change_entries(in_file, path):
    connection = sqlite3.connect(path)
    for statement in ("UPDATE ledger_entries SET time = ''", "DELETE FROM ledger_entries"):
        with pytest.raises(sqlite3.IntegrityError, match="never changed"):
            connection.execute(statement)
    connection.close()


def test_a_lost_state_is_said(in_filled_file, path):
    tamper(path, "DELETE FROM ledger_states")
    refusal(DataError, "ledger-damaged", lambda: in_filled_file.state(key_of("s2")))


# -- files


READS = {
    "budget": lambda ledger: ledger.budget(ROWS),
    "standings": Ledger.standings,
    "accounts": Ledger.sessions,
    "state": lambda ledger: ledger.state(key_of()),
    "answered": lambda ledger: ledger.answered(key_of(), "round 1"),
    "entries": lambda ledger: list(ledger.entries()),
    "verify": Ledger.verify,
}
WRITES = {
    "set_budget": lambda ledger: ledger.set_budget(budget_of(1.0)),
    "begin": lambda ledger: begin(ledger, key_of(), COST),
    "commit": lambda ledger: commit(ledger, key_of()),
    "end": lambda ledger: ledger.end(key_of(), "done"),
    "end_study": lambda ledger: ledger.end_study("a1"),
}
EVERY = {**READS, **WRITES}
NEVER_MAKE = sorted(set(EVERY) - {"set_budget", "begin"})


@pytest.mark.parametrize("call", NEVER_MAKE)
def test_looking_does_not_make_a_ledger(path, call):
    refusal(OutputError, "no-ledger", lambda: EVERY[call](Ledger(path)))
    assert not path.exists()
    path.touch()  # what a process killed while it made the file leaves
    refusal(OutputError, "no-ledger", lambda: EVERY[call](Ledger(path)))
    assert path.stat().st_size == 0


def test_a_ledger_is_made_for_its_owner_alone(path):
    before = os.umask(0)
    try:
        Ledger(path)
        assert not path.exists()
        Ledger(path).set_budget(budget_of(1.0))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_an_empty_file_becomes_a_ledger(path):
    path.touch()
    Ledger(path).set_budget(budget_of(1.0))
    assert Ledger(path).verify().holds


NOT_LEDGERS = {
    "a line": b"epsilon,delta\n1,1e-6\n",
    "text": b"This is the diary of a data owner.\n" * 300,
    "noise": bytes(range(256)) * 64,
}


@pytest.mark.parametrize("call", EVERY)
@pytest.mark.parametrize("content", NOT_LEDGERS)
def test_other_files_are_not_ledgers_and_stay_as_they_are(path, content, call):
    path.write_bytes(NOT_LEDGERS[content])
    text = refusal(DataError, "not-a-ledger", lambda: EVERY[call](Ledger(path)))
    assert str(path) in text
    assert path.read_bytes() == NOT_LEDGERS[content]


@pytest.mark.parametrize("call", EVERY)
def test_another_sqlite_file_is_not_a_ledger(path, call):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE birds (name)")
    connection.close()
    before = path.read_bytes()
    refusal(DataError, "not-a-ledger", lambda: EVERY[call](Ledger(path)))
    assert path.read_bytes() == before


@pytest.mark.parametrize("call", EVERY)
def test_places_that_cannot_hold_a_ledger(tmp_path, call):
    refusal(OutputError, "not-a-file", lambda: EVERY[call](Ledger(tmp_path)))
    for missing in (tmp_path / "no" / "ledger", tmp_path / "file" / "ledger"):
        (tmp_path / "file").touch()
        with pytest.raises(OutputError) as caught:
            EVERY[call](Ledger(missing))
        assert str(missing) in caught.value.message
        assert caught.value.hint


@pytest.fixture
def not_root():
    """File modes mean nothing to root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_ledger_that_may_not_be_written_can_be_read(not_root, monkeypatch):
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as state,
        tempfile.TemporaryDirectory(dir="/tmp") as folder,  # tmp_path is root's alone
    ):
        monkeypatch.setenv("EIGENVEIL_STATE", state)
        path = Path(folder) / "ledger"
        ledger = with_budget(path)
        begin(ledger, key_of(), COST)
        calls = {**WRITES, "begin": lambda ledger: begin(ledger, key_of("s2"), COST)}
        for mode, folder_mode in ((0o400, 0o700), (0o600, 0o500)):  # then no journal can be made
            path.chmod(mode)
            Path(folder).chmod(folder_mode)
            assert ledger.verify().holds
            for call in calls.values():
                refusal(OutputError, "ledger-not-writable", lambda call=call: call(ledger))
        elsewhere = Ledger(path.parent / "new")
        refusal(OutputError, "cannot-write", lambda: begin(elsewhere, key_of(), COST))
        Path(folder).chmod(0o700)
        path.chmod(0o000)
        for call in EVERY.values():
            refusal(OutputError, "ledger-not-writable", lambda call=call: call(ledger))
        path.chmod(0o600)
        assert [entry.kind for entry in ledger.entries()] == ["budget", "begin"]


def test_a_damaged_file_is_said_to_be(in_filled_file, path):
    whole = path.read_bytes()
    for page in range(1, len(whole) // 4096):
        path.write_bytes(whole[: 4096 * page] + b"\xff" * 4096 + whole[4096 * (page + 1) :])
        assert _damage(in_filled_file) in ("found", "ledger-damaged"), page


def _damage(ledger):
    try:
        return "" if ledger.verify().holds else "found"
    except DataError as error:
        return error.code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("DELETE FROM ledger_head", "ledger-damaged"),
        ("DROP TABLE ledger_states", "ledger-damaged"),
        ("UPDATE ledger_head SET count = 'many'", "ledger-damaged"),
        ("UPDATE ledger_head SET format = 'eigenveil-ledger-9'", "other-format"),
    ],
)
def test_a_ledger_without_its_head_or_tables(in_file, path, change, code):
    connection = sqlite3.connect(path)
    connection.execute(change)
    connection.commit()
    connection.close()
    refusal(DataError, code, lambda: begin(in_file, key_of(), COST))
    refusal(DataError, code, in_file.verify)


def test_a_ledger_that_another_process_holds(in_file, path, monkeypatch):
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.05)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    text = refusal(OutputError, "ledger-busy", lambda: begin(in_file, key_of(), COST))
    assert str(path) in text
    assert in_file.verify().holds
    holder.execute("ROLLBACK")
    holder.close()
    begin(in_file, key_of(), COST)


def test_what_is_charged_outlasts_a_power_failure(in_file, path, forced):
    def settings(ledger):
        names = ("synchronous", "journal_mode", "secure_delete")
        with ledger.store.reading() as tables:
            return [tables.run(f"PRAGMA {name}").fetchone()[0] for name in names]

    assert settings(in_file) == [3, "delete", 1]
    assert settings(Ledger(path, durable=False)) == [0, "memory", 0]


def test_a_thousand_ledgers_hold_no_file_open(tmp_path):
    many = [Ledger(tmp_path / f"{round_number % 10}") for round_number in range(1000)]
    for ledger in many[:10]:
        ledger.set_budget(budget_of(room_for(1, COST)))
        begin(ledger, key_of(), COST)
    listing = [ledger.entries() for ledger in many[::4]]
    for entries in listing:
        next(entries)
    assert _open_below(tmp_path) == []
    with sqlite3.connect(tmp_path / "0") as held:
        held.execute("SELECT count(*) FROM sqlite_master").fetchone()
        assert _open_below(tmp_path), "an open file is not seen, so the test above could not fail"
    held.close()


def _open_below(folder):
    """The files below ``folder`` this process holds open: those of other tests come and go."""
    listing = Path("/proc/self/fd")
    if not listing.is_dir():
        pytest.skip("this system does not list the open files of a process")
    held = []
    for entry in listing.iterdir():
        try:
            target = entry.readlink()
        except FileNotFoundError:  # the listing's own, closed since
            continue
        if target.is_relative_to(folder):
            held.append(target)
    return held


def test_a_ledger_does_not_move_with_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("ledger")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    ledger.set_budget(budget_of(1.0))
    assert (tmp_path / "ledger").exists()


@pytest.mark.parametrize("name", ["a b", "50%", "what?", "#1", "größe", "x&mode=ro"])
def test_odd_file_names(tmp_path, name):
    ledger = Ledger(tmp_path / name)
    ledger.set_budget(budget_of(1.0))
    assert ledger.verify().holds
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_an_sqlite_url_is_its_file(path):
    Ledger(path).set_budget(budget_of(1.0))
    assert Ledger(f"sqlite:///{path}").budget(ROWS) == budget_of(1.0)
    refusal(OutputError, "no-ledger", lambda: Ledger(f"sqlite:///{path}2").standings())
    assert not path.with_name(path.name + "2").exists()


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("sqlite://", "no-file-of-ledger"),
        ("sqlite:///:memory:", "no-file-of-ledger"),
        ("sqlite:///file:x?uri=true", "no-file-of-ledger"),
        ("://x", "bad-url"),
        ("postgresql+psycopg://me:hush@host:port/x", "bad-url"),
        ("nodatabase://me:hush@host/x", "no-driver"),
    ],
)
def test_urls_that_name_no_ledger(url, code):
    text = refusal(OutputError, code, lambda: Ledger(url).standings())
    assert "hush" not in text


def test_postgresql_is_asked_through_the_driver_of_the_extra():
    """Whatever the version of SQLAlchemy takes by itself."""
    assert Ledger("postgresql://me:hush@host/x").name == "postgresql://me:***@host/x"


def test_a_server_that_does_not_answer(tmp_path):
    pytest.importorskip("psycopg")
    url = f"postgresql+psycopg://me:hush@/x?host={tmp_path}"
    text = refusal(OutputError, "database-refused", lambda: Ledger(url).standings())
    assert "hush" not in text
    assert "\n" not in text


def test_secrets_are_gone_from_the_file_when_a_session_has_ended(in_file, path):
    begin(in_file, key_of(), COST, state=b"the first secret" * 600)
    commit(in_file, key_of(), reply=b"a long reply" * 900, state=b"the next secret" * 700)
    assert b"the next secret" in path.read_bytes()
    in_file.end(key_of(), "done")
    left = path.read_bytes()
    for secret in (b"the first secret", b"the next secret", b"a long reply"):
        assert secret not in left


# -- any history


def _beyond(reserve, charged):
    """What a reservation is exceeded by; a pure loss pays for its sampler."""

    def parts(loss):
        sampler = loss.log_ratio if loss.mu_squared else 0.0
        return (loss.mu_squared, loss.pure + 2 * loss.log_ratio, sampler, loss.distance)

    return any(c > r * (1 + 1e-12) for c, r in zip(parts(charged), parts(reserve), strict=True))
