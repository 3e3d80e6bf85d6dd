"""The papers' protocols of several sites against their own claims: what the aggregator sees."""

from __future__ import annotations

from functools import partial
from typing import cast

import numpy as np

from eigenveil import published
from eigenveil.audit.case import Case, FloatArray, Randomness, Samples
from eigenveil.audit.published_runs import (
    DELTA,
    EPSILON,
    RUN_BY_RUN,
    SQRT2,
    TENSOR_EPSILON,
    MomentAttack,
    diagonal,
    moment,
    mu_claim,
    tensor_moments,
    two_axes,
)
from eigenveil.privacy.gaussian import classic_sigma
from eigenveil.privacy.views import published_cape_mu
from eigenveil.published.correlated import cape_messages, published_variances


def _dpdispca(data: published.SecondMoment, rng: np.random.Generator) -> float:
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


def _weighed(parts: FloatArray) -> FloatArray:
    """Site 0's best statistic of what the aggregator has left of each message, shape (S, ...)."""
    sites = len(parts)
    own = published_variances(sites, 1.0).g
    covariance = np.eye(sites) * (1.0 + own) - 1.0 / sites
    weights = np.linalg.solve(covariance, np.eye(sites)[0])
    return np.asarray(np.tensordot(weights / weights[0], parts, axes=1))


def _capepca(data: published.SecondMoment, rng: np.random.Generator) -> float:
    rest = moment([1.0] * data.features, data.rows)
    found = published.capepca(
        [data] + [rest] * (_TENSOR_SITES - 1),
        n_components=1,
        epsilon=EPSILON,
        delta=DELTA,
        random_state=rng,
    )
    assert found.messages is not None
    assert found.known is not None
    return diagonal(_weighed(np.stack(found.messages) - np.stack(found.known)))


def _capeagn(data: published.SecondMoment, rng: np.random.Generator) -> float:
    given, sensitivities = tensor_moments(data)
    rest = tensor_moments(moment([data.rows / 2] * 2, data.rows))[0]
    found = published.capeagn(
        [given] + [rest] * (_TENSOR_SITES - 1),
        sensitivities,
        data.features,
        epsilon=TENSOR_EPSILON,
        delta=DELTA,
        rng=rng,
    )
    assert found.transcript is not None
    pairs = found.transcript.pairs
    return diagonal(_weighed(pairs.sent - pairs.known))


def sample_cape(colluding: int, trials: int, randomness: Randomness) -> Samples:
    """The aggregator's statistic of CAPE's messages, many independent entries in one round."""
    found = []
    for moved in (1.0, 0.0):
        statistics = np.zeros((_SITES, trials))
        statistics[0] = moved
        if colluding == 0:
            made = published.cape(
                statistics,
                sensitivity=1.0,
                epsilon=EPSILON,
                delta=DELTA,
                random_state=randomness.rng,
            )
            found.append(_weighed(made.messages.sent - made.messages.known))
        else:
            found.append(_with_colluders(statistics, colluding, randomness.rng))
    return Samples(*found)


class _Witnessed:
    """A generator whose normal draws are taken down: what colluding sites could tell."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.drawn: list[FloatArray] = []

    def normal(self, *, scale: float, size: tuple[int, ...]) -> FloatArray:
        """As that of the generator."""
        self.drawn.append(np.asarray(self._rng.normal(scale=scale, size=size)))
        return self.drawn[-1]


def _with_colluders(statistics: FloatArray, colluding: int, rng: np.random.Generator) -> FloatArray:
    """The last sites tell the aggregator their zero-sum noise, which they were sent."""
    witnessed = _Witnessed(rng)
    tau = classic_sigma(1.0, EPSILON, DELTA, reproduction=True)
    made = cape_messages(statistics, tau, cast("np.random.Generator", witnessed))
    told = (witnessed.drawn[0] - witnessed.drawn[0].mean(axis=0))[-colluding:]
    sites, honest = len(statistics), len(statistics) - colluding
    zero_sum = np.eye(sites) - 1.0 / sites
    own = published_variances(sites, 1.0).g
    covariance = zero_sum + np.diag([own] * honest + [0.0] * colluding)
    weights = np.linalg.solve(covariance, np.eye(sites)[0])
    seen = np.concatenate([(made.sent - made.known)[:honest], told])
    return np.asarray((weights / weights[0]) @ seen)


def party_cases() -> list[Case]:
    """Cases of CAPE, capePCA, capeAGN and DPdisPCA."""
    first, second = two_axes()
    claim = mu_claim(EPSILON, DELTA, "001 theorem 1, algorithm 3: the marginal of a message")
    pair = mu_claim(TENSOR_EPSILON / 2, DELTA / 2, "001 appendix E and theorem 1")
    site = mu_claim(EPSILON, DELTA, "000 algorithm 1: sensitivity 1/N_s")
    assert claim.mu is not None
    assert pair.mu is not None
    assert site.mu is not None
    all_messages = "all messages less what the aggregator drew, weighed by their covariance"
    cases = [
        Case(
            name="dpdispca",
            mechanism="dpdispca",
            title="DPdisPCA, a site's message",
            group="published",
            adjacency="replace-one",
            view="aggregator",
            test="the message times its transpose, along the difference of the two rows' squares",
            sampling=RUN_BY_RUN,
            claim=site,
            sample=MomentAttack(first, second, _dpdispca).sample,
            truth=SQRT2 * site.mu,
            share=0.25,
            covers=("dpdispca",),
        ),
        Case(
            name="capepca-5-sites",
            mechanism="capepca",
            title=f"capePCA, {_TENSOR_SITES} sites",
            group="published",
            adjacency="replace-one",
            view="aggregator",
            test=all_messages,
            sampling=RUN_BY_RUN,
            claim=claim,
            sample=MomentAttack(moment([1.0, 1.0], 2), moment([0.0, 2.0], 2), _capepca).sample,
            truth=SQRT2 * published_cape_mu(_TENSOR_SITES, claimed_mu=claim.mu),
            share=0.2,
            covers=("capepca",),
        ),
        Case(
            name="capeagn-5-sites-pair",
            mechanism="capeagn",
            title=f"capeAGN, {_TENSOR_SITES} sites, its step for pairs",
            group="published",
            adjacency="replace-one",
            view="aggregator",
            test=all_messages,
            sampling=RUN_BY_RUN,
            claim=pair,
            sample=MomentAttack(first, second, _capeagn).sample,
            truth=SQRT2 * published_cape_mu(_TENSOR_SITES, claimed_mu=pair.mu),
            share=0.2,
            covers=("capeagn",),
        ),
    ]
    for colluding in (0, 8):
        some = f" with {colluding} sites" if colluding else ""
        cases.append(
            Case(
                name=f"cape-10-sites{'-8-colluding' if colluding else ''}",
                mechanism="cape",
                title=f"CAPE, {_SITES} sites" + (f", {colluding} colluding" if colluding else ""),
                group="published",
                adjacency="replace-one",
                view=f"aggregator{some}",
                test=all_messages
                + (", with the zero-sum noise of the colluding sites" if colluding else ""),
                sampling="the published messages, many independent entries in one round",
                claim=claim,
                sample=partial(sample_cape, colluding),
                truth=published_cape_mu(_SITES, colluding=colluding, claimed_mu=claim.mu),
                covers=("cape",),
            )
        )
    return cases
