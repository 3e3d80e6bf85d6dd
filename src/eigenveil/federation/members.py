"""A federation's list of members: what its registrar signs.

A head says which list of entries is the newest and follows from which; heads make a chain from
number 1. So a party that has seen one takes none that goes back or aside.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, ClassVar, Literal, Protocol, get_args

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints

from eigenveil.errors import DataError, ProtocolError, printable
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import HELPER
from eigenveil.federation.public_key import SIGNATURE_BYTES, PublicKey, Signer
from eigenveil.federation.secagg.keys import Context
from eigenveil.federation.signed import Document, KeyText, Signed

Role = Literal["site", "aggregator", "helper", "lead"]
ROLES: tuple[Role, ...] = get_args(Role)
LONGEST = timedelta(days=90)
"""How long a list is good at the most."""
WARNING = timedelta(days=30)
SLACK = timedelta(minutes=5)
"""By how much a clock may be behind the registrar's."""
MOST_ENTRIES = 1 << 14
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%+@-]{0,62}")
_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_ONE: dict[str, str] = {"aggregator": "aggregator", "helper": "helper"}
_TAKEN = {"aggregator", "helper", "registrar", "all", "lead"}

Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


def _utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("it is no time of UTC") from None


Utc = Annotated[AwareDatetime, AfterValidator(_utc)]


def shown(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it holds characters that cannot be shown")
    return text


Words = Annotated[str, StringConstraints(max_length=200), AfterValidator(shown)]
Address = Annotated[str, StringConstraints(max_length=500), AfterValidator(shown)]


def name_problem(role: str, name: str) -> str:
    """What is wrong with a party's name; empty where nothing is."""
    if role in _ONE:
        return "" if name == _ONE[role] else f"the {role} of a federation is called {_ONE[role]!r}"
    if name.casefold() in _TAKEN and (role, name) != ("lead", "lead"):
        return f"{name!r} is a name of another role"
    if role == "site" and not _SITE.fullmatch(name):
        return "a site's name has letters, digits, _ and -, at most 63"
    if not _NAME.fullmatch(name):
        return "a name has letters, digits and . _ % + @ -, at most 63"
    return ""


class MemberEntry(Document):
    """A party and its keys; ``until`` ends it quietly, ``revoked`` at once."""

    DOMAIN: ClassVar[str] = "member 1"
    name: str
    role: Role
    organisation: Words
    key: KeyText
    sealing: Hex
    since: Utc
    until: Utc | None = None
    revoked: bool = False
    reason: Words = ""

    def is_in(self, time: datetime) -> bool:
        return not self.revoked and (self.until is None or time < self.until)


class ListHead(Document):
    """What stands for a list: who has it has them all.

    ``origin`` is the fingerprint of the federation's first registrar, which never changes;
    ``next_registrar`` that of the key that may take over, with both signatures; ``previous`` the
    digest of the head before; ``entries`` that of the entries' digests.
    """

    DOMAIN: ClassVar[str] = "list of members 1"
    origin: Hex
    name: Words
    number: Annotated[int, Field(ge=1, lt=1 << 31, strict=True)]
    previous: Hex | Literal[""]
    registrar: KeyText
    next_registrar: Hex
    since: Utc
    until: Utc
    address: Address = ""
    entries: Hex


class MemberList(Document):
    """All signed heads from number 1, and the entries of the last."""

    heads: Annotated[tuple[Signed[ListHead], ...], Field(min_length=1, max_length=1 << 14)]
    entries: Annotated[tuple[MemberEntry, ...], Field(max_length=MOST_ENTRIES)]

    @property
    def head(self) -> ListHead:
        return self.heads[-1].said

    @property
    def digest(self) -> str:
        """What names the list everywhere: of its head."""
        return self.head.digest

    def check(self, origin: str) -> None:
        """Raise unless it is the list of the federation that ``origin`` names, whole and right."""
        check_heads(self.heads, origin)
        if digest_of(each.digest for each in self.entries) != self.head.entries:
            raise bad_members("its entries are not those that the registrar signed")
        check_entries(self.entries)


def check_heads(heads: Sequence[Signed[ListHead]], origin: str, *, whole: bool = True) -> None:
    """Raise unless heads lead from a federation's first registrar to the last of them.

    Where they are not the ``whole`` chain they are those that changed the registrar, and the last.
    """
    before: ListHead | None = None
    for number, signed in enumerate(heads, 1):
        head = signed.said
        key = PublicKey.parse(head.registrar)
        if head.origin != origin:
            raise ProtocolError("list-of-other-federation")
        if not signed.holds(key):
            raise bad_members("its registrar did not sign it")
        if before is None:
            if key.fingerprint != origin:
                raise bad_members("its first registrar is not the one that is pinned")
        elif head.registrar != before.registrar:
            if not signed.holds(PublicKey.parse(before.registrar)):
                raise bad_members("the registrar before did not sign the change of registrar")
            if whole and key.fingerprint != before.next_registrar:
                raise bad_members("its registrar is not the one that was announced")
        if whole:
            expected = "" if before is None else before.digest
            if head.number != number or head.previous != expected:
                raise bad_members("its numbers do not follow each other")
        elif before is not None and head.number <= before.number:
            raise bad_members("its numbers do not follow each other")
        if not timedelta(0) < head.until - head.since <= LONGEST:
            raise bad_members(f"it is good for more than {LONGEST.days} days, or for none")
        before = head


def check_entries(entries: Collection[MemberEntry]) -> None:
    """Raise where entries contradict each other: a name or a key that two parties have."""
    points: dict[str, str] = {}
    named: dict[str, MemberEntry] = {}
    for each in entries:
        if problem := name_problem(each.role, each.name):
            raise bad_members(f"{printable(each.name)}: {problem}")
        for held in (PublicKey.parse(each.key).point, each.sealing):
            if held in points:
                raise bad_members(f"{each.name} has a key of {points[held]}")
            points[held] = each.name
        other = named.setdefault(each.name.casefold(), each)
        if (other.name, other.role) != (each.name, each.role):
            raise bad_members(f"two parties are called {each.name}")
        over = other is each or other.revoked or (other.until and other.until <= each.since)
        if not over:
            raise bad_members(f"{each.name} has two keys")
        named[each.name.casefold()] = each


class Evidence(Document):
    """What shows years later that some parties were members: no other file is needed.

    ``heads`` has the list's last, and where the registrar changed the first and those that changed
    it; ``digests`` are of all entries.
    """

    heads: Annotated[tuple[Signed[ListHead], ...], Field(min_length=1, max_length=1 << 10)]
    digests: Annotated[tuple[Hex, ...], Field(max_length=MOST_ENTRIES)]
    entries: Annotated[tuple[MemberEntry, ...], Field(max_length=MOST_ENTRIES)]

    @classmethod
    def of(cls, members: MemberList, names: Collection[str]) -> Evidence:
        heads = [members.heads[0]]
        for each in members.heads[1:]:
            if each.said.registrar != heads[-1].said.registrar:
                heads.append(each)
        if len(heads) == 1:
            heads = []
        if not heads or heads[-1] is not members.heads[-1]:
            heads.append(members.heads[-1])
        return cls(
            heads=tuple(heads),
            digests=tuple(each.digest for each in members.entries),
            entries=tuple(each for each in members.entries if each.name in names),
        )

    @property
    def head(self) -> ListHead:
        return self.heads[-1].said

    def check(self, origin: str) -> None:
        """Raise unless the registrar of the federation ``origin`` signed these entries."""
        check_heads(self.heads, origin, whole=False)
        if digest_of(self.digests) != self.head.entries:
            raise bad_members("its entries are not those that the registrar signed")
        check_entries(self.entries)
        if not {each.digest for each in self.entries} <= set(self.digests):
            raise bad_members("an entry is not of the list")

    def key(self, role: str, name: str) -> PublicKey:
        """What a party of the list signed with."""
        return PublicKey.parse(find(self.entries, name, self.head.since, role=role).key)


class Membership(Protocol):
    """Knows who is in a federation, and with which keys: of the newest list, or of a run's."""

    @property
    def federation(self) -> str:
        """The fingerprint of the federation's first registrar: what it is called in documents."""

    @property
    def digest(self) -> str: ...

    def role(self, name: str) -> Role: ...

    def key(self, *, role: str, name: str) -> PublicKey: ...

    def sealing(self, name: str) -> str:
        """SHA-256, in hex, of what is sealed for a member with."""

    def evidence(self, names: Collection[str]) -> Evidence:
        """What shows others, later, who these members were."""


def find(
    entries: Collection[MemberEntry], name: str, time: datetime, *, role: str | None = None
) -> MemberEntry:
    named = [each for each in entries if each.name == name]
    if role is not None:
        named = [each for each in named if each.role == role]
    for each in named:
        if each.is_in(time):
            return each
    if any(each.revoked for each in named):
        why = next(each.reason for each in reversed(named) if each.revoked)
        raise ProtocolError("revoked-party", party=name, why=f": {why}" if why else "")
    what = f"no {role} of this federation" if role else "no member of this federation"
    raise ProtocolError("not-a-member", party=printable(name, most=80), what=what)


def check_time(head: ListHead, time: datetime) -> None:
    if time >= head.until:
        raise ProtocolError("expired-list", number=head.number, until=head.until, time=time)
    if time < head.since - SLACK:
        raise ProtocolError("clock-differs", number=head.number, since=head.since, time=time)


def digest_of(digests: Iterable[str]) -> str:
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def plain_fingerprint(text: str) -> str:
    """A fingerprint as people write it: with blanks, colons, or in capitals."""
    found = "".join(text.split()).replace(":", "").lower()
    if len(found) != 64 or not set(found) <= set("0123456789abcdef"):
        raise DataError("bad-fingerprint", text=text)
    return found


def bad_members(why: str) -> ProtocolError:
    return ProtocolError("bad-members", why=why)


# -- Who a party is: a key that signs, and the federation's list that says whose key is whose.
#
# Masks hide a site's message only if the keys that they are made with are those of other sites. So
# each party signs the keys of a session with the key that the list of members has for it, and takes
# keys of others only with such a signature. The digest of the list is part of what is signed:
# parties that hold different lists understand nothing of each other.

__all__ = ["ROLES", "SIGNATURE_BYTES", "Identity", "Membership", "PublicKey", "Role", "Signer"]


class SessionKeys(Document):
    DOMAIN = "keys 3"
    federation: str
    members: str  # The digest of the list of members
    study: str
    session: str
    name: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Identity:
    """A party's name, what signs for it, and who it knows."""

    name: str
    role: Role
    signer: Signer
    members: Membership

    def sign(self, text: bytes) -> bytes:
        return self.signer.sign(text)

    def verify(self, text: bytes, signature: bytes, *, role: str, name: str) -> None:
        """Raise where a text is not signed by the party of this role and name."""
        if not self.members.key(role=role, name=name).verify(text, signature):
            raise _refused(name, "the signature does not hold")

    def signed(self, keys: payloads.PublicKeys, context: Context, name: str) -> payloads.PublicKeys:
        """The same keys with a proof that they are this party's in this session."""
        signature = self.sign(self._text(keys.proved(), context, name)).hex()
        return keys.model_copy(update={"proof": payloads.Proof(signature=signature)})

    def check(
        self, keys: tuple[str, ...], proof: payloads.Proof | None, context: Context, name: str
    ) -> None:
        """Raise where keys are not proved to be those of the party called ``name``."""
        if proof is None:
            raise _refused(name, "its keys are not signed")
        role = "helper" if name == HELPER else "site"
        text = self._text(keys, context, name)
        self.verify(text, bytes.fromhex(proof.signature), role=role, name=name)

    def _text(self, keys: tuple[str, ...], context: Context, name: str) -> bytes:
        return SessionKeys(
            federation=self.members.federation,
            members=self.members.digest,
            study=context.study,
            session=context.session,
            name=name,
            keys=keys,
        ).text


def _refused(name: str, what: str) -> ProtocolError:
    return ProtocolError("bad-identity", party=name, what=what)
