"""What is wrong with a field of a study, in the package's words rather than pydantic's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from eigenveil.checks import first_twice
from eigenveil.errors import DataError, PrivacyError, nearest
from eigenveil.federation.masks import MASKS
from eigenveil.federation.secagg.consistency import even
from eigenveil.models.domains import WEIGHT, refused
from eigenveil.models.options import options_of, study_options
from eigenveil.models.plan import BasePlan
from eigenveil.models.task import TASKS
from eigenveil.origins import FileOrigin
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.budget import split_budget
from eigenveil.privacy.mechanisms import MECHANISMS
from eigenveil.privacy.mechanisms.base import SamplingError, lattice_error
from eigenveil.tables.names import (
    MOST_SPARSE_COLUMNS,
    check_identifiers,
    check_names,
    check_width,
    first_difference,
)
from eigenveil.tables.schema import Schema

# -- How much the rows of a site with a smaller target count.
#
# Noise of a sum is common to all its sites. A site whose rows count with a weight moves the sum by
# so much less, and the common noise then gives it what it targets (privacy.md, section 5).


def site_weight(plan: BasePlan, site: str, epsilon: float, *, whole: int) -> int:
    """Weight of a site's rows, in parts of ``whole``: the largest that meets the site's target."""
    error = lattice_error(plan.released_values(), steps_a_scale=2.0**26, draws=plan.noise_draws)
    try:
        if plan.mixed:
            weight = _of_mixed_noise(plan, epsilon, error, whole)
        else:
            weight = _of_one_kind(plan, epsilon, error, whole)
    except PrivacyError as problem:
        raise PrivacyError.relayed(
            f"site {site!r}: {problem.message}", hint=problem.hint, code=problem.code
        ) from None
    if weight < 1:
        raise PrivacyError(
            "weight-too-small", site=site, epsilon=epsilon, most=plan.epsilon, whole=whole
        )
    return weight


def in_proportion(most: Mapping[str, int], sites: Sequence[Any], *, whole: int) -> dict[str, int]:
    """The largest weights in proportion to the given ones, none above the most of its site.

    Exact but for one rounding to a part of ``whole``: only proportions matter.
    """
    given = {site.name: Fraction(site.weight) for site in sites if site.weight is not None}
    if not given:
        return dict(most)
    unit = min(most[name] / weight for name, weight in given.items())
    found = {name: round(unit * weight) for name, weight in given.items()}
    lightest = min(found, key=lambda name: found[name])
    if found[lightest] < 1:
        raise DataError(
            "weights-too-far-apart",
            site=lightest,
            weight=float(given[lightest]),
            most=float(max(given.values())),
            whole=whole,
        )
    return found


# Bits of a coarse weight at the least, and the part of itself that it may lose.
_FEWEST_BITS = 5
_LOST = 1 / 16


def coarse_weights(weights: Mapping[str, int], *, bits: int) -> dict[str, int]:
    """The same weights, in parts of ``2**bits``, with as few bits of them as lose little.

    A weighted sum takes more of its 64 bits the finer the weights are: every bit halves the number
    of rows that fit.
    """
    for kept in range(_FEWEST_BITS, bits):
        low = bits - kept
        coarse = {site: weight >> low << low for site, weight in weights.items()}
        if all(coarse[site] >= (1 - _LOST) * weight for site, weight in weights.items()):
            return coarse
    return dict(weights)


def _of_one_kind(plan: BasePlan, epsilon: float, error: SamplingError, whole: int) -> int:
    """The share of the study's mu (of epsilon, if delta = 0) that the site targets."""
    own = _spendable(epsilon, plan.delta, error)
    weight = math.floor(whole * own / _spendable(plan.epsilon, plan.delta, error))
    if plan.pure and weight < whole:
        weight -= 1  # for the sampler's own error, which no weight makes smaller
    return weight


def _of_mixed_noise(plan: BasePlan, epsilon: float, error: SamplingError, whole: int) -> int:
    """The largest weight at which all releases together cost no more than the target."""
    if epsilon >= plan.epsilon:
        return whole
    budgets = plan.budgets.values()
    mu_squared = math.fsum(b.mu**2 for b in budgets if b.mu is not None)
    pure = math.fsum(b.epsilon for b in budgets if b.epsilon is not None)

    def cost(weight: int) -> float:
        part = weight / whole
        # one part more of what is pure: room for the sampler's error, which no weight makes smaller
        return _mixed_cost(
            Loss(mu_squared * part**2, pure * (part + 1 / whole), *error), plan.delta
        )

    low, high = 0, whole
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= epsilon else (low, middle)
    return low


@lru_cache(maxsize=256)
def _mixed_cost(loss: Loss, delta: float) -> float:
    return loss.epsilon(delta)


@lru_cache(maxsize=256)
def _spendable(epsilon: float, delta: float, error: SamplingError) -> float:
    """What a target leaves for a fit's releases together: mu, or epsilon if delta = 0."""
    budget = split_budget({"all": 1.0}, epsilon=epsilon, delta=delta, error=error)["all"]
    spendable = budget.epsilon if budget.mu is None else budget.mu
    assert spendable is not None
    return spendable


if TYPE_CHECKING:
    from eigenveil.federation.study.study import Study


def urgency(error: Any) -> int:
    """A misspelt field also looks like a missing one: report the spelling first."""
    return {"extra_forbidden": 0, "missing": 1}.get(error["type"], 2)


def bad_field(
    where: str,
    fields: Mapping[str, Any],
    error: Any,
    *,
    study: type[BaseModel],
    each_site: type[BaseModel],
) -> DataError:
    """The error of a field, naming it and what it may be; the nearest name where it is unknown."""
    path = error["loc"]
    in_site = len(path) > 2 and path[0] == "sites"
    model: type[BaseModel] = each_site if in_site else study
    field = str(path[2] if in_site else path[0]) if path else "the study"
    site: Any = None
    if in_site:
        site = fields["sites"][path[1]]
        name = site.get("name") if isinstance(site, Mapping) else None
        where += (
            f"site {name!r}: " if name is not None and field != "name" else f"sites[{path[1]}]: "
        )
    if error["type"] == "extra_forbidden":
        near = nearest(field, list(model.model_fields))
        return DataError("unknown-field", where=where, field=field, near=near)
    info = model.model_fields.get(field)
    hint = (info.description or "") if info is not None else ""
    if error["type"] == "missing":
        return DataError("missing-field", field=f"{where}{field}", way_out=hint)
    value = error["input"]
    if len(path) == 1 or (in_site and len(path) == 3):
        shown = field
    elif isinstance(path[1], int):
        shown = f"{field}[{path[1]}]"
    else:  # inside a choice of types: what was given for the whole field
        shown, value = field, (site if in_site else fields)[field]
    return DataError("bad-field", field=f"{where}{shown}", value=_short_text(value), way_out=hint)


def _short_text(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


# -- Which studies cannot be run, in words, with the way out.


def check_study(study: Study) -> None:
    for check in (
        _check_shape,
        _check_sites,
        _check_crowd,
        _check_protocol,
        _check_masks,
        _check_units,
        _check_within,
    ):
        check(study)


def _check_shape(study: Study) -> None:
    if (study.columns is None) == (study.features is None):
        both = "both are given" if study.columns is not None else "neither is given"
        raise DataError("columns-or-features", both=both)
    _check_once("columns", study.columns or ())
    of_words = TASKS[study.task].takes_documents
    check_names(FileOrigin("The study's columns"), study.columns, of_words=of_words)
    if study.table_schema is not None:
        _check_schema(study, study.table_schema)
    elif not of_words:
        check_identifiers("The study's columns", study.columns)
    check_width("The study", study.width, most=MOST_SPARSE_COLUMNS)
    least = study.components if isinstance(study.components, int) else 1
    if least > study.width:
        raise DataError(
            "too-many-components",
            name="components",
            components=study.components,
            features=study.width,
        )
    if isinstance(study.center, tuple) and len(study.center) != study.width:
        raise DataError("center-differs", given=len(study.center), columns=study.width)
    if study.expected_rows is not None and study.expected_rows < least:
        raise DataError(
            "fewer-rows-than-components",
            rows=study.expected_rows,
            components=study.components,
        )


def _check_schema(study: Study, schema: Schema) -> None:
    """The same columns and unit in both, and nothing that only rows could tell."""
    schema.check_usable("The study's schema")
    schema.check_targets("The study's schema", taken=TASKS[study.task].takes_targets)
    if study.columns != schema.names:
        raise DataError(
            "other-columns",
            whose="the study's list",
            difference=f"{first_difference(study.columns or (), schema.names)} in its schema",
        )
    if study.unit != schema.unit:
        raise DataError(
            "unit-of-schema-differs",
            unit=study.unit,
            column="no column" if schema.unit is None else repr(schema.unit),
        )


def _check_sites(study: Study) -> None:
    _check_once("sites", [site.name for site in study.sites])
    declared = options_of(study.task, "sites")
    weighed = any(site.weight is not None for site in study.sites)
    for site in study.sites:
        if weighed:
            if site.weight is None:
                raise DataError("site-without-weight", site=site.name)
            own = replace(declared["weights"], name=f"site {site.name!r}: weight", values=(WEIGHT,))
            own.check(site.weight)
        if site.epsilon is None:
            continue
        own = replace(declared["epsilon"], name=f"site {site.name!r}: epsilon")
        own.check(site.epsilon)
        if site.epsilon > study.epsilon:
            raise PrivacyError(
                "target-above-study", site=site.name, epsilon=site.epsilon, most=study.epsilon
            )


def _check_units(study: Study) -> None:
    """Units at several sites: noise for as many, and one target for all."""
    most = study.sites_per_unit
    if most == 1:
        return
    if most > len(study.sites):
        raise DataError("too-many-sites-per-unit", most=most, sites=len(study.sites))
    if any(site.epsilon is not None for site in study.sites):
        raise PrivacyError("targets-differ", most=most)
    if len({site.weight for site in study.sites}) > 1:
        raise PrivacyError("weights-differ", most=most)


def _check_within(study: Study) -> None:
    """Means of single sites: where there are several, and a centre is found at all."""
    if not study.within_sites:
        return
    option = study_options(study.task)["within_sites"]
    if study.center is not True:
        raise refused(option, "no-center-of-sites")
    if study.missing != "leave-out":
        raise refused(option, "sites-with-missing", missing=study.missing)
    if study.table_schema is not None and study.table_schema.groups:
        raise refused(option, "sites-with-groups")


def _check_crowd(study: Study) -> None:
    count, missing = len(study.sites), 1 - study.honest
    if missing > 0:
        raise PrivacyError(
            "no-honest-site",
            sites=count,
            collusion=study.collusion,
            dropouts=study.dropouts,
            honest=study.honest,
            missing=missing,
        )


def _check_protocol(study: Study) -> None:
    """Pure epsilon only as it is proved."""
    pure = "delta = 0" if study.delta == 0 else "mechanism = 'vector'"
    if study.delta == 0 and not study.likely_protocol.pure:
        raise PrivacyError(
            "pure-needs-other-mechanism",
            name="protocol",
            value=study.likely_protocol.name,
            instead="protocol = 'cape' (or 'local')",
        )
    noise = MECHANISMS.get(study.mechanism)
    pure_noise = study.delta == 0 or (noise is not None and noise.pure)
    if pure_noise and not MASKS[study.masks].view.any_noise:
        way = "a delta above 0" if study.delta == 0 else "mechanism = 'gaussian'"
        raise PrivacyError("pure-needs-modular-masks", masks=study.masks, pure=pure, way=way)


def _check_masks(study: Study) -> None:
    """Masks that hide every honest site among all others, and can be mended."""
    if study.dropouts and not MASKS[study.masks].mends:
        raise PrivacyError(
            "dropouts-need-modular-masks", dropouts=study.dropouts, masks=study.masks
        )
    others, gone = len(study.sites) - 1, study.collusion + study.dropouts
    if MASKS[study.masks].between_sites and study.degree < min(others, gone + 1):
        raise PrivacyError(
            "too-few-neighbours",
            neighbours=study.neighbours,
            gone=gone,
            wanted=min(others, even(gone + 1)),
        )
    if study.dropouts:
        _check_mending(study)


def _check_mending(study: Study) -> None:
    """Secrets of lost sites must be given back by those that remain.

    Then those that remain are also enough to sign who took part (``Study.signatures``): of all
    sites instead of a few no larger a share is needed.
    """
    holders, remain = study.degree + 1, study.degree + 1 - study.dropouts
    if remain >= study.threshold:
        return
    most = (holders - study.collusion - 1) // 2
    ways = [f"dropouts = {most} or fewer"]
    wanted = study.collusion + 2 * study.dropouts
    if wanted <= len(study.sites) - 1:
        ways.append(f"neighbours = {even(wanted)} or more")
    else:
        ways.append(f"at least {wanted + 1} sites")
    raise PrivacyError(
        "too-many-dropouts",
        dropouts=study.dropouts,
        holders=holders,
        threshold=study.threshold,
        collusion=study.collusion,
        remain=remain,
        ways=" or ".join(ways),
    )


def _check_once(field: str, names: Any) -> None:
    twice = first_twice(names)
    if twice is not None:
        raise DataError("duplicate-name", field=field, twice=twice)
