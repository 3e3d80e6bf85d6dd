"""A certificate against its plan: which releases there must be, and what each may have cost.

The plan is rebuilt from the certificate, and defines by itself (``BasePlan.schedule``) everything
that its fit releases. Whatever else a certificate states must agree with it, or it does not
hold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from pydantic import ValidationError

from eigenveil.checks import first_twice
from eigenveil.errors import EigenveilError, PrivacyError
from eigenveil.models.options import Options, of_sites, options_of
from eigenveil.models.pca.covariates import numbered
from eigenveil.models.pca.plan import all_components
from eigenveil.models.plan import BasePlan
from eigenveil.models.result import Result, changed, claim_of
from eigenveil.models.rounds import MOST_KEPT
from eigenveil.models.schedule import Planned, Step
from eigenveil.models.shapes import SHAPES, ranges_of, sizes_of
from eigenveil.models.task import TASKS, task_of_plan
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.calibration import release_grid
from eigenveil.privacy.certificate import Certificate, plan_hash, proofs_of
from eigenveil.privacy.releases import ReleaseRecord, Sharing
from eigenveil.tables.scales import public_preparation

# Records are calibrated from the plan's own numbers: they agree to rounding.
_AGREE = 1e-9
# A pure release spends less than its budget by what its sampler's arithmetic may cost: four times
# its log-ratio on the grid of a first guess of the scale, two steps of 2 from the final at most.
_ARITHMETIC = 64.0
# What a plan takes beside its options where parties send factors of a study's.
_COLUMNS = ("sketch_columns",)


def plan_of(certificate: Certificate) -> BasePlan:
    """The plan that a certificate records, rebuilt and checked to be one that a fit can have."""
    recorded = certificate.plan
    if plan_hash(recorded) != certificate.plan_hash:
        raise _refused("The plan is not the one whose hash is recorded.")
    kind = _class_of(recorded)
    try:
        plan = kind.model_validate_json(json.dumps(recorded), strict=True)
    except (ValidationError, ValueError, TypeError) as error:
        raise _refused(f"The recorded plan is not valid: {_first(error)}.") from None
    if plan.model_dump(mode="json") != recorded:
        raise _refused("The recorded plan leaves out a field of every plan.")
    try:
        # a study's parties may send factors of further columns: it is compared with the study
        again = _made_again(plan, without=() if certificate.study is not None else _COLUMNS)
    except EigenveilError as error:
        raise _refused(f"The recorded plan cannot be run: {error.message}") from None
    except (ArithmeticError, AssertionError, TypeError, ValueError) as error:
        raise _refused(f"The recorded plan cannot be run ({error}).") from None
    for name, found, value in _differences(plan, again):
        raise _refused(f"The plan records {name} = {found!r}, where a fit has {value!r}.")
    return plan


def check_against_plan(
    certificate: Certificate,
    plan: BasePlan,
    *,
    view: str,
    sharing: Callable[[Step], Sharing],
    records: Sequence[ReleaseRecord] | None = None,
) -> None:
    """Raise where a certificate states anything that its plan does not."""
    claim = claim_of(plan, view=view)
    for name, value in claim.model_dump().items():
        if (found := getattr(certificate.target, name)) != value:
            raise _refused(f"The claim has {name} = {found!r}, the plan {value!r}.")
    _check_sources(certificate, plan)
    _check_names(certificate, plan)
    given = certificate.releases if records is None else records
    pairs = list(zip(given, plan.schedule, strict=False))
    for record, planned in pairs:
        check_record(record, planned, plan, sharing(planned.step))
    budgets = _budgets(plan)
    for record, planned in pairs:
        _check_loss(record, budgets[planned.step].scaled(planned.fraction))
    wanted = proofs_of(
        certificate.releases,
        units=plan.unit is not None,
        federation=certificate.federation is not None,
        tree=certificate.tree is not None,
        groups=plan.apart is not None,
    )
    if certificate.proofs != wanted:
        raise _refused(f"The proofs of these releases are {', '.join(wanted)}; others are named.")


def check_model(result: Result) -> None:
    """Raise where what a file says of its model does not follow from its plan, or contradicts it.

    The estimator and its parameters must be such that make the recorded plan, or those of the
    recorded study; the model must have the plan's columns and no more components.
    """
    plan, spec, study = result.plan, result.spec, result.certificate.study
    task = task_of_plan(plan)
    kind = task.estimator("sites" if study is not None else task.path_of(plan))
    try:
        model = kind(**spec.parameters)
        options = model._options()
        if study is None:
            again = _made_again(plan, numbered(options, result.names))
            other = [name for name, _, _ in _differences(plan, again)]
        else:
            other = list(_other_than(study, _with_all_components(result, options)))
        columns = list(_of_columns(result, plan, spec.parameters))
    except (EigenveilError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise changed(f"The parameters cannot be those of the fit ({_first(error)}).") from None
    types = get_type_hints(type(result.factors))
    local = [one.name for one in options_of(task.name, options.path).values() if one.local]
    given = spec.parameters
    fits = [
        ("the estimator", spec.estimator == kind.__name__),
        ("the parameters", given.keys() == model.get_params(deep=False).keys()),
        ("what stays where it was fitted", all(given.get(name) is None for name in local)),
        ("the columns", result.features == plan.features),
        *((n, _is_a(getattr(result.factors, n), of)) for n, of in types.items()),
        ("the released sums", _has_its_sums(result)),
        *columns,
        *((name, False) for name in other),
    ]
    for name, right in fits:
        if not right:
            raise changed(f"{name} of the model is not what its certificate was made for.")


def _has_its_sums(result: Result) -> bool:
    found = dict(result.factors.released)
    for record in result.certificate.releases:
        values, size = found.pop(record.name, None), record.noise.size
        if record.mechanism.added and size <= MOST_KEPT and getattr(values, "size", -1) != size:
            return False
    return not found


def _of_columns(
    result: Result, plan: BasePlan, parameters: Mapping[str, Any]
) -> Iterator[tuple[str, bool]]:
    """Whether a model has its parameters' public centre and scales, or none where none are."""
    scale, ranges, center = (parameters.get(name) for name in ("scale", "ranges", "center"))
    public, factors = public_preparation(scale, ranges, plan.features, result.names), result.factors
    known = not plan.ranged or ranges is not None  # else they are those of the rows' schema
    middle = 0.0 if public.offset is None else public.offset
    widths = np.ones(plan.features) if public.scale is None else public.scale
    own = getattr(factors, "site_means", None)
    yield "site_means", (0 if own is None else len(own)) == plan.sites
    for name, kind, given in (
        ("mean", plan.centered, middle if plan.centered == "no" else center),
        ("scale", plan.scaled, widths),
    ):
        found = getattr(factors, name, None)
        if found is not None and kind != "private" and given is not None and known:
            wanted = np.asarray(given, np.float64) + np.zeros(plan.features)
            right = found.shape == wanted.shape and np.isclose(found, wanted, 1e-9, 0.0)
            if name == "mean":
                right |= widths == 0  # a column that is left out has none
            yield name, bool(np.all(right))


def _is_a(value: Any, kind: Any) -> bool:
    parts = get_args(kind)
    if isinstance(kind, UnionType):
        return any(_is_a(value, each) for each in parts)
    if isinstance(value, np.ndarray):
        return get_origin(kind) is np.ndarray and value.dtype == get_args(parts[1])[0]
    if get_origin(kind) is Mapping:
        pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
        return all(_is_a(n, parts[0]) and _is_a(v, parts[1]) for n, v in pairs)
    return type(value) is kind or (kind is float and type(value) is int)


def _with_all_components(result: Result, options: Options) -> dict[str, Any]:
    """The parameters, with the number of components where it was left to the columns."""
    given = dict(result.spec.parameters)
    if given.get("n_components", 0) is None:
        options = numbered(options, result.names, result.schema)
        given["n_components"] = all_components(options, result.features)
    return given


def _other_than(study: Mapping[str, Any], parameters: Mapping[str, Any]) -> Iterator[str]:
    """The parameters whose values are not those of the study that was made of them."""
    settled = {"n_components": study.get("components"), **of_sites(study["sites"])}
    for name, value in parameters.items():
        found = settled.get(name, study.get(name))
        chosen = (name, value) in (("protocol", "auto"), ("ranges", None))
        if (name in settled or name in study) and not chosen and value != found:
            yield name


def how_far(certificate: Certificate, plan: BasePlan) -> str:
    """What to report of a run that ended early; empty where it released everything."""
    if certificate.stopped is None:
        return ""
    return (
        f"The fit ended after {len(certificate.releases)} of {len(plan.schedule)} releases: "
        f"{certificate.stopped.rstrip('.')}. "
    )


def _class_of(recorded: dict[str, Any]) -> type[BasePlan]:
    task = recorded.get("task", "pca")
    if not isinstance(task, str) or task not in TASKS:
        raise _refused(f"The plan's task, {task!r}, is not known to this version.")
    kind: type[BasePlan] = TASKS[task].plan_type(recorded)
    return kind


def _made_again(
    plan: BasePlan, options: Options | None = None, *, without: Collection[str] = _COLUMNS
) -> BasePlan:
    """The plan that its own settled choices make, or ``options``."""
    task = task_of_plan(plan)
    context = {name: value for name, value in plan.context().items() if name not in without}
    made: BasePlan = task.make_plan(options or task.options_of_plan(plan), **context)
    return made.drawn_from(secure=plan.noise_source == "operating system")


def _differences(plan: BasePlan, again: BasePlan) -> Iterator[tuple[str, Any, Any]]:
    """The fields in which a plan is not what its choices make: name, found, what it would be."""
    for name in type(plan).model_fields:
        found, value = getattr(plan, name), getattr(again, name)
        if name == "factor":  # a number of optimisation: the records must have it, not this machine
            found, value = (None if f is None else f.blocks for f in (found, value))
        if not (_same_fractions(found, value) if name == "fractions" else found == value):
            yield name, found, value


def _same_fractions(first: dict[Step, float], second: dict[Step, float]) -> bool:
    return list(first) == list(second) and all(
        math.isclose(first[step], second[step], rel_tol=1e-12) for step in first
    )


def _check_sources(certificate: Certificate, plan: BasePlan) -> None:
    sources = {"the certificate": certificate.noise_source, "the plan": plan.noise_source}
    sources |= {f"release {record.name!r}": record.noise_source for record in certificate.releases}
    if len(set(sources.values())) > 1:
        parts = ", ".join(f"{source} according to {who}" for who, source in sources.items())
        raise _refused(f"The sources of the noise do not agree: {parts}.")


def _check_names(certificate: Certificate, plan: BasePlan) -> None:
    """The releases are those of the schedule, in its order, up to where the run ended."""
    names = [record.name for record in certificate.releases]
    planned = [release.name for release in plan.schedule]
    if not names:
        raise _refused("No release is recorded, so no guarantee can be computed.")
    strange = next((name for name in names if name not in planned), None)
    if strange is not None:
        raise _refused(f"Release {strange!r} is recorded, which the plan does not have.")
    twice = first_twice(names)
    if twice is not None:
        raise _refused(
            f"Release {twice!r} is recorded {names.count(twice)} times, the plan has it once."
        )
    wanted = [name for name in planned if name in names]
    if names != wanted:
        first = next(i for i, name in enumerate(names) if name != wanted[i])
        raise _refused(
            f"Release {names[first]!r} is recorded where the plan has {wanted[first]!r}: the "
            "releases are in another order."
        )
    missing = [name for name in planned if name not in names]
    if certificate.stopped is None:
        if missing:
            raise _refused(f"Release {missing[0]!r} is missing, which every run of the plan makes.")
        return
    if not missing:
        raise _refused("The run is recorded as ended early, and all its releases are recorded.")
    if names != planned[: len(names)]:
        raise _refused(f"Release {missing[0]!r} is missing before others that were made after it.")
    if plan.schedule[len(names)].beside:
        raise _refused(
            f"Release {missing[0]!r} is missing, which is made together with {names[-1]!r}."
        )
    if certificate.stopped != (why := plan.schedule[len(names) - 1].ends):
        raise _refused(
            f"The run is recorded as ended after {names[-1]!r} because {certificate.stopped!r}; "
            + (f"there the reason is that {why}." if why else "no run of the plan ends there.")
        )


def check_record(record: ReleaseRecord, planned: Planned, plan: BasePlan, sharing: Sharing) -> None:
    """Raise where a release has anything but what its plan gives it."""
    noise = record.noise
    fixed = {
        "statistic": (record.statistic, planned.statistic),
        "adjacency": (record.adjacency, plan.adjacency),
        "noise.kind": (noise.kind, plan.noises[planned.step].name),
        "noise.noise_parts": (noise.noise_parts, sharing.noise_parts),
        "noise.masks": (noise.masks, sharing.masks),
        "draws": (record.draws, planned.draws),
        "exposure": (record.exposure, sharing.exposure),
        "weight": (record.weight, 1.0),
        "stream": (record.stream, sharing.stream),
        "disjoint": (record.disjoint, sharing.disjoint),
        "sites": (record.sites, sharing.sites),
    }
    for name, (found, wanted) in fixed.items():
        if found != wanted:
            raise _refused(
                f"Release {record.name!r} has {name} = {found!r}, where the plan has {wanted!r}."
            )
    for name, (least, most) in ranges_of(plan, planned).items():
        if not least <= (value := getattr(record, name)) <= most:
            raise _refused(
                f"Release {record.name!r} has {name} = {value!r}, where the plan can have "
                f"{least:g} to {most:g}."
            )
    size = sizes_of(plan, planned, count=record.count_weight > 0)
    if noise.size not in size:
        raise _refused(
            f"Release {record.name!r} is recorded with {noise.size} values, where a fit of this "
            f"shape releases {size[-1] if len(size) == 1 else f'{size[0]} to {size[-1]}'}."
        )
    if noise.grid is None:
        raise _refused(f"Release {record.name!r} has no grid: nothing is proved of its sampler.")
    if (own := SHAPES[planned.statistic].grid) is not None:
        columns = plan.features
        grid = release_grid(noise.kind, noise.scale, own(plan), noise.size, columns, sharing)
        if noise.grid != grid:
            raise _refused(
                f"Release {record.name!r} has a grid of 2**{noise.grid}, where counts of "
                f"{'parts of ' if plan.weighted else ''}rows have 2**{grid}."
            )


def _budgets(plan: BasePlan) -> Mapping[Step, StepBudget]:
    try:
        return plan.budgets
    except EigenveilError as error:
        raise _refused(f"The recorded plan cannot be run: {error.message}") from None


def _check_loss(record: ReleaseRecord, budget: StepBudget) -> None:
    """A release costs what the plan gives it, no more and no less."""
    if budget.mu is not None:
        spent, most, room = record.mu(), budget.mu, 0.0
    else:
        assert budget.epsilon is not None
        spent, most = record.epsilon(), budget.epsilon
        room = _ARITHMETIC * record.sampling_error().log_ratio
    if not most * (1.0 - _AGREE) - room <= spent <= most * (1.0 + _AGREE):
        what = "mu" if budget.mu is not None else "epsilon"
        raise _refused(
            f"Release {record.name!r} costs {what} = {spent:.9g}, where the plan gives it "
            f"{most:.9g}: the recorded noise does not give the claim."
        )


def _first(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc']) or 'plan'}: {first['msg']}"
    return str(error)


def _refused(text: str) -> PrivacyError:
    return PrivacyError("certificate-does-not-fit", what=text)
