"""Somebody with the ledger's file takes back what was spent, and reaches for other heads."""

import json
import shutil
import sqlite3

import pytest

from eigenveil.errors import EigenveilError, OutputError
from eigenveil.federation.ledger.entries import FIRST, canonical, seal
from eigenveil.federation.ledger.heads import HeadsFile, UsualHeads
from eigenveil.federation.ledger.ledger import Budget, Draft, Ledger
from eigenveil.privacy.accountant import Loss
from ledger_tools import ADJACENCY, begin, key_of, loss_of, refused, release, tamper

RELEASE = release(0.1)
KEY = key_of()


class Place:
    """A second place, and what whoever can write it does there."""

    def __init__(self, kind, folder, ledger):
        self.kind, self.path = kind, folder / f"heads.{kind}"
        if kind == "usual":
            self.path = UsualHeads(str(ledger))._path

    def open(self):
        return "usual" if self.kind == "usual" else self.file

    @property
    def file(self):
        return HeadsFile(self.path)

    @property
    def counts(self):
        return [head.count for head in self.file.read()]

    def forget(self, *numbers):
        """Take heads away."""
        lines = self.path.read_text().splitlines()
        kept = [line for line in lines if json.loads(line)["number"] not in numbers]
        assert len(kept) == len(lines) - len(numbers)
        self.path.write_text("".join(f"{line}\n" for line in kept))


@pytest.fixture(params=["file", "usual"])
def place(request, tmp_path, path):
    return Place(request.param, tmp_path, path)


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
    assert place.counts == [1, 2, 3, 4]
    assert place.path.stat().st_mode & 0o077 == 0
    says(made, "All 4 heads")
    assert "not noted" not in made.verify().explanation
    return made


def started(path, heads, *, epsilon=3.0):
    made = Ledger(path, heads=heads)
    made.set_budget(Budget("rows", ADJACENCY, epsilon, 1e-6))
    begin(made, KEY, Loss.total([loss_of(RELEASE)] * 4))
    return made


def answer(ledger, step, made=None, reply=None):
    def make():
        if made is not None:
            made.append(step)
        return reply or step.encode(), b"secret after " + step.encode()

    draft = Draft(make, charges=[RELEASE])
    return ledger.commit(KEY, step, request=step.encode(), draft=lambda *_: draft)


def says(ledger, text, *, holds=True, **noted):
    found = ledger.verify(**noted)
    assert found.holds is holds
    assert text in found.explanation


CUT = (
    "DELETE FROM ledger_entries WHERE number = 4",
    "UPDATE ledger_head SET count = 3, hash = (SELECT hash FROM ledger_entries WHERE number = 3)",
)
NO_ANSWER = "DELETE FROM ledger_replies WHERE step = 'round 2'"
OLD_STATE = "UPDATE ledger_states SET state = CAST('secret after round 1' AS BLOB)"


def cut(path):
    """The last charge, its answer and the head in the ledger: all that tells of it there."""
    tamper(path, *CUT, NO_ANSWER, OLD_STATE)
    assert Ledger(path, heads=None).verify().holds  # nothing in the ledger can tell


# -- the ledger is cut


@pytest.mark.parametrize("more", [(), (NO_ANSWER,), (OLD_STATE,)])
def test_a_charge_taken_away_with_the_head(path, more):
    """Each alone leaves a trace in the ledger itself; both together need a head kept elsewhere."""
    made = started(path, None)
    for step in ("round 1", "round 2"):
        answer(made, step)
    tamper(path, *CUT, *more)
    says(made, "has no entry" if OLD_STATE in more else "state", holds=False)


def test_a_cut_without_a_trace_is_found_by_what_was_noted_elsewhere(ledger, path, place):
    noted = ledger.verify().last
    cut(path)
    says(Ledger(path, heads=None), "No entry has the hash", holds=False, against=noted)
    says(Ledger(path, heads=place.open()), "Entry 4, noted elsewhere, is missing", holds=False)


@pytest.mark.parametrize("how", ["cut", "old copy"])
def test_a_site_does_not_go_on_with_a_ledger_that_lacks_a_charge(ledger, path, place, how):
    """It would answer round 2 again, with new noise; nothing is made, and nothing charged."""
    if how == "cut":
        cut(path)
    else:
        shutil.copy(path.with_suffix(".old"), path)
    made, going_on = [], Ledger(path, heads=place.open())
    for step in ("round 2", "round 3"):
        refused("heads-differ", answer, going_on, step, made)
    refused("heads-differ", going_on.note_head)
    refused("heads-differ", going_on.end, KEY, "done")
    assert not made
    assert len(list(going_on.entries())) == 3


def test_a_site_does_not_go_on_after_an_old_copy_was_used_elsewhere(ledger, path, place):
    """As many entries as before, or more: only the hash tells."""
    noted = ledger.verify().last
    shutil.copy(path.with_suffix(".old"), path)
    alone, known = Ledger(path, heads=None), Ledger(path, heads=place.open())
    answer(alone, "round 2", reply=b"other noise")
    refused("heads-differ", answer, known, "round 3")
    answer(alone, "round 3")
    assert alone.verify().holds
    assert not alone.verify(against=noted).holds
    says(known, "Entry 4 is another one", holds=False)


def test_a_ledger_that_is_made_anew_is_not_the_one_that_was_noted(ledger, path, place):
    path.unlink()
    refused("heads-differ", started, path, place.open(), epsilon=9.0)
    empty = started(path, None, epsilon=9.0)
    assert empty.verify().holds
    assert not Ledger(path, heads=place.open()).verify().holds
    for step in ("round 1", "round 2", "round 3"):
        answer(empty, step)
    assert not Ledger(path, heads=place.open()).verify().holds


def test_a_session_taken_from_the_middle_is_missed_by_heads_alone(ledger, path):
    """The chain is computed anew: whoever can write the ledger's file can do that."""
    ledger.end(KEY, "done")
    later = key_of("s2")
    begin(ledger, later, Loss(1e-3))
    kept = [each for each in ledger.entries() if each.body.get("session") != KEY.session]
    noted, count, before = ledger.verify().last, 0, FIRST
    tamper(path, "DELETE FROM ledger_entries", "DELETE FROM ledger_replies")
    with sqlite3.connect(path) as file:
        for count, each in enumerate(kept, 1):
            new = seal(count, each.time, each.kind, each.body, before)
            words = (count, new.time, new.kind, canonical(new.body), before, new.hash)
            names = (new.body.get("study"), new.body.get("session"))
            file.execute(
                "INSERT INTO ledger_entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", words + names
            )
            before = new.hash
        file.execute("UPDATE ledger_head SET count = ?, hash = ?", (count, before))
    file.close()
    alone = Ledger(path, heads=None)
    says(alone, "no head of it is noted elsewhere")  # the budget reads as if nothing was spent
    assert not alone.verify(against=noted).holds
    says(ledger, "Entry 2 is another one", holds=False)
    assert "noted there" in refused("heads-differ", ledger.end, later, "done").message


# -- the second place is cut


def test_a_head_taken_from_the_middle_is_covered_by_the_next(ledger, path, place):
    place.forget(2)
    says(ledger, "All 3 heads")
    assert "not noted" not in ledger.verify().explanation
    cut(path)
    assert not ledger.verify().holds


def test_the_last_heads_taken_away_are_told_of(ledger, path, place):
    place.forget(3, 4)
    says(ledger, "not noted there (2 of 4 entries)")
    Ledger(path, heads=place.open()).note_head()
    says(ledger, "All 3 heads")
    assert "not noted" not in ledger.verify().explanation


def test_a_second_place_without_a_head_agrees_with_nothing(ledger, place):
    place.forget(1, 2, 3, 4)
    if place.kind == "usual":  # nobody named it: nothing may have been noted
        says(ledger, "no head of it is noted")
    else:
        says(ledger, "No head", holds=False)


def test_heads_that_were_written_in_part(ledger, place):
    """A power failure: the answer had not left, and the next head follows."""
    place.path.write_bytes(place.path.read_bytes() + b'{"number": 6, "ha')
    assert ledger.verify().holds
    ledger.end(KEY, "done")
    assert place.counts == [1, 2, 3, 4, 5]
    assert ledger.verify().holds


# -- the second place is gone


def test_nothing_is_charged_while_the_second_place_is_gone(ledger, path, place):
    away = place.path.rename(place.path.with_suffix(".away"))
    place.path.mkdir()  # as a disk that cannot be written
    made = []
    for _ in range(2):
        refused("heads-not-written", answer, ledger, "round 3", made)
    assert not made
    assert len(list(ledger.entries())) == 4
    place.path.rmdir()
    away.rename(place.path)
    assert answer(ledger, "round 3", made) == b"round 3"
    says(ledger, "All 5 heads")


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

    class Fails(HeadsFile):
        """It can be read, not added to."""

        def note(self, head, *, last=False):
            if head.count == 5:
                raise EigenveilError.relayed("gone", code="cannot-write")
            super().note(head, last=last)

    made = []
    going_on = Ledger(path, heads=Fails(place.path))
    for _ in range(2):  # asked again: it still does not leave
        refused("cannot-write", answer, going_on, "round 3", made)
    assert made == ["round 3"]
    refused("cannot-write", answer, going_on, "round 4", made)  # nor is more charged
    assert len(list(going_on.entries())) == 5
    says(going_on, "not noted there (1 of 5 entries)")
    again = Ledger(path, heads=place.open())
    assert answer(again, "round 4", made) == b"round 4"  # notes what is missing first
    assert answer(again, "round 3", made) == b"round 3"
    assert made == ["round 3", "round 4"]
    assert place.counts == [1, 2, 3, 4, 5, 6]
    assert again.verify().holds
