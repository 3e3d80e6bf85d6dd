"""What the papers' PCA algorithms return, and the guarantee they claim."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.privacy.guarantee import Guarantee
from eigenveil.published.caveats import LARGEST_NORM, PLAIN_NOISE

FloatArray = NDArray[np.float64]
Seed = int | np.random.Generator | None


@dataclass(frozen=True, kw_only=True)
class PublishedPCA:
    """Directions as a paper's algorithm finds them, and the guarantee it claims for them.

    Attributes
    ----------
    components : array of shape (K, D)
        Orthonormal rows, strongest first where the algorithm knows strengths.
    strengths : array of shape (K,)
        What belongs to them, as the algorithm tells it: eigenvalues or singular values of what is
        released. NaN where it tells none.
    released : array of shape (D, D) or None
        The noisy matrix that the directions come from, for rows divided by ``row_bound``; a mean
        over rows or a sum, as the paper has it. None where there is none.
    deviation : float or None
        Scale of the noise, in the units of ``released``; each algorithm says of what. None where
        there is no additive noise.
    row_bound : float or None
        What the rows were divided by; None where each block has its own.
    claim : Guarantee or None
        As the paper states it: never certified, and its caveats say why. None of an algorithm that
        claims nothing.
    messages : tuple of arrays, or None
        With several sites, what each sent, in order.
    known : tuple of arrays, or None
        The part of each message that the aggregator drew itself (CAPE).
    as_published : bool
        Always True.
    """

    components: FloatArray
    strengths: FloatArray
    claim: Guarantee | None
    released: FloatArray | None = None
    deviation: float | None = None
    row_bound: float | None = None
    messages: tuple[FloatArray, ...] | None = None
    known: tuple[FloatArray, ...] | None = None
    as_published: bool = True


def claimed(
    epsilon: float,
    delta: float,
    *caveats: str,
    calculation: str,
    public_bound: bool = True,
    view: str = "outsider",
) -> Guarantee:
    """A paper's claim: for one row replaced by another, never certified, and why it is not.

    Parameters
    ----------
    epsilon, delta : float
    *caveats : str
        Reasons of this algorithm's own, the gravest first.
    calculation : str
        How the paper gets there.
    public_bound : bool
        Whether the rows were divided by a public number.
    view : str
        Against whom.
    """
    found = () if public_bound else (LARGEST_NORM,)
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        mu=None,
        adjacency="replace-one",
        view=view,
        calculation=calculation,
        certified=False,
        caveats=(*caveats, *found, PLAIN_NOISE),
    )
