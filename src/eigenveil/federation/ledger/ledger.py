"""The ledger of a site: the privacy budget of its rows, and what was spent.

A session begins by reserving what it may cost. Every release of it is charged, and the charge and
the answer are durable before the answer leaves; a repeated request gets the same bytes, so no
noise is drawn twice for one answer. When the session ends, what it did not charge is free again.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from eigenveil.errors import LedgerWarning, ProtocolError, callers_level
from eigenveil.federation.ledger.books import Books, Session, Standing
from eigenveil.federation.ledger.entries import (
    UNIT,
    AnswerBody,
    BeginBody,
    Budget,
    BudgetBody,
    ChargeBody,
    ElsewhereBody,
    Entry,
    Head,
    MembersBody,
    SessionKey,
)
from eigenveil.federation.ledger.heads import HeadsFile, Verification, check
from eigenveil.federation.ledger.placing import (
    Counted,
    Wanted,
    check_budget,
    check_charges,
    check_names,
    check_open,
    check_reservation,
    check_same,
    covers,
    ledger_html,
    noted,
    opened,
    place,
    printable,
)
from eigenveil.federation.ledger.store import LedgerStore, open_store
from eigenveil.federation.ledger.tables import Tables
from eigenveil.privacy.elsewhere import Elsewhere
from eigenveil.privacy.releases import ReleaseRecord

__all__ = ["Budget", "Draft", "Ledger", "Session", "SessionKey"]

_PAGE = 500


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


class Ledger:
    """A ledger in an SQLite file, or in PostgreSQL.

    Every method is one transaction (``entries``: one a page); nothing is held open between calls.
    ``set_budget`` and ``begin`` make the ledger where there is none, readable by its owner alone.
    Any method may raise OutputError or DataError when the ledger is missing, damaged, none, cannot
    be written, or is held by another process for longer than half a minute.

    Parameters
    ----------
    place : path, str or LedgerStore
        A file, or a URL (it has ``://``), such as ``postgresql://user@host/database``.
    budget : Budget, optional
        Of the data set that fits are charged to where they name none: its account is opened with
        this budget when there is none yet, by a fit or at the beginning of a ``with`` block. At the
        block's end the sessions of fits and streams that were not ended are ended.
    durable : bool, default=True
        False only for a simulation's ledger, which is thrown away: a power failure may lose it.
    heads : HeadsFile, "usual" or None, default="usual"
        A second place, by default a file of this user's outside the ledger's folder. Whatever a
        method returns, the ledger's head (number and hash of the last entry) has been noted there
        before, so that ``verify`` finds entries that were taken away. Before anything is written
        the head so far is noted: where that fails, or the ledger was cut since, nothing is charged.
        When the place fails after that, what was charged stays, and its answer waits until it is
        requested again and the head is noted.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | LedgerStore,
        *,
        budget: Budget | None = None,
        durable: bool = True,
        heads: HeadsFile | Literal["usual"] | None = "usual",
    ) -> None:
        self.store = open_store(place, durable=durable, heads=heads)
        self.given_budget = budget
        self.fits: set[SessionKey] = set()  # of fits and streams, which end with a block
        # A session as its last answer left it; it counts while the ledger's head is the same
        self._last: tuple[Head, Session] | None = None

    @property
    def name(self) -> str:
        """The place, without a password."""
        return self.store.name

    @property
    def given_name(self) -> str | None:
        """What fits are charged to that name nothing."""
        return None if self.given_budget is None else self.given_budget.data_set

    def opening(self, usual: Budget) -> Budget:
        """What the account of a fit is opened with, where that is not said here: ``usual``."""
        given = self.given_budget
        return given if given is not None and given.data_set == usual.data_set else usual

    def __enter__(self) -> Self:
        if (given := self.given_budget) is not None:
            check_budget(given)
            with self.store.writing(make=True) as tables:
                known = (books := tables.books()).accounts.get(given.data_set)
                if known is None:
                    tables.append(opened(given, books))
            if known is not None and known.budget != given:
                warnings.warn(
                    f"{self.name}: the account of {given.data_set!r} keeps the budget that it has, "
                    f"{known.budget.bound} ({known.budget.adjacency}); set_budget sets another.",
                    LedgerWarning,
                    stacklevel=callers_level(),
                )
        return self

    def __exit__(self, *error: object) -> None:
        for key in list(self.fits):
            self.end(key, "stopped")

    def __deepcopy__(self, memo: object) -> Self:
        return self  # all that counts is in its place; scikit-learn copies parameters

    def __repr__(self) -> str:
        return f"Ledger({self.name!r})"

    def _repr_html_(self) -> str:
        """The ledger in a notebook: its accounts, or why they cannot be read."""
        return ledger_html(self.name, self.books)

    def books(self) -> Books:
        """All entries added up; BrokenChain where one is not what was once written."""
        with self.store.reading() as tables:
            return tables.books()

    # -- budgets

    def set_budget(self, budget: Budget, *, by: str = "", reason: str = "") -> None:
        """Open a data set's account, or set its budget anew, unsigned; it may be lower than spent.

        Where the site has approvers, they sign it:
        :meth:`eigenveil.federation.approvals.desk.Decisions.set_budget`.

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
        with self.store.writing(make=True) as tables:
            tables.append(noted(opened(budget, tables.books()), by=by, reason=reason))

    def budget(self, data_set: str) -> Budget | None:
        """The budget that counts, or ``None`` when none was ever set."""
        with self.store.reading() as tables:
            return _budget(tables, data_set)

    def budget_if_any(self, data_set: str) -> Budget | None:
        """The same; ``None`` also where there is no ledger yet."""
        with self.store.reading_if_any() as tables:
            return None if tables is None else _budget(tables, data_set)

    def standings(self) -> list[Standing]:
        """Where each account stands, in the order in which they were opened."""
        return self.books().standings()

    def sessions(self) -> list[Session]:
        """All sessions, in the order in which they began."""
        return list(self.books().sessions.values())

    def covers(self, wanted: Wanted) -> bool:
        """Whether a data set's account, which there must be, covers a session."""
        return covers(self.name, self.books(), wanted)

    def charge_elsewhere(
        self, data_set: str, work: Elsewhere, *, unit: str = UNIT, by: str = "", reason: str = ""
    ) -> Standing:
        """Charge an account for work that was done elsewhere; where it stands then.

        Parameters
        ----------
        work : Elsewhere
            From :meth:`eigenveil.privacy.elsewhere.Elsewhere.stated`, or of an event of
            dp_accounting (:func:`eigenveil.privacy.elsewhere.from_event`).
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
        with self.store.writing() as tables:
            books = tables.books()
            account = books.accounts.get(data_set)
            adjacency = work.adjacency if account is None else account.budget.adjacency
            loss = work.under(work.adjacency)
            wanted = Wanted(data_set, work.adjacency, loss, work.under(adjacency), unit)
            check_reservation(wanted)
            placed = self._placed(tables, wanted)
            tables.append(
                ElsewhereBody(
                    data_set=data_set,
                    loss=placed.taken,
                    what=printable(work.what),
                    by=printable(by),
                    reason=printable(reason),
                )
            )
            return books.standing(data_set)

    # -- sessions

    def begin(self, key: SessionKey, wanted: Wanted, *, state: bytes, note: str = "") -> bytes:
        """Begin a session and reserve what it may charge; the state that is stored.

        A session that is open already is as it was: its own stored state is returned. Other open
        sessions of the same study and data set end as ``replaced``.
        """
        check_names(*key)
        check_reservation(wanted)
        with self.store.writing(make=True) as tables:
            books = tables.signed_books()
            if (known := books.sessions.get(key)) is not None:
                check_open(known)
                check_same(known, wanted)
                return tables.state(key)
            for session in list(books.sessions.values()):
                its = session.key.study, session.terms.data_set
                if session.is_open and its == (key.study, wanted.data_set):
                    tables.end(session.key, "replaced")
            self.reserve(tables, key, wanted, state=state, note=note)
            return state

    def reserve(
        self, tables: Tables, key: SessionKey, wanted: Wanted, *, state: bytes = b"", note: str
    ) -> None:
        """Begin a session that was never begun, if its account covers it."""
        placed = self._placed(tables, wanted)
        tables.append(
            BeginBody(
                study=key.study,
                session=key.session,
                data_set=wanted.data_set,
                unit=wanted.unit,
                adjacency=wanted.adjacency,
                reserve=wanted.reserve,
                counted=placed.account.budget.adjacency,
                taken=placed.taken,
                pure_as_gaussian=placed.pure_as_gaussian,
                state=tables.digest(state),
                note=printable(note),
            )
        )
        tables.begin_state(key, state)
        self._last = tables.head, tables.books().sessions[key]

    def _placed(self, tables: Tables, wanted: Wanted) -> Counted:
        """How the account covers it, the account's new caps recorded where it has any."""
        placed = place(self.name, tables.books(), wanted)
        if placed.is_new:
            tables.append(placed.account)
        return placed

    def state(self, key: SessionKey) -> bytes:
        """The state of an open session."""
        with self.store.reading() as tables:
            check_open(tables.session(key))
            return tables.state(key)

    def commit(
        self,
        key: SessionKey,
        step: str,
        *,
        request: bytes,
        draft: Callable[[Session, bytes], Draft],
    ) -> bytes:
        """The answer to a step: made once, charged and durable before it is returned.

        All of it is one transaction. A step is answered again only to the same bytes of
        ``request``. ``draft`` is given the open session and its state, and called only where the
        step has no answer yet; when it raises, nothing changed. It may read this ledger, not write
        it, and whoever else would write waits for it.
        """
        check_names(step)
        with self.store.writing() as tables:
            digest = tables.request_digest(request)
            session = self._session(tables, key)
            if session.has_answered(step):
                try:
                    stored = tables.reply(key, step, digest)
                except ProtocolError:
                    check_open(session)
                    raise
                if stored is not None:
                    return stored
            check_open(session)
            drafted = draft(session, tables.state(key))
            charges = tuple(drafted.charges)
            check_charges(session, charges)
            reply, state = drafted.make()
            answer = AnswerBody(
                study=key.study,
                session=key.session,
                step=step,
                request=digest,
                reply=tables.digest(reply),
                state=None if state is None else tables.digest(state),
            )
            if charges:
                answer = ChargeBody(**answer.model_dump(), releases=charges)
            books = Books(sessions={key: session})
            books.post(tables.append(answer), answer)
            tables.settle(key, drafted.settles)
            if state is not None:
                tables.change_state(key, state)
            if drafted.ends:
                books.post(*tables.end(key, drafted.ends))
            tables.keep_reply(key, answer, reply)
            self._last = tables.head, books.sessions[key]
        return reply

    def answered(self, key: SessionKey, *steps: str) -> set[str]:
        """Those of the steps that have an answer, be it settled, or of a session that has ended."""
        with self.store.reading() as tables:
            return tables.answered(key, steps)

    def end(self, key: SessionKey, outcome: str) -> None:
        """End a session: its charges stay; reservation, state and answers go. Again: nothing."""
        check_names(outcome)
        with self.store.writing() as tables:
            if self._session(tables, key).is_open:
                tables.end(key, outcome)
        self.fits.discard(key)

    def end_study(self, study: str, outcome: str = "ended by the owner") -> int:
        """End all open sessions of a study; how many there were."""
        with self.store.writing() as tables:
            books = Books.of(tables.entries("study = ?", study))
            ending = [session.key for session in books.sessions.values() if session.is_open]
            for key in ending:
                tables.end(key, outcome)
        return len(ending)

    def _session(self, tables: Tables, key: SessionKey) -> Session:
        """A session by its entries: those that are known already, if none came since."""
        if self._last is not None and self._last[0] == tables.head and self._last[1].key == key:
            return self._last[1]
        return tables.session(key)

    def note_members(
        self, number: int, digest: str, not_before: Callable[[int, str], None]
    ) -> None:
        """Record a newer list of members; ``not_before`` is asked of the one that was seen last."""
        with self.store.writing(make=True) as tables:
            known = tables.of_kind(MembersBody).members
            if known is not None:
                not_before(known.number, known.digest)
            if known is None or known.number < number:
                tables.append(MembersBody(number=number, digest=digest))

    # -- the chain

    def entries(self) -> Iterator[Entry]:
        """All entries in order, as they are stored (``verify`` checks whether they hold)."""
        last = 0
        while True:
            with self.store.reading() as tables:
                rest = "WHERE number > ? ORDER BY number LIMIT ?"
                page = list(tables.query_entries(rest, last, _PAGE))
            if not page:
                return
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
        with self.store.reading() as tables:
            return check(tables, against=against, noted=self.store.noted())

    def note_head(self) -> None:
        """Note the head in the second place, where it is missing; nothing else changes."""
        with self.store.writing():
            pass


def _budget(tables: Tables, data_set: str) -> Budget | None:
    account = tables.of_kind(BudgetBody).accounts.get(data_set)
    return None if account is None else account.budget
