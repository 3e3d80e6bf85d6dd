"""Enrolment: how a party gets its certificate, by a request and an approval in two files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from eigenveil.errors import DataError, OutputError, ProtocolError
from eigenveil.federation.protocol.terms import active_sites
from eigenveil.federation.study.study import Study
from eigenveil.federation.x509_identity import UNREADABLE
from eigenveil.files import replacing
from eigenveil.network import certificates
from eigenveil.network.folders import new_folder
from eigenveil.network.kit import (
    FILE,
    Kit,
    describe,
    json_text,
    open_kit,
    read_kit_file,
    write_config,
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
    described,
    organisation,
)
from eigenveil.network.together import write_together
from eigenveil.network.x509_members import KnownMembers

REQUEST_FORMAT = "eigenveil-request-1"
APPROVAL_FORMAT = "eigenveil-approval-1"
_MOST_BYTES = 100_000


@dataclass(frozen=True)
class Request:
    """What a party requests from the registrar.

    Attributes
    ----------
    signs : bool
        Whether the party's messages are to be signed with this key: not with that of FLARE's
        connection where another is in a token.
    """

    project: str
    role: Role
    name: str
    org: str
    csr: x509.CertificateSigningRequest
    signs: bool

    @property
    def public_key(self) -> rsa.RSAPublicKey:
        """The key to be certified."""
        key = self.csr.public_key()
        assert isinstance(key, rsa.RSAPublicKey)
        return key


def read_request(path: str | Path) -> Request:
    """A request from its file, checked to be of the key that it names.

    Raises
    ------
    DataError, OutputError
    """
    fields = read_fields(Path(path), REQUEST_FORMAT, "a request")
    try:
        csr = x509.load_pem_x509_csr(fields["csr"].encode("ascii"))
        named = {name: fields[name] for name in ("project", "role", "name", "org", "signs")}
        found = Request(csr=csr, **named)
        whole = csr.is_signature_valid and isinstance(csr.public_key(), rsa.RSAPublicKey)
    except (KeyError, AttributeError, *UNREADABLE):
        whole = False
    if (
        not whole
        or not isinstance(found.signs, bool)
        or certificates.common_name(csr) != found.name
        or certificates.organisation_name(csr) != found.org
        or found.public_key.key_size < certificates.PARTY_BITS
    ):
        raise DataError(
            f"{path} is not a complete request.",
            hint="Let the party send it again, as 'eigenveil flare request' wrote it.",
            code="bad-request",
        )
    return found


def read_fields(path: Path, form: str, what: str) -> dict[str, Any]:
    """What is in such a file.

    Raises
    ------
    DataError
        When it is something else, or holds a private key.
    OutputError
        When it cannot be read.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError
        text = path.read_text(encoding="utf-8")
        fields = json.loads(text)
    except OSError as problem:
        raise OutputError(
            f"{path} cannot be read: {problem.strerror or problem}.",
            hint="Check the path.",
            code="cannot-read",
        ) from None
    except (ValueError, RecursionError):
        fields, text = None, ""
    if not isinstance(fields, dict) or fields.get("format") != form:
        raise DataError(
            f"{path} is not {what}.",
            hint="A request is what 'eigenveil flare request' writes, and an approval what "
            "'eigenveil flare approve' does.",
            code="bad-file",
        )
    if "PRIVATE KEY" in text:
        raise DataError(
            f"{path} holds a private key, which must never leave its kit.",
            hint="That key is known now: let the party ask again with a new one.",
            code="key-sent",
        )
    return fields


def write_public(path: Path, fields: Mapping[str, Any]) -> None:
    """Write such a file, whole or not at all, for everybody to read."""
    with replacing(path) as scratch:
        scratch.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
        scratch.chmod(0o644)  # made to be sent


# -- How a party gets its certificate: it requests one, the registrar approves, it packages its kit.
#
# The party's key is made by the party and never leaves its kit. What travels are two public files:
# the request, and the approval with the certificate.


def request_name(role: Role, name: str) -> str:
    """What a party's request is called: a registrar gets those of all parties."""
    return f"{name if role == 'site' else role}-request.json"


def request(
    study: Study,
    out: str | Path,
    *,
    role: Role,
    name: str | None = None,
    renew: bool = False,
    new_key: bool = False,
    overwrite: bool = False,
) -> Path:
    """Begin a kit: make its key, and the request to be sent to the registrar.

    Parameters
    ----------
    out : path
        The kit's folder; :func:`package` completes it.
    role : Role
    name : str, optional
        Of a site its name in the study, of the aggregator its host; of a lead and a helper there
        is a usual one.
    renew : bool
        Whether to ask for a new certificate of the key that is there: the kit stays as it is.
    new_key : bool
        With ``renew``: for a new key, which waits in the kit until :func:`package` changes both
        together. Until then the kit works with the key that it has.

    Returns
    -------
    Path
        The request, a public file in the kit.

    Raises
    ------
    DataError, OutputError
    """
    chosen = _name_of(study, role, name)
    if new_key and not renew:
        raise DataError(
            "A new key is asked for, and not a renewal.",
            hint="A kit that is begun has a new key anyway; give --renew, too, for one that is.",
            code="not-a-renewal",
        )
    if renew:
        kit = open_kit(out, role=role)
        if (kit.project, kit.name) != (study.name, chosen):
            raise DataError(
                f"{out} is the kit of {kit.name!r} in {kit.project!r}, not of {chosen!r} in "
                f"{study.name!r}.",
                hint="Give the kit whose certificate is to be renewed.",
                code="other-kit",
            )
        if new_key:
            certificates.write_key(kit.next_key, certificates.new_key(certificates.PARTY_BITS))
        _query(kit, kit.next_key if new_key else kit.key)
        return kit.folder / request_name(role, chosen)
    with new_folder(Path(out), overwrite=overwrite) as scratch:
        begin(study.name, scratch, role=role, name=chosen)
    return Path(out) / request_name(role, chosen)


def begin(project: str, folder: Path, *, role: Role, name: str) -> None:
    """The same, into an empty folder."""
    org = organisation(name) if role == "site" else role
    kit = Kit(folder, role, name, org, "", 0, project)
    kit.startup.mkdir(mode=0o700)
    certificates.write_key(kit.key, certificates.new_key(certificates.PARTY_BITS))
    write_json(kit.folder / FILE, describe(kit))
    _query(kit, kit.key)


def _query(kit: Kit, file: Path) -> None:
    """Write the request of a key in the kit."""
    fields = request_fields(kit, certificates.read_key(file), signs=not kit.signing_file.exists())
    write_public(kit.folder / request_name(kit.role, kit.name), fields)


def request_fields(kit: Kit, key: rsa.RSAPrivateKey, *, signs: bool) -> dict[str, Any]:
    """A request for a certificate of this key; ``signs`` as in :class:`Request`."""
    return {
        "format": REQUEST_FORMAT,
        "project": kit.project,
        "role": kit.role,
        "name": kit.name,
        "org": kit.org,
        "signs": signs,
        "csr": certificates.new_request(key, kit.name, kit.org),
    }


def package(folder: str | Path, approval: str | Path, *, fingerprint: str) -> Kit:
    """Complete a kit with what the registrar approved.

    Parameters
    ----------
    folder : path
        The kit that :func:`request` began.
    approval : path
    fingerprint : str
        Of the federation's root certificate, learnt from the registrar by another way than the
        approval: who could exchange that file could otherwise put the party into a federation of
        their own.

    Raises
    ------
    DataError, OutputError, ProtocolError
        The kit is then as it was, and this can be done again.
    """
    kit = read_kit_file(Path(folder))
    if kit.role == "registrar":
        raise DataError(
            f"{folder} is a registrar's kit; there is nothing to package.",
            hint="Give the kit that 'eigenveil flare request' began.",
            code="other-role",
        )
    fields = read_fields(Path(approval), APPROVAL_FORMAT, "an approval")
    try:
        texts = [fields[name].encode("ascii") for name in ("certificate", "root")]
        members = fields["members"].encode("ascii")
        host, port = check_host(fields["host"]), check_port(fields["port"])
        named = {name: str(fields[name]) for name in ("project", "role", "name", "org")}
    except (KeyError, AttributeError, TypeError, UnicodeError):
        raise _broken_approval(approval) from None
    certificate, root = (certificates.parse_certificate(text, str(approval)) for text in texts)
    if not certificates.same_fingerprint(certificates.fingerprint(root), fingerprint):
        raise DataError(
            f"{approval} is of the root certificate {certificates.fingerprint(root)}, not of "
            f"{fingerprint}.",
            hint="Ask the registrar, by telephone, which it is; do not use this approval before.",
            code="other-fingerprint",
        )
    for name, value in named.items():
        if value != getattr(kit, name):
            raise DataError(
                f"{approval} is for {name} {value!r}, and the kit for {getattr(kit, name)!r}.",
                hint="Take the approval of this kit's own request.",
                code="other-approval",
            )
    if kit.role == "aggregator" and host != kit.name:
        raise _broken_approval(approval)
    if kit.root_certificate.exists() and root != certificates.read_certificate(
        kit.root_certificate
    ):
        raise DataError(
            f"{approval} is of another federation than the kit {folder}.",
            hint="Make another kit for another federation: 'eigenveil flare request'.",
            code="foreign-certificate",
        )
    # a new key, if there is one, comes with its certificate
    waits = kit.next_key.exists() and certificates.same_key(
        certificate.public_key(), certificates.read_key(kit.next_key).public_key()
    )
    key = kit.next_key if waits else kit.key
    certificates.check_certificate(
        certificate,
        root,
        origin=str(approval),
        name=kit.name,
        role=kit.role,
        key=certificates.read_key(key),
    )
    done = replace(kit, host=host, port=port)
    write_config(done)  # as every start does: folders, and what follows from the kit's own file
    changes = {
        done.folder / FILE: json_text(describe(done)),
        done.root_certificate: texts[1],
        done.certificate: texts[0],
    }
    if waits:
        changes[done.key] = key.read_bytes()
    changes |= newest_list(done, root, members)
    write_together(done.folder, changes)
    done.next_key.unlink(missing_ok=True)
    (done.folder / request_name(done.role, done.name)).unlink(missing_ok=True)
    return open_kit(folder)


def newest_list(kit: Kit, root: x509.Certificate, data: bytes) -> dict[Path, bytes]:
    """A list of members that came with an approval, where it is newer than the kit's.

    Raises
    ------
    ProtocolError
        ``bad-members`` or ``other-members``.
    """
    try:
        newer = KnownMembers(kit.members, root).is_newer(data)
    except ProtocolError as error:
        if error.code != "older-members":
            raise
        newer = False
    return {kit.members: data} if newer else {}


def _name_of(study: Study, role: Role, name: str | None) -> str:
    """The name in a party's request."""
    if role == "registrar":
        raise DataError(
            "A registrar does not request a certificate.",
            hint="'eigenveil flare provision --registrar-only' makes its kit.",
            code="other-role",
        )
    if role == "lead":
        return check_user(name or LEAD_NAME)
    if role == "helper":
        if study.masks != "helper":
            raise DataError(
                f"Study {study.name} has no noise helper (masks = {study.masks!r}).",
                hint="Only studies with masks = 'helper' have a helper.",
                code="no-helper",
            )
        return HELPER_NAME
    if not name:
        what = "its host" if role == "aggregator" else "its name in the study"
        raise DataError(
            f"{described(role).capitalize()} requests a certificate under {what}: no name is "
            "given.",
            hint="Give --name.",
            code="no-name",
        )
    if role == "aggregator":
        return check_host(name)
    check_site(name)
    if name not in active_sites(study):
        raise DataError(
            f"Site {name!r} is not in study {study.name}.",
            hint=f"Its sites are {', '.join(active_sites(study))}.",
            code="not-in-study",
        )
    return name


def _broken_approval(path: str | Path) -> DataError:
    return DataError(
        f"{path} is not a complete approval.",
        hint="Let the registrar send it again.",
        code="bad-approval",
    )
