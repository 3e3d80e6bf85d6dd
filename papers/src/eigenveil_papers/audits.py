"""What the audits of published algorithms share: second moments, statistics of runs, claims."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq

from eigenveil.audit.case import Case, ClaimedLoss, FloatArray, Randomness, Samples, Witness
from eigenveil.privacy.accountant import classic_sigma, epsilon_of_mu, mu_of_epsilon
from eigenveil_papers import published
from eigenveil_papers.published.orthogonal import (
    Moments,
    PublishedTensor,
    Sensitivities,
    gaussian_sensitivities,
)
from eigenveil_papers.published.sulq import omega, symmetric_omega

EPSILON, DELTA = 1.0, 0.01
# Of pair and triple moments together; half of it is a step's, where the calibration is proved.
TENSOR_EPSILON = 2.0
SQRT2 = math.sqrt(2.0)

RUN_BY_RUN = "the published function, run by run"

Draw = Callable[[published.PublishedMoment, np.random.Generator], float]


def moment(weights: list[float], rows: int) -> published.PublishedMoment:
    """The second moment of so many rows, ``weights`` of them along each axis."""
    mean = np.diag(weights) / rows
    return published.PublishedMoment(mean=mean, rows=rows, row_bound=1.0, public_bound=True)


@dataclass(frozen=True)
class MomentAttack:
    """A statistic of what an algorithm releases for two second moments, run by run."""

    first: published.PublishedMoment
    second: published.PublishedMoment
    draw: Draw

    def sample(self, trials: int, randomness: Randomness) -> Samples:
        """Statistics of independent runs."""
        return Samples(
            *(
                np.fromiter((self.draw(data, randomness.rng) for _ in range(trials)), float, trials)
                for data in (self.first, self.second)
            )
        )


def diagonal(matrix: FloatArray) -> float:
    """Along the difference of two axes' rows."""
    return float(matrix[0, 0] - matrix[1, 1])


def mu_claim(epsilon: float, delta: float, whence: str) -> ClaimedLoss:
    """Of the classic calibration: its own sensitivity over its own deviation."""
    mu = 1.0 / classic_sigma(1.0, epsilon, delta, reproduction=True)
    return ClaimedLoss(epsilon=epsilon, delta=delta, mu=mu, whence=whence)


# Tensors: the whitening is the pair moment's, and with all directions it is the pair moment

TENSOR_ROWS = 600


def tensor_moments(data: published.PublishedMoment) -> tuple[Moments, Sensitivities]:
    """Of a mixture without noise of its own, the triple moment 0."""
    size = data.features
    return (
        Moments(data.mean, np.zeros((size, size, size))),
        gaussian_sensitivities(data.rows, size, 0.0),
    )


def pair_of(found: PublishedTensor) -> FloatArray:
    """The noisy pair moment that a result gives away: ``U D U'`` of ``W = U D^(-1/2)``."""
    colouring = found.whitening / np.sum(found.whitening**2, axis=0)
    return np.asarray(colouring @ colouring.T)


def two_axes() -> tuple[published.PublishedMoment, published.PublishedMoment]:
    """Rows along two axes, half along each, and one of them replaced by one along the other."""
    half = TENSOR_ROWS / 2
    return moment([half, half], TENSOR_ROWS), moment([half - 1, half + 1], TENSOR_ROWS)


# -- The papers' algorithms against their own claims: real outputs of
# :mod:`eigenveil_papers.published`.
#
# Rows are axes of a small space, where noise on the entries of a triangle protects least. A
# claim's ``mu`` is that of the paper's own calculation, the sensitivity it states over the
# deviation it draws: a bound above it shows the sensitivity or the view to be wrong, whether or
# not the slack of the classic calibration still covers (epsilon, delta).


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


# One curator


def _analyze_gauss(
    epsilon: float, data: published.PublishedMoment, rng: np.random.Generator
) -> float:
    found = published.analyze_gauss(
        data, n_components=1, epsilon=epsilon, delta=DELTA, random_state=rng
    )
    assert found.released is not None
    return diagonal(found.released)


def _along(epsilon: float, data: published.PublishedMoment, rng: np.random.Generator) -> float:
    found = published.analyze_gauss(
        data, n_components=1, epsilon=epsilon, delta=DELTA, random_state=rng
    )
    assert found.released is not None
    return float(found.released[0, 0])


def _sulq(symmetric: bool, data: published.PublishedMoment, rng: np.random.Generator) -> float:
    found = published.mod_sulq(
        np.repeat(np.eye(2), np.rint(np.diag(data.total)).astype(int), axis=0),
        n_components=1,
        epsilon=EPSILON,
        delta=DELTA,
        symmetric=symmetric,
        row_bound=1.0,
        random_state=rng,
    )
    assert found.released is not None
    return diagonal(found.released)


def _wishart(data: published.PublishedMoment, rng: np.random.Generator) -> float:
    found = published.wishart_sn(data, n_components=1, epsilon=EPSILON, random_state=rng)
    assert found.released is not None
    return float(np.linalg.eigvalsh(found.released - np.eye(2))[0])


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
    rows = np.repeat(np.eye(2), np.rint(np.diag(data.total)).astype(int), axis=0)
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


# Tensors


def _agn(data: published.PublishedMoment, rng: np.random.Generator) -> float:
    found = published.agn(
        *tensor_moments(data), data.features, epsilon=TENSOR_EPSILON, delta=DELTA, rng=rng
    )
    return diagonal(pair_of(found))


def _avn(data: published.PublishedMoment, rng: np.random.Generator) -> float:
    found = published.avn(
        *tensor_moments(data), data.features, epsilon=TENSOR_EPSILON, delta=DELTA, rng=rng
    )
    return diagonal(pair_of(found))


# The cases


_replaced = partial(Case, group="published", adjacency="replace-one", sampling=RUN_BY_RUN)
"""A case of one row that is replaced, of the published function run by run."""


def classic_fails_from(delta: float, *, times: float = 1.0) -> float:
    """The epsilon from which on the classic calibration does not give what it says."""

    def excess(epsilon: float) -> float:
        mu = times / classic_sigma(1.0, epsilon, delta, reproduction=True)
        return epsilon_of_mu(mu, delta) - epsilon

    return float(brentq(excess, 0.3, 100.0, xtol=1e-9))


def published_cases() -> list[Case]:
    """A case for each algorithm, and more where its failure has several faces."""
    return [*_of_analyze_gauss(), *_of_one_curator(), *_of_tensors(), *party_cases()]


def _of_analyze_gauss() -> list[Case]:
    both, replaced = moment([1.0, 1.0], 2), moment([0.0, 2.0], 2)
    without = moment([0.0, 1.0], 2)
    cases = []
    for epsilon in (1.0, 5.0, 10.0):
        claim = mu_claim(epsilon, DELTA, "003 section 3, 000 algorithm 1: sensitivity 1/N")
        assert claim.mu is not None
        cases.append(
            _replaced(
                name=f"analyze-gauss-{epsilon:g}-replace-one",
                mechanism="analyze-gauss",
                title=f"Analyze Gauss at epsilon {epsilon:g}",
                test="the released matrix along the difference of the two rows' squares "
                "(likelihood ratio)",
                claim=claim,
                sample=MomentAttack(both, replaced, partial(_analyze_gauss, epsilon)).sample,
                truth=SQRT2 * claim.mu,
                share=1.0 if epsilon in (1.0, 10.0) else 0.5,
                covers=("analyze_gauss",),
            )
        )
    ten = mu_claim(10.0, DELTA, "the classic calibration, proved up to epsilon 1")
    cases.append(
        Case(
            name="analyze-gauss-10-add-remove",
            mechanism="analyze-gauss",
            title="Analyze Gauss at epsilon 10",
            group="published",
            adjacency="add-remove",
            test="the released matrix along the row's square (a row against a row of zeros)",
            sampling=RUN_BY_RUN,
            claim=ten,
            sample=MomentAttack(both, without, partial(_along, 10.0)).sample,
            truth=ten.mu,
            share=0.5,
            covers=("analyze_gauss",),
        )
    )
    return cases


def _of_one_curator() -> list[Case]:
    both, replaced = moment([1.0, 1.0], 2), moment([0.0, 2.0], 2)
    need = mu_of_epsilon(EPSILON, DELTA)
    sulq = partial(
        _replaced,
        mechanism="mod-sulq",
        test="the released matrix along the difference of the two rows' squares",
        claim=ClaimedLoss(
            epsilon=EPSILON, delta=DELTA, mu=need, whence="002 lemma 2; mu is the need"
        ),
        share=0.1,
        covers=("mod_sulq",),
    )
    cases = [
        _replaced(
            name="wishart-sn",
            mechanism="wishart-sn",
            title="SN (Wishart)",
            test="smallest eigenvalue of the released matrix less the larger of the two sums (a "
            "row against a row of zeros)",
            claim=ClaimedLoss(epsilon=EPSILON, delta=0.0, whence="003 theorem 1"),
            sample=MomentAttack(moment([0.0, 1.0], 2), both, _wishart).sample,
            share=0.25,
            witness=Witness(
                what="Y - A - u u' has a negative eigenvalue", chance=-math.expm1(-EPSILON)
            ),
            covers=("wishart_sn",),
        ),
        sulq(
            name="mod-sulq-symmetric",
            title="MOD-SuLQ, symmetric mask",
            sample=MomentAttack(both, replaced, partial(_sulq, True)).sample,
            truth=SQRT2 / 2 / symmetric_omega(EPSILON, DELTA, 2, 2),
        ),
        sulq(
            name="mod-sulq",
            title="MOD-SuLQ, mask of D x D entries",
            sample=MomentAttack(both, replaced, partial(_sulq, False)).sample,
            truth=SQRT2 / 2 / omega(EPSILON, DELTA, 2, 2),
        ),
        _replaced(
            name="fpca",
            mechanism="fpca",
            title="Federated-PCA",
            test="squared part of the released direction along the row that is replaced",
            claim=ClaimedLoss(epsilon=EPSILON, delta=DELTA, whence="002 lemma 2"),
            sample=MomentAttack(both, replaced, _fpca).sample,
            share=0.1,
            covers=("fpca",),
        ),
        _replaced(
            name="ppca-gibbs",
            mechanism="ppca",
            title="PPCA, 5 Gibbs sweeps",
            test="squared part of the subspace along one row less that along the other (likelihood "
            "ratio of the exact law)",
            claim=ClaimedLoss(
                epsilon=EPSILON, delta=0.0, whence="003 section 6; Chaudhuri et al. 2013"
            ),
            sample=MomentAttack(
                moment([1.0, 0.0, 0.0], 1), moment([0.0, 1.0, 0.0], 1), _ppca
            ).sample,
            share=0.02,
            covers=("ppca",),
        ),
    ]
    for delta, name in ((DELTA, "gaussian"), (0.0, "laplace")):
        cases.append(
            _replaced(
                name=f"private-power-{name}",
                mechanism="private-power",
                title=f"private power, {name}",
                test="the last product along the direction that nearly all rows have",
                claim=ClaimedLoss(epsilon=EPSILON, delta=delta, whence="003 section 3"),
                sample=MomentAttack(
                    _power_moment(0.0), _power_moment(1.0), partial(_power, delta)
                ).sample,
                share=0.3 if delta else 0.1,
                covers=("private_power",),
            )
        )
    return cases


def _of_tensors() -> list[Case]:
    first, second = two_axes()
    cases = []
    for name, draw, delta in (("agn", _agn, DELTA / 2), ("avn", _avn, DELTA)):
        claim = mu_claim(TENSOR_EPSILON / 2, delta, "001 appendix E: 1/N for the pair moment")
        assert claim.mu is not None
        cases.append(
            _replaced(
                name=f"{name}-pair",
                mechanism=name,
                title=f"{name.upper()}, its step for pairs",
                test="the pair moment that the whitening gives away, along the difference of the "
                "two rows' squares",
                claim=claim,
                sample=MomentAttack(first, second, draw).sample,
                truth=SQRT2 * claim.mu,
                share=0.5,
                covers=(name,),
            )
        )
    return cases


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


class _Probe(np.random.Generator):
    """A generator whose normal draws are all 0, but for one that is 1 (times its scale)."""

    def __init__(self, which: int | None = None) -> None:
        super().__init__(np.random.PCG64(0))
        self.which, self.drawn = which, 0

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """As that of the generator; the draws are numbered in their order."""
        found = np.zeros(size)
        if self.which is not None and 0 <= self.which - self.drawn < found.size:
            found.flat[self.which - self.drawn] = 1.0
        self.drawn += found.size
        return loc + scale * found


@dataclass(frozen=True)
class GaussianView:
    """What an adversary sees of a protocol whose messages are linear in its normal draws.

    Nothing about the noise is told to it: the protocol runs once for each of its draws, with that
    draw 1 and all others 0, which gives the matrix J of ``view = exact + J z``. The shortest z that
    looks like the step from one data set to the other is the mu of the view, and ``(J J')^+ step``
    are the weights of the likelihood ratio.
    """

    # Of a data set and a generator: all numbers that the adversary has in the end
    run: Callable[[Any, np.random.Generator], FloatArray]
    first: Any
    second: Any

    @cached_property
    def _solved(self) -> tuple[float, FloatArray]:
        count = _Probe()
        exact = self.run(self.first, count).ravel()
        step = self.run(self.second, _Probe()).ravel() - exact
        columns = [self.run(self.first, _Probe(i)).ravel() - exact for i in range(count.drawn)]
        noise = np.stack(columns, axis=1)
        like = np.linalg.pinv(noise, rcond=1e-9)
        z = like @ step
        seen = np.allclose(noise @ z, step, rtol=0.0, atol=1e-9 * np.abs(step).max())
        return (float(np.linalg.norm(z)) if seen else math.inf), like.T @ z

    @property
    def mu(self) -> float:
        """Exactly how far apart the view's two laws are."""
        return self._solved[0]

    def statistic(self, view: FloatArray) -> FloatArray:
        """The likelihood ratio's, of a view or of many along a further axis at the end."""
        weights = self._solved[1]
        return np.asarray(weights @ view.reshape(weights.size, -1))

    def sample(self, trials: int, randomness: Randomness) -> Samples:
        """Statistics of independent runs of the protocol."""
        return Samples(
            *(
                np.concatenate(
                    [self.statistic(self.run(data, randomness.rng)) for _ in range(trials)]
                )
                for data in (self.first, self.second)
            )
        )


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


def crossed_axes(rows: int) -> tuple[published.PublishedMoment, published.PublishedMoment]:
    """Rows half along each of two axes' bisectors, and one replaced by one along the other's."""
    across = np.array([[0.0, 1.0], [1.0, 0.0]])
    first = moment([rows / 2] * 2, rows)
    return first, replace(first, mean=first.mean + across / rows)


def party_cases() -> list[Case]:
    """Cases of CAPE, capePCA, capeAGN and DPdisPCA."""
    first, second = two_axes()
    claim = mu_claim(EPSILON, DELTA, "001 theorem 1, algorithm 3: the marginal of a message")
    pair = mu_claim(TENSOR_EPSILON / 2, DELTA / 2, "001 appendix E and theorem 1")
    site = mu_claim(EPSILON, DELTA, "000 algorithm 1: sensitivity 1/N_s")
    assert claim.mu is not None
    assert pair.mu is not None
    assert site.mu is not None
    everything = "all messages and what the aggregator drew (likelihood ratio of the view)"
    cases = [
        _replaced(
            name="dpdispca",
            mechanism="dpdispca",
            title="DPdisPCA, a site's message",
            view="aggregator",
            test="the message times its transpose, along the difference of the two rows' squares",
            claim=site,
            sample=MomentAttack(first, second, _dpdispca).sample,
            truth=SQRT2 * site.mu,
            share=0.25,
            covers=("dpdispca",),
        ),
    ]
    bisectors = ", of a row along one bisector replaced by one along the other"
    layouts: tuple[Literal["literal", "symmetric"], ...] = ("literal", "symmetric")
    for noise in layouts:
        form = "" if noise == "literal" else f"-{noise}"
        words = "" if noise == "literal" else f", {noise} noise"
        two = moment([1.0, 1.0], 2), moment([0.0, 2.0], 2)
        for name, title, sites, pairs, what in (
            (f"capepca-5-sites{form}", "capePCA, 5 sites", 5, two, ""),
            (
                f"capepca-10-sites-bisectors{form}",
                "capePCA, 10 sites, off the diagonal",
                10,
                crossed_axes(2),
                bisectors,
            ),
        ):
            of_pca = GaussianView(partial(_capepca, noise, sites), *pairs)
            cases.append(
                _replaced(
                    name=name,
                    mechanism="capepca",
                    title=title + words,
                    view="aggregator",
                    test=everything + what,
                    claim=claim,
                    sample=of_pca.sample,
                    truth=of_pca.mu,
                    share=0.2,
                    covers=("capepca",),
                )
            )
        for name, title, pairs, what in (
            ("capeagn-5-sites-pair", "its step for pairs", (first, second), ""),
            (
                "capeagn-5-sites-pair-bisectors",
                "its step for pairs, off the diagonal",
                crossed_axes(TENSOR_ROWS),
                bisectors,
            ),
        ):
            of_tensor = GaussianView(partial(_capeagn, noise), *pairs)
            cases.append(
                _replaced(
                    name=name + form,
                    mechanism="capeagn",
                    title=f"capeAGN, {_TENSOR_SITES} sites, {title}{words}",
                    view="aggregator",
                    test=everything + what,
                    claim=pair,
                    sample=of_tensor.sample,
                    truth=of_tensor.mu,
                    share=0.2,
                    covers=("capeagn",),
                )
            )
    for colluding in (0, 8):
        some = f" with {colluding} sites" if colluding else ""
        of_cape = cape_view(colluding)
        cases.append(
            _replaced(
                name=f"cape-10-sites{'-8-colluding' if colluding else ''}",
                mechanism="cape",
                title=f"CAPE, {_SITES} sites" + (f", {colluding} colluding" if colluding else ""),
                view=f"aggregator{some}",
                test=everything
                + (", with the zero-sum noise of the colluding sites" if colluding else ""),
                sampling="the published messages, many independent entries in one round",
                claim=claim,
                sample=partial(sample_cape, of_cape),
                truth=of_cape.mu,
                covers=("cape",),
            )
        )
    return cases
