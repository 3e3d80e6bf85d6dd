"""The papers' algorithms against their own claims: real outputs of the published functions.

Rows are axes of a small space, where noise on the entries of a triangle protects least. A
claim's ``mu`` is that of the paper's own calculation, the sensitivity it states over the
deviation it draws: a bound above it shows the sensitivity or the view to be wrong, whether or
not the slack of the classic calibration still covers (epsilon, delta).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from eigenveil.audit.case import Case, ClaimedLoss, FloatArray, Witness
from eigenveil.privacy.accountant import mu_of_epsilon
from eigenveil_papers import published
from eigenveil_papers.audits.attacks import (
    DELTA,
    EPSILON,
    SQRT2,
    TENSOR_EPSILON,
    Draw,
    MomentAttack,
    diagonal,
    moment,
    mu_claim,
    pair_of,
    published_case,
    tensor_moments,
    two_axes,
)
from eigenveil_papers.audits.parties import party_cases
from eigenveil_papers.published.orthogonal import PublishedTensor
from eigenveil_papers.published.sulq import omega, symmetric_omega

# What is exported and has no case of its own, and why.
NOT_AUDITED = {
    "dispca": "claims nothing",
    "djica": "each site's part is the noisy second moment of dpdispca",
    "full": "each site's message is analyze_gauss of its rows",
    "local": "analyze_gauss of one site",
    "pooled": "analyze_gauss of all rows",
    "joint_ica": "its PCA is analyze_gauss's or capepca's, its steps' messages are cape's",
    "GradientPrivacy": "what joint_ica is asked for",
    "PublishedICA": "a result",
    "PublishedMean": "a result",
    "PublishedPCA": "a result",
    "PublishedTensor": "a result",
    "PublishedMoment": "exact, not released",
    "second_moment": "exact, not released",
    "second_moments": "exact, not released",
}


# One curator


def _released(
    of: Callable[..., published.PublishedPCA],
    read: Callable[[FloatArray], float],
    data: published.PublishedMoment,
    rng: np.random.Generator,
    **target: float,
) -> float:
    found = of(data, n_components=1, random_state=rng, **target)
    assert found.released is not None
    return read(found.released)


def _first(matrix: FloatArray) -> float:
    return float(matrix[0, 0])


def _least_but_one(matrix: FloatArray) -> float:
    return float(np.linalg.eigvalsh(matrix - np.eye(2))[0])


def _rows_of(data: published.PublishedMoment) -> FloatArray:
    return np.repeat(np.eye(2), np.rint(np.diag(data.total)).astype(int), axis=0)


def _sulq(data: published.PublishedMoment, **target: Any) -> published.PublishedPCA:
    return published.mod_sulq(_rows_of(data), epsilon=EPSILON, delta=DELTA, row_bound=1.0, **target)


def _ppca(data: published.PublishedMoment, rng: np.random.Generator) -> float:
    found = published.ppca(data, n_components=2, epsilon=EPSILON, burn_in=5, random_state=rng)
    along = np.sum(found.components**2, axis=0)
    return float(along[0] - along[1])


_POWER_FEATURES, _POWER_ROUNDS, _POWER_ROWS = 64, 2, 10**6


def _power(delta: float, data: published.PublishedMoment, rng: np.random.Generator) -> float:
    found = published.private_power(
        data, n_components=1, epsilon=EPSILON, delta=delta, n_iter=_POWER_ROUNDS, random_state=rng
    )
    direction = np.full(_POWER_FEATURES, _POWER_FEATURES**-0.5)
    return float(found.strengths[0] * abs(found.components[0] @ direction) - _POWER_ROWS)


def _power_moment(other: float) -> published.PublishedMoment:
    """Rows along the diagonal of the space, but for ``other`` rows along the first two axes."""
    direction = np.full(_POWER_FEATURES, _POWER_FEATURES**-0.5)
    across = np.zeros(_POWER_FEATURES)
    across[:2] = 1 / SQRT2, -1 / SQRT2
    mean = np.outer(direction, direction) * (1 - other / _POWER_ROWS)
    mean += np.outer(across, across) * (other / _POWER_ROWS)
    return published.PublishedMoment(mean=mean, rows=_POWER_ROWS, row_bound=1.0, public_bound=True)


def _fpca(data: published.PublishedMoment, rng: np.random.Generator) -> float:
    rows = _rows_of(data)
    found = published.fpca(
        rows,
        n_components=1,
        block=len(rows),
        epsilon=EPSILON,
        delta=DELTA,
        adapt=False,
        row_bound=1.0,
        random_state=rng,
    )
    return float(found.components[0, 0] ** 2)


def _pair(
    of: Callable[..., PublishedTensor], data: published.PublishedMoment, rng: np.random.Generator
) -> float:
    given = tensor_moments(data)
    return diagonal(
        pair_of(of(*given, data.features, epsilon=TENSOR_EPSILON, delta=DELTA, rng=rng))
    )


def published_cases() -> list[Case]:
    """A case for each algorithm, and more where its failure has several faces."""
    return [*_of_analyze_gauss(), *_of_one_curator(), *_of_power(), *_of_tensors(), *party_cases()]


def _of_analyze_gauss() -> list[Case]:
    both, replaced = moment([1.0, 1.0], 2), moment([0.0, 2.0], 2)

    def draw(read: Callable[[FloatArray], float], epsilon: float) -> Draw:
        return partial(_released, published.analyze_gauss, read, epsilon=epsilon, delta=DELTA)

    return [
        *(
            published_case(
                "analyze-gauss",
                f"analyze-gauss-{epsilon:g}-replace-one",
                mu_claim(epsilon, DELTA, "003 section 3, 000 algorithm 1: sensitivity 1/N"),
                title=f"Analyze Gauss at epsilon {epsilon:g}",
                test="the released matrix along the difference of the two rows' squares "
                "(likelihood ratio)",
                sample=MomentAttack(both, replaced, draw(diagonal, epsilon)).sample,
                times=SQRT2,
                share=share,
            )
            for epsilon, share in ((1.0, 1.0), (5.0, 0.5), (10.0, 1.0))
        ),
        published_case(
            "analyze-gauss",
            "analyze-gauss-10-add-remove",
            mu_claim(10.0, DELTA, "the classic calibration, proved up to epsilon 1"),
            title="Analyze Gauss at epsilon 10",
            adjacency="add-remove",
            test="the released matrix along the row's square (a row against a row of zeros)",
            sample=MomentAttack(both, moment([0.0, 1.0], 2), draw(_first, 10.0)).sample,
            times=1.0,
            share=0.5,
        ),
    ]


def _of_one_curator() -> list[Case]:
    both, replaced = moment([1.0, 1.0], 2), moment([0.0, 2.0], 2)
    first, other = moment([1.0, 0.0, 0.0], 1), moment([0.0, 1.0, 0.0], 1)
    wishart = partial(_released, published.wishart_sn, _least_but_one, epsilon=EPSILON)
    lemma_2 = ClaimedLoss(epsilon=EPSILON, delta=DELTA, whence="002 lemma 2")
    need = mu_of_epsilon(EPSILON, DELTA)
    return [
        published_case(
            "wishart-sn",
            "wishart-sn",
            ClaimedLoss(epsilon=EPSILON, delta=0.0, whence="003 theorem 1"),
            title="SN (Wishart)",
            test="smallest eigenvalue of the released matrix less the larger of the two sums (a "
            "row against a row of zeros)",
            sample=MomentAttack(moment([0.0, 1.0], 2), both, wishart).sample,
            share=0.25,
            witness=Witness(
                what="Y - A - u u' has a negative eigenvalue", chance=-math.expm1(-EPSILON)
            ),
        ),
        *(
            published_case(
                "mod-sulq",
                f"mod-sulq{form}",
                replace(lemma_2, mu=need, whence="002 lemma 2; mu is the need"),
                title=f"MOD-SuLQ, {mask}",
                test="the released matrix along the difference of the two rows' squares",
                sample=MomentAttack(
                    both,
                    replaced,
                    partial(_released, partial(_sulq, symmetric=bool(form)), diagonal),
                ).sample,
                truth=SQRT2 / 2 / deviation(EPSILON, DELTA, 2, 2),
                share=0.1,
            )
            for form, mask, deviation in (
                ("-symmetric", "symmetric mask", symmetric_omega),
                ("", "mask of D x D entries", omega),
            )
        ),
        published_case(
            "fpca",
            "fpca",
            lemma_2,
            title="Federated-PCA",
            test="squared part of the released direction along the row that is replaced",
            sample=MomentAttack(both, replaced, _fpca).sample,
            share=0.1,
        ),
        published_case(
            "ppca",
            "ppca-gibbs",
            ClaimedLoss(epsilon=EPSILON, delta=0.0, whence="003 section 6; Chaudhuri et al. 2013"),
            title="PPCA, 5 Gibbs sweeps",
            test="squared part of the subspace along one row less that along the other (likelihood "
            "ratio of the exact law)",
            sample=MomentAttack(first, other, _ppca).sample,
            share=0.02,
        ),
    ]


def _of_power() -> list[Case]:
    return [
        published_case(
            "private-power",
            f"private-power-{name}",
            ClaimedLoss(epsilon=EPSILON, delta=delta, whence="003 section 3"),
            title=f"private power, {name}",
            test="the last product along the direction that nearly all rows have",
            sample=MomentAttack(
                _power_moment(0.0), _power_moment(1.0), partial(_power, delta)
            ).sample,
            share=share,
        )
        for name, delta, share in (("gaussian", DELTA, 0.3), ("laplace", 0.0, 0.1))
    ]


def _pure_pair(data: published.PublishedMoment, rng: np.random.Generator) -> float:
    """How much nearer the released unique entries are to the first of :func:`two_axes`."""
    given = tensor_moments(data)
    found = published.avn(*given, data.features, epsilon=TENSOR_EPSILON, delta=0.0, rng=rng)
    noise = (pair_of(found) - each.mean for each in two_axes())
    first, second = (math.hypot(of[0, 0], of[0, 1], of[1, 1]) for of in noise)
    return second - first


def _of_tensors() -> list[Case]:
    pure = ClaimedLoss(
        epsilon=TENSOR_EPSILON / 2, delta=0.0, whence="001 appendix E.2: pure, with 1/N for pairs"
    )
    return [
        published_case(
            "avn",
            "avn-pure-pair",
            pure,
            title="AVN with delta 0, its step for pairs",
            test="the distances of the pair moment's unique entries from the two exact ones "
            "(likelihood ratio)",
            sample=MomentAttack(*two_axes(), _pure_pair).sample,
        ),
        *_gaussian_pairs(),
    ]


def _gaussian_pairs() -> list[Case]:
    return [
        published_case(
            name,
            f"{name}-pair",
            mu_claim(TENSOR_EPSILON / 2, delta, "001 appendix E: 1/N for the pair moment"),
            title=f"{name.upper()}, its step for pairs",
            test="the pair moment that the whitening gives away, along the difference of the "
            "two rows' squares",
            sample=MomentAttack(*two_axes(), partial(_pair, of)).sample,
            times=SQRT2,
            share=0.5,
        )
        for name, of, delta in (("agn", published.agn, DELTA / 2), ("avn", published.avn, DELTA))
    ]
