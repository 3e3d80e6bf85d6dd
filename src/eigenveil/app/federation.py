"""Making a federation: its registrar, its parties, and the list that says who they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from eigenveil.app.parts import Part, TablePart, whole
from eigenveil.errors import DataError, OutputError, of_system
from eigenveil.federation.masks import MASKS
from eigenveil.federation.members import MemberList, Role, plain_fingerprint
from eigenveil.federation.public_key import PublicKey
from eigenveil.federation.study.study import Study
from eigenveil.network.carriers.folder import place_of
from eigenveil.network.carriers.https import make_tls
from eigenveil.network.carriers.shelves import LocalShelf
from eigenveil.network.folder import (
    FILE,
    MEMBERS_FILE,
    PartyFolder,
    PartyKeys,
    add_keys,
    keys_of,
    new_party,
    open_party,
    plug_in,
)
from eigenveil.network.members import LARGEST
from eigenveil.network.registrar import Registrar, new_request, read_request, request_line


@dataclass(frozen=True)
class Joined:
    """A party's folder, the fingerprint of its new key, and the line to send to the registrar."""

    party: PartyFolder
    fingerprint: str
    request: str

    def as_json(self) -> dict[str, Any]:
        own = {"fingerprint": self.fingerprint, "request": self.request}
        return {"folder": self.party.folder, **own}

    def parts(self) -> Iterator[Part]:
        yield "Send the registrar this line:"
        yield whole(self.request)
        yield "and read it this fingerprint by telephone:"
        yield spoken(self.fingerprint)


@dataclass(frozen=True)
class Member:
    """A line of a list of members; ``state`` is "in", "replaced" or "revoked"."""

    name: str
    role: str
    organisation: str
    fingerprint: str
    state: str
    reason: str

    @property
    def standing(self) -> str:
        return "" if self.state == "in" else f"{self.state} {self.reason}".strip()


@dataclass(frozen=True)
class Members:
    """A list of members, as people look at it.

    ``registrar`` is the fingerprint that parties pin; ``file`` the list, to be sent to all.
    """

    federation: str
    registrar: str
    number: int
    digest: str
    since: datetime
    until: datetime
    address: str
    members: tuple[Member, ...]
    file: Path
    warning: str = ""

    def parts(self) -> Iterator[Part]:
        yield f"{self.federation}: list of members, number {self.number}"
        rows = [
            (each.name, each.role, each.organisation, each.fingerprint[:16], each.standing)
            for each in self.members
        ]
        yield TablePart("", ("name", "role", "organisation", "key", ""), rows)
        yield f"good until {self.until:%Y-%m-%d %H:%M} UTC"
        yield whole(f"the parties meet at {self.address or 'no address yet'}")
        yield f"this list: {self.digest[:16]}; compare it with the other parties"
        yield f"registrar's fingerprint: {spoken(self.registrar)}"
        if self.warning:
            yield whole(f"warning: {self.warning}")


@dataclass(frozen=True)
class Begun(Members):
    """The list of a federation that begins, which has nobody in it."""

    def parts(self) -> Iterator[Part]:
        yield f"registrar's fingerprint: {spoken(self.registrar)}"
        yield "Tell it to all parties by another way than mail."
        yield whole(self.warning)


@dataclass(frozen=True)
class Trial:
    """A whole federation on one machine: the registrar's folder, and the parties' by name."""

    registrar: Path
    fingerprint: str
    parties: dict[str, PartyFolder]

    def as_json(self) -> dict[str, Any]:
        own = {"registrar": self.registrar, "fingerprint": self.fingerprint}
        return {**own, "parties": {name: party.folder for name, party in self.parties.items()}}

    def parts(self) -> Iterator[Part]:
        folders = {name: party.folder for name, party in self.parties.items()}
        for name, place in (folders | {"registrar": self.registrar}).items():
            yield whole(f"{name:<12} {place}")
        yield f"registrar's fingerprint: {spoken(self.fingerprint)}"
        yield whole(
            "All keys were made here, for a trial. Between organisations each party makes its own: "
            "'eigenveil federation join'."
        )


def begin(folder: Path, name: str, *, address: str = "") -> Members:
    """A registrar's folder, and a list with nobody in it."""
    registrar = Registrar.new(folder, name, address=address)
    return _office(registrar, registrar.current(), Begun)


def parties_of(study: Study) -> dict[str, Role]:
    """Every party that a study needs, by name."""
    found: dict[str, Role] = {"aggregator": "aggregator", "lead": "lead"}
    if MASKS[study.masks].needs_helper:
        found["helper"] = "helper"
    return found | dict.fromkeys(study.active, "site")


@dataclass(frozen=True)
class Asking:
    """Who asks to be let in: of a site its name in studies; ``registrar`` is a fingerprint."""

    role: Role
    name: str
    registrar: str
    organisation: str = ""
    address: str = ""  # Of an aggregator
    signer: str = ""  # The plug-in that signs, where the key is in a card


def join(folder: Path, asking: Asking, *, own_certificate: bool = False) -> Joined:
    """Make a party's folder with new keys, and what it asks the registrar."""
    origin, folder = plain_fingerprint(asking.registrar), folder.absolute()
    who = asking.role, asking.name, asking.organisation
    keys = PartyKeys.new(plug_in(asking.signer, folder) if asking.signer else None)
    address = asking.address
    if asking.role == "aggregator" and address.startswith("https://") and not own_certificate:
        host = urlsplit(address).hostname
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        address = f"{address.partition('#')[0]}#{make_tls(folder, host or '')}"
    request = new_request(origin, *who, keys, address=address)
    party = PartyFolder(folder, *who, origin, signer=asking.signer)
    new_party(party, keys)
    fingerprint = keys.signer.public_key.fingerprint
    return Joined(party, fingerprint, request_line(request, keys.signer))


def admit(
    folder: Path, lines: Sequence[str], fingerprints: Sequence[str], *, replace: bool = False
) -> Members:
    """A list with those who ask, if each key is one that its party read out."""
    requests = [read_request(line) for line in lines]
    told = {plain_fingerprint(each) for each in fingerprints}
    for each in requests:
        if PublicKey.parse(each.said.key).fingerprint not in told:
            raise DataError("other-fingerprint", party=each.said.name, role=each.said.role)
    registrar = Registrar(folder.absolute())
    return _office(registrar, registrar.admit(requests, replace=replace))


def revoke(folder: Path, name: str, reason: str) -> Members:
    registrar = Registrar(folder.absolute())
    return _office(registrar, registrar.revoke(name, reason))


def renew(folder: Path, *, address: str | None = None, days: int = 90) -> Members:
    """The same list under the next number, good from today."""
    registrar = Registrar(folder.absolute())
    return _office(registrar, registrar.renew(address=address, days=days))


def hand_over(folder: Path, key: Path) -> Members:
    """A list that the next registrar's key signs, and the one before."""
    registrar = Registrar(folder.absolute())
    return _office(registrar, registrar.hand_over(key))


def members(folder: Path) -> Members:
    """The newest list in a party's folder, or a registrar's."""
    if not (folder / FILE).exists() and (folder / MEMBERS_FILE).exists():
        registrar = Registrar(folder.absolute())
        return _office(registrar, registrar.current())
    party = open_party(folder)
    return _shown(party.known.current(), party.members, party.known.warning())


def take(folder: Path, file: Path) -> bool:
    """Give a party a list that came from the registrar; whether it is newer than the party's."""
    party = open_party(folder)
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST + 1)
    except OSError as problem:
        raise OutputError("cannot-read", path=file, reason=of_system(problem)) from None
    return party.known.adopt(data)


def replace_key(folder: Path) -> Joined:
    """Make a party new keys; the old ones count until the registrar has admitted them.

    The old key signs the request as well, unless it was revoked.
    """
    party, now = open_party(folder), datetime.now(UTC)
    known = party.known.current()
    old = keys_of(party, known)
    held = [each for each in known.entries if each.name == party.name and each.is_in(now)]
    keys = PartyKeys.new(old.signer if party.signer else None)
    replaces = held[0].key if held else ""
    request = new_request(
        party.origin, party.role, party.name, party.organisation, keys, replaces=replaces
    )
    add_keys(party, keys)
    signers = [keys.signer, *([old.signer] if held else [])]
    return Joined(party, keys.signer.public_key.fingerprint, request_line(request, *signers))


def new_all(study: Study, folder: Path, *, address: str = "") -> Trial:
    """Make the folders of all parties of a study and their registrar, for trials."""
    if address.startswith("folder:"):
        LocalShelf(place_of(address)).make()
    origin = begin(folder / "registrar", study.name).registrar
    joined = {
        name: join(
            folder / name, Asking(role, name, origin, name, address if role == "aggregator" else "")
        )
        for name, role in parties_of(study).items()
    }
    found = admit(
        folder / "registrar",
        [each.request for each in joined.values()],
        [each.fingerprint for each in joined.values()],
    )
    data = found.file.read_bytes()
    for each in joined.values():
        each.party.known.adopt(data)
    parties = {name: open_party(each.party.folder) for name, each in joined.items()}
    return Trial(folder.absolute() / "registrar", origin, parties)


def spoken(fingerprint: str) -> str:
    return " ".join(fingerprint[each : each + 4] for each in range(0, len(fingerprint), 4))


def _office(registrar: Registrar, found: MemberList, kind: type[Members] = Members) -> Members:
    """A list at the registrar, who is told of a key that belongs elsewhere."""
    file = registrar.next_file
    warning = f"{file} can take over as registrar: move it to a place that is offline."
    return _shown(found, registrar.file, warning if file.exists() else "", kind)


def _shown(found: MemberList, file: Path, warning: str, kind: type[Members] = Members) -> Members:
    head, now = found.head, datetime.now(UTC)
    listed = tuple(
        Member(
            each.name,
            each.role,
            each.organisation,
            PublicKey.parse(each.key).fingerprint,
            "revoked" if each.revoked else "in" if each.is_in(now) else "replaced",
            each.reason,
        )
        for each in found.entries
    )
    period = head.since, head.until
    about = head.name, head.origin, head.number, head.digest, *period, head.address
    return kind(*about, listed, file, warning)
