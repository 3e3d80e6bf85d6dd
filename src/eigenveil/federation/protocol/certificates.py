"""Certificates of studies: who signed one, and whether it holds.

A signature is of a text that begins with its purpose, so that nothing else a party signs (keys,
envelopes) is one, and names study, session, role and party, so that it serves for no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from eigenveil.errors import EigenveilError, PrivacyError, ProtocolError, number_text
from eigenveil.federation.members import Evidence, Identity
from eigenveil.federation.protocol.terms import Terms, settle
from eigenveil.federation.signed import Document
from eigenveil.federation.study.study import parse_study
from eigenveil.models.certify import check_against_plan, how_far, plan_of
from eigenveil.models.plan import BasePlan
from eigenveil.models.streaming.state import StreamPlan
from eigenveil.privacy.certificate import (
    Certificate,
    RequestedGuarantee,
    Signature,
    Signatures,
    plan_hash,
)
from eigenveil.privacy.guarantee import Guarantee
from eigenveil.privacy.releases import ALONE, ReleaseRecord
from eigenveil.privacy.tree_views import TreeRun
from eigenveil.privacy.views import Federation, with_noise_parts

WHAT_SITES_SIGN = (
    "a site signs that in this session it was queried for these releases and no others, and added "
    "its part of their noise; that the model was made of their sums is the aggregator's word"
)


@dataclass(frozen=True)
class CheckedSignatures:
    """Whose signatures a certificate has; all of them hold."""

    session: str
    aggregator: str
    sites: tuple[str, ...]  # Those of the study that signed, and those that did not
    unsigned: tuple[str, ...]
    # Fingerprint of the registrar whose list of members has their keys; `None` where none was named
    registrar: str | None

    def __str__(self) -> str:
        count = f"{len(self.sites)} of {len(self.sites) + len(self.unsigned)} sites"
        who = f"signed by the aggregator ({self.aggregator}) and {count}"
        who += f" ({', '.join(self.sites)})" if self.sites else ""
        who += f", not by {', '.join(self.unsigned)}" if self.unsigned else ""
        if self.registrar is None:
            return (
                f"{who}; not checked against a registrar: anybody can have made these parties up. "
                "Name its fingerprint: --registrar"
            )
        return f"{who}, all in the federation of the registrar {self.registrar}"


class CertificateText(Document):
    """What a party signs of a certificate."""

    DOMAIN = "certificate 2"
    study: str | None  # Its hash
    session: str
    role: str
    name: str
    certificate: str  # Its digest


def text_of(certificate: Certificate, session: str, role: str, name: str) -> bytes:
    study, digest = certificate.study_hash, certificate.digest
    return CertificateText(
        study=study, session=session, role=role, name=name, certificate=digest
    ).text


def own_signature(
    identity: Identity, certificate: Certificate, session: str, *, aggregator: bool
) -> Signature:
    name, role = identity.name, "aggregator" if aggregator else "site"
    signature = identity.sign(text_of(certificate, session, role, name)).hex()
    return Signature.model_validate({"role": role, "name": name, "signature": signature})


def signatures_of(identity: Identity, session: str, by: tuple[Signature, ...]) -> Signatures:
    """All signatures, with what shows for years whose they are."""
    evidence = identity.members.evidence([each.name for each in by])
    return Signatures(session=session, by=by, members=evidence.model_dump(mode="json"))


def who_signed(certificate: Certificate, registrar: str | None) -> CheckedSignatures | None:
    """Whose signatures a certificate has; ``None`` where nobody's were expected.

    The list of members that it brings is the one that the study ran with: that it has expired
    since, or was followed by others, does not count.
    """
    signatures = certificate.signatures
    if signatures is None:
        if registrar is not None:
            raise _bad("Nobody has signed it")
        return None
    if certificate.study is None:
        raise _bad("It is of no study that parties could have signed")
    expected = parse_study(certificate.study).active
    signed = [each.name for each in signatures.by if each.role == "site"]
    aggregators = [each.name for each in signatures.by if each.role == "aggregator"]
    if strangers := set(signed) - set(expected):
        raise _bad(f"It is signed by {min(strangers)}, which is not a site of its study")
    if len(set(signed)) < len(signed) or len(aggregators) > 1:
        raise _bad("A party has signed it twice")
    if not aggregators:
        raise _bad("The aggregator has not signed it")
    try:
        evidence = Evidence.model_validate(signatures.members)
        evidence.check(registrar or evidence.head.origin)
    except (ProtocolError, ValidationError) as error:
        why = error.message if isinstance(error, ProtocolError) else "It cannot be read."
        raise _bad(f"What shows who its parties are does not hold: {why.rstrip('.')}") from None
    for each in signatures.by:
        text = text_of(certificate, signatures.session, each.role, each.name)
        try:
            key = evidence.key(each.role, each.name)
        except ProtocolError as error:
            raise _bad(error.message.rstrip(".")) from None
        if not key.verify(text, bytes.fromhex(each.signature)):
            raise _bad(f"The signature of {each.role} {each.name} does not hold")
    return CheckedSignatures(
        session=signatures.session,
        aggregator=aggregators[0],
        sites=tuple(name for name in expected if name in signed),
        unsigned=tuple(name for name in expected if name not in signed),
        registrar=registrar,
    )


def check_count(signed: CheckedSignatures | None, signatures: int | None) -> None:
    """Raise unless all sites signed a study between organisations, or as many as were wanted."""
    if signed is None:
        if signatures:
            raise _bad("Nobody has signed it")
        return
    wanted = len(signed.sites) + len(signed.unsigned) if signatures is None else signatures
    if len(signed.sites) < wanted:
        raise PrivacyError(
            "unsigned-result",
            signed=len(signed.sites),
            wanted=wanted,
            unsigned=", ".join(signed.unsigned),
        )


def _bad(what: str) -> PrivacyError:
    return PrivacyError("bad-signature-of-certificate", what=what)


# -- Whether a certificate holds: everything in it against its plan, its study, and its tree.


VALID, NOT_VALID, NOT_CERTIFIED = "VALID", "NOT VALID", "NOT CERTIFIED"


@dataclass(frozen=True)
class Checked:
    """Outcome of checking a certificate; ``signed`` where it has signatures."""

    holds: bool
    word: str
    guarantee: Guarantee | None
    explanation: str
    views: Mapping[str, Guarantee] = field(default_factory=dict)
    sites: Mapping[str, Guarantee] = field(default_factory=dict)
    signed: CheckedSignatures | None = None


def check(
    certificate: Certificate,
    *,
    registrar: str | None = None,
    signatures: int | None = None,
    terms: Terms | None = None,
) -> Checked:
    """Compare a certificate with what its plan must release, and recompute its guarantee.

    The plan, and a federation's study, are rebuilt and must be such that can be run. The releases
    must be those of the plan's schedule, each with the noise and the cost that the plan gives it;
    a run that ended early has the first of them. Signatures must hold, of all sites or of as many
    as ``signatures`` says; ``registrar`` is the fingerprint of the federation that they must be of:
    then there must be some. ``terms`` are of the recorded study, from whoever has settled it.

    What no certificate can show by itself: that the recorded noise was drawn, and that its plan,
    hash and records were not all made anew together.
    """
    try:
        plan = plan_of(certificate)
        _check_run(certificate, plan, terms)
        views = certificate.guarantees()
        guarantee = certificate.guarantee()
        sites = site_guarantees(certificate, terms)
        signed = who_signed(certificate, registrar)
        check_count(signed, signatures)
    except PrivacyError as error:
        return Checked(False, NOT_VALID, None, error.message)
    except ArithmeticError:
        return Checked(False, NOT_VALID, None, "It has numbers that no release can have.")
    word, explanation = _compared(guarantee, certificate.target)
    explanation = how_far(certificate, plan) + explanation
    return Checked(word == VALID, word, guarantee, explanation, views, sites, signed)


def site_guarantees(certificate: Certificate, terms: Terms | None = None) -> dict[str, Guarantee]:
    """What a row of each site that takes part is held to, against the target's adversary.

    Rows that count with a weight move every sum by so much less; none of no study.
    """
    if certificate.study is None:
        return {}
    terms = terms or settle(parse_study(certificate.study))
    weights = {name: terms.weight(name) for name in terms.names}
    found = {}
    for weight in set(weights.values()):
        releases = tuple(r.model_copy(update={"weight": weight}) for r in certificate.releases)
        found[weight] = certificate.model_copy(update={"releases": releases}).guarantee()
    return {name: found[weight] for name, weight in weights.items()}


def _wrong(what: str) -> PrivacyError:
    return PrivacyError("recorded-run-wrong", what=what)


def _check_run(certificate: Certificate, plan: BasePlan, terms: Terms | None) -> None:
    federation, tree = certificate.federation, certificate.tree
    if (federation is None) != (certificate.study is None) or (
        (federation is None) != (certificate.study_hash is None)
    ):
        raise _wrong("A federation and the study that its sites agreed on belong together.")
    if federation is not None:
        if tree is not None:
            raise _wrong("A run is a federation's or a tree's, not both.")
        _check_study(certificate, plan, federation, terms)
    elif tree is not None:
        _check_tree(certificate, plan, tree)
    else:
        if plan.noise_draws != 1:
            raise _wrong(f"One data set draws its noise alone, not {plan.noise_draws} times.")
        if plan.sites:
            raise _wrong(f"One data set has no means of {plan.sites} sites.")
        shared = plan.sharing() if isinstance(plan, StreamPlan) else {}
        check_against_plan(
            certificate, plan, view="outsider", sharing=lambda step: shared.get(step, ALONE)
        )


def _check_study(
    certificate: Certificate, plan: BasePlan, federation: Federation, known: Terms | None
) -> None:
    """The plan is the study's, and the noise was shared as in the study."""
    try:
        terms = known or settle(parse_study(certificate.study or {}))
        wanted = terms.federation(federation.taking_part)
    except (EigenveilError, ValueError) as error:
        raise _wrong(f"The recorded study cannot be run: {error}") from None
    if not terms.hash == certificate.study_hash == plan_hash(certificate.study or {}):
        raise _wrong("The study is not the one whose hash is recorded.")
    if type(plan) is not type(terms.plan):
        raise _wrong("The plan is not of the task of the recorded study.")
    planned = terms.plan.drawn_from(secure=plan.noise_source == "operating system")
    pairs: tuple[tuple[BaseModel, BaseModel], ...] = ((plan, planned), (federation, wanted))
    for held, agreed in pairs:
        for name in type(held).model_fields:
            found, value = getattr(held, name), getattr(agreed, name)
            if found != value:
                raise _wrong(f"{name} = {found!r} is not {value!r}, as in the study.")
    check_against_plan(certificate, plan, view=wanted.requested_view, sharing=terms.sharing)


def _check_tree(certificate: Certificate, plan: BasePlan, tree: TreeRun) -> None:
    """The releases have the noise of the leaves that arrived, of which the plan's make enough."""
    noise_parts = plan.noise_draws
    if not isinstance(plan, StreamPlan) or plan.publish == "continual":
        raise _wrong("The plan is not one of a tree of merges.")
    if not noise_parts <= tree.arrived:
        raise _wrong(f"{tree.arrived} leaves arrived, and {noise_parts} make the noise promised.")
    for record in certificate.releases:
        if record.exposure != 1.0 or record.noise.masks:
            raise _wrong(f"Release {record.name!r} has masks, and a tree has none.")
        wanted = noise_parts if record.pure else tree.arrived
        if record.noise.noise_parts != wanted:
            raise _wrong(
                f"Release {record.name!r} has noise in {record.noise.noise_parts} shares, "
                f"where {wanted} leaves drew it."
            )
    views = ("outsider",) if noise_parts > 1 else ("outsider", "aggregator at level 1")
    if (view := certificate.target.view) not in views:
        raise PrivacyError("no-claim-made", view=view)
    check_against_plan(
        certificate,
        plan,
        view=view,
        sharing=lambda step: plan.sharing(noise_parts=noise_parts)[step],
        records=[with_noise_parts(record, noise_parts) for record in certificate.releases],
    )


def _compared(guarantee: Guarantee, target: RequestedGuarantee) -> tuple[str, str]:
    numbers = (
        f"recomputed epsilon = {guarantee.epsilon:.9g} at delta = "
        f"{number_text(guarantee.delta, 3)}, "
        f"requested epsilon = {target.epsilon:.9g} at delta = {number_text(target.delta, 3)}"
    )
    if guarantee.epsilon > target.epsilon or guarantee.delta > target.delta:
        return NOT_VALID, f"The recorded noise does not give the claim: {numbers}."
    if not guarantee.certified:
        why = "; ".join(guarantee.caveats)
        return (
            NOT_CERTIFIED,
            f"The numbers hold ({numbers}), but the run is not certified: {why}.",
        )
    return VALID, f"The guarantee holds: {numbers}."


# -- The end of a study: its certificate, who signs it, and what a site checks before it signs.


def site_signature(
    identity: Identity, certificate: Certificate, session: str, name: str, signature: str | None
) -> Signature:
    """What a site answered, if it is its signature of the certificate."""
    if signature is None:
        raise ProtocolError("malformed", sender="It", what="signature")
    text = text_of(certificate, session, "site", name)
    identity.verify(text, bytes.fromhex(signature), role="site", name=name)
    return Signature.model_validate({"role": "site", "name": name, "signature": signature})


@dataclass(frozen=True)
class SitePart:
    """What a site knows of a session by itself."""

    terms: Terms
    weight: float  # On each of its rows
    releases: Sequence[ReleaseRecord]  # What its ledger was charged for, in order
    most: int  # The most sites that can be in each of these sums, as far as it was informed
    secure: bool  # Of its noise, of its processor, and of its text files
    dependent: bool
    newlines_in_cells: bool


def check_part(certificate: Certificate, part: SitePart) -> None:
    """Raise where a certificate is not of the study, or of the releases, of a site.

    Its model cannot be checked here: a site sees none of the sums that it is made of.
    """
    terms, study, plan = part.terms, part.terms.study, part.terms.plan
    plan = plan.drawn_from(secure=certificate.noise_source == "operating system")
    charged = [_as_released(record) for record in part.releases]
    wanted = [_as_released(record, part.weight) for record in certificate.releases]
    federation = certificate.federation
    if certificate.study != study.model_dump(mode="json") or certificate.study_hash != terms.hash:
        raise _other("it is of another study")
    if certificate.plan != plan.model_dump(mode="json"):
        raise _other("its plan is not the study's")
    if charged != wanted:
        raise _other("its releases are not those that this site was queried for")
    if federation is None or federation.taking_part > part.most:
        raise _other("more sites take part in it than this site was informed of")
    if not part.secure and certificate.noise_source != "seeded":
        raise _other("it does not say that noise was seeded")
    if part.dependent and not certificate.dependent:
        raise _other("it does not say that rounding depends on a row's neighbours")
    if part.newlines_in_cells and not certificate.newlines_in_cells:
        raise _other("it does not say that all quotes must be closed")
    verdict = check(
        certificate, terms=part.terms
    )  # last: what is checked is known to be of this study
    if verdict.word == NOT_VALID:
        raise _other(f"it does not hold: {verdict.explanation.rstrip('.')}")


def _as_released(record: ReleaseRecord, weight: float | None = None) -> ReleaseRecord:
    """A record but for where the noise came from; at a site's weight."""
    said: dict[str, Any] = {"noise_source": "operating system"}
    return record.model_copy(update=said if weight is None else said | {"weight": weight})


def _other(what: str) -> ProtocolError:
    return ProtocolError("other-certificate", what=what)
