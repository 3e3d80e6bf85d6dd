"""Decisions about studies at a site: made by approvers, signed, and recorded in the ledger.

>>> decisions = Decisions(kit, ledger)                                      # doctest: +SKIP
>>> signer = open_key(kit.approver_keys / "steward.key", password)          # doctest: +SKIP
>>> decisions.approve(study, signer, by="steward", purpose="audit", runs=3) # doctest: +SKIP
>>> decisions.standing(study.hash).left                                     # doctest: +SKIP
3

What an approval is worth follows from the ledger alone
(:mod:`eigenveil.federation.ledger.decisions`): a file in the kit holds only a study's text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from eigenveil.errors import DataError, DecisionRefused, EigenveilError, OutputError
from eigenveil.federation.ledger.books import Books
from eigenveil.federation.ledger.budgets import BudgetRecord
from eigenveil.federation.ledger.decisions import (
    Place,
    Record,
    Recorded,
    Standing,
    check_decision,
    check_list,
    decision_text,
    fingerprint_of,
    list_text,
)
from eigenveil.federation.ledger.documents import (
    EVERY_STUDY,
    Action,
    Approver,
    ApproverList,
    ApproverRole,
    BudgetDecision,
    Decision,
    SignedBudget,
    SignedDecision,
)
from eigenveil.federation.ledger.entries import (
    ApproversBody,
    Body,
    Budget,
    BudgetBody,
    BudgetDecisionBody,
    DecisionBody,
)
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.ledger.placing import capped, check_budget, noted
from eigenveil.federation.study.study import Study
from eigenveil.federation.x509_identity import Identity
from eigenveil.network.approvals import decided_study, forget_waiting, keep, waiting_study
from eigenveil.network.kit import Kit
from eigenveil.network.signers import KeySigner, KitSigner, Signer, make_key, open_key

__all__ = [
    "EVERY_STUDY",
    "FIRST_OWNER",
    "Approver",
    "ApproverList",
    "Decision",
    "Decisions",
    "KeySigner",
    "KitSigner",
    "Recorded",
    "SignedDecision",
    "Signer",
    "Standing",
    "key_file",
    "make_key",
    "open_key",
    "sign_decision",
]

FIRST_OWNER = "owner"
"""The approver that every kit begins with; its key is the kit's."""


def sign_decision(decision: Decision, signer: Signer) -> SignedDecision:
    """A decision with its approver's signature."""
    return SignedDecision(decision=decision, signature=signer.sign(decision_text(decision)).hex())


def key_file(kit: Kit, name: str) -> Path:
    """Where a kit keeps an approver's key, encrypted.

    Raises
    ------
    DataError
        When no file can be called so.
    """
    if not name or name.startswith(".") or any(c in "/\\\0" for c in name):
        raise DataError(
            f"No file can be called {name!r}.",
            hint="Give --key FILE, or choose another name.",
            code="bad-name",
        )
    return kit.approver_keys / f"{name}.key"


def identity_of(kit: Kit) -> Identity:
    """The signing key of a kit."""
    root = kit.root_certificate
    return Identity.from_files(key=kit.key, certificate=kit.certificate, root=root)


@dataclass(frozen=True)
class Decisions:
    """The decisions of a site.

    Parameters
    ----------
    kit : Kit
        Of the site.
    ledger : Ledger
        The site's; made by the first decision where there is none.
    """

    kit: Kit
    ledger: Ledger

    # -- reading

    def record(self, study: str | None = None) -> Record:
        """All that is recorded of this site; of one study, its own runs only."""
        place, books = self._place(""), Books()
        try:
            books = self.ledger.decided(study)
            place = self._place(self.ledger.mark() if books.decided else "")
        except OutputError as error:
            if error.code != "no-ledger":
                raise
        return Record.of(books, place)

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
        """Who decides; before the first change the kit's own owner alone."""
        return self.record().listed or self._first_list(self.own(), "0" * 64)

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
    ) -> Standing:
        """Approve a study: once, for a number of runs, or until a date.

        Parameters
        ----------
        study : Study or str
            The study; or its hash, of one that waits or was decided about before.
        signer : Signer, optional
            The approver's key; by default the kit's own, which is that of ``FIRST_OWNER``.
        runs : int or None
            ``None`` for any number.
        until : datetime, optional
            When a run may begin at the latest, with its time zone.

        Returns
        -------
        Standing
            Afterwards: "second" where another approver must agree.

        Raises
        ------
        DataError
            ``unsettled``; ``unknown-study`` when no text has this hash (any longer);
            ``other-study`` when it was changed.
        DecisionRefused
            As :func:`eigenveil.federation.ledger.decisions.check_decision`; nothing is recorded.
        """
        known = study if isinstance(study, Study) else self.text(study)
        keep(self.kit, known)  # a text that no decision supports admits nothing
        standing = self.decide(
            "approve",
            known.hash,
            signer,
            by=by,
            purpose=purpose,
            reason=reason,
            runs=runs,
            until=until,
        )
        if standing.approved:
            forget_waiting(self.kit, known.hash)
        return standing

    def refuse(
        self,
        study: str,
        signer: Signer | None = None,
        *,
        by: str = FIRST_OWNER,
        reason: str,
        tell_lead: bool = False,
    ) -> Standing:
        """Refuse a study, by its hash; the lead is told the reason only with ``tell_lead``.

        Raises
        ------
        DataError, DecisionRefused
            As :meth:`approve`.
        """
        keep(self.kit, self.text(study))
        found = self.decide("refuse", study, signer, by=by, reason=reason, tell_lead=tell_lead)
        forget_waiting(self.kit, study)
        return found

    def revoke(
        self, study: str, signer: Signer | None = None, *, by: str = FIRST_OWNER, reason: str = ""
    ) -> Standing:
        """Take an approval back from the next message on; or ``EVERY_STUDY``'s.

        Raises
        ------
        DecisionRefused
            As :meth:`approve`.
        """
        return self.decide("revoke", study, signer, by=by, reason=reason)

    def allow_every_study(self, signer: Signer | None = None, *, by: str = FIRST_OWNER) -> Standing:
        """Record, where it is not, that every study may run as often as the budget allows.

        Raises
        ------
        DecisionRefused
            Also ``two-persons`` where the site's rule wants two: nothing is recorded.
        """
        standing = self.standing(EVERY_STUDY)
        if standing.approved:
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
            "approve", EVERY_STUDY, signer, by=by, reason="site start --approve all", runs=None
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
        purpose: str = "",
        reason: str = "",
        tell_lead: bool = False,
        runs: int | None = 1,
        until: datetime | None = None,
    ) -> Standing:
        """Make, sign and record a decision; where the study stands afterwards."""
        made = self.draft(
            action,
            study,
            by=by,
            purpose=purpose,
            reason=reason,
            tell_lead=tell_lead,
            runs=runs if action == "approve" else None,
            until=until,
        )
        self.add(sign_decision(made, signer or self.owner()))
        return self.standing(study)

    def owner(self) -> KitSigner:
        """The kit's key, which signs for ``FIRST_OWNER``.

        Raises
        ------
        DecisionRefused
            ``owner-key`` where the kit got another key since the list has the owner's.
        """
        own, known = KitSigner(self.own()), self.approvers().called(FIRST_OWNER)
        if known is not None and known.until is None and known.public_key != own.public_key:
            raise DecisionRefused(
                f"The kit {self.kit.folder} has another key than the list in the ledger has for "
                f"{FIRST_OWNER!r}.",
                hint="After the kit got a new key: 'eigenveil site approver renew owner --kit "
                f"{self.kit.folder}' puts it into the list, which the ledger keeps.",
                code="owner-key",
            )
        return own

    def draft(self, action: Action, study: str, *, by: str, **fields: object) -> Decision:
        """A decision for this site and ledger, now, to be signed.

        Raises
        ------
        DataError
            ``bad-decision``, naming what is wrong.
        """
        place = self._place(self.ledger.mark())
        try:
            return Decision.model_validate(
                {
                    "action": action,
                    "study": study,
                    "by": by,
                    **_dated(place),
                    **fields,
                }
            )
        except ValidationError as error:
            raise _bad_fields(error) from None

    def add(self, signed: SignedDecision) -> None:
        """Record a signed decision; two at once take their turns.

        Raises
        ------
        DecisionRefused
            Nothing is then recorded: ``other-place`` when it was made for another site,
            federation or ledger; what :func:`check_decision` raises;
            ``nothing-approved`` when there is nothing to revoke.
        """
        mark = self.ledger.mark()

        def make(books: Books) -> Sequence[Body]:
            place = self._place(mark)
            if Place.of(signed.decision) != place:
                raise DecisionRefused(
                    "The decision was made for another site, federation or ledger.",
                    hint="Decide again, here.",
                    code="other-place",
                )
            record = Record.of(books, place)
            before = list(self._first(record, mark))
            listed = record.listed if not before else before[0].approvers
            check_decision(signed, listed, seen=record.seen(), now=datetime.now(UTC))
            _check_sensible(signed.decision, record)
            return [*before, DecisionBody(signed=signed)]

        self.ledger.record(make)

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

        Parameters
        ----------
        budget : Budget
        signer, by
            As of :meth:`approve`.
        reason : str

        Raises
        ------
        DecisionRefused
            As :meth:`add`; nothing is recorded.
        DataError, PrivacyError
            When it is no budget, or ``account-fixed``.
        """
        check_budget(budget)
        place = self._place(self.ledger.mark())
        try:
            made = BudgetDecision.model_validate(
                {**asdict(budget), "by": by, "reason": reason, **_dated(place)}
            )
        except ValidationError as error:
            raise _bad_fields(error) from None
        signature = (signer or self.owner()).sign(decision_text(made)).hex()
        signed = SignedBudget(decision=made, signature=signature)

        def make(books: Books) -> Sequence[Body]:
            before = list(self._first(Record.of(books, place), place.ledger))
            record = BudgetRecord.of(books)
            for each in before:
                record.list(each)
            enough = record.decide(signed, datetime.now(UTC))
            body = noted(capped(budget, books), by=by, reason=reason)
            return [*before, BudgetDecisionBody(signed=signed), *([body] if enough else [])]

        return self.ledger.record(make)[-1].kind == BudgetBody.kind

    # -- who decides

    def appoint(self, name: str, role: ApproverRole, public_key: str = "") -> ApproverList:
        """Put somebody into the list.

        Raises
        ------
        DataError
            ``name-taken``, ``bad-decision``.
        """

        def change(listed: ApproverList, now: datetime) -> Iterator[Approver]:
            known = listed.called(name)
            if known is not None and known.until is None:
                raise DataError(
                    f"{name!r} is in the list already, as {known.role}.",
                    hint="Remove it first, or choose another name.",
                    code="name-taken",
                )
            yield from _with(listed, name, role, public_key, now)

        return self._change(change)

    def renew(self, name: str, public_key: str) -> ApproverList:
        """Give somebody in the list another key, since the one before was lost or replaced.

        What was signed with the one before stays what it is.

        Raises
        ------
        DataError
            ``unknown-approver``, or ``bad-decision`` where the key is somebody else's.
        """

        def change(listed: ApproverList, now: datetime) -> Iterator[Approver]:
            del now
            self._find(listed, name)
            yield from (
                each.model_copy(update={"public_key": public_key}) if each.name == name else each
                for each in listed.approvers
            )

        return self._change(change)

    def dismiss(self, name: str) -> ApproverList:
        """End what somebody may decide, from now on; past decisions stay what they are.

        Raises
        ------
        DataError
            ``unknown-approver``.
        DecisionRefused
            ``bad-approvers`` when too few would be left.
        """

        def change(listed: ApproverList, now: datetime) -> Iterator[Approver]:
            self._find(listed, name)
            yield from (
                each.model_copy(update={"until": now}) if each.name == name else each
                for each in listed.approvers
            )

        return self._change(change)

    @staticmethod
    def _find(listed: ApproverList, name: str) -> Approver:
        known = listed.called(name)
        if known is None or known.until is not None:
            raise DataError(
                f"{name!r} is not in the list.",
                hint="'eigenveil site approver list' shows it.",
                code="unknown-approver",
            )
        return known

    def set_needed(self, needed: Literal[1, 2]) -> ApproverList:
        """Switch the two-person rule on (2) or off (1).

        Raises
        ------
        DecisionRefused
            ``bad-approvers`` when there are not so many who decide.
        """
        return self._change(needed=needed)

    def _change(
        self,
        change: Callable[[ApproverList, datetime], Iterator[Approver]] | None = None,
        *,
        needed: Literal[1, 2] | None = None,
    ) -> ApproverList:
        """Record the next list, signed by the kit's key."""
        identity, mark = self.own(), self.ledger.mark()

        def make(books: Books) -> Sequence[Body]:
            record = Record.of(books, self._place(mark))
            before = list(self._first(record, mark))
            listed = before[0].approvers if before else record.listed
            assert listed is not None
            new = listed.approvers if change is None else change(listed, datetime.now(UTC))
            try:
                following = ApproverList.model_validate(
                    {
                        **listed.model_dump(),
                        "number": listed.number + 1,
                        "needed": listed.needed if needed is None else needed,
                        "approvers": [each.model_dump() for each in new],
                        "certificate": identity.pem,
                        "root": _root_pem(identity),
                    }
                )
            except ValidationError as error:
                raise _bad_fields(error) from None
            body = _signed_list(following, identity)
            check_list(body, listed)
            return [*before, body]

        entry = self.ledger.record(make)[-1]
        return ApproverList.model_validate(entry.body["approvers"])

    def _first(self, record: Record, mark: str) -> Iterator[ApproversBody]:
        """The list that a kit begins with, where none is recorded."""
        if record.listed is None:
            identity = self.own()
            yield _signed_list(self._first_list(identity, mark), identity)

    def _first_list(self, identity: Identity, mark: str) -> ApproverList:
        place = self._place(mark)
        own = Approver(
            name=FIRST_OWNER,
            role="owner",
            public_key=KitSigner(identity).public_key,
            since=identity.certificate.not_valid_before_utc,
        )
        return ApproverList(
            number=1,
            site=place.site,
            federation=place.federation,
            ledger=place.ledger,
            approvers=(own,),
            certificate=identity.pem,
            root=_root_pem(identity),
        )

    # -- of the kit

    def text(self, study: str) -> Study:
        """The study of a hash, as it waits or was decided about.

        Raises
        ------
        DataError
            ``unknown-study``; ``other-study`` when its file was changed.
        """
        found = waiting_study(self.kit, study) or decided_study(self.kit, study)
        if found is None:
            raise DataError(
                f"No study has the hash {study} here.",
                hint="It may have been changed or withdrawn meanwhile: look at what waits now.",
                code="unknown-study",
            )
        return found

    def own(self) -> Identity:
        """The kit's key and certificates."""
        return identity_of(self.kit)

    def _place(self, mark: str) -> Place:
        try:
            root = self.kit.root_certificate.read_text(encoding="ascii")
        except (OSError, ValueError):
            raise OutputError(
                f"{self.kit.root_certificate} cannot be read.",
                hint="Get a complete copy of the kit.",
                code="cannot-read",
            ) from None
        return Place(self.kit.name, fingerprint_of(root), mark)


def _with(
    listed: ApproverList, name: str, role: ApproverRole, public_key: str, now: datetime
) -> Iterator[Approver]:
    """A list's approvers, and this one in the place of whoever had the name."""
    yield from (each for each in listed.approvers if each.name != name)
    yield Approver(name=name, role=role, public_key=public_key, since=now)


def _dated(place: Place) -> dict[str, object]:
    """What every decision states beside its subject: when, where it counts, and a number."""
    return {
        "time": datetime.now(UTC),
        "site": place.site,
        "federation": place.federation,
        "ledger": place.ledger,
        "nonce": os.urandom(32).hex(),
    }


def _check_sensible(decision: Decision, record: Record) -> None:
    if decision.action == "refuse" and decision.study == EVERY_STUDY:
        raise DecisionRefused(
            "A refusal is about one study.",
            hint="Revoke the standing approval of all studies instead.",
            code="bad-decision",
        )
    if decision.action == "revoke":
        before = record.standing(decision.study)
        if not before.rule.revocable:
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


def _signed_list(listed: ApproverList, identity: Identity) -> ApproversBody:
    return ApproversBody(approvers=listed, signature=identity.sign(list_text(listed)).hex())


def _root_pem(identity: Identity) -> str:
    return replace(identity, certificate=identity.root).pem


def _bad_fields(error: ValidationError) -> EigenveilError:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(each) for each in first["loc"]) or "decision"
    return DataError(
        f"The decision cannot be made so: {where}: {first['msg']}.",
        hint="Correct what is named.",
        code="bad-decision",
    )
