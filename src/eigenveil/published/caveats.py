"""Why the papers' claims are not certified: one sentence for each reason, said everywhere alike."""

from __future__ import annotations

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
