"""What a released second moment and its recorded noise say: entries, eigenvalues, directions.

One class of facts (:class:`NoisyMoment`), and one function a quantity. The noise is normal with
deviation ``error`` in isometric coordinates: a coordinate of an entry off the diagonal is sqrt(2)
times the entry, so that ``u' N v`` has variance ``error^2 / 2 (|u|^2 |v|^2 + (u' v)^2)``. Estimates
rest on the released matrix itself, never on one that was shrunk: intervals round a shrunk matrix
miss (docs/intervals.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from eigenveil.linalg.eigen import fix_signs
from eigenveil.models.explained import MeanLeft, shown_beside
from eigenveil.models.intervals.bars import Array, Bars, Flags

# An eigenvalue is clear so far above the noise's edge, and so many deviations from its neighbours.
_CLEAR, _APART = 1.25, 4.0
# What makes it be taken for clear makes a gap look wider than it is, by this part of its error.
_TOO_WIDE = 0.5
# The last component is so many from the next, where all together are looked at.
_LAST_APART = 6.0
# Variances that are divided by exceed so many deviations; all eigenvalues of a matrix that is
# inverted so many edges.
_SURE, _INVERTIBLE = 4.0, 4.0
# Draws of what has no quantile in closed form.
_DRAWS, _DRAWS_WHERE_LARGE, _LARGE = 4000, 500, 100

BORDERLINE = "it is neither clear of the noise nor hidden by it"
NEIGHBOURS = "it is within four standard errors of its neighbour"
HIDDEN = "noise hides it"
WEAK = "a variance is within four standard errors of zero"
SINGULAR = "an eigenvalue of the covariance is not far above the noise"
EVERY = "all directions are components"
NOT_ALL = "not all components are clear of the noise and of one another"


@dataclass(frozen=True)
class NoisyMoment:
    """A released sum of products of prepared rows, less their mean: all that is known of it."""

    matrix: Array  # Released, (D, D), less what the released mean leaves
    error: float  # Deviation of its noise, isometric
    edge: float  # Largest eigenvalue that the noise alone shows
    rows: float
    rows_error: float
    left: MeanLeft | None = None
    seed: int = 0  # Of draws: from what was released

    @property
    def size(self) -> int:
        return int(self.matrix.shape[0])

    def variances(self, one: Array, other: Array) -> Array:
        """Of ``u' N v`` for every pair of directions, rows of (p, D) and (q, D): shape (p, q)."""
        squares = np.multiply.outer(np.vecdot(one, one), np.vecdot(other, other))
        crossed = one @ other.T
        found = self.error**2 * 0.5 * (squares + crossed**2)
        if self.left is None:
            return np.asarray(found)
        # the error of the mean's noise d: (d s' + s d')/n, and of what it does to itself
        ours, theirs = one @ self.left.total, other @ self.left.total
        across = np.multiply.outer(np.vecdot(one, one), theirs**2)
        across += np.multiply.outer(ours**2, np.vecdot(other, other))
        across += 2.0 * crossed * np.multiply.outer(ours, theirs)
        each = (self.left.error / self.rows) ** 2
        return np.asarray(found + each * (across + self.left.error**2 * (squares + crossed**2)))

    @cached_property
    def of_entries(self) -> Array:
        """Of all entries, shape (D, D)."""
        identity = np.eye(self.size)
        return self.variances(identity, identity)

    @cached_property
    def floor(self) -> float:
        """What an eigenvalue exceeds that is clear of the noise, and of a mean that may be left."""
        left = 0.0 if self.left is None else self.left.remaining()
        return max(_CLEAR * self.edge, shown_beside(self.edge, left))

    @property
    def counted(self) -> float:
        """Relative error of a number that is divided by that of rows."""
        return self.rows_error / self.rows

    def per_row(self, sums: Array, variances: Array, deviations: float) -> Bars:
        """Sums with these variances, over the number of rows."""
        own = np.sqrt(variances + (sums * self.counted) ** 2)
        return Bars.about(sums / self.rows, deviations * own / self.rows)

    @cached_property
    def spectrum(self) -> NoisySpectrum:
        return NoisySpectrum(self)


def covariances(facts: NoisyMoment, deviations: float) -> Bars:
    """Entries of the moment over the number of rows: the law of the noise itself."""
    return facts.per_row(facts.matrix, facts.of_entries, deviations)


def correlations(facts: NoisyMoment, deviations: float) -> Bars:
    """By the delta method, where both variances stand far above their noise."""
    variance, own = np.diag(facts.matrix), np.diag(facts.of_entries)
    weak = variance <= _SURE * np.sqrt(own)
    safe = np.where(weak, 1.0, variance)
    root = np.sqrt(np.multiply.outer(safe, safe))
    found = facts.matrix / root
    relative = own / safe**2
    spread = facts.of_entries / root**2
    spread = spread + 0.25 * found**2 * np.add.outer(relative, relative)
    np.fill_diagonal(spread, 0.0)
    bars = Bars.about(found, deviations * np.sqrt(spread), within=(-1.0, 1.0))
    return bars.but(np.logical_or.outer(weak, weak), WEAK)


def precisions(facts: NoisyMoment, deviations: float) -> Bars:
    """Entries of the inverse, by the delta method, where no eigenvalue is near the noise."""
    shape = facts.matrix.shape
    if facts.spectrum.values[-1] <= _INVERTIBLE * facts.edge:
        return Bars.none(shape, SINGULAR)
    inverse: Array = np.asarray(np.linalg.inv(facts.matrix), dtype=np.float64)
    spread = facts.variances(inverse, inverse) + (inverse * facts.counted) ** 2
    return Bars.about(inverse * facts.rows, deviations * np.sqrt(spread) * facts.rows)


class NoisySpectrum:
    """Eigenvalues and eigenvectors of a released moment, and which of them are clear."""

    def __init__(self, facts: NoisyMoment) -> None:
        values, vectors = np.linalg.eigh(facts.matrix)
        self.facts = facts
        self.values: Array = values[::-1]
        # bounds are drawn along these, and processors' libraries choose other signs
        self.vectors: Array = fix_signs(np.ascontiguousarray(vectors.T[::-1]))

    @cached_property
    def mixed(self) -> Array:
        """Squared part of direction j that noise puts into direction k, (D, D): row k.

        Gaps count half a standard error less than they are: those that show are too wide.
        """
        own = np.diag(self.crossed)
        gaps = np.abs(np.subtract.outer(self.values, self.values))
        gaps -= _TOO_WIDE * np.sqrt(np.add.outer(own, own))
        np.fill_diagonal(gaps, np.inf)
        return np.asarray(self.crossed / np.where(gaps > 0, gaps, np.inf) ** 2)

    @cached_property
    def gaps(self) -> Array:
        """Of direction k to direction j, (D, D): row k; endless to itself."""
        gaps = np.subtract.outer(self.values, self.values)
        np.fill_diagonal(gaps, np.inf)
        return np.asarray(gaps)

    @cached_property
    def crossed(self) -> Array:
        """Variance of the noise between each two directions."""
        return self.facts.variances(self.vectors, self.vectors)

    @cached_property
    def growth(self) -> Array:
        """How much more a true eigenvalue moves than the one that is seen, where that is clear.

        The true one is ``y - sum_j e_j^2/(y - y_j)``, whose slope this is.
        """
        return np.asarray(1.0 + np.sum(self.mixed, axis=1))

    @cached_property
    def errors(self) -> Array:
        """Standard errors of the true eigenvalues."""
        return np.asarray(np.sqrt(np.diag(self.crossed) * self.growth))

    @cached_property
    def near(self) -> Flags:
        """Which are within four standard errors of a neighbour."""
        gaps = -np.diff(self.values)
        least = np.minimum(np.append(np.inf, gaps), np.append(gaps, np.inf))
        return np.asarray(least <= _APART * np.sqrt(np.diag(self.crossed)))

    @cached_property
    def clear(self) -> Flags:
        """Which stand clear of the noise's edge and of their neighbours."""
        return np.asarray((self.values > self.facts.floor) & ~self.near)

    @cached_property
    def true(self) -> Array:
        """Eigenvalues without what noise lifts them by; of those that are clear."""
        with np.errstate(divide="ignore", invalid="ignore"):
            lifted = np.sum(self.crossed / self.gaps, axis=1)
        return np.where(self.clear, self.values - lifted, self.values)

    def unclear(self, bars: Bars) -> Bars:
        """Bars with nothing where a direction, along their first axis, is not clear."""
        count = bars.why.shape[0]
        shape = (count, *(1,) * (bars.why.ndim - 1))
        above = self.values[:count] > self.facts.floor
        for where, reason in (
            (~above & (self.values[:count] <= self.facts.edge), HIDDEN),
            (~above, BORDERLINE),
            (self.near[:count], NEIGHBOURS),
        ):
            bars = bars.but(np.broadcast_to(where.reshape(shape), bars.why.shape), reason)
        return bars


def eigenvalues(facts: NoisyMoment, count: int, deviations: float, level: float) -> Bars:
    """Of the exact moment, over the number of rows; of hidden ones a bound (Weyl's inequality)."""
    spectrum = facts.spectrum
    true, errors = spectrum.true[:count], spectrum.errors[:count]
    bars = spectrum.unclear(facts.per_row(true, errors**2, deviations))
    values = spectrum.values[:count]
    hidden = values <= facts.edge
    # the largest eigenvalue moves no more than the noise does, in isometric coordinates
    far = math.sqrt(2.0 * math.log(2.0 / (1.0 - level)))
    most = facts.edge + facts.error * far
    if facts.left is not None:  # the mean's error, whatever part of it was taken off
        off = facts.left.error * (math.sqrt(facts.size) + far)
        most += off * (2.0 * float(np.linalg.norm(facts.left.total)) + off) / facts.rows
    counted = deviations * facts.counted
    low = np.maximum(values - most, 0.0) * (1.0 - counted) / facts.rows
    high = np.maximum(values + most, 0.0) * (1.0 + counted) / facts.rows
    return Bars(
        np.where(hidden, np.clip(values / facts.rows, low, high), bars.estimate),
        np.where(hidden, low, bars.lower),
        np.where(hidden, high, bars.upper),
        np.where(hidden, -1, bars.why).astype(np.int8),
        bars.reasons,
    )


def shares(facts: NoisyMoment, count: int, deviations: float, *, summed: bool = False) -> Bars:
    """Eigenvalues, or sums of the first ones, over that of all, by the delta method."""
    spectrum, total = facts.spectrum, float(np.trace(facts.matrix))
    identity = np.eye(facts.size)
    of_total = float(np.sum(facts.variances(identity, identity) * identity))
    if total <= _SURE * math.sqrt(of_total):
        return Bars.none((count,), WEAK)
    along = spectrum.true[:count]
    errors = spectrum.errors[:count] ** 2
    own = np.diag(spectrum.crossed)[:count]  # what a direction shares with the trace
    clear = spectrum.clear[:count]
    if summed:
        along, errors, own = (np.cumsum(each) for each in (along, errors, own))
        clear = np.logical_and.accumulate(clear)
    share = along / total
    spread = errors - 2.0 * share * own + share**2 * of_total
    bars = Bars.about(share, deviations * np.sqrt(spread) / total, within=(0.0, 1.0))
    return bars.but(~clear, NOT_ALL) if summed else spectrum.unclear(bars)


def loadings(facts: NoisyMoment, components: Array, deviations: float) -> Bars:
    """Entries of the exact directions, to first order, with the signs of ``components``, (K, D)."""
    spectrum, count = facts.spectrum, components.shape[0]
    vectors = spectrum.vectors[:count]
    signs = np.where(np.vecdot(vectors, components) < 0, -1.0, 1.0)
    grown = vectors * (signs * np.sqrt(spectrum.growth[:count]))[:, None]
    spread = np.sqrt(spectrum.mixed[:count] @ spectrum.vectors**2)
    return spectrum.unclear(Bars.about(grown, deviations * spread, within=(-1.0, 1.0)))


def correlated(facts: NoisyMoment, components: Array, deviations: float) -> Bars:
    """Correlations of columns with the scores along exact directions, (K, D), by the delta method.

    ``v_kj sqrt(l_k / m_jj)``, of which noise N moves the entry by ``sum_i v_ij c_i / (l_k - l_i)``
    with ``c_i = v_i' N v_k``, the eigenvalue by c_k and the column's variance by ``N_jj``.
    """
    spectrum, count = facts.spectrum, components.shape[0]
    bars, variance = loadings(facts, components, deviations), np.diag(facts.matrix)
    own = np.diag(facts.of_entries)
    weak = variance <= _SURE * np.sqrt(own)
    column = np.where(weak, 1.0, variance)
    values = np.maximum(spectrum.true[:count], facts.edge)[:, None]
    vectors = spectrum.vectors[:count]
    along = np.diag(spectrum.crossed)[:count, None]
    spread = spectrum.mixed[:count] @ spectrum.vectors**2
    spread += 0.25 * vectors**2 * (along / values**2 + own / column**2)
    # the column's variance moves with the others
    with np.errstate(divide="ignore"):
        inverse = 1.0 / spectrum.gaps[:count]
    together = np.nan_to_num(inverse) @ spectrum.vectors**2 + 0.5 * vectors**2 / values
    spread -= facts.error**2 * vectors**2 * together / column
    unit = np.sqrt(values / column)
    errors = unit * np.sqrt(np.maximum(spread, 0.0))
    found = Bars.about(unit * bars.estimate, deviations * errors, within=(-1.0, 1.0))
    found = replace(found, why=bars.why, reasons=bars.reasons)
    return found.but(np.broadcast_to(weak, found.why.shape), WEAK)


def angles(facts: NoisyMoment, components: Array, level: float) -> Bars:
    """Degrees between components and exact directions: 0, and what they exceed too seldom.

    The exact direction is drawn as the released matrix shows it, to first order.
    """
    spectrum, count = facts.spectrum, components.shape[0]
    rng = np.random.default_rng(facts.seed)
    upper = np.full(count, np.nan)
    draws = _DRAWS if facts.size <= _LARGE else _DRAWS_WHERE_LARGE
    for place in np.flatnonzero(spectrum.clear[:count]):
        parts = np.sqrt(spectrum.mixed[place])
        drawn = rng.standard_normal((draws, facts.size)) * parts
        drawn[:, place] = 1.0
        turned = spectrum.vectors @ components[place]
        cosines = np.abs(drawn @ turned) / np.linalg.norm(drawn, axis=1)
        upper[place] = math.degrees(math.acos(min(1.0, float(np.quantile(cosines, 1.0 - level)))))
    upper = np.where(np.isnan(upper), 0.0, upper)
    return spectrum.unclear(Bars.at_most(upper))


def subspace(facts: NoisyMoment, components: Array, level: float) -> tuple[Bars, Bars]:
    """Of all components together: degrees of the largest angle, and lost part of their energy.

    Both are bounds from above, where every component is clear.
    """
    spectrum, count = facts.spectrum, components.shape[0]
    if count == facts.size:
        return Bars.none((), EVERY), Bars.none((), EVERY)
    gap = float(spectrum.values[count - 1] - spectrum.values[count])
    near = gap <= _LAST_APART * math.sqrt(float(spectrum.crossed[count - 1, count - 1]))
    if near or not spectrum.clear[:count].all():
        return Bars.none((), NOT_ALL), Bars.none((), NOT_ALL)
    rng = np.random.default_rng(facts.seed + 1)
    mixed = np.sqrt(spectrum.mixed[:count, count:])
    gaps = np.subtract.outer(spectrum.values[:count], spectrum.values[count:])
    draws = _DRAWS_WHERE_LARGE
    turned = components @ spectrum.vectors.T
    most, lost = np.empty(draws), np.empty(draws)
    basis = np.zeros((count, facts.size))
    basis[:, :count] = np.eye(count)
    for draw in range(draws):
        part = mixed * rng.standard_normal(mixed.shape)
        basis[:, count:] = part
        exact = np.linalg.qr(basis.T)[0]
        cosines = np.linalg.svd(turned @ exact, compute_uv=False)
        most[draw] = cosines[-1]
        lost[draw] = float(np.sum(part**2 * gaps))
    energy = float(np.sum(spectrum.true[:count]))
    angle = math.degrees(math.acos(min(1.0, float(np.quantile(most, 1.0 - level)))))
    part_lost = min(1.0, float(np.quantile(lost, level)) / energy)
    return Bars.at_most(np.array(angle)), Bars.at_most(np.array(part_lost))


# -- Energies along released directions, which are released by themselves.


@dataclass(frozen=True)
class NoisyEnergies:
    """Released energies of rows along components and of all the rest: the noise's own law."""

    along: Array  # In units of the bound squared, of all rows together
    rest: float
    error: float  # Deviation of each
    rows: float
    rows_error: float
    unit: float  # Bound squared
    total: float | None = None  # What the variances are made to add up to, where they are


def energy_shares(facts: NoisyEnergies, deviations: float, *, summed: bool = False) -> Bars:
    """Of the total that one or the first components explain: Fieller's set (1954), exact.

    A share r of released parts p of a total t: ``(p - r t)^2`` is at most as many times its own
    variance.
    """
    total = float(np.sum(facts.along)) + facts.rest
    count = facts.along.size + 1
    part = np.cumsum(facts.along) if summed else facts.along
    terms = np.arange(1.0, part.size + 1.0) if summed else np.ones(part.size)
    noise = (deviations * facts.error) ** 2
    square = total * total - noise * count
    if total <= 0 or square <= 0:
        return Bars.none(part.shape, "noise hides the total variance")
    half = (part * total - noise * terms) / square
    root = np.sqrt(np.maximum(0.0, half * half - (part * part - noise * terms) / square))
    share = part / total
    return Bars.about(share, share - (half - root), half + root - share, within=(0.0, 1.0))


def energies(facts: NoisyEnergies, deviations: float) -> Bars:
    """Variances along the components, of rows shortened for them."""
    if facts.total is not None:
        return energy_shares(facts, deviations).times(facts.total)
    each = facts.unit / facts.rows
    spread = np.hypot(facts.error, facts.along * facts.rows_error / facts.rows)
    return Bars.about(facts.along * each, deviations * spread * each, within=(0.0, np.inf))
