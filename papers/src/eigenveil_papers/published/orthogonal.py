"""AGN, AVN and capeAGN exactly as published (paper 001, Algorithms 4, 5 and 2): for reproduction.

Never certified. What the claims overlook, each shown in the tests: Gaussian noise needs the
Frobenius norm of what one row changes, but 1/N for the pair moment is its spectral norm; the
calibration is proved for epsilon up to 1 only; the aggregator sees all messages of CAPE together;
and the moments of documents are not symmetric although the noise is, so that their antisymmetric
parts go out exactly.

Nothing is improved here: moments are D x D x D, every unique entry gets the same noise, eigenvalues
come by absolute value, and power iteration starts once for each component. What the text leaves
open is as in the authors' public code (hafizimtiaz/capeOTD): that one start, in the positive
orthant, 1000 iterations, tolerance 1e-6. Their code adds the pooled noise once and calls it
capeAGN; here the messages are made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from eigenveil.errors import DataError
from eigenveil.linalg.tensor import cubes, identity_terms, multilinear
from eigenveil.privacy.accountant import classic_sigma
from eigenveil.privacy.guarantee import Guarantee
from eigenveil_papers.published.cape_pca import (
    Each,
    FloatArray,
    Messages,
    cape_messages,
    plan_of_sites,
    times_claimed,
    weighted_mean,
)
from eigenveil_papers.published.moments import (
    mirrored,
    rows_within,
    unique_entries,
    with_gaussian,
)
from eigenveil_papers.published.result import (
    ANTISYMMETRIC,
    CLASSIC,
    LARGEST_NORM,
    SPECTRAL_NORM,
    all_messages,
    claimed,
)

_BLOCK = 1024  # rows at once: with 50 features, products of pairs take 10 MB
_ITERATIONS, _TOLERANCE = 1000, 1e-6  # of a start, in the authors' code


# Moments


class Moments(NamedTuple):
    """The pair moment (D, D) and the triple moment (D, D, D) of some rows, as means."""

    pair: FloatArray
    triple: FloatArray


def scaled_by_largest(rows: ArrayLike) -> tuple[FloatArray, float]:
    """Rows divided by the largest norm found, and that norm. Not private: it is one row's own."""
    return rows_within(rows, None)


def smallest_variance(rows: ArrayLike) -> float:
    """The smallest eigenvalue of the rows' covariance: the authors' noise variance. Not private.

    The text takes the variance as known. Found so, it is low: of D features and n rows by a factor
    of about ``(1 - sqrt(D/n))^2``.
    """
    exact = np.asarray(rows, dtype=np.float64)
    mean = exact.mean(axis=0)
    covariance = exact.T @ exact / len(exact) - np.outer(mean, mean)
    return max(0.0, float(np.linalg.eigvalsh(covariance)[0]))


def gaussian_moments(rows: ArrayLike, noise_variance: float) -> Moments:
    """Moments of a mixture of spherical Gaussians (appendix D.2).

    Of rows (N, D) divided by the largest norm found; ``noise_variance`` is that of each feature
    around its component, in the units of these rows.
    """
    exact = np.asarray(rows, dtype=np.float64)
    if np.einsum("nd,nd->n", exact, exact).max(initial=0.0) > 1 + 1e-9:
        raise DataError("norm-above-one")
    count, size = exact.shape
    first, second = np.triu_indices(size)
    products = np.zeros((first.size, size))
    for start in range(0, count, _BLOCK):
        block = exact[start : start + _BLOCK]
        products += (block[:, first] * block[:, second]).T @ block
    triple = np.empty((size, size, size))
    triple[first, second] = triple[second, first] = products / count
    triple -= noise_variance * identity_terms(exact.mean(axis=0))
    return Moments(exact.T @ exact / count - noise_variance * np.eye(size), triple)


def topic_moments(words: ArrayLike, size: int) -> Moments:
    """Moments of the first, second and third words of documents (appendix D.1).

    Of three words a document (N, 3), each a number below ``size``. As published they are not
    symmetric: entry (d, e) is how often d comes first and e second.
    """
    given = np.asarray(words)
    if given.ndim != 2 or given.shape[1] != 3 or not np.issubdtype(given.dtype, np.integer):
        raise DataError("not-three-words", shape=given.shape, dtype=given.dtype)
    if given.size == 0 or given.min() < 0 or given.max() >= size:
        raise DataError("words-out-of-range", last=size - 1)
    pairs = given[:, 0] * size + given[:, 1]
    triples = pairs * size + given[:, 2]
    return Moments(
        (np.bincount(pairs, minlength=size**2) / len(given)).reshape(size, size),
        (np.bincount(triples, minlength=size**3) / len(given)).reshape(size, size, size),
    )


# Sensitivities and noise as printed


@dataclass(frozen=True)
class Sensitivities:
    """What the paper says one changed row moves the moments by, and what is wrong with that."""

    pair: float
    triple: float
    caveats: tuple[str, ...] = ()


def gaussian_sensitivities(rows: int, size: int, noise_variance: float) -> Sensitivities:
    """``1/N`` and ``2/N + 6 D s2/N`` (appendix E); ``noise_variance`` in units of scaled rows."""
    return Sensitivities(
        1 / rows, 2 / rows + 6 * size * noise_variance / rows, (LARGEST_NORM, SPECTRAL_NORM)
    )


def topic_sensitivities(rows: int) -> Sensitivities:
    """``sqrt(2)/N`` for both moments (appendix E)."""
    return Sensitivities(math.sqrt(2) / rows, math.sqrt(2) / rows, (ANTISYMMETRIC,))


class Deviations(NamedTuple):
    """Of the Gaussian noise on each unique entry of the two moments."""

    pair: float
    triple: float


def published_deviations(
    sensitivities: Sensitivities, *, epsilon: float, delta: float
) -> Deviations:
    """``Delta sqrt(2 ln(1.25/delta)) / epsilon``, half of epsilon and delta for each moment."""
    half = epsilon / 2, delta / 2
    return Deviations(
        classic_sigma(sensitivities.pair, *half, reproduction=True),
        classic_sigma(sensitivities.triple, *half, reproduction=True),
    )


def vector_noise(entries: int, beta: float, rng: np.random.Generator) -> FloatArray:
    """A vector of density proportional to ``exp(-beta |b|)`` (equation 12)."""
    direction = rng.standard_normal(entries)
    return np.asarray(rng.gamma(entries, 1 / beta) * direction / np.linalg.norm(direction))


# Results


class Transcript(NamedTuple):
    """All messages of capeAGN.

    ``pairs`` (S, D, D). ``cubes`` (S, K, K, K): the sites', and what the aggregator's and the
    helper's noise (S, D, D, D), sent as it stands in ``noise``, is through the whitening (D, K).
    """

    pairs: Messages
    cubes: Messages
    noise: tuple[FloatArray, FloatArray]
    whitening: FloatArray

    @property
    def numbers_sent(self) -> int:
        """Numbers that went over all links, of which the helper's are some."""
        arrays = (*self.pairs, self.cubes.sent, *self.noise)
        return sum(each.size for each in arrays) + len(self.cubes.sent) * self.whitening.size


@dataclass(frozen=True)
class PublishedComponents:
    """What tensor power iteration finds."""

    vectors: FloatArray  # `lambda W^{+T} v` as rows, in the units of the scaled rows
    weights: FloatArray  # `1 / lambda^2`: they need not add up to 1
    converged: bool

    @property
    def directions(self) -> FloatArray:
        """Components of length 1: what the published errors of mixtures are about."""
        return np.asarray(self.vectors / np.linalg.norm(self.vectors, axis=1, keepdims=True))

    @property
    def distributions(self) -> FloatArray:
        """Topics: negative entries at zero, the rest divided by its sum (section 6.2).

        A component without a positive entry has no such sum (the authors leave the run out of
        their mean): here it is the uniform distribution.
        """
        positive = np.maximum(self.vectors, 0.0)
        positive[~positive.any(axis=1)] = 1.0
        return np.asarray(positive / positive.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class PublishedTensor:
    """What Algorithms 2, 4 and 5 return, and the guarantee they claim for it."""

    cube: FloatArray  # The whitened noisy triple moment, `M3(W, W, W)`
    whitening: FloatArray  # `W = U D^(-1/2)`
    claim: Guarantee  # As the paper states it: never certified, and its caveats say why
    transcript: Transcript | None = None  # Of capeAGN: what the aggregator sees besides
    as_published: bool = True  # Always True

    def components(self, *, rng: np.random.Generator, restarts: int = 1) -> PublishedComponents:
        """Components of the cube; one start for each is what the authors take."""
        return _decomposed(self.cube, self.whitening, rng, restarts)


def components(
    pair: FloatArray, triple: FloatArray, count: int, *, rng: np.random.Generator, restarts: int = 1
) -> PublishedComponents:
    """K components of exact or noisy moments: the papers' non-private method.

    Of ``restarts`` random starts of the power iteration the best is kept: one as published.
    """
    whitening = whitening_of(pair, count)
    return _decomposed(multilinear(triple, whitening), whitening, rng, restarts)


def whitening_of(pair: FloatArray, count: int) -> FloatArray:
    """``W = U D^(-1/2)`` of the K leading singular values of the pair moment, (D, K).

    As published it is the SVD, not the spectrum, that is cut off: a negative eigenvalue of a noisy
    moment counts by its absolute value.
    """
    left, values, _ = np.linalg.svd(pair)
    rank = int(np.sum(values > 1e-13 * values[0]))
    if not 1 <= count <= rank:
        raise DataError("rank-below-components", rank=rank, count=count)
    return np.asarray(left[:, :count] / np.sqrt(values[:count]))


def _decomposed(
    cube: FloatArray, whitening: FloatArray, rng: np.random.Generator, restarts: int
) -> PublishedComponents:
    values, found, converged = _power_iteration(cube, rng, restarts)
    # W has orthogonal columns, so its pseudo-inverse is a scaling of them: W^{+T} = U D^(1/2)
    colouring = whitening / np.sum(whitening * whitening, axis=0)
    return PublishedComponents(values[:, None] * (found @ colouring.T), 1 / values**2, converged)


def _power_iteration(
    cube: FloatArray, rng: np.random.Generator, restarts: int
) -> tuple[FloatArray, FloatArray, bool]:
    """Values (K,), vectors (K, K) as rows, and whether all starts that were kept converged.

    The mapping (3) as it stands, with deflation. :func:`eigenveil.linalg.tensor.power_iteration`
    is better: it sees the symmetric part only, which the cube of documents is not. Its errors on
    the published topics of 10 words are 0.7 times these; of mixtures they are the same.
    """
    left, count, converged = cube, len(cube), True
    values, vectors = np.zeros(count), np.zeros((count, count))
    for k in range(count):
        kept = max((_from_one_start(left, rng) for _ in range(restarts)), key=lambda end: end[0])
        values[k], vectors[k], settled = kept
        converged = converged and settled
        left = left - cubes(values[k : k + 1], vectors[k : k + 1])
    return values, vectors, converged


def _from_one_start(cube: FloatArray, rng: np.random.Generator) -> tuple[float, FloatArray, bool]:
    """``|T(I, u, u)|`` and u at the end, and whether it converged."""
    here = rng.random(len(cube))  # as the authors start
    here /= np.linalg.norm(here)
    for _ in range(_ITERATIONS):
        seen = (cube @ here) @ here
        value = float(np.linalg.norm(seen))
        if value == 0:
            raise DataError("zero-triples")
        before, here = here, seen / value
        if np.linalg.norm(here - before) <= _TOLERANCE:
            return value, here, True
    return value, here, False


# One data set


def agn(
    moments: Moments,
    sensitivities: Sensitivities,
    count: int,
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> PublishedTensor:
    """AGN (Algorithm 4): independent Gaussian noise on every unique entry of both moments.

    Parameters
    ----------
    moments : Moments
    sensitivities : Sensitivities
        Of these moments, as published.
    count : int
        K, the number of components.
    epsilon, delta : float
        Half of each goes to either moment, as in the paper's experiments.
    rng : Generator
    """
    tau = published_deviations(sensitivities, epsilon=epsilon, delta=delta)
    whitening = whitening_of(with_gaussian(moments.pair, tau.pair, rng), count)
    cube = multilinear(with_gaussian(moments.triple, tau.triple, rng), whitening)
    return PublishedTensor(cube, whitening, _claim(epsilon, delta, sensitivities))


def avn(
    moments: Moments,
    sensitivities: Sensitivities,
    count: int,
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> PublishedTensor:
    """AVN (Algorithm 5): vector noise on the triple moment, and all of delta for the pair moment.

    Parameters as in :func:`agn`; half of epsilon goes to either moment. With ``delta = 0`` the pair
    moment has vector noise too, the pure algorithm for step 4 of the remark after theorem 4.
    """
    size = moments.pair.shape[0]
    if delta == 0:
        entries, scale = unique_entries(size, 2), sensitivities.pair / (epsilon / 2)
        pair = moments.pair + mirrored(vector_noise(entries, 1 / scale, rng), size, 2)
    else:
        tau = classic_sigma(sensitivities.pair, epsilon / 2, delta, reproduction=True)
        pair = with_gaussian(moments.pair, tau, rng)
    whitening = whitening_of(pair, count)
    beta = epsilon / 2 / sensitivities.triple
    noise = mirrored(vector_noise(unique_entries(size, 3), beta, rng), size, 3)
    cube = multilinear(moments.triple + noise, whitening)
    return PublishedTensor(cube, whitening, _claim(epsilon, delta, sensitivities))


# Several sites


def capeagn(
    sites: Sequence[Moments],
    sensitivities: Sensitivities | Sequence[Sensitivities],
    count: int,
    *,
    epsilon: Each,
    delta: Each,
    rng: np.random.Generator,
    weights: Sequence[float] | None = None,
    noise: Literal["literal", "symmetric"] = "literal",
) -> PublishedTensor:
    """The protocol capeAGN (Algorithm 2), every message of it really made.

    Round 1: noisy pair moments, from which the aggregator takes W. Round 2: the sites see their
    noisy triple moments through W and send K x K x K. What the helper drew cancels, what the
    aggregator drew it takes off, and the mean carries the noise of AGN on all rows. Where rows,
    targets or weights differ, either round goes by section 3.1 (see :func:`cape`).

    Parameters
    ----------
    sites : sequence of Moments
        One for each site.
    sensitivities : Sensitivities, or sequence of S
        Of one site's moments, if all sites have equally many rows; else of each site's.
    epsilon, delta : float, or sequence of S
        Half of each goes to either moment.
    count, rng
        As in :func:`agn`.
    weights : sequence of S floats, or None
        Of the sites in the mean; None: in proportion to 1/sensitivity, which is to their rows.
    noise : {"literal", "symmetric"}
        Of the helper and of the aggregator: all entries independent, as in the text, or symmetric
        (see :func:`eigenveil_papers.published.capepca`).
    """
    own = sensitivities if isinstance(sensitivities, Sequence) else [sensitivities] * len(sites)
    half = np.divide(epsilon, 2).tolist(), np.divide(delta, 2).tolist()
    of_pairs, of_triples = (
        plan_of_sites(len(sites), moved, *half, weights)
        for moved in ([each.pair for each in own], [each.triple for each in own])
    )
    pairs = cape_messages([site.pair for site in sites], of_pairs, rng, layout=noise)
    whitening = whitening_of(weighted_mean(pairs, of_pairs.weights), count)
    triples = cape_messages([site.triple for site in sites], of_triples, rng, layout=noise)
    cubes = Messages(*(np.stack([multilinear(t, whitening) for t in part]) for part in triples))
    claim = _claim(
        float(np.max(epsilon)),
        float(np.max(delta)),
        own[0],
        all_messages(float(times_claimed(of_pairs).max())),
        view="aggregator",
    )
    cube = weighted_mean(cubes, of_triples.weights)
    transcript = Transcript(pairs, cubes, (triples.known, triples.helper), whitening)
    return PublishedTensor(cube, whitening, claim, transcript)


def conv(
    sites: Sequence[Moments],
    sensitivities: Sensitivities,
    count: int,
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> PublishedTensor:
    """The baseline "conv": sites add independent noise. Parameters as in :func:`capeagn`."""
    tau = published_deviations(sensitivities, epsilon=epsilon, delta=delta)
    pairs = [with_gaussian(site.pair, tau.pair, rng) for site in sites]
    triples = [with_gaussian(site.triple, tau.triple, rng) for site in sites]
    whitening = whitening_of(np.mean(pairs, axis=0), count)
    cube = multilinear(np.mean(triples, axis=0), whitening)
    claim = _claim(epsilon, delta, sensitivities, view="aggregator")
    return PublishedTensor(cube, whitening, claim)


def local(
    sites: Sequence[Moments], sensitivities: Sensitivities, count: int, **target: Any
) -> PublishedTensor:
    """The baseline "local": AGN on the last site. Parameters as in :func:`capeagn`."""
    return agn(sites[-1], sensitivities, count, **target)


def _claim(
    epsilon: float,
    delta: float,
    sensitivities: Sensitivities,
    *reasons: str,
    view: str = "outsider",
) -> Guarantee:
    beyond = (CLASSIC,) if epsilon / 2 > 1 else ()
    return claimed(
        epsilon,
        delta,
        *(*sensitivities.caveats, *beyond, *reasons),
        calculation="the published sensitivities and calibration",
        view=view,
    )
