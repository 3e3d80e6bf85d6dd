"""Somebody cuts a ledger, its answers and its head, and also reaches for the second place of heads.

Would have found: a second place that holds no head at all, and was taken for one that agrees; a
site that goes on with a cut ledger, or an old copy, though the second place knew of more; a charge
that was made before it turned out that the second place was gone; and a ledger whose owner named
no such place, which had none. Each place is tried: a file that is named, and the usual one.
"""

import json
import shutil
import sqlite3

import pytest

from eigenveil.errors import EigenveilError, OutputError
from eigenveil.federation.ledger.heads import HeadsFile, UsualHeads
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
PLACES = ("file", "usual")


class Place:
    """A second place, and what whoever can write it does there."""

    def __init__(self, kind, folder, ledger):
        self.kind, self.path = kind, folder / f"heads.{kind}"
        if kind == "usual":
            self.open = lambda: "usual"
            self.path = UsualHeads(str(ledger))._path
        else:
            self.open = lambda: HeadsFile(self.path)

    def heads(self):
        return HeadsFile(self.path) if self.kind == "usual" else self.open()

    def forget(self, *numbers):
        """Take heads away."""
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
    found = made.verify()
    assert found.holds
    assert "All 4 heads" in found.explanation
    assert "not noted" not in found.explanation
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
                raise OutputError.relayed("gone", code="cannot-write")
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
