"""The papers' protocols of several sites against their own claims: what the aggregator sees."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import numpy as np

from eigenveil.audit.case import Case, FloatArray, Randomness, Samples
from eigenveil_papers import published
from eigenveil_papers.audits.attacks import (
    DELTA,
    EPSILON,
    SQRT2,
    TENSOR_EPSILON,
    TENSOR_ROWS,
    GaussianView,
    MomentAttack,
    crossed_axes,
    diagonal,
    moment,
    mu_claim,
    published_case,
    tensor_moments,
    two_axes,
)


def _dpdispca(data: published.PublishedMoment, rng: np.random.Generator) -> float:
    found = published.dpdispca(
        [data], n_components=1, intermediate=2, epsilon=EPSILON, delta=DELTA, random_state=rng
    )
    assert found.messages is not None
    return diagonal(found.messages[0] @ found.messages[0].T)


_SITES = 10
_OTHERS = (TENSOR_ROWS,) * 4  # rows of capeAGN's other sites


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
    others: tuple[int, ...],
    data: published.PublishedMoment,
    rng: np.random.Generator,
) -> FloatArray:
    rest = [moment([rows / 2] * 2, rows) for rows in others]
    given, sensitivities = zip(*map(tensor_moments, [data, *rest]), strict=True)
    found = published.capeagn(
        given,
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


def _cape(
    colluding: int,
    aggregator: bool,
    options: dict[str, Any],
    statistics: FloatArray,
    rng: np.random.Generator,
) -> FloatArray:
    """All messages, and what the aggregator drew (else: what it sent to the colluding sites); the
    last sites tell their zero-sum noise, which they were sent.
    """
    made = published.cape(
        statistics, sensitivity=1.0, epsilon=EPSILON, delta=DELTA, random_state=rng, **options
    ).messages
    honest = len(made.sent) - colluding
    known = made.known if aggregator else made.known[honest:]
    return np.concatenate([made.sent, known, made.helper[honest:]])


def cape_view(
    colluding: int, *, aggregator: bool = True, sites: int = _SITES, **options: Any
) -> GaussianView:
    """What so many sites see of CAPE, with the aggregator or without, of one entry of site 0."""
    moved = np.zeros((sites, 1))
    moved[0] = 1.0
    run = partial(_cape, colluding, aggregator, options)
    return GaussianView(run, moved, np.zeros_like(moved))


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


MARGINAL = mu_claim(EPSILON, DELTA, "001 theorem 1, algorithm 3: the marginal of a message")
_EVERYTHING = "all messages and what the aggregator drew (likelihood ratio of the view)"


def _of_dpdispca() -> Case:
    return published_case(
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
    tensor, equal = "5 sites", partial(_capeagn, noise, _OTHERS)
    axes, off = (moment([1.0, 1.0], 2), moment([0.0, 2.0], 2)), ", off the diagonal"
    for name, title, claim, run, neighbours in (
        ("capepca-5-sites", "capePCA, 5 sites", MARGINAL, partial(_capepca, noise, 5), axes),
        (
            "capepca-10-sites-bisectors",
            f"capePCA, 10 sites{off}",
            MARGINAL,
            partial(_capepca, noise, 10),
            crossed_axes(2),
        ),
        (
            "capeagn-5-sites-pair",
            f"capeAGN, {tensor}, its step for pairs",
            pair,
            equal,
            two_axes(),
        ),
        (
            "capeagn-5-sites-pair-bisectors",
            f"capeAGN, {tensor}, its step for pairs{off}",
            pair,
            equal,
            crossed_axes(TENSOR_ROWS),
        ),
        (
            "capeagn-3-unequal-sites-pair",
            f"capeAGN, sites of {TENSOR_ROWS}, 300 and 900 rows, its step for pairs",
            pair,
            partial(_capeagn, noise, (300, 900)),
            two_axes(),
        ),
    ):
        view = GaussianView(run, *neighbours)
        crossed = ", of a row along one bisector replaced by one along the other"
        yield published_case(
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
    told = ", with the zero-sum noise of the colluding sites"
    sites, listening = f"{_SITES} sites", "8 sites, all messages"
    heard = f"all messages (likelihood ratio of the view){told}"
    for name, title, seen_by, test, view in (
        ("10-sites", sites, "aggregator", _EVERYTHING, cape_view(0)),
        (
            "10-sites-8-colluding",
            f"{sites}, 8 colluding",
            "aggregator with 8 sites",
            _EVERYTHING + told,
            cape_view(8),
        ),
        (
            "10-sites-8-listening",
            f"{sites}, 8 listening",
            listening,
            heard,
            cape_view(8, aggregator=False),
        ),
        (
            "10-sites-8-listening-without-f",
            f"{sites}, no noise of the aggregator's, 8 listening",
            listening,
            heard,
            cape_view(8, aggregator=False, aggregator_noise=False),
        ),
        (
            "3-sites-weights",
            "3 sites weighed 2:3:3",
            "aggregator",
            f"{_EVERYTHING}, of the site that counts least",
            cape_view(0, sites=3, weights=[2.0, 3.0, 3.0]),
        ),
    ):
        yield published_case(
            "cape",
            f"cape-{name}",
            MARGINAL,
            title=f"CAPE, {title}",
            view=seen_by,
            test=test,
            sampling="the published messages, many independent entries in one round",
            sample=partial(sample_cape, view),
            truth=view.mu,
        )
