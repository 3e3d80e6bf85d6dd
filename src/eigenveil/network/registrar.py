"""The registrar: who signs the list of members, and takes part in no study."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ValidationError

from eigenveil.errors import DataError, OutputError, ProtocolError
from eigenveil.federation.members import (
    LONGEST,
    Address,
    Hex,
    ListHead,
    MemberEntry,
    MemberList,
    Role,
    Words,
    check_entries,
    digest_of,
    name_problem,
)
from eigenveil.federation.public_key import KeySigner, PublicKey, Signer
from eigenveil.federation.signed import Document, KeyText, Signed
from eigenveil.files import hold
from eigenveil.network.folder import MEMBERS_FILE, PartyKeys, pem_of, read_signer, write_private
from eigenveil.network.members import line, read_members, write_members

KEY, NEXT = "registrar", "next"
_BEGINS = "eigenveil-request-1"


class Request(Document):
    """What a party asks to be listed with; signed by its key, and by the one that it replaces.

    The signature shows that who asks holds the signing key and chose the sealing key. That it
    holds the sealing key as well shows when it opens its first message; without it, it has only
    itself shut out.
    """

    DOMAIN: ClassVar[str] = "request 1"
    federation: Hex
    role: Role
    name: str
    organisation: Words
    key: KeyText
    sealing: Hex
    address: Address = ""
    replaces: KeyText | Literal[""] = ""


def request_line(request: Request, *signers: Signer) -> str:
    """A request as one line of text, which a mail or a telephone can carry."""
    data = Signed[Request].by(request, *signers).line()
    body = base64.urlsafe_b64encode(data).decode()
    return f"{_BEGINS}:{request.role}:{request.name}:{body}:{_checksum(body)}"


def read_request(text: str) -> Signed[Request]:
    """The request of a line, its own signature checked."""
    parts = "".join(text.split()).split(":")
    if parts[0] != _BEGINS or len(parts) != 5:
        raise _bad_line(f"it is not of the form {_BEGINS}:ROLE:NAME:TEXT:CHECKSUM")
    _, role, name, body, check = parts
    if _checksum(body) != check:
        raise _bad_line(f"its checksum is {_checksum(body)}, and it says {check[:16]}")
    try:
        data = base64.b64decode(body, altchars=b"-_", validate=True)
        if len(data) > 1 << 13:
            raise ValueError
        found = Signed[Request].model_validate_json(data)
    except (binascii.Error, ValidationError, ValueError):
        raise _bad_line("it cannot be read") from None
    if (found.said.role, found.said.name) != (role, name):
        raise _bad_line(f"it begins with {role} {name}, and is signed for another party")
    if problem := name_problem(role, name):
        raise _bad_line(problem)
    key = PublicKey.parse(found.said.key)
    key.family  # noqa: B018  refuses what is no key
    found.check(key, name)
    return found


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:8]


def _bad_line(why: str) -> DataError:
    return DataError("not-a-request", why=why)


@dataclass(frozen=True)
class Registrar:
    """A registrar's folder: its key, the next one's, and the list."""

    folder: Path

    @classmethod
    def new(cls, folder: Path, name: str, *, address: str = "", days: int = 90) -> Registrar:
        made, (own, later) = cls(folder.absolute()), (KeySigner.new(), KeySigner.new())
        if (folder / MEMBERS_FILE).exists():
            raise OutputError("registrar-exists", folder=folder)
        made._keep(own, later)
        now = datetime.now(UTC).replace(microsecond=0)
        head = ListHead(
            origin=own.public_key.fingerprint,
            name=name,
            number=1,
            previous="",
            registrar=own.public_key.text,
            next_registrar=later.public_key.fingerprint,
            since=now,
            until=now + timedelta(days=days),
            address=address,
            entries=digest_of(()),
        )
        made._write(MemberList(heads=(Signed[ListHead].by(head, own),), entries=()))
        return made

    @property
    def file(self) -> Path:
        return self.folder / MEMBERS_FILE

    @property
    def signer(self) -> KeySigner:
        """What signs lists: of the keys in the folder the one that the newest list names."""
        return read_signer(self._place(KEY, PublicKey.parse(self.current().head.registrar)))

    @property
    def next_file(self) -> Path:
        """The key that can take over, until it is moved to a place that is offline."""
        return self._place(NEXT, self.current().head.next_registrar)

    def _place(self, kind: str, key: PublicKey | str) -> Path:
        fingerprint = key if isinstance(key, str) else key.fingerprint
        return self.folder / f"{kind}-{fingerprint[:16]}.pem"

    def _keep(self, own: KeySigner, later: KeySigner) -> None:
        """Write keys, before any list names them."""
        for kind, each in ((KEY, own), (NEXT, later)):
            file = self._place(kind, each.public_key)
            try:
                read_signer(file)
            except OutputError:  # none, or one whose writing was cut off
                file.unlink(missing_ok=True)
                write_private(self.folder, {file.name: pem_of(each.private)})

    def current(self) -> MemberList:
        try:
            data = self.file.read_bytes()
            origin = MemberList.model_validate_json(data).head.origin
        except OSError:
            raise OutputError("no-registrar", folder=self.folder) from None
        except ValueError:
            origin = ""
        return read_members(data, origin)

    def admit(self, requests: list[Signed[Request]], *, replace: bool = False) -> MemberList:
        """A list with these parties; who is in already is given its new key, if the old one agrees.

        ``replace``: without the old key's signature, which was lost.
        """

        def change(members: MemberList, now: datetime) -> tuple[MemberEntry, ...]:
            entries = list(members.entries)
            for each in requests:
                entries = _admitted(entries, each, members.head.origin, now, replace=replace)
            return tuple(entries)

        addresses = [
            each.said.address
            for each in requests
            if each.said.role == "aggregator" and each.said.address
        ]
        return self._next(change, address=addresses[-1] if addresses else None)

    def revoke(self, name: str, reason: str) -> MemberList:

        def change(members: MemberList, now: datetime) -> tuple[MemberEntry, ...]:
            if not any(each.name == name and each.is_in(now) for each in members.entries):
                raise DataError("not-in-list", name=name)
            return tuple(
                each.model_copy(update={"revoked": True, "reason": reason})
                if each.name == name and not each.revoked
                else each
                for each in members.entries
            )

        return self._next(change)

    def renew(self, *, address: str | None = None, days: int = 90) -> MemberList:
        """The same list under the next number, good from today."""
        return self._next(lambda members, _: members.entries, address=address, days=days)

    def hand_over(self, key: Path) -> MemberList:
        """A list that the next registrar signs, with the key that was kept offline, and this one.

        The folder has the next registrar's key from then on, and a new one for the one after.
        """
        taking, later = read_signer(key), KeySigner.new()
        if taking.public_key.fingerprint != (announced := self.current().head.next_registrar):
            raise DataError("other-key", announced=announced)
        self._keep(taking, later)
        return self._next(lambda members, _: members.entries, taking=taking, later=later)

    def _next(
        self,
        change: Callable[[MemberList, datetime], tuple[MemberEntry, ...]],
        *,
        address: str | None = None,
        days: int = 90,
        taking: KeySigner | None = None,
        later: KeySigner | None = None,
    ) -> MemberList:
        if not 1 <= days <= LONGEST.days:
            raise DataError(
                "out-of-range", name="days", value=days, wanted=f"from 1 to {LONGEST.days}"
            )
        self.current()  # says where there is none
        with (self.folder / ".lock").open("a") as file:
            hold(file, wait=True)
            before, own = self.current(), self.signer
            now = max(datetime.now(UTC).replace(microsecond=0), before.head.since)
            entries = change(before, now)
            check_entries(entries)
            taker = taking or own
            head = before.head.model_copy(
                update={
                    "number": before.head.number + 1,
                    "previous": before.digest,
                    "registrar": taker.public_key.text,
                    "next_registrar": later.public_key.fingerprint
                    if later
                    else before.head.next_registrar,
                    "since": now,
                    "until": now + timedelta(days=days),
                    "address": before.head.address if address is None else address,
                    "entries": digest_of(each.digest for each in entries),
                }
            )
            signed = Signed[ListHead].by(head, *({own, taker}))
            made = MemberList(heads=(*before.heads, signed), entries=entries)
            self._write(made)
            return made

    def _write(self, members: MemberList) -> None:
        data = line(members)
        read_members(data, members.head.origin)  # whatever is signed can be read
        write_members(self.file, data)


def _admitted(
    entries: list[MemberEntry],
    signed: Signed[Request],
    origin: str,
    now: datetime,
    *,
    replace: bool,
) -> list[MemberEntry]:
    said = signed.said
    if said.federation != origin:
        raise ProtocolError(
            "request-of-other-federation", party=said.name, federation=said.federation, own=origin
        )
    family = PublicKey.parse(said.key).family
    for each in entries:
        if PublicKey.parse(each.key).family == family or each.sealing == said.sealing:
            raise ProtocolError("twin-keys", party=said.name, other=each.name)
    held = [each for each in entries if each.name == said.name and each.is_in(now)]
    if held and held[0].role != said.role:
        raise ProtocolError("role-taken", party=said.name, own=held[0].role, wanted=said.role)
    agreed = held and said.replaces == held[0].key and signed.holds(PublicKey.parse(held[0].key))
    if held and not agreed and not replace:
        raise ProtocolError("party-taken", party=said.name)
    kept = [each.model_copy(update={"until": now}) if each in held else each for each in entries]
    names = ("name", "role", "organisation", "key", "sealing")
    return [*kept, MemberEntry(**{each: getattr(said, each) for each in names}, since=now)]


def new_request(
    origin: str,
    role: Role,
    name: str,
    organisation: str,
    keys: PartyKeys,
    *,
    address: str = "",
    replaces: str = "",
) -> Request:
    if problem := name_problem(role, name):
        raise DataError("bad-party-name", name=name, problem=problem)
    return Request(
        federation=origin,
        role=role,
        name=name,
        organisation=organisation,
        key=keys.signer.public_key.text,
        sealing=keys.sealing.digest,
        address=address,
        replaces=replaces,
    )
