"""MOD-SuLQ as in the text of paper 002, symmetric and not: for reproduction, never certified.

A is the rows' second moment ``X'X / n`` plus a Gaussian mask, and the leading directions of A are
the answer. The claim is for one row replaced by another, all rows of norm at most 1. The masks are
large enough for it (see the tests; the one that is not symmetric is about 4 D times what the
Gaussian mechanism needs). What is missing is in the caveats: the mask is drawn in floating point
from a generator with a seed, and without a public bound the rows are divided by the largest norm
found.

Two slips of the text. Lemma 2, item 2 prints the smallest batch as ``T = (1/omega_0) [...]^-1``:
omega is ``[...] / n``, so omega is at most omega_0 from ``T = [...] / omega_0`` rows on, without
the inverse; printed as it is, T would fall where more privacy is asked for. And delta is 0.01 in
section 4.1 but 0.05 in the caption of its figure 3. The authors' code, too, differs from the text:
it divides the mask of a block by the length of the whole stream. The text is what is done here.
"""

from __future__ import annotations

import math

import numpy as np

from eigenveil.errors import DataError, PrivacyError
from eigenveil.linalg.eigen import leading_eigenpairs, left_singular
from eigenveil.privacy.guarantee import Guarantee
from eigenveil_papers.published.moments import Rows, check_components, second_moment
from eigenveil_papers.published.result import PublishedPCA, Seed, claimed

# Deviations as printed


def symmetric_omega(epsilon: float, delta: float, features: int, rows: int) -> float:
    """Deviation of each entry of a symmetric mask (equation 6; Chaudhuri et al. 2013's beta).

    ``(D+1)/(n eps) sqrt(2 ln((D^2+D) / (2 delta sqrt(2 pi)))) + 1/(n sqrt(eps))``
    """
    logarithm = _logarithm(epsilon, delta, features, rows, (features**2 + features) / 2)
    first = (features + 1) / epsilon * math.sqrt(2 * logarithm)
    return (first + 1 / math.sqrt(epsilon)) / rows


def omega(epsilon: float, delta: float, features: int, rows: int) -> float:
    """Deviation of each of the D^2 entries of a mask that is not symmetric (equation 8, lemma 2).

    ``4 D/(eps n) sqrt(2 ln(D^2 / (delta sqrt(2 pi)))) + sqrt(2)/(n sqrt(eps))``; parameters and
    errors as in :func:`symmetric_omega`.
    """
    logarithm = _logarithm(epsilon, delta, features, rows, features**2)
    first = 4 * features / epsilon * math.sqrt(2 * logarithm)
    return (first + math.sqrt(2 / epsilon)) / rows


def sulq_omega(epsilon: float, delta: float, features: int, rows: int) -> float:
    """Deviation of SuLQ's mask (section 3.3): ``sqrt(8) D ln(D/delta) / (n eps)``.

    Parameters and errors as in :func:`symmetric_omega`.
    """
    _check(epsilon, delta, features, rows)
    return math.sqrt(8) * features * math.log(features / delta) / (rows * epsilon)


def smallest_batch(omega_0: float, *, epsilon: float, delta: float, features: int) -> int:
    """The fewest rows whose mask has deviation ``omega_0`` or less (lemma 2, slip repaired)."""
    one = omega(epsilon, delta, features, 1)
    if not (omega_0 > 0 and math.isfinite(omega_0)):
        raise PrivacyError("mask-deviation", omega_0=omega_0)
    least = max(1, math.ceil(one / omega_0))
    while least > 1 and omega(epsilon, delta, features, least - 1) <= omega_0:
        least -= 1  # the quotient was rounded up
    while omega(epsilon, delta, features, least) > omega_0:
        least += 1
    return least


def _logarithm(epsilon: float, delta: float, features: int, rows: int, entries: float) -> float:
    _check(epsilon, delta, features, rows)
    logarithm = math.log(entries / (delta * math.sqrt(2 * math.pi)))
    if logarithm < 0:
        raise PrivacyError("mask-delta", delta=delta, features=features)
    return logarithm


def _check(epsilon: float, delta: float, features: int, rows: int) -> None:
    if not (epsilon > 0 and math.isfinite(epsilon) and 0 < delta < 1):
        raise PrivacyError("mask-guarantee", epsilon=epsilon, delta=delta)
    if features < 1 or rows < 1:
        raise DataError("no-second-moment", rows=rows, features=features)


# One data set


def mod_sulq(
    X: Rows,
    *,
    n_components: int,
    epsilon: float,
    delta: float,
    symmetric: bool = True,
    row_bound: float | None = None,
    random_state: Seed = None,
) -> PublishedPCA:
    """MOD-SuLQ (equation 5): the leading directions of the second moment under a Gaussian mask.

    ``released`` is ``X'X / n + N``, ``deviation`` that of each entry of N, ``strengths`` its
    eigenvalues (symmetric) or singular values (not).

    Parameters
    ----------
    epsilon, delta : float
        The guarantee claimed; see :func:`symmetric_omega`.
    symmetric : bool
        The symmetric mask of equation 6 and the leading eigenvectors by value; or a mask of D^2
        independent entries (equation 8) and the leading left singular vectors, which is what
        folding slices of A with SSVD_r ends in.
    X, n_components, row_bound, random_state
        As in :func:`eigenveil_papers.published.analyze_gauss`.
    """
    moment = second_moment(X, row_bound=row_bound)
    features = moment.features
    check_components(n_components, features)
    rng = np.random.default_rng(random_state)
    deviation = (symmetric_omega if symmetric else omega)(epsilon, delta, features, moment.rows)
    mask = rng.normal(scale=deviation, size=(features, features))
    if symmetric:
        mask = np.tril(mask) + np.tril(mask, -1).T
    released = moment.mean + mask
    strengths, components = (leading_eigenpairs if symmetric else left_singular)(
        released, n_components
    )
    return PublishedPCA(
        components=components,
        strengths=strengths,
        released=released,
        deviation=deviation,
        row_bound=moment.row_bound,
        claim=published_claim(epsilon, delta, public_bound=moment.public_bound),
    )


def published_claim(epsilon: float, delta: float, *, public_bound: bool) -> Guarantee:
    """The claim of lemma 2 (and of Chaudhuri et al.), never certified, and why it is not."""
    return claimed(
        epsilon, delta, calculation="the published mask of MOD-SuLQ", public_bound=public_bound
    )
