"""What a mechanism is: the noise of one release, its loss, and what is known of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from eigenveil.privacy.releases import Noise, ReleaseRecord

FloatArray = NDArray[np.float64]
# In which a sensitivity is: of isometric coordinates, their sum, the singular values' sum, or of
# the score of an exponential mechanism.
Norm = Literal["l2", "l1", "nuclear", "score"]


class Mechanism(ABC):
    """The noise of a release. Scales are in the statistic's units."""

    name: ClassVar[str]  # As records and options spell it
    norm: ClassVar[Norm]  # In which the sensitivity is that its noise is made for
    proof: ClassVar[str]  # Its page in docs/proofs
    test: ClassVar[str]  # The audit's statistic, in words
    pure: ClassVar[bool] = True  # Whether its loss is a pure epsilon; a Gaussian-DP mu otherwise
    # Whether noise is added to the sum; else values are drawn that the sum makes likely
    added: ClassVar[bool] = True
    # Whether the noise of each entry of an array without symmetry is drawn by itself
    entrywise: ClassVar[bool] = False
    # Whether several parties' parts make the noise that is proved (docs/proofs/shares.md)
    adds_up: ClassVar[bool] = True
    # Whether it is proved for all prefixes of a stream (docs/proofs/streams.md), and under masks
    # that are noise themselves
    of_prefixes: ClassVar[bool] = False
    caveats: ClassVar[tuple[str, ...]] = ()  # What a guarantee with it must say
    # Part of an audit's trials that is enough for it, as its noise is slow to draw
    audited: ClassVar[float] = 1.0

    # -- what it costs

    def loss(self, record: ReleaseRecord) -> float:
        """Epsilon, or mu where it is not :attr:`pure`; in proportion to one over the scale."""
        return record.draws * record.sensitivity() / record.noise.scale

    @abstractmethod
    def sampling_error(self, noise: Noise, *, copies: int, blocks: int) -> SamplingError:
        """How far the noise that is drawn, ``blocks`` times, is from the noise that is proved."""

    # -- what is known of it

    def spread(self, scale: float, size: int, rows: int) -> float:
        """Typical size of one coordinate's noise, for ``size`` coordinates in ``rows`` rows."""
        return scale

    def finest_grid(self, scale: float) -> int | None:
        """Exponent of the finest grid on which its noise is computed; ``None``: any will do."""
        return None

    def fixed_grid(self) -> int | None:
        """Exponent of the grid of what is released, where it depends on nothing."""
        return None

    def deviation(self, noise: Noise, rows: int) -> float:
        """Standard deviation of a coordinate; ``rows`` is the statistic's side."""
        return noise.scale

    def sigma(self, noise: Noise, rows: int) -> float:
        """Deviation of the independent entries whose largest eigenvalues its own are like."""
        return self.deviation(noise, rows)

    def edge(self, noise: Noise, rows: int, columns: int) -> float:
        """Largest eigenvalue (symmetric) or singular value (rows > columns) of the noise."""
        # that of independent entries
        sigma = self.sigma(noise, rows)
        if rows == columns:
            return sigma * math.sqrt(2 * rows)
        return sigma * (math.sqrt(rows) + math.sqrt(columns))

    @abstractmethod
    def growth(self, rows: int, before: int, columns: int | None) -> float:
        """By what the edge grows, at one budget, with the statistic's rows; ``None``: square."""

    def squared_length(self, expected: float, size: int, tail: float) -> float:
        """What the squared length of so many coordinates exceeds as a normal does ``tail``."""
        return expected * (1.0 + tail * math.sqrt(2.0 / size) + tail**2 / (1.5 * size))

    # -- parts that several parties draw

    def parts_drawn(self, parties: int, noise_parts: int, rows: int) -> float:
        """What ``parties`` draw, one of ``noise_parts`` each, over the whole noise: variances."""
        return parties / noise_parts

    def part(self, scale: float, rows: int, noise_parts: int) -> str:
        """What each party draws, in a sentence's end."""
        return f"a share of a vector, scale {scale:.4g} of a row's largest"

    # -- what an adversary makes of it

    def test_of(self, one: FloatArray, two: FloatArray) -> str:
        """The statistic of :meth:`distinguished`, in words."""
        return self.test

    def distinguished(self, values: FloatArray, one: FloatArray, two: FloatArray) -> FloatArray:
        """Of outputs (n, size): larger where the first of two neighbours' sums is likelier."""
        return np.asarray(values @ (one - two))


class SamplingError(NamedTuple):
    """Bounds on drawn against proved noise, over all coordinates (docs/proofs/release-grid.md).

    Every event has ``P~(S) <= exp(log_ratio) P(S) + distance``, and the same the other way.
    """

    log_ratio: float
    distance: float

    def cost(self, epsilon: float) -> float:
        """What the distance adds to delta at ``epsilon``; the log-ratio adds twice to epsilon.

        ``P~(S) <= e^r P(S) + d <= e^r (e^eps P'(S) + delta) + d``, and the same once more for P'.
        """
        return (1.0 + math.exp(min(epsilon, 700.0))) * self.distance if self.distance else 0.0


# Grid steps in the deviation of anything that is drawn, at the least.
FEWEST_STEPS = 1024.0
# Steps in the spread of noise on a grid that is fine for it: those of ``noise.grid``.
STEPS_A_SPREAD = 2.0**26
# The variance of Laplace and vector noise over that of the noise added to all parts together.
SHARE_SMOOTHING = 2048.0
UNPROVED = SamplingError(math.inf, math.inf)


def lattice_error(
    size: int, *, steps_a_scale: float, draws: int = 1, copies: int = 2
) -> SamplingError:
    """Of ``size`` coordinates on a grid with this many steps in a noise scale (release-grid.md)."""
    # a coordinate may stand for so many copies, whose deviation is smaller by the root of that:
    # each of the draws whose sum it is must have 1024 steps in it
    if steps_a_scale < FEWEST_STEPS * math.sqrt(copies * draws):
        return UNPROVED
    return SamplingError(
        size * (draws * 2.0**-44 + 8.0 * copies / steps_a_scale**2), draws * size * 2.0**-120
    )


def _longest(size: int) -> float:
    """What so many squared deviations together stay below, but for a chance of 2**-131."""
    return size + 2.0 * math.sqrt(91.0 * size) + 182.0


def hidden_error(size: int, *, off: float, smoothing: float, noise_parts: int) -> float:
    """Log-ratio of misplaced noise beside lattice Gaussian noise (shares.md, claim 2)."""
    # `off`: how far the sum is misplaced, beyond roundings, in deviations of the Gaussian noise
    far = _longest(size)
    return (
        off * math.sqrt(far) + 0.5 * off * off + noise_parts * far / (8.0 * smoothing * smoothing)
    )
