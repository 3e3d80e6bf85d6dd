"""Making a federation: its registrar, its parties, and the list that says who they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from eigenveil.errors import DataError, OutputError, of_system
from eigenveil.federation.members import MemberList, Role, plain_fingerprint
from eigenveil.federation.protocol.terms import active_sites
from eigenveil.federation.public_key import PublicKey
from eigenveil.federation.study.study import Study
from eigenveil.network.carriers.folder import place_of
from eigenveil.network.carriers.shelves import LocalShelf
from eigenveil.network.carriers.tls import make_tls
from eigenveil.network.folder import (
    FILE,
    MEMBERS_FILE,
    PartyFolder,
    add_keys,
    keys_of,
    new_party,
    open_party,
)
from eigenveil.network.keys import PartyKeys, plug_in
from eigenveil.network.members import LARGEST
from eigenveil.network.registrar import (
    Registrar,
    new_request,
    read_request,
    request_line,
)


@dataclass(frozen=True)
class Joined:
    """A party's folder, the fingerprint of its new key, and the line to send to the registrar."""

    party: PartyFolder
    fingerprint: str
    request: str


@dataclass(frozen=True)
class Member:
    """A line of a list of members; ``state`` is "in", "replaced" or "revoked"."""

    name: str
    role: str
    organisation: str
    fingerprint: str
    state: str
    reason: str


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


@dataclass(frozen=True)
class Trial:
    """A whole federation on one machine: the registrar's folder, and the parties' by name."""

    registrar: Path
    fingerprint: str
    parties: dict[str, PartyFolder]


def new(folder: Path, name: str, *, address: str = "") -> Members:
    registrar = Registrar.new(folder, name, address=address)
    return _office(registrar, registrar.current())


def parties_of(study: Study) -> dict[str, Role]:
    """Every party that a study needs, by name."""
    found: dict[str, Role] = {"aggregator": "aggregator", "lead": "lead"}
    if study.masks == "helper":
        found["helper"] = "helper"
    return found | dict.fromkeys(active_sites(study), "site")


def join(
    folder: Path,
    *,
    role: Role,
    name: str,
    registrar: str,
    organisation: str = "",
    address: str = "",
    own_certificate: bool = False,
    signer: str = "",
) -> Joined:
    """Make a party's folder with new keys, and what it asks the registrar."""
    origin, folder = plain_fingerprint(registrar), folder.absolute()
    keys = PartyKeys.new(plug_in(signer, folder) if signer else None)
    if role == "aggregator" and address.startswith("https://") and not own_certificate:
        host = urlsplit(address).hostname
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        address = f"{address.partition('#')[0]}#{make_tls(folder, host or '')}"
    request = new_request(origin, role, name, organisation, keys, address=address)
    party = PartyFolder(folder, role, name, organisation, origin, signer=signer)
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


def take(folder: Path, file: Path) -> tuple[Members, bool]:
    """Give a party a list that came from the registrar; whether it is newer than the party's."""
    party = open_party(folder)
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST + 1)
    except OSError as problem:
        raise OutputError("cannot-read", path=file, reason=of_system(problem)) from None
    newer = party.known.adopt(data)
    return members(folder), newer


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
    origin = new(folder / "registrar", study.name).registrar
    joined = {
        name: join(
            folder / name,
            role=role,
            name=name,
            registrar=origin,
            organisation=name,
            address=address if role == "aggregator" else "",
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


def _office(registrar: Registrar, found: MemberList) -> Members:
    """A list at the registrar, who is told of a key that belongs elsewhere."""
    file = registrar.next_file
    warning = f"{file} can take over as registrar: move it to a place that is offline."
    return _shown(found, registrar.file, warning if file.exists() else "")


def _shown(found: MemberList, file: Path, warning: str = "") -> Members:
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
    return Members(
        head.name,
        head.origin,
        head.number,
        head.digest,
        head.since,
        head.until,
        head.address,
        listed,
        file,
        warning,
    )
