"""Somebody cuts a ledger, its answers and its head, and also reaches for the second place of heads.

Would have found: a second place that holds no head at all, and was taken for one that agrees; a
site that goes on with a cut ledger, or an old copy, though the second place knew of more; a charge
that was made before it turned out that the second place was gone; timestamps of another ledger, of
another authority or of a certificate for something else, and changed ones; and heads that were
noted long after the entries they are of; and a ledger whose owner named no such place, which had
none. Each place is tried: a file, a database (SQLite stands in; PostgreSQL's own is in the tests of
the ledger), a file with timestamps, and the usual one.
"""

import base64
import datetime
import json
import shutil
import sqlite3
import subprocess

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from authority_tools import TestAuthority, needed
from eigenveil.errors import DataError, EigenveilError, OutputError
from eigenveil.federation.ledger import heads_stamped
from eigenveil.federation.ledger.heads import HeadsFile, UsualHeads
from eigenveil.federation.ledger.heads_stamped import Authority, NotItsTimestamp, StampedHeads
from eigenveil.federation.ledger.heads_table import HeadsTable
from eigenveil.federation.ledger.ledger import Budget, Draft, Ledger, SessionKey
from eigenveil.federation.ledger.tables import Head
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.releases import Noise, ReleaseRecord

RELEASE = ReleaseRecord(
    name="row norms",
    statistic="norm-histogram",
    adjacency="add-remove",
    noise=Noise(kind="gaussian", scale=8.0, size=10, grid=-24),
)
KEY = SessionKey("9f" * 32, "s1")
PLACES = ("file", "table", "stamped", "usual")


@pytest.fixture(scope="module")
def authority():
    needed()
    with TestAuthority().serving() as serving:
        yield serving


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(heads_stamped, "_PAUSE", 0.0)


class Place:
    """A second place, and what whoever can write it does there."""

    def __init__(self, kind, folder, authority=None, ledger=None):
        self.kind, self.path = kind, folder / f"heads.{kind}"
        if kind == "stamped":
            known = Authority(authority.pem(folder / "root.pem"), authority.url)
            self.open = lambda: StampedHeads(self.path, known)
        elif kind == "table":
            self.open = lambda: HeadsTable(f"sqlite:///{self.path}?ledger=north")
        elif kind == "usual":
            self.open = lambda: "usual"
            self.path = UsualHeads(str(ledger))._path
        else:
            self.open = lambda: HeadsFile(self.path)

    def heads(self):
        return HeadsFile(self.path) if self.kind == "usual" else self.open()

    def forget(self, *numbers):
        """Take heads away."""
        if self.kind == "table":
            with sqlite3.connect(self.path) as connection:
                connection.execute("DROP TRIGGER eigenveil_heads_no_DELETE")
                for number in numbers:
                    query = "DELETE FROM eigenveil_heads WHERE number = ?"
                    assert connection.execute(query, (number,)).rowcount == 1
            connection.close()
            return
        lines = self.path.read_text().splitlines()
        kept = [line for line in lines if json.loads(line)["number"] not in numbers]
        assert len(kept) == len(lines) - len(numbers)
        self.path.write_text("".join(f"{line}\n" for line in kept))

    def away(self):
        """It cannot be reached."""
        self.path.rename(self.path.with_suffix(".away"))
        self.path.mkdir()

    def back(self):
        self.path.rmdir()
        self.path.with_suffix(".away").rename(self.path)


@pytest.fixture(params=PLACES)
def place(request, tmp_path, path):
    needs = request.getfixturevalue("authority") if request.param == "stamped" else None
    return Place(request.param, tmp_path, needs, path)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def ledger(path, place):
    """Two rounds are answered; what was before the second is kept in ``path.old``."""
    made = started(path, place.open())
    answer(made, "round 1")
    shutil.copy(path, path.with_suffix(".old"))
    answer(made, "round 2")
    found = made.verify()
    assert found.holds
    assert "All 4 heads" in found.explanation
    assert "not noted" not in found.explanation
    assert ("later than" in found.explanation) == (place.kind in ("table", "stamped"))
    return made


def started(path, heads, *, epsilon=3.0):
    made = Ledger(path, heads=heads)
    made.set_budget(Budget("rows", "add-remove", epsilon, 1e-6))
    reserve = Loss.total([Loss.of(RELEASE)] * 4)
    made.begin(KEY, data_set="rows", adjacency="add-remove", reserve=reserve, state=b"secret")
    return made


def answer(ledger, step, made=None):
    def make():
        if made is not None:
            made.append(step)
        return step.encode(), None

    return ledger.commit(
        KEY, step, request=step.encode(), draft=lambda *_: Draft(make, charges=[RELEASE])
    )


def cut(path):
    """The last charge, its answer and the head in the ledger: all that tells of it there."""
    connection = sqlite3.connect(path)
    for statement in (
        "DROP TRIGGER ledger_entries_no_update",
        "DROP TRIGGER ledger_entries_no_delete",
        "DELETE FROM ledger_entries WHERE number = 4",
        "UPDATE ledger_head SET count = 3, hash = "
        "(SELECT hash FROM ledger_entries WHERE number = 3)",
        "DELETE FROM ledger_replies WHERE step = 'round 2'",
    ):
        connection.execute(statement)
    connection.commit()
    connection.close()
    assert Ledger(path, heads=None).verify().holds  # nothing in the ledger can tell


def code_of(call, *words, **more):
    with pytest.raises(EigenveilError) as caught:
        call(*words, **more)
    return caught.value.code


# -- the ledger is cut


def test_a_charge_with_its_answer_and_the_head_is_missed(ledger, path, place):
    cut(path)
    found = Ledger(path, heads=place.open()).verify()
    assert not found.holds
    assert "Entry 4, noted elsewhere, is missing" in found.explanation


@pytest.mark.parametrize("how", ["cut", "old copy"])
def test_a_site_does_not_go_on_with_a_ledger_that_lacks_a_charge(ledger, path, place, how):
    """It would answer round 2 again, with new noise; nothing is made, and nothing charged."""
    if how == "cut":
        cut(path)
    else:
        shutil.copy(path.with_suffix(".old"), path)
    made, going_on = [], Ledger(path, heads=place.open())
    for step in ("round 2", "round 3"):
        assert code_of(answer, going_on, step, made) == "heads-differ"
    assert code_of(going_on.note_head) == "heads-differ"
    assert code_of(going_on.end, KEY, "done") == "heads-differ"
    assert not made
    assert len(list(Ledger(path, heads=None).entries())) == 3


def test_a_site_does_not_go_on_after_an_old_copy_was_used_elsewhere(ledger, path, place):
    """As many entries as before, or more: only the hash tells."""
    shutil.copy(path.with_suffix(".old"), path)
    answer(Ledger(path, heads=None), "round 2")
    assert code_of(answer, Ledger(path, heads=place.open()), "round 3") == "heads-differ"
    answer(Ledger(path, heads=None), "round 3")
    found = Ledger(path, heads=place.open()).verify()
    assert not found.holds
    assert "Entry 4 is another one" in found.explanation


def test_a_ledger_that_is_made_anew_is_not_the_one_that_was_noted(ledger, path, place):
    path.unlink()
    assert code_of(started, path, place.open(), epsilon=9.0) == "heads-differ"
    empty = started(path, None, epsilon=9.0)
    assert empty.verify().holds
    assert not Ledger(path, heads=place.open()).verify().holds
    for step in ("round 1", "round 2", "round 3"):
        answer(empty, step)
    assert not Ledger(path, heads=place.open()).verify().holds


# -- the second place is cut


def test_a_head_taken_from_the_middle_is_covered_by_the_next(ledger, path, place):
    place.forget(2)
    found = ledger.verify()
    assert found.holds
    assert "All 3 heads" in found.explanation
    assert "not noted" not in found.explanation
    cut(path)
    assert not ledger.verify().holds


def test_the_last_heads_taken_away_are_told_of(ledger, path, place):
    place.forget(3, 4)
    found = ledger.verify()
    assert found.holds
    assert "not noted there (2 of 4 entries)" in found.explanation
    Ledger(path, heads=place.open()).note_head()
    found = ledger.verify()
    assert "All 3 heads" in found.explanation
    assert "not noted" not in found.explanation


def test_a_second_place_without_a_head_agrees_with_nothing(ledger, place):
    place.forget(1, 2, 3, 4)
    found = ledger.verify()
    assert found.holds == (place.kind == "usual")  # nobody named it: nothing may have been noted
    assert ("no head of it is noted" if found.holds else "No head") in found.explanation


# -- the second place is gone


def test_nothing_is_charged_while_the_second_place_is_gone(ledger, path, place):
    place.away()
    made, going_on = [], Ledger(path, heads=place.open())
    for _ in range(2):
        assert isinstance(code_of(answer, going_on, "round 3", made), str)
    assert not made
    assert len(list(Ledger(path, heads=None).entries())) == 4
    place.back()
    assert answer(going_on, "round 3", made) == b"round 3"
    assert "All 5 heads" in going_on.verify().explanation


def test_no_ledger_is_made_where_its_heads_cannot_be_kept(path, place):
    place.path.mkdir(parents=True)
    with pytest.raises(OutputError):
        started(path, place.open())
    assert not path.exists()


def test_no_ledger_is_made_where_no_state_can_be_kept(path, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("EIGENVEIL_STATE", str(tmp_path / "file" / "state"))
    with pytest.raises(OutputError, match="Not a directory") as caught:
        started(path, "usual")
    assert "EIGENVEIL_STATE" in caught.value.hint
    assert not path.exists()


def test_what_was_charged_when_it_failed_stays_and_is_answered_later(ledger, path, place):
    """Gone between the charge and the note: the answer waits, made once and charged once."""

    class Fails:
        """A place that can be read, not added to."""

        named = True

        def __init__(self, inner):
            self.inner = inner

        def note(self, head, *, last=False):
            if head.count == 5:
                raise OutputError("gone", code="cannot-write")
            self.inner.note(head, last=last)

        def read(self):
            return self.inner.read()

    made = []
    going_on = Ledger(path, heads=Fails(place.heads()))
    for _ in range(2):  # asked again: it still does not leave
        assert code_of(answer, going_on, "round 3", made) == "cannot-write"
    assert made == ["round 3"]
    assert code_of(answer, going_on, "round 4", made) == "cannot-write"  # nor is more charged
    assert len(list(Ledger(path, heads=None).entries())) == 5
    assert "not noted there (1 of 5 entries)" in going_on.verify().explanation
    again = Ledger(path, heads=place.open())
    assert answer(again, "round 4", made) == b"round 4"  # notes what is missing first
    assert answer(again, "round 3", made) == b"round 3"
    assert made == ["round 3", "round 4"]
    assert [head.count for head in place.heads().read()] == [1, 2, 3, 4, 5, 6]
    assert again.verify().holds


def test_an_authority_that_is_gone_holds_back_one_charge(path, authority, tmp_path):
    """It is not asked before a charge, so one is made; its answer waits, and no more are made."""
    place = Place("stamped", tmp_path, authority)
    ledger, made = started(path, place.open()), []

    def gone(request):
        raise OSError

    authority.last_error = gone
    try:
        for step in ("round 1", "round 1", "round 2"):
            assert code_of(answer, ledger, step, made) == "no-timestamp"
        assert made == ["round 1"]
        assert len(list(ledger.entries())) == 3
    finally:
        authority.last_error = None
    for step in ("round 2", "round 1"):
        assert answer(ledger, step, made) == step.encode()
    assert made == ["round 1", "round 2"]
    assert "All 4 heads" in ledger.verify().explanation


# -- timestamps


HEAD = Head(7, "ab" * 32)


@pytest.fixture
def known(authority, tmp_path):
    authority.last_error, authority.clock = None, lambda: datetime.datetime.now(datetime.UTC)
    return Authority(authority.pem(tmp_path / "known.pem"), authority.url)


def test_a_changed_timestamp_does_not_hold(known):
    """Every byte is changed once: what remains says what it said, or is refused."""
    token = known.stamp(HEAD)
    when = known.check(token, HEAD)
    refused = 0
    for number in range(len(token)):
        changed = token[:number] + bytes([token[number] ^ 0x11]) + token[number + 1 :]
        try:
            assert known.check(changed, HEAD) == when
        except NotItsTimestamp:
            refused += 1
    assert refused > 0.9 * len(token)
    for cutoff in range(0, len(token), 7):
        with pytest.raises(NotItsTimestamp):
            known.check(token[:cutoff], HEAD)


def test_a_timestamp_of_another_head_or_ledger(known, authority, tmp_path):
    place = StampedHeads(tmp_path / "heads", known)
    place.note(HEAD)
    other = json.loads((tmp_path / "heads").read_text())
    other["hash"] = "cd" * 32
    (tmp_path / "heads").write_text(json.dumps(other) + "\n")
    with pytest.raises(DataError) as caught:
        place.read()
    assert caught.value.code == "timestamp-wrong"
    assert "entry 7" in caught.value.message
    assert "something else" in caught.value.message


def test_heads_of_another_ledger_with_its_timestamps(known, tmp_path):
    one = started(tmp_path / "one", StampedHeads(tmp_path / "one.heads", known))
    started(tmp_path / "two", StampedHeads(tmp_path / "two.heads", known))
    shutil.copy(tmp_path / "two.heads", tmp_path / "one.heads")
    assert not one.verify().holds


def test_another_authority_and_another_use_of_its_certificates(known, tmp_path):
    place = StampedHeads(tmp_path / "heads", known)
    place.note(HEAD)
    others = (TestAuthority(), TestAuthority(usage=ExtendedKeyUsageOID.CODE_SIGNING))
    with others[0].serving(), others[1].serving():
        for other in others:
            its = Authority(other.pem(tmp_path / "other.pem"), other.url)
            assert code_of(StampedHeads(tmp_path / "heads", its).read) == "timestamp-wrong"
        mixed = Authority(tmp_path / "known.pem", others[0].url)
        assert code_of(mixed.stamp, HEAD) == "no-timestamp"
        its = Authority(other.pem(tmp_path / "other.pem"), others[1].url)
        assert code_of(its.stamp, HEAD) == "no-timestamp"  # signed, but not for timestamps
    assert [head.count for head in place.read()] == [7]


def test_a_token_is_one_to_another_program_too(known, tmp_path):
    """Nobody has to trust this package: OpenSSL checks the same bytes."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl program is not installed")
    (tmp_path / "token").write_bytes(known.stamp(HEAD))
    (tmp_path / "hash").write_text(HEAD.hash)
    words = ["ts", "-verify", "-data", "hash", "-in", "token", "-CAfile", "known.pem"]
    found = subprocess.run([openssl, *words], cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    (tmp_path / "hash").write_text("cd" * 32)
    assert subprocess.run([openssl, *words], cwd=tmp_path, capture_output=True).returncode


def test_an_answer_that_was_recorded_before_is_not_taken(known, authority):
    """It says an older time than now, and would hold: the nonce tells."""
    old = known.stamp(HEAD)
    authority.last_error = lambda request: old
    assert code_of(known.stamp, HEAD) == "no-timestamp"
    assert known.check(old, HEAD)


@pytest.mark.parametrize("found", [b"", b"<html>", b"0" * 2**20, bytes.fromhex("30053003020102")])
def test_what_is_no_timestamp_is_not_kept(known, authority, tmp_path, found):
    authority.last_error = lambda request: found
    place = StampedHeads(tmp_path / "heads", known)
    assert code_of(place.note, HEAD) == "no-timestamp"
    assert (tmp_path / "heads").read_bytes() == b""


def test_a_moment_of_trouble_is_tried_again(known, authority):
    def first_fails(request):
        authority.last_error = None
        raise OSError

    authority.last_error = first_fails
    assert known.check(known.stamp(HEAD), HEAD)


def test_lines_without_their_timestamp(known, tmp_path):
    heads = tmp_path / "heads"
    StampedHeads(heads, known).note(HEAD)
    assert code_of(HeadsFile(heads).read) == "other-heads"  # nobody overlooks that they are there
    line = json.loads(heads.read_text())
    del line["timestamp"]
    heads.write_text(json.dumps(line) + "\n")
    assert code_of(StampedHeads(heads, known).read) == "other-heads"
    for wrong in (7, None, "no base64", base64.b64encode(b"nothing").decode()):
        heads.write_text(json.dumps({**line, "timestamp": wrong}) + "\n")
        assert code_of(StampedHeads(heads, known).read) in ("heads-damaged", "timestamp-wrong")


def test_heads_in_another_order_than_their_times(known, authority, path, tmp_path):
    heads = StampedHeads(tmp_path / "heads", known)
    ledger = started(path, heads)
    authority.clock = lambda: datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    answer(ledger, "round 1")
    found = ledger.verify()
    assert not found.holds
    assert "Entry 3 was noted elsewhere earlier than one before it" in found.explanation


def test_a_ledger_written_anew_is_noted_late(known, authority, path, tmp_path):
    """Entries say what their writer likes; the authority says when they were there."""
    authority.clock = lambda: (
        datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=40, hours=1)
    )
    ledger = started(path, StampedHeads(tmp_path / "heads", known))
    assert "none later than 3459" in ledger.verify().explanation
