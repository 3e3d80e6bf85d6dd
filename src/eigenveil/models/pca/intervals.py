"""Intervals of a PCA and of a covariance: which released facts each number rests on.

Of a second moment that was released once, that release; of two, both where they are of the same
rows, and else the one whose rows are those that the result is of: its noise is the whole error,
whatever the other one was of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256

import numpy as np

from eigenveil.models.explained import MeanLeft
from eigenveil.models.intervals import moment as known
from eigenveil.models.intervals.bars import Array, Bars, Kind, Quantity, deviations, numbered
from eigenveil.models.intervals.moment import NoisyEnergies, NoisyMoment
from eigenveil.models.intervals.recorded import drawn
from eigenveil.models.pca.adaptive import WHOLE_ROWS
from eigenveil.models.pca.plan import ADAPTED_MEAN, ENERGIES, MEAN_LEFT, Plan
from eigenveil.models.pca.precondition import ONE_RELEASE
from eigenveil.models.pca.ways import ADAPTED, MOMENT
from eigenveil.models.result import Result, reciprocal
from eigenveil.noise.entries import from_coordinates

NO_KURTOSIS = "how far rows vary needs their fourth moments, which are not released"
OF_TABLE = "it is a number of this table"
UNIT_ROWS = "rows were divided by their norms, which says nothing of how far a column varies"
PUBLIC = "it is public, not released"
NOT_WHOLE = "the whole second moment was not released"
OF_STREAM = "releases of a stream share their noise"
WITH_HOLES = "rows with missing values were corrected by released counts"
REFINED = "columns' scales were read off the same release"
CUT_OFF = "sites sent the leading part of their moments"
LEFT_OUT = "the column was left out"
NO_ENERGIES = "variances were not released by themselves, and rows were divided by their norms"
ENDED = "the fit ended before it was released"


def of_stream(result: Result) -> bool:
    """Whether a release was of a stream that publishes more than once."""
    return any(each.stream is not None or each.disjoint for each in result.certificate.releases)


def moment_of(result: Result) -> NoisyMoment | str:
    """What is known of the prepared rows' second moment; or why it is not known well enough."""
    plan = result.plan
    assert isinstance(plan, Plan)
    names = {record.name: record for record in result.certificate.releases}
    federation = result.certificate.federation
    reasons = {
        NOT_WHOLE: not plan.way.whole,
        WITH_HOLES: bool(plan.counts_of_holes()),
        REFINED: plan.refines_scales,
        ENDED: MOMENT not in names,
        OF_STREAM: of_stream(result),
        CUT_OFF: federation is not None
        and federation.moments.released_by_each
        and not federation.moments.summed,
    }
    for reason, holds in reasons.items():
        if holds:
            return reason
    adapted = getattr(result.factors, "adapted", "")
    if adapted == WHOLE_ROWS:
        return _one_moment(result, ADAPTED, ADAPTED_MEAN)
    first = _one_moment(result, MOMENT, MEAN_LEFT)
    if adapted != ONE_RELEASE or isinstance(first, str):
        return first
    second = _one_moment(result, ADAPTED, ADAPTED_MEAN)
    assert isinstance(second, NoisyMoment)
    return _averaged(first, second)


def _one_moment(result: Result, name: str, mean: str) -> NoisyMoment | str:
    features, factors = result.plan.features, result.factors
    records = {record.name: record for record in result.certificate.releases}
    entries = factors.released.get(name)
    if entries is None or entries.size != features * (features + 1) // 2:
        return "of a matrix beyond 32 MiB the spectrum alone is kept"
    record = records[name]
    more = drawn(record, result)
    matrix = from_coordinates("symmetric", (features, features), entries)
    left = None
    if mean in factors.released:
        of_mean = records[mean]
        error = of_mean.noise.deviation(features) * drawn(of_mean, result)
        left = MeanLeft(factors.released[mean], error, factors.rows, of_mean.mechanism)
        matrix = matrix - left.outer()
    return NoisyMoment(
        matrix,
        record.noise.deviation(features) * more,
        record.noise.edge(features, features) * more,
        factors.rows,
        factors.rows_error,
        left,
        seed=seed_of(result),
    )


def _averaged(one: NoisyMoment, other: NoisyMoment) -> NoisyMoment:
    """Of two releases of the same rows, by precision."""
    part = other.error**2 / (one.error**2 + other.error**2)
    left = one.left
    if one.left is not None and other.left is not None:
        both = other.left.error**2 / (one.left.error**2 + other.left.error**2)
        left = one.left.averaged(other.left, both)
    whole = [
        each.matrix + (0.0 if each.left is None else each.left.outer()) for each in (one, other)
    ]
    matrix = part * whole[0] + (1.0 - part) * whole[1]
    return replace(
        one,
        matrix=matrix if left is None else matrix - left.outer(),
        error=one.error * math.sqrt(part),
        edge=one.edge * math.sqrt(part),
        left=left,
    )


def of_rows(result: Result) -> str:
    """The rows that a moment is of, in a sentence's end."""
    bound = result.row_bound
    if bound > 0:
        return f"of rows shortened to {bound:.4g} about the mean that was used"
    return "of rows divided by their norms about the mean that was used"


def seed_of(result: Result) -> int:
    """Of draws about a result: from what it released first.

    Those are whole numbers of a grid, the same with every processor's linear algebra; what is
    computed of them differs in its last bits.
    """
    first = next(iter(result.factors.released.values()))
    return int.from_bytes(sha256(np.ascontiguousarray(first).tobytes()).digest()[:8], "little")


def energies_of(result: Result) -> NoisyEnergies | str:
    """Energies along the components, where they were released by themselves."""
    factors, plan = result.factors, result.plan
    assert isinstance(plan, Plan)
    values = factors.released.get(ENERGIES)
    if values is None or not factors.variance_bound:
        return NO_ENERGIES
    if plan.counts_of_holes():
        return WITH_HOLES
    record = next(each for each in result.certificate.releases if each.name == ENERGIES)
    count = plan.n_components
    return NoisyEnergies(
        along=values[:count],
        rest=float(values[count]),
        error=record.noise.deviation(count) * drawn(record, result),
        rows=factors.rows,
        rows_error=factors.rows_error,
        unit=factors.variance_bound**2,
        total=factors.total_variance if plan.refines_scales else None,
    )


class Makers:
    """Quantities of one result at one level, of one kind."""

    def __init__(self, result: Result, level: float, of: Kind) -> None:
        self.result, self.level, self.of = result, level, of
        self.width = deviations(level)
        self.moment, self.of_rows = moment_of(result), of_rows(result)
        self.features = result.labels

    def made(self, bars: Bars | str, shape: tuple[int, ...], *, drawn_too: bool = False) -> Bars:
        """Bars, or none of them with the reason; of the population only what is said to be."""
        if self.of == "population" and not drawn_too:
            bars = NO_KURTOSIS
        return Bars.none(shape, bars) if isinstance(bars, str) else bars

    def rows(self) -> Quantity:
        factors = self.result.factors
        bars = Bars.about(
            np.array(factors.rows), self.width * np.array(factors.rows_error), within=(0.0, np.inf)
        )
        if self.of == "population" or of_stream(self.result):
            bars = Bars.none((), OF_TABLE if self.of == "population" else OF_STREAM)
        return Quantity("rows", "number of rows", (), (), bars)

    def means(self) -> Quantity:
        """Their noise is known; of the population, columns' variances are in it, too."""
        factors, facts, shape = self.result.factors, self.moment, (self.result.features,)
        error: Array | str = factors.mean_error
        if self.of == "population":
            error = facts if isinstance(facts, str) else UNIT_ROWS
            if not isinstance(facts, str) and factors.row_bound > 0:
                sums = (
                    np.maximum(np.diag(facts.matrix), 0.0) * (factors.row_bound / facts.rows) ** 2
                )
                error = np.sqrt(factors.mean_error**2 + sums * factors.scale**2)
        bars: Bars | str = (
            error
            if isinstance(error, str)
            else Bars.about(factors.mean, self.width * error).but(factors.mean_error == 0, PUBLIC)
        )
        about = f"mean of the {self.of}, of rows shortened for it"
        made = self.made(bars, shape, drawn_too=True)
        plan = self.result.plan
        groups = plan.scores_by if isinstance(plan, Plan) else ()
        made = made.but(np.isin(np.arange(shape[0]), groups), LEFT_OUT)
        return Quantity("mean", about, ("feature",), (self.features,), made)

    def eigenvalues(self, count: int) -> Quantity:
        """Of the prepared rows, in the units of the bound."""
        bound = self.result.factors.row_bound or 1.0
        made = self.moment
        bars = (
            made
            if isinstance(made, str)
            else known.eigenvalues(made, count, self.width, self.level).times(bound**2)
        )
        about = f"variance along the exact components {self.of_rows}"
        return Quantity(
            "eigenvalue", about, ("component",), (numbered(count),), self.made(bars, (count,))
        )


def of_pca(result: Result, level: float, of: Kind) -> Iterator[Quantity]:
    """All that a PCA has intervals of."""
    make, components = Makers(result, level, of), result.factors.components
    count = components.shape[0]
    yield make.rows()
    yield make.means()
    yield from _variances(make, count)
    yield make.eigenvalues(count)
    facts, pcs = make.moment, numbered(count)
    entries: Bars | str = (
        facts if isinstance(facts, str) else known.loadings(facts, components, make.width)
    )
    yield Quantity(
        "component",
        f"entries of the exact components {make.of_rows}",
        ("component", "feature"),
        (pcs, make.features),
        make.made(entries, components.shape),
    )
    entries = facts if isinstance(facts, str) else known.correlated(facts, components, make.width)
    yield Quantity(
        "loading",
        f"correlations of columns with scores along the exact components, {make.of_rows}",
        ("component", "feature"),
        (pcs, make.features),
        make.made(entries, components.shape),
    )
    turned: Bars | str = facts if isinstance(facts, str) else known.angles(facts, components, level)
    about = "degrees between a component and the exact one, at most"
    yield Quantity("angle", about, ("component",), (pcs,), make.made(turned, (count,)))
    together: Iterable[Bars | str] = (
        (facts, facts) if isinstance(facts, str) else known.subspace(facts, components, level)
    )
    said = {
        "subspace_angle": "largest angle of all components together to the exact ones, at most",
        "lost_energy": "part of the exact components' energy that these lose, at most",
    }
    for (name, about), bars in zip(said.items(), together, strict=True):
        yield Quantity(name, about, (), (), make.made(bars, ()))


def _variances(make: Makers, count: int) -> Iterator[Quantity]:
    """Explained variances: of their own release, or else of the moment's eigenvalues."""
    result, width, facts = make.result, make.width, make.moment
    own = energies_of(result)
    bound = result.factors.variance_bound
    if not isinstance(own, str):
        rows = f"of rows shortened to {bound:.4g} about the mean that was used"
        found: list[Bars | str] = [
            known.energies(own, width),
            known.energy_shares(own, width),
            known.energy_shares(own, width, summed=True),
        ]
    elif result.factors.row_bound > 0 and not isinstance(facts, str):
        rows = make.of_rows
        found = [
            known.eigenvalues(facts, count, width, make.level).times(result.factors.row_bound**2),
            known.shares(facts, count, width),
            known.shares(facts, count, width, summed=True),
        ]
    else:
        rows, found = make.of_rows, [own] * 3
    abouts = {
        "explained_variance": f"variance along the components {rows}",
        "explained_variance_ratio": f"part of the variance along the components {rows}",
        "cumulative_ratio": f"part of the variance along the first components {rows}",
    }
    for (name, about), bars in zip(abouts.items(), found, strict=True):
        made = bars if isinstance(bars, str) else _first(bars, count)
        yield Quantity(name, about, ("component",), (numbered(count),), make.made(made, (count,)))


def _first(bars: Bars, count: int) -> Bars:
    """Of the first components, where fewer were kept."""
    return replace(bars.each(lambda end: end[:count]), why=bars.why[:count])


def of_covariance(result: Result, level: float, of: Kind) -> Iterator[Quantity]:
    """All that a covariance has intervals of."""
    make, factors, size = Makers(result, level, of), result.factors, result.features
    yield make.rows()
    yield make.means()
    facts: NoisyMoment | str = make.moment
    if factors.row_bound == 0:
        facts = UNIT_ROWS
    unit = factors.row_bound * factors.scale
    units = np.multiply.outer(unit, unit)
    left = np.logical_or.outer(factors.scale == 0, factors.scale == 0)
    found: dict[str, tuple[str, Bars | str]] = {}
    for name, about, function, each in (
        ("covariance", f"covariances {make.of_rows}", known.covariances, units),
        ("correlation", f"correlations {make.of_rows}", known.correlations, None),
        ("precision", f"the covariance's inverse, {make.of_rows}", known.precisions, None),
    ):
        bars: Bars | str = facts if isinstance(facts, str) else function(facts, make.width)
        if not isinstance(bars, str):
            factor = each if each is not None else np.ones_like(units)
            if function is known.precisions:
                factor = reciprocal(units)
            bars = bars.times(factor).but(left, LEFT_OUT)
        found[name] = (about, bars)
    axes, labels = ("feature", "other"), (make.features, make.features)
    for name, (about, bars) in found.items():
        yield Quantity(name, about, axes, labels, make.made(bars, (size, size)))
    yield make.eigenvalues(size)
