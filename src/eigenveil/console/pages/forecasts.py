"""The forecast that follows the slider, of a table or of a study."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from eigenveil.console.forecasts import EPSILONS, Curve
from eigenveil.console.pictures import epsilon_at, quality_at, quality_picture, slide_at


def forecast_values(
    request: Request, curve: Curve | None, *, quality: str, epsilon: float = 1.0
) -> dict[str, Any]:
    """What the template of a forecast needs."""
    text = request.query_params.get("slide", "")
    slide = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else slide_at(epsilon)
    at = epsilon_at(slide)
    points = [] if curve is None else curve.points
    known = [point for point in points if point["quality"] is not None]
    query = str(request.url.query)
    return {
        "slide": slide,
        "epsilon": at,
        "curve": curve,
        "quality": quality,
        "points": points,
        "most_points": len(EPSILONS),
        "picture": quality_picture(known, at) if known else None,
        "forecast": quality_at(known, at),
        "near": min(points, key=lambda p: abs(p["epsilon"] - at)) if points else None,
        "again": f"{request.url.path}?{query}",
    }
