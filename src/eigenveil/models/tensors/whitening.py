"""From released pair and triple moments to components and weights (post-processing).

The pair moment is ``sum_k n_k a_k a_k' + bulk I`` and the triple moment ``sum_k n_k a_k a_k a_k``
(n_k rows of component k). In the span of its leading eigenvectors U the pair moment is whitened;
the triple moment then has orthonormal components, which tensor power iteration finds (paper 001,
algorithms 2 and 4; Anandkumar et al. 2014, JMLR 15). Everything works in K dimensions
(privacy.md, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from eigenveil.linalg.eigen import leading_eigenpairs
from eigenveil.linalg.tensor import multilinear, power_iteration
from eigenveil.models.tensors.plan import TensorPlan
from eigenveil.privacy.releases import Noise

# Whitening divides by the root of an eigenvalue: one that noise leaves nothing of counts as this
# part of the noise's own size.
_LEAST = 0.2
# Deviates of Tracy and Widom's law for the largest value of noise: its mean, and what about one in
# a hundred noise matrices exceeds.
_ON_AVERAGE, _CLEARLY = -1.2, 2.0
# Two estimates of a component's rows, as roots, that are farther apart say nothing together.
_MOST_APART = 4.0
# Rounds in which the bulk of a sketch and the components above it settle.
_SETTLING = 4
# Draws of the noise, and the part of them that must show a usable component again.
REPEATS, _AGAIN = 50, 0.98


@dataclass(frozen=True)
class PairMoment:
    """The leading part of a released pair moment, in units of prepared rows."""

    basis: NDArray[np.float64]  # Orthonormal columns U
    # What is left of `U' M U` without the bulk and without what noise adds to it
    core: NDArray[np.float64]
    bulk: float  # The eigenvalue that all directions have in common: rows times the noise variance
    # Leading eigenvalues above the bulk (of a sketch, singular values), at least K of them
    strengths: NDArray[np.float64]
    # What noise alone would show of each, beside those before it, once in a hundred times
    floors: NDArray[np.float64]
    typical: NDArray[np.float64]  # What noise alone would show on average
    deviation: float  # Of the core's noise, in isometric coordinates
    # What a component beyond those of the core may have, in the core's units; 0 where all that were
    # asked for are in it
    hidden: float = 0.0

    @property
    def above(self) -> int:
        """How many strengths stand clearly above the noise."""
        return _leading(self.strengths > self.floors)

    @property
    def floor(self) -> float:
        """What noise alone would show of the last component."""
        return float(self.floors[self.core.shape[0] - 1])


@dataclass(frozen=True)
class Recovered:
    """Components and weights."""

    seen: NDArray[np.float64]  # Components as rows, in the coordinates of the pair moment's basis
    counts: NDArray[np.float64]  # Rows of each component, as the triple moment shows them
    converged: bool


@dataclass(frozen=True)
class Bulk:
    """What adds to a pair moment beside its components and the released noise."""

    known: float | None  # The common eigenvalue; `None`: to be found from the release
    sampling: float = 0.0  # Variance that sampling gives to an entry of the moment, for a bulk of 0
    rows: float | None = None  # Number of rows, from which a bulk's own sampling spread follows
    # The mean of the prepared rows, where it is known: K components then span K - 1 directions
    # about it, and the bulk can be found even with as many components as features
    offset: NDArray[np.float64] | None = None

    def spread(self, bulk: float) -> float:
        """Standard deviation that sampling gives to an off-diagonal entry."""
        own = bulk * bulk / self.rows if self.rows else 0.0
        return math.sqrt(own + self.sampling)


def full_pair(
    values: NDArray[np.float64], noise: Noise, bulk: Bulk, *, components: int | None, most: int
) -> PairMoment:
    """The leading part of a released D x D pair moment."""
    size = values.shape[0]
    most = min(most, size)
    wanted = min(size, (components or most) + 1)
    eigenvalues, vectors = leading_eigenpairs(values, wanted)
    count = components or 1
    while True:
        found = _standing_out(values, eigenvalues, count, noise, bulk)
        common = _common(values, eigenvalues, found, bulk)
        strengths = eigenvalues - common
        radius = _radius(noise, size, bulk.spread(common))
        edges = _edges(size, size, strengths.size) * (radius / math.sqrt(size))
        floors = edges * _shown(size, strengths.size, _CLEARLY)
        if components is not None or count >= most or strengths[count] <= floors[count]:
            break
        count += 1
    # what sampling adds is not taken off: it acts on the components' own plane as well
    core = np.diag(_without_noise(strengths[:count], _radius(noise, size, 0.0)))
    typical = edges * _shown(size, strengths.size, _ON_AVERAGE)
    return PairMoment(
        vectors[:count].T,
        core,
        common,
        strengths[:most],
        floors[:most],
        typical[:most],
        noise.deviation(size),
        _hidden(strengths[:most], floors[:most], count),
    )


def _hidden(strengths: NDArray[np.float64], floors: NDArray[np.float64], count: int) -> float:
    """The most that a component beyond the first ``count`` may have, seen or hidden by noise."""
    return float(max(strengths[count], floors[count])) if count < strengths.size else 0.0


def _edges(rows: int, columns: int, count: int) -> NDArray[np.float64]:
    """Largest singular value of a Gaussian matrix less 0, 1, ... directions, in the limit."""
    left = np.maximum(rows - np.arange(count), 1.0)
    right = np.maximum(columns - np.arange(count), 1.0)
    return np.asarray(np.sqrt(left) + np.sqrt(right))


def _shown(rows: int, count: int, deviate: float) -> NDArray[np.float64]:
    """By which factor the largest value of finite matrices differs from the limit.

    ``deviate`` is one of Tracy and Widom's law.
    """
    left = np.maximum(rows - np.arange(count), 1.0)
    return np.asarray(1.0 + 0.5 * deviate * left ** (-2 / 3))


def _leading(flags: NDArray[np.bool_]) -> int:
    """How many are true before the first that is not."""
    return int(np.argmin(np.append(flags, False)))


def _standing_out(
    values: NDArray[np.float64],
    eigenvalues: NDArray[np.float64],
    count: int,
    noise: Noise,
    bulk: Bulk,
) -> int:
    """How many of the ``count`` largest eigenvalues show more than noise does on average.

    The bulk is found from all others: without the largest of noise's it would come out too small,
    and more of them would seem to stand above it.
    """
    size = values.shape[0]
    while count > 0 and bulk.known is None:
        # if this one were noise too, it would be one of those that the bulk is found from
        common = _common(values, eigenvalues, count if count == size else count - 1, bulk)
        radius = _radius(noise, size, bulk.spread(common))
        noisy = (_edges(size, size, count) * _shown(size, count, _ON_AVERAGE))[-1]
        if eigenvalues[count - 1] - common > noisy * radius / math.sqrt(size):
            break
        count -= 1
    return count


def _common(
    values: NDArray[np.float64], eigenvalues: NDArray[np.float64], count: int, bulk: Bulk
) -> float:
    """The eigenvalue that all directions have in common."""
    if bulk.known is not None:
        return bulk.known
    size = values.shape[0]
    if count < size:
        left = float(np.trace(values)) - float(np.sum(eigenvalues[:count]))
        return float(max(0.0, left / (size - count)))
    if bulk.offset is None or bulk.rows is None:
        raise AssertionError("a plan with nothing to find the noise variance from: a defect")
    about = values - bulk.rows * np.outer(bulk.offset, bulk.offset)
    smallest = scipy.linalg.eigh(about, eigvals_only=True, subset_by_index=[0, 0])
    return max(0.0, float(smallest[0]))


def _radius(noise: Noise, size: int, sampling: float) -> float:
    """Half the edge of the semicircle that noise and sampling show together."""
    edge = noise.edge(size, size)
    return 0.5 * math.hypot(edge, 2.0 * sampling * math.sqrt(size))


def _without_noise(strengths: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """What the components have along eigenvectors of these eigenvalues.

    Under a semicircle of edge 2 s an eigenvalue stands for ``theta + s^2/theta``, and its
    eigenvector keeps ``theta - s^2/theta`` of it (Benaych-Georges & Nadakuditi 2011).
    """
    above = np.maximum(strengths, 2.0 * radius)
    theta = (above + np.sqrt((above - 2.0 * radius) * (above + 2.0 * radius))) / 2.0
    kept = theta - radius**2 / np.maximum(theta, np.finfo(float).tiny)
    least = max(_LEAST * radius, 1e-9 * float(np.max(np.abs(strengths), initial=0.0)))
    return np.asarray(np.maximum(kept, max(least, np.finfo(float).tiny)))


def sketched_pair(
    values: NDArray[np.float64],
    test: NDArray[np.float64],
    noise: Noise,
    bulk: Bulk,
    *,
    components: int | None,
    most: int,
) -> PairMoment:
    """The leading part of a pair moment of which ``values = M test + noise`` was released."""
    size, columns = values.shape
    length = float(np.sum(test * test))  # of all columns together
    average = float(np.sum(values * test)) / length  # bulk + the components' trace / D
    # from 0 on: with too much taken off, directions of the bulk alone would look like components
    common = bulk.known or 0.0
    for _ in range(1 if bulk.known is not None else _SETTLING):
        rest = values - common * test
        u, singular, _ = scipy.linalg.svd(rest, full_matrices=False, check_finite=False)
        # sampling acts on the moment, and reaches the sketch through the test matrix
        sigma = math.hypot(noise.deviation(size), bulk.spread(common) * math.sqrt(length / columns))
        edges = sigma * _edges(size, columns, singular.size)
        floors = edges * _shown(size, singular.size, _CLEARLY)
        count = components or int(np.clip(_leading(singular > floors), 1, min(most, columns)))
        basis = u[:, :count]
        seen = basis.T @ test
        # least squares: rest = basis core (basis' test)
        core = scipy.linalg.lstsq(seen.T, rest.T @ basis, check_finite=False)[0]
        core = 0.5 * (core + core.T)
        if bulk.known is None and count < size:
            left = size * average - float(np.trace(core)) - count * common
            common = max(0.0, left / (size - count))
    # of singular values, over the core's
    gain = math.sqrt(length / size)
    error = sigma / gain
    typical = edges * _shown(size, singular.size, _ON_AVERAGE)
    return PairMoment(
        basis,
        positive(core, error),
        common,
        singular[:most],
        floors[:most],
        typical[:most],
        error,
        _hidden(singular[:most], floors[:most], count) / gain,
    )


def positive(core: NDArray[np.float64], error: float) -> NDArray[np.float64]:
    """The symmetric matrix with no eigenvalue below a part of its error."""
    values, turn = np.linalg.eigh(core)
    least = max(_LEAST * error, 1e-9 * float(np.max(np.abs(values), initial=0.0)))
    values = np.maximum(values, max(least, np.finfo(float).tiny))
    return np.asarray((turn * values) @ turn.T)


def shown(pair: PairMoment) -> int:
    """How many directions show more than noise alone does on average."""
    return _leading(pair.strengths > pair.typical)


def standing(pair: PairMoment) -> int:
    """How many of the components that were requested show more than noise alone does on average."""
    return min(int(pair.core.shape[0]), shown(pair))


def usable(
    pair: PairMoment, found: Recovered, *, triple_noise: float, repeats: int = REPEATS
) -> NDArray[np.bool_]:
    """Which components can be distinguished from the others in spite of the noise, shape (K,).

    A component's part of the pair moment off the plane of all others is between the smallest and
    the largest of the moment's eigenvalues. It must be larger than those that noise could have
    made. Components that were not found must not hide in it: :func:`_of_one`. And noise that is
    drawn anew, on both moments of the components that were found, must let the component be found
    again: :func:`_found_again`.
    """
    can_be_used = _off_the_others(pair, found) & _found_again(pair, found, triple_noise, repeats)
    return can_be_used & _of_one(pair, found)


def _of_one(pair: PairMoment, found: Recovered) -> NDArray[np.bool_]:
    """Which components are no mean of several that were not told apart.

    Such a mean of n rows lies off its parts, in directions that were left out, with the energy n
    times the square of how far: no more than what can be there unseen. It must be less than half of
    the way to the next component makes.
    """
    return np.asarray(found.counts * _near(found.seen) ** 2 > pair.hidden)


def _near(seen: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half of the way from each component to the next, or to nothing where that is nearer."""
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    return np.asarray(0.5 * np.minimum(apart.min(axis=1), np.linalg.norm(seen, axis=1)))


def _found_again(
    pair: PairMoment, found: Recovered, triple_noise: float, repeats: int
) -> NDArray[np.bool_]:
    """Which components the moments of all of them show again, in nearly all draws of the noise.

    Again is nearer than half of the way to the next component. Only released numbers and public
    noise go in.
    """
    count = found.counts.size
    a = found.seen
    core = (a.T * found.counts) @ a
    triple = np.einsum("k,ki,kj,kl->ijl", found.counts, a, a, a)
    near = _near(a)
    rng = np.random.default_rng(count)
    again = np.zeros(count)
    for _ in range(repeats):
        noisy = core + _symmetric(rng.standard_normal((count, count))) * pair.deviation
        moment = replace(pair, core=positive(noisy, pair.deviation))
        drawn = _symmetric(rng.standard_normal((count, count, count))) * triple_noise
        seen = recover(moment, triple + drawn, rows=None).seen
        again += np.linalg.norm(a[:, None] - seen[None], axis=2).min(axis=1) < near
    return np.asarray(again >= _AGAIN * repeats)


def _symmetric(noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """The part of a noise tensor that no permutation of its indices changes."""
    orders = list(permutations(range(noise.ndim)))
    return np.asarray(sum(noise.transpose(order) for order in orders) / len(orders))


def _off_the_others(pair: PairMoment, found: Recovered) -> NDArray[np.bool_]:
    """Which components have a part of their own that noise could not have made."""
    count = found.counts.size
    if pair.above >= count:
        return np.ones(count, dtype=bool)
    if pair.above == 0:
        return np.zeros(count, dtype=bool)
    energies, turn = np.linalg.eigh(pair.core)
    doubtful = energies[::-1][pair.above]
    # of the length that components have in the pair moment, which the triple moment need not give
    lengths = np.linalg.norm(found.seen @ (turn / np.sqrt(energies)), axis=1)
    parts = found.seen / np.maximum(lengths, np.finfo(float).tiny)[:, None]
    apart = np.empty(count)
    for place, part in enumerate(parts):
        others = np.delete(parts, place, axis=0)
        along = np.linalg.lstsq(others.T, part, rcond=None)[0] @ others
        apart[place] = np.sum((part - along) ** 2)
    return np.asarray(apart > doubtful * (1.0 + 1e-9))


def recover(
    pair: PairMoment,
    triple: NDArray[np.float64],
    *,
    rows: float | None,
    total: NDArray[np.float64] | None = None,
) -> Recovered:
    """Components of the triple moment (K, K, K) seen through the pair moment's basis.

    Both moments are sums in the same units. A component's eigenvalue is one over the root of its
    rows, so at least one over the root of all ``rows``.
    """
    energies, turn = np.linalg.eigh(pair.core)
    whitening = turn / np.sqrt(energies)
    colouring = turn * np.sqrt(energies)
    count = energies.size
    # starts are public: any will do
    found = power_iteration(multilinear(triple, whitening), count, rng=np.random.default_rng(count))
    least = 1.0 / math.sqrt(rows) if rows else float(np.max(found.values)) * 1e-3
    values = np.maximum(found.values, max(least, np.finfo(float).tiny))
    roots = 1.0 / values  # of the rows of each component
    lengths = values
    if total is not None:
        again = found.vectors @ (whitening.T @ (pair.basis.T @ total))
        agree = (again > roots / _MOST_APART) & (again < roots * _MOST_APART)
        again = np.where(agree, again, roots)
        roots, lengths = again**0.75 * roots**0.25, 1.0 / np.sqrt(again * roots)
    order = np.argsort(-roots, kind="stable")  # the most rows first
    return Recovered(
        seen=(lengths[:, None] * (found.vectors @ colouring.T))[order],
        counts=(roots**2)[order],
        converged=bool(np.all(found.converged)),
    )


# -- Fewer components above the noise than were requested: what is left, and what would do.

NO_COMPONENT = (
    "No component stands above the noise. Give more rows, a larger epsilon, or features in which "
    "the groups differ more."
)


def leading_part(
    taken: Callable[..., PairMoment], plan: TensorPlan, *, keep_all: bool = False
) -> PairMoment | None:
    """As many components of a pair moment as stand above its noise, ``None`` for none."""
    most = plan.rank
    if keep_all:
        return taken(components=most, most=most)
    if plan.auto_components:
        pair = taken(components=None, most=most)
        return pair if pair.above >= 1 else None
    pair = taken(components=most, most=most)
    while 0 < (count := standing(pair)) < pair.core.shape[0]:
        # with fewer, what is left counts as noise variance
        pair = taken(components=count, most=most)
    return pair if count else None


def shortfall(plan: TensorPlan, usable: NDArray[np.bool_]) -> str:
    """What would do where components are missing or not usable; empty where nothing is amiss."""
    found = usable.size
    short = not plan.auto_components and found < plan.n_components
    if not short and usable.all():
        return ""
    wanted = found if plan.auto_components else plan.n_components
    above = int(np.count_nonzero(usable))
    stand = "stands" if 1 in (above, wanted) else "stand"
    fewer = f" Or ask for {above}." if 0 < above < wanted else ""
    return (
        f"{above or 'None'} of {wanted} component{'' if wanted == 1 else 's'} {stand} above the "
        "noise. A larger epsilon or more rows may show more, but where means differ in more than "
        f"two directions no more components than these and one.{fewer}"
    )
