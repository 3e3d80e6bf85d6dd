"""Who decides at a site: a list in its ledger, changed by those who are in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from pydantic import ValidationError

from eigenveil.errors import DataError, DecisionRefused
from eigenveil.federation.approvals.documents import (
    Approver,
    ApproverList,
    ApproverRole,
    Placed,
    SignedList,
)
from eigenveil.federation.approvals.record import Record
from eigenveil.federation.ledger.books import Books
from eigenveil.federation.ledger.entries import ApproversBody, Body, Entry
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.public_key import PublicKey, Signer
from eigenveil.federation.signed import Signed

FIRST_OWNER = "owner"
"""The approver that every ledger of a site begins with; its key is the party's."""
_T = TypeVar("_T", bound=Placed)


class SiteFolder(Protocol):
    """What is needed of a site's folder (:class:`eigenveil.network.folder.PartyFolder`)."""

    @property
    def folder(self) -> Path: ...
    @property
    def name(self) -> str: ...
    @property
    def origin(self) -> str: ...
    @property
    def decided(self) -> Path: ...
    @property
    def waiting(self) -> Path: ...
    @property
    def keys(self) -> Path: ...
    @property
    def approver_keys(self) -> Path: ...
    @property
    def signer_now(self) -> Signer: ...
    def folder_of(self, key: str) -> Path: ...


@dataclass(frozen=True)
class Decider:
    """Who decides, as the list of approvers has the name, and the key that signs for them."""

    name: str = FIRST_OWNER
    signer: Signer | None = None  # Without one the party's own


OWNER = Decider()


def key_file(party: SiteFolder, name: str) -> Path:
    """Where a party keeps an approver's key, encrypted."""
    if not name or name.startswith(".") or any(c in "/\\\0" for c in name):
        raise DataError("bad-name-of-file", name=name)
    return party.approver_keys / f"{name}.key"


@dataclass(frozen=True)
class Roster:
    """Who decides at a site; each change is signed by one who does."""

    party: SiteFolder
    ledger: Ledger  # The site's; made by the first decision where there is none

    # -- reading

    def record(self, study: str | None = None) -> Record:
        """What is signed here amounts to; of one study, with its own runs only.

        The chain is not looked at: a decision holds by its signature, and ``begin`` and ``verify``
        look at the whole chain.
        """
        kinds = "'decision', 'approvers', 'budget', 'budget-decision'"
        with self.ledger.store.reading_if_any() as tables:
            if tables is None:
                return Record("")
            books = Books.of(tables.entries(f"kind IN ({kinds})"))
            books.begun = tables.begun(study)
            found = Record.of(books, tables.mark())
        if found.listed is not None:
            self._check_place(found.listed)
        return found

    def approvers(self) -> ApproverList:
        return self.record().listed or self._first_list("0" * 64)

    def proposed(self) -> list[tuple[ApproverList, tuple[Approver, ...]]]:
        """Next lists that wait for another approver, and who has signed each."""
        return self.record().proposed

    def owner(self) -> Signer:
        """The party's key, which signs for ``FIRST_OWNER``."""
        own, known = self.party.signer_now, self.approvers().called(FIRST_OWNER)
        if known is not None and known.until is None and known.public_key != own.public_key.text:
            former = self.party.folder_of(known.public_key) / "signing.pem"
            raise DecisionRefused(
                "owner-key", folder=self.party.folder, first_owner=FIRST_OWNER, former=former
            )
        return own

    # -- the first list

    def begin(self) -> None:
        """Pin the approvers in a new ledger; raise where this ledger is not this site's."""
        self._pin()
        if not any(map(self._signed_here, self.record().lists)):
            raise DecisionRefused(
                "approvers-not-signed",
                ledger=self.ledger.name,
                party=self.party.name,
                folder=self.party.folder,
            )

    def _pin(self) -> None:
        mark = self.ledger.store.mark()
        if self.record().listed is None:
            self._record(lambda books: self._opened(books, mark)[1])

    def _record(self, make: Callable[[Books], Sequence[Body]]) -> list[Entry]:
        """Record what follows from all that is recorded: one transaction, or nothing."""
        with self.ledger.store.writing(make=True) as tables:
            return [tables.append(each) for each in make(tables.signed_books())]

    def _signed_here(self, listed: SignedList) -> bool:
        """Whether the party has signed a list, with a key that it has, or had."""
        return any(
            self.party.folder_of(key).is_dir() and listed.holds(PublicKey.parse(key))
            for key in listed.signatures
        )

    def _opened(self, books: Books, mark: str) -> tuple[Record, list[ApproversBody]]:
        """The record that a new entry follows from, and the first list where there was none."""
        record = Record.of(books, mark)
        before = list(self._first(record, books))
        for each in before:
            record.take(each.signed, datetime.now(UTC), first=True)
        return record, before

    def _first(self, record: Record, books: Books) -> Iterator[ApproversBody]:
        """The list that a site's ledger begins with, where nothing is in it."""
        if record.listed is not None:
            self._check_place(record.listed)
            return
        if not books.is_empty:
            raise DecisionRefused("no-approvers", ledger=self.ledger.name)
        first = self._first_list(record.ledger)
        yield ApproversBody(signed=Signed[ApproverList].by(first, self.party.signer_now))

    def _first_list(self, mark: str) -> ApproverList:
        key = self.party.signer_now.public_key.text
        own = Approver(name=FIRST_OWNER, role="owner", public_key=key, since=_now())
        return ApproverList(number=1, approvers=(own,), **self._here(mark))

    # -- the next list

    def appoint(
        self, name: str, role: ApproverRole, public_key: str = "", *, by: Decider = OWNER
    ) -> bool:
        """Put somebody into the list; whether enough approvers have signed that."""
        listed = self.approvers()
        known = listed.called(name)
        if known is not None and known.until is None:
            raise DataError("name-taken", name=name, role=known.role)
        new = {"name": name, "role": role, "public_key": public_key, "since": _now()}
        others = [each.model_dump() for each in listed.approvers if each.name != name]
        return self._change(by, approvers=[*others, new])

    def renew(self, name: str, public_key: str, *, by: Decider = OWNER) -> bool:
        """Give somebody in the list another key; what the one before signed stays what it is."""
        return self._edit(name, by, public_key=public_key)

    def dismiss(self, name: str, *, by: Decider = OWNER) -> bool:
        """End what somebody may decide, from now on; past decisions stay what they are."""
        return self._edit(name, by, until=_now())

    def set_needed(self, needed: Literal[1, 2], *, by: Decider = OWNER) -> bool:
        """Switch the two-person rule on (2) or off (1)."""
        return self._change(by, needed=needed)

    def agree(self, by: Decider = OWNER) -> bool:
        """Sign the latest change of the list that waits for another approver."""
        waiting = self.proposed()
        if not waiting:
            raise DataError("nothing-waits")
        return self._propose(waiting[-1][0], by)

    def _edit(self, name: str, by: Decider, **fields: object) -> bool:
        listed = self.approvers()
        known = listed.called(name)
        if known is None or known.until is not None:
            raise DataError("unknown-approver", name=name)
        changed = [
            each.model_dump() | (fields if each.name == name else {}) for each in listed.approvers
        ]
        return self._change(by, approvers=changed)

    def _change(self, by: Decider, **fields: object) -> bool:
        self._pin()
        listed = self.approvers()
        changed = listed.model_dump() | {"number": listed.number + 1} | fields
        return self._propose(_made(ApproverList, changed), by)

    def _propose(self, new: ApproverList, by: Decider) -> bool:
        signed = self._signed(new, by)
        known = self.approvers().called(by.name)
        if known is None or known.public_key not in signed.signatures:
            raise DecisionRefused("bad-signature", what="The change of the list", name=by.name)

        def make(books: Books) -> Sequence[Body]:
            Record.of(books, new.ledger).take(signed, datetime.now(UTC))
            return [ApproversBody(signed=signed)]

        self._record(make)
        return self.approvers() == new

    def _signed(self, said: _T, by: Decider) -> Signed[_T]:
        kind = type(said)
        made: Signed[_T] = Signed[kind].by(said, by.signer or self.owner())  # type: ignore[valid-type]
        return made

    def _here(self, mark: str) -> dict[str, str]:
        return {"site": self.party.name, "federation": self.party.origin, "ledger": mark}

    def _check_place(self, listed: ApproverList) -> None:
        if (listed.site, listed.federation) != (self.party.name, self.party.origin):
            raise DecisionRefused(
                "folder-of-other-site",
                ledger=self.ledger.name,
                owner=listed.whose,
                folder=self.party.folder,
                party=self.party.name,
                federation=self.party.origin[:16],
            )

    def _now_and_once(self, kind: type[_T], fields: dict[str, Any]) -> _T:
        """A document for this site and ledger, with the time and a number that is used once."""
        once = {"time": datetime.now(UTC), "nonce": os.urandom(32).hex()}
        return _made(kind, {**fields, **self._here(self.ledger.store.mark()), **once})


def _now() -> datetime:
    """As entries have it, so that nobody decides before being in the list."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def _made(kind: type[_T], fields: dict[str, Any]) -> _T:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(each) for each in first["loc"]) or "decision"
        raise DataError("bad-decision", field=where, reason=first["msg"]) from None
