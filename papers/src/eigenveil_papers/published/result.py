"""What the papers' PCA algorithms return, and the guarantee they claim."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.privacy.guarantee import Guarantee

FloatArray = NDArray[np.float64]
Seed = int | np.random.Generator | None


@dataclass(frozen=True, kw_only=True)
class PublishedPCA:
    """Directions as a paper's algorithm finds them, and the guarantee it claims for them."""

    components: FloatArray  # Orthonormal rows, strongest first where the algorithm knows strengths
    # What belongs to them, as the algorithm tells it: eigenvalues or singular values of what is
    # released. NaN where it tells none.
    strengths: FloatArray
    # As the paper states it: never certified, and its caveats say why. None of an algorithm that
    # claims nothing.
    claim: Guarantee | None
    # The noisy matrix that the directions come from, for rows divided by `row_bound`; a mean over
    # rows or a sum, as the paper has it. None where there is none.
    released: FloatArray | None = None
    # Scale of the noise, in the units of `released`; each algorithm says of what. None where there
    # is no additive noise.
    deviation: float | None = None
    # What the rows were divided by; None where each block has its own
    row_bound: float | None = None
    messages: tuple[FloatArray, ...] | None = None  # With several sites, what each sent, in order
    # The part of each message that the aggregator drew itself (CAPE)
    known: tuple[FloatArray, ...] | None = None
    # The part of each message that the helper drew (CAPE)
    helper: tuple[FloatArray, ...] | None = None
    as_published: bool = True  # Always True


def claimed(
    epsilon: float,
    delta: float,
    *caveats: str,
    calculation: str,
    public_bound: bool = True,
    view: str = "outsider",
) -> Guarantee:
    """A paper's claim: for one row replaced by another, never certified, and why it is not.

    ``caveats`` are reasons of this algorithm's own, the gravest first; ``calculation`` is how the
    paper gets there; ``public_bound`` whether rows were divided by a public number.
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


# -- Why the papers' claims are not certified: one sentence for each reason, said everywhere alike.


LARGEST_NORM = "the rows are divided by the largest norm found, which is not private"
PLAIN_NOISE = "the noise is drawn in floating point from a generator that is not cryptographic"
CLASSIC = "a step's epsilon is above 1, where the calibration is not proved"
SPECTRAL_NORM = "1/N is the second moment's sensitivity in spectral norm; noise needs sqrt(2)/N"
ANTISYMMETRIC = "the noise is symmetric, the moments are not: their antisymmetric part is exact"
WISHART = (
    "pure epsilon is false: (epsilon, 1 - exp(-epsilon)) is the best that holds, since the released"
    " matrix less a neighbour's second moment may have a negative eigenvalue"
)
MARKOV_CHAIN = "the exponential mechanism is sampled by a Markov chain that is cut off"
ROUNDS = "the number of rounds comes from the exact singular values, which is not private"
ONE_ENTRY = (
    "noise in proportion to the largest entry of V hides one changed entry of the second moment;"
    " a changed row changes all of them"
)


def all_messages(times: float) -> str:
    """The reason against CAPE: what one message shows is not what the aggregator sees."""
    return f"the aggregator sees all messages together: its mu is {times:.3g} times the claimed one"
