"""Whether NVIDIA FLARE is there, in a version that was tested."""

from __future__ import annotations

import importlib.metadata
import importlib.util

from eigenveil.errors import OutputError, printable

TESTED = ("2.9.0",)
"""The versions with which all tests of `make test-flare` passed; ``pyproject.toml`` asks for them.

Others are refused, later patches too: what is replaced in FLARE so that a site is safe from it
(:mod:`eigenveil.runtime.flare.hardening`) has private names, and docs/identity.md lists what would
fail without a word.
"""


def need_flare() -> None:
    """Say plainly when FLARE is not installed, or in a version that was not tested; loads nothing.

    Raises
    ------
    OutputError
        With code ``no-flare`` or ``other-flare``.
    """
    if importlib.util.find_spec("nvflare") is None:
        raise OutputError(
            "NVIDIA FLARE is not installed, and this needs it.",
            hint="pip install 'eigenveil[flare]'",
            code="no-flare",
        )
    try:
        version = importlib.metadata.version("nvflare")
    except importlib.metadata.PackageNotFoundError:  # a nightly build, or a copy of the source
        version = "of an unknown version"
    if version not in TESTED:
        raise OutputError(
            f"NVIDIA FLARE {printable(version)} is installed, and this was tested only with "
            f"{' and '.join(TESTED)}.",
            hint="pip install 'eigenveil[flare]' installs one that was.",
            code="other-flare",
        )
