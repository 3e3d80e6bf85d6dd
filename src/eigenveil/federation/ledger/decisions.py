"""What decisions in a ledger amount to: which study may run, how often, and who says so.

Nothing here is stored. An approval counts only as a decision in the ledger that an approver signed
who was in the site's list at that time; its runs are counted from the ledger's sessions. The list
is in the ledger as well, signed by the site's key.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate

from eigenveil.errors import DecisionRefused, ProtocolError
from eigenveil.federation.ledger.books import Books
from eigenveil.federation.ledger.documents import (
    DECIDING,
    EVERY_STUDY,
    Approver,
    ApproverList,
    BudgetDecision,
    Decision,
    SignedBudget,
    SignedDecision,
)
from eigenveil.federation.ledger.entries import (
    ApproversBody,
    BrokenChain,
    DecisionBody,
    SessionKey,
    canonical,
)
from eigenveil.federation.x509_identity import (
    PADDING,
    UNREADABLE,
    certificate_digest,
    check_signature,
    key_digest,
)

CLOCK = timedelta(minutes=10)
"""By how much the time in a decision may differ from the ledger's clock when it is recorded."""
SMALLEST_RSA = 2048
"""Bits of an approver's RSA key at the least."""
State = Literal["waiting", "second", "approved", "used", "expired", "refused", "revoked"]


@dataclass(frozen=True)
class StateRule:
    """What a state means, for the site, the command line and the console.

    Attributes
    ----------
    label : str
        The state in one or two words, for people.
    waits : bool
        Whether the owner is to decide.
    granted : bool
        Whether an approval stands: a run that began under it goes on.
    revocable : bool
        Whether there is an approval, or a part of one, that could be revoked.
    """

    label: str
    waits: bool = False
    granted: bool = False
    revocable: bool = False


STATES: Mapping[State, StateRule] = {
    "waiting": StateRule("waits", waits=True),
    "second": StateRule("second approver needed", waits=True, revocable=True),
    "approved": StateRule("approved", granted=True, revocable=True),
    "used": StateRule("used up", waits=True, granted=True, revocable=True),
    "expired": StateRule("expired", waits=True, granted=True, revocable=True),
    "refused": StateRule("refused"),
    "revoked": StateRule("revoked"),
}
"""Every state of a study at a site."""
_DECISION, _LIST = b"eigenveil decision 1\n", b"eigenveil approvers 1\n"
_BUDGET = b"eigenveil budget 1\n"


def decision_text(decision: Decision | BudgetDecision) -> bytes:
    """What is signed of a decision."""
    domain = _BUDGET if isinstance(decision, BudgetDecision) else _DECISION
    return domain + canonical(decision.model_dump(mode="json")).encode()


def list_text(approvers: ApproverList) -> bytes:
    """What is signed of a list of approvers."""
    return _LIST + canonical(approvers.model_dump(mode="json")).encode()


def fingerprint_of(pem: str) -> str:
    """SHA-256 of a certificate, in hex: the name of a federation is that of its root."""
    try:
        found = load_pem_x509_certificate(pem.encode())
    except UNREADABLE:
        raise _bad_list("its certificates cannot be read") from None
    return certificate_digest(found)


@lru_cache(maxsize=4096)
def holds(public_key: str, text: bytes, signature: bytes) -> bool:
    """Whether a signature of a text is by the key: Ed25519, ECDSA with SHA-256, or RSA-PSS."""
    try:
        key = load_pem_public_key(public_key.encode())
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, text)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, text, ec.ECDSA(SHA256()))
        elif isinstance(key, rsa.RSAPublicKey) and key.key_size >= SMALLEST_RSA:
            key.verify(signature, text, PADDING, SHA256())
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


# -- what may be recorded


@dataclass(frozen=True)
class Place:
    """Where decisions count: a site of a federation, and its ledger's identifier."""

    site: str
    federation: str
    ledger: str

    @classmethod
    def of(cls, document: Decision | BudgetDecision | ApproverList) -> Place:
        """The one that a document names."""
        return cls(document.site, document.federation, document.ledger)


def check_list(body: ApproversBody, before: ApproverList | None) -> None:
    """Raise where a list is not the next one of its site, signed by the site's key.

    Once a newer certificate has signed a list, one of another key that is older signs none any
    more: a key that was lost or stolen is the older one.

    Raises
    ------
    DecisionRefused
        ``bad-approvers``.
    """
    listed = body.approvers
    if listed.number != (1 if before is None else before.number + 1):
        raise _bad_list(f"number {listed.number} is not the next one")
    if fingerprint_of(listed.root) != listed.federation:
        raise _bad_list("its root certificate is another federation's")
    try:
        check_signature(
            list_text(listed),
            bytes.fromhex(body.signature),
            listed.certificate,
            root=load_pem_x509_certificate(listed.root.encode()),
            role="site",
            name=listed.site,
            now=None,
        )
    except ProtocolError as error:
        raise _bad_list(error.message.rstrip(".")) from None
    if before is not None and _is_superseded(listed.certificate, before.certificate):
        raise _bad_list("a newer certificate of this site, of another key, signed the one before")
    lasting = [each for each in listed.approvers if each.role in DECIDING and each.until is None]
    if len(lasting) < listed.needed:
        raise _bad_list(f"nobody, or fewer than {listed.needed}, could decide by it")


def _is_superseded(pem: str, by: str) -> bool:
    one, other = (load_pem_x509_certificate(each.encode()) for each in (pem, by))
    older = one.not_valid_before_utc < other.not_valid_before_utc
    return older and key_digest(one.public_key()) != key_digest(other.public_key())


def check_decision(
    signed: SignedDecision | SignedBudget,
    listed: ApproverList | None,
    *,
    seen: Collection[str],
    now: datetime,
) -> Approver:
    """Raise where a decision may not be recorded now; its approver otherwise.

    Parameters
    ----------
    listed : ApproverList or None
        The site's latest list.
    seen : collection of str
        Nonces of the decisions that are recorded.

    Raises
    ------
    DecisionRefused
        ``replayed-decision``, ``clock-off``, ``unknown-approver``, ``wrong-role``,
        ``bad-signature``.
    """
    decision = signed.decision
    if decision.nonce in seen:
        raise DecisionRefused(
            "This decision is in the ledger already: it was brought a second time.",
            hint="Make a new decision.",
            code="replayed-decision",
        )
    if abs(now - decision.time) > CLOCK:
        raise DecisionRefused(
            f"The decision states {decision.time:%Y-%m-%d %H:%M:%S} UTC, the ledger's clock "
            f"{now:%Y-%m-%d %H:%M:%S} UTC.",
            hint="Set the clocks, and decide again.",
            code="clock-off",
        )
    approver = None if listed is None else listed.called(decision.by)
    if approver is None:
        raise DecisionRefused(
            f"{decision.by!r} is not in this site's list of approvers.",
            hint="'eigenveil site approver list' shows it.",
            code="unknown-approver",
        )
    if not approver.decides_at(now):
        raise DecisionRefused(
            f"{decision.by!r} may not decide here, being {approver.role} "
            f"since {approver.since:%Y-%m-%d}"
            + ("." if approver.until is None else f" until {approver.until:%Y-%m-%d}."),
            hint="An owner or an approver decides, as long as the list says so.",
            code="wrong-role",
        )
    if not holds(approver.public_key, decision_text(decision), bytes.fromhex(signed.signature)):
        raise DecisionRefused(
            f"The decision is not signed by the key of {decision.by!r}.",
            hint="Sign it with the key whose public part is in the list.",
            code="bad-signature",
        )
    return approver


def _bad_list(why: str) -> DecisionRefused:
    return DecisionRefused(
        f"The list of approvers is refused: {why}.",
        hint="Change it with 'eigenveil site approver', from the site's own kit.",
        code="bad-approvers",
    )


# -- where a study stands


@dataclass(frozen=True)
class Standing:
    """Where a study stands at a site.

    Attributes
    ----------
    state : str
        "waiting" for a decision, "approved", "used" (all its runs have begun) or "expired": it
        waits again; "refused" or "revoked". "second" when a second approver must agree, whatever
        there was before, unless an approval still allows a run.
    by : tuple of str
        Who decided, in order; when a second is needed, who agreed so far.
    purpose, reason : str
    runs, used : int
        Runs that may begin in all (``None``: any number), and those that have.
    until, time : datetime or None
        When a run may begin at the latest; when it was decided.
    tell_lead : bool
        Whether the lead is told the reason.
    every : bool
        Whether this is the standing decision about every study.
    since : int
        Number of the entry from which runs are counted; 0 while nothing is approved.
    after : int
        Number of the entry that last ended an approval; 0 where none did.
    before : State or None
        In state "second", the state until the second approver agrees.
    """

    state: State = "waiting"
    by: tuple[str, ...] = ()
    purpose: str = ""
    reason: str = ""
    runs: int | None = None
    used: int = 0
    until: datetime | None = None
    time: datetime | None = None
    tell_lead: bool = False
    every: bool = False
    since: int = 0
    after: int = 0
    before: State | None = None

    @property
    def approved(self) -> bool:
        """Whether another run may begin."""
        return self.state == "approved"

    @property
    def waits(self) -> bool:
        """Whether the owner is to decide."""
        return self.rule.waits

    @property
    def rule(self) -> StateRule:
        """What its state means."""
        return STATES[self.state]

    @property
    def left(self) -> int | None:
        """How many runs may still begin; ``None``: any number."""
        if self.state != "approved":
            return 0
        return None if self.runs is None else max(0, self.runs - self.used)

    def allows(self, begun: int | None) -> bool:
        """Whether a run goes on that began with this entry, or, with ``None``, may begin now.

        A run that began under an approval goes on when the runs are used up or the date has
        passed: revoking it is another decision, which a later approval does not undo for it.
        """
        if begun is None:
            return self.approved
        return STATES[self.before or self.state].granted and begun > self.after


@dataclass(frozen=True)
class Recorded:
    """A decision as it was recorded: its entry's number, what was signed, and what it lacks.

    ``problem`` is empty where it counts.
    """

    number: int
    signed: SignedDecision
    needed: int
    problem: str = ""

    @property
    def decision(self) -> Decision:
        """What was decided."""
        return self.signed.decision


@dataclass
class Record:
    """The decisions and lists of one site in one ledger, in their order; each one checked.

    Attributes
    ----------
    place : Place
    listed : ApproverList or None
        The latest list that holds.
    decisions : list of Recorded
    problems : list of (int, str)
        Entries that do not hold, and why.
    first : int
        Number of the first entry about this site; 0 where there is none.
    begun : dict of SessionKey to int
        The entry with which each session began.
    """

    place: Place
    listed: ApproverList | None = None
    decisions: list[Recorded] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)
    first: int = 0
    begun: dict[SessionKey, int] = field(default_factory=dict)
    _about: dict[str, list[Recorded]] = field(default_factory=dict)
    _runs: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, books: Books, place: Place) -> Record:
        """What a ledger's entries say of a site; an entry that does not hold counts for nothing."""
        record, seen = cls(place), set[str]()
        for number, time, body in books.decided:
            if _place_of(body) != place:
                continue
            record.first = record.first or number
            if isinstance(body, ApproversBody):
                record._list(number, body)
            else:
                record._decide(number, time, body.signed, seen)
        record.begun = dict(books.begun)
        for key, number in books.begun.items():
            record._runs.setdefault(key.study, []).append(number)
        return record

    def _list(self, number: int, body: ApproversBody) -> None:
        try:
            check_list(body, self.listed)
        except DecisionRefused as error:
            self.problems.append((number, error.message))
            return
        self.listed = body.approvers

    def _decide(self, number: int, time: str, signed: SignedDecision, seen: set[str]) -> None:
        problem = ""
        try:
            when = datetime.fromisoformat(time)
            check_decision(signed, self.listed, seen=seen, now=when)
        except DecisionRefused as error:
            problem = error.message
        except (ValueError, TypeError):
            problem = "Its entry has no time."
        if problem:
            self.problems.append((number, problem))
        seen.add(signed.decision.nonce)
        needed = 1 if self.listed is None else self.listed.needed
        made = Recorded(number, signed, needed, problem)
        self.decisions.append(made)
        self._about.setdefault(signed.decision.study, []).append(made)

    def standing(self, study: str, now: datetime | None = None) -> Standing:
        """Where a study stands; a decision of its own comes before one about every study."""
        moment = datetime.now(UTC) if now is None else now
        found, agreed = self._decided(study, study, moment)
        if found.state == "waiting" and study != EVERY_STUDY:
            every, _ = self._decided(EVERY_STUDY, study, moment)
            if every.rule.granted:
                found = every
        if not agreed or found.approved:
            return found
        return replace(_granted("second", agreed), after=found.after, before=found.state)

    def _decided(self, about: str, study: str, now: datetime) -> tuple[Standing, list[Recorded]]:
        """What enough approvers decided about a study, and who agreed to more since."""
        found, agreed, after = Standing(), list[Recorded](), 0
        for each in self._about.get(about, ()):
            decision = each.decision
            if each.problem:
                continue
            if decision.action != "approve":
                agreed, after = [], each.number
                found = Standing(
                    "refused" if decision.action == "refuse" else "revoked",
                    (decision.by,),
                    decision.purpose,
                    decision.reason,
                    time=decision.time,
                    tell_lead=decision.tell_lead,
                )
                continue
            agreed = [e for e in agreed if e.decision.by != decision.by] + [each]
            if len(agreed) >= each.needed:
                found, agreed = _granted("approved", agreed), []
        if found.approved:
            found = replace(found, after=after, every=about == EVERY_STUDY)
            found = self._counted(found, study, now)
        return found, agreed

    def _counted(self, found: Standing, study: str, now: datetime) -> Standing:
        begun = [number for number in self._runs.get(study, ()) if number > found.since]
        state: State = "approved"
        if found.runs is not None and len(begun) >= found.runs:
            state = "used"
        elif found.until is not None and now > found.until:
            state = "expired"
        return replace(found, state=state, used=len(begun))

    def seen(self) -> frozenset[str]:
        """Nonces of all decisions that are recorded."""
        return frozenset(each.decision.nonce for each in self.decisions)


def _place_of(body: ApproversBody | DecisionBody) -> Place:
    return Place.of(body.approvers if isinstance(body, ApproversBody) else body.signed.decision)


def _granted(state: State, agreed: list[Recorded]) -> Standing:
    """What those who agreed allow together: the fewest runs, the earliest date."""
    decisions = [each.decision for each in agreed]
    runs = [each.runs for each in decisions if each.runs is not None]
    until = [each.until for each in decisions if each.until is not None]
    return Standing(
        state,
        tuple(each.by for each in decisions),
        decisions[-1].purpose or decisions[0].purpose,
        decisions[-1].reason or decisions[0].reason,
        min(runs, default=None),
        until=min(until, default=None),
        time=decisions[-1].time,
        since=agreed[-1].number,
    )


def recorded_in(books: Books) -> list[Recorded]:
    """All decisions in a ledger, of every site that uses it, in their order."""
    places = dict.fromkeys(_place_of(body) for _, _, body in books.decided)
    found = [each for place in places for each in Record.of(books, place).decisions]
    return sorted(found, key=lambda each: each.number)


def check_decisions(books: Books, ledger: str) -> None:
    """Raise where a decision or a list in a ledger does not hold: part of ``ledger verify``.

    Raises
    ------
    BrokenChain
        Naming the first such entry.
    """
    places = dict.fromkeys(_place_of(body) for _, _, body in books.decided)
    wrong: list[tuple[int, str]] = []
    for place in places:
        found = Record.of(books, place)
        wrong += found.problems
        if place.ledger != ledger:
            wrong.append((found.first, "it was made for another ledger"))
    if wrong:
        number, why = min(wrong)
        raise BrokenChain(number, f"is a decision that does not hold ({why.rstrip('.')})")


def public_pem(key: object) -> str:
    """The PEM text of a public key, on one line break convention."""
    from cryptography.hazmat.primitives.serialization import PublicFormat

    return key.public_bytes(  # type: ignore[attr-defined, no-any-return]
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    ).decode()


def key_mark(public_key: str) -> str:
    """A short name of a key for people to compare: SHA-256 in base 32, its first 16 letters."""
    digest = hashlib.sha256(public_key.encode()).digest()
    text = base64.b32encode(digest).decode()[:16]
    return "-".join(text[at : at + 4] for at in range(0, 16, 4))
