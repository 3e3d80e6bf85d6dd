"""Who decides at a site: a list in its ledger, changed by those who are in it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from pydantic import ValidationError

from eigenveil.errors import DataError, DecisionRefused, OutputError
from eigenveil.federation.approvals.documents import (
    Approver,
    ApproverList,
    ApproverRole,
    Placed,
    SignedList,
)
from eigenveil.federation.approvals.record import Record
from eigenveil.federation.ledger.books import Books
from eigenveil.federation.ledger.entries import ApproversBody, Body
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.public_key import PublicKey, Signer
from eigenveil.federation.signed import Signed

FIRST_OWNER = "owner"
"""The approver that every ledger of a site begins with; its key is the party's."""
_T = TypeVar("_T", bound=Placed)


class Site(Protocol):
    """What is needed of a site's folder (:class:`eigenveil.network.folder.PartyFolder`)."""

    @property
    def folder(self) -> Path:
        """Absolute."""

    @property
    def name(self) -> str:
        """As in studies."""

    @property
    def origin(self) -> str:
        """The fingerprint of the federation's first registrar."""

    @property
    def decided(self) -> Path:
        """Texts of studies that were decided about."""

    @property
    def waiting(self) -> Path:
        """Texts of studies that wait."""

    @property
    def keys(self) -> Path:
        """The party's own keys."""

    @property
    def approver_keys(self) -> Path:
        """Keys of its approvers, encrypted."""

    @property
    def signer_now(self) -> Signer:
        """The party's key by the newest list of members."""

    def folder_of(self, key: str) -> Path:
        """Where the party has, or had, the keys of a signing key."""


def key_file(party: Site, name: str) -> Path:
    """Where a party keeps an approver's key, encrypted."""
    if not name or name.startswith(".") or any(c in "/\\\0" for c in name):
        raise DataError("bad-name-of-file", name=name)
    return party.approver_keys / f"{name}.key"


@dataclass(frozen=True)
class Roster:
    """Who decides at a site; each change is signed by one who does."""

    party: Site
    ledger: Ledger  # The site's; made by the first decision where there is none

    # -- reading

    def record(self, study: str | None = None) -> Record:
        """All that is signed here; of one study, its own runs only."""
        try:
            found = self.ledger.record(study)
        except OutputError as error:
            if error.code != "no-ledger":
                raise
            return Record("")
        if found.listed is not None:
            self._check_place(found.listed)
        return found

    def approvers(self) -> ApproverList:
        """Who decides; before the first entry the party itself, as owner."""
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
        mark = self.ledger.mark()
        if self.record().listed is None:
            self.ledger.add(lambda books: self._opened(books, mark)[1])

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
        self,
        name: str,
        role: ApproverRole,
        public_key: str = "",
        *,
        signer: Signer | None = None,
        by: str = FIRST_OWNER,
    ) -> bool:
        """Put somebody into the list; whether enough approvers have signed that."""
        listed = self.approvers()
        known = listed.called(name)
        if known is not None and known.until is None:
            raise DataError("name-taken", name=name, role=known.role)
        new = {"name": name, "role": role, "public_key": public_key, "since": _now()}
        others = [each.model_dump() for each in listed.approvers if each.name != name]
        return self._change(signer, by, approvers=[*others, new])

    def renew(
        self, name: str, public_key: str, *, signer: Signer | None = None, by: str = FIRST_OWNER
    ) -> bool:
        """Give somebody in the list another key; what the one before signed stays what it is."""
        return self._edit(name, signer, by, public_key=public_key)

    def dismiss(self, name: str, *, signer: Signer | None = None, by: str = FIRST_OWNER) -> bool:
        """End what somebody may decide, from now on; past decisions stay what they are."""
        return self._edit(name, signer, by, until=_now())

    def set_needed(
        self, needed: Literal[1, 2], *, signer: Signer | None = None, by: str = FIRST_OWNER
    ) -> bool:
        """Switch the two-person rule on (2) or off (1)."""
        return self._change(signer, by, needed=needed)

    def agree(self, signer: Signer | None = None, *, by: str = FIRST_OWNER) -> bool:
        """Sign the latest change of the list that waits for another approver."""
        waiting = self.proposed()
        if not waiting:
            raise DataError("nothing-waits")
        return self._propose(waiting[-1][0], signer, by)

    def _edit(self, name: str, signer: Signer | None, by: str, **fields: object) -> bool:
        listed = self.approvers()
        known = listed.called(name)
        if known is None or known.until is not None:
            raise DataError("unknown-approver", name=name)
        changed = [
            each.model_dump() | (fields if each.name == name else {}) for each in listed.approvers
        ]
        return self._change(signer, by, approvers=changed)

    def _change(self, signer: Signer | None, by: str, **fields: object) -> bool:
        """Propose the next list, signed by one who decides."""
        self._pin()
        listed = self.approvers()
        changed = listed.model_dump() | {"number": listed.number + 1} | fields
        try:
            new = ApproverList.model_validate(changed)
        except ValidationError as error:
            raise _bad_fields(error) from None
        return self._propose(new, signer, by)

    def _propose(self, new: ApproverList, signer: Signer | None, by: str) -> bool:
        signed: SignedList = Signed[ApproverList].by(new, signer or self.owner())
        known = self.approvers().called(by)
        if known is None or known.public_key not in signed.signatures:
            raise DecisionRefused("bad-signature", what="The change of the list", name=by)

        def make(books: Books) -> Sequence[Body]:
            Record.of(books, new.ledger).take(signed, datetime.now(UTC))
            return [ApproversBody(signed=signed)]

        self.ledger.add(make)
        return self.approvers() == new

    # -- for this site

    def _here(self, mark: str) -> dict[str, str]:
        """Where documents made here count."""
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

    def _made(self, kind: type[_T], fields: dict[str, Any]) -> _T:
        """A document for this site and ledger, with the time and a number that is used once."""
        once = {"time": datetime.now(UTC), "nonce": os.urandom(32).hex()}
        try:
            return kind.model_validate({**fields, **self._here(self.ledger.mark()), **once})
        except ValidationError as error:
            raise _bad_fields(error) from None


def _now() -> datetime:
    """As entries have it, so that nobody decides before being in the list."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def _bad_fields(error: ValidationError) -> DataError:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(each) for each in first["loc"]) or "decision"
    return DataError("bad-decision", field=where, reason=first["msg"])
