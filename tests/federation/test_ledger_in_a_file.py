"""A ledger in an SQLite file: what is changed in it is found, and no other file becomes one."""

import json
import os
import sqlite3
import stat
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from eigenveil.errors import DataError, OutputError
from eigenveil.federation.ledger import store
from eigenveil.federation.ledger.entries import EndBody, seal
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.privacy.accountant import Loss
from ledger_tools import (
    COST,
    ROWS,
    begin,
    budget_of,
    commit,
    filled,
    key_of,
    refused,
    room_for,
    tamper,
    with_budget,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


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


# -- what is changed is found

CHANGES = [
    "number = number + 100",
    "time = '2020-01-01T00:00:00.000+00:00'",
    "kind = 'begin_'",
    "body = replace(body, 'a', 'b')",
    "body = replace(body, '0.', '1.')",
    "body = body || ' '",
    "body = CAST(body AS BLOB)",
    "body = '{'",
    "time = CAST(time AS BLOB)",
    "previous = replace(previous, substr(previous, 1, 1), 'x')",
    "hash = upper(hash)",
    "hash = ''",
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_any_field_of_any_entry_is_found(in_filled_file, path, filled_file, change):
    for entry in list(in_filled_file.entries()):
        if "'0.'" in change and "0." not in json.dumps(entry.body):
            continue
        path.write_bytes(filled_file)
        tamper(path, f"UPDATE ledger_entries SET {change} WHERE number = {entry.number}")
        verdict = in_filled_file.verify()
        assert not verdict.holds
        assert verdict.wrong == entry.number, verdict
        # and nothing is begun on such a ledger
        refused("chain-broken", begin, in_filled_file, key_of(study="b2"), Loss())
        refused("chain-broken", in_filled_file.standings)


def test_a_missing_entry_is_found_and_one_that_was_sealed_again(in_filled_file, path, filled_file):
    entries = list(in_filled_file.entries())
    for entry in entries:
        path.write_bytes(filled_file)
        tamper(path, f"DELETE FROM ledger_entries WHERE number = {entry.number}")
        verdict = in_filled_file.verify()
        assert (verdict.holds, verdict.wrong) == (False, entry.number)
        path.write_bytes(filled_file)
        time = "2020-01-01T00:00:00.000+00:00"
        new = seal(entry.number, time, entry.kind, entry.body, entry.previous)
        tamper(
            path,
            f"UPDATE ledger_entries SET time = '{time}', hash = '{new.hash}' "
            f"WHERE number = {entry.number}",
        )
        # the one after it does not follow; of the last one the head knows the hash
        assert in_filled_file.verify().wrong == min(entry.number + 1, len(entries))


def test_a_cut_chain_with_a_new_end_is_found(in_filled_file, path):
    tamper(path, "DELETE FROM ledger_entries WHERE number = 8")
    refused("chain-broken", in_filled_file.set_budget, budget_of(9.0))
    in_filled_file.end_study("a1")
    assert in_filled_file.verify().wrong == 8


FOUND = {
    "UPDATE ledger_head SET count = count + 1": 9,
    "UPDATE ledger_head SET count = count - 1": 8,
    "UPDATE ledger_head SET hash = upper(hash)": 8,
    "UPDATE ledger_replies SET reply = x'00' WHERE step = 'round 2'": None,
    "UPDATE ledger_replies SET reply = x'00' WHERE session = 's1'": None,
    "UPDATE ledger_replies SET reply_hash = 'x' WHERE step = 'keys'": 6,
    "INSERT INTO ledger_replies (study, session, step, request_hash, reply_hash) SELECT study, "
    "session, 'round 3', request_hash, reply_hash FROM ledger_replies WHERE session = 's2' LIMIT 1":
        None,
    "DELETE FROM ledger_replies WHERE session = 's1'": 3,
    "UPDATE ledger_replies SET session = 's0' WHERE step = 'round 2'": 8,
    "UPDATE ledger_replies SET request_hash = 'x' WHERE step = 'keys'": 6,
    "UPDATE ledger_replies SET request_hash = 'x' WHERE step = 'round 2'": 8,
    "UPDATE ledger_states SET state = x'00'": None,
    "DELETE FROM ledger_states": None,
    "UPDATE ledger_states SET session = 's1'": None,
    "UPDATE ledger_entries SET session = 's1' WHERE number = 6": 6,
    "UPDATE ledger_entries SET study = NULL WHERE number = 4": 4,
}  # fmt: skip


@pytest.mark.parametrize("change", FOUND)
def test_a_changed_head_and_tables_that_do_not_go_with_the_chain_are_found(
    in_filled_file, path, change
):
    tamper(path, change)
    verdict = in_filled_file.verify()
    assert (verdict.holds, verdict.wrong) == (False, FOUND[change])
    assert verdict.explanation


def test_entries_that_never_could_have_been_are_found(in_filled_file):
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
    refused("ledger-damaged", in_filled_file.state, key_of("s2"))


def test_a_damaged_file_is_said_to_be(in_filled_file, path, filled_file):
    for page in range(1, len(filled_file) // 4096):
        after = filled_file[4096 * (page + 1) :]
        path.write_bytes(filled_file[: 4096 * page] + b"\xff" * 4096 + after)
        try:
            found = in_filled_file.verify()
        except DataError as error:
            found = error
        assert getattr(found, "code", "") == "ledger-damaged" or not found.holds, page


def test_an_error_that_is_kept_holds_no_lock(in_filled_file, path):
    """As a console keeps one: its traceback has the query that it came out of."""
    tamper(path, "UPDATE ledger_entries SET hash = '' WHERE number = 2")
    kept = refused("chain-broken", in_filled_file.standings)
    with closing(sqlite3.connect(path, timeout=0.05, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
    del kept


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
    refused(code, begin, in_file, key_of(), COST)
    refused(code, in_file.verify)


# -- files

READS = [
    lambda ledger: ledger.budget(ROWS),
    Ledger.standings,
    Ledger.sessions,
    lambda ledger: ledger.state(key_of()),
    lambda ledger: ledger.answered(key_of(), "round 1"),
    lambda ledger: list(ledger.entries()),
    Ledger.verify,
    lambda ledger: commit(ledger, key_of()),
    lambda ledger: ledger.end(key_of(), "done"),
    lambda ledger: ledger.end_study("a1"),
]
MAKES = [
    lambda ledger: ledger.set_budget(budget_of(1.0)),
    lambda ledger: begin(ledger, key_of("s2"), COST),
]
WRITES = [*READS[-3:], *MAKES]
EVERY = [*READS, *MAKES]


def test_looking_does_not_make_a_ledger(path):
    for call in READS:
        refused("no-ledger", call, Ledger(path))
        assert not path.exists()
        path.touch()  # what a process killed while it made the file leaves
        refused("no-ledger", call, Ledger(path))
        assert path.stat().st_size == 0
        path.unlink()


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


def another_database(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE birds (name)")
    connection.close()


NOT_LEDGERS = {
    "a line": lambda path: path.write_bytes(b"epsilon,delta\n1,1e-6\n"),
    "text": lambda path: path.write_bytes(b"This is the diary of a data owner.\n" * 300),
    "noise": lambda path: path.write_bytes(bytes(range(256)) * 64),
    "another database": another_database,
}


@pytest.mark.parametrize("content", NOT_LEDGERS)
def test_other_files_are_not_ledgers_and_stay_as_they_are(path, content):
    NOT_LEDGERS[content](path)
    path.chmod(0o644)
    before = path.read_bytes()
    for call in EVERY:
        assert str(path) in refused("not-a-ledger", call, Ledger(path)).message
        assert path.read_bytes() == before
        assert content == "another database" or stat.S_IMODE(path.stat().st_mode) == 0o644


def test_places_that_cannot_hold_a_ledger(tmp_path):
    (tmp_path / "file").touch()
    for call in EVERY:
        refused("not-a-file", call, Ledger(tmp_path))
        for missing in (tmp_path / "no" / "ledger", tmp_path / "file" / "ledger"):
            with pytest.raises(OutputError) as caught:
                call(Ledger(missing))
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
        for mode, folder_mode in ((0o400, 0o700), (0o600, 0o500)):  # then no journal can be made
            path.chmod(mode)
            Path(folder).chmod(folder_mode)
            assert ledger.verify().holds
            for call in WRITES:
                refused("ledger-not-writable", call, ledger)
        refused("cannot-write", begin, Ledger(path.parent / "new"), key_of(), COST)
        Path(folder).chmod(0o700)
        path.chmod(0o000)
        for call in EVERY:
            refused("ledger-not-writable", call, ledger)
        path.chmod(0o600)
        assert [entry.kind for entry in ledger.entries()] == ["budget", "begin"]


def test_a_ledger_that_another_process_holds(in_file, path, monkeypatch):
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.05)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert str(path) in refused("ledger-busy", begin, in_file, key_of(), COST).message
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


def test_many_ledgers_hold_no_file_open(tmp_path):
    many = [Ledger(tmp_path / str(number)) for number in range(3)]
    for ledger in many:
        ledger.set_budget(budget_of(room_for(1, COST)))
        begin(ledger, key_of(), COST)
    listing = [ledger.entries() for ledger in many]
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
    refused("no-ledger", Ledger(f"sqlite:///{path}2").standings)
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
    assert "hush" not in str(refused(code, lambda: Ledger(url).standings()))


def test_secrets_are_gone_from_the_file_when_a_session_has_ended(in_file, path):
    begin(in_file, key_of(), COST, state=b"the first secret" * 600)
    commit(in_file, key_of(), reply=b"a long reply" * 900, state=b"the next secret" * 700)
    assert b"the next secret" in path.read_bytes()
    in_file.end(key_of(), "done")
    left = path.read_bytes()
    for secret in (b"the first secret", b"the next secret", b"a long reply"):
        assert secret not in left
