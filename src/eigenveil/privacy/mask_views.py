"""What masks leave of a message to be seen by whoever has all messages (docs/proofs/views.md).

Sites that are missing count like colluding ones here: their masks become known.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

MaskKind = Literal["none", "modular", "pairwise", "helper"]

# Deviation of a Gaussian mask over that of a site's own noise.
MASK_RATIO = 2.0**12


class MaskView(ABC):
    """Masks of one kind, to whom they show what."""

    name: ClassVar[MaskKind]
    hides: ClassVar[bool] = True  # Not: each message stands alone, with all of the noise
    any_noise: ClassVar[bool] = False  # Whether noise that is not Gaussian can be shared under them
    has_helper: ClassVar[bool] = False  # Whether somebody beside the sites knows all of them

    def exposure(self, *, honest: int, taking_part: int, neighbours: int | None = None) -> float:
        """Mu of the aggregator's view over ``Delta / (gamma sqrt(honest))``, that of the sum alone.

        An upper bound whichever sites are honest; exact but for sparse pairwise masks (claim 4). At
        most ``taking_part`` agreed on masks, each with ``neighbours`` others on a ring, or with
        all.
        """
        if not 1 <= honest <= taking_part:
            raise ValueError(f"{honest} honest sites of {taking_part} taking part")
        return math.sqrt(self._squared(honest, self._connectivity(honest, taking_part, neighbours)))

    def draws(self, *, honest: int, taking_part: int, neighbours: int | None = None) -> int:
        """Gaussian masks that what the aggregator sees is made of."""
        return 0

    def _connectivity(self, honest: int, taking_part: int, neighbours: int | None) -> float:
        """Of the honest sites' masks: the second eigenvalue of their graph's Laplacian, or less."""
        if neighbours is None:
            return float(honest)
        return _connectivity_left(taking_part, taking_part - honest, (neighbours + 1) // 2)

    @abstractmethod
    def _squared(self, honest: int, connectivity: float) -> float:
        """The exposure's square where masks have at least this algebraic connectivity."""


class NoMasks(MaskView):
    """Every message is seen as it is."""

    name = "none"
    hides = False

    def _squared(self, honest: int, connectivity: float) -> float:
        return 1.0


class ModularMasks(MaskView):
    """Uniform: the sum is seen and nothing else, or else each message by itself."""

    name = "modular"
    any_noise = True

    def _squared(self, honest: int, connectivity: float) -> float:
        return 1.0 if connectivity > 0 else float(honest)


class PairwiseMasks(MaskView):
    """Gaussian, of pairs of sites."""

    name: ClassVar[MaskKind] = "pairwise"

    def draws(self, *, honest: int, taking_part: int, neighbours: int | None = None) -> int:
        """One a pair."""
        pairs = honest * (honest - 1) // 2
        return pairs if neighbours is None else min(pairs, honest * ((neighbours + 1) // 2))

    def _squared(self, honest: int, connectivity: float) -> float:
        return 1.0 + (honest - 1.0) / (1.0 + MASK_RATIO**2 * connectivity)


class HelperMasks(PairwiseMasks):
    """Gaussian and zero in sum, of a trusted helper."""

    name = "helper"
    has_helper = True

    def draws(self, *, honest: int, taking_part: int, neighbours: int | None = None) -> int:
        """One a site."""
        return taking_part

    def _connectivity(self, honest: int, taking_part: int, neighbours: int | None) -> float:
        # those of a complete graph, 1/S of its edges' variance
        return 1.0


MASK_VIEWS: Mapping[str, MaskView] = MappingProxyType(
    {each.name: each for each in (NoMasks(), ModularMasks(), PairwiseMasks(), HelperMasks())}
)


def _connectivity_left(nodes: int, removed: int, reach: int) -> float:
    """Lower bound on a ring's second Laplacian eigenvalue once any ``removed`` nodes are gone.

    Fiedler (1973): it falls by at most one a node, and where every cut of n nodes has c edges or
    more it is at least ``2 c (1 - cos(pi / n))``.
    """
    left, full = nodes - removed, 2 * reach >= nodes - 1
    if full or left == 1:
        return float(left)
    by_node = max(0.0, _ring_connectivity(nodes, reach) - removed)
    ways = max(0, 2 * reach - removed)  # left to get from one node to another
    return max(by_node, 4.0 * ways * math.sin(math.pi / (2 * left)) ** 2)


def _ring_connectivity(nodes: int, reach: int) -> float:
    """Second Laplacian eigenvalue of a ring whose nodes see ``reach`` others on either side."""
    angle = np.pi * np.arange(1, nodes // 2 + 1) / nodes
    eigenvalues = 2 * reach + 1 - np.sin((2 * reach + 1) * angle) / np.sin(angle)
    return float(np.min(eigenvalues)) - 1e-9  # a margin for rounding
