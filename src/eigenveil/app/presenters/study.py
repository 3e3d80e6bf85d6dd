"""A study for people and programs: what it means, and what it promises against whom."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from eigenveil.app.parts import Part, TablePart, bytes_text, whole
from eigenveil.errors import number_text, short_name
from eigenveil.federation.ledger.books import epsilon_or_infinity
from eigenveil.federation.masks import MASKS
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.protocols import PROTOCOLS
from eigenveil.federation.study.study import WEIGHT_BITS, Study
from eigenveil.models.schedule import Step
from eigenveil.models.task import TASKS
from eigenveil.planning.forecast import forecast
from eigenveil.planning.protocol import Chosen
from eigenveil.privacy.accountant import epsilon_of_mu, mu_of_epsilon
from eigenveil.privacy.guarantee import neighbours_text
from eigenveil.tables.schema import Schema

# So few sites that each one's own noise is much of the whole.
_FEW = 3


@dataclass(frozen=True)
class Adversary:
    """Who might want to know of a row, and how many honest sites' noise protects it.

    ``honest`` counts shares of noise that the adversary certainly does not know; the study's
    guarantee rests on ``needed`` of them. Fewer: no guarantee is given.
    """

    name: str
    honest: int
    needed: int

    @property
    def protected(self) -> bool:
        return self.honest >= self.needed


def adversaries(study: Study) -> tuple[Adversary, ...]:
    """Everyone that a study's guarantee is, or might be thought to be, about."""
    if _is_alone(study):
        return (Adversary("anyone who sees the result", 1, 1), Adversary("the aggregator", 1, 1))
    least, honest = study.fewest_sites, study.honest
    found = [
        Adversary("anyone who sees the result", least, honest),
        # which sees the result and knows its own share of the noise
        Adversary("another site of the study", max(1, least - 1), honest),
        Adversary("the aggregator", least, honest),
    ]
    if study.collusion:
        some = f"the aggregator together with up to {counted(study.collusion, 'other site')}"
        found.append(Adversary(some, honest, honest))
    if MASKS[study.masks].needs_helper:
        found.append(Adversary("the helper, with the result", least, honest))
        found.append(Adversary("the helper together with the aggregator", 1, honest))
    if honest > 1:
        more = study.collusion + 1
        found.append(
            Adversary(
                f"the aggregator together with {more} or more sites",
                max(1, len(study.sites) - study.dropouts - more),
                honest,
            )
        )
    return tuple(found)


def summary(study: Study, choice: Chosen | None) -> dict[str, Any]:
    weights, held = study.weights(), _held_to(study)
    return {
        "name": study.name,
        "hash": study.hash,
        "requested_by": study.requested_by,
        "purpose": study.purpose,
        "task": study.task,
        "columns": None if study.columns is None else list(study.columns),
        "features": study.width,
        "table_schema": None if study.table_schema is None else study.table_schema.as_dict(),
        "components": study.components,
        "epsilon": study.epsilon,
        "delta": study.delta,
        "adjacency": study.adjacency,
        "unit": study.unit,
        "max_rows_per_unit": study.max_rows_per_unit,
        "sites_per_unit": study.sites_per_unit,
        "protocol": study.protocol if choice is None else choice.protocol,
        "reason": None if choice is None else choice.reason,
        "masks": study.masks,
        "sites": [
            {
                "name": site.name,
                "epsilon": study.epsilon if site.epsilon is None else site.epsilon,
                "weight": weights[site.name] / (1 << WEIGHT_BITS),
                "guaranteed": held[site.name],
            }
            for site in study.sites
        ],
        "collusion": study.collusion,
        "dropouts": study.dropouts,
        "honest_sites": study.honest,
        "fewest_sites": study.fewest_sites,
        "neighbours": study.degree,
        "threshold": study.threshold,
        "noise": _noise(study if choice is None else study.with_protocol(choice.protocol)),
        "adversaries": adversaries_json(study),
        "notes": list(study.notes),
    }


def _held_to(study: Study) -> dict[str, float | None]:
    """The epsilon that a row of each site is held to; ``None``: nothing is released of it."""
    terms = settle(study)
    found: dict[str, float | None] = dict.fromkeys(study.names)
    for name in terms.names:
        whole = terms.weight(name) == 1.0
        most = study.epsilon if whole else epsilon_or_infinity(terms.reservation(name), study.delta)
        found[name] = min(most, study.epsilon)
    return found


def adversaries_json(study: Study) -> list[dict[str, Any]]:
    return [{**asdict(each), "protected": each.protected} for each in adversaries(study)]


def _noise(study: Study, step: Step = "moment") -> str:
    """What each site draws for a step, in a sentence."""
    made = study.plan(study.width)
    budget = made.budgets[step]
    if budget.mu is None:
        assert budget.epsilon is not None
        noise_parts = 1 if PROTOCOLS[study.protocol].first_site_only else study.honest
        noise = made.noises[step]
        return noise.part(study.sites_per_unit / budget.epsilon, made.features, noise_parts)
    whole = study.sites_per_unit / budget.mu
    total = f"deviation {whole:.4g} of a row's largest contribution"
    if PROTOCOLS[study.protocol].whole_noise or study.honest == 1:
        return f"all of it: {total}"
    share = whole / math.sqrt(study.honest)
    return f"deviation {share:.4g} of a row's largest contribution; {study.honest} make {whole:.4g}"


_HIGHER: Mapping[Step, str] = {"tensor": "triple moment", "cumulants": "fourth moment"}


def _higher(study: Study) -> dict[Step, str]:
    """Moments above the second that sites send, by step."""
    steps = study.plan(study.width).fractions
    return {step: name for step, name in _HIGHER.items() if step in steps}


def what_is_sent(study: Study) -> str:
    """What sites send, in a sentence."""
    moment = TASKS[study.task].moment
    return PROTOCOLS[study.protocol].what_is_sent(moment, _higher(study).values())


def summary_parts(study: Study, choice: Chosen | None, checked: dict[str, str]) -> Iterator[Part]:
    """The study in sentences; ``checked`` has what was found in sites' files."""
    values = summary(study, choice)
    yield f"study {study.name}: {study.task}, {components_text(study)} of {_columns_text(study)}"
    if study.requested_by:
        yield f"requested by {study.requested_by}."
    if study.purpose:
        yield f"purpose: {study.purpose}."
    if study.table_schema is not None:
        yield f"files are read by the study's schema: {_schema_text(study.table_schema)}."
    yield from _protected(study)
    settled = study if choice is None else study.with_protocol(choice.protocol)
    sizes, higher = forecast(settled, study.width, None), _higher(settled)
    size = bytes_text(sizes.round_bytes if higher else sizes.message_bytes)
    yield f"protocol {settled.protocol}: {what_is_sent(settled)}, {size} a site."
    if choice is not None:
        yield f"  chosen: {choice.reason}"
    rows = [
        (
            site["name"],
            f"{site['epsilon']:g}",
            f"{site['weight']:.4g}",
            "-" if site["guaranteed"] is None else f"{site['guaranteed']:.4g}",
            *([checked.get(site["name"], "not looked at")] if checked else []),
        )
        for site in values["sites"]
    ]
    headings = ("site", "target", "weight", "guarantee", *(["file"] if checked else []))
    yield TablePart(counted(len(study.sites), "site"), headings, rows, right=headings[1:4])
    yield f"noise of the {TASKS[study.task].moment}, each site: {values['noise']}."
    for step, name in higher.items():
        yield f"noise of the {name}, each site: {_noise(settled, step)}."
    if not _is_alone(study):
        yield (
            f"at least {study.fewest_sites} of {len(study.sites)} sites must take part to the end; "
            f"the noise of {study.honest} suffices."
        )
        yield _masks_text(study)
    yield from adversary_parts(study)
    for note in study.notes:
        yield f"  note: {note}"
    yield f"hash {study.hash}: every site's must be the same."


def _is_alone(study: Study) -> bool:
    """Whether no site has others to hide among."""
    return PROTOCOLS[study.protocol].first_site_only or len(study.sites) == 1


def _protected(study: Study) -> Iterator[Part]:
    plan = study.plan(study.width)
    yield whole(f"hidden: {neighbours_text(study.adjacency, plan.unit)}.")
    if plan.unit is not None and plan.max_rows_per_unit > 1:
        yield f"  rows of a unit count alike up to {plan.max_rows_per_unit:,} of them."
    if len(study.sites) > 1:
        what = "row" if plan.unit is None else "unit"
        most = study.sites_per_unit
        yield (
            f"  each {what} is at one site only, which the sites' owners must see to."
            if most == 1
            else f"  a {what} may have rows at {most} sites: the noise is {most} times larger."
        )
    if plan.scaled == "private" and not plan.ranged:
        yield "columns are divided by scales that are found privately."
    elif plan.scaled != "no" or plan.ranged:
        yield "columns are divided by public scales or ranges, which the study has."
    if plan.holes:
        yield f"entries may be missing ({plan.missing})."


def components_text(study: Study) -> str:
    if study.components is None:
        return TASKS[study.task].title
    most = f"(at most {study.most_components})"
    if isinstance(study.components, str):
        return f"as many components as stand above the noise {most}"
    if isinstance(study.components, float):
        return f"components for {study.components:.4g} of the variance {most}"
    return counted(study.components, "component")


def _columns_text(study: Study) -> str:
    if study.columns is None:
        return f"{counted(study.width, 'column')} without names"
    shown = ", ".join(short_name(name) for name in study.columns[:8]) + (
        ", ..." if study.width > 8 else ""
    )
    return f"{counted(study.width, 'column')} ({shown})"


def _schema_text(schema: Schema) -> str:
    """Which columns of a file are read, and as what, for whoever agrees to it."""
    found = [
        f"{short_name(column.name)} ({column.of_kind.shown(column)})" for column in schema.read
    ]
    whose = "" if schema.unit is None else f"; rows belong to {short_name(schema.unit)}"
    more = f" and {len(found) - 20} more" if len(found) > 20 else ""
    return ", ".join(found[:20]) + more + whose


def _masks_text(study: Study) -> str:
    if MASKS[study.masks].needs_helper:
        return "masks: from a trusted helper."
    text = f"masks: {study.masks}, each site with {counted(study.degree, 'other')}"
    if study.dropouts:
        text += (
            f"; of the {study.degree + 1} that hold a share of a site's secrets, "
            f"{study.threshold} are needed"
        )
    return text + "."


def adversary_parts(study: Study) -> Iterator[Part]:
    """What each is held to, the worst view first."""
    for each in sorted(adversaries(study), key=lambda each: min(1.0, each.honest / each.needed)):
        yield f"against {each.name}: {_promise(study, each)}."
    few = len(study.sites) <= _FEW and not _is_alone(study)
    if few and not study.collusion and any(not each.protected for each in adversaries(study)):
        yield (
            f"  note: each of {len(study.sites)} sites draws a large part of the noise and knows "
            "its own; with collusion = 1 the promise holds against another site as well."
        )
    if any(weight < 1 << WEIGHT_BITS for weight in study.weights().values()):
        yield "  note: rows that count less have a smaller epsilon: see the table of sites."


def _promise(study: Study, adversary: Adversary) -> str:
    rest = f"{counted(adversary.honest, 'honest site')}, {adversary.needed} needed"
    if not adversary.protected and study.delta == 0:
        return f"no promise (perhaps only the noise of {rest})"
    if not adversary.protected:
        requested = mu_of_epsilon(study.epsilon, study.delta)
        mu = requested * math.sqrt(adversary.needed / adversary.honest)
        weaker = epsilon_of_mu(mu, study.delta)
        return f"less than was requested, epsilon = {weaker:.3g} or more (the noise of {rest})"
    promise = f"({study.epsilon:g}, {number_text(study.delta)})-differential privacy or better"
    return f"{promise} (the noise of {rest})"


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
