"""The synthetic streams of paper 002: Synth(alpha), rows with a power-law spectrum."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError


def synth(
    alpha: float, *, features: int, rows: int, random_state: int | np.random.Generator | None = None
) -> NDArray[np.float64]:
    """Rows of Synth(alpha) (section 4.1, footnote 2): ``Y = U S V'`` with ``S_ii = i^-alpha``.

    U and V come from the QR factorisation of Gaussian matrices, so the directions are random. The
    singular values of *all* rows together are ``i^-alpha``: rows are short (their squared norms add
    up to ``sum i^(-2 alpha)``), and must be scaled up before norms of 1 mean anything.

    Parameters
    ----------
    alpha : float
        0 or more: 0 is a flat spectrum.
    features, rows : int
        D and n, both at least 1.
    random_state : int, Generator or None

    Returns
    -------
    array of shape (n, D)
        Of rank ``min(n, D)``.

    Raises
    ------
    DataError
        When a number is out of range.
    """
    if not (alpha >= 0 and math.isfinite(alpha)) or features < 1 or rows < 1:
        raise DataError(
            f"There is no Synth({alpha!r}) of {rows} rows and {features} features.",
            hint="Give alpha from 0 on, and at least one row and one feature.",
        )
    rng = np.random.default_rng(random_state)
    rank = min(features, rows)
    directions, _ = np.linalg.qr(rng.standard_normal((features, features)))
    weights, _ = np.linalg.qr(rng.standard_normal((rows, rank)))
    strengths = np.arange(1, rank + 1, dtype=np.float64) ** -alpha
    return np.asarray((weights * strengths) @ directions[:, :rank].T)
