"""The exponential mechanism for directions: Bingham vectors (docs/proofs/bingham.md)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from eigenveil.privacy.mechanisms.base import Mechanism, Norm, SamplingError

if TYPE_CHECKING:
    from eigenveil.privacy.releases import Noise

# Directions are released rounded to this: fine enough for any use, and far coarser than the
# arithmetic they were drawn in, which would otherwise give the rows' eigenvectors away.
_VECTOR_GRID = -20


class Bingham(Mechanism):
    """Directions of density ``exp(u' A u / scale)``, one after the other; pure epsilon."""

    name = "bingham"
    norm: ClassVar[Norm] = "score"
    proof = "bingham.md"
    added = False
    adds_up = False
    audited = 0.25
    caveats = (
        "directions are computed in double precision and rounded to a far coarser grid; the proof "
        "is for ideal arithmetic",
    )
    test = "squared part of the released directions along the row that differs (likelihood ratio)"

    def sampling_error(self, noise: Noise, *, copies: int, blocks: int) -> SamplingError:
        """None: ideal arithmetic is assumed, and stated in a caveat."""
        return SamplingError(0.0, 0.0)

    def fixed_grid(self) -> int:
        return _VECTOR_GRID

    def growth(self, rows: int, before: int, columns: int | None) -> float:
        """As that of Gaussian noise: it is simulated for so few features that it hardly grows."""
        return math.sqrt(rows / before)
