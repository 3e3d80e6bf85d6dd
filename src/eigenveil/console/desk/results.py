"""A result's folder, as a page shows it; nothing of it shows a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eigenveil.cli.presenters.registry import load_model
from eigenveil.cli.presenters.results import CERTIFICATE, MODEL, as_json
from eigenveil.federation.protocol.certificates import check
from eigenveil.privacy.certificate import read_certificate

_MOST_SHOWN = 500


def read_result(folder: str) -> dict[str, Any]:
    """What was released, what is guaranteed to whom, and whether that holds."""
    place = Path(folder)
    model: Any = load_model(place / MODEL)
    verdict = check(read_certificate(place / CERTIFICATE))
    found = as_json(model)
    guarantee = model.guarantee_
    components = [list(row[:_MOST_SHOWN]) for row in found.get("components") or []]
    return {
        **found,
        "components": components,
        "features": [str(name) for name in (found.get("features") or [])][:_MOST_SHOWN],
        "mean": None,
        "holds": verdict.holds,
        "word": verdict.word,
        "explanation": verdict.explanation,
        "sentence": str(guarantee).rstrip(".") + ".",
        "assumptions": list(guarantee.assumptions),
        "caveats": list(guarantee.caveats),
        "views": {
            name: {"epsilon": view.epsilon, "delta": view.delta, "certified": view.certified}
            for name, view in verdict.views.items()
        },
        "downloads": sorted(file.name for file in place.iterdir() if file.is_file()),
    }
