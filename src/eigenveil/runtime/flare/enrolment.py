"""How a party comes by its certificate: it asks, the registrar approves, it packages its kit.

The party's key is made by the party and never leaves its kit. What travels are two public files:
the request, and the approval with the certificate.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eigenveil.errors import DataError
from eigenveil.federation.study import Study
from eigenveil.federation.sums import active_sites
from eigenveil.files import replacing
from eigenveil.runtime.flare import certificates
from eigenveil.runtime.flare.folders import new_folder
from eigenveil.runtime.flare.kit import (
    FILE,
    Kit,
    describe,
    furnish,
    open_kit,
    read_kit_file,
    write_json,
)
from eigenveil.runtime.flare.papers import (
    APPROVAL_FORMAT,
    REQUEST_FORMAT,
    read_fields,
    write_public,
)
from eigenveil.runtime.flare.roles import (
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

REQUEST = "request.json"


def request(
    study: Study,
    out: str | Path,
    *,
    role: Role,
    name: str | None = None,
    renew: bool = False,
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

    Returns
    -------
    Path
        The request, a public file in the kit.

    Raises
    ------
    DataError, OutputError
    """
    chosen = _name_of(study, role, name)
    if renew:
        kit = open_kit(out, role=role)
        if (kit.project, kit.name) != (study.name, chosen):
            raise DataError(
                f"{out} is the kit of {kit.name!r} in {kit.project!r}, not of {chosen!r} in "
                f"{study.name!r}.",
                hint="Give the kit whose certificate is to be renewed.",
                code="other-kit",
            )
        _ask(kit)
        return kit.folder / REQUEST
    with new_folder(Path(out), overwrite=overwrite) as scratch:
        begin(study.name, scratch, role=role, name=chosen)
    return Path(out) / REQUEST


def begin(project: str, folder: Path, *, role: Role, name: str) -> None:
    """The same, into an empty folder."""
    org = organisation(name) if role == "site" else role
    kit = Kit(folder, role, name, org, "", 0, project)
    kit.startup.mkdir(mode=0o700)
    certificates.write_key(kit.key, certificates.new_key(certificates.PARTY_BITS))
    write_json(kit.folder / FILE, describe(kit))
    _ask(kit)


def _ask(kit: Kit) -> None:
    """Write the request of the kit's key."""
    fields = {
        "format": REQUEST_FORMAT,
        "project": kit.project,
        "role": kit.role,
        "name": kit.name,
        "org": kit.org,
        "csr": certificates.new_request(certificates.read_key(kit.key), kit.name, kit.org),
    }
    write_public(kit.folder / REQUEST, fields)


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
    DataError, OutputError
        The kit is not complete then, and this can be done again.
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
        host, port = check_host(fields["host"]), check_port(fields["port"])
        said = {name: str(fields[name]) for name in ("project", "role", "name", "org")}
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
    for name, value in said.items():
        if value != getattr(kit, name):
            raise DataError(
                f"{approval} is for {name} {value!r}, and the kit for {getattr(kit, name)!r}.",
                hint="Take the approval of this kit's own request.",
                code="other-approval",
            )
    if kit.role == "aggregator" and host != kit.name:
        raise _broken_approval(approval)
    certificates.check_certificate(
        certificate,
        root,
        origin=str(approval),
        name=kit.name,
        role=kit.role,
        key=certificates.read_key(kit.key),
    )
    done = replace(kit, host=host, port=port)
    furnish(done)
    write_json(done.folder / FILE, describe(done))
    # the certificate comes last: without it the kit is not complete, and this can be done again
    for path, text in ((done.root_certificate, texts[1]), (done.certificate, texts[0])):
        with replacing(path) as scratch:
            scratch.write_bytes(text)
    (done.folder / REQUEST).unlink(missing_ok=True)
    return open_kit(folder)


def _name_of(study: Study, role: Role, name: str | None) -> str:
    """The name under which a party asks."""
    if role == "registrar":
        raise DataError(
            "A registrar asks nobody.",
            hint="'eigenveil flare provision --registrar-only' makes its kit.",
            code="other-role",
        )
    if role == "lead":
        return check_user(name or LEAD_NAME)
    if role == "helper":
        if study.masks != "helper":
            raise DataError(
                f"Study {study.name} has no noise helper (masks = {study.masks!r}).",
                hint="Only studies with masks = 'helper' have one.",
                code="no-helper",
            )
        return HELPER_NAME
    if not name:
        what = "its host" if role == "aggregator" else "its name in the study"
        raise DataError(
            f"{described(role).capitalize()} asks under {what}: no name is given.",
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
        f"{path} is not a whole approval.",
        hint="Let the registrar send it again.",
        code="bad-approval",
    )
