"""Somebody with the ledger's file takes back what was spent, or changes what is beside the chain.

Would have found: the last charge deleted together with the head (the ledger held, and the answer
was still there); changed hashes of questions and changed secrets of sessions; and, without a second
place for heads, a ledger put back from an old copy.
"""

import shutil
import sqlite3

import pytest

from eigenveil.errors import DataError, OutputError
from eigenveil.federation.ledger.entries import FIRST, canonical, seal
from eigenveil.federation.ledger.heads import HeadsFile
from eigenveil.federation.ledger.ledger import Budget, Draft, Ledger, SessionKey
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.releases import Noise, ReleaseRecord

RELEASE = ReleaseRecord(
    name="row norms",
    statistic="norm-histogram",
    adjacency="add-remove",
    noise=Noise(kind="gaussian", scale=8.0, size=10, grid=-24),
)
KEY = SessionKey("9f" * 32, "s1")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def heads(tmp_path):
    return tmp_path / "elsewhere"


@pytest.fixture
def ledger(path, heads):
    """Two rounds are answered; what was before the second is kept in ``path.old``."""
    made = Ledger(path, heads=HeadsFile(heads))
    made.set_budget(Budget("rows", "add-remove", 3.0, 1e-6))
    made.begin(
        KEY,
        data_set="rows",
        adjacency="add-remove",
        reserve=Loss.total([Loss.of(RELEASE)] * 3),
        state=b"first secret",
    )
    answer(made, "keys", charges=[])
    answer(made, "round 1")
    shutil.copy(path, path.with_suffix(".old"))
    answer(made, "round 2")
    assert made.verify(against=last(made)).holds
    return made


def answer(ledger, step, charges=(RELEASE,)):
    return ledger.commit(
        KEY,
        step,
        request=step.encode(),
        draft=lambda *_: Draft(
            lambda: (step.encode(), b"secret after " + step.encode()), charges=charges
        ),
    )


def last(ledger):
    return ledger.verify().last


def tamper(path, *statements):
    connection = sqlite3.connect(path)
    for name in ("update", "delete"):
        connection.execute(f"DROP TRIGGER ledger_entries_no_{name}")
    for statement in statements:
        assert connection.execute(statement).rowcount == 1, statement
    connection.commit()
    connection.close()


CUT = (
    "DELETE FROM ledger_entries WHERE number = 5",
    "UPDATE ledger_head SET count = 4, hash = (SELECT hash FROM ledger_entries WHERE number = 4)",
)
NO_ANSWER = "DELETE FROM ledger_replies WHERE step = 'round 2'"
OLD_STATE = "UPDATE ledger_states SET state = CAST('secret after round 1' AS BLOB)"


@pytest.mark.parametrize("more", [(), (NO_ANSWER,), (OLD_STATE,)])
def test_a_charge_taken_away_with_the_head(ledger, path, more):
    """Each alone leaves a trace in the ledger itself; both together need a head kept elsewhere."""
    tamper(path, *CUT, *more)
    found = Ledger(path, heads=None).verify()
    assert not found.holds
    assert "has no entry" in found.explanation or "state" in found.explanation


def test_a_cut_without_a_trace_is_found_by_a_hash_noted_elsewhere(ledger, path, heads):
    noted = last(ledger)
    tamper(path, *CUT, NO_ANSWER, OLD_STATE)
    assert Ledger(path, heads=None).verify().holds  # nothing in the ledger can tell
    found = Ledger(path, heads=None).verify(against=noted)
    assert not found.holds
    assert "No entry has the hash" in found.explanation
    found = Ledger(path, heads=HeadsFile(heads)).verify()
    assert not found.holds
    assert "Entry 5, noted elsewhere, is missing" in found.explanation


def test_an_old_copy_put_back_is_found_even_after_it_went_on(ledger, path, heads):
    """It would answer round 2 again, with new noise."""
    noted = last(ledger)
    shutil.copy(path.with_suffix(".old"), path)
    again = Ledger(path, heads=None)  # without the heads, so nothing stops it
    again.commit(
        KEY,
        "round 2",
        request=b"round 2",
        draft=lambda *_: Draft(lambda: (b"other", None), charges=[RELEASE]),
    )
    assert again.verify().holds
    assert not again.verify(against=noted).holds
    found = Ledger(path, heads=HeadsFile(heads)).verify()
    assert not found.holds
    assert "Entry 5 is another one" in found.explanation


def test_a_session_taken_from_the_middle_is_missed_by_heads_alone(ledger, path, heads):
    """The chain is computed anew: whoever can write the ledger's file can do that."""
    ledger.end(KEY, "done")
    later = SessionKey("9f" * 32, "s2")
    ledger.begin(later, data_set="rows", adjacency="add-remove", reserve=Loss(1e-3), state=b"s")
    noted, count, before = last(ledger), 0, FIRST
    with sqlite3.connect(path) as file:
        for name in ("update", "delete"):
            file.execute(f"DROP TRIGGER ledger_entries_no_{name}")
        file.execute("DELETE FROM ledger_entries")
        for each in [e for e in ledger.entries() if e.body.get("session") != KEY.session]:
            count += 1
            new = seal(count, each.time, each.kind, each.body, before)
            words = (new.number, new.time, new.kind, canonical(new.body), before, new.hash)
            names = (new.body.get("study"), new.body.get("session"))
            file.execute(
                "INSERT INTO ledger_entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", words + names
            )
            before = new.hash
        file.execute("UPDATE ledger_head SET count = ?, hash = ?", (count, before))
        file.execute("DELETE FROM ledger_replies WHERE session = ?", (KEY.session,))
    file.close()
    alone = Ledger(path, heads=None)
    found = alone.verify()
    assert (found.holds, found.entries) == (True, 2)  # and the budget reads as if nothing was spent
    assert "no head of it is noted elsewhere" in found.explanation
    assert not alone.verify(against=noted).holds
    known = Ledger(path, heads=HeadsFile(heads))
    assert "Entry 2 is another one" in known.verify().explanation
    with pytest.raises(DataError, match="noted there"):
        known.end(later, "done")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ledger_replies SET request_hash = 'x' WHERE step = 'round 1'",
        "UPDATE ledger_replies SET request_hash = 'x' WHERE step = 'keys'",
        "UPDATE ledger_replies SET reply_hash = 'x' WHERE step = 'keys'",
        "UPDATE ledger_replies SET reply = x'00' WHERE step = 'keys'",
        "UPDATE ledger_states SET state = x'00'",
        "INSERT INTO ledger_replies (study, session, step, request_hash, reply_hash) "
        "SELECT study, session, 'round 3', request_hash, reply_hash FROM ledger_replies LIMIT 1",
        "DELETE FROM ledger_replies WHERE step = 'keys'",
    ],
)
def test_what_is_beside_the_chain_cannot_be_changed(ledger, path, change):
    tamper(path, change)
    found = ledger.verify()
    assert not found.holds
    assert found.explanation


# -- the second place


def test_every_head_is_elsewhere_before_the_answer_leaves(path, heads):
    """And an answer whose head could not be noted does not leave, nor when it is asked again."""
    ledger = Ledger(path, heads=HeadsFile(heads))
    ledger.set_budget(Budget("rows", "add-remove", 3.0, 1e-6))
    reserve = Loss.total([Loss.of(RELEASE)] * 3)
    ledger.begin(KEY, data_set="rows", adjacency="add-remove", reserve=reserve, state=b"")
    assert [head.count for head in ledger.heads.read()] == [1, 2]
    assert heads.stat().st_mode & 0o077 == 0
    kept = heads.read_bytes()
    heads.unlink()
    heads.mkdir()  # as a disk that cannot be written
    for _ in range(2):
        with pytest.raises(OutputError) as caught:
            answer(ledger, "round 1")
        assert caught.value.code == "heads-not-written"
    heads.rmdir()
    heads.write_bytes(kept)
    assert answer(ledger, "round 1") == b"round 1"
    assert [head.count for head in ledger.heads.read()] == [1, 2, 3]
    assert ledger.verify().holds
    assert "All 3 heads" in ledger.verify().explanation


def test_heads_that_were_written_in_part(ledger, heads):
    """A power failure: the answer had not left, and the next head follows."""
    heads.write_bytes(heads.read_bytes() + b'{"number": 6, "ha')
    assert ledger.verify().holds
    ledger.end(KEY, "done")
    assert [head.count for head in ledger.heads.read()] == [1, 2, 3, 4, 5, 6]
    assert ledger.verify().holds
