"""What a mechanism is: the noise of one release, its loss, and what is known of it.

A mechanism is one class in one file of this folder, listed in the registry
(:data:`eigenveil.privacy.mechanisms.MECHANISMS`); its sampler has the same name in
``eigenveil.noise``. Nothing else reads a mechanism's name.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from eigenveil.privacy.sampling import SamplingError

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
        """How far the noise that is drawn is from the noise that is proved; it has a grid.

        ``copies`` as in :func:`eigenveil.privacy.sampling.lattice_error`; all of it is drawn for
        each of ``blocks`` blocks of a stream.
        """

    # -- what is known of it

    def spread(self, scale: float, size: int, rows: int) -> float:
        """Typical size of one coordinate's noise, for ``size`` coordinates in ``rows`` rows."""
        del size, rows
        return scale

    def finest_grid(self, scale: float) -> int | None:
        """Exponent of the finest grid on which its noise is computed; ``None``: any will do."""
        del scale
        return None

    def fixed_grid(self) -> int | None:
        """Exponent of the grid of what is released, where it depends on nothing."""
        return None

    def deviation(self, noise: Noise, rows: int) -> float:
        """Standard deviation of a coordinate; ``rows`` is the statistic's side."""
        del rows
        return noise.scale

    def sigma(self, noise: Noise, rows: int) -> float:
        """Deviation of the independent entries whose largest eigenvalues its own are like."""
        return self.deviation(noise, rows)

    def edge(self, noise: Noise, rows: int, columns: int) -> float:
        """Largest eigenvalue (square, symmetric) or singular value (rows > columns) of the noise.

        That of independent entries: ``sigma sqrt(2 D)`` for a symmetric matrix, ``sigma (sqrt(D) +
        sqrt(R))`` for a tall one.
        """
        sigma = self.sigma(noise, rows)
        if rows == columns:
            return sigma * math.sqrt(2 * rows)
        return sigma * (math.sqrt(rows) + math.sqrt(columns))

    @abstractmethod
    def growth(self, rows: int, before: int, columns: int | None) -> float:
        """By what the edge grows, at one budget, with the statistic's rows; ``None``: square."""

    def squared_length(self, expected: float, size: int, tail: float) -> float:
        """What the squared length of so many coordinates exceeds as a normal does ``tail``.

        Of independent coordinates it is nearly a chi-square variable times a number.
        """
        return expected * (1.0 + tail * math.sqrt(2.0 / size) + tail**2 / (1.5 * size))

    # -- parts that several parties draw

    def parts_drawn(self, parties: int, noise_parts: int, rows: int) -> float:
        """What ``parties`` draw, one of ``noise_parts`` each, over the whole noise: variances."""
        del rows
        return parties / noise_parts

    def part(self, scale: float, rows: int, noise_parts: int) -> str:
        """What each party draws, in a sentence's end."""
        del rows, noise_parts
        return f"a share of a vector, scale {scale:.4g} of a row's largest"

    # -- what an adversary makes of it

    def test_of(self, one: FloatArray, two: FloatArray) -> str:
        """The statistic of :meth:`distinguished`, in words."""
        del one, two
        return self.test

    def distinguished(self, values: FloatArray, one: FloatArray, two: FloatArray) -> FloatArray:
        """The best known statistic of outputs that are one of two sums plus noise.

        Parameters
        ----------
        values : array of shape (n, size)
            Outputs.
        one, two : arrays of shape (size,)
            The exact sums of two neighbouring data sets.

        Returns
        -------
        array of shape (n,)
            Larger where the first sum is likelier.
        """
        return np.asarray(values @ (one - two))
