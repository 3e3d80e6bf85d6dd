"""Decisions about studies and budgets at a site: made by approvers, signed, kept in the ledger.

>>> decisions = Decisions(party, ledger)                                      # doctest: +SKIP
>>> signer = open_key(party.approver_keys / "steward.key", password)          # doctest: +SKIP
>>> decisions.approve(study, signer, by="steward", purpose="audit", runs=3)   # doctest: +SKIP
>>> decisions.standing(study.hash).left                                       # doctest: +SKIP
3

What an approval is worth follows from the ledger alone
(:mod:`eigenveil.federation.ledger.decisions`): a file of the party holds only a study's text.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from eigenveil.errors import DataError, DecisionRefused, OutputError
from eigenveil.federation.identity import Identity, Signer
from eigenveil.federation.ledger.books import Books
from eigenveil.federation.ledger.decisions import Record, Recorded, Standing
from eigenveil.federation.ledger.documents import (
    EVERY_STUDY,
    Action,
    Approver,
    ApproverList,
    ApproverRole,
    BudgetDecision,
    Decision,
    Placed,
    SignedBudget,
    SignedDecision,
    SignedList,
)
from eigenveil.federation.ledger.entries import (
    UNIT,
    ApproversBody,
    Body,
    Budget,
    BudgetBody,
    BudgetDecisionBody,
    DecisionBody,
    SessionKey,
    budget_command,
)
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.ledger.placing import capped, check_budget, noted
from eigenveil.federation.public_key import PublicKey
from eigenveil.federation.signed import Signed
from eigenveil.federation.study.study import Study
from eigenveil.files import Place
from eigenveil.network.approvals import decided_study, forget_waiting, keep, waiting_study
from eigenveil.network.folder import PartyFolder, identity_of
from eigenveil.network.keys import KeySigner, PartyKeys
from eigenveil.network.signers import make_key, open_key

__all__ = [
    "EVERY_STUDY",
    "FIRST_OWNER",
    "Approver",
    "ApproverList",
    "Decision",
    "Decisions",
    "KeySigner",
    "Recorded",
    "SignedDecision",
    "Signer",
    "Standing",
    "key_file",
    "make_key",
    "open_key",
]

FIRST_OWNER = "owner"
"""The approver that every ledger of a site begins with; its key is the party's."""
_T = TypeVar("_T", bound=Placed)


def key_file(party: PartyFolder, name: str) -> Path:
    """Where a party keeps an approver's key, encrypted."""
    if not name or name.startswith(".") or any(c in "/\\\0" for c in name):
        raise DataError(
            f"No file can be called {name!r}.",
            hint="Give --key FILE, or choose another name.",
            code="bad-name",
        )
    return party.approver_keys / f"{name}.key"


@dataclass(frozen=True)
class Decisions:
    """The decisions of a site."""

    party: PartyFolder  # Of the site
    ledger: Ledger  # The site's; made by the first decision where there is none
    data_set: str = "default"  # Whose rows approvals are for, as the ledger calls them
    # The rows' files, by whose contents an approval names the rows; without any, or with
    # `any_rows`, it is for whatever rows the data set has when a run begins
    rows: Sequence[Place] = ()

    # -- reading

    def record(self, study: str | None = None) -> Record:
        """All that is signed here; of one study, its own runs only."""
        try:
            found = Record.of(self.ledger.decided(study), self.ledger.mark())
        except OutputError as error:
            if error.code != "no-ledger":
                raise
            return Record("")
        if found.listed is not None:
            self._check_place(found.listed)
        return found

    def standing(self, study: str) -> Standing:
        """Where a study stands, by its hash."""
        return self.record(study).standing(study)

    def history(self, study: str | None = None) -> list[Recorded]:
        """All decisions in their order; those about a study."""
        return [
            each
            for each in self.record().decisions
            if study is None or each.decision.study in (study, EVERY_STUDY)
        ]

    def approvers(self) -> ApproverList:
        """Who decides; before the first entry the party itself, as owner."""
        return self.record().listed or self._first_list("0" * 64)

    # -- runs

    def begin(self) -> None:
        """Pin the approvers in a new ledger; raise where this ledger is not this site's."""
        self._pin()
        signed = (
            body.signed
            for _, _, body in self.ledger.decided().decided
            if isinstance(body, ApproversBody)
        )
        if not any(self._signed_here(each) for each in signed):
            raise DecisionRefused(
                f"The approvers in {self.ledger.name} were never signed by {self.party.name}: "
                f"somebody else made it, or the keys in {self.party.folder} were lost.",
                hint="Give the site a ledger of its own. Where keys were lost, and an approver has "
                "put the new one into the list, the owner signs the list with it: 'eigenveil site "
                "approver rule'.",
                code="no-approvers",
            )

    def _pin(self) -> None:
        mark = self.ledger.mark()

        def make(books: Books) -> Sequence[Body]:
            return list(self._first(Record.of(books, mark), books))

        if self.record().listed is None:
            self.ledger.record(make)

    def _signed_here(self, listed: SignedList) -> bool:
        """Whether the party has signed a list, with a key that it has, or had."""
        return any(
            (self.party.keys / PartyKeys.name_of(key)).is_dir()
            and listed.holds(PublicKey.parse(key))
            for key in listed.signatures
        )

    def note_members(self) -> None:
        """Have the ledger know the newest list of members; raise where it knew a newer one."""
        known, members = self.ledger.members(), self.party.known
        if known is not None:
            members.not_before(known.number, known.digest)
        self.ledger.note_members(*members.mark())

    def may_run(self, key: SessionKey) -> bool:
        """Whether a run may begin or go on now, with the rows that the site calls so."""
        record = self.record(key.study)
        standing = record.standing(key.study)
        return standing.data_set == self.data_set and standing.allows(record.begun.get(key))

    def check_rows(self, study: str, rows: Sequence[Place]) -> None:
        """Raise where an approval is for other rows than these."""
        standing = self.standing(study)
        if standing.data_set != self.data_set:
            was = f"data set {standing.data_set!r}, and the site runs with {self.data_set!r}"
        elif standing.rows and standing.rows != self.ledger.rows_digest(rows):
            was = f"rows of {self.data_set!r} that have changed since, or are others"
        else:
            return
        raise DecisionRefused(
            f"Study {study[:12]} was approved for {was}.",
            hint="Approve it again for the rows that are there now; 'site approve --any-rows' is "
            "for rows that go on growing.",
            code="other-rows",
        )

    # -- deciding

    def approve(
        self,
        study: Study | str,
        signer: Signer | None = None,
        *,
        by: str = FIRST_OWNER,
        purpose: str = "",
        reason: str = "",
        runs: int | None = 1,
        until: datetime | None = None,
        any_rows: bool = False,
    ) -> Standing:
        """Approve a study: once, for a number of runs, or until a date."""
        known = study if isinstance(study, Study) else self.text(study)
        self.check_countable(known, by=by)
        keep(self.party, known)  # a text that no decision supports admits nothing
        standing = self.decide(
            "approve",
            known.hash,
            signer,
            by=by,
            purpose=purpose,
            reason=reason,
            runs=runs,
            until=until,
            data_set=self.data_set,
            rows="" if any_rows or not self.rows else self.ledger.rows_digest(self.rows),
        )
        if standing.approved:
            forget_waiting(self.party, known.hash)
        return standing

    def check_countable(self, study: Study, *, by: str = FIRST_OWNER) -> None:
        """Raise where the data set's budget counts something else than a study protects."""
        budget = self.ledger.budget_if_any(self.data_set)
        unit = study.unit or UNIT
        if budget is None or (
            budget.unit == unit
            and (budget.adjacency, study.adjacency) != ("add-remove", "replace-one")
        ):
            return
        counts, protects = (
            f"{'each' if adjacency == 'add-remove' else 'each changed'} {of}"
            for adjacency, of in ((budget.adjacency, budget.unit), (study.adjacency, unit))
        )
        name, also = self.data_set, ""
        if not self.ledger.is_untouched(name):  # its losses cannot be counted otherwise
            name = f"{name} by {unit}"
            also = f", and start the site with --data-set {quote(name)}"
        adjacency = "replace-one" if study.adjacency == "replace-one" else budget.adjacency
        command = budget_command(self.ledger.name, name, adjacency=adjacency, unit=unit)
        command = command.replace(
            "--epsilon E --delta D", f"--epsilon {budget.epsilon:g} --delta {budget.delta:g}"
        )
        raise DecisionRefused(
            f"The budget of data set {self.data_set!r} counts what {counts} loses, and study "
            f"{study.name!r} protects {protects}: no run of it could begin.",
            hint=f"Open an account that counts so{also}: {command} --party "
            f"{quote(str(self.party.folder))} --as {quote(by)}",
            code="other-unit",
        )

    def refuse(
        self,
        study: str,
        signer: Signer | None = None,
        *,
        by: str = FIRST_OWNER,
        reason: str,
        tell_lead: bool = False,
    ) -> Standing:
        """Refuse a study, by its hash; the lead is told the reason only with ``tell_lead``."""
        keep(self.party, self.text(study))
        found = self.decide("refuse", study, signer, by=by, reason=reason, tell_lead=tell_lead)
        forget_waiting(self.party, study)
        return found

    def revoke(
        self, study: str, signer: Signer | None = None, *, by: str = FIRST_OWNER, reason: str = ""
    ) -> Standing:
        """Take an approval back from the next message on; or ``EVERY_STUDY``'s."""
        return self.decide("revoke", study, signer, by=by, reason=reason)

    def allow_every_study(self, signer: Signer | None = None, *, by: str = FIRST_OWNER) -> Standing:
        """Record, where it is not, that every study may run as often as the budget allows."""
        standing = self.standing(EVERY_STUDY)
        if standing.approved and standing.data_set == self.data_set:
            return standing
        if self.approvers().needed > 1:
            raise DecisionRefused(
                "Two approvers must agree on every study here, so none can be approved as it "
                "comes.",
                hint="Start with --approve manual, or change the rule: 'eigenveil site approver "
                "rule'.",
                code="two-persons",
            )
        return self.decide(
            "approve",
            EVERY_STUDY,
            signer,
            by=by,
            reason="site start --approve all",
            runs=None,
            data_set=self.data_set,
        )

    def end_every_study(self, signer: Signer | None = None, *, by: str = FIRST_OWNER) -> None:
        """Revoke the standing approval of every study, where there is one."""
        if self.standing(EVERY_STUDY).approved:
            self.decide("revoke", EVERY_STUDY, signer, by=by, reason="site start --approve manual")

    def decide(
        self,
        action: Action,
        study: str,
        signer: Signer | None = None,
        *,
        by: str = FIRST_OWNER,
        runs: int | None = 1,
        **fields: Any,
    ) -> Standing:
        """Make, sign and record a decision; where the study stands afterwards."""
        runs = runs if action == "approve" else None
        made = self.draft(action, study, by=by, runs=runs, **fields)
        self.add(Signed[Decision].by(made, signer or self.owner()))
        return self.standing(study)

    def draft(self, action: Action, study: str, *, by: str, **fields: object) -> Decision:
        """A decision for this site and ledger, now, to be signed."""
        return self._made(Decision, {"action": action, "study": study, "by": by, **fields})

    def add(self, signed: SignedDecision) -> None:
        """Record a signed decision; two at once take their turns."""
        mark = self.ledger.mark()

        def make(books: Books) -> Sequence[Body]:
            record, before = self._opened(books, mark)
            record.check(signed, datetime.now(UTC))
            _check_sensible(signed.said, record)
            return [*before, DecisionBody(signed=signed)]

        self.ledger.record(make)

    def _former(self, key: str) -> Path:
        return self.party.keys / PartyKeys.name_of(key) / "signing.pem"

    def owner(self) -> Signer:
        """The party's key, which signs for ``FIRST_OWNER``."""
        own, known = self.own().signer, self.approvers().called(FIRST_OWNER)
        if known is not None and known.until is None and known.public_key != own.public_key.text:
            raise DecisionRefused(
                f"The party in {self.party.folder} has another key than the list in the ledger has "
                f"for {FIRST_OWNER!r}.",
                hint="Where the party got a new key, an approver who is in the list puts it there: "
                f"'eigenveil site approver renew owner --party {self.party.folder} --as APPROVER' "
                f"(or with the owner's former key: --key {self._former(known.public_key)}).",
                code="owner-key",
            )
        return own

    # -- budgets

    def set_budget(
        self,
        budget: Budget,
        signer: Signer | None = None,
        *,
        by: str = FIRST_OWNER,
        reason: str = "",
    ) -> bool:
        """Decide about a data set's budget; whether it is set.

        It is not while a second approver must agree: to exactly the same.
        """
        check_budget(budget)
        made = self._made(BudgetDecision, {**asdict(budget), "by": by, "reason": reason})
        signed: SignedBudget = Signed[BudgetDecision].by(made, signer or self.owner())

        def make(books: Books) -> Sequence[Body]:
            record, before = self._opened(books, made.ledger)
            enough = record.agree(signed, datetime.now(UTC))
            body = noted(capped(budget, books), by=by, reason=reason)
            return [*before, BudgetDecisionBody(signed=signed), *([body] if enough else [])]

        return self.ledger.record(make)[-1].kind == BudgetBody.kind

    # -- who decides

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
            raise DataError(
                f"{name!r} is in the list already, as {known.role}.",
                hint="Remove it first, or choose another name.",
                code="name-taken",
            )
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

    def proposed(self) -> list[tuple[ApproverList, tuple[Approver, ...]]]:
        """Next lists that wait for another approver, and who has signed each."""
        return self.record().proposed

    def agree(self, signer: Signer | None = None, *, by: str = FIRST_OWNER) -> bool:
        """Sign the latest change of the list that waits for another approver."""
        waiting = self.proposed()
        if not waiting:
            raise DataError(
                "No change of the list waits for another approver.",
                hint="'eigenveil site approver list' shows the list.",
                code="nothing-waits",
            )
        return self._propose(waiting[-1][0], signer, by)

    def _edit(self, name: str, signer: Signer | None, by: str, **fields: object) -> bool:
        listed = self.approvers()
        known = listed.called(name)
        if known is None or known.until is not None:
            raise DataError(
                f"{name!r} is not in the list.",
                hint="'eigenveil site approver list' shows it.",
                code="unknown-approver",
            )
        return self._change(
            signer,
            by,
            approvers=[
                each.model_dump() | (fields if each.name == name else {})
                for each in listed.approvers
            ],
        )

    def _change(self, signer: Signer | None, by: str, **fields: object) -> bool:
        """Propose the next list, signed by one who decides."""
        self._pin()
        listed = self.approvers()
        try:
            new = ApproverList.model_validate(
                listed.model_dump() | {"number": listed.number + 1} | fields
            )
        except ValidationError as error:
            raise _bad_fields(error) from None
        return self._propose(new, signer, by)

    def _propose(self, new: ApproverList, signer: Signer | None, by: str) -> bool:
        signed: SignedList = Signed[ApproverList].by(new, signer or self.owner())

        def make(books: Books) -> Sequence[Body]:
            Record.of(books, new.ledger).take(signed, datetime.now(UTC))
            return [ApproversBody(signed=signed)]

        known = self.approvers().called(by)
        if known is None or known.public_key not in signed.signatures:
            raise DecisionRefused(
                f"The change is not signed by the key that the list has for {by!r}.",
                hint="Give --as and --key of an approver in 'eigenveil site approver list'.",
                code="bad-signature",
            )
        self.ledger.record(make)
        return self.approvers() == new

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
        if books.accounts or books.sessions or books.decided or books.members or books.files:
            raise DecisionRefused(
                f"{self.ledger.name} was begun without approvers, and gets none later: whoever can "
                "write it could put themselves there.",
                hint="Give the site a ledger of its own: 'eigenveil site start --ledger NEW' makes "
                "it.",
                code="no-approvers",
            )
        yield ApproversBody(
            signed=Signed[ApproverList].by(self._first_list(record.ledger), self.own().signer)
        )

    def _first_list(self, mark: str) -> ApproverList:
        key = self.own().signer.public_key.text
        own = Approver(name=FIRST_OWNER, role="owner", public_key=key, since=_now())
        site, federation, ledger = self._place(mark)
        return ApproverList(
            number=1, site=site, federation=federation, ledger=ledger, approvers=(own,)
        )

    # -- of the party

    def text(self, study: str) -> Study:
        """The study of a hash, as it waits or was decided about."""
        found = waiting_study(self.party, study) or decided_study(self.party, study)
        if found is None:
            raise DataError(
                f"No study has the hash {study} here.",
                hint="It may have been changed or withdrawn meanwhile: look at what waits now.",
                code="unknown-study",
            )
        return found

    def own(self) -> Identity:
        """Who signs for the party."""
        return identity_of(self.party)

    def _place(self, mark: str) -> tuple[str, str, str]:
        return self.party.name, self.party.origin, mark

    def _check_place(self, listed: ApproverList) -> None:
        if (listed.site, listed.federation) != self._place("")[:2]:
            raise DecisionRefused(
                f"{self.ledger.name} is the ledger of {listed.whose}, and {self.party.folder} is "
                f"the folder of {self.party.name}, federation {self.party.origin[:16]}.",
                hint="Give the folder of the site whose ledger it is.",
                code="other-place",
            )

    def _made(self, kind: type[_T], fields: dict[str, Any]) -> _T:
        """A document for this site and ledger, with the time and a number that is used once."""
        site, federation, ledger = self._place(self.ledger.mark())
        here = {"site": site, "federation": federation, "ledger": ledger}
        once = {"time": datetime.now(UTC), "nonce": os.urandom(32).hex()}
        try:
            return kind.model_validate({**fields, **here, **once})
        except ValidationError as error:
            raise _bad_fields(error) from None


def _now() -> datetime:
    """As entries have it, so that nobody decides before being in the list."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def _check_sensible(decision: Decision, record: Record) -> None:
    if decision.action == "refuse" and decision.study == EVERY_STUDY:
        raise DecisionRefused(
            "A refusal is about one study.",
            hint="Revoke the standing approval of all studies instead.",
            code="bad-decision",
        )
    if decision.action == "revoke" and not record.standing(decision.study).rule.revocable:
        raise DecisionRefused(
            "There is no approval that could be revoked.",
            hint="'eigenveil site status' shows what is approved.",
            code="nothing-approved",
        )
    if decision.until is not None and decision.until <= decision.time:
        raise DecisionRefused(
            f"The approval would end at {decision.until:%Y-%m-%d %H:%M} UTC, before it begins.",
            hint="Give a later date.",
            code="bad-decision",
        )


def _bad_fields(error: ValidationError) -> DataError:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(each) for each in first["loc"]) or "decision"
    return DataError(
        f"The decision cannot be made so: {where}: {first['msg']}.",
        hint="Correct what is named.",
        code="bad-decision",
    )
