"""Paper 001's sentences on its figures 3 to 5, and ours beside them, against what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil_papers.published import orthogonal
from eigenveil_papers.reproduction.authors import authors
from eigenveil_papers.reproduction.experiment import Claim
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.paper001_tensor_panels import Model, Sweep
from eigenveil_papers.reproduction.rule import ClaimPart, Effect, Measure, Question, effects, paired
from eigenveil_papers.reproduction.tables import claims_of

ERROR = Measure(unit="times in the component error", margin=1.05, ratio=True, less=True)
"""An effect is how many times larger the second series' error is than the first's."""
NOISE = Measure(unit="times in the noise", margin=1.05, ratio=True, less=True)
PURE = Measure(unit="times epsilon", margin=0.0, digits=".3g")
MATCHES = 1.25
"""Within so many times the non-private error: a match."""
_AUTHORS = Measure(unit="times their error", margin=2.0, ratio=True)
_WANTED_NOISE_RATIO = 20.0
_MEASURES = {
    **dict.fromkeys(("as authors", "as authors, same rows"), _AUTHORS),
    **dict.fromkeys(("noise", "noise grows"), NOISE),
    "starts": replace(ERROR, margin=MATCHES),
    "pure": PURE,
}
_FIRST, _LAST, _ALL = slice(1), slice(-1, None), slice(None)


def tensor_claims(
    figure: str,
    numbers: Numbers,
    sweeps: Sequence[Sweep],
    model: Model | None = None,
    size: int = 0,
) -> list[Claim]:
    """Of figures 3 and 4 with the noise of their model at a size; or of figure 5, over delta."""
    over = {axis: [s for s in sweeps if s.over == axis] for axis in ("epsilon", "rows")}
    panels = {axis: [sweep.panel for sweep in of] for axis, of in over.items()}
    every = [sweep.panel for sweep in sweeps]
    beside_exact = partial(_beside_exact, numbers)
    smallest = min((sweep.size for sweep in sweeps), default=0)
    # conditions of figure 5's sentences: the larger epsilon and most rows, or the smaller ones
    largest = max((sweep.epsilon for sweep in sweeps), default=0.0)
    most = max((sweep.rows for sweep in sweeps), default=0)
    rich = [sweep for sweep in sweeps if (sweep.epsilon, sweep.rows) == (largest, most)]
    poor = [sweep for sweep in sweeps if sweep.epsilon < largest and sweep.rows < most]
    ours, of_ours = _beside_capeagn(numbers, sweeps)
    noise, of_noise = _noise(numbers, f"{model}-noise-epsilon", size)
    return claims_of(
        figure,
        numbers,
        ERROR,
        {**panels, "every": every, "starts": every},
        {
            "matches at the largest": beside_exact(over["epsilon"], "capeagn", _LAST),
            "more rows": _more_rows(numbers, over["epsilon"]),
            "approaches": _approaches(numbers, over["rows"]),
            "smallest matches": beside_exact(
                [sweep for sweep in over["rows"] if sweep.size == smallest], "capeagn"
            ),
            "rich": beside_exact(rich, "capeagn", _FIRST),
            "poor": beside_exact(poor, "capeagn", _FIRST, "at least", 2.0),
            "as authors": _reproduced(numbers, sweeps, _STORED),
            "as authors, same rows": _reproduced(numbers, sweeps, _REPEATED),
            "least delta": _least_delta(numbers, sweeps),
            "ours": ours,
            "ours matches": beside_exact(sweeps, "eigenveil"),
            "noise": noise,
            "noise grows": [ClaimPart("", _growth(numbers, f"{model}-noise-features"), "better")],
            "pure": pure_parts(model) if model else [],
        },
        others=_MEASURES,
        asides={"ours": of_ours, "noise": of_noise},
        ratio={"positions": _middle(numbers, panels["epsilon"]), "less": True},
        matches=MATCHES,
        inverse=1 / MATCHES,
        smallest=smallest,
        wanted=_WANTED_NOISE_RATIO,
    )


def _middle(numbers: Numbers, panels: Sequence[str]) -> tuple[float, ...]:
    """Epsilons of ours whose error capeAGN must reach: 0.1 and 1, or the least of a short run."""
    x = {float(at) for panel in panels for at in numbers.curve(panel, "eigenveil").x}
    return tuple(sorted(x & {0.1, 1.0})) or tuple(sorted(x)[:1])


def _beside_exact(
    numbers: Numbers,
    sweeps: Sequence[Sweep],
    series: str,
    at: slice = _ALL,
    asks: Question = "at most",
    times: float = MATCHES,
) -> list[ClaimPart]:
    return [
        ClaimPart(
            of.panel, effects(numbers, of.panel, "exact", series, ERROR)[at], asks, math.log(times)
        )
        for of in sweeps
    ]


def _more_rows(numbers: Numbers, sweeps: Sequence[Sweep]) -> list[ClaimPart]:
    parts = []
    for few, many in product(sweeps, sweeps):
        if (few.size, few.model) == (many.size, many.model) and few.rows < many.rows:
            both = numbers.together(
                {(few.panel, "capeagn"): "few", (many.panel, "capeagn"): "many"}
            )
            found = effects(both, "", "many", "few", ERROR)
            parts.append(ClaimPart(f"D={few.size}", found, "better"))
    return parts


def _approaches(numbers: Numbers, sweeps: Sequence[Sweep]) -> list[ClaimPart]:
    """Not tested where the gap still closes at the most rows."""
    parts = []
    for sweep in sweeps:
        gaps = effects(numbers, sweep.panel, "capeagn", "exact", ERROR)
        closing = len(gaps) < 2 or gaps[-1].value - gaps[-2].value > ERROR.room
        parts.append(
            ClaimPart(sweep.panel, gaps, "somewhere", -math.log(MATCHES), open_end=closing)
        )
    return parts


_STORED = {"capeagn": "capeagn", "conv": "conv", "local": "local", "exact": "exact"}
_REPEATED = {"capeagn-repeated": "capeagn", "exact-repeated": "exact"}


def _reproduced(
    numbers: Numbers, sweeps: Sequence[Sweep], stored: Mapping[str, str]
) -> list[ClaimPart]:
    """Ours of the published methods over the authors' stored errors."""
    return [
        ClaimPart(
            ours,
            tuple(effect for of in sweeps for effect in _over_theirs(numbers, of, ours, theirs)),
            "same",
        )
        for ours, theirs in stored.items()
    ]


def _over_theirs(numbers: Numbers, sweep: Sweep, series: str, stored: str) -> Iterator[Effect]:
    """The authors stored no errors: theirs are taken to be as large as ours."""
    theirs = authors("component_error", sweep.authors).get(stored)
    ours = numbers.by_run(sweep.panel, series)
    for x, value in zip(*theirs, strict=True) if theirs is not None else ():
        for at in (at for at in ours if math.isclose(at, float(x), rel_tol=1e-9)):
            found = Effect.of(
                f"{at:g} ({sweep.panel})", np.log(np.array(list(ours[at].values())) / float(value))
            )
            yield Effect(found.at, found.value, math.sqrt(2.0) * found.error, found.free)


def _beside_capeagn(numbers: Numbers, sweeps: Sequence[Sweep]) -> tuple[list[ClaimPart], str]:
    """Ours against capeAGN; fits that stopped gave no number and are told."""
    parts = [
        ClaimPart(of.panel, effects(numbers, of.panel, "eigenveil", "capeagn", ERROR), "better")
        for of in sweeps
    ]
    gains = np.array([effect.value for part in parts for effect in part.effects])
    aside = ""
    if gains.size:
        aside = (
            f"the geometric mean is lower at {int(np.sum(gains > 0))} of {gains.size} points, by a "
            f"median factor of {math.exp(float(np.median(gains))):.2g} over all"
        )
    fits = [numbers.points(sweep.panel, "eigenveil")[:, 1] for sweep in sweeps]
    if stopped := sum(int(np.isnan(of).sum()) for of in fits):
        aside += f"; {stopped} fits stopped, as too few rows showed above the noise"
    return parts, aside


def _noise(numbers: Numbers, panel: str, size: int) -> tuple[list[ClaimPart], str]:
    """At epsilon 1, ours against AGN's, and beside it what is measured besides."""
    told = (
        (
            "rows not centred, so that both whitenings are the same matrix",
            *("eigenveil-uncentred", "agn"),
        ),
        ("AVN's beside ours", "eigenveil", "avn"),
    )
    asides = [
        f"{what}: {NOISE.say(effect.value)}"
        for what, first, second in told
        for effect in effects(numbers, panel, first, second, NOISE)
        if effect.at == "1"
    ]
    found = effects(numbers, panel, "eigenveil", "agn", NOISE, axis="epsilon")
    at_one = tuple(effect for effect in found if effect.at == "epsilon 1")
    part = ClaimPart(f"D={size}", at_one, "at least", math.log(_WANTED_NOISE_RATIO))
    return [part], "; ".join(asides)


def _growth(numbers: Numbers, panel: str) -> tuple[Effect, ...]:
    """Of the ratio of both noises, from the fewest features to the most."""
    gains: list[dict[int, float]] = []
    x = sorted(numbers.by_run(panel, "eigenveil"))
    for at in (x[0], x[-1]) if len(x) > 1 else ():
        ours, theirs = (numbers.by_run(panel, of).get(at, {}) for of in ("eigenveil", "agn"))
        gains.append({run: math.log(theirs[run] / ours[run]) for run in ours.keys() & theirs})
    return paired(f"D = {x[0]:g} to {x[-1]:g}", gains[1], gains[0], PURE) if gains else ()


def pure_parts(model: Model) -> list[ClaimPart]:
    """By the worst of some neighbours, as the noise's law is known: nothing is estimated."""
    rng, size, count = np.random.default_rng(0), 4, 40
    if model == "mixture":
        variance = 0.01
        rows: NDArray[Any] = np.vstack(
            [np.eye(size), -np.eye(size), rng.standard_normal((40, size))]
        )
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        of = partial(orthogonal.gaussian_moments, noise_variance=variance)
        printed = orthogonal.gaussian_sensitivities(count, size, variance)
    else:
        rows = rng.integers(size, size=(48, 3))
        of = partial(orthogonal.topic_moments, size=size)
        printed = orthogonal.topic_sensitivities(count)
    worst = dict.fromkeys(("pair", "triple"), 0.0)
    for one, other in combinations(rows, 2):
        both = [of(np.vstack([each, rows[: count - 1]])) for each in (one, other)]
        for name, loss in worst.items():
            moved = getattr(both[0], name) - getattr(both[1], name)
            worst[name] = max(loss, _length(moved) / getattr(printed, name))
    return [
        ClaimPart(f"{name} moment", (Effect("", loss, 0.0),), "at most", 1.0)
        for name, loss in worst.items()
    ]


def _length(moved: NDArray[np.float64]) -> float:
    """Of the unique entries; infinite where symmetric noise leaves a part of it bare."""
    if not np.allclose(moved, moved.swapaxes(0, 1)) or not np.allclose(moved, moved.T):
        return math.inf
    unique = (np.diff(np.indices(moved.shape), axis=0) >= 0).all(axis=0)
    return float(np.linalg.norm(moved[unique]))


def _least_delta(numbers: Numbers, sweeps: Sequence[Sweep]) -> list[ClaimPart]:
    """Ours at the left end against capeAGN at the right one."""
    parts = []
    for sweep in sweeps:
        ours, theirs = (numbers.by_run(sweep.panel, of) for of in ("eigenveil", "capeagn"))
        if ours and theirs:
            found = paired("", ours[min(ours)], theirs[max(theirs)], ERROR)
            parts.append(ClaimPart(sweep.panel, found, "better"))
    return parts
