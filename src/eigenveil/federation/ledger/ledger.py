"""The ledger of a site: the privacy budget of its rows, and what was spent.

A session begins by reserving what it may cost. Every release of it is charged, and the charge and
the answer are durable before the answer leaves; a repeated request gets the same bytes, so no
noise is drawn twice for one answer. When the session ends, what it did not charge is free again.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal, Self

from sqlalchemy import select

from eigenveil.errors import LedgerWarning, OutputError, PrivacyError, ProtocolError, callers_level
from eigenveil.federation.ledger.books import Books, Session, Standing
from eigenveil.federation.ledger.decisions import Record, check_signed
from eigenveil.federation.ledger.documents import Approver
from eigenveil.federation.ledger.entries import (
    FIRST,
    UNIT,
    AnswerBody,
    BeginBody,
    Body,
    Budget,
    BudgetBody,
    ChargeBody,
    ElsewhereBody,
    Entry,
    FileMark,
    FilesBody,
    MembersBody,
    SessionKey,
)
from eigenveil.federation.ledger.file_marks import place_mark, rows_digest
from eigenveil.federation.ledger.heads import Heads, UsualHeads
from eigenveil.federation.ledger.placing import (
    Wanted,
    check_budget,
    check_charges,
    check_names,
    check_open,
    check_reservation,
    check_same,
    noted,
    opened,
    place,
    printable,
)
from eigenveil.federation.ledger.rows import (
    answered_of,
    begin_state,
    change_state,
    end_session,
    find_session,
    settle,
    sha256,
    store_reply,
    stored_reply,
    stored_state,
    whole_books,
)
from eigenveil.federation.ledger.store import Store
from eigenveil.federation.ledger.tables import (
    ENTRIES,
    Head,
    Writer,
    entries_where,
    ledger_mark,
    read_entries,
    read_key,
)
from eigenveil.federation.ledger.verify import Verification, check
from eigenveil.files import Place
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.elsewhere import Elsewhere
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.releases import ReleaseRecord

__all__ = [
    "Begun",
    "Budget",
    "Draft",
    "Entry",
    "FitRequest",
    "Ledger",
    "Session",
    "SessionKey",
    "Standing",
    "Verification",
]

_PAGE = 500
_BUDGETS = entries_where(ENTRIES.c.kind == "budget")
_DECIDED = entries_where(ENTRIES.c.kind.in_(("decision", "approvers", "budget", "budget-decision")))
_MEMBERS = entries_where(ENTRIES.c.kind == "members")


@dataclass(frozen=True)
class Draft:
    """An answer that is to be made."""

    # Returns the answer and the session's new state (`None` leaves it). Called only when the
    # charges are covered; when it raises, nothing changed. It may read the ledger, not write it.
    make: Callable[[], tuple[bytes, bytes | None]]
    charges: Sequence[ReleaseRecord] = ()  # What the answer releases
    # Steps that will not be requested again: their answers' bytes are dropped
    settles: Sequence[str] = ()
    # The session's outcome, where this is its last answer: it alone is kept, to be given again
    ends: str = ""


@dataclass(frozen=True)
class FitRequest:
    """A fit of one table that is to begin."""

    study: str  # A name of its own: no fit takes another's place
    named: bool  # Whether `wanted.data_set` was named by the owner, or is the name of a new account
    budget: Budget  # Of an account that is opened for it
    wanted: Wanted  # What it wants of each of its accounts
    note: str
    marks: tuple[FileMark, ...] = ()  # Of its files

    def with_marks(self, marks: tuple[FileMark, ...]) -> Self:
        """The same, its files known."""
        return replace(self, marks=marks)

    def accounts(self, books: Books, digests: Sequence[str]) -> list[str]:
        """All that it is charged to, the one that new files belong to first."""
        known = books.accounts_with(digests)
        if self.named or not known:
            return [self.wanted.data_set, *(k for k in known if k != self.wanted.data_set)]
        return known


@dataclass(frozen=True)
class Begun:
    """A fit that has begun."""

    keys: tuple[SessionKey, ...]  # Its sessions, and the account of each
    accounts: tuple[str, ...]
    opened: Budget | None  # Of the first account, where it was opened for this fit
    # Files with other content than before, those known by their content from another place, and
    # those never seen
    changed: int
    moved: int
    joined: int


@dataclass(frozen=True)
class BudgetChange:
    """A budget as it was set."""

    time: str  # When; UTC, ISO format
    body: BudgetBody  # What its entry holds
    signed: tuple[Approver, ...]  # Who signed it; empty where it is unsigned


class Ledger:
    """A ledger in an SQLite file, or in a database that SQLAlchemy knows.

    Every method is one transaction (``entries``: one a page). Nothing is held open between calls,
    and what is remembered of the last answer counts only while the ledger's head is the same.
    ``set_budget`` and ``begin`` make the ledger where there is none, readable by its owner alone.
    Any method may raise OutputError or DataError when the ledger is missing, damaged, none, cannot
    be written, or is held by another process for longer than half a minute.

    Parameters
    ----------
    place : path or str
        A file, or an SQLAlchemy URL (it has ``://``), such as
        ``postgresql+psycopg://user@host/database``.
    budget : Budget, optional
        Of the data set that fits are charged to where they name none: its account is opened with
        this budget when there is none yet, by a fit or at the beginning of a ``with`` block. At the
        block's end the sessions of fits and streams that were not ended are ended.
    durable : bool, default=True
        False only for a simulation's ledger, which is thrown away: a power failure may lose it.
    heads : Heads, "usual" or None, default="usual"
        A second place, by default a file of this user's outside the ledger's folder
        (:class:`~eigenveil.federation.ledger.heads.UsualHeads`). Whatever a method returns, the
        ledger's head (number and hash of the last entry) has been noted there before, so that
        ``verify`` finds entries that were taken away. Before anything is written the head so far
        is noted, if it is missing: where that fails, or the ledger was cut since, nothing is
        charged. When the place fails after that, what was charged stays, and its answer waits until
        it is requested again and the head is noted.
    """

    heads: Heads | None

    def __init__(
        self,
        place: str | os.PathLike[str],
        *,
        budget: Budget | None = None,
        durable: bool = True,
        heads: Heads | Literal["usual"] | None = "usual",
    ) -> None:
        self._store = Store(place, durable=durable)
        self.given_budget = budget
        self._fits: set[SessionKey] = set()
        if heads == "usual":
            heads = UsualHeads(self._store.name) if durable else None
        self.heads = heads
        self._last: tuple[Head, Session] | None = None

    @property
    def name(self) -> str:
        """The place, without a password."""
        return self._store.name

    def __enter__(self) -> Self:
        if (given := self.given_budget) is not None:
            check_budget(given)
            with self._writing(make=True) as writer:
                books = whole_books(writer.connection)
                known = books.accounts.get(given.data_set)
                if known is None:
                    writer.append(opened(given, books))
            if known is not None and known.budget != given:
                warnings.warn(
                    f"{self.name}: the account of {given.data_set!r} keeps the budget that it has, "
                    f"epsilon = {known.budget.epsilon:g} at delta = {known.budget.delta:g} "
                    f"({known.budget.adjacency}); set_budget sets another.",
                    LedgerWarning,
                    stacklevel=callers_level(),
                )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for key in list(self._fits):
            self.end(key, "stopped")

    def __deepcopy__(self, memo: object) -> Self:
        return self  # all that counts is in its place; scikit-learn copies parameters

    def __repr__(self) -> str:
        return f"Ledger({self.name!r})"

    def _repr_html_(self) -> str:
        """The ledger in a notebook: its accounts, or why they cannot be read."""
        from eigenveil.federation.ledger.display import ledger_html

        return ledger_html(self)

    # -- budgets

    def set_budget(self, budget: Budget, *, by: str = "", reason: str = "") -> None:
        """Open a data set's account, or set its budget anew, unsigned; it may be lower than spent.

        Where the site has approvers, they sign it:
        :meth:`eigenveil.network.decisions.Decisions.set_budget`.

        The caps follow from the latest budget, what was spent stays. As a guarantee this holds if
        the owner does not choose the budget by what was released.

        Parameters
        ----------
        budget : Budget
        by, reason : str
            Who sets it and why; kept in the ledger as they are given.

        Raises
        ------
        DecisionRefused
            ``budget-unsigned``, where the ledger has approvers.
        PrivacyError, DataError
            When it is no budget; ``account-fixed`` when adjacency or unit of what was charged are
            others.
        """
        check_budget(budget)
        with self._writing(make=True) as writer:
            body = opened(budget, whole_books(writer.connection))
            writer.append(noted(body, by=by, reason=reason))

    def budget(self, data_set: str) -> Budget | None:
        """The budget that counts, or ``None`` when none was ever set."""
        with self._store.reading() as connection:
            books = Books.of(read_entries(connection, _BUDGETS))
        account = books.accounts.get(data_set)
        return None if account is None else account.budget

    def budget_if_any(self, data_set: str) -> Budget | None:
        """The same; ``None`` also where there is no ledger yet."""
        try:
            return self.budget(data_set)
        except OutputError as error:
            if error.code != "no-ledger":
                raise
            return None

    def budget_changes(self, record: Record | None = None) -> list[BudgetChange]:
        """Every budget as it was set, by whom and why, in order."""
        books = self.decided()
        signed = (record or self.record_of(books)).signed
        return [
            BudgetChange(time, body, signed[number])
            for number, time, body in books.decided
            if isinstance(body, BudgetBody) and number in signed
        ]

    def is_untouched(self, data_set: str) -> bool:
        """Whether nothing was charged to an account, and no session may."""
        return self._books().is_untouched(data_set)

    def standings(self) -> list[Standing]:
        """Where each account stands, in the order in which they were opened.

        Raises
        ------
        BrokenChain
            When an entry is not what was once written.
        """
        books = self._books()
        return [books.standing(data_set) for data_set in books.accounts]

    def sessions(self) -> list[Session]:
        """All sessions, in the order in which they began.

        Raises
        ------
        BrokenChain
            When an entry is not what was once written.
        """
        return list(self._books().sessions.values())

    def covers(self, wanted: Wanted) -> bool:
        """Whether a data set's account, which there must be, covers a session."""
        try:
            place(self.name, self._books(), wanted)
        except PrivacyError:
            return False
        return True

    def charge_elsewhere(
        self, data_set: str, work: Elsewhere, *, unit: str = UNIT, by: str = "", reason: str = ""
    ) -> Standing:
        """Charge an account for work that was done elsewhere; where it stands then.

        Parameters
        ----------
        work : Elsewhere
            From :meth:`eigenveil.privacy.elsewhere.Elsewhere.stated`, or of an event of
            dp_accounting (:func:`eigenveil.privacy.events.from_event`).
        unit : str
            Whose rows the statement is about, as the account names it.
        by, reason : str
            Who charges it and why; kept in the ledger as they are given.

        Raises
        ------
        BudgetExceeded
            When the budget does not cover it; nothing was charged. A loss that has happened is
            charged all the same after the budget was raised.
        DataError
            ``no-budget``.
        PrivacyError
            ``other-adjacency`` or ``other-unit``; ``not-countable``.
        """
        with self._writing() as writer:
            books = whole_books(writer.connection)
            account = books.accounts.get(data_set)
            adjacency = work.adjacency if account is None else account.budget.adjacency
            loss = work.under(work.adjacency)
            wanted = Wanted(data_set, work.adjacency, loss, work.under(adjacency), unit)
            check_reservation(wanted)
            placed = place(self.name, books, wanted)
            account = books.accounts[data_set]
            if placed.caps is not None:
                books.post(writer.append(account.model_copy(update={"caps": placed.caps})))
            body = ElsewhereBody(
                data_set=data_set,
                loss=placed.taken,
                what=printable(work.what),
                by=printable(by),
                reason=printable(reason),
            )
            books.post(writer.append(body))
            return books.standing(data_set)

    def elsewhere(self) -> list[tuple[str, ElsewhereBody]]:
        """Work done elsewhere that was charged: when (UTC, ISO format), and what its entry holds.

        Raises
        ------
        BrokenChain
            When an entry is not what was once written.
        """
        return self._books().elsewhere

    # -- sessions

    def begin(
        self,
        key: SessionKey,
        *,
        data_set: str,
        adjacency: Adjacency,
        reserve: Loss,
        state: bytes,
        replacing: Loss | None = None,
        unit: str = UNIT,
        note: str = "",
    ) -> bytes:
        """Begin a session and reserve what it may charge; the state that is stored.

        A session that is open already is as it was: its own stored state is returned. Other open
        sessions of the same study and data set end as ``replaced``.

        Parameters
        ----------
        reserve : Loss
            The most that it may charge, under ``adjacency``; what the samplers of pure releases add
            to epsilon is in its pure part.
        replacing : Loss, optional
            The same for neighbours of which one row is changed: what an account under replace-one
            counts of a session under add-remove. By default twice mu and twice the pure epsilon.

        Raises
        ------
        BudgetExceeded
            When the budget does not cover the reservation; for the owner's eyes. Nothing changed.
        DataError
            ``no-budget``; ``chain-broken`` when the ledger does not hold.
        PrivacyError
            ``bad-reservation`` when the reservation is not finite or negative; ``other-adjacency``
            or ``other-unit`` when the account cannot count the session.
        ProtocolError
            ``session-ended``; ``session-differs`` when it is open for another data set.
        """
        check_names(key.study, key.session)
        wanted = Wanted(data_set, adjacency, reserve, replacing, unit)
        check_reservation(wanted)
        with self._writing(make=True) as writer:
            books = _signed_books(writer)
            if (known := books.sessions.get(key)) is not None:
                check_open(known)
                check_same(known, wanted)
                return stored_state(writer.connection, key)
            for session in list(books.sessions.values()):
                its = session.key.study, session.terms.data_set
                if session.is_open and its == (key.study, data_set):
                    books.post(end_session(writer, session.key, "replaced"))
            self._reserve(writer, books, key, wanted, state=state, note=note)
            return state

    def _reserve(
        self,
        writer: Writer,
        books: Books,
        key: SessionKey,
        wanted: Wanted,
        *,
        state: bytes,
        note: str,
    ) -> None:
        """Begin a session that was never begun, if its account covers it."""
        placed = place(self.name, books, wanted)
        account = books.accounts[wanted.data_set]
        budget = account.budget
        if placed.caps is not None:
            books.post(writer.append(account.model_copy(update={"caps": placed.caps})))
        entry = writer.append(
            BeginBody(
                study=key.study,
                session=key.session,
                data_set=wanted.data_set,
                unit=wanted.unit,
                adjacency=wanted.adjacency,
                reserve=wanted.reserve,
                counted=budget.adjacency,
                taken=placed.taken,
                pure_as_gaussian=placed.pure_as_gaussian,
                state=sha256(state),
                note=printable(note),
            )
        )
        begin_state(writer.connection, key, state)
        books.post(entry)
        self._last = writer.head, books.sessions[key]

    # -- fits of one table

    def key_for(self, request: FitRequest, files: Sequence[Place]) -> bytes:
        """The key under which files are known; the ledger is made where there is none.

        Raises
        ------
        BudgetExceeded, PrivacyError
            As :meth:`begin_fit`, where the files' places show it already: nothing was read.
        """
        check_budget(request.budget)
        with self._writing(make=True) as writer:
            key = read_key(writer.connection)
            books = whole_books(writer.connection)
            for name in request.accounts(books, [place_mark(file, key) for file in files]):
                if name in books.accounts:
                    place(self.name, books, replace(request.wanted, data_set=name))
        return key

    def begin_fit(self, request: FitRequest) -> Begun:
        """Begin a fit: a session in every account that holds one of its files, and in the named.

        All of it is one transaction: accounts that are opened, files that join one, and sessions.

        Raises
        ------
        BudgetExceeded, PrivacyError
            As :meth:`begin`; nothing changed.
        """
        check_budget(request.budget)
        check_reservation(request.wanted)
        with self._writing(make=True) as writer:
            books = whole_books(writer.connection)
            before = {mark for marks in books.files.values() for mark in marks}
            names = request.accounts(
                books, [each for mark in request.marks for each in (mark.path, mark.content)]
            )
            was_opened = None
            if names[0] not in books.accounts:
                was_opened = request.budget
                books.post(writer.append(opened(was_opened, books)))
            held = books.files.get(names[0], set())
            if new := tuple(mark for mark in dict.fromkeys(request.marks) if mark not in held):
                writer.append(FilesBody(data_set=names[0], marks=new))
            keys = tuple(SessionKey(request.study, name) for name in map(str, range(len(names))))
            for key, name in zip(keys, names, strict=True):
                wanted = replace(request.wanted, data_set=name)
                self._reserve(writer, books, key, wanted, state=b"", note=request.note)
        self._fits.update(keys)
        places, contents = {m.path for m in before}, {m.content for m in before}
        unseen = [mark for mark in request.marks if mark.path not in places]
        moved = sum(mark.content in contents for mark in unseen)
        return Begun(
            keys=keys,
            accounts=tuple(names),
            opened=was_opened,
            changed=sum(
                mark.path in places and mark.content not in contents for mark in request.marks
            ),
            moved=moved,
            joined=len(unseen) - moved,
        )

    def state(self, key: SessionKey) -> bytes:
        """The state of an open session.

        Raises
        ------
        ProtocolError
            ``unknown-session`` or ``session-ended``.
        """
        with self._store.reading() as connection:
            check_open(find_session(connection, key))
            return stored_state(connection, key)

    def commit(
        self,
        key: SessionKey,
        step: str,
        *,
        request: bytes,
        draft: Callable[[Session, bytes], Draft],
    ) -> bytes:
        """The answer to a step: made once, charged and durable before it is returned.

        All of it is one transaction: what is known of the session, the answer that follows from
        it, its charge and the new state.

        Parameters
        ----------
        request : bytes
            The request; a step is answered again only to the same bytes.
        draft : callable
            Given the open session and its state, returns the :class:`Draft` of the answer. Called
            only when the step has no answer yet; when it raises, nothing changed. It may read this
            ledger, not write it, and whoever else would write waits for it.

        Raises
        ------
        BudgetExceeded
            ``beyond-reservation``, when the session's charges would exceed what it reserved.
        PrivacyError
            ``other-adjacency``, when a charge is not under the session's adjacency.
        ProtocolError
            ``unknown-session``, ``session-ended``, ``step-differs``, ``already-settled``.
        """
        check_names(step)
        digest = sha256(request)
        with self._writing() as writer:
            session = self._session(writer, key)
            if session.has_answered(step):
                try:
                    stored = stored_reply(writer.connection, key, step, digest)
                except ProtocolError:
                    check_open(session)
                    raise
                if stored is not None:
                    return stored
            check_open(session)
            drafted = draft(session, stored_state(writer.connection, key))
            charges = tuple(drafted.charges)
            check_charges(session, charges)
            reply, state = drafted.make()
            answer = AnswerBody(
                study=key.study,
                session=key.session,
                step=step,
                request=digest,
                reply=sha256(reply),
                state=None if state is None else sha256(state),
            )
            entry = writer.append(
                ChargeBody(**answer.model_dump(), releases=charges) if charges else answer
            )
            settle(writer.connection, key, drafted.settles)
            books = Books(sessions={key: session})
            books.post(entry)
            if state is not None:
                change_state(writer.connection, key, state)
            if drafted.ends:
                books.post(end_session(writer, key, drafted.ends))
            store_reply(writer.connection, key, answer, reply)
            self._last = writer.head, books.sessions[key]
        return reply

    def answered(self, key: SessionKey, *steps: str) -> set[str]:
        """Those of the steps that have an answer, be it settled, or of a session that has ended."""
        with self._store.reading() as connection:
            return answered_of(connection, key, steps)

    def end(self, key: SessionKey, outcome: str) -> None:
        """End a session: its charges stay; reservation, state and answers go. Again: nothing.

        Raises
        ------
        ProtocolError
            ``unknown-session``.
        """
        check_names(outcome)
        with self._writing() as writer:
            if self._session(writer, key).is_open:
                end_session(writer, key, outcome)
        self._fits.discard(key)

    def end_study(self, study: str, outcome: str = "ended by the owner") -> int:
        """End all open sessions of a study; how many there were."""
        with self._writing() as writer:
            books = Books.of(
                read_entries(writer.connection, entries_where(ENTRIES.c.study == study))
            )
            ending = [session.key for session in books.sessions.values() if session.is_open]
            for key in ending:
                end_session(writer, key, outcome)
        return len(ending)

    # -- decisions

    def mark(self) -> str:
        """What decisions call this ledger; it is made where there is none."""
        try:
            with self._store.reading() as connection:
                return ledger_mark(read_key(connection))
        except OutputError as error:
            if error.code != "no-ledger":
                raise
        with self._writing(make=True) as writer:
            return ledger_mark(read_key(writer.connection))

    def record(self, make: Callable[[Books], Sequence[Body]]) -> list[Entry]:
        """Record decisions: one transaction, in which what they follow from cannot change.

        Parameters
        ----------
        make : callable
            Given all that is recorded, returns what is to be added; when it raises, nothing is.
            It may not use this ledger.
        """
        with self._writing(make=True) as writer:
            return [writer.append(each) for each in make(_signed_books(writer))]

    def decided(self, study: str | None = None) -> Books:
        """All that is signed, and where a study's sessions began (all studies', without one).

        The chain is not looked at: a decision holds by its signature, and ``begin`` and ``verify``
        look at the whole chain.
        """
        columns = (ENTRIES.c.study, ENTRIES.c.session, ENTRIES.c.number)
        begun = select(*columns).where(ENTRIES.c.kind == "begin").order_by(ENTRIES.c.number)
        if study is not None:
            begun = begun.where(ENTRIES.c.study == study)
        with self._store.reading() as connection:
            books = Books.of(read_entries(connection, _DECIDED))
            for of_study, session, number in connection.execute(begun):
                books.begun[SessionKey(of_study, session)] = number
        return books

    def record_of(self, books: Books) -> Record:
        """What its signed entries amount to."""
        return Record.of(books, self.mark() if books.decided else "")

    def rows_digest(self, places: Sequence[Place]) -> str:
        """What approvals made for this ledger call a site's rows, by its files."""
        with self._store.reading() as connection:
            return rows_digest(places, read_key(connection))

    # -- members

    def members(self) -> MembersBody | None:
        """The newest list of the federation's members that was seen."""
        with self._store.reading() as connection:
            return Books.of(read_entries(connection, _MEMBERS)).members

    def note_members(self, number: int, digest: str) -> None:
        """Record a newer list of members; an older one is no news."""
        with self._writing(make=True) as writer:
            known = Books.of(read_entries(writer.connection, _MEMBERS)).members
            if known is None or known.number < number:
                writer.append(MembersBody(number=number, digest=digest))

    # -- the chain

    def entries(self) -> Iterator[Entry]:
        """All entries in order, as they are stored (``verify`` checks whether they hold)."""
        last = 0
        while page := self._page_after(last):
            yield from page
            last = page[-1].number

    def verify(self, *, against: str | None = None) -> Verification:
        """Whether the chain, its head and the tables beside it hold, and where not.

        Parameters
        ----------
        against : str, optional
            The hash of an entry, noted elsewhere before: it must be in the chain. So must all that
            the ledger's ``heads`` hold.

        Raises
        ------
        DataError, OutputError
            When the second place holds something else than heads, or cannot be read.
        """
        heads = self.heads
        with self._store.reading() as connection:
            noted = None if heads is None else heads.read()
            if heads is not None and not (noted or heads.named):
                noted = None  # nothing was ever noted there
            return check(connection, against=against, noted=noted)

    def note_head(self) -> None:
        """Note the head in the second place, where it is missing; nothing else changes.

        Raises
        ------
        DataError, OutputError
            When what was noted there is not of this ledger; when that place cannot be written.
        """
        if self.heads is not None:
            with self._writing():
                pass

    def _page_after(self, number: int) -> list[Entry]:
        with self._store.reading() as connection:
            return list(
                read_entries(connection, entries_where(ENTRIES.c.number > number).limit(_PAGE))
            )

    def _session(self, writer: Writer, key: SessionKey) -> Session:
        """A session by its entries: those that are known already, if none came since."""
        if self._last is not None:
            head, session = self._last
            if (head, session.key) == (writer.head, key):
                return session
        return find_session(writer.connection, key)

    def _books(self) -> Books:
        with self._store.reading() as connection:
            return whole_books(connection)

    @contextmanager
    def _writing(self, *, make: bool = False) -> Iterator[Writer]:
        """A transaction of the store, the heads before and after it noted."""
        heads = self.heads
        if make and heads is not None:
            heads.note(Head(0, FIRST))  # no ledger is made where its heads cannot be kept
        with self._store.writing(make=make) as writer:
            if heads is not None:
                heads.note(writer.head, last=True)
            yield writer
        if heads is not None:
            heads.note(writer.head)


def _signed_books(writer: Writer) -> Books:
    """All entries added up, where the chain and all that approvers signed hold."""
    books = whole_books(writer.connection)
    if any(not isinstance(body, BudgetBody) for _, _, body in books.decided):
        check_signed(books, ledger_mark(read_key(writer.connection)))
    return books
