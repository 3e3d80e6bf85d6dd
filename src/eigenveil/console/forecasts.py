"""Forecasts that grow: a point at a time, as long as somebody looks; and the slider over them."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from eigenveil.errors import EigenveilError

EPSILONS = (1.0, 0.1, 10.0, 0.35, 3.5, 0.2, 2.0, 0.5, 5.0, 0.75, 1.5)
"""In this order, so that the shape is seen early."""
_LEAST, _MOST = 0.1, 10.0
_SLIDES = 100
_MOST_KEPT = 32
_WAITED = 0.15
# Seconds after the last look at it until a forecast is given up: a page without scripts is not
# looked at often.
_PATIENCE = 90.0

Ask = Callable[[float], Awaitable[dict[str, Any]]]


@dataclass
class ForecastCurve:
    """What was simulated until now."""

    points: list[dict[str, Any]] = field(default_factory=list)  # In the order of their epsilon
    problem: EigenveilError | None = None  # Why there will be none
    looked: float = 0.0

    @property
    def is_whole(self) -> bool:
        return self.problem is not None or len(self.points) == len(EPSILONS)


@dataclass
class Forecasts:
    """The curves that were asked for last, each simulated once."""

    _curves: OrderedDict[str, tuple[ForecastCurve, asyncio.Task[None]]] = field(
        default_factory=OrderedDict
    )

    async def look(self, about: object, ask: Ask) -> ForecastCurve:
        key = json.dumps(about, sort_keys=True)
        if key not in self._curves:
            made = ForecastCurve(looked=time.monotonic())
            self._curves[key] = made, asyncio.ensure_future(self._simulate(key, made, ask))
            while len(self._curves) > _MOST_KEPT:
                self._curves.popitem(last=False)[1][1].cancel()
        curve, task = self._curves[key]
        curve.looked = time.monotonic()
        self._curves.move_to_end(key)
        await asyncio.wait({task}, timeout=_WAITED)
        if curve.problem is not None:  # said once; a later look begins anew
            self._curves.pop(key, None)
        return curve

    async def _simulate(self, key: str, curve: ForecastCurve, ask: Ask) -> None:
        try:
            for epsilon in EPSILONS:
                if time.monotonic() - curve.looked > _PATIENCE:
                    break
                curve.points.append(await ask(epsilon))
                curve.points.sort(key=lambda point: float(point["epsilon"]))
        except EigenveilError as error:
            curve.problem = error
        if not curve.is_whole:  # nobody looked
            self._curves.pop(key, None)


# -- the slider


def epsilon_at(slide: int) -> float:
    """The epsilon of a position of the slider, to two digits."""
    share = min(max(slide, 0), _SLIDES) / _SLIDES
    return float(f"{_LEAST * (_MOST / _LEAST) ** share:.2g}")


def slide_at(epsilon: float) -> int:
    """The position of the slider for an epsilon."""
    share = math.log(max(epsilon, _LEAST) / _LEAST)
    return min(_SLIDES, round(_SLIDES * share / math.log(_MOST / _LEAST)))


def quality_at(points: Sequence[dict[str, Any]], epsilon: float) -> float | None:
    """The forecast between two simulated points; ``None`` outside of them."""
    known = [(p["epsilon"], p["quality"]) for p in points]
    for (low, first), (high, second) in itertools.pairwise(known):
        if low <= epsilon <= high:
            share = math.log(epsilon / low) / math.log(high / low)
            return float(first + share * (second - first))
    return float(known[0][1]) if len(known) == 1 and known[0][0] == epsilon else None


def forecast_values(
    request: Request, curve: ForecastCurve | None, *, quality: str, epsilon: float = 1.0
) -> dict[str, Any]:
    """What the template of a forecast needs."""
    text = request.query_params.get("slide", "")
    slide = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else slide_at(epsilon)
    at = epsilon if slide == slide_at(epsilon) else epsilon_at(slide)  # as typed, until it moves
    points = [] if curve is None else curve.points
    known = [point for point in points if point["quality"] is not None]
    return {
        "slide": slide,
        "epsilon": at,
        "curve": curve,
        "quality": quality,
        "points": points,
        "known": known,
        "most_points": len(EPSILONS),
        "forecast": quality_at(known, at),
        "near": min(points, key=lambda p: abs(p["epsilon"] - at)) if points else None,
        "again": f"{request.url.path}?{request.url.query}",
    }
