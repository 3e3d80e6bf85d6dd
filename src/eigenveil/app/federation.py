"""Making a federation: its registrar, its parties, and the list that says who they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eigenveil.federation.members import Role
from eigenveil.federation.protocol.terms import active_sites
from eigenveil.federation.study.study import Study
from eigenveil.network.folder import PartyFolder, new_party, open_party
from eigenveil.network.keys import PartyKeys
from eigenveil.network.registrar import Registrar, new_request, read_request, request_line


@dataclass(frozen=True)
class Joined:
    """A party's new folder, and the line to send to the registrar."""

    party: PartyFolder
    fingerprint: str
    request: str


@dataclass(frozen=True)
class Trial:
    """A whole federation on one machine: folders by party's name."""

    registrar: Path
    fingerprint: str
    parties: dict[str, PartyFolder]


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
) -> Joined:
    """Make a party's folder with new keys, and what it asks the registrar."""
    keys = PartyKeys.new()
    request = new_request(registrar, role, name, organisation, keys, address=address)
    party = PartyFolder(folder.absolute(), role, name, organisation, registrar)
    new_party(party, keys)
    key = keys.signer.public_key
    return Joined(party, key.fingerprint, request_line(request, keys.signer))


def new_all(study: Study, folder: Path, *, address: str = "") -> Trial:
    """Make the folders of all parties of a study and their registrar, for trials."""
    registrar = Registrar.new(folder / "registrar", study.name, address=address)
    origin = registrar.current().head.origin
    joined = {
        name: join(folder / name, role=role, name=name, registrar=origin, organisation=name)
        for name, role in parties_of(study).items()
    }
    registrar.admit([read_request(each.request) for each in joined.values()])
    data = registrar.file.read_bytes()
    for each in joined.values():
        each.party.known.adopt(data)
    parties = {name: open_party(each.party.folder) for name, each in joined.items()}
    return Trial(registrar.folder, origin, parties)
