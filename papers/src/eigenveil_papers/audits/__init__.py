"""The papers' algorithms against their own claims: real outputs of the published functions.

Rows are axes of a small space, where noise on the entries of a triangle protects least. A
claim's ``mu`` is that of the paper's own calculation, the sensitivity it states over the
deviation it draws: a bound above it shows the sensitivity or the view to be wrong, whether or
not the slack of the classic calibration still covers (epsilon, delta).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq

from eigenveil.audit.case import Case, ClaimedLoss, FloatArray, Randomness, Samples, Witness
from eigenveil.privacy.accountant import classic_sigma, epsilon_of_mu, mu_of_epsilon
from eigenveil_papers import published
from eigenveil_papers.audits.attacks import (
    TENSOR_ROWS,
    Draw,
    GaussianView,
    MomentAttack,
    crossed_axes,
    diagonal,
    moment,
    pair_of,
    tensor_moments,
    two_axes,
)
from eigenveil_papers.published.orthogonal import PublishedTensor
from eigenveil_papers.published.sulq import omega, symmetric_omega

EPSILON, DELTA = 1.0, 0.01
# Of pair and triple moments together; half of it is a step's, where the calibration is proved.
TENSOR_EPSILON = 2.0
SQRT2 = math.sqrt(2.0)

# What is exported and has no case of its own, and why.
NOT_AUDITED = {
    "dispca": "claims nothing",
    "djica": "each site's part is the noisy second moment of dpdispca",
    "full": "each site's message is analyze_gauss of its rows",
    "local": "analyze_gauss of one site",
    "pooled": "analyze_gauss of all rows",
    "PublishedMean": "a result",
    "PublishedPCA": "a result",
    "PublishedTensor": "a result",
    "PublishedMoment": "exact, not released",
    "second_moment": "exact, not released",
    "second_moments": "exact, not released",
}


def mu_claim(epsilon: float, delta: float, whence: str) -> ClaimedLoss:
    """Of the classic calibration: its own sensitivity over its own deviation."""
    mu = 1.0 / classic_sigma(1.0, epsilon, delta, reproduction=True)
    return ClaimedLoss(epsilon=epsilon, delta=delta, mu=mu, whence=whence)


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
        data,
        n_components=1,
        epsilon=EPSILON,
        delta=delta,
        n_iter=_POWER_ROUNDS,
        random_state=rng,
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


# The cases


def _case(
    mechanism: str, name: str, claim: ClaimedLoss, *, times: float | None = None, **fields: Any
) -> Case:
    """Of one row that is replaced, run by run; the loss is so many ``times`` the claimed mu."""
    if times is not None:
        assert claim.mu is not None
        fields["truth"] = times * claim.mu
    usual = {
        "group": "published",
        "adjacency": "replace-one",
        "sampling": "the published function, run by run",
        "covers": (mechanism.replace("-", "_"),),
    }
    return Case(mechanism=mechanism, name=name, claim=claim, **usual | fields)


def classic_fails_from(delta: float, *, times: float = 1.0) -> float:
    """The epsilon from which on the classic calibration does not give what it says."""

    def excess(epsilon: float) -> float:
        mu = times / classic_sigma(1.0, epsilon, delta, reproduction=True)
        return epsilon_of_mu(mu, delta) - epsilon

    return float(brentq(excess, 0.3, 100.0, xtol=1e-9))


def published_cases() -> list[Case]:
    """A case for each algorithm, and more where its failure has several faces."""
    return [*_of_analyze_gauss(), *_of_one_curator(), *_of_power(), *_of_tensors(), *party_cases()]


def _of_analyze_gauss() -> list[Case]:
    both, replaced = moment([1.0, 1.0], 2), moment([0.0, 2.0], 2)

    def draw(read: Callable[[FloatArray], float], epsilon: float) -> Draw:
        return partial(_released, published.analyze_gauss, read, epsilon=epsilon, delta=DELTA)

    return [
        *(
            _case(
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
        _case(
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
        _case(
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
            _case(
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
        _case(
            "fpca",
            "fpca",
            lemma_2,
            title="Federated-PCA",
            test="squared part of the released direction along the row that is replaced",
            sample=MomentAttack(both, replaced, _fpca).sample,
            share=0.1,
        ),
        _case(
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
        _case(
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


def _of_tensors() -> list[Case]:
    return [
        _case(
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


# -- The papers' protocols of several sites against their own claims: what the aggregator sees.


def _dpdispca(data: published.PublishedMoment, rng: np.random.Generator) -> float:
    found = published.dpdispca(
        [data],
        n_components=1,
        intermediate=2,
        epsilon=EPSILON,
        delta=DELTA,
        random_state=rng,
    )
    assert found.messages is not None
    return diagonal(found.messages[0] @ found.messages[0].T)


_SITES = 10
_TENSOR_SITES = 5


def _capepca(
    noise: Literal["literal", "symmetric"],
    sites: int,
    data: published.PublishedMoment,
    rng: np.random.Generator,
) -> FloatArray:
    rest = moment([1.0] * data.features, data.rows)
    found = published.capepca(
        [data] + [rest] * (sites - 1),
        n_components=1,
        epsilon=EPSILON,
        delta=DELTA,
        noise=noise,
        random_state=rng,
    )
    assert found.messages is not None
    assert found.known is not None
    return np.stack([*found.messages, *found.known])


def _capeagn(
    noise: Literal["literal", "symmetric"],
    data: published.PublishedMoment,
    rng: np.random.Generator,
) -> FloatArray:
    given, sensitivities = tensor_moments(data)
    rest = tensor_moments(moment([data.rows / 2] * 2, data.rows))[0]
    found = published.capeagn(
        [given] + [rest] * (_TENSOR_SITES - 1),
        sensitivities,
        data.features,
        epsilon=TENSOR_EPSILON,
        delta=DELTA,
        rng=rng,
        noise=noise,
    )
    assert found.transcript is not None
    pairs = found.transcript.pairs
    return np.stack([*pairs.sent, *pairs.known])


def _cape(colluding: int, statistics: FloatArray, rng: np.random.Generator) -> FloatArray:
    """The last sites tell the aggregator their zero-sum noise, which they were sent."""
    made = published.cape(
        statistics, sensitivity=1.0, epsilon=EPSILON, delta=DELTA, random_state=rng
    ).messages
    honest = len(made.sent) - colluding
    return np.concatenate([made.sent, made.known, made.helper[honest:]])


def cape_view(colluding: int) -> GaussianView:
    """The aggregator's view of CAPE, with so many sites' help, of one entry of site 0."""
    moved = np.zeros((_SITES, 1))
    moved[0] = 1.0
    return GaussianView(partial(_cape, colluding), moved, np.zeros_like(moved))


def sample_cape(view: GaussianView, trials: int, randomness: Randomness) -> Samples:
    """The aggregator's statistic of CAPE's messages, many independent entries in one round."""
    return Samples(
        *(
            view.statistic(view.run(np.repeat(data, trials, axis=1), randomness.rng))
            for data in (view.first, view.second)
        )
    )


def party_cases() -> list[Case]:
    """Cases of CAPE, capePCA, capeAGN and DPdisPCA."""
    return [_of_dpdispca(), *_of_correlated("literal"), *_of_correlated("symmetric"), *_of_cape()]


_MARGINAL = mu_claim(EPSILON, DELTA, "001 theorem 1, algorithm 3: the marginal of a message")
_EVERYTHING = "all messages and what the aggregator drew (likelihood ratio of the view)"


def _of_dpdispca() -> Case:
    return _case(
        "dpdispca",
        "dpdispca",
        mu_claim(EPSILON, DELTA, "000 algorithm 1: sensitivity 1/N_s"),
        title="DPdisPCA, a site's message",
        view="aggregator",
        test="the message times its transpose, along the difference of the two rows' squares",
        sample=MomentAttack(*two_axes(), _dpdispca).sample,
        times=SQRT2,
        share=0.25,
    )


def _of_correlated(noise: Literal["literal", "symmetric"]) -> Iterator[Case]:
    pair = mu_claim(TENSOR_EPSILON / 2, DELTA / 2, "001 appendix E and theorem 1")
    tensor = f"{_TENSOR_SITES} sites"
    axes, off = (moment([1.0, 1.0], 2), moment([0.0, 2.0], 2)), ", off the diagonal"
    for name, title, claim, run, neighbours in (
        ("capepca-5-sites", "capePCA, 5 sites", _MARGINAL, partial(_capepca, noise, 5), axes),
        (
            "capepca-10-sites-bisectors",
            f"capePCA, 10 sites{off}",
            _MARGINAL,
            partial(_capepca, noise, 10),
            crossed_axes(2),
        ),
        (
            "capeagn-5-sites-pair",
            f"capeAGN, {tensor}, its step for pairs",
            pair,
            partial(_capeagn, noise),
            two_axes(),
        ),
        (
            "capeagn-5-sites-pair-bisectors",
            f"capeAGN, {tensor}, its step for pairs{off}",
            pair,
            partial(_capeagn, noise),
            crossed_axes(TENSOR_ROWS),
        ),
    ):
        view = GaussianView(run, *neighbours)
        crossed = ", of a row along one bisector replaced by one along the other"
        yield _case(
            name.partition("-")[0],
            name if noise == "literal" else f"{name}-{noise}",
            claim,
            title=title if noise == "literal" else f"{title}, {noise} noise",
            view="aggregator",
            test=_EVERYTHING + (crossed if name.endswith("bisectors") else ""),
            sample=view.sample,
            truth=view.mu,
            share=0.2,
        )


def _of_cape() -> Iterator[Case]:
    for colluding, name, title, others, test in (
        (0, "", "", "", ""),
        (
            8,
            "-8-colluding",
            ", 8 colluding",
            " with 8 sites",
            ", with the zero-sum noise of the colluding sites",
        ),
    ):
        view = cape_view(colluding)
        yield _case(
            "cape",
            f"cape-10-sites{name}",
            _MARGINAL,
            title=f"CAPE, {_SITES} sites{title}",
            view=f"aggregator{others}",
            test=_EVERYTHING + test,
            sampling="the published messages, many independent entries in one round",
            sample=partial(sample_cape, view),
            truth=view.mu,
        )
