"""Kits for all parties of a study at once: for one machine, or one registrar whom all trust.

Every kit is made as :mod:`eigenveil.network.enrolment` does it, only all in one place: who
runs this could have copied every key. Between organisations each party makes its own.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from eigenveil.errors import EigenveilError
from eigenveil.federation.study.study import Study
from eigenveil.network import certificates
from eigenveil.network.certificates import fingerprint, read_certificate
from eigenveil.network.enrolment import begin, request_name
from eigenveil.network.enrolment import package as complete
from eigenveil.network.flare.policies import allowed_classes
from eigenveil.network.folders import new_folder
from eigenveil.network.kit import Kit, check_own_certificate, open_kit, prepare
from eigenveil.network.signed import known_members
from eigenveil.network.x509_registrar import approve, fill_registrar, parties

DEFAULT_HOST = "localhost"
DEFAULT_PORT = 8102


def provision(
    study: Study,
    out: str | Path,
    *,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    registrar: bool = True,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Kits of every party, in a folder each.

    Parameters
    ----------
    study : Study
        Its active sites get kits, and its helper if it has one.
    out : path
        A new folder.
    host : str
        The name by which the parties reach the aggregator; its certificate is made out to it.
    port : int
        The one port on which it listens.
    registrar : bool
        Whether the root key is kept, in the registrar's kit and nowhere else; otherwise it is
        thrown away, and nobody can ever join or renew.
    overwrite : bool
        Whether kits that are there are replaced; their keys are lost.

    Returns
    -------
    dict of str to Path
        The kits' folders: of the sites by their names, 'helper', 'aggregator', 'lead',
        'registrar'.

    Raises
    ------
    DataError, OutputError
        Nothing is then written.
    """
    target = Path(out)
    known = parties(study, host)
    with new_folder(target, overwrite=overwrite) as scratch:
        authority = scratch / "registrar"
        authority.mkdir(mode=0o700)
        fill_registrar(study, authority, host=host, port=port)
        root = certificates.read_certificate(open_kit(authority).certificate)
        mark = certificates.fingerprint(root)
        for folder, (role, name) in known.items():
            place = scratch / folder
            place.mkdir(mode=0o700)
            begin(study.name, place, role=role, name=name)
            approval = approve(
                place / request_name(role, name), authority, scratch / "approval.json"
            )
            complete(place, approval, fingerprint=mark)
            approval.unlink()
        newest = open_kit(authority).members.read_bytes()
        for folder in known:  # the first to be certified have not seen the last ones' keys
            known_members(open_kit(scratch / folder)).adopt(newest)
        if not registrar:
            shutil.rmtree(authority)
    made = {folder: target / folder for folder in known}
    if registrar:
        made["registrar"] = target / "registrar"
    for made_here in made.values():
        prepare(open_kit(made_here))  # places in it are named anew: it was made elsewhere
    return made


# -- What a kit is, for its owner to read.


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
    problem : str
        Why nobody could connect with this kit; empty if somebody could.
    allows : tuple of str
        Classes that a job may name.
    decided, waiting : tuple of str
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
    problem: str
    allows: tuple[str, ...]
    decided: tuple[str, ...]
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
        problem = ""
    except EigenveilError as error:
        problem = error.message
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
        problem=problem,
        allows=allowed_classes(kit.role),
        decided=tuple(sorted(f.stem for f in kit.decided.glob("*.json"))) if of_site else (),
        waiting=tuple(sorted(f.stem for f in kit.waiting.glob("*.json"))) if of_site else (),
    )
