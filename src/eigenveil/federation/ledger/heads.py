"""A second place for a ledger's heads: whoever cuts the ledger would have to cut this one, too.

It belongs where those who can write the ledger cannot change it. All it shows is how many entries
there are. Where none is named it is a file of this user's, outside the ledger's folder, which
notices whoever reaches the ledger alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from eigenveil.errors import DataError, OutputError, of_system
from eigenveil.federation.approvals.record import check_signed
from eigenveil.federation.ledger.books import Books
from eigenveil.federation.ledger.entries import (
    BrokenChain,
    BudgetBody,
    ChargeBody,
    Entry,
    Head,
    checked,
)
from eigenveil.federation.ledger.placing import RECOMPUTED, caps_follow
from eigenveil.federation.ledger.tables import Tables
from eigenveil.files import hold, state_folder
from eigenveil.privacy.accountant import Loss

_LINE = 2**16  # bytes that the last line is within


def is_there(head: Head, noted: Sequence[Head], *, last: bool, place: str) -> bool:
    """Whether a head is among those that were ``noted``, which have its number or a later one."""
    for other in noted:
        if (other.count == head.count and other.hash != head.hash) or (
            last and other.count > head.count
        ):
            its = "is another" if other.count == head.count else "is missing"
            raise DataError("heads-differ", place=place, count=other.count, own=its)
    return bool(noted)


class HeadsFile:
    """A file; made, for its owner alone, with the first head.

    One line of JSON a head, ``{"number": ..., "hash": ...}``, only ever added.
    """

    # Whether somebody named it: then a ledger of which nothing is noted there is refused
    named = True
    _way_out = (
        "The ledger's heads are kept there: give a file in a folder that exists and that you may "
        "write."
    )

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self._path = Path(place).absolute()

    def __str__(self) -> str:
        return str(self._path)

    def note(self, head: Head, *, last: bool = False) -> None:
        """Add a head, unless it or a later one is there; durable when this returns.

        The head of an empty ledger is not added: the file is only opened, or made.
        """
        with self._open("ab+", create=True) as file:
            if not (head.count or last):
                return
            hold(file, wait=True)
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LINE))
            whole, newline, torn = file.read().rpartition(b"\n")
            if torn:  # a power failure, before the answer that it was for had left
                file.truncate(file.seek(0, os.SEEK_END) - len(torn))
            noted = [self._head(whole.rpartition(b"\n")[2])] if newline else []
            if noted and noted[0].count > head.count:
                file.seek(0)
                noted = [self._head(line) for line in file.read().splitlines()]
            noted = [other for other in noted if other.count >= head.count]
            if is_there(head, noted, last=last, place=str(self._path)) or not head.count:
                return
            file.write(json.dumps({"number": head.count, "hash": head.hash}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[Head]:
        """All heads that were noted; ``heads-damaged`` where a line holds none."""
        with self._open("rb") as file:
            *lines, _ = file.read().split(b"\n")  # what follows the last newline is torn
        return [self._head(line) for line in lines]

    def _head(self, line: bytes) -> Head:
        try:
            found = json.loads(line)
            kinds = {name: type(value) for name, value in found.items()}
            if kinds == {"number": int, "hash": str}:
                return Head(found["number"], found["hash"])
        except (ValueError, AttributeError, RecursionError):
            pass
        raise DataError("heads-damaged", path=self._path)

    @contextmanager
    def _open(self, mode: str, *, create: bool = False) -> Iterator[IO[Any]]:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND if create else os.O_RDONLY
            with os.fdopen(os.open(self._path, flags, 0o600), mode) as file:
                yield file
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            if isinstance(error, OutputError | DataError):
                raise
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> OutputError:
        return OutputError(
            "heads-not-written", path=self._path, reason=of_system(error), way_out=self._way_out
        )


class UsualHeads(HeadsFile):
    """The file for a ledger's heads where none is named, in a folder that is not the ledger's.

    It goes by the ledger's place: one that was deleted there, or replaced by an old copy, is
    noticed, and a copy in another place has heads of its own.
    """

    named = False
    _way_out = (
        "The heads of ledgers are kept there. Name another folder that lasts in EIGENVEIL_STATE."
    )

    def __init__(self, ledger: str, folder: Path | None = None) -> None:
        self._ledger, self._folder = ledger, folder

    @cached_property
    def _path(self) -> Path:  # type: ignore[override]
        place = self._ledger
        with suppress(OSError, ValueError):  # of a name that no file can have
            place = place if "://" in place else str(Path(place).resolve())
        name = hashlib.sha256(os.fsencode(place)).hexdigest()[:32]
        return (self._folder or state_folder() / "heads") / f"{name}.heads"

    def read(self) -> list[Head]:
        """All heads; none where nothing was noted yet."""
        try:
            self._path.stat()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(error) from None
        return super().read()

    @contextmanager
    def _open(self, mode: str, *, create: bool = False) -> Iterator[IO[Any]]:
        if create:
            try:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise self._unusable(error) from None
        with super()._open(mode, create=create) as file:
            yield file


# -- Whether a ledger holds: its chain, its head, and the tables beside the chain.

_NOTHING_NOTED = (
    "Nothing outside the ledger tells whether entries were taken from it, or all of it was written "
    "anew: no head of it is noted elsewhere."
)


@dataclass(frozen=True)
class Verification:
    holds: bool
    entries: int  # How many the head counts
    last: str  # Hash of the last one: note it elsewhere to know this ledger again
    # Number of the first wrong entry; `None` when all hold, or what is wrong is beside them
    wrong: int | None
    explanation: str


def check(
    tables: Tables, *, against: str | None = None, noted: Sequence[Head] | None = None
) -> Verification:
    """Recompute the chain and compare it with what is stored beside it.

    ``against`` is the hash of an entry that was noted elsewhere, ``noted`` are the heads in a
    second place.
    """
    head, hashes = tables.read_head(), [""]

    def gathered() -> Iterator[Entry]:
        for entry in checked(tables.entries(), count=head.count, last=head.hash):
            hashes.append(entry.hash)
            yield entry

    try:
        books = Books.of(gathered())
        _check_columns(tables)
        _check_accounts(books)
        _check_answers(tables, books)
        record = check_signed(books, tables.mark())
    except BrokenChain as error:
        return _wrong(head, error.entry, f"Entry {error.entry} {error.why}.")
    problem = (
        _problem_with_notes(hashes, against, noted)
        or _problem_with_states(tables, books)
        or _problem_with_bytes(tables, books)
        or tables.problem()
    )
    if problem:
        return _wrong(head, None, problem)
    said = "Every entry is as it was written."
    if record.listed is None:
        said += " Its budgets are unsigned: it has no approvers."
    else:
        who = dict.fromkeys(str(by) for each in record.budgets for by in each.signed)
        by = f", {' and '.join(who)}" if who else ""
        said += f" Every budget is signed by approvers of {record.listed.whose}{by}."
    if noted:
        one = "The one head that was noted elsewhere is"
        several = f"All {len(noted)} heads that were noted elsewhere are"
        said += f" {one if len(noted) == 1 else several} in the chain."
        if after := head.count - max(each.count for each in noted):
            said += f" What came after them is not noted there ({after} of {head.count} entries)."
    if against is not None:
        said += f" The hash that was noted elsewhere is that of entry {hashes.index(against)}."
    elif not noted:
        said += f" {_NOTHING_NOTED}"
    return Verification(True, head.count, head.hash, None, said)


def _wrong(head: Head, entry: int | None, explanation: str) -> Verification:
    return Verification(False, head.count, head.hash, entry, explanation)


def _problem_with_notes(
    hashes: list[str], against: str | None, noted: Sequence[Head] | None
) -> str:
    """Nobody who writes the ledger can change what was noted elsewhere."""
    if noted is not None and not noted and len(hashes) > 1:
        return "No head of this ledger is noted in the second place, and every one should be."
    for head in sorted(noted or (), key=lambda each: each.count):
        if not 1 <= head.count < len(hashes):
            return (
                f"Entry {head.count}, noted elsewhere, is missing: the chain was cut after entry "
                f"{len(hashes) - 1}, or is another ledger's."
            )
        if hashes[head.count] != head.hash:
            return f"Entry {head.count} is another one than was noted elsewhere."
    if against is not None and against not in hashes[1:]:
        return (
            "No entry has the hash that was noted elsewhere: the chain was cut, written anew, or "
            "is another ledger's."
        )
    return ""


def _check_columns(tables: Tables) -> None:
    """A session's entries are found by columns that are outside the hash."""
    names = tables.rows("SELECT number, study, session FROM ledger_entries ORDER BY number")
    for entry, (_, *filed) in zip(tables.entries(), names, strict=True):
        if [entry.body.get("study"), entry.body.get("session")] != filed:
            raise BrokenChain(entry.number, "is filed under another session")


def _check_answers(tables: Tables, books: Books) -> None:
    """Every entry of an answer has the question and the answer that it was made for."""
    stored = {
        (each.key, each.step): (each.request_hash, each.reply_hash) for each in tables.answers()
    }
    for key, session in books.sessions.items():
        for number, answer in session.answers:
            request, reply = stored.get((key, answer.step), ("", ""))
            if reply != answer.reply:
                raise BrokenChain(number, "is about another answer than the one on record")
            if request != answer.request:
                raise BrokenChain(number, "is about another question than the one on record")


def _check_accounts(books: Books) -> None:
    """Caps are what budgets allow, sessions within what they reserved, and all within the caps.

    A budget that was lowered leaves what was charged before: an account's largest caps count.
    """
    most: dict[str, Loss] = {}
    for number, _, body in books.decided:
        if not isinstance(body, BudgetBody):
            continue
        if not caps_follow(body):
            raise BrokenChain(number, "gives an account more than its budget allows")
        most[body.budget.data_set] = most.get(body.budget.data_set, Loss()).joined(body.caps)
    held: dict[str, Loss] = {}
    for key, session in books.sessions.items():
        number, terms = books.begun[key], session.terms
        if not terms.taken.covers(session.spent(), rounding=RECOMPUTED):
            raise BrokenChain(number, "begins a session that was charged more than it reserved")
        so_far = held.get(terms.data_set, Loss())
        held[terms.data_set] = Loss.total([so_far, session.held()])
        room = most.get(terms.data_set, Loss())
        if not room.covers(held[terms.data_set], rounding=RECOMPUTED):
            raise BrokenChain(number, "begins a session that its account has no room for")


def _problem_with_states(tables: Tables, books: Books) -> str:
    """Every open session has the state that its last entry records, and no other has one."""
    stored = {key: hashlib.sha256(state).hexdigest() for key, state in tables.states()}
    expected = {key: each.state for key, each in books.sessions.items() if each.is_open}
    for key in sorted(stored.keys() | expected.keys(), key=str):
        if stored.get(key) != expected.get(key):
            return f"Session {key.session!r} does not have the state that its entries record."
    return ""


def _problem_with_bytes(tables: Tables, books: Books) -> str:
    """Every answer on record has an entry, and is what that entry records."""
    for key, step, request_hash, reply_hash, is_kept in tables.answers():
        session = books.sessions.get(key)
        where = f"The answer to {step!r} of session {key.session!r}"
        if session is None:
            return f"{where} belongs to no session."
        if not any(answer.step == step for _, answer in session.answers):
            return f"{where} has no entry: the chain was cut, with its head."
        if not is_kept:
            continue
        last = session.answers[-1][1]  # with which it ended may stay, if it released nothing
        if not session.is_open and (step != last.step or isinstance(last, ChargeBody)):
            return f"{where} is kept, though the session has ended."
        if hashlib.sha256(tables.reply(key, step, request_hash) or b"").hexdigest() != reply_hash:
            return f"{where} is not the one that was stored."
    return ""
