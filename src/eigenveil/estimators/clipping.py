"""Choosing the clipping quantile from released norms and the noise level alone.

Shortening every row to the same length (unit rows) makes the most of each row under the noise, but
for data whose directions are not elliptical it leaves a bias that more budget never removes.
Clipping only the longest rows has less bias and less signal. Which matters more follows from
``r = edge / (rows / components)``: the largest eigenvalue of the noise against an even share of the
rows' energy. The steps below were read off runs on six data sets (digits, MNIST, Covertype, wine,
and two of sensor readings) at epsilon from 0.1 to 10; ``make bench`` repeats them.
"""

from __future__ import annotations

from eigenveil.estimators.scale import NormScale

# (r at most, clip at this quantile of the norms); unit rows beyond the last
_STEPS = ((0.008, 0.95), (0.03, 0.90), (0.06, 0.50))


def choose_bound(scale: NormScale, *, edge: float, components: int) -> float:
    """The norm at which rows are clipped for ``row_norm="auto"``; 0 for unit rows."""
    ratio = edge * components / scale.rows
    for most, quantile in _STEPS:
        if ratio <= most:
            return scale.quantile(quantile)
    return 0.0
