"""The gain index of djICA, capeDJICA and this package's ICA, against epsilon, rows and sites."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from eigenveil import FederatedICA, PrivateICA
from eigenveil.errors import NoisyResultWarning, PrivacyError
from eigenveil.models.ica.jade import separation_error
from eigenveil_papers.published.infomax import GradientPrivacy, joint_ica
from eigenveil_papers.reproduction.experiment import Claim, Experiment, Point, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import Panel, SeriesStyle, panel_grid
from eigenveil_papers.reproduction.given import ica
from eigenveil_papers.reproduction.numbers import FloatArray, Numbers
from eigenveil_papers.reproduction.rule import ClaimPart, Measure, effects
from eigenveil_papers.reproduction.tables import about, claims_of

Sources = Literal["laplace", "exponential"]

DELTA = 1e-5
INDEX = Measure(unit="times as small an index", margin=1.2, ratio=True, less=True)
WANTED = (20_000.0, 100_000.0)
"""Rows, at epsilon 1, at which ours is to be below capeDJICA."""

_PUBLISHED: dict[str, dict[str, Any]] = {
    "conv": {"noise": "conventional"},
    "capedjica": {},
    "capedjica-true": {"true_guarantee": True},
}
_EQUAL = "capedjica-true"
_STYLES = {
    "djica": SeriesStyle("djICA, not private", "exact"),
    "pooled": SeriesStyle("Infomax of pooled rows, not private", "exact-2"),
    "conv": SeriesStyle("DP-djICA (each site all noise)", "baseline-3"),
    "capedjica": SeriesStyle("capeDJICA", "paper"),
    "capedjica-true": SeriesStyle("capeDJICA with the noise it would need", "repaired"),
    "eigenveil": SeriesStyle("Eigenveil, everything private", "ours"),
    "random": SeriesStyle("random", "random"),
}
_CLIPS: dict[Sources, float] = {"laplace": 6.0, "exponential": 12.0}
_PANELS: tuple[tuple[str, Sources, str, str], ...] = (
    ("epsilon", "laplace", "Laplace sources, N=20,000", "epsilon"),
    ("rows", "laplace", "Laplace sources, epsilon=1", "N, rows of all sites"),
    ("sites", "laplace", "Laplace sources, N=20,000, epsilon=1", "S, sites"),
    ("skewed", "exponential", "Exponential sources, N=20,000", "epsilon"),
)


def mixtures(
    rng: np.random.Generator, law: Sources, rows: int, features: int, count: int
) -> tuple[FloatArray, FloatArray]:
    """Rows (n, D) of independent sources of mean 0 and variance 1, and their mixing (D, K).

    As the authors' generator (MRN-Code/djICA): orthonormal mixing, and noise of variance 0.05.
    """
    if law == "laplace":
        sources = rng.laplace(scale=np.sqrt(0.5), size=(rows, count))
    else:
        sources = rng.exponential(size=(rows, count)) - 1.0
    mixing = np.linalg.qr(rng.standard_normal((features, features)))[0][:, :count]
    noise = np.sqrt(0.05) * rng.standard_normal((rows, features))
    return np.asarray(sources @ mixing.T + noise), np.asarray(mixing)


def gain_index(
    rng: np.random.Generator,
    *,
    panel: str,
    law: Sources,
    values: Sequence[float],
    size: Sequence[int],
    **setting: Any,
) -> Iterator[Point]:
    """One run of a panel: the index of all methods at all positions.

    ``setting`` are epsilon, sites, and ``protocol``: whether ours is a study of the sites.
    """
    rows, features, count = size
    for x in values:
        here = {"epsilon": setting["epsilon"], "sites": setting["sites"], "rows": rows}
        here["epsilon" if panel == "skewed" else panel] = x
        n, parts = int(here["rows"]), int(here["sites"])
        X, mixing = mixtures(rng, law, n, features, count)
        split = np.array_split(X, parts)
        target = {"epsilon": here["epsilon"], "delta": DELTA, "clip": _CLIPS[law]}
        found = {"djica": joint_ica(split, n_components=count, n_iter=200)}
        for of, options in _PUBLISHED.items():
            privacy = GradientPrivacy(**target, **options)
            found[of] = joint_ica(split, n_components=count, privacy=privacy, random_state=rng)
        if panel == "rows":
            found["pooled"] = joint_ica([X], n_components=count, n_iter=200)
        for of, made in found.items():
            yield Point(panel, of, x, separation_error(made.unmixing @ mixing))
        guess = rng.standard_normal((count, count))
        yield Point(panel, "random", x, separation_error(guess))
        ours = _ours(split, count, here["epsilon"], int(rng.integers(2**31)), setting["protocol"])
        gain = ours @ mixing if len(ours) == count else guess
        yield Point(panel, "eigenveil", x, separation_error(gain))


def _ours(
    sites: Sequence[FloatArray], count: int, epsilon: float, seed: int, protocol: bool
) -> FloatArray:
    """The unmixing of a study of the sites, or of one curator whose release is the same."""
    target: dict[str, Any] = {
        "n_components": count,
        "epsilon": epsilon,
        "delta": DELTA,
        "adjacency": "replace-one",
        "random_state": seed,
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoisyResultWarning)  # it is measured how good it is
            if protocol:
                named = {f"site{place}": rows for place, rows in enumerate(sites)}
                return np.asarray(FederatedICA(**target).fit(named).components_)
            return np.asarray(PrivateICA(**target).fit(np.vstack(sites)).components_)
    except PrivacyError:  # too few rows for the target: it returns nothing
        return np.zeros((0, sites[0].shape[1]))


def _size(settings: RunSettings) -> list[int]:
    return list(settings.pick((20_000, 50, 10), (20_000, 50, 10), (2000, 8, 2)))


def _tasks(settings: RunSettings) -> list[RunTask]:
    epsilons: Sequence[float] = settings.pick((0.3, 1.0, 3.0, 10.0), (1.0, 10.0), (1.0, 10.0))
    positions: dict[str, Sequence[float]] = {
        "epsilon": epsilons,
        "skewed": epsilons,
        "rows": settings.pick((5000.0, *WANTED), (5000.0, 20_000.0), (1000.0, 2000.0)),
        "sites": settings.pick((5.0, 10.0, 20.0, 50.0), (5.0, 20.0), (2.0, 4.0)),
    }
    return [
        RunTask(
            work=gain_index,
            arguments={
                "panel": key,
                "law": law,
                "values": list(positions[key]),
                "size": _size(settings),
                "epsilon": 1.0,
                "sites": settings.pick(10, 10, 4),
                "protocol": run < 2,
            },
            run=run,
            cost=6.0 if key == "rows" else 4.0,
        )
        for key, law, _, _ in _PANELS
        for run in settings.repetitions()
    ]


def _draw(numbers: Numbers, settings: RunSettings) -> Figure:
    del settings
    panels = [
        Panel(
            key=key,
            title=f"{title}, δ={DELTA:g}{'' if key == 'sites' else ', S=10'}",
            xlabel=axis,
            ylabel="gain index (0: all found)",
            yscale="log",
        )
        for key, _, title, axis in _PANELS
    ]
    title = "Joint ICA of sites: how well sources are told apart"
    return panel_grid(numbers, panels, _STYLES, columns=2, title=title)


def _claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings
    panels = [key for key, *_ in _PANELS if key in numbers.panels]
    level = [
        ClaimPart(
            name=panel,
            effects=effects(numbers, panel, "capedjica", "djica", INDEX),
            asks="somewhere",
            level=-INDEX.room,
        )
        for panel in panels
        if panel != "sites"
    ]
    ours = effects(numbers, "rows", "eigenveil", _EQUAL, INDEX)
    wanted = [
        ClaimPart(name=f"{x:,.0f} rows", effects=here, asks="better")
        for x in WANTED
        if (here := tuple(effect for effect in ours if effect.at == f"{x:g}"))
    ]
    return claims_of(
        "1910.12913-gain",
        numbers,
        INDEX,
        {"rows": ["rows"], "every": panels},
        {"level": level, "wanted": wanted},
    )


GAIN = Experiment(
    name="1910.12913-gain",
    title="djICA and capeDJICA: gain index against epsilon, rows and sites",
    about=about("1910.12913-gain", delta=DELTA),
    tasks=_tasks,
    draw=_draw,
    claims=_claims,
    given=ica,
    runs="not readable here",
)
