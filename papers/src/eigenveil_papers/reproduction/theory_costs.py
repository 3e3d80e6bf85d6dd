"""What the papers say their protocols cost: numbers sent, variance of the mean, unequal sites."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure

from eigenveil import FederatedPCA
from eigenveil.errors import PrivacyError
from eigenveil_papers.published import capeagn, capepca, dpdispca, full, pooled, second_moments
from eigenveil_papers.published.cape_pca import (
    equal_plan,
    published_variances,
    times_claimed,
    unequal_plan,
)
from eigenveil_papers.published.moments import PublishedMoment, pooled_moment, unique_entries
from eigenveil_papers.published.orthogonal import gaussian_moments, gaussian_sensitivities
from eigenveil_papers.published.sn import gauss_deviation
from eigenveil_papers.reproduction.experiment import (
    Claim,
    Experiment,
    Point,
    RunSettings,
    RunTask,
)
from eigenveil_papers.reproduction.figure import Panel, SeriesStyle, panel_grid
from eigenveil_papers.reproduction.given import NO_RUNS, chosen
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.rule import OURS, ClaimPart, Effect, Measure, Scope, decide
from eigenveil_papers.reproduction.theory_bounds import strong_rows

_SITES, _COMPONENTS, _DELTA = 5, 4, 0.01
_SIZES = (8, 16, 32, 64)
_WORD = 8  # bytes of a number, to compare this package's messages


# -- Communication: every array that goes from one party to another is counted.


def _moments(
    rng: np.random.Generator, features: int, sites: int, rows: int
) -> list[PublishedMoment]:
    return second_moments(list(rng.standard_normal((sites, rows, features))))


def sent(rng: np.random.Generator, *, features: int, tensors: bool) -> Iterator[Point]:
    """Numbers that all parties together send, of the protocols as they are run."""
    x = float(features)
    moments = _moments(rng, features, _SITES, 4 * features)
    options = {"n_components": _COMPONENTS, "epsilon": 1.0, "delta": _DELTA, "random_state": rng}
    for noise, series in (("literal", "counted"), ("symmetric", "triangles")):
        made = capepca(moments, noise=noise, **options)  # type: ignore[arg-type]
        arrays = (made.messages, made.known, made.helper)
        numbers = sum(each.size for part in arrays if part is not None for each in part)
        if noise == "symmetric":
            numbers = numbers // features**2 * unique_entries(features, 2)
        yield Point("capepca", series, x, numbers)
        if noise == "literal":
            yield Point("capepca", "with-result", x, numbers + _SITES * made.components.size)
    yield Point("capepca", "promise", x, 3 * _SITES * features**2)
    rank = 2 * _COMPONENTS
    for name, message in (
        ("dpdispca", dpdispca(moments, intermediate=rank, **options).messages),  # type: ignore[arg-type]
        ("full", full(moments, **options).messages),  # type: ignore[arg-type]
    ):
        assert message is not None
        yield Point("dpdispca", name, x, sum(each.size for each in message))
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


def _cost_tasks(settings: RunSettings) -> list[RunTask]:
    sizes = _SIZES[:3] if settings.scale == "toy" else _SIZES
    return [
        RunTask(work=sent, arguments={"features": d, "tensors": True}, run=0, cost=1.0 + d / 16)
        for d in sizes
    ]


_RATIO = Measure(unit="times what is promised", margin=1.0, ratio=True, digits=".4g")
_ORDER = Measure(unit="times the variance expected", margin=1.2, ratio=True)
_ERRORS = Measure(unit="times in the squared error", margin=1.05, ratio=True, less=True)
_SHARE = Measure(unit="of the random sites", margin=0.0, digits=".1%", most=1.0)
_ALIKE = Measure(unit="of the sites' variances", margin=0.0, digits=".0%", most=1.0)
_TIMES = Measure(unit="times", margin=0.0, digits=".3g")


def _counted(numbers: Numbers, panel: str, of: str) -> tuple[Effect, ...]:
    """What was counted over what was promised, at each number of features: nothing is drawn."""
    counted, promise = numbers.curve(panel, of), numbers.curve(panel, "promise")
    return tuple(
        Effect(f"D = {x:g}", math.log(counted.at(x) / promise.at(x)), 0.0)
        for x in promise.x
        if not math.isnan(counted.at(x))
    )


def _equals(statement: str, where: str, numbers: Numbers, panel: str, *, of: str) -> Claim:
    """That what was counted is what was promised, number for number."""
    part = ClaimPart(
        name="counted over promised", effects=_counted(numbers, panel, of), asks="same"
    )
    return decide(statement, where, [part], _RATIO)


def _cost_claims_001(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings
    return [
        _equals(
            "capePCA sends 3 S D^2 numbers: the helper's, the aggregator's and the sites'.",
            "Section 4, communication cost",
            numbers,
            "capepca",
            of="counted",
        ),
        _equals(
            "capeAGN sends 3 S D^2 + 2 S D^3 + S D K + S K^3 numbers.",
            "Section 5, communication cost",
            numbers,
            "capeagn",
            of="counted",
        ),
        decide(
            "Masks from keys in place of a helper's matrices need less: all bytes of a study, keys "
            "and signatures too, divided by 8.",
            OURS,
            [
                ClaimPart(
                    name="over 3 S D^2",
                    effects=_counted(numbers, "capepca", "eigenveil"),
                    asks="at most",
                )
            ],
            _RATIO,
        ),
    ]


_COST_STYLES = {
    "counted": SeriesStyle("counted from the messages", "paper"),
    "with-result": SeriesStyle("and the result sent back", "paper-2"),
    "triangles": SeriesStyle("as triangles of symmetric noise", "baseline"),
    "promise": SeriesStyle("as the paper says", "exact"),
    "eigenveil": SeriesStyle("Eigenveil, all bytes / 8", "ours"),
}


def _cost_panel(key: str, title: str) -> Panel:
    return Panel(
        key=key, title=title, xlabel="features D", ylabel="numbers sent in all", yscale="log"
    )


def _draw_costs(numbers: Numbers, settings: RunSettings) -> Figure:
    del settings
    panels = [_cost_panel("capepca", "(a) capePCA"), _cost_panel("capeagn", "(b) capeAGN")]
    return panel_grid(numbers, panels, _COST_STYLES, columns=2, title="Communication")


# -- 000: S D R against S D^2, and the variance of what the aggregator computes.

_ORDER_FEATURES, _ORDER_ROWS = 32, 8_000
_MANY_SITES = (2, 4, 8, 16, 32)
_MANY_ROWS = (2_000, 4_000, 8_000, 16_000)


def variances(
    rng: np.random.Generator, *, sites: Sequence[int], counts: Sequence[int]
) -> Iterator[Point]:
    """Mean squared error of an entry of the aggregator's matrix, over sites and over all rows."""
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
            for name, found in (
                ("pooled", pooled(moments, random_state=rng, **options)),  # type: ignore[arg-type]
                ("full", full(moments, random_state=rng, **options)),  # type: ignore[arg-type]
                (
                    "dpdispca",
                    dpdispca(moments, intermediate=8, random_state=rng, **options),  # type: ignore[arg-type]
                ),
            ):
                assert found.released is not None
                entries = (found.released - exact)[np.tril_indices(_ORDER_FEATURES)]
                yield Point(panel, name, x, float(np.mean(entries**2)))
            tau = gauss_deviation(rows // number * number, epsilon=0.5, delta=_DELTA)
            yield Point(panel, "promise", x, tau**2)
            yield Point(panel, "promise-full", x, number * tau**2)


def _order_tasks(settings: RunSettings) -> list[RunTask]:
    every = 2 if settings.scale == "toy" else 1
    sites, counts = list(_MANY_SITES[::every]), list(_MANY_ROWS[::every])
    arguments = {"sites": sites, "counts": counts}
    tasks = [
        RunTask(work=variances, arguments=arguments, run=run, cost=1.0)
        for run in settings.repetitions()
    ]
    sizes = _SIZES[:3] if settings.scale == "toy" else _SIZES
    tasks += [RunTask(work=sent, arguments={"features": d, "tensors": False}) for d in sizes]
    return tasks


_LIMIT = "Section 3, limit on performance"


def _order_claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings
    panels = ("sites", "rows")
    return [
        _equals(
            "DPdisPCA's sites send S D R numbers.",
            "Section 3, communication cost",
            numbers,
            "dpdispca",
            of="dpdispca",
        ),
        Scope(numbers, _LIMIT, panels, _ORDER).same(
            "With a trusted aggregator the noise's variance is proportional to 1/N^2.",
            "pooled",
            "promise",
        ),
        Scope(numbers, _LIMIT, panels, _ORDER).same(
            "Where sites send D x D it is proportional to S/N^2.", "full", "promise-full"
        ),
        Scope(numbers, _LIMIT, panels, _ERRORS).better(
            "The mean of P_s P_s' has a larger variance than that of D x D messages "
            "(here: mean squared error of an entry).",
            "full",
            "dpdispca",
        ),
    ]


_ORDER_STYLES = {
    "dpdispca": SeriesStyle("DPdisPCA", "paper"),
    "full": SeriesStyle("sites send D x D", "paper-2"),
    "pooled": SeriesStyle("pooled rows", "baseline"),
    "promise": SeriesStyle("as the paper says: S D R; c / N^2", "exact"),
    "promise-full": SeriesStyle("as the paper says: S D^2; c S / N^2", "exact-2"),
}


def _draw_orders(numbers: Numbers, settings: RunSettings) -> Figure:
    del settings
    error = {"ylabel": "mean squared error of an entry", "yscale": "log"}
    panels = [
        _cost_panel("dpdispca", f"(a) numbers sent, R = {2 * _COMPONENTS}"),
        Panel(key="sites", title=f"(b) N = {_ORDER_ROWS}", xlabel="sites S", **error),  # type: ignore[arg-type]
        Panel(key="rows", title=f"(c) S = {_SITES}", xlabel="rows N", **error),  # type: ignore[arg-type]
    ]
    return panel_grid(numbers, panels, _ORDER_STYLES, title="DPdisPCA: orders of cost and of error")


# -- 001, section 3.1: where its solution exists, what it gives away, and what a masked sum gives.

_DRAWS = {"full": 2000, "fast": 400, "toy": 100}
_UP_TO = (2, 3, 4, 5, 6, 8)
KINDS = {
    "rows": "rows differ, weights by rows, one target",
    "targets": "rows and targets differ, weights by rows",
    "quality": "rows, targets and quality weights differ",
}


def unequal(rng: np.random.Generator, *, sites: Sequence[int], draws: int) -> Iterator[Point]:
    """Random sites: the share that section 3.1 serves, and mu and noise where it does and not."""
    for number in sites:
        x = float(number)
        for kind in KINDS:
            shares, losses, masked = [], [], []
            for _ in range(draws):
                rows = np.exp(rng.uniform(math.log(100), math.log(10_000), number)).round()
                epsilon = np.full(number, 0.5)
                if kind != "rows":
                    epsilon = np.exp(rng.uniform(math.log(0.1), 0.0, number))
                weights = rows / rows.sum()
                if kind == "quality":
                    weights = weights * rng.uniform(0.25, 1.0, number)
                    weights /= weights.sum()
                tau = math.sqrt(2 * math.log(1.25 / _DELTA)) / (rows * epsilon)
                one = math.sqrt(2 * math.log(1.25 / _DELTA)) / (rows.sum() * epsilon.min())
                masked.append(float(np.max(weights * tau)) / one)
                try:
                    plan = unequal_plan(weights.tolist(), tau.tolist(), one)
                except PrivacyError:
                    shares.append(0.0)
                    continue
                shares.append(1.0)
                losses.append(float(times_claimed(plan).max()))
            yield Point("share", kind, x, float(np.mean(shares)))
            yield Point("masked", kind, x, float(np.mean(masked)))
            if losses:
                yield Point("loss", kind, x, float(np.median(losses)))
        yield Point("loss", "equal", x, float(times_claimed(equal_plan(number, 1.0)).max()))


def _unequal_tasks(settings: RunSettings) -> list[RunTask]:
    sites = _UP_TO[:4] if settings.scale == "toy" else _UP_TO
    arguments = {"draws": _DRAWS[settings.scale]}
    return [
        RunTask(work=unequal, arguments={**arguments, "sites": [s]}, run=run, cost=2.0)
        for s in sites
        for run in settings.repetitions(full=3, fast=3, toy=3)
    ]


def _unequal_claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings
    where = "Section 3.1"
    alike = _reduces()
    return [
        Scope(numbers, where, (), _SHARE).holds_for(
            "The solution given solves the problem (share of random sites for which all its "
            "variances are 0 or more).",
            _of_kinds("share"),
            least=1.0,
        ),
        decide(
            "With weights N_s/N it reduces to CAPE (equal sites: the variances of equation 2; "
            "here: the share of sites that have another).",
            where,
            [
                ClaimPart(name=f"S = {sites}", effects=(Effect("", others, 0.0),), asks="at most")
                for sites, others, _ in alike
            ],
            _ALIKE,
            aside="; ".join(f"S = {sites}: {told}" for sites, _, told in alike),
        ),
        Scope(numbers, where, (), _TIMES).holds_for(
            "Each site's message has the guarantee that the site requires, against the aggregator "
            "(where a solution exists; here: mu of the worst site over the claimed one, in the "
            "median).",
            _of_kinds("loss"),
            most=1.0,
        ),
        Scope(numbers, OURS, (), _TIMES).holds_for(
            "A masked sum of the same weighted statistics meets every requirement with no more "
            "noise than one curator's for the strictest site's target.",
            _of_kinds("masked"),
            most=1.0,
        ),
    ]


def _of_kinds(panel: str) -> list[tuple[str, str, str]]:
    return [(name, panel, kind) for kind, name in KINDS.items()]


def _reduces() -> list[tuple[int, float, str]]:
    """For each number of equal sites: the share of them without equation 2's variance, and why."""
    found = []
    for sites in _UP_TO:
        plan = equal_plan(sites, 1.0)
        try:
            other = unequal_plan(plan.weights.tolist(), plan.requirements.tolist(), plan.pooled)
        except PrivacyError:
            found.append((sites, 1.0, "no solution"))
            continue
        own = np.array([each.g for each in other.variances])
        others = float(np.mean(~np.isclose(own, published_variances(sites, 1.0).g)))
        found.append((sites, others, f"own noise {own.min():.3g} to {own.max():.3g}"))
    return found


_UNEQUAL_STYLES = {
    "rows": SeriesStyle(KINDS["rows"], "paper"),
    "targets": SeriesStyle(KINDS["targets"], "paper-2"),
    "quality": SeriesStyle(KINDS["quality"], "baseline"),
    "equal": SeriesStyle("equal sites (equation 2)", "exact"),
}


def _draw_unequal(numbers: Numbers, settings: RunSettings) -> Figure:
    del settings
    panels = [
        Panel(key=key, title=title, xlabel="sites S", ylabel=label)
        for key, title, label in (
            ("share", "(a) served by section 3.1", "share of random sites"),
            ("loss", "(b) mu of the aggregator's view", "worst site, times the claimed"),
            ("masked", "(c) noise of a masked sum", "times one curator's"),
        )
    ]
    return panel_grid(numbers, panels, _UNEQUAL_STYLES, title="Sites that differ")


COSTS = Experiment(
    name="001-costs",
    title="Numbers that capePCA and capeAGN send, counted",
    paper="001",
    about=f"{_SITES} sites, K = {_COMPONENTS}. Every array that one party sends to another is "
    "counted when the protocol is run, the helper's too. Beside it all bytes of a study of this "
    "package (masks expanded from keys that sites agree on), divided by 8.",
    datasets=("synthetic",),
    tasks=_cost_tasks,
    draw=_draw_costs,
    claims=_cost_claims_001,
    given=lambda _: [
        chosen("sites S, K", f"{_SITES}, {_COMPONENTS}"),
        chosen("what is counted", "every number that a party sends to another, in a run"),
    ],
    runs=NO_RUNS,
)
UNEQUAL = Experiment(
    name="001-unequal",
    title="Sites that differ (section 3.1): where its solution exists, and what it shows",
    paper="001",
    about="Rows of a site between 100 and 10,000 and targets between 0.1 and 1 (both even in their "
    "logarithms), quality weights by rows times 0.25 to 1, delta 0.01. One curator's noise is that "
    "for all rows at the strictest site's target. (b) is computed from the joint covariance of the "
    "messages, (c) is the largest weight times requirement over one curator's noise.",
    datasets=("synthetic",),
    tasks=_unequal_tasks,
    draw=_draw_unequal,
    claims=_unequal_claims,
    given=lambda settings: [
        chosen("random sites, a run", f"{_DRAWS[settings.scale]:,} for each S and kind"),
        chosen("rows of a site", "100 to 10,000, even in their logarithms"),
        chosen("epsilon of a site", "0.5, or 0.1 to 1, even in their logarithms"),
        chosen("delta", f"{_DELTA:g}"),
        chosen("weights", "by rows, or those times 0.25 to 1"),
    ],
    runs=NO_RUNS,
)
ORDERS = Experiment(
    name="000-orders",
    title="DPdisPCA's orders of communication and of variance",
    paper="000",
    about=f"Gaussian rows of {_ORDER_FEATURES} features, four of them strong, epsilon 0.5, delta "
    f"{_DELTA:g}, R = 8. An entry's squared error is against the exact second moment of all rows; "
    "c is the classic calibration's.",
    datasets=("synthetic",),
    tasks=_order_tasks,
    draw=_draw_orders,
    claims=_order_claims,
    given=lambda _: [
        chosen("features, K, R", f"{_ORDER_FEATURES}, {_COMPONENTS}, 8"),
        chosen("sites; rows", f"{_MANY_SITES[0]} to {_MANY_SITES[-1]}; {_ORDER_ROWS:,}"),
        chosen("rows; sites", f"{_MANY_ROWS[0]:,} to {_MANY_ROWS[-1]:,}; {_SITES}"),
        chosen("(epsilon, delta)", f"(0.5, {_DELTA:g})"),
    ],
    runs=NO_RUNS,
)
