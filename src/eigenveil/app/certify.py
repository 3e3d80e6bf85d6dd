"""Whether a result's guarantee holds, recomputed from its certificate alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eigenveil.app.checklist import checklist
from eigenveil.app.parts import Part, strongly, whole
from eigenveil.app.results import (
    CERTIFICATE,
    MODEL,
    assumptions,
    load_model,
    site_parts,
    view_parts,
)
from eigenveil.errors import DataError, EigenveilError, short_name
from eigenveil.federation.members import plain_fingerprint
from eigenveil.federation.protocol.certificates import NOT_VALID, WHAT_SITES_SIGN, Checked, check
from eigenveil.network.folder import open_party
from eigenveil.privacy.certificate import WHAT_IT_CANNOT_SHOW, Certificate, read_certificate
from eigenveil.privacy.certificate import proof_titles as proof_titles
from eigenveil.privacy.certificate import read_proof as read_proof


@dataclass(frozen=True)
class CheckedCertificate:
    certificate: Certificate
    verdict: Checked

    def as_json(self) -> dict[str, Any]:
        verdict = self.verdict
        return {
            "holds": verdict.holds,
            "explanation": verdict.explanation,
            "guarantee": None if verdict.guarantee is None else verdict.guarantee.as_dict(),
            "views": {name: view.as_dict() for name, view in verdict.views.items()},
            "sites": {name: each.as_dict() for name, each in verdict.sites.items()},
            "proofs": list(self.certificate.proofs),
            "signed": None if verdict.signed is None else asdict(verdict.signed),
            "checklist": None
            if verdict.guarantee is None
            else [asdict(each) for each in checklist(self.certificate, verdict)],
        }

    def parts(self) -> Iterator[Part]:
        verdict, certificate = self.verdict, self.certificate
        yield strongly(verdict.word)
        yield verdict.explanation
        if verdict.guarantee is not None:
            yield f"claim: {verdict.guarantee}"
            yield from assumptions(verdict.guarantee)
        if len(verdict.views) > 1:
            yield from view_parts(verdict.views)
        yield from site_parts(verdict.sites)
        yield f"releases: {', '.join(short_name(r.name) for r in certificate.releases)}"
        names = ", ".join(certificate.proof_names)
        yield whole(f"proofs: {names} ('eigenveil proofs NAME' prints one)")
        if verdict.signed is not None:
            yield whole(f"signatures: {verdict.signed}.")
            yield f"note: {WHAT_SITES_SIGN}."
        yield f"note: {WHAT_IT_CANNOT_SHOW}."


def certify(
    result: Path, *, registrar: str | None = None, signatures: int | None = None
) -> CheckedCertificate:
    """Check the certificate of a result's folder, or of a file, and the model beside it.

    ``registrar`` is the fingerprint of a federation's registrar, or a party's folder, which has it.
    """
    if result.suffix == ".npz" and not result.is_dir():
        raise DataError("model-as-certificate", path=result, folder=result.parent)
    path = result / CERTIFICATE if result.is_dir() or not result.suffix else result
    certificate = read_certificate(path)
    verdict = check(certificate, registrar=_fingerprint(registrar), signatures=signatures)
    beside = path.parent / MODEL
    # a played tree writes no model
    if beside.exists() or (result.is_dir() and certificate.tree is None):
        problem = other_model(beside, certificate)
        if problem is not None:
            verdict = Checked(False, NOT_VALID, None, problem)
    return CheckedCertificate(certificate, verdict)


def _fingerprint(registrar: str | None) -> str | None:
    if registrar is None:
        return None
    folder = Path(registrar)
    return open_party(folder).origin if folder.is_dir() else plain_fingerprint(registrar)


def other_model(model: Path, certificate: Certificate) -> str | None:
    """Why a certificate is not that of the model beside it; ``None`` where it is."""
    try:
        inside = load_model(model).certificate_
    except EigenveilError as error:
        return str(error)
    if inside != certificate:
        return f"{CERTIFICATE} is not the certificate that {model} was saved with."
    return None
