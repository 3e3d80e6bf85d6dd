"""The registrar: who holds the root key, and certifies the keys of a study's parties."""

from __future__ import annotations

import json
from pathlib import Path

from eigenveil.errors import DataError, OutputError
from eigenveil.federation.protocol.terms import active_sites
from eigenveil.federation.study.study import Study
from eigenveil.files import replacing
from eigenveil.network import certificates
from eigenveil.network.enrolment import APPROVAL_FORMAT, Request, read_request, write_public
from eigenveil.network.flare.authority import PARTY_DAYS, make_root, sign
from eigenveil.network.folders import new_folder
from eigenveil.network.kit import (
    FILE,
    ROOT_CERTIFICATE,
    ROOT_KEY,
    Kit,
    describe,
    open_kit,
    write_json,
)
from eigenveil.network.roles import (
    HELPER_NAME,
    LEAD_NAME,
    Role,
    check_host,
    check_port,
    check_site,
    check_user,
    organisation,
)

_ISSUED = "issued"
_PARTIES = "parties.json"


def parties(study: Study, host: str) -> dict[str, tuple[Role, str]]:
    """Role and name of every party of a study, by the name of its kit's folder.

    Raises
    ------
    DataError
        When a site cannot be called as it is.
    """
    check_host(host)
    found: dict[str, tuple[Role, str]] = {}
    taken = {host.casefold(): "the aggregator's host"}
    if study.masks == "helper" and HELPER_NAME in taken:
        raise DataError(
            f"host = {host!r} is called like the noise helper.",
            hint="Give the aggregator's whole host name.",
            code="same-name",
        )
    for site in active_sites(study):
        check_site(site)
        if (other := taken.get(site.casefold())) is not None:
            raise DataError(
                f"Site {site!r} is called like {other}.",
                hint="Give it a name of its own: capital letters make no difference.",
                code="same-name",
            )
        taken[site.casefold()] = f"site {site!r}"
        found[site] = ("site", site)
    if study.masks == "helper" and len(found) > 1:
        found["helper"] = ("helper", HELPER_NAME)
    found["aggregator"] = ("aggregator", host)
    found["lead"] = ("lead", LEAD_NAME)
    return found


def make_registrar(
    study: Study, out: str | Path, *, host: str, port: int, overwrite: bool = False
) -> Kit:
    """A registrar's kit: the root key, and whom it may be used for.

    Raises
    ------
    DataError, OutputError
    """
    with new_folder(Path(out), overwrite=overwrite) as scratch:
        fill_registrar(study, scratch, host=host, port=port)
    return open_kit(out, role="registrar")


def fill_registrar(study: Study, folder: Path, *, host: str, port: int) -> Kit:
    """The same, into an empty folder."""
    known = parties(study, host)
    check_port(port)
    key = certificates.new_key(certificates.ROOT_BITS)
    root = make_root(study.name, key)
    kit = Kit(folder, "registrar", "registrar", "registrar", host, port, study.name)
    certificates.write_key(folder / ROOT_KEY, key)
    (folder / ROOT_CERTIFICATE).write_bytes(certificates.pem(root))
    (folder / _ISSUED).mkdir(mode=0o700)
    write_json(folder / _PARTIES, {"parties": [list(party) for party in known.values()]})
    write_json(folder / FILE, describe(kit))
    return kit


def approve(
    path: str | Path,
    registrar: str | Path,
    out: str | Path,
    *,
    days: int = PARTY_DAYS,
    renew: bool = False,
    overwrite: bool = False,
) -> Path:
    """The registrar's certificate for a request.

    Parameters
    ----------
    path : path
        The request.
    registrar : path
        The registrar's kit.
    out : path
        The approval to write: a public file, to be sent to the party.
    days : int
        Number of days that the certificate is valid.
    renew : bool
        Whether a party that has a certificate may get another; else nobody can come second under
        a name.

    Returns
    -------
    Path
        The approval.

    Raises
    ------
    DataError, OutputError
    """
    kit = open_kit(registrar, role="registrar")
    target = Path(out)
    if target.exists() and not overwrite:
        raise OutputError(
            f"{target} exists.",
            hint="Choose another name, or use --overwrite.",
            code="output-exists",
        )
    found = read_request(path)
    _check_known(found, kit, str(path))
    if days < 1:
        raise DataError(f"days = {days} is less than 1.", hint="365 is usual.", code="bad-days")
    root = certificates.read_certificate(kit.certificate)
    certificates.check_dates(root, f"{kit.folder}: the root certificate")
    root_key = certificates.read_key(kit.key)
    if not certificates.same_key(root.public_key(), root_key.public_key()):
        raise DataError(
            f"{kit.folder}: the root key is not the root certificate's.",
            hint="Get a complete copy of the registrar's kit.",
            code="other-key",
        )
    issued = kit.folder / _ISSUED / f"{found.name}.crt"
    if issued.exists() and not renew:
        raise DataError(
            f"{found.name!r} already has a certificate.",
            hint="If the party itself requests another one, use --renew.",
            code="already-issued",
        )
    certificate = sign(
        root,
        root_key,
        role=found.role,
        name=found.name,
        org=found.org,
        public_key=found.public_key,
        days=days,
    )
    fields = {
        "format": APPROVAL_FORMAT,
        "project": found.project,
        "role": found.role,
        "name": found.name,
        "org": found.org,
        "host": kit.host,
        "port": kit.port,
        "certificate": certificates.pem(certificate).decode("ascii"),
        "root": certificates.pem(root).decode("ascii"),
    }
    # noted only once the approval is there: a full disk must not use the name up
    write_public(target, fields)
    with replacing(issued) as scratch:
        scratch.write_bytes(certificates.pem(certificate))
    return target


def _check_known(found: Request, kit: Kit, path: str) -> None:
    """Only the study's own parties, and nobody under two roles."""
    if found.project != kit.project:
        raise DataError(
            f"{path} is a request for {found.project!r}, and this registrar's is {kit.project!r}.",
            hint="Send it to the registrar of that study, or ask again with this one's study.",
            code="other-project",
        )
    try:
        known = json.loads((kit.folder / _PARTIES).read_text(encoding="utf-8"))["parties"]
    except (OSError, ValueError, KeyError):
        raise OutputError(
            f"{kit.folder} is an incomplete kit: {_PARTIES} is missing.",
            hint="Get a complete copy of the registrar's kit.",
            code="kit-incomplete",
        ) from None
    if found.role == "lead":
        check_user(found.name)
    elif [found.role, found.name] not in known:
        raise DataError(
            f"{path}: the study has no {found.role} {found.name!r}.",
            hint=f"It has {', '.join(f'{role} {name}' for role, name in known)}.",
            code="not-in-study",
        )
    org = organisation(found.name) if found.role == "site" else found.role
    if found.org != org:
        raise DataError(
            f"{path}: organisation {found.org!r} is not {org!r}.",
            hint="Let the party ask again.",
            code="bad-request",
        )
