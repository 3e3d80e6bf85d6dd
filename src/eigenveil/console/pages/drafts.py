"""Files of a lead's drafts: a study each, by name."""

from __future__ import annotations

import re
from pathlib import Path

from eigenveil.console.web import Console
from eigenveil.errors import DataError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def folder(console: Console) -> Path:
    """Where a console keeps drafts; it is made."""
    place = console.settings.state / "studies"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    return place


def draft_file(console: Console, name: str) -> Path:
    """The file of a draft."""
    place = folder(console) / f"{name}.toml"
    if not _NAME.fullmatch(name) or not place.is_file():
        raise DataError(
            "There is no study of this name.", hint="The list has them all.", code="unknown-study"
        )
    return place


def new_draft_file(console: Console, name: str) -> Path:
    """The file of a draft to be written."""
    if not _NAME.fullmatch(name):
        raise DataError(
            "The study's name is not one.",
            hint="Use letters, digits and _ . -, 64 at most, the first a letter or digit.",
            code="bad-name",
        )
    place = folder(console) / f"{name}.toml"
    if place.exists():
        raise DataError(
            f"There is a study {name} already.", hint="Choose another name.", code="name-taken"
        )
    return place
