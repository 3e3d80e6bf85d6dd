"""Intervals of independent components: the recorded noise of both moments, drawn again.

What is held are the sources that the same steps find in second and fourth moment without noise. The
fourth moment's noise is drawn again through the last step (a rotation that begins at the released
one); what the second's noise hides of maps along other directions follows to first order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri, stdtrit

from eigenveil.models.driver import drive
from eigenveil.models.ica.jade import separated, symmetric, symmetric_quartic
from eigenveil.models.ica.plan import FourthMoment, ICAPlan, in_order, released_moments
from eigenveil.models.intervals.bars import Array, Bars, Flags, Kind, Quantity
from eigenveil.models.intervals.moment import NoisyMoment
from eigenveil.models.intervals.recorded import sharing_of
from eigenveil.models.intervals.replayed import center_of, replayed
from eigenveil.models.pca.intervals import ENDED, Makers, seed_of
from eigenveil.models.result import Result
from eigenveil.models.rounds import RoundState

NOT_TOLD = "the source cannot be told from others"
ROUGH = "noise turns the source's map by more than a twelfth of a right angle"
VAGUE = (
    "noise of the variances, which say how far rows are shortened, turns the map more than the "
    "fourth moment's"
)
NEAR = "the last direction that is seen is not clear of the next one"
# Draws of the noise; of more than eight sources so many as cost about the same.
_DRAWS, _FEWEST, _NUMBERS = 100, 20, 500_000
# Maps that noise turns farther (radians, one standard error) are not shown; nor any where the last
# seen direction is within so many standard errors of the next one.
_ROUGH, _APART = 0.13, 6.0


@dataclass(frozen=True)
class NoisySources:
    """Sources in the result's order, and what noise makes of them; maps in scales."""

    maps: Array  # (K, D), without what noise turns them by on average
    kurtosis: Array  # Likewise
    errors: Array  # Of the maps' entries
    of_kurtosis: Array
    apart: tuple[Array, Array]  # Of squared angles to the exact maps (radians), mean and variance
    draws: int
    near: bool
    vague: Flags  # Whether noise of the second moment turns a map more than that of the fourth

    @property
    def rough(self) -> Flags:
        return np.asarray(self.apart[0] > _ROUGH**2)

    def angles(self, level: float) -> Array:
        """Degrees that are exceeded seldom: squares are sums of those of normal numbers, nearly."""
        mean, variance = self.apart
        square = 0.5 * variance / mean * chdtri(2.0 * mean**2 / variance, 1.0 - level)
        return np.asarray(np.degrees(np.arctan(np.sqrt(square))))


def sources_of(result: Result, second: NoisyMoment | str) -> NoisySources | str:
    """What is known of sources; or why it is not."""
    if isinstance(second, str):
        return second
    if result.factors.stopped:
        return ENDED
    again = replayed(result)
    if isinstance(again, str):
        return again
    plan = result.plan
    assert isinstance(plan, ICAPlan)
    state = RoundState(plan, sharing=sharing_of(result))
    _, _, fourth = drive(released_moments(state, center_of(result)), again)
    assert fourth is not None
    return _drawn(fourth, second, np.random.default_rng(seed_of(result)))


def _drawn(fourth: FourthMoment, second: NoisyMoment, rng: np.random.Generator) -> NoisySources:
    deviations, directions = fourth.white.deviations, fourth.white.directions
    found, count = separated(fourth.tensor), deviations.size
    order, signs = in_order(found.mixing.T * deviations @ directions)
    draws = min(_DRAWS, max(_FEWEST, _NUMBERS // count**4))
    maps, plain = np.empty((2, draws, count, count))
    kurtosis = np.empty((draws, count))
    for place in range(draws):
        noise = fourth.error * _isometric(rng, count * (count + 1) // 2)
        noisy = fourth.tensor + symmetric_quartic(noise, count)
        each = separated(noisy, found.turn)
        kurtosis[place], plain[place] = each.kurtosis, each.mixing.T * deviations
        more, longer = _shortened(fourth, second, rng)
        maps[place] = separated(noisy + more, found.turn).mixing.T * deviations * longer
    own = (found.mixing.T * deviations)[order]
    turned, moved = maps[:, order] - own, (kurtosis - found.kurtosis)[:, order]
    by_fourth, by_second = (np.var(each[:, order], axis=0) for each in (plain, maps - plain))
    beside = (own @ directions @ second.spectrum.vectors[:count].T) ** 2
    longer = np.vecdot(own, own)
    beside = beside @ second.spectrum.mixed[:count, count:]
    spread = np.einsum("tpk,tpl->pkl", turned, turned) / (draws - 1)
    errors = np.einsum("pkl,kf,lf->pf", spread, directions, directions, optimize=True)
    errors += beside @ second.spectrum.vectors[count:] ** 2
    # what lies along a map turns it by nothing
    across = np.eye(count) - own[:, :, None] * own[:, None, :] / longer[:, None, None]
    spread = across @ spread @ across
    apart = np.trace(spread, axis1=1, axis2=2) + beside.sum(axis=1)
    varied = 2.0 * (np.sum(spread**2, axis=(1, 2)) + np.sum(beside**2, axis=1))
    grown = np.sqrt(1.0 + beside.sum(axis=1) / longer)  # by what is not seen of them
    return NoisySources(
        maps=(own - turned.mean(axis=0)) @ directions * (grown * signs)[:, None],
        kurtosis=found.kurtosis[order] - moved.mean(axis=0),
        errors=np.sqrt(errors),
        of_kurtosis=np.hypot(
            np.sqrt(np.sum(moved**2, axis=0) / (draws - 1)), found.kurtosis[order] * second.counted
        ),
        apart=(apart / longer, varied / longer**2),
        draws=draws,
        vague=np.sum(by_second, axis=1) > np.sum(by_fourth, axis=1),
        near=count < second.size and _near(second, count),
    )


def _isometric(rng: np.random.Generator, size: int) -> Array:
    """Symmetric noise: of deviation 1 on the diagonal, and the root of a half off it."""
    noise = rng.standard_normal((size, size))
    return np.asarray(noise + noise.T) / 2.0


def _shortened(
    fourth: FourthMoment, second: NoisyMoment, rng: np.random.Generator
) -> tuple[Array, float]:
    """What the second moment's noise does to the tensor by what is shortened, and to all lengths.

    Of white rows that are off by E the tensor shows how far, and is whitened once more: all but the
    size of E, and, of rows of one length, as those are that were shortened, the part 4 / (K + 4).
    """
    directions = fourth.white.directions
    count = len(directions)
    variances = np.vecdot(directions @ second.matrix, directions)
    error = np.sqrt(second.variances(directions, directions))
    error *= np.where(np.eye(count) > 0, 1.0, math.sqrt(2.0))
    off = _isometric(rng, count) * error / np.sqrt(np.multiply.outer(variances, variances))
    size = float(np.trace(off)) / count
    off -= size * np.eye(count)
    level = float(np.einsum("iijj", fourth.tensor)) / (count * (count + 2))
    return -4.0 / (count + 4) * level * symmetric(off, np.eye(count)), 1.0 + 0.5 * size


def _near(second: NoisyMoment, count: int) -> bool:
    spectrum = second.spectrum
    gap = float(spectrum.values[count - 1] - spectrum.values[count])
    return gap <= _APART * math.sqrt(float(spectrum.crossed[count - 1, count - 1]))


def of_ica(result: Result, level: float, of: Kind) -> Iterator[Quantity]:
    """All that independent components have intervals of."""
    make, (count, features) = Makers(result, level, of), result.factors.unmixing.shape
    yield make.rows()
    yield make.means()
    facts = sources_of(result, make.moment)
    names, usable = tuple(str(place + 1) for place in range(count)), result.factors.usable
    sources, both = (count,), (count, features)
    bars: tuple[Bars, ...]
    if isinstance(facts, str):
        bars = (Bars.none(both, facts), Bars.none(sources, facts), Bars.none(sources, facts))
    else:
        width = float(stdtrit(facts.draws - 1, 0.5 + 0.5 * level))
        scale = result.factors.scale
        bars = (
            Bars.about(facts.maps * scale, width * facts.errors * scale),
            Bars.about(facts.kurtosis, width * facts.of_kurtosis),
            Bars.at_most(facts.angles(level)).but(facts.vague & usable, VAGUE),
        )
        hidden, near = ~usable | facts.rough, np.full(sources, facts.near)
        bars = tuple(
            each.but(_spread(~usable, each), NOT_TOLD)
            .but(_spread(hidden, each), ROUGH)
            .but(_spread(near & (each is not bars[1]), each), NEAR)
            for each in bars
        )
    about = f"of the sources that the same steps find in both moments without noise, {make.of_rows}"
    axes = ("source", "feature")
    yield Quantity(
        "mixing", f"maps {about}", axes, (names, make.features), make.made(bars[0], both)
    )
    about = (
        "excess kurtosis of the sources, of rows as they were seen, whitened and shortened for it"
    )
    yield Quantity("kurtosis", about, axes[:1], (names,), make.made(bars[1], sources))
    about = "degrees between a source's map and that without noise, in scales, at most"
    yield Quantity("angle", about, axes[:1], (names,), make.made(bars[2], sources))


def _spread(where: Flags, bars: Bars) -> Flags:
    """Of sources, over all axes."""
    return np.broadcast_to(where.reshape(-1, *(1,) * (bars.why.ndim - 1)), bars.why.shape)
