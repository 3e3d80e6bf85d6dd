"""Whether NVIDIA FLARE is there."""

from __future__ import annotations

import importlib.util

from eigenveil.errors import OutputError


def need_flare() -> None:
    """Say plainly when the extra is not installed; loads nothing.

    Raises
    ------
    OutputError
    """
    if importlib.util.find_spec("nvflare") is None:
        raise OutputError(
            "NVIDIA FLARE is not installed, and this needs it.",
            hint="pip install 'eigenveil[flare]'",
            code="no-flare",
        )
