"""The registrar: who holds the root key, and certifies the keys of a study's parties."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from eigenveil.errors import DataError, OutputError
from eigenveil.federation.protocol.terms import active_sites
from eigenveil.federation.study.study import Study
from eigenveil.federation.x509_identity import CertifiedRole, key_digest
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
from eigenveil.network.x509_members import (
    KnownMembers,
    Member,
    MemberList,
    Revoked,
    SignedMembers,
    SigningKey,
    federation_of,
    sign_members,
    write_members,
)

_ISSUED = "issued"


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
    first = MemberList(
        project=study.name,
        federation=federation_of(root),
        number=1,
        time=datetime.now(UTC),
        parties=tuple(member_of(role, name) for role, name in known.values()),
    )
    write_members(kit.members, sign_members(first, key))
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
    root_key = _root_key(kit, root)
    issued = kit.folder / _ISSUED / f"{found.name}.crt"
    if issued.exists() and not renew:
        raise DataError(
            f"{found.name!r} already has a certificate.",
            hint="If the party itself requests another one, use --renew.",
            code="already-issued",
        )
    digest = key_digest(found.public_key)
    if any(each.key == digest for each in _signed_members(kit).members.revoked):
        raise DataError(
            f"{path}: the key was revoked.",
            hint="Whoever stole it would have the new certificate as well: let the party ask with "
            "a new key ('eigenveil flare request --renew --new-key').",
            code="revoked-key",
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
    with (kit.folder / _ISSUED / f"{found.name}.serials").open("a", encoding="ascii") as file:
        file.write(f"{certificate.serial_number:x} {digest}\n")  # before anybody can have it
    members = _pinned(kit, found, digest)
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
        "members": members.line().decode("ascii"),
    }
    # noted only once the approval is there: a full disk must not use the name up
    write_public(target, fields)
    with replacing(issued) as scratch:
        scratch.write_bytes(certificates.pem(certificate))
    return target


def _pinned(kit: Kit, found: Request, digest: str) -> SignedMembers:
    """The list in which a party signs with the key of its request; a new one where it is another.

    It is in the registrar's kit before anybody can have it: else two could have the same number.
    """
    signed = _signed_members(kit)
    before, who = signed.members, member_of(found.role, found.name)
    if not found.signs or before.key_of(who.role, who.name) == digest:
        return signed
    return _change(kit, before.next(keys=(*_keys_but(before, who), _signing_key(who, digest))))


def _signing_key(who: Member, digest: str) -> SigningKey:
    return SigningKey(role=who.role, name=who.name, key=digest)


def _keys_but(listed: MemberList, who: Member) -> tuple[SigningKey, ...]:
    """The keys of all parties but one."""
    return tuple(each for each in listed.keys if (each.role, each.name) != (who.role, who.name))


def _check_known(found: Request, kit: Kit, path: str) -> None:
    """Only the study's own parties, and nobody under two roles."""
    if found.project != kit.project:
        raise DataError(
            f"{path} is a request for {found.project!r}, and this registrar's is {kit.project!r}.",
            hint="Send it to the registrar of that study, or ask again with this one's study.",
            code="other-project",
        )
    listed = _signed_members(kit).members
    wanted = member_of(found.role, found.name)
    if wanted in listed.removed:
        raise DataError(
            f"{path}: {found.role} {found.name!r} was removed from the federation.",
            hint="'eigenveil flare add-party' lets them in again.",
            code="not-in-study",
        )
    if found.role == "lead":
        check_user(found.name)
    elif wanted not in listed.parties:
        known = ", ".join(f"{each.role} {each.name}" for each in listed.parties)
        raise DataError(
            f"{path}: the federation has no {found.role} {found.name!r}.",
            hint=f"It has {known}; 'eigenveil flare add-party' adds one.",
            code="not-in-study",
        )
    org = organisation(found.name) if found.role == "site" else found.role
    if found.org != org:
        raise DataError(
            f"{path}: organisation {found.org!r} is not {org!r}.",
            hint="Let the party ask again.",
            code="bad-request",
        )


# -- who is in: the list changes, nobody's kit does


def member_of(role: Role, name: str) -> Member:
    """A party as the list of members has it."""
    return Member(role=cast("CertifiedRole", role), name=name)


def add_party(registrar: str | Path, *, role: Role, name: str) -> SignedMembers:
    """Let a party in, so that its request can be approved; the next list.

    Raises
    ------
    DataError
        ``same-name``, or when nobody can be called so.
    OutputError
    """
    if role == "site":
        check_site(name)
    elif role == "lead":
        check_user(name)
    elif role == "helper":
        name = HELPER_NAME
    else:
        raise DataError(
            f"A federation has one {role}.",
            hint="Add a site, a helper or a lead.",
            code="other-role",
        )
    kit = open_kit(registrar, role="registrar")
    before, new = _signed_members(kit).members, member_of(role, name)
    if any(each.name.casefold() == name.casefold() for each in before.parties):
        raise DataError(
            f"{name!r} is in the list of members already.",
            hint="Give it a name of its own: capital letters make no difference.",
            code="same-name",
        )
    return _change(
        kit,
        before.next(
            parties=(*before.parties, new),
            removed=tuple(each for each in before.removed if each != new),
        ),
    )


def remove_party(registrar: str | Path, name: str) -> SignedMembers:
    """Put a party out, and revoke all certificates it ever got; the next list.

    Raises
    ------
    DataError
        ``not-in-study``, ``other-role``.
    OutputError
    """
    kit = open_kit(registrar, role="registrar")
    before = _signed_members(kit).members
    gone = _called(kit, before, name)
    if gone.role == "aggregator":
        raise DataError(
            "A federation without its aggregator cannot run.",
            hint="If its key was stolen, revoke its certificate and give it another one.",
            code="other-role",
        )
    return _change(
        kit,
        before.next(
            parties=tuple(each for each in before.parties if each != gone),
            removed=(*before.removed, gone),
            revoked=_with_certificates_of(kit, before, gone),
            keys=_keys_but(before, gone),
        ),
    )


def revoke(registrar: str | Path, name: str) -> SignedMembers:
    """Revoke all certificates that a party got so far, as after its key was lost; the next list.

    It stays in, and may ask for another certificate, of a new key: none is made for a key that
    was revoked.

    Raises
    ------
    DataError, OutputError
    """
    kit = open_kit(registrar, role="registrar")
    before = _signed_members(kit).members
    who = _called(kit, before, name)
    return _change(
        kit,
        before.next(revoked=_with_certificates_of(kit, before, who), keys=_keys_but(before, who)),
    )


def _change(kit: Kit, following: MemberList) -> SignedMembers:
    signed = sign_members(following, _root_key(kit, certificates.read_certificate(kit.certificate)))
    write_members(kit.members, signed)
    return signed


def _called(kit: Kit, listed: MemberList, name: str) -> Member:
    known = [each for each in listed.parties if each.name == name]
    if not known and (kit.folder / _ISSUED / f"{name}.serials").exists():
        known = [member_of("lead", name)]  # leads are certified without being listed before
    if not known:
        raise DataError(
            f"{name!r} is not in the list of members.",
            hint=f"It names {', '.join(each.name for each in listed.parties)}.",
            code="not-in-study",
        )
    return known[0]


def _with_certificates_of(kit: Kit, listed: MemberList, who: Member) -> tuple[Revoked, ...]:
    """What is revoked, and all that was issued to a party."""
    try:
        text = (kit.folder / _ISSUED / f"{who.name}.serials").read_text(encoding="ascii")
    except FileNotFoundError:
        text = ""
    known = {each.serial for each in listed.revoked}
    lines = dict(line.split() for line in text.splitlines())
    return (
        *listed.revoked,
        *(
            Revoked(role=who.role, name=who.name, serial=serial, key=key)
            for serial, key in lines.items()
            if serial not in known
        ),
    )


def _signed_members(kit: Kit) -> SignedMembers:
    found = KnownMembers(kit.members, certificates.read_certificate(kit.certificate)).signed()
    if found is None:
        raise OutputError(
            f"{kit.folder} is an incomplete kit: {kit.members.name} is missing.",
            hint="Get a complete copy of the registrar's kit.",
            code="kit-incomplete",
        )
    return found


def _root_key(kit: Kit, root: x509.Certificate) -> rsa.RSAPrivateKey:
    key = certificates.read_key(kit.key)
    if not certificates.same_key(root.public_key(), key.public_key()):
        raise DataError(
            f"{kit.folder}: the root key is not the root certificate's.",
            hint="Get a complete copy of the registrar's kit.",
            code="other-key",
        )
    return key
