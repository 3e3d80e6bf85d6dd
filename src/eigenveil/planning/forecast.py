"""The forecast of each protocol of a study: simulated and counted, before any row is read.

The simulation is that of ``eigenveil plan`` (:mod:`eigenveil.planning.predict`) with the noise
that the sites draw together, all of them taking part and with as many rows each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.federation.protocols import PROTOCOLS
from eigenveil.linalg.eigen import leading_eigenpairs, small_matrix_threads
from eigenveil.models.driver import drive as drive_rounds
from eigenveil.models.model_options import DEFAULT_SPECTRUM as DEFAULT_SPECTRUM
from eigenveil.models.pca.plan import Plan
from eigenveil.models.plan import BasePlan
from eigenveil.models.rounds import Answers, Round, SumQuery
from eigenveil.models.schedule import Step
from eigenveil.models.shapes import planned_sizes
from eigenveil.models.tensors.plan import TensorPlan
from eigenveil.moments.accumulators import SecondMoment
from eigenveil.moments.engine import accumulate
from eigenveil.moments.norms import FloatArray
from eigenveil.moments.release import Release
from eigenveil.moments.source import ArrayRows, block_rows
from eigenveil.planning.predict import (
    components_expected,
    memory_bytes,
    parse_spectrum,
    released_values,
    try_pca,
)
from eigenveil.planning.simulated import SIMULATORS
from eigenveil.planning.trials import Rounds, Scenario, Simulation, TrialNoise, Trials
from eigenveil.privacy.statistics import tensor_size

if TYPE_CHECKING:
    from eigenveil.federation.study.study import Study

POOLED = "pooled"
# Sites of DPdisPCA whose factors are worth simulating: each costs an eigendecomposition.
_MOST_SITES = 16


@dataclass(frozen=True)
class Forecast:
    """What one protocol would give."""

    # Of the study's protocols, or "pooled": one fit to all rows, were they in one place
    protocol: str
    # Predicted fraction of the exact subspace's energy; `None` where it is not predicted
    captured_energy: float | None
    trials: Trials  # The simulated fits
    note: str  # What to know of the protocol, and why nothing was predicted
    # A site's largest message: its second moment, or its tensor where that is larger
    message_bytes: int
    # Numbers that leave a site in all rounds together; headers and keys add a few kilobytes
    round_bytes: int
    memory_bytes: int  # Peak memory of a site beyond its input


def forecast(
    study: Study,
    features: int,
    rows: int | None,
    spectrum: str | NDArray[np.float64] = DEFAULT_SPECTRUM,
    *,
    fits: int | None = None,
) -> Forecast:
    """What the study's protocol would give; deterministic.

    Of tasks other than PCA only the sizes are forecast.
    """
    plan = study.plan(features)
    counted = None if rows is None else _full_rows(study, rows)
    how, note = _simulation(study, plan, Simulation(fits))
    energy, trials, problem = _simulated(plan, counted, spectrum, how)
    protocol = PROTOCOLS[study.protocol]
    factors = protocol.sends_factors
    moment = features * plan.sketch_columns if factors else moment_values(plan)
    tensor = tensor_size(plan.rank) if "tensor" in plan.fractions else 0
    sent = planned_sizes(plan)
    if factors:  # a site's own factors, in place of its sum
        sent |= {each.name: moment for each in plan.schedule if each.step == "moment"}
    sums = [
        one.sizes[-1]
        for one in plan.schedule
        if one.sizes and (one.step == "sums" or one.statistic == "second-moment")
    ]
    message = 8 * max(moment, tensor, *sums)
    alone = protocol.first_site_only or len(study.sites) == 1
    return Forecast(
        protocol=study.protocol,
        captured_energy=energy,
        trials=trials,
        note="; ".join(filter(None, (note, problem))),
        message_bytes=message,
        round_bytes=8 * sum(sent.values()),
        memory_bytes=fit_memory(plan) + (0 if alone else 2 * message),  # a mask, and the sum
    )


def pooled(
    study: Study,
    features: int,
    rows: int | None,
    spectrum: str | NDArray[np.float64] = DEFAULT_SPECTRUM,
    *,
    fits: int | None = None,
) -> Forecast:
    """What :class:`~eigenveil.PrivatePCA` would give if all rows were in one place."""
    plan = study.with_protocol("local").plan(features)
    energy, trials, problem = _simulated(plan, rows, spectrum, Simulation(fits))
    note = "; ".join(filter(None, ("were all rows in one place", problem)))
    return Forecast(POOLED, energy, trials, note, 0, 0, fit_memory(plan))


def try_study(study: Study, data: Scenario, *, fits: int | None = None, seed: int = 0) -> Trials:
    """Simulated fits of a study's protocol, all sites taking part; of every task."""
    plan = study.plan(study.width)
    counted = replace(data, rows=max(1, round(_full_rows(study, data.rows))))
    how, _ = _simulation(study, plan, Simulation(fits, seed))
    return SIMULATORS[study.task](plan, counted, how)


def _full_rows(study: Study, rows: int) -> float:
    """As many rows of full weight, of the sites that take part."""
    weights = study.row_weights()
    if PROTOCOLS[study.protocol].first_site_only:
        return rows / len(weights) * weights[study.sites[0].name]
    return rows * math.fsum(weights.values()) / len(weights)


def moment_values(plan: BasePlan) -> int:
    """Numbers in the released second (or pair) moment."""
    if isinstance(plan, Plan):
        return released_values(plan)
    assert isinstance(plan, TensorPlan)
    d = plan.features
    return d * plan.sketch_columns if plan.pair == "sketch" else d * (d + 1) // 2


def fit_memory(plan: BasePlan) -> int:
    """Peak memory of a fit beyond its input, counted from the arrays it makes."""
    if isinstance(plan, Plan):
        return memory_bytes(plan)
    assert isinstance(plan, TensorPlan)
    d, k = plan.features, plan.n_components
    rows = 4 * block_rows(d) * d * 8
    # sum, 64-bit total, noise and release of the moment; the same of the tensor, and its entries
    pair = 6 * 8 * d * plan.sketch_columns if plan.pair == "sketch" else 5 * 8 * d * d
    return max(pair, 6 * 8 * k**3) + rows


def _simulation(study: Study, plan: BasePlan, how: Simulation) -> tuple[Simulation, str]:
    """Fits with the noise of all parties, and what to know of the protocol."""
    protocol = PROTOCOLS[study.protocol]
    if protocol.first_site_only:
        return how, protocol.forecast_note if len(study.sites) > 1 else ""
    how = replace(how, louder=noise_factors(study, plan))
    if protocol.sends_factors:
        return _each_by_itself(study, plan, how, protocol.forecast_note)
    return how, protocol.forecast_note


def noise_factors(study: Study, plan: BasePlan) -> dict[Step, float]:
    """Deviation of each step's noise, all sites taking part, over that of a single curator.

    Every site draws a share of which the honest sites' suffice: the others' come on top.
    """
    protocol, sites = PROTOCOLS[study.protocol], len(study.sites)
    if protocol.first_site_only:
        return {}
    factors: dict[Step, float] = {
        step: math.sqrt(plan.noises[step].parts_drawn(sites, study.honest, plan.features))
        for step in plan.fractions
    }
    if protocol.own_moment and not protocol.sends_factors:
        factors["moment"] = math.sqrt(sites)
    return factors


def _simulated(
    plan: BasePlan, rows: float | None, spectrum: str | NDArray[np.float64], how: Simulation
) -> tuple[float | None, Trials, str]:
    """Captured energy at so many rows of full weight, the fits; and if there are none, why."""
    if type(plan) is not Plan:  # what a model built on PCA's plan makes of it is its own
        return None, Trials(), "only the sizes are forecast for this task"
    eigenvalues = parse_spectrum(spectrum, plan.features) if isinstance(spectrum, str) else spectrum
    if rows is None:
        return None, Trials(), ""
    components = components_expected(plan, eigenvalues)
    if rows < components:
        return None, Trials(), f"{rows:.3g} rows are too few for {components} components"
    trials = try_pca(plan, Scenario(round(rows), eigenvalues), how)
    return trials.shown_quality, trials, trials.note.rstrip(".")


def _each_by_itself(
    study: Study, plan: BasePlan, how: Simulation, note: str
) -> tuple[Simulation, str]:
    """DPdisPCA: moments released and cut to R eigenpairs by each site, then added up.

    Fewer sites than there are get rows in proportion, so that noise keeps its size against a
    site's rows; adding up fewer averages out less, so the prediction is then on the low side.
    """
    sites = len(study.sites)
    simulated = min(sites, _MOST_SITES)
    if simulated < sites:
        note += f"; simulated with {simulated} sites"

    def drive(rounds: Rounds, rows: FloatArray, noise: TrialNoise) -> Any:
        everyone = ArrayRows(rows)
        parts = [ArrayRows(each) for each in np.array_split(rows, simulated)]

        def answer(queries: Round) -> Answers:
            return {
                query.name: _sum_of_factors(query, parts, plan.sketch_columns, noise)
                if isinstance(query.accumulator, SecondMoment)
                else _released(query, everyone, noise)
                for query in queries
            }

        with small_matrix_threads(rows.shape[1]):
            return drive_rounds(rounds, answer)

    return replace(how, louder={**how.louder, "moment": sites / simulated}, drive=drive), note


def _released(query: SumQuery, rows: ArrayRows, noise: TrialNoise) -> Release:
    accumulator = query.accumulator.empty()
    accumulate(rows, [accumulator])
    return noise.release(query, accumulator)


def _sum_of_factors(
    query: SumQuery, parts: list[ArrayRows], rank: int, noise: TrialNoise
) -> Release:
    total = np.zeros(query.accumulator.shape)
    for rows in parts:
        noisy = _released(query, rows, noise).values
        values, vectors = leading_eigenpairs(noisy, min(rank, total.shape[0]))
        total += (vectors.T * np.maximum(values, 0.0)) @ vectors
    return Release(query.record, total, edge=0.0)
