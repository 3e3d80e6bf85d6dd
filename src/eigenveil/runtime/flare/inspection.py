"""What a kit is, for its owner to read."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil.errors import EigenveilError
from eigenveil.runtime.flare.certificates import fingerprint, read_certificate
from eigenveil.runtime.flare.kit import Kit, check_own_certificate
from eigenveil.runtime.flare.policies import allowed_classes


@dataclass(frozen=True)
class KitFacts:
    """Facts about a kit.

    Attributes
    ----------
    role, name, org, project, host, port
        As in its description.
    fingerprint : str
        Of the party's certificate; of a registrar, the root's.
    root_fingerprint : str
        Of the federation's root certificate: all parties must see the same.
    valid_until : str
        Date of the end of the party's certificate.
    trouble : str
        Why nobody could connect with this kit; empty if somebody could.
    allows : tuple of str
        Classes that a job may name.
    approved, waiting : tuple of str
        Of a site: hashes of studies.
    """

    role: str
    name: str
    org: str
    project: str
    host: str
    port: int
    fingerprint: str
    root_fingerprint: str
    valid_until: str
    trouble: str
    allows: tuple[str, ...]
    approved: tuple[str, ...]
    waiting: tuple[str, ...]


def inspect(kit: Kit) -> KitFacts:
    """Facts about a kit.

    Raises
    ------
    DataError, OutputError
        When its certificates cannot be read.
    """
    own, root = read_certificate(kit.certificate), read_certificate(kit.root_certificate)
    try:
        check_own_certificate(kit)
        trouble = ""
    except EigenveilError as error:
        trouble = error.message
    of_site = kit.role == "site"
    return KitFacts(
        role=kit.role,
        name=kit.name,
        org=kit.org,
        project=kit.project,
        host=kit.host,
        port=kit.port,
        fingerprint=fingerprint(own),
        root_fingerprint=fingerprint(root),
        valid_until=f"{own.not_valid_after_utc:%Y-%m-%d}",
        trouble=trouble,
        allows=allowed_classes(kit.role),
        approved=tuple(sorted(f.stem for f in kit.approved.glob("*.json"))) if of_site else (),
        waiting=tuple(sorted(f.stem for f in kit.waiting.glob("*.json"))) if of_site else (),
    )
