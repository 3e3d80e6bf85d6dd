"""How good a subspace is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.eigen import leading_eigenpairs


def captured_energy(second_moment: NDArray[np.float64], components: NDArray[np.float64]) -> float:
    """``tr(V' A V)`` of components (K, D) as a fraction of the best possible (the papers' q)."""
    q = float(np.einsum("kd,de,ke->", components, second_moment, components, optimize=True))
    best, _ = leading_eigenpairs(second_moment, components.shape[0])
    return q / float(np.sum(best))
