"""Where the commands keep the ledger of this user's tables, where no other place is named."""

from __future__ import annotations

import os

from eigenveil.errors import OutputError, of_system
from eigenveil.files import user_folder

VARIABLE = "EIGENVEIL_LEDGER"
_ELSEWHERE = f"Name a place that lasts: --ledger FILE (or a database's URL), or {VARIABLE}."


def usual_ledger(*, make_folder: bool = False) -> str:
    """The place that the environment names, or one file of this user for all tables.

    One file, so that a table that was copied or renamed is known again; of the user, since a
    ledger is its owner's alone, and since tables may lie where nothing can be written.
    """
    if given := os.environ.get(VARIABLE):
        return given
    try:
        folder = user_folder("data") / "eigenveil"
        if make_folder:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(0, "it cannot be written", str(folder))
    except (OSError, RuntimeError) as error:  # RuntimeError: this user has no home
        where = getattr(error, "filename", None) or "the ledger of this user's tables"
        raise OutputError(
            "no-place-for-ledger", path=where, reason=of_system(error), way_out=_ELSEWHERE
        ) from None
    return str(folder / "tables.ledger")
