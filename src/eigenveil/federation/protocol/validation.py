"""What a party checks of another's message: none relies on the others' honesty."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from eigenveil.errors import PrivacyError, ProtocolError
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import Message
from eigenveil.federation.protocol.terms import Terms
from eigenveil.federation.public_key import SIGNATURE_BYTES
from eigenveil.federation.sealing import check_sealing
from eigenveil.federation.secagg.client import State
from eigenveil.federation.secagg.consistency import Table, members_of, set_of
from eigenveil.models.certify import check_record
from eigenveil.models.pca.plan import ADAPTED_MEAN, COVARIATES, ENERGIES, MEAN_LEFT, SCORES, Plan
from eigenveil.models.pca.ways import MOMENT
from eigenveil.models.plan import BasePlan
from eigenveil.models.rounds import prepared_center
from eigenveil.models.schedule import CENTER, COLUMNS, OBSERVED, SCALE, SITE_MEANS, Planned
from eigenveil.models.shapes import SHAPES
from eigenveil.moments.describe import Description
from eigenveil.moments.histograms import RANGE_LIMIT, NormHistogram
from eigenveil.moments.preparation import AS_IT_IS, Preparation
from eigenveil.privacy.calibration import Shape, calibrated_record
from eigenveil.tables.names import first_difference
from eigenveil.tables.scales import LIMIT

# Noise is worked out from the same numbers everywhere: it agrees to rounding.
_AGREE = 1e-9

# What comes after columns' scales were read off the second moment.
_REFINED = (ENERGIES, SCORES)


def check_partners(terms: Terms, name: str, body: payloads.KeysRequest) -> tuple[str, ...]:
    """The partners that the study gives this site, each with a key; who takes part, in order."""
    lost = set(body.lost)
    if len(lost) < len(body.lost) or not lost <= {*terms.names} - {name}:
        raise ProtocolError("lost-sites-wrong")
    members = [other for other in terms.names if other not in lost]
    terms.check_count(len(members))
    wanted = terms.partners(name, members)
    if set(body.partners) != set(wanted):
        raise ProtocolError("other-neighbours", wanted=", ".join(wanted) or "none")
    check_keys(body.partners)
    return tuple(members)


def check_keys(keys: Mapping[str, payloads.PublicKeys]) -> None:
    """Keys that are some; ProtocolError ``bad-key`` naming whose is none."""
    for name, each in keys.items():
        try:
            check_sealing(each.raw)
        except ProtocolError as error:
            raise ProtocolError.relayed(
                f"{name}: {error.message}", hint=error.hint, code=error.code
            ) from None


def one_list(joined: Mapping[str, payloads.JoinReply]) -> str:
    """The digest of the list of members that all sites have: keys are derived with it."""
    whose: dict[str, str] = {}
    for name, reply in joined.items():
        whose.setdefault(reply.listed, name)
    if len(whose) > 1:
        one, other, *_ = whose.values()
        raise ProtocolError("lists-differ", one=one, other=other)
    (listed,) = whose
    return listed


def common_columns(
    terms: Terms, joined: Mapping[str, payloads.JoinReply]
) -> tuple[str, ...] | None:
    """The names of all sites' columns: the study's, or where it has none, those of the first."""
    whose, columns = "the study", terms.study.columns
    for name, table in joined.items():
        site = f"site {name}"
        if table.features != terms.plan.features:
            raise ProtocolError(
                "other-features", whose=site, features=table.features, wanted=terms.plan.features
            )
        if table.columns is None:
            continue
        if columns is None:
            whose, columns = site, table.columns
        if table.columns != columns or len(columns) != table.features:
            difference = f"{first_difference(table.columns, columns)} at {whose}"
            raise ProtocolError("other-columns", whose=site, difference=difference)
    return columns


def check_query(plan: BasePlan, asked: Description) -> None:
    """Sums over documents for topics, over rows otherwise, and none larger than the study has.

    So before memory is taken for them, and before rows are read as what they are not.
    """
    what = asked.of or asked.kind
    fits = (asked.of is not None) == (plan.of_documents and asked.kind == NormHistogram.statistic)
    if asked.of is not None:
        fits &= plan.step_of(asked.of) is not None
    shape = SHAPES[what]
    fits &= asked.weighted == (plan.weighted and SHAPES[asked.kind].counts_shares)
    fits &= asked.holes == plan.holes
    fits &= asked.centers in (0, plan.sites) and asked.blocks in (0, plan.sites)
    fits &= asked.precision in ("double", plan.precision)
    if not (fits and shape.fits(plan, asked)):
        what = f"{asked.kind} of {asked.of}" if asked.of else asked.kind
        raise ProtocolError("bad-query", what=f"a {what} with {asked.columns} columns")


def check_turn(
    terms: Terms, name: str, step: str, body: payloads.RoundRequest, state: State
) -> tuple[Planned, ...]:
    """The next round of the plan's schedule, after the keys, and no other.

    The first says who can be lost, where somebody can be.
    """
    if not state.ready:
        raise ProtocolError("out-of-order", what="A round", before="the keys were agreed")
    if step != f"round {body.round_number}" or body.round_number != state.round_number + 1:
        raise ProtocolError("other-round", number=body.round_number, last=state.round_number)
    rounds = terms.plan.rounds
    planned = rounds[state.round_number] if state.round_number < len(rounds) else ()
    if tuple(query.name for query in body.queries) != tuple(each.name for each in planned):
        wanted = " and ".join(repr(each.name) for each in planned) or "nothing"
        raise ProtocolError(
            "not-in-plan",
            what=f"Round {body.round_number}, for {wanted} by the plan, with something else",
        )
    if (body.members is not None) != (terms.mends and body.round_number == 1):
        raise ProtocolError("losable-said-late")
    if body.members is not None:
        _check_part(terms, name, body.members, of=state.joined)
        near = terms.partners(name, members_of(terms.names, state.joined))
        if not set(near) & set_of(terms.names, body.members) <= set(state.pairs):
            raise ProtocolError("no-secret-agreed")
    return planned


def check_planned(terms: Terms, planned: Planned, asked: Shape, scale: float) -> None:
    """A sum is what the plan releases, and its noise is what the plan makes of its budget.

    So every round costs what the plan has divided over the rounds, whatever the asker has learnt
    from earlier ones. Nothing about rows can show in a refusal: it is before they are read.
    """
    plan, step = terms.plan, planned.step
    sharing = terms.sharing(step)
    try:
        wanted = calibrated_record(
            asked,
            name=planned.name,
            adjacency=plan.adjacency,
            kind=plan.noises[step].name,
            budget=plan.budgets[step],
            fraction=planned.fraction,
            draws=planned.draws,
            sharing=sharing,
        )
        check_record(wanted, planned, plan, sharing)
    except (PrivacyError, ValueError) as error:  # a record that no proof covers is a ValueError
        raise _not_planned(planned, str(error)) from None
    if not math.isclose(scale, wanted.noise.scale, rel_tol=_AGREE):
        raise _not_planned(
            planned,
            f"noise of scale {scale:.9g} was requested, and the plan has {wanted.noise.scale:.9g}.",
        )


def check_public(
    terms: Terms, planned: Planned, asked: Description, message: Message, index: int
) -> None:
    """Check where rows are taken from and shortened, as far as the study itself states it.

    Elsewhere both were chosen by what earlier rounds released, which a site does not see.
    """
    study, plan, right = terms.study, terms.plan, True
    _check_preparation(terms, planned, asked, message, index)
    later = _is_after(plan, planned, SITE_MEANS)
    by_site = (plan.sites if later else 0, plan.sites if planned.name == SITE_MEANS else 0)
    if (asked.centers, asked.blocks) != by_site:
        raise _not_planned(planned, "it is not of single sites where the study has their means.")
    if plan.centered == "no" or planned.name in (SCALE, CENTER, OBSERVED):
        right = not asked.centered
    elif plan.centered == "public" and isinstance(plan, Plan):
        first = _public_preparation(terms)
        center, wanted = message.arrays.get(f"center {index}"), study.public_center
        wanted = prepared_center(wanted, first)
        if planned.name in _REFINED and plan.refines_scales:
            wanted = center  # in released scales
        right = center is not None and wanted is not None and np.array_equal(center, wanted)
    bound = _public_bound(plan, planned)
    if not right or (bound is not None and asked.bound != bound):
        raise _not_planned(planned, "it is not about the centre, or the bound, that the study has.")


def _check_preparation(
    terms: Terms, planned: Planned, asked: Description, message: Message, index: int
) -> None:
    """Check what is done to the entries of rows first, as far as the study itself states it."""
    plan, counts = terms.plan, planned.step == "missing"  # of entries, whatever they are
    public = AS_IT_IS if counts else _public_preparation(terms, planned)
    released = plan.finds_scales and not counts and planned.name != COLUMNS
    wanted = {"offset": public.offset, "scale": public.scale}
    limit: float | None = None if public.limit == math.inf else public.limit
    refined = planned.name in _REFINED and isinstance(plan, Plan) and plan.refines_scales
    if released:
        limit = RANGE_LIMIT if planned.step == "columns" else LIMIT
    there = {"offset": asked.offset, "scale": asked.scaled}
    right = asked.limit == limit or (refined and plan.ranged)
    right &= asked.covariates == _covariates(plan, planned)
    apart = plan.apart if planned.name in (MOMENT, MEAN_LEFT) else None
    levels = ((), 0.0) if apart is None else (apart.categories, apart.length)
    right &= (asked.apart, asked.level) == levels
    groups = plan.scores_by if isinstance(plan, Plan) and planned.step == SCORES else ()
    right &= asked.groups == groups
    for name, array in wanted.items():
        given = message.arrays.get(f"{name} {index}")
        chosen = released or (refined and name == "scale")
        right &= there[name] == (chosen or array is not None)
        right &= chosen or array is None or (given is not None and np.array_equal(given, array))
    variables = message.arrays.get(f"variables {index}")
    known = terms.public_columns.get("variables")
    if asked.categories:
        right &= variables is not None and known is not None and np.array_equal(variables, known)
    if not right:
        raise _not_planned(planned, "it is not of columns as the study scales them.")


def _public_preparation(terms: Terms, planned: Planned | None = None) -> Preparation:
    public: Preparation = terms.public_columns.get("preparation", AS_IT_IS)
    plan, columns = terms.plan, planned is not None and planned.step == "columns"
    return public if plan.apart is None or columns else plan.apart.left_out(public, plan.features)


def _covariates(plan: BasePlan, planned: Planned) -> tuple[int, ...]:
    """The columns whose effects are taken off: those of the plan, once they were released."""
    if isinstance(plan, Plan) and plan.scores_by:
        return () if planned.step in ("columns", "missing") else plan.scores_by
    if not _is_after(plan, planned, COVARIATES):
        return ()
    assert isinstance(plan, Plan)
    return plan.covariates


def _is_after(plan: BasePlan, planned: Planned, name: str) -> bool:
    names = [one.name for one in plan.schedule]
    return name in names and names.index(planned.name) > names.index(name)


def _public_bound(plan: BasePlan, planned: Planned) -> float | None:
    """The length at which rows are shortened; ``None`` where releases say it."""
    if planned.name in (CENTER, COVARIATES):
        return plan.row_bound
    if not isinstance(plan, Plan):
        return None
    if planned.name == ENERGIES:
        return plan.row_bound
    if planned.step == "moment" or planned.name in (MEAN_LEFT, ADAPTED_MEAN):
        if plan.row_norm == "unit":
            return 0.0
        return None if isinstance(plan.row_norm, str) else float(plan.row_norm)
    return None


def _not_planned(planned: Planned, why: str) -> ProtocolError:
    return ProtocolError("not-in-plan", what=f"Release {planned.name!r}: {why.rstrip('.')}")


def check_senders(terms: Terms, name: str, body: payloads.SharesRequest, state: State) -> None:
    """Letters are of some of the neighbours, each once, after the keys."""
    if not state.held:
        raise ProtocolError("out-of-order", what="Letters", before="the keys")
    near = terms.partners(name, members_of(terms.names, state.joined))
    if not set(body.senders) <= set(near) or len(set(body.senders)) < len(body.senders):
        raise ProtocolError("letters-of-strangers")


def check_survivors(
    terms: Terms, name: str, step: str, body: payloads.SurvivorsRequest, state: State
) -> None:
    """Of the round that this site answered last enough messages arrived, this site's too."""
    _check_last(step, f"survivors {body.round_number}", body.round_number, state)
    _check_part(terms, name, body.survivors, of=state.members)


def check_unmask(
    terms: Terms, step: str, body: payloads.UnmaskRequest, message: Message, state: State
) -> tuple[tuple[str, ...], Table]:
    """Who has signed what this site has signed of the round that it answered last, and how."""
    _check_last(step, f"unmask {body.round_number}", body.round_number, state)
    if not state.survivors:
        raise ProtocolError(
            "out-of-order", what="An unmask request", before="the list of sites was signed"
        )
    signers = members_of(terms.names, body.signed)
    if not set(signers) <= set_of(terms.names, state.survivors):
        raise ProtocolError(
            "bad-unmask",
            what="A site that did not take part has signed the list of those that did.",
        )
    signatures = message.array("signatures", dtype="b1", shape=(len(signers), SIGNATURE_BYTES))
    return signers, signatures


def _check_last(step: str, wanted: str, round_number: int, state: State) -> None:
    if step != wanted:
        raise ProtocolError("malformed", sender="The aggregator", what="round of the step")
    if round_number != state.round_number:
        raise ProtocolError("bad-unmask", what="Unmasking of a round this site did not answer.")


def _check_part(terms: Terms, name: str, part: str, *, of: str) -> None:
    """Members that have this site and no stranger among them, and are enough."""
    members = set_of(terms.names, part)
    if name not in members or not members <= set_of(terms.names, of):
        raise ProtocolError(
            "bad-unmask",
            what="A list of sites leaves this one out, or has one that was lost before.",
        )
    terms.check_count(len(members))
