"""The forecast that follows the slider, of a table or of a study."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from eigenveil.console.pictures import energy_at, energy_picture, epsilon_at, slide_at

_MOST_ROWS = 2**53


def whole(text: str, otherwise: int) -> int:
    """A positive whole number, or what is otherwise meant."""
    text = text.strip().replace(",", "").replace(" ", "")
    if text.isascii() and text.isdigit() and 0 < len(text) < 17:
        return min(int(text), _MOST_ROWS)
    return otherwise


def forecast_values(
    request: Request, curve: Any, *, asked: bool, epsilon: float = 1.0
) -> dict[str, Any]:
    """What the template of a forecast needs.

    Parameters
    ----------
    curve : dict or None
        What was simulated; ``None`` while it is being, or where nothing was asked for.
    asked : bool
        Whether something was asked for.
    epsilon : float
        Where the slider stands at first.
    """
    text = request.query_params.get("slide", "")
    slide = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else slide_at(epsilon)
    at = epsilon_at(slide)
    points = [] if curve is None else curve["points"]
    near = min(points, key=lambda p: abs(p["epsilon"] - at)) if points else None
    return {
        "slide": slide,
        "epsilon": at,
        "curve": curve,
        "working": asked and curve is None,
        "picture": energy_picture(points, at) if points else None,
        "energy": energy_at(points, at),
        "near": near,
    }
