"""Whether a certificate holds: everything in it against its plan, its study, and its tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography import x509
from pydantic import BaseModel

from eigenveil.errors import EigenveilError, PrivacyError
from eigenveil.estimators.certify import check_against_plan, how_far, plan_of
from eigenveil.estimators.plans import BasePlan
from eigenveil.estimators.stream_plan import StreamPlan
from eigenveil.federation.signatures import Signed, who_signed
from eigenveil.federation.study import parse_study
from eigenveil.federation.sums import Terms, settle
from eigenveil.privacy.certificate import Certificate, Claim
from eigenveil.privacy.guarantee import Guarantee
from eigenveil.privacy.releases import Sharing
from eigenveil.privacy.tree_views import TreeRun
from eigenveil.privacy.views import Federation, with_shares

NOT_TRUE = "DOES NOT HOLD"


@dataclass(frozen=True)
class Verdict:
    """Outcome of checking a certificate; ``signed`` where it has signatures."""

    holds: bool
    word: str
    guarantee: Guarantee | None
    explanation: str
    views: Mapping[str, Guarantee] = field(default_factory=dict)
    signed: Signed | None = None


def check(
    certificate: Certificate,
    *,
    root: x509.Certificate | None = None,
    terms: Terms | None = None,
) -> Verdict:
    """Compare a certificate with what its plan must release, and recompute its guarantee.

    The plan, and a federation's study, are rebuilt and must be such that can be run. The releases
    must be those of the plan's schedule, each with the noise and the cost that the plan gives it;
    a run that ended early has the first of them. Signatures must hold, and be under ``root``, the
    authority of a federation, where one is given: then there must be some. ``terms`` are of the
    recorded study, from whoever has settled it already.

    What no certificate can show by itself: that the recorded noise was drawn, and that its plan,
    hash and records were not all made anew together.
    """
    try:
        plan = plan_of(certificate)
        _check_run(certificate, plan, terms)
        views = certificate.guarantees()
        guarantee = certificate.guarantee()
        signed = who_signed(certificate, root)
    except PrivacyError as error:
        return Verdict(False, NOT_TRUE, None, error.message)
    except ArithmeticError:
        return Verdict(False, NOT_TRUE, None, "It has numbers that no release can have.")
    word, explanation = _compared(guarantee, certificate.wish)
    explanation = how_far(certificate, plan) + explanation
    return Verdict(word == "HOLDS", word, guarantee, explanation, views, signed)


def _check_run(certificate: Certificate, plan: BasePlan, terms: Terms | None) -> None:
    federation, tree = certificate.federation, certificate.tree
    if (federation is None) != (certificate.study is None) or (
        (federation is None) != (certificate.study_hash is None)
    ):
        raise PrivacyError("A federation and the study that its sites agreed on belong together.")
    if federation is not None:
        if tree is not None:
            raise PrivacyError("A run is a federation's or a tree's, not both.")
        _check_study(certificate, plan, federation, terms)
    elif tree is not None:
        _check_tree(certificate, plan, tree)
    else:
        if plan.noise_draws != 1:
            raise PrivacyError(f"One data set draws its noise alone, not {plan.noise_draws} times.")
        factor = plan.factor if isinstance(plan, StreamPlan) else None
        check_against_plan(
            certificate, plan, view="outsider", sharing=lambda _: Sharing(stream=factor)
        )


def _check_study(
    certificate: Certificate, plan: BasePlan, federation: Federation, known: Terms | None
) -> None:
    """The plan is the study's, and the noise was shared as the study says."""
    try:
        terms = known or settle(parse_study(certificate.study or {}))
        terms = terms.counting(plan.rows)
        wanted = terms.federation(federation.taking_part)
    except (EigenveilError, ValueError) as error:
        raise PrivacyError(f"The recorded study cannot be run: {error}") from None
    if terms.hash != certificate.study_hash:
        raise PrivacyError("The study is not the one whose hash is recorded.")
    if type(plan) is not type(terms.plan):
        raise PrivacyError("The plan is not of the task of the recorded study.")
    planned = terms.plan.drawn_from(secure=plan.noise_source == "operating system")
    pairs: tuple[tuple[BaseModel, BaseModel], ...] = ((plan, planned), (federation, wanted))
    for held, agreed in pairs:
        for name in type(held).model_fields:
            found, value = getattr(held, name), getattr(agreed, name)
            if found != value:
                raise PrivacyError(f"{name} = {found!r} is not {value!r}, what the study says.")
    check_against_plan(certificate, plan, view=wanted.wished_view, sharing=terms.sharing)


def _check_tree(certificate: Certificate, plan: BasePlan, tree: TreeRun) -> None:
    """The releases have the noise of the leaves that arrived, of which the plan's make enough."""
    shares = plan.noise_draws
    if not isinstance(plan, StreamPlan) or plan.horizon is not None:
        raise PrivacyError("The plan is none that a tree of merges can have.")
    if not shares <= tree.arrived:
        raise PrivacyError(
            f"{tree.arrived} leaves arrived, and {shares} make the noise that was promised."
        )
    for record in certificate.releases:
        wanted = shares if record.pure else tree.arrived
        if record.noise.shares != wanted:
            raise PrivacyError(
                f"Release {record.name!r} has noise in {record.noise.shares} shares, where "
                f"{wanted} leaves drew it."
            )
    views = ("outsider",) if shares > 1 else ("outsider", "aggregator at level 1")
    if (view := certificate.wish.view) not in views:
        raise PrivacyError(f"The plan makes no promise against {view!r}.")
    check_against_plan(
        certificate,
        plan,
        view=view,
        sharing=lambda _: Sharing(shares=shares),
        records=[with_shares(record, shares) for record in certificate.releases],
    )


def _compared(guarantee: Guarantee, wish: Claim) -> tuple[str, str]:
    """The verdict's word and what explains it."""
    numbers = (
        f"recomputed epsilon = {guarantee.epsilon:.9g} at delta = {guarantee.delta:.3g}, "
        f"wished epsilon = {wish.epsilon:.9g} at delta = {wish.delta:.3g}"
    )
    if guarantee.epsilon > wish.epsilon or guarantee.delta > wish.delta:
        return NOT_TRUE, f"The recorded noise does not give the claim: {numbers}."
    if not guarantee.certified:
        why = "; ".join(guarantee.caveats)
        return (
            "NOT CERTIFIED",
            f"The numbers hold ({numbers}), but the run is not certified: {why}.",
        )
    return "HOLDS", f"The guarantee holds: {numbers}."
