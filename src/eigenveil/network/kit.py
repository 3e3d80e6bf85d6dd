"""A kit: one party's folder, with its key, its certificate and what its FLARE may do.

A kit can be moved to another machine: what names places in it is written anew at every start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.errors import DataError, OutputError
from eigenveil.files import hold, replacing
from eigenveil.network.roles import ROLES, Role, described
from eigenveil.network.together import cannot_write, finish_writing

FORMAT = "eigenveil-kit-1"
FILE = "eigenveil-kit.json"
ROOT_CERTIFICATE = "rootCA.pem"
ROOT_KEY = "rootCA.key"
# The one folder that FLARE may clean: jobs, and nothing of ours.
RUNS = "runs"
# FLARE's own scripts and notebooks start a party without our checks: never part of a kit.
_UNWANTED = ("*.sh", "*.ipynb", "*.default", "*.sample", "readme.txt")


@dataclass(frozen=True)
class Kit:
    """One party's folder; made by :func:`open_kit`.

    Attributes
    ----------
    folder : Path
        Absolute.
    role : Role
    name : str
        In the party's certificate; the aggregator's is its host.
    org : str
        The organisation in the certificate.
    host, port
        Where the aggregator listens.
    project : str
        Names the federation; its root certificate is made out to it.
    """

    folder: Path
    role: Role
    name: str
    org: str
    host: str
    port: int
    project: str

    @property
    def startup(self) -> Path:
        """FLARE's folder with the key, the certificates and where the aggregator is."""
        return self.folder / "startup"

    @property
    def local(self) -> Path:
        """FLARE's folder with what the owner of the kit allows."""
        return self.folder / "local"

    @property
    def configuration(self) -> Path:
        """FLARE's file of the start."""
        return self.startup / "fed_client.json"

    @property
    def certificate(self) -> Path:
        """The party's certificate (of a registrar: the root certificate)."""
        if self.role == "registrar":
            return self.folder / ROOT_CERTIFICATE
        return self.startup / f"{self._who}.crt"

    @property
    def key(self) -> Path:
        """The party's private key (of a registrar: the root key)."""
        if self.role == "registrar":
            return self.folder / ROOT_KEY
        return self.startup / f"{self._who}.key"

    @property
    def next_key(self) -> Path:
        """A new key that waits for its certificate; the kit works with :attr:`key` until then."""
        return self.startup / "next.key"

    @property
    def root_certificate(self) -> Path:
        """The federation's root certificate."""
        where = self.folder if self.role == "registrar" else self.startup
        return where / ROOT_CERTIFICATE

    @property
    def decided(self) -> Path:
        """Of a site: studies that were decided about, ``<study hash>.json``."""
        return self.local / "decided"

    @property
    def approver_keys(self) -> Path:
        """Of a site: keys of its approvers, each one encrypted with a password."""
        return self.folder / "approvers"

    @property
    def signing_file(self) -> Path:
        """Where the signing key is, if it is in a token and not in :attr:`key`."""
        return self.startup / "signing.json"

    @property
    def signing_certificate(self) -> Path:
        """The certificate of a signing key in a token."""
        return self.startup / "signing.crt"

    @property
    def waiting(self) -> Path:
        """Of a site: studies requested and not decided yet, ``<study hash>.json``."""
        return self.local / "waiting"

    @property
    def results(self) -> Path:
        """Of the aggregator: a folder for each job."""
        return self.folder / "results"

    @property
    def jobs(self) -> Path:
        """Of the aggregator: FLARE's store of jobs."""
        return self.folder / "jobs"

    @property
    def snapshots(self) -> Path:
        """Of the aggregator: FLARE's store of snapshots, which it leaves empty."""
        return self.folder / "snapshots"

    @property
    def state(self) -> Path:
        """What a party must know after it was stopped."""
        return self.folder / "state"

    @property
    def session_file(self) -> Path:
        """Of a site: the admitted runs, so that a site that is started again goes on."""
        return self.state / "session.json"

    @property
    def ended_file(self) -> Path:
        """Of a site and a helper: names of runs that are over, which are not admitted again."""
        return self.state / "ended.txt"

    @property
    def journals(self) -> Path:
        """Of the aggregator: a journal for each run that goes on, so that it outlives a kill."""
        return self.state / "journals"

    @property
    def runs(self) -> Path:
        """Where FLARE puts jobs: the one folder of a kit that it may clean."""
        return self.folder / RUNS

    @property
    def members(self) -> Path:
        """The newest list of who is in the federation that this party has seen."""
        return self.folder / "members.json"

    @property
    def transfer(self) -> Path:
        """Where FLARE puts what a lead sends and fetches."""
        return self.folder / "transfer"

    @property
    def lock(self) -> Path:
        """Held by the one process that runs from this kit; see :func:`lock`."""
        return self.state / "lock"

    @property
    def _who(self) -> str:
        return "server" if self.role == "aggregator" else "client"


def open_kit(folder: str | Path, *, role: Role | None = None) -> Kit:
    """The kit in a folder.

    Parameters
    ----------
    folder : path
    role : Role, optional
        The one it must be of.

    Raises
    ------
    OutputError
        When it is absent, cannot be read or is incomplete.
    DataError
        When it is no kit of this version, or of another role.
    """
    place = Path(folder).absolute()
    kit = read_kit_file(place)
    if role is not None and kit.role != role:
        raise DataError(
            f"{folder} is the kit of {described(kit.role)}, not of {described(role)}.",
            hint=f"Give the kit of {described(role)}.",
            code="other-role",
        )
    needed = [kit.certificate, kit.key, kit.root_certificate]
    if kit.role != "registrar":
        needed.append(kit.configuration)
    for file in needed:
        if not file.is_file():
            request = request_pending(kit)
            raise OutputError(
                f"{folder} is an incomplete kit: {file.relative_to(place)} is missing.",
                hint="Its request was not packaged yet: 'eigenveil flare package' does it with "
                "what the registrar approved."
                if request
                else "Get a complete copy of the kit, or make it again.",
                code="kit-incomplete",
            )
    return kit


@contextmanager
def lock(kit: Kit) -> Iterator[None]:
    """Hold the kit: one process at a time runs from it.

    Raises
    ------
    OutputError
        When another process holds it (it ends with that process, however that ends).
    """
    try:
        kit.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = kit.lock.open("a")
    except OSError as problem:
        raise cannot_write(kit.folder, problem) from None
    with file:
        if not hold(file):
            raise OutputError(
                f"{kit.folder} is in use by another process.",
                hint="Stop that one first; a kit runs once at a time.",
                code="kit-in-use",
            )
        yield


def describe(kit: Kit) -> dict[str, Any]:
    """The kit's own file, as :func:`open_kit` reads it."""
    return {
        "format": FORMAT,
        "role": kit.role,
        "name": kit.name,
        "org": kit.org,
        "host": kit.host,
        "port": kit.port,
        "project": kit.project,
    }


def request_pending(kit: Kit) -> bool:
    """Whether the kit has a key and waits for its certificate."""
    return kit.role != "registrar" and kit.key.is_file() and not kit.certificate.exists()


def read_kit_file(folder: Path) -> Kit:
    """The kit that a folder states it is, complete or not.

    Raises
    ------
    OutputError, DataError
        As :func:`open_kit`.
    """
    place = folder.absolute()
    finish_writing(place)
    return _read(place)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file whole or not at all; for its owner only."""
    with replacing(path) as scratch:
        scratch.write_bytes(json_text(content))


def json_text(content: Mapping[str, Any]) -> bytes:
    """A kit's JSON, as it is in its files."""
    return json.dumps(content, indent=2).encode() + b"\n"


def _read(place: Path) -> Kit:
    file = place / FILE
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        found = "is no kit" if place.is_dir() else "is not there"
        raise OutputError(
            f"{place} {found}.",
            hint="Give a folder that 'eigenveil flare provision' or 'request' made.",
            code="no-kit",
        ) from None
    except OSError as problem:
        raise OutputError(
            f"{file} cannot be read: {problem.strerror or problem}.",
            hint="Check who may read the kit.",
            code="cannot-read",
        ) from None
    except ValueError:
        raise _broken(file) from None
    try:
        if fields["format"] != FORMAT:
            raise DataError(
                f"{file} is of format {fields['format']!r}, not {FORMAT!r}.",
                hint="Use the version of eigenveil that made it, or make the kit again.",
                code="other-format",
            )
        kit = Kit(
            folder=place,
            role=fields["role"],
            name=str(fields["name"]),
            org=str(fields["org"]),
            host=str(fields["host"]),
            port=int(fields["port"]),
            project=str(fields["project"]),
        )
    except (KeyError, TypeError, ValueError) as problem:
        if isinstance(problem, DataError):
            raise
        raise _broken(file) from None
    if kit.role not in ROLES:
        raise _broken(file)
    return kit


def _broken(file: Path) -> DataError:
    return DataError(
        f"{file} is not the description of a kit.",
        hint="Get a complete copy of the kit, or make it again.",
        code="bad-kit",
    )
