"""Fits of one table as sessions of its owner's ledger: a study with one site.

A fit is charged to every account that holds one of its files, and to the one that its owner names:
naming another account does not make a table new. All are reserved together or none is. Each release
is charged in all of them before its noise is drawn.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import shlex
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from eigenveil.errors import (
    DataError,
    EigenveilError,
    LedgerWarning,
    callers_level,
    of_system,
)
from eigenveil.federation.ledger.books import Books, Standing
from eigenveil.federation.ledger.entries import (
    UNIT,
    Budget,
    FileMark,
    FilesBody,
    SessionKey,
    budget_command,
)
from eigenveil.federation.ledger.ledger import Draft, Ledger
from eigenveil.federation.ledger.placing import (
    Wanted,
    check_budget,
    check_reservation,
    opened,
    place,
    standing_after,
)
from eigenveil.federation.ledger.store import LedgerStore
from eigenveil.files import Place
from eigenveil.models.driver import FitTerms
from eigenveil.privacy.certificate import Together
from eigenveil.privacy.releases import ReleaseRecord

# -- By what a ledger knows a table's files: keyed digests of their places and of their content.
#
# A file that grew or changed keeps its place, one that was copied or renamed its content: either
# leads to its account. The digests are under the ledger's own key, so that whoever sees a ledger's
# entries learns nothing of the files; they stand in the ledger alone, in no certificate or result.

# A file of more bytes is read in pieces, evenly spaced from its first byte to its last: two files
# of one size that agree in all of them share an account, which only ever charges more.
_WHOLE, _PIECE, _PIECES = 1 << 26, 1 << 20, 64


def place_mark(file: Place, key: bytes) -> str:
    """The digest of a file's place, links followed."""
    place = os.fsencode(str(file.resolve()))
    return hashlib.blake2b(place, digest_size=32, key=key, person=b"place").hexdigest()


def content_mark(file: Place, key: bytes) -> str:
    """The digest of a file's size and content; of more than 64 MiB, of 64 pieces of 1 MiB.

    Of a folder that is one file to its format: of the names, sizes and first MiB of all in it.
    """
    digest = hashlib.blake2b(digest_size=32, key=key, person=b"content")
    try:
        if isinstance(file, Path) and file.is_dir():
            for part in sorted(each for each in file.rglob("*") if each.is_file()):
                name = os.fsencode(part.relative_to(file))
                with part.open("rb") as stream:
                    size = os.fstat(stream.fileno()).st_size
                    digest.update(b"%d %d " % (len(name), size) + name + stream.read(_PIECE))
            return digest.hexdigest()
        with file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            digest.update(size.to_bytes(8, "big"))
            for start in _starts(size):
                stream.seek(start)
                digest.update(stream.read(_PIECE))
    except OSError as error:
        raise DataError("cannot-read", path=file, reason=of_system(error)) from None
    return digest.hexdigest()


def marks_of(files: Sequence[Place], key: bytes) -> tuple[FileMark, ...]:
    return tuple(FileMark(place_mark(file, key), content_mark(file, key)) for file in files)


def rows_digest(places: Sequence[Place], key: bytes) -> str:
    """The digest of a site's rows, as an approval names them: of all files' contents."""
    marks = sorted(content_mark(file, key) for file in places)
    return hashlib.blake2b("".join(marks).encode(), digest_size=32, key=key).hexdigest()


def usual_name(files: Sequence[Place]) -> str:
    """What a new account is called: by the path of its first file, where that can be a name."""
    first = str(files[0].resolve())
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    name = f"{first}{more}"
    if len(name) <= 200 and name.isprintable():
        return name
    return f"table {hashlib.sha256(os.fsencode(first)).hexdigest()[:16]}{more}"


def _starts(size: int) -> Iterator[int]:
    if size <= _WHOLE:
        yield from range(0, size, _PIECE)
    else:
        yield from (each * (size - _PIECE) // (_PIECES - 1) for each in range(_PIECES))


def begin_fit(
    place: str | os.PathLike[str] | Ledger,
    data_set: str | None,
    files: Sequence[Place] | None,
    terms: FitTerms,
) -> FitCharges:
    """Reserve what a fit may cost; the ledger, and the account of its rows, are made if absent.

    An account that is opened gets the fit's own target for its budget, or the ledger's ``budget``;
    a :class:`~eigenveil.errors.LedgerWarning` says so.
    """
    ledger = place if isinstance(place, Ledger) else Ledger(place)
    name = data_set or ledger.given_name
    if name is None and not files:
        raise DataError("no-data-set")
    usual = ledger.opening(_target(terms, name or usual_name(files or ())))
    wanted = _wanted(terms, usual.data_set)
    check_budget(usual)
    check_reservation(wanted)
    fit = _Fit(ledger, usual, wanted, is_named=name is not None)
    marks = marks_of(files, fit.key_for(files)) if files else ()
    charges, news = fit.begun(marks, terms.note)
    for text in news:
        warnings.warn(text, LedgerWarning, stacklevel=callers_level())
    return charges


def _target(terms: FitTerms, data_set: str) -> Budget:
    return Budget(
        data_set=data_set,
        adjacency=terms.adjacency,
        epsilon=terms.epsilon,
        delta=terms.delta,
        pure_epsilon=terms.pure_part,
        unit=terms.unit or UNIT,
    )


def _wanted(terms: FitTerms, data_set: str) -> Wanted:
    return Wanted(data_set, terms.adjacency, terms.reserve, terms.replacing, terms.unit or UNIT)


@dataclass(frozen=True)
class Foreseen:
    """An account before and after a fit that was not begun; why it does not cover it."""

    before: Standing
    after: Standing | None = None
    is_new: bool = False  # Whether the fit would open it
    problem: str = ""


def foreseen(store: LedgerStore, files: Sequence[Place], terms: FitTerms) -> list[Foreseen]:
    """What :func:`begin_fit` would reserve of accounts that nobody named, without doing it."""
    with store.reading_if_any() as tables:
        books = Books() if tables is None else tables.books()
        marks = () if tables is None else marks_of(files, tables.key())
    usual = _target(terms, usual_name(files))
    names = books.accounts_with([each for mark in marks for each in (mark.path, mark.content)])
    names, found = names or [usual.data_set], []
    for name in names:
        if is_new := name not in books.accounts:
            books.accounts[name] = opened(usual, books)
        before, after, problem = books.standing(name), None, ""
        try:
            after = standing_after(store.name, books, _wanted(terms, name))
        except EigenveilError as error:
            problem = error.message
        found.append(Foreseen(before, after, is_new, problem))
    return found


class FitCharges:
    """The sessions of one fit, one an account; :class:`eigenveil.models.driver.Charges`."""

    def __init__(
        self, ledger: Ledger, keys: tuple[SessionKey, ...], accounts: Sequence[str]
    ) -> None:
        self._ledger, self._keys = ledger, keys
        self.counted = ledger.store.is_kept  # one in memory knows nothing of other fits
        self.accounts = (ledger.name, *accounts)
        self._step = 0

    def charge(self, records: Sequence[ReleaseRecord]) -> None:
        self._step += 1
        for key in self._keys:
            self._ledger.commit(
                key,
                f"round {self._step}",
                request=b"",
                draft=lambda *_: Draft(lambda: (b"", None), charges=records),
            )

    def together(self) -> Together | None:
        try:
            books = self._ledger.books()
        except EigenveilError:  # the result is there, and is worth more
            return None
        found = [
            Together(others=others, epsilon=standing.spent_epsilon, delta=standing.budget.delta)
            for name in self.accounts[1:]
            if (others := books.charged(name) - 1) > 0
            and math.isfinite((standing := books.standing(name)).spent_epsilon)
        ]
        return max(found, key=lambda each: each.epsilon, default=None)

    def end(self, outcome: str) -> None:
        """End the sessions; should that fail, what they reserved stays so, and nothing else."""
        keys, self._keys = self._keys, ()
        for key in keys:
            try:
                self._ledger.end(key, outcome)
            except EigenveilError as error:
                warnings.warn(
                    f"{error} What the fit reserved and did not need stays reserved until "
                    f"'eigenveil ledger end {shlex.quote(self._ledger.name)} --study {key.study}'.",
                    LedgerWarning,
                    stacklevel=callers_level(),
                )


@dataclass(frozen=True)
class _Fit:
    ledger: Ledger
    budget: Budget  # Of an account that is opened for it
    wanted: Wanted  # What it wants of each of its accounts
    is_named: bool  # Whether the owner named the data set; else it is what a new one is called

    def key_for(self, files: Sequence[Place]) -> bytes:
        """The key under which files are known.

        Where the files' places show already that no budget covers the fit, nothing is read.
        """
        with self.ledger.store.writing(make=True) as tables:
            key, books = tables.key(), tables.books()
            for name in self._accounts(books, [place_mark(file, key) for file in files]):
                if name in books.accounts:
                    place(self.ledger.name, books, replace(self.wanted, data_set=name))
        return key

    def begun(self, marks: Sequence[FileMark], note: str) -> tuple[FitCharges, Iterator[str]]:
        """Its sessions, one in every account, and what the owner should know of how it began.

        All of it is one transaction: accounts that are opened, files that join one, and sessions.
        """
        study, ledger = f"fit-{secrets.token_hex(8)}", self.ledger
        with ledger.store.writing(make=True) as tables:
            books = tables.books()
            before = {mark for of_one in books.files.values() for mark in of_one}
            digests = [each for mark in marks for each in (mark.path, mark.content)]
            names = self._accounts(books, digests)
            is_new = names[0] not in books.accounts
            if is_new:
                tables.append(opened(self.budget, books))
            held = books.files.get(names[0], set())
            if new := tuple(mark for mark in dict.fromkeys(marks) if mark not in held):
                tables.append(FilesBody(data_set=names[0], marks=new))
            keys = tuple(SessionKey(study, str(number)) for number in range(len(names)))
            for key, name in zip(keys, names, strict=True):
                ledger.reserve(tables, key, replace(self.wanted, data_set=name), note=note)
        ledger.fits.update(keys)
        news = self._news(names, marks, before, is_new=is_new)
        return FitCharges(ledger, keys, names), news

    def _accounts(self, books: Books, digests: Iterable[str]) -> list[str]:
        """All that it is charged to, the one that new files belong to first."""
        known = books.accounts_with(digests)
        if self.is_named or not known:
            return [self.wanted.data_set, *(k for k in known if k != self.wanted.data_set)]
        return known

    def _news(
        self,
        names: Sequence[str],
        marks: Sequence[FileMark],
        before: Collection[FileMark],
        *,
        is_new: bool,
    ) -> Iterator[str]:
        ledger, main = self.ledger.name, names[0]
        places, contents = {each.path for each in before}, {each.content for each in before}
        changed = sum(mark.path in places and mark.content not in contents for mark in marks)
        unseen = [mark for mark in marks if mark.path not in places]
        moved = sum(mark.content in contents for mark in unseen)
        of = self.budget
        if is_new and self.ledger.store.is_kept:
            other = budget_command(ledger, main, adjacency=of.adjacency, unit=of.unit)
            yield (
                f"{ledger}: opened an account for {main!r}, with a budget of {of.bound} for "
                f"all of its fits together; to set another: {other} --reason WHY."
            )
        if changed:
            yield (
                f"{ledger}: {changed} of the files changed since they were charged last, "
                "and keep their account: rows in both versions pay for both."
            )
        if moved:
            yield (
                f"{ledger}: {moved} of the files were charged before from another place, "
                f"and keep that account: {', '.join(map(repr, names))}."
            )
        if len(unseen) > moved and not is_new:
            yield (
                f"{ledger}: {len(unseen) - moved} of the files are new, and belong to {main!r} "
                "from now on."
            )
        if len(names) > 1:
            yield (
                f"{ledger}: the fit is charged to all accounts that its files belong to: "
                f"{', '.join(map(repr, names))}."
            )
