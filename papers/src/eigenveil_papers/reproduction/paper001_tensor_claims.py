"""How two series of paper 001's tensor experiments compare, point by point."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from eigenveil_papers.reproduction.authors import authors
from eigenveil_papers.reproduction.experiment import Claim, Verdict, verdict_of
from eigenveil_papers.reproduction.matched_utility import matched_utility
from eigenveil_papers.reproduction.numbers import Curve, Numbers
from eigenveil_papers.reproduction.paper001_tensor_panels import Model, Sweep

# Means differ clearly when they are so many standard errors apart.
CLEARLY = 4.0
# "Matches the non-private method": within this factor of its error.
MATCHES = 1.25


class Pair(NamedTuple):
    """Two series' means at one point, and the standard error of their difference.

    All series of a run are of the same rows: it is the difference of each run that is averaged.
    """

    sweep: Sweep
    x: float
    first: float
    second: float
    error: float

    @property
    def where(self) -> str:
        """The point, for a person."""
        name = {"epsilon": "ε", "rows": "N", "delta": "δ"}[self.sweep.over]
        return f"{self.sweep.statement}, {name}={self.x:g}"


def pairs_of(numbers: Numbers, sweeps: Sequence[Sweep], first: str, second: str) -> Iterator[Pair]:
    """Two series at every point that both have; runs that lack a number of either are left out."""
    for sweep in sweeps:
        runs: dict[float, dict[int, dict[str, float]]] = {}
        for row in numbers.measured:
            if row.panel == sweep.panel and row.series in (first, second):
                runs.setdefault(row.x, {}).setdefault(row.run, {})[row.series] = row.value
        for x, found in sorted(runs.items()):
            values = np.array(
                [[run.get(first, math.nan), run.get(second, math.nan)] for run in found.values()]
            )
            both = values[~np.isnan(values).any(axis=1)]
            if len(both):
                apart = both[:, 0] - both[:, 1]
                error = math.inf  # of a single run nothing is clear
                if len(both) > 1:
                    error = float(np.std(apart, ddof=1)) / math.sqrt(len(both))
                yield Pair(sweep, x, float(both[:, 0].mean()), float(both[:, 1].mean()), error)


def apart(one: Curve, i: int, other: Curve, j: int) -> float:
    """Standard error of the difference of two means; of single runs nothing is clear."""
    if min(one.runs[i], other.runs[j]) < 2:
        return math.inf
    return math.hypot(float(one.error[i]), float(other.error[j]))


def some(where: Sequence[str], most: int = 4) -> str:
    """The first of them, and how many more there are."""
    rest = len(where) - most
    return "; ".join(where[:most]) + (f"; and {rest} more" if rest > 0 else "")


def last(pairs: Sequence[Pair]) -> Pair | None:
    """The one at the right end, if there is any."""
    return pairs[-1] if pairs else None


# -- What is said of ours beside paper 001's figures 3 to 5: errors, and the tensor's noise.


_WANTED_NOISE_RATIO = 20.0


def epsilon_ratio(numbers: Numbers, sweeps: Sequence[Sweep]) -> Claim:
    """At the error that capeAGN reaches with epsilon = 1 and with its largest."""
    reported, ratios = [], []
    for sweep in sweeps:
        ours, theirs = (numbers.curve(sweep.panel, s) for s in ("eigenveil", "capeagn"))
        if not ours.x.size or not theirs.x.size:
            continue
        for x in sorted({1.0 if 1.0 in theirs.x else float(theirs.x[0]), float(theirs.x[-1])}):
            found = matched_utility(ours, theirs, theirs.at(x), higher=False)
            reported.append(f"{sweep.statement}, error {found.level:.3g}: {found}")
            if not math.isnan(found.ratio):
                ratios.append(found.ratio)
    return Claim(
        statement="capeAGN needs at least 10 times the epsilon of ours for the same component "
        "error.",
        where="eigenveil",
        measured="; ".join(reported),
        verdict=verdict_of([ratio >= 10.0 for ratio in ratios]),
    )


def dominates(numbers: Numbers, sweeps: Sequence[Sweep]) -> Claim:
    """Ours against capeAGN, naming every point where it is not better."""
    pairs = list(pairs_of(numbers, sweeps, "eigenveil", "capeagn"))
    above = [pair for pair in pairs if pair.first > pair.second]
    reported = f"lower at {len(pairs) - len(above)} of {len(pairs)} points"
    if pairs:
        ratios = [pair.second / pair.first for pair in pairs]
        reported += f", by a median factor of {np.median(ratios):.2g}, at most {max(ratios):.2g}"
    if above:
        listed = [f"{pair.where} ({pair.first:.3g} > {pair.second:.3g})" for pair in above]
        reported += f"; not at {some(listed, 8)}"
    stopped = sum(
        int(np.isnan(numbers.points(sweep.panel, "eigenveil")[:, 1]).sum()) for sweep in sweeps
    )
    if stopped:
        reported += f"; {stopped} fits stopped, as too few rows showed above the noise"
    return Claim(
        statement="Ours has a lower error than capeAGN as published, everywhere.",
        where="eigenveil",
        measured=reported,
        verdict=verdict_of([pair.first <= pair.second for pair in pairs]),
    )


def near_exact(numbers: Numbers, sweeps: Sequence[Sweep]) -> Claim:
    """Ours against the decomposition of the exact moments."""
    pairs = list(pairs_of(numbers, sweeps, "eigenveil", "exact"))
    ratios = {pair: pair.first / pair.second for pair in pairs}
    within = [pair for pair in pairs if ratios[pair] <= MATCHES]
    below = [pair for pair in pairs if ratios[pair] < 1.0]
    why = ", as ours fits both moments together in the end"
    if any(sweep.model == "topics" for sweep in sweeps):
        why += " and takes the words of a document in all orders"
    return Claim(
        statement="Ours matches the published method without any privacy.",
        where="eigenveil",
        measured=f"within a factor of {MATCHES:g} at {len(within)} of {len(pairs)} points, and "
        f"below it at {len(below)}{why if below else ''}",
        verdict=verdict_of([pair in within for pair in pairs]),
    )


def noise_claims(numbers: Numbers, model: Model, *, size: int) -> list[Claim]:
    """Of the noise in the whitened third moment."""
    over = f"{model}-noise-epsilon"
    reported: list[str] = []
    at_one = math.nan
    for x in numbers.curve(over, "eigenveil").x:
        ratio = _noise_ratio(numbers, over, float(x))
        reported.append(f"{ratio:.3g} at ε={x:g}")
        if math.isclose(x, 1.0):
            at_one = ratio
    centered = _noise_ratio(numbers, over, 1.0, "eigenveil-uncentred")
    measured = f"root mean square over runs, D={size}: {', '.join(reported)}"
    if not math.isnan(centered):
        measured += "; rows not centred, so that both whitenings are the same matrix: "
        measured += f"{centered:.3g} at ε=1"
    vector = _noise_ratio(numbers, over, 1.0, against="avn")
    if not math.isnan(vector):
        measured += f"; AVN's noise is {vector:.3g} times ours at ε=1"
    made = [
        Claim(
            statement="At epsilon = 1 the noise in the whitened third moment is at least "
            f"{_WANTED_NOISE_RATIO:g} times less than that of AGN (and of capeAGN) as published.",
            where="eigenveil",
            measured=measured if reported else "not measured",
            verdict="not tested"
            if math.isnan(at_one)
            else "holds"
            if at_one >= _WANTED_NOISE_RATIO
            else "does not hold",
        )
    ]
    features = f"{model}-noise-features"
    sizes = numbers.curve(features, "eigenveil").x
    if sizes.size > 1:
        ratios = [_noise_ratio(numbers, features, float(x)) for x in sizes]
        made.append(
            Claim(
                statement="The advantage grows with the number of features, as ours does not "
                "depend on "
                "it.",
                where="eigenveil",
                measured=", ".join(
                    f"{ratio:.3g} at D={x:g}" for x, ratio in zip(sizes, ratios, strict=True)
                ),
                verdict="holds" if ratios[-1] > ratios[0] else "does not hold",
            )
        )
    return made


def _noise_ratio(
    numbers: Numbers, panel: str, x: float, ours: str = "eigenveil", against: str = "agn"
) -> float:
    """Of root mean squares over all runs."""
    squares = []
    for series in (against, ours):
        points = numbers.points(panel, series)
        values = points[np.isclose(points[:, 0], x), 1]
        values = values[~np.isnan(values)]
        if not values.size:
            return math.nan
        squares.append(float(np.mean(values**2)))
    return math.sqrt(squares[0] / squares[1])


def least_delta(numbers: Numbers, sweeps: Sequence[Sweep]) -> Claim:
    """Ours at the left end against capeAGN at the right one."""
    flags, reported = [], []
    for sweep in sweeps:
        ours, theirs = (numbers.curve(sweep.panel, s) for s in ("eigenveil", "capeagn"))
        if not ours.x.size or not theirs.x.size:
            continue
        flags.append(bool(ours.mean[0] < theirs.mean[-1]))
        reported.append(
            f"{sweep.model}, {sweep.statement}: {ours.mean[0]:.3g}, {theirs.mean[-1]:.3g}"
        )
    return Claim(
        statement="Ours at the smallest delta has a lower error than capeAGN at the largest.",
        where="eigenveil",
        measured="; ".join(reported),
        verdict=verdict_of(flags),
    )


# -- Paper 001's sentences on its figures 3 to 5, against what was measured.


# Figures 3 and 4


def error_claims(numbers: Numbers, sweeps: Sequence[Sweep], *, figure: int) -> list[Claim]:
    """Of the errors over epsilon and over rows."""
    over_epsilon = [sweep for sweep in sweeps if sweep.over == "epsilon"]
    over_rows = [sweep for sweep in sweeps if sweep.over == "rows"]
    where = f"section 6.2, figure {figure}"
    made = [
        _falls(numbers, over_epsilon, where, "As epsilon increases, the errors decrease."),
        _outperforms(numbers, sweeps, where),
        _matches(numbers, over_epsilon, where),
        _more_rows(numbers, over_epsilon, where),
        _approaches(numbers, over_rows, where),
    ]
    if figure == 4:
        made.append(_always_close(numbers, sweeps, where))
    return [
        *made,
        _reproduced(numbers, sweeps, where),
        epsilon_ratio(numbers, over_epsilon),
        dominates(numbers, sweeps),
        near_exact(numbers, sweeps),
    ]


def _falls(numbers: Numbers, sweeps: Sequence[Sweep], where: str, statement: str) -> Claim:
    """From the left end to the right one, of the paper's three methods."""
    flags, reported, clearly = [], [], 0
    for sweep in sweeps:
        for series in ("capeagn", "conv", "local"):
            curve = numbers.curve(sweep.panel, series)
            if curve.x.size < 2:
                continue
            fallen = float(curve.mean[0] - curve.mean[-1])
            flags.append(fallen > 0)
            clearly += fallen > CLEARLY * apart(curve, 0, curve, -1)
            if series == "capeagn":
                name = f"{sweep.model}, " if sweep.over == "delta" else ""
                reported.append(
                    f"{name}{sweep.statement}: {curve.mean[0]:.3g} to {curve.mean[-1]:.3g}"
                )
    measured = (
        f"lower at the right end than at the left one in {sum(flags)} of {len(flags)} curves of "
        f"capeAGN, conv and local, clearly in {clearly}; capeAGN: {'; '.join(reported)}"
    )
    return Claim(statement=statement, where=where, measured=measured, verdict=verdict_of(flags))


def _outperforms(numbers: Numbers, sweeps: Sequence[Sweep], where: str) -> Claim:
    """Against conv and local, at every point."""
    pairs = [
        pair for other in ("conv", "local") for pair in pairs_of(numbers, sweeps, "capeagn", other)
    ]
    better = [pair for pair in pairs if pair.second - pair.first > CLEARLY * pair.error]
    worse = [pair for pair in pairs if pair.first - pair.second > CLEARLY * pair.error]
    measured = (
        f"clearly lower at {len(better)} of {len(pairs)} points, clearly higher at {len(worse)}"
        + (f" ({some([pair.where for pair in worse])})" if worse else "")
        + "; at the others the difference is below four of its standard errors: mostly where all "
        "are as bad as random vectors, or as good as without privacy"
    )
    verdict: Verdict = "not tested" if not pairs else "does not hold"
    if better:
        verdict = "in part" if worse or len(better) < len(pairs) / 2 else "holds"
    return Claim(
        statement="capeAGN outperforms conv and local in all settings.",
        where=where,
        measured=measured,
        verdict=verdict,
    )


def _matches(numbers: Numbers, sweeps: Sequence[Sweep], where: str) -> Claim:
    ends = [last(list(pairs_of(numbers, [sweep], "capeagn", "exact"))) for sweep in sweeps]
    pairs = [pair for pair in ends if pair is not None]
    reported = [
        f"{pair.where}: {pair.first:.3g} against {pair.second:.3g}, {pair.first / pair.second:.2g} "
        "times"
        for pair in pairs
    ]
    return Claim(
        statement="capeAGN matches the non-private method for larger epsilon.",
        where=where,
        measured="; ".join(reported),
        verdict=verdict_of([pair.first <= MATCHES * pair.second for pair in pairs]),
    )


def _more_rows(numbers: Numbers, sweeps: Sequence[Sweep], where: str) -> Claim:
    """The same size with more rows, at the same epsilon."""
    lower, clearly_higher, ratios = 0, 0, []
    for few in sweeps:
        for many in sweeps:
            if (few.size, few.model) != (many.size, many.model) or few.rows >= many.rows:
                continue
            one, other = (numbers.curve(sweep.panel, "capeagn") for sweep in (few, many))
            for x in np.intersect1d(one.x, other.x):
                i, j = int(np.flatnonzero(one.x == x)[0]), int(np.flatnonzero(other.x == x)[0])
                risen = float(other.mean[j] - one.mean[i])
                lower += risen < 0
                clearly_higher += risen > CLEARLY * apart(one, i, other, j)
                ratios.append(float(one.mean[i] / other.mean[j]))
    largest = max(ratios, default=math.nan)
    verdict: Verdict = "not tested" if not ratios else "does not hold"
    if lower > len(ratios) / 2:
        verdict = "in part" if clearly_higher else "holds"
    return Claim(
        statement="With more rows capeAGN does even better.",
        where=where,
        measured=f"lower at {lower} of {len(ratios)} epsilons, up to {largest:.2g} times, and "
        f"clearly higher at {clearly_higher}",
        verdict=verdict,
    )


def _approaches(numbers: Numbers, sweeps: Sequence[Sweep], where: str) -> Claim:
    """The distance to the non-private error (errors themselves fall with the rows as well)."""
    flags, reported = [], []
    for sweep in sweeps:
        pairs = list(pairs_of(numbers, [sweep], "capeagn", "exact"))
        if len(pairs) < 2:
            continue
        gaps = [abs(pair.first - pair.second) for pair in (pairs[0], pairs[-1])]
        flags.append(gaps[1] < gaps[0] or pairs[-1].first <= MATCHES * pairs[-1].second)
        reported.append(f"{sweep.statement}: {gaps[0]:.3g} to {gaps[1]:.3g}")
    return Claim(
        statement="capeAGN approaches the non-private method as the number of rows grows.",
        where=where,
        measured=f"the gap to it from the fewest to the most rows: {'; '.join(reported)}",
        verdict=verdict_of(flags),
    )


def _always_close(numbers: Numbers, sweeps: Sequence[Sweep], where: str) -> Claim:
    smallest = min(sweep.size for sweep in sweeps)
    over_rows = [sweep for sweep in sweeps if sweep.over == "rows" and sweep.size == smallest]
    pairs = list(pairs_of(numbers, over_rows, "capeagn", "exact"))
    ratios = [pair.first / pair.second for pair in pairs]
    reported = f"from {min(ratios):.2g} to {max(ratios):.2g} times" if ratios else ""
    return Claim(
        statement=f"For D={smallest} capeAGN always performs very closely with the "
        "non-private method.",
        where=where,
        measured=f"errors {reported} those without privacy over all N",
        verdict=verdict_of([ratio <= MATCHES for ratio in ratios]),
    )


def _reproduced(numbers: Numbers, sweeps: Sequence[Sweep], where: str) -> Claim:
    """Ours of the published methods over the authors' stored errors."""
    reported, flags = [], []
    for series, stored, name in (
        ("capeagn", "capeagn", "capeAGN"),
        ("conv", "conv", "conv"),
        ("local", "local", "local"),
        ("exact", "exact", "non-private"),
        ("capeagn-repeated", "capeagn", "capeAGN with the same rows at all sites"),
        ("exact-repeated", "exact", "non-private with the same rows at all sites"),
    ):
        logs = [value for sweep in sweeps for value in _logs(numbers, sweep, series, stored)]
        if not logs:
            continue
        middle, low, high = (math.exp(q) for q in np.quantile(logs, [0.5, 0.1, 0.9]))
        reported.append(f"{name} {middle:.2f} ({low:.2f} to {high:.2f})")
        if series == "capeagn":
            flags.append(bool(np.mean(np.abs(logs) < math.log(2.0)) > 0.8))
            flags.append(0.5 < middle < 2.0)
    return Claim(
        statement="The authors' stored curves (within a factor of two at four of five points).",
        where=where,
        measured="ours over theirs, median (and the middle 80 % of the points): "
        + "; ".join(reported)
        if reported
        else "the stored curves are not at hand, or are not of these settings",
        verdict=verdict_of(flags),
    )


def _logs(numbers: Numbers, sweep: Sweep, series: str, stored: str) -> Iterator[float]:
    curve = numbers.curve(sweep.panel, series)
    theirs = authors("component_error", sweep.authors).get(stored)
    if theirs is None:
        return
    for x, value in zip(*theirs, strict=True):
        ours = curve.at(float(x))
        if not math.isnan(ours):
            yield math.log(ours / float(value))


# Figure 5


def delta_claims(numbers: Numbers, sweeps: Sequence[Sweep]) -> list[Claim]:
    """Of the errors over delta."""
    where = "section 6.2, figure 5"
    falls = _falls(numbers, sweeps, where, "A smaller delta costs utility: errors fall with delta.")
    # conditions of the paper's sentences: the larger epsilon and most rows, or the smaller ones
    largest = max((sweep.epsilon for sweep in sweeps), default=0.0)
    most = max((sweep.rows for sweep in sweeps), default=0)
    rich = [sweep for sweep in sweeps if (sweep.epsilon, sweep.rows) == (largest, most)]
    poor = [sweep for sweep in sweeps if sweep.epsilon < largest and sweep.rows < most]
    return [
        falls,
        _small_delta(
            numbers,
            rich,
            where,
            "With larger epsilon and more rows capeAGN is very close to the non-private method "
            "even for very small delta.",
            lambda ratio: ratio <= MATCHES,
        ),
        _small_delta(
            numbers,
            poor,
            where,
            "With small epsilon a larger delta is needed for meaningful performance (the smallest "
            "is far from the non-private method).",
            lambda ratio: ratio > 2.0,
        ),
        _outperforms(numbers, sweeps, where),
        _reproduced(numbers, sweeps, where),
        least_delta(numbers, sweeps),
        dominates(numbers, sweeps),
    ]


def _small_delta(
    numbers: Numbers,
    sweeps: Sequence[Sweep],
    where: str,
    statement: str,
    holds: Callable[[float], bool],
) -> Claim:
    """The error at the smallest delta over the non-private one."""
    flags, reported = [], []
    for sweep in sweeps:
        pairs = list(pairs_of(numbers, [sweep], "capeagn", "exact"))
        if not pairs:
            continue
        ratio = pairs[0].first / pairs[0].second
        flags.append(holds(ratio))
        reported.append(
            f"{sweep.model}, {pairs[0].where}: {pairs[0].first:.3g} is {ratio:.2g} times the "
            f"non-private {pairs[0].second:.3g}, and at δ={pairs[-1].x:g} "
            f"{pairs[-1].first / pairs[-1].second:.2g} times"
        )
    return Claim(
        statement=statement, where=where, measured="; ".join(reported), verdict=verdict_of(flags)
    )
