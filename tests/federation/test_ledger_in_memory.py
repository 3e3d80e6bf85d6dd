"""Ledgers that are thrown away with their process keep the rules of those in files."""

import functools
import threading

import pytest

from eigenveil.errors import BudgetExceeded, PrivacyError, ProtocolError
from eigenveil.federation.ledger.ledger import Draft, Ledger
from eigenveil.federation.ledger.memory import MemoryStore, MemoryTables
from eigenveil.federation.ledger.tables import Tables
from eigenveil.privacy.accountant import Loss
from ledger_tools import COST, ONE, ROWS, begin, commit, key_of, release, with_budget
from refusal_tools import refuses


@pytest.fixture(params=["file", "memory"])
def ledger(request, tmp_path):
    return with_budget(tmp_path / "ledger" if request.param == "file" else MemoryStore())


def seen(ledger):
    """Everything that counts."""
    return [(each.key, each.outcome, each.releases()) for each in ledger.sessions()], [
        (each.spent, each.reserved) for each in ledger.standings()
    ]


def test_what_was_charged_and_is_left_is_the_same_as_in_a_file(tmp_path):
    found = []
    for place in (tmp_path / "ledger", MemoryStore()):
        ledger = with_budget(place)
        begin(ledger, key_of("s1"), Loss.total([COST] * 2))
        commit(ledger, key_of("s1"), charges=[ONE], state=b"next")
        assert ledger.state(key_of("s1")) == b"next"
        found.append(seen(ledger))
        ledger.end(key_of("s1"), "done")
        found.append(seen(ledger))
    assert found[:2] == found[2:]
    assert found[0] != found[1]


def test_no_more_than_the_budget_is_reserved_and_no_more_than_that_is_charged(ledger):
    with pytest.raises(PrivacyError):
        begin(ledger, key_of("s1"), Loss.total([COST] * 5))
    begin(ledger, key_of("s1"), COST)
    before = seen(ledger)
    made = []
    with pytest.raises(BudgetExceeded):
        ledger.commit(
            key_of("s1"),
            "round 1",
            request=b"request",
            draft=lambda *_: Draft(lambda: made.append(1), charges=[ONE, release(0.1)]),
        )
    assert not made
    assert seen(ledger) == before
    begin(ledger, key_of("s2"), Loss.total([COST] * 4))  # of one study: the other is replaced
    assert [each.outcome for each in ledger.sessions()] == ["replaced", None]


def test_an_answer_is_made_once(ledger):
    begin(ledger, key_of("s1"), Loss.total([COST] * 2))
    commit(ledger, key_of("s1"), charges=[ONE], request=b"one")
    commit(ledger, key_of("s1"), "round 2", settles=["round 1"])
    before = seen(ledger)
    for request, code in ((b"one", "already-settled"), (b"two", "step-differs")):
        with refuses(code, kind=ProtocolError):
            commit(ledger, key_of("s1"), charges=[ONE], request=request)
    assert seen(ledger) == before


def test_when_making_fails_nothing_happened(ledger):
    begin(ledger, key_of("s1"), COST)
    before = seen(ledger)

    def fails():
        raise ProtocolError("no-answer")

    with pytest.raises(ProtocolError, match="answer"):
        ledger.commit(
            key_of("s1"),
            "round 1",
            request=b"request",
            draft=lambda *_: Draft(fails, charges=[ONE]),
        )
    assert seen(ledger) == before
    commit(ledger, key_of("s1"), charges=[ONE])


def test_a_last_answer_ends_its_session(ledger):
    begin(ledger, key_of("s1"), COST)
    commit(ledger, key_of("s1"), charges=[ONE])
    last = Draft(lambda: (b"bye", None), ends="done")
    words = {"request": b"over", "draft": lambda *_: last}
    assert ledger.commit(key_of("s1"), "end", **words) == b"bye"
    ((_, outcome, releases),) = seen(ledger)[0]
    assert (outcome, releases) == ("done", (ONE,))
    assert not ledger.standings()[0].reserved.mu_squared


def test_an_ended_session_has_no_state_and_answers_nothing(ledger):
    begin(ledger, key_of("s1"), COST)
    ledger.end(key_of("s1"), "done")
    for ask in (lambda: ledger.state(key_of("s1")), lambda: commit(ledger, key_of("s1"))):
        with refuses("session-ended", kind=ProtocolError):
            ask()


def test_a_copy_goes_on_by_itself():
    first = MemoryStore()
    with_budget(first)
    ledgers = [Ledger(first.copy()) for _ in range(2)]
    begin(ledgers[0], key_of("s1"), COST)
    commit(ledgers[0], key_of("s1"), charges=[ONE])
    assert not ledgers[1].sessions()
    assert not Ledger(first).sessions()
    assert ledgers[1].books().is_untouched(ROWS)
    with pytest.raises(ProtocolError, match="s1"):
        commit(ledgers[1], key_of("s1"))


def test_no_thread_takes_anothers_charge_back(ledger):
    begin(ledger, key_of("s1"), COST)
    begin(ledger, key_of("s2", "other"), COST)
    charge = functools.partial(commit, ledger, key_of("s1"), charges=[ONE])
    thread = threading.Thread(target=charge)
    with ledger.store.writing() as tables:
        thread.start()
        thread.join(0.2)  # it has to wait
        tables.end(key_of("s2", "other"), "done")
    thread.join()
    assert [len(each.releases()) for each in ledger.sessions()] == [1, 0]
    assert [each.outcome for each in ledger.sessions()] == [None, "done"]


def test_a_transaction_that_breaks_off_after_a_change_changed_nothing(ledger, monkeypatch):
    begin(ledger, key_of("s1"), COST)
    before = seen(ledger)

    def fails(*_):
        raise ProtocolError("no-answer")

    with monkeypatch.context() as patched:  # the last thing that is written
        for tables in (Tables, MemoryTables):
            patched.setattr(tables, "keep_reply", fails)
        with pytest.raises(ProtocolError):
            commit(ledger, key_of("s1"), charges=[ONE], state=b"next")
    assert seen(ledger) == before
    assert ledger.state(key_of("s1")) == b"state"
    commit(ledger, key_of("s1"), charges=[ONE])
