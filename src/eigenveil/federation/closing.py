"""The end of a study: its certificate, who signs it, and what a site looks at before it does."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from eigenveil.errors import ProtocolError
from eigenveil.federation import bodies
from eigenveil.federation.asking import SMALL, Asking
from eigenveil.federation.certify import NOT_TRUE, check
from eigenveil.federation.identity import Identity
from eigenveil.federation.messages import Message
from eigenveil.federation.signatures import own_signature, text_of
from eigenveil.federation.sums import Terms
from eigenveil.federation.transport import Call, Replies
from eigenveil.privacy.certificate import Certificate, Signature, Signatures
from eigenveil.privacy.releases import ReleaseRecord


def signed_by_all(
    certificate: Certificate, identity: Identity, calls: Asking, names: Sequence[str]
) -> Generator[Call, Replies, Certificate]:
    """The certificate, signed by the aggregator and by every site that is there and agrees with it.

    Who does not sign is missing from the calls' answers, and the study goes on without it.
    """
    session, found = calls.context.session, dict[str, Signature]()

    def take(name: str, reply: Message) -> None:
        proof = reply.read(bodies.SignReply).proof
        text = text_of(certificate, session, "site", name)
        signature = bytes.fromhex(proof.signature)
        identity.verify(text, signature, proof.certificate, role="site", name=name)
        found[name] = Signature(role="site", name=name, **proof.fields())

    before = dict(calls.missing)
    request = calls.same("sign", bodies.SignRequest(certificate=certificate))
    yield from calls.ask("sign", names, request, take, SMALL)
    unsigned = {
        name: f"it did not sign the certificate: {why}" for name, why in calls.missing.items()
    }
    calls.missing = unsigned | before
    own = own_signature(identity, certificate, session, aggregator=True)
    by = (own, *(found[name] for name in names if name in found))
    signatures = Signatures(session=session, by=by)
    return certificate.model_copy(update={"signatures": signatures})


@dataclass(frozen=True)
class Part:
    """What a site knows of a session by itself.

    Attributes
    ----------
    terms : Terms
    weight : float
        On each of its rows.
    releases : sequence of ReleaseRecord
        What its ledger was charged for, in order.
    most : int
        The most sites that can be in each of these sums, as far as it was told.
    secure, dependent : bool
        Of its noise, and of its processor.
    """

    terms: Terms
    weight: float
    releases: Sequence[ReleaseRecord]
    most: int
    secure: bool
    dependent: bool


def check_part(certificate: Certificate, part: Part) -> None:
    """Raise where a certificate is not of the study, or of the releases, of a site.

    Its model cannot be checked here: a site sees none of the sums that it is made of.

    Raises
    ------
    ProtocolError
        ``other-certificate``, saying what is other.
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
        raise _other("its releases are not those that this site was asked for")
    if federation is None or federation.taking_part > part.most:
        raise _other("more sites take part in it than this site was told of")
    if not part.secure and certificate.noise_source != "seeded":
        raise _other("it does not say that noise was seeded")
    if part.dependent and not certificate.dependent:
        raise _other("it does not say that rounding depends on a row's neighbours")
    verdict = check(
        certificate, terms=part.terms
    )  # last: what is checked is known to be of this study
    if verdict.word == NOT_TRUE:
        raise _other(f"it does not hold: {verdict.explanation.rstrip('.')}")


def _as_released(record: ReleaseRecord, weight: float | None = None) -> ReleaseRecord:
    """A record but for where the noise came from; at a site's weight."""
    said: dict[str, Any] = {"noise_source": "operating system"}
    return record.model_copy(update=said if weight is None else said | {"weight": weight})


def _other(what: str) -> ProtocolError:
    return ProtocolError(
        f"The certificate was not signed: {what}.",
        hint="The aggregator shows what did not happen here; ask its owner.",
        code="other-certificate",
    )
