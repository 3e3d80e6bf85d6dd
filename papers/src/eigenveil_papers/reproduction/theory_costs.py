"""What the papers say their protocols cost: numbers sent, variance of the mean, unequal sites."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from eigenveil import FederatedPCA
from eigenveil_papers.published import capeagn, capepca, dpdispca, full, pooled, second_moments
from eigenveil_papers.published.moments import pooled_moment, unique_entries
from eigenveil_papers.published.orthogonal import gaussian_moments, gaussian_sensitivities
from eigenveil_papers.published.result import PublishedPCA
from eigenveil_papers.published.sn import gauss_deviation
from eigenveil_papers.reproduction.experiment import Claim, Experiment, Point, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import Panel, SeriesStyle, panel_grid
from eigenveil_papers.reproduction.given import NO_RUNS, chosen
from eigenveil_papers.reproduction.numbers import FloatArray, Numbers
from eigenveil_papers.reproduction.rule import ClaimPart, Effect, Measure, exactly
from eigenveil_papers.reproduction.tables import about, claims_of
from eigenveil_papers.reproduction.theory_bounds import strong_rows
from eigenveil_papers.reproduction.theory_sensitivity import (
    DELTA,
    EPSILON,
    ROWS_OVER,
    SIZES_OVER,
    TIMES,
    deviations,
    sensitivities_of_roots,
    sensitivity_parts,
)

_SITES, _COMPONENTS, _DELTA = 5, 4, 0.01
_SIZES = (8, 16, 32, 64)
_WORD = 8  # bytes of a number, to compare this package's messages


# -- Communication: every array that goes from one party to another is counted.


def _numbers_in(*messages: Sequence[FloatArray] | None) -> int:
    return sum(array.size for each in messages for array in each or ())


def sent(rng: np.random.Generator, *, features: int, tensors: bool) -> Iterator[Point]:
    """Numbers that all parties together send, of the protocols as they are run."""
    x = float(features)
    moments = second_moments(list(rng.standard_normal((_SITES, 4 * features, features))))
    options = {"n_components": _COMPONENTS, "epsilon": 1.0, "delta": _DELTA, "random_state": rng}
    for noise, series in (("literal", "counted"), ("symmetric", "triangles")):
        made = capepca(moments, noise=noise, **options)  # type: ignore[arg-type]
        numbers = _numbers_in(made.messages, made.known, made.helper)
        if noise == "symmetric":
            numbers = numbers // features**2 * unique_entries(features, 2)
        yield Point("capepca", series, x, numbers)
        if noise == "literal":
            yield Point("capepca", "with-result", x, numbers + _SITES * made.components.size)
    yield Point("capepca", "promise", x, 3 * _SITES * features**2)
    rank = 2 * _COMPONENTS
    for name, made in (
        ("dpdispca", dpdispca(moments, intermediate=rank, **options)),  # type: ignore[arg-type]
        ("full", full(moments, **options)),  # type: ignore[arg-type]
    ):
        yield Point("dpdispca", name, x, _numbers_in(made.messages))
    yield Point("dpdispca", "promise", x, _SITES * features * rank)
    yield Point("dpdispca", "promise-full", x, _SITES * features**2)
    yield Point("capepca", "eigenveil", x, _bytes_of_ours(rng, features) / _WORD)
    if tensors:
        rows = rng.standard_normal((_SITES, 100, features))
        rows /= np.linalg.norm(rows, axis=2).max()
        result = capeagn(
            [gaussian_moments(each, 0.0) for each in rows],
            gaussian_sensitivities(100, features, 0.0),
            _COMPONENTS,
            epsilon=2.0,
            delta=_DELTA,
            rng=rng,
        )
        assert result.transcript is not None
        d, k = features, _COMPONENTS
        yield Point("capeagn", "counted", x, result.transcript.numbers_sent)
        yield Point("capeagn", "promise", x, _SITES * (3 * d**2 + 2 * d**3 + d * k + k**3))


def _bytes_of_ours(rng: np.random.Generator, features: int) -> int:
    """All that sites send and receive in a study of this package, keys and signatures too."""
    sites = {f"site-{s}": rng.standard_normal((200, features)) for s in range(_SITES)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # random rows have no components, which is not the matter
        made = FederatedPCA(
            n_components=_COMPONENTS,
            epsilon=1.0,
            delta=_DELTA,
            protocol="cape",
            mechanism="gaussian",
            row_bound=float(3 * math.sqrt(features)),
            center=False,
            random_state=int(rng.integers(2**31)),
        ).fit(sites)
    return sum(each.sent + each.received for each in made.traffic_.values())


def _sent_tasks(settings: RunSettings, *, tensors: bool) -> list[RunTask]:
    sizes = settings.pick(_SIZES, _SIZES, _SIZES[:3])
    return [RunTask(sent, {"features": d, "tensors": tensors}, 0, 1.0 + d / 16) for d in sizes]


_RATIO = Measure(unit="times what is promised", margin=1.0, ratio=True, digits=".4g")
_ORDER = Measure(unit="times the variance expected", margin=1.2, ratio=True)
_ERRORS = Measure(unit="times in the squared error", margin=1.05, ratio=True, less=True)


def _counted(numbers: Numbers, panel: str, of: str) -> tuple[Effect, ...]:
    """What was counted over what was promised, at each number of features: nothing is drawn."""
    counted, promise = numbers.curve(panel, of), numbers.curve(panel, "promise")
    found = {x: counted.at(x) / promise.at(x) for x in promise.x.tolist()}
    return exactly({x: math.log(of) for x, of in found.items() if not math.isnan(of)}, "D = ")


def _cost_claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings
    parts = {
        panel: [ClaimPart("counted over promised", _counted(numbers, panel, "counted"), "same")]
        for panel in ("capepca", "capeagn")
    }
    ours = _counted(numbers, "capepca", "eigenveil")
    parts["masks from keys"] = [ClaimPart("over 3 S D^2", ours, "at most")]
    return claims_of("001-costs", numbers, _RATIO, {}, parts)


_COST_STYLES = {
    "counted": SeriesStyle("counted from the messages", "paper"),
    "with-result": SeriesStyle("and the result sent back", "paper-2"),
    "triangles": SeriesStyle("as triangles of symmetric noise", "baseline"),
    "promise": SeriesStyle("as the paper says", "exact"),
    "eigenveil": SeriesStyle("Eigenveil, all bytes / 8", "ours"),
}
_sent = partial(Panel, xlabel="features D", ylabel="numbers sent in all", yscale="log")
_COST_PANELS = (
    _sent("capepca", f"(a) capePCA, S={_SITES}, K={_COMPONENTS}"),
    _sent("capeagn", f"(b) capeAGN, S={_SITES}, K={_COMPONENTS}"),
)


# -- 000: S D R against S D^2, and the variance of what the aggregator computes.

_ORDER_FEATURES, _ORDER_ROWS = 32, 8_000
_MANY_SITES = (2, 4, 8, 16, 32)
_MANY_ROWS = (2_000, 4_000, 8_000, 16_000)


_MEANS: dict[str, Callable[..., PublishedPCA]] = {
    "pooled": pooled,
    "full": full,
    "dpdispca": partial(dpdispca, intermediate=8),
}


def variances(
    rng: np.random.Generator, *, sites: Sequence[int], counts: Sequence[int]
) -> Iterator[Point]:
    """Mean squared error of an entry of the aggregator's matrix, over sites and over all rows.

    Over sites also its variance, over the noise.
    """
    for panel, cases in (
        ("sites", [(s, _ORDER_ROWS) for s in sites]),
        ("rows", [(_SITES, n) for n in counts]),
    ):
        for number, rows in cases:
            drawn = strong_rows(rng, rows, _ORDER_FEATURES).reshape(number, -1, _ORDER_FEATURES)
            moments = second_moments(list(drawn))
            exact = pooled_moment(moments).mean
            x = float(number if panel == "sites" else rows)
            options = {"n_components": _COMPONENTS, "epsilon": 0.5, "delta": _DELTA}
            for name, method in _MEANS.items():
                found = method(moments, random_state=rng, **options)
                yield Point(panel, name, x, _square(found.released, exact))
                if name == "dpdispca":
                    shrunk = _shrunk(found, features=_ORDER_FEATURES)
                    yield Point(panel, "shrunk", x, _square(shrunk, exact))
                if panel == "sites":  # two releases of the same rows differ by noise alone
                    again = method(moments, random_state=rng, **options).released
                    yield Point("variance", name, x, _square(found.released, again) / 2)
            tau = gauss_deviation(rows // number * number, epsilon=0.5, delta=_DELTA)
            yield Point(panel, "promise", x, tau**2)
            yield Point(panel, "promise-full", x, number * tau**2)


def _square(found: FloatArray | None, other: FloatArray | None) -> float:
    """The mean squared difference of an entry of the triangle."""
    assert found is not None
    assert other is not None
    return float(np.mean((found - other)[np.tril_indices(len(found))] ** 2))


def _shrunk(made: PublishedPCA, *, features: int) -> FloatArray:
    """The mean of P_s P_s' by an aggregator that knows the noise of equal sites, tau an entry.

    A strength y of a site is worth ``sqrt(y^2 - 4 D tau^2)``, 0 below 2 tau sqrt(D), where all may
    be noise: the best for the squared error of a matrix of low rank with such noise, for large D.
    """
    assert made.messages is not None
    assert made.deviation is not None
    edge = 4 * features * made.deviation**2
    total = np.zeros((features, features))
    for root in made.messages:
        strengths = np.sum(root**2, axis=0)
        worth = np.sqrt(np.maximum(strengths**2 - edge, 0.0)) / np.maximum(strengths, 1e-300)
        total += (root * worth) @ root.T
    return total / len(made.messages)


def _order_tasks(settings: RunSettings) -> list[RunTask]:
    every = settings.pick(1, 1, 2)
    arguments = {"sites": list(_MANY_SITES[::every]), "counts": list(_MANY_ROWS[::every])}
    roots = {"counts": list(ROWS_OVER[::every]), "steps": settings.pick(1500, 500, 300)}
    return [
        *(RunTask(variances, arguments, run) for run in settings.repetitions()),
        *_sent_tasks(settings, tensors=False),
        *(RunTask(sensitivities_of_roots, roots, r, 6.0) for r in range(settings.pick(3, 2, 1))),
        RunTask(deviations, {"sizes": list(SIZES_OVER)}),
    ]


def _order_claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings
    parts, exponents = sensitivity_parts(numbers)
    counted = _counted(numbers, "dpdispca", "dpdispca")
    sent = [ClaimPart("counted over promised", counted, "same")]
    return claims_of(
        "000-orders",
        numbers,
        _ERRORS,
        {"errors": ("sites", "rows"), "noise": ("variance",)},
        {"sent": sent, **parts},
        others={"sent": _RATIO, "same": _ORDER, **dict.fromkeys(parts, TIMES)},
        asides={"much higher": exponents},
        epsilon=EPSILON,
        delta=DELTA,
    )


_ORDER_STYLES = {
    "dpdispca": SeriesStyle("DPdisPCA", "paper"),
    "shrunk": SeriesStyle("DPdisPCA, its noise known", "repaired"),
    "full": SeriesStyle("sites send D x D", "paper-2"),
    "pooled": SeriesStyle("pooled rows", "baseline"),
    "promise": SeriesStyle("as the paper says: S D R; c / N^2", "exact"),
    "promise-full": SeriesStyle("as the paper says: S D^2; c S / N^2", "exact-2"),
    "root": SeriesStyle("P_s, R = 2 of 4", "level-3"),
    "root-all": SeriesStyle("P_s, R = D = 4", "repaired-2"),
    "moment": SeriesStyle("A_s", "baseline-2"),
    "laplace": SeriesStyle("Laplace, by L1", "baseline-3"),
    "gauss": SeriesStyle("Gauss, by L2", "baseline-4"),
}


_LAPLACE = f"ε=0.5, δ={_DELTA:g} (Laplace 0)"
_FIXED = f"ε=0.5, δ={_DELTA:g}, D={_ORDER_FEATURES}"
_error = partial(Panel, ylabel="mean squared error of an entry", yscale="log")
_ORDER_PANELS = (
    _sent("dpdispca", f"(a) numbers sent\nS={_SITES}, K={_COMPONENTS}, R=8"),
    _error("sites", f"(b) error\n{_FIXED}, N={_ORDER_ROWS}", "sites S"),
    _error("rows", f"(c) error\n{_FIXED}, S={_SITES}", "rows N"),
    _error(
        "variance",
        f"(d) variance\n{_FIXED}, N={_ORDER_ROWS}",
        "sites S",
        ylabel="variance of an entry",
    ),
    _error("root", "(e) sensitivity, as found\nD=4", "rows N_s", ylabel="L2 sensitivity"),
    _sent("laplace", f"(f) noise of A_s\n{_LAPLACE}", ylabel="deviation times N_s"),
)


COSTS = Experiment(
    name="001-costs",
    title="Numbers that capePCA and capeAGN send, counted",
    about=about("001-costs", sites=_SITES, components=_COMPONENTS),
    tasks=lambda settings: _sent_tasks(settings, tensors=True),
    draw=lambda numbers, _: panel_grid(
        numbers, _COST_PANELS, _COST_STYLES, columns=2, title="Communication"
    ),
    claims=_cost_claims,
    given=lambda _: [
        chosen("sites S, K", f"{_SITES}, {_COMPONENTS}"),
        chosen("what is counted", "every number that a party sends to another, in a run"),
    ],
    runs=NO_RUNS,
)
ORDERS = Experiment(
    name="000-orders",
    title="DPdisPCA's orders of communication and of variance",
    about=about("000-orders", features=_ORDER_FEATURES, delta=_DELTA),
    tasks=_order_tasks,
    draw=lambda numbers, _: panel_grid(
        numbers, _ORDER_PANELS, _ORDER_STYLES, title="DPdisPCA: orders of cost and of error"
    ),
    claims=_order_claims,
    given=lambda _: [
        chosen("features, K, R", f"{_ORDER_FEATURES}, {_COMPONENTS}, 8"),
        chosen("sites; rows", f"{_MANY_SITES[0]} to {_MANY_SITES[-1]}; {_ORDER_ROWS:,}"),
        chosen("rows; sites", f"{_MANY_ROWS[0]:,} to {_MANY_ROWS[-1]:,}; {_SITES}"),
        chosen("(epsilon, delta)", f"(0.5, {_DELTA:g})"),
    ],
    runs=NO_RUNS,
)
