"""A party's folder: its keys, the federation it pinned, and what it must know after a stop.

It can be moved to another machine; it must not run from two copies at once, which a lock in it
prevents only on one disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from eigenveil.errors import DataError, OutputError, ProtocolError, of_system
from eigenveil.federation.members import ROLES, Identity, MemberList, Role
from eigenveil.federation.public_key import KeySigner, PublicKey, Signer
from eigenveil.federation.sealing import SealingKey
from eigenveil.files import cannot_write, hold, replacing
from eigenveil.network.members import KnownMembers

FORMAT = "eigenveil-party-1"
FILE = "party.json"
MEMBERS_FILE = "members.json"
SIGNING, MLKEM, X25519 = "signing.pem", "mlkem.pem", "x25519.pem"
SIGNERS = "eigenveil.signers"
"""Entry points of plug-ins: each is called with the party's folder and gives a Signer."""
_FIELDS = ("role", "name", "organisation", "origin", "address", "ca", "signer")


def described(role: str) -> str:
    return {
        "site": "a site",
        "aggregator": "an aggregator",
        "lead": "a lead",
        "helper": "a noise helper",
        "registrar": "a registrar",
    }[role]


class _Inside:
    def __init__(self, place: str) -> None:
        self._place = place

    def __get__(self, party: PartyFolder, of: type | None = None) -> Path:
        return party.folder / self._place


@dataclass(frozen=True)
class PartyFolder:
    """One party's folder; made by :func:`open_party`."""

    folder: Path  # Absolute
    role: Role  # As in the party's request, and its entry in the list of members
    name: str
    organisation: str
    origin: str  # The fingerprint of the federation's first registrar, pinned once
    # The party's own way to the mailbox, in place of the list's; empty where that counts
    address: str = ""
    # A file of certificates that a proxy, or the aggregator's organisation, is checked by
    ca: str = ""
    signer: str = ""  # The plug-in that signs; empty where the key is a file
    known: KnownMembers = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", _known(self.folder / MEMBERS_FILE, self.origin))

    members = _Inside(MEMBERS_FILE)
    """The newest list of members that this party has seen."""
    keys = _Inside("keys")
    """A folder of private keys for each key that the party has, or had, by fingerprint."""
    state = _Inside("state")
    """What a party must know after it was stopped."""
    runs = _Inside("state/runs")
    """Of a site and a helper: what a run must know, a file each."""
    ended_file = _Inside("state/ended.txt")
    """Names of runs that are over, which are not admitted again."""
    journals = _Inside("state/journals")
    """Of the aggregator: a journal for each run that goes on, so that it outlives a kill."""
    lock = _Inside("state/lock")
    """Held by the one process that runs from this folder; see :func:`lock`."""
    decided = _Inside("decided")
    """Of a site: studies that were decided about, ``<study hash>.json``."""
    waiting = _Inside("waiting")
    """Of a site: studies requested and not decided yet, ``<study hash>.json``."""
    approver_keys = _Inside("approvers")
    """Of a site: keys of its approvers, each one encrypted with a password."""
    results = _Inside("results")
    """Of the aggregator: a folder for each run."""

    @property
    def signer_now(self) -> Signer:
        """The party's key by the newest list of members."""
        return identity_of(self).signer

    def folder_of(self, key: str) -> Path:
        """Where the party has, or had, the keys of a signing key."""
        return self.keys / PartyKeys.name_of(key)

    def mailbox_address(self) -> str:
        """Where the party's mail is: its own choice, else the list's."""
        return self.address or self.known.current().head.address


@lru_cache(1 << 12)
def _known(file: Path, origin: str) -> KnownMembers:
    return KnownMembers(file, origin)  # one a file, whatever number of folders are opened


def open_party(folder: str | Path, role: Role | None = None) -> PartyFolder:
    """The party whose folder this is; ``role`` is the one it must be of."""
    place = Path(folder).absolute()
    file = place / FILE
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
        if fields["format"] != FORMAT:
            raise ValueError
        party = PartyFolder(place, **{name: str(fields.get(name, "")) for name in _FIELDS})  # type: ignore[arg-type]
        if party.role not in ROLES or not party.name:
            raise ValueError
    except FileNotFoundError:
        found = "is no party's folder" if place.is_dir() else "is not there"
        raise OutputError("no-party", place=place, found=found) from None
    except OSError as problem:
        raise OutputError("cannot-read", path=file, reason=of_system(problem)) from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError("bad-party", file=file, what="the description of a party") from None
    if role is not None and party.role != role:
        raise DataError(
            "other-role", folder=folder, own=described(party.role), wanted=described(role)
        )
    return party


def new_party(party: PartyFolder, keys: PartyKeys) -> None:
    """Write a party's folder, which must not hold one."""
    if (party.folder / FILE).exists():
        raise OutputError("party-exists", folder=party.folder)
    add_keys(party, keys)
    _describe(party)


def use_address(folder: Path, address: str) -> None:
    """Note where a party's mailbox is, whatever the list of members says."""
    _describe(replace(open_party(folder), address=address))


def _describe(party: PartyFolder) -> None:
    content = {"format": FORMAT} | {name: getattr(party, name) for name in _FIELDS}
    write_json(party.folder / FILE, content)


def add_keys(party: PartyFolder, keys: PartyKeys) -> None:
    """Put keys beside those that are there: the list of members says which of them count."""
    write_private(party.folder, {})
    keys.write(party.folder_of(keys.signer.public_key.text))


def keys_of(party: PartyFolder, members: MemberList) -> PartyKeys:
    """The keys that a list has for the party."""
    entries = [each for each in members.entries if each.name == party.name]
    now = datetime.now(UTC)
    for entry in sorted(entries, key=lambda each: not each.is_in(now)):
        found = party.folder_of(entry.key)
        if found.is_dir():
            keys = PartyKeys.read(found, party=party.folder, signer=party.signer)
            if keys.signer.public_key.text == entry.key and keys.sealing.digest == entry.sealing:
                return keys
    if entries:
        raise ProtocolError("other-keys", name=party.name)
    raise ProtocolError("not-in-list-yet", party=party.name)


def identity_of(party: PartyFolder, members: str = "") -> Identity:
    """Who signs for the party, by the newest list, or by that of the digest ``members``."""
    view = party.known.at(members or party.known.digest)
    keys = keys_of(party, view.members)
    return Identity(party.name, party.role, keys.signer, view if members else party.known)


def sealing_of(party: PartyFolder, members: str = "") -> SealingKey:
    return keys_of(party, party.known.at(members or party.known.digest).members).sealing


@contextmanager
def lock(party: PartyFolder) -> Iterator[None]:
    """Hold the folder: one process at a time runs from it."""
    try:
        party.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = party.lock.open("a")
    except OSError as problem:
        raise cannot_write(party.folder, problem) from None
    with file:
        if not hold(file):
            raise OutputError("party-in-use", folder=party.folder)
        yield


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file whole or not at all; for its owner only."""
    with replacing(path) as scratch:
        scratch.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


# -- keys: PEM files that only the party can read, or a plug-in that signs in a card


@dataclass(frozen=True, repr=False)
class PartyKeys:
    signer: Signer
    sealing: SealingKey

    @classmethod
    def new(cls, signer: Signer | None = None) -> PartyKeys:
        """New ones; or new ones beside a card's."""
        return cls(signer or KeySigner.new(), SealingKey.generate())

    @classmethod
    def read(cls, folder: Path, *, party: Path, signer: str = "") -> PartyKeys:
        """From a folder of keys; ``signer`` names the plug-in where the signing key is no file."""
        found = plug_in(signer, party) if signer else read_signer(folder / SIGNING)
        kem, x25519 = _read(folder / MLKEM), _read(folder / X25519)
        if not isinstance(kem, MLKEM768PrivateKey):
            raise _not_a_key(folder / MLKEM, "an ML-KEM-768 key")
        if not isinstance(x25519, X25519PrivateKey):
            raise _not_a_key(folder / X25519, "an X25519 key")
        raw = kem.private_bytes_raw() + x25519.private_bytes_raw()
        return cls(found, SealingKey(raw))

    @staticmethod
    def name_of(key: str) -> str:
        return PublicKey.parse(key).fingerprint[:16]

    def write(self, folder: Path) -> None:
        """Into a new folder; for its owner only."""
        kem, x25519 = self.sealing.halves
        files = {MLKEM: pem_of(kem), X25519: pem_of(x25519)}
        if isinstance(self.signer, KeySigner):
            files[SIGNING] = pem_of(self.signer.private)
        write_private(folder, files)


def read_signer(file: Path) -> KeySigner:
    """A signing key from a PEM file without a password."""
    key = _read(file)
    curve = key.curve if isinstance(key, EllipticCurvePrivateKey) else None
    if not isinstance(key, Ed25519PrivateKey) and not isinstance(curve, SECP256R1):
        raise _not_a_key(file, "an Ed25519 or a P-256 key")
    assert isinstance(key, Ed25519PrivateKey | EllipticCurvePrivateKey)
    return KeySigner(key)


def plug_in(name: str, party: Path) -> Signer:
    for each in entry_points(group=SIGNERS, name=name):
        signer: Signer = each.load()(party)
        return signer
    raise OutputError("no-signer", name=name, signers=SIGNERS)


def write_private(folder: Path, files: Mapping[str, bytes]) -> None:
    """New files that only their owner can read."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, text in files.items():
            handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
    except OSError as problem:
        raise cannot_write(folder, problem) from None


def pem_of(key: object) -> bytes:
    text: bytes = key.private_bytes(  # type: ignore[attr-defined]
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    return text


def _read(file: Path) -> object:
    try:
        return load_pem_private_key(file.read_bytes(), password=None)
    except OSError as problem:
        raise OutputError("party-incomplete", file=file, reason=of_system(problem)) from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise _not_a_key(file, "a private key without a password") from None


def _not_a_key(file: Path, what: str) -> OutputError:
    return OutputError("bad-party", file=file, what=what)
