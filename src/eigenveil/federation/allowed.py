"""What a site allows, whoever asks: no privacy rests on the word of the aggregator.

Every function raises the package's error when something is not allowed, and returns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from eigenveil.errors import BudgetExceeded, ProtocolError
from eigenveil.estimators.plans import BasePlan
from eigenveil.estimators.tensor_settings import TopicPlan
from eigenveil.federation import bodies
from eigenveil.federation.graph import neighbours
from eigenveil.federation.hiding import State
from eigenveil.federation.study import Study
from eigenveil.federation.sums import Terms, active_sites, fewest_sites
from eigenveil.moments.describe import Description
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.releases import TENSORS, ReleaseRecord


def check_neighbours(
    terms: Terms, name: str, own: bodies.PublicKeys, body: bodies.KeysRequest
) -> None:
    """The neighbours that the study gives this site, each with keys of its own."""
    lost = set(body.lost)
    if len(lost) < len(body.lost) or not lost <= {*terms.names} - {name}:
        raise ProtocolError("A site is lost twice, or is none.", code="unknown-site")
    members = [other for other in terms.names if other not in lost]
    check_taking_part(terms.study, len(members))
    near: tuple[str, ...] = ()
    if terms.mask_kind in ("modular", "pairwise"):
        near = neighbours(name, members, terms.study.degree)
    if set(body.neighbours) != set(near):
        raise ProtocolError(
            f"Other sites than {', '.join(near) or 'none'} were named as its neighbours.",
            code="other-neighbours",
        )
    keys = [key for other in (own, *body.neighbours.values()) for key in other.every()]
    if len(set(keys)) < len(keys):  # masks made with the same key could cancel
        raise ProtocolError("Two sites have the same key.", code="bad-key")


def check_taking_part(study: Study, count: int) -> None:
    """Enough sites for the noise to be what was promised, and no more than there are."""
    fewest = fewest_sites(study)
    if not fewest <= count <= len(active_sites(study)):
        raise ProtocolError(
            f"{count} sites take part; the noise of this study is made for at least {fewest}.",
            code="too-few-sites",
        )


def check_asked(plan: BasePlan, asked: Description) -> None:
    """Sums over documents for topics, over rows otherwise, and none larger than the study has.

    So before memory is taken for them, and before rows are read as what they are not.
    """
    what = asked.of or asked.kind
    counted = asked.kind == "norm-histogram"
    fits = (asked.of is not None) == (counted and isinstance(plan, TopicPlan))
    if asked.of is not None:
        fits &= plan.step_of(asked.of) is not None
    if what in TENSORS:
        fits &= asked.columns <= plan.n_components
    if what == "document-sketch":
        fits &= asked.columns <= plan.sketch_size
    if what == "document-pairs":  # Wishart noise hides what is bounded in the nuclear norm
        fits &= asked.nuclear == (plan.kind("moment") == "wishart")
    if not fits:
        raise ProtocolError(
            f"A {asked.kind}{f' of {asked.of}' if asked.of else ''} with {asked.columns} columns "
            "was asked for, which the study does not have.",
            hint="It is refused; check that all parties have the same study file.",
            code="bad-ask",
        )


def check_within(terms: Terms, name: str, records: Sequence[ReleaseRecord]) -> None:
    """Nothing about rows may show in why too much is refused: so before they are read."""
    asked = Loss.total(Loss.of(record) for record in records)
    if not terms.reservation(name).covers(asked):
        raise BudgetExceeded(
            f"site {name}: a round asks for less noise than the study has.",
            hint="It was refused; check that all parties have the same study file.",
            code="beyond-reservation",
        )


def check_turn(step: str, body: bodies.RoundRequest, state: State) -> None:
    """A round that comes after the last one, and after the keys."""
    if step != f"round {body.turn}" or body.turn <= state.turn:
        raise ProtocolError(
            f"Round {body.turn} was asked for after round {state.turn}.",
            hint="Rounds go forward; no round is answered twice.",
            code="other-round",
        )
    if not state.ready:
        raise ProtocolError("A round came before the keys were agreed.", code="out-of-order")


def check_survivors(
    study: Study, name: str, step: str, body: bodies.UnmaskRequest, state: State
) -> None:
    """Never unmask too few, or a round that this site did not answer last."""
    if step != f"unmask {body.turn}":
        raise ProtocolError("A step and its round do not agree.", code="malformed")
    check_taking_part(study, body.taking_part)
    named = [*body.arrived, *body.lost]
    if len(set(named)) != len(named) or not set(named) <= set(state.held):
        raise ProtocolError("Unmasking names a site twice, or a stranger.", code="bad-unmask")
    if name not in body.arrived or body.turn != state.turn:
        raise ProtocolError("Unmasking of a round this site did not answer.", code="bad-unmask")
    check_lost(study, state.lost + len(body.lost))


def check_lost(study: Study, count: int) -> None:
    """No more sites are lost than the study allows."""
    if count > study.dropouts:
        raise ProtocolError(
            f"{count} sites are lost, more than the {study.dropouts} that the study allows.",
            code="too-few-sites",
        )
