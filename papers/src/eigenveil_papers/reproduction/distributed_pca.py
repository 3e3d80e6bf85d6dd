"""PCA of several sites, method by method: what the figures of papers 000 and 001 measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from eigenveil import PrivatePCA
from eigenveil.errors import PrivacyError
from eigenveil.linalg.eigen import leading_eigenpairs
from eigenveil.models.model_options import OF_SKETCH
from eigenveil.models.pca.federated import FederatedPCA
from eigenveil_papers.published import (
    PublishedMoment,
    capepca,
    dispca,
    djica,
    dpdispca,
    full,
    local,
    pooled,
    second_moments,
)
from eigenveil_papers.published.moments import pooled_moment
from eigenveil_papers.reproduction.data import Source, drawn_rows, kept, unit_rows
from eigenveil_papers.reproduction.experiment import Point
from eigenveil_papers.reproduction.numbers import FloatArray, made_up_rows, random_directions

Sweep = Literal["epsilon", "rows", "sites", "rank", "delta"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    components: int  # K
    intermediate: int  # R, columns of a message of DPdisPCA and of the sketch
    sites: int  # S, with equally many rows each
    rows: int  # N, of all sites together
    epsilon: float
    delta: float

    def at(self, sweep: Sweep, x: float) -> Setting:
        """The setting at a position of a panel; "rank" is R over K, "rows" is N."""
        match sweep:
            case "rows":
                return replace(self, rows=int(x))
            case "sites":
                return replace(self, sites=int(x))
            case "rank":
                return replace(self, intermediate=max(1, round(x * self.components)))
            case "epsilon":
                return replace(self, epsilon=x)
            case "delta":
                return replace(self, delta=x)

    def as_arguments(self) -> dict[str, Any]:
        return asdict(self)


class Split:
    """Rows dealt out to sites, and what all methods share of them: exact second moments."""

    def __init__(self, prepared: FloatArray, raw: FloatArray, *, sites: int, components: int):
        self.rows = np.array_split(prepared, sites)
        self.raw = np.array_split(raw, sites)
        self.together = prepared
        self.moments: list[PublishedMoment] = second_moments(self.rows, row_bound=1.0)
        self.mean = pooled_moment(self.moments).mean
        values, self.exact = leading_eigenpairs(self.mean, components)
        self.best = float(np.sum(values))

    def captured(self, components: FloatArray) -> float:
        """Energy that orthonormal rows (k, D) capture, over what the exact ones do."""
        along = np.einsum("kd,kd->", components @ self.mean, components)
        return float(along) / self.best


def captured_energy(
    rng: np.random.Generator,
    *,
    name: str,
    data: Mapping[str, Any],
    sweep: Sweep,
    values: Sequence[float],
    setting: Mapping[str, Any],
    series: Sequence[str],
    protocol: bool = False,
) -> Iterator[Point]:
    """One run of a panel: all methods at all positions, on rows dealt out to sites at random."""
    base = Setting(**setting)
    prepared, raw = prepared_rows(data), raw_rows(data)
    order = rng.permutation(prepared.shape[0])
    splits: dict[tuple[int, int], Split] = {}
    for x in values:
        here = base.at(sweep, x)
        key = (here.rows, here.sites)
        if key not in splits:
            splits.clear()
            taken = order[: here.rows]
            splits[key] = Split(
                prepared[taken], raw[taken], sites=here.sites, components=here.components
            )
        for of in series:
            found = subspace(of, splits[key], here, rng=rng, protocol=protocol)
            if found is not None:
                yield Point(f"{name}-{sweep}", of, float(x), splits[key].captured(found))


def subspace(
    series: str, split: Split, setting: Setting, *, rng: np.random.Generator, protocol: bool
) -> FloatArray | None:
    """Orthonormal rows (K, D) that a method finds; None where the setting is not one of its."""
    k, r = setting.components, setting.intermediate
    target: dict[str, Any] = {"n_components": k, "epsilon": setting.epsilon, "delta": setting.delta}
    drawn: dict[str, Any] = {**target, "random_state": rng}
    moments = split.moments
    match series:
        case "exact":
            return split.exact
        case "local-exact":
            return leading_eigenpairs(moments[-1].mean, k)[1]
        case "dispca":
            return dispca(moments, n_components=k, intermediate=r).components
        case "pooled":
            return pooled(moments, **drawn).components
        case "local":
            return local(moments, **drawn).components
        case "full" | "conv":
            return full(moments, **drawn).components
        case "dpdispca":
            return dpdispca(moments, intermediate=r, **drawn).components
        case "dpdispca-by-value":
            return dpdispca(moments, intermediate=r, rank_by="value", **drawn).components
        case "djica":
            return None if r < k else djica(moments, intermediate=r, **drawn).components
        case "capepca":
            return capepca(moments, **drawn).components
        case "pooled-by-value":  # capePCA's sum has this noise, too
            return pooled(moments, rank_by="value", **drawn).components
        case "random":
            return random_directions(split.together.shape[1], k, rng)
    if series == "eigenveil-sketch" and r < k:
        return None
    try:
        fitted = sound(series, split, setting, seed=int(rng.integers(2**31)), protocol=protocol)
    except PrivacyError:  # too few rows for the target: it says so and returns nothing
        return random_directions(split.together.shape[1], k, rng)
    return np.asarray(fitted.components_)


def sound(
    series: str, split: Split, setting: Setting, *, seed: int, protocol: bool
) -> FederatedPCA | PrivatePCA:
    """A fit by this package's public classes, for one row changed and against the aggregator.

    ``eigenveil`` and ``eigenveil-sketch`` get the rows that the published methods get and spend all
    on the second moment; rows are divided by their own norms, so the largest norm plays no part.
    ``eigenveil-add-remove`` is the same for one row more or less. ``eigenveil-all`` gets the rows
    in their own units and assumes nothing: scale, centre, second moment and variances share the
    budget. With ``protocol`` this is a :class:`FederatedPCA`, whose sites' masked sum carries the
    noise of one curator; else that curator, a :class:`PrivatePCA`, with a record of the same noise,
    which the tests compare.
    """
    target: dict[str, Any] = {
        "n_components": setting.components,
        "epsilon": setting.epsilon,
        "delta": setting.delta,
        "adjacency": "add-remove" if series == "eigenveil-add-remove" else "replace-one",
        "random_state": seed,
    }
    if series == "eigenveil-all":
        sites, together = split.raw, None
    else:
        sites, together = split.rows, split.together
        target |= {"center": False, "budget_split": {"moment": 1.0}}
    sketch: dict[str, Any] = (
        {OF_SKETCH: setting.intermediate} if series == "eigenveil-sketch" else {}
    )
    if protocol:
        kind, noise = ("sketch", "auto") if sketch else ("cape", "gaussian")
        return FederatedPCA(protocol=kind, mechanism=noise, **target, **sketch).fit(sites)
    rows = np.vstack(sites) if together is None else together
    mechanism = "sketch" if sketch else "gaussian"
    return PrivatePCA(mechanism=mechanism, **target, **sketch).fit(rows)


# Rows


@kept
def raw_rows(data: Mapping[str, Any]) -> FloatArray:
    """Rows in their own units; do not write to them.

    ``data`` holds ``"source"``, a :class:`Source` as arguments, with ``"rows"`` where it has more,
    or ``"made_up"``, the arguments of :func:`made_up_rows`.
    """
    if "made_up" in data:
        return made_up_rows(**data["made_up"])
    return drawn_rows(Source.of(data["source"]), data.get("rows"))


@kept
def prepared_rows(data: Mapping[str, Any]) -> FloatArray:
    """The same, centred by their exact mean and divided by the largest norm: as in the papers."""
    return unit_rows(raw_rows(data))


def shape_of(data: Mapping[str, Any]) -> tuple[int, int]:
    """How many rows and features there are; made-up rows are not made for it."""
    made_up = data.get("made_up")
    n, features = (made_up["rows"], made_up["features"]) if made_up else raw_rows(data).shape
    return int(n), int(features)
