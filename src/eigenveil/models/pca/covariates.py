"""Effects of covariates, from a released second moment of all columns (tables.md, section 4).

With rows (x, z) about their centre, z the covariates, the effects are ``B = S_xz S_zz^-1``. Rows
are then taken less them, ``x - B z``, before their norms are: the Schur complement of a moment of
rows that were shortened one by one is another matrix. All here is post-processing, but for the
rounds' queries.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.models.options import Options
from eigenveil.models.pca.plan import COVARIATES, JOINT_SCALE, Plan
from eigenveil.models.rounds import Answers, Round, RoundState, SumQuery
from eigenveil.models.scale import NormScale
from eigenveil.moments.accumulators import SecondMoment
from eigenveil.moments.preparation import LARGEST_EFFECT, Effects
from eigenveil.moments.rows import Precision
from eigenveil.privacy.releases import ReleaseRecord
from eigenveil.tables.schema import Schema, levels_among

Array = NDArray[np.float64]

# Rows are shortened at this quantile of their norms, or at a public bound: less would weigh rows by
# their lengths, which changes effects.
_QUANTILE = 0.90


def effects_of(matrix: Array, columns: Sequence[int], edge: float) -> tuple[Array, float]:
    """Effects of covariates on all columns, and what noise adds to the energy of residuals."""
    places = list(columns)
    values, vectors = np.linalg.eigh(matrix[np.ix_(places, places)])
    bounded = np.maximum(values, max(edge, np.finfo(float).tiny))
    across = matrix[:, places].copy()
    across[places] = 0.0
    effects = across @ (vectors / bounded) @ vectors.T
    entry = edge / (2.0 * math.sqrt(matrix.shape[0]))  # deviation of symmetric noise of this edge
    others = matrix.shape[0] - len(places)
    error = others * entry**2 * float(np.sum(np.maximum(values, 0.0) / bounded**2))
    return np.clip(effects, -LARGEST_EFFECT, LARGEST_EFFECT), error


def find_effects(
    state: RoundState[Any], scale: NormScale | None
) -> Generator[Round, Answers, NormScale | None]:
    """Effects of the plan's covariates; the state's preparation takes them off from then on."""
    plan: Plan = state.plan
    if not plan.covariates:
        return scale
    if any(planned.name == JOINT_SCALE for planned in plan.schedule):
        answers = yield (state.query(JOINT_SCALE, state.histogram()),)
        scale = state.read(answers[JOINT_SCALE])
        if not scale.found:
            state.stop_for_few_rows(JOINT_SCALE)
            return None
    bound = plan.row_bound
    if bound is None:
        assert scale is not None
        bound = scale.quantile(_QUANTILE)
    query = _joint_moment(state, bound, plan.precision)
    # a covariate that single precision would round away may be above the noise
    precision = state.precision(_edge_of(query.record))
    if precision != plan.precision:
        query = _joint_moment(state, bound, precision)
    answers = yield (query,)
    release = answers[COVARIATES]
    edge = _edge_of(release.record)
    sizes, error = effects_of(release.values, plan.covariates, edge)
    # per row, in the rows' units; of the number of rows, where no other is known, their energy
    rows = state.rows or max(1.0, float(np.trace(release.values)))
    state.effects_error += error * bound**2 / rows
    state.preparation = replace(state.preparation, effects=Effects(plan.covariates, sizes))
    return scale


def _joint_moment(state: RoundState[Any], bound: float, precision: Precision) -> SumQuery:
    extra_bits = state.coarser(precision, "covariates")
    rule = state.rule(bound, precision=precision, extra_bits=extra_bits)
    return state.query(COVARIATES, SecondMoment(rule, features=state.plan.features))


def _edge_of(record: ReleaseRecord) -> float:
    """Largest eigenvalue that the noise of a joint moment alone shows."""
    features = math.isqrt(2 * record.noise.size)  # of D (D + 1) / 2 values
    return record.noise.edge(features, features)


def effects_in_data_units(state: RoundState[Any]) -> Array | None:
    """Effects as whoever has rows needs them, shape (D, q); ``None`` without covariates."""
    first = state.preparation
    if not state.plan.covariates:
        return None
    columns = list(state.plan.covariates)
    if first.effects is None:  # the fit ended before they were released
        return np.zeros((state.plan.features, len(columns)))
    if first.scale is None:
        return first.effects.sizes
    assert first.factors is not None
    return np.asarray(first.effects.sizes * first.scale[:, None] * first.factors[columns])


def numbered(
    options: Options, names: Sequence[str] | None, schema: Schema | None = None
) -> Options:
    """The options, with columns aside given by their numbers; those without one stay names.

    A category that scores are counted by is all of its levels' columns; by a schema nothing else
    is one.
    """
    places = {name: place for place, name in enumerate(names or ())}
    for option in ("covariates", "scores_by"):
        given = options.get(option)
        if given is None:
            continue
        found: list[int | str] = []
        for each in (given,) if isinstance(given, str) else given:
            levels = levels_among(each, names or ())
            category = option == "scores_by" and each not in places and levels
            found += levels if category else [places.get(each, each)]
        options = options.changed(**{option: tuple(found)})
        if schema is not None and option == "scores_by":
            _check_categories(options, found, schema)
    return options


def _check_categories(options: Options, found: Sequence[int | str], schema: Schema) -> None:
    """Refuse groups that are no levels of a category: what a number may be is not public."""
    columns = [column for column in schema.read for _ in column.encoded_names]
    for place in found:
        if isinstance(place, int) and place < len(columns) and not columns[place].of_kind.levelled:
            column = columns[place]
            raise options.refused(
                "scores_by", "groups-not-public", column=column.name, kind=column.kind
            )
