"""The second place of a ledger's heads, as the command line names it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eigenveil.cli import options

if TYPE_CHECKING:
    from eigenveil.federation.ledger_heads import Heads

HEADS_HELP = (
    "The second place of the ledger's heads: a file elsewhere, or a PostgreSQL URL that ends with "
    "?ledger=NAME."
)
AUTHORITY_HELP = "The root certificate of the timestamp authority (PEM)."


def heads_of(
    place: str | None, authority: Path | None, timestamps: str | None = None, *, notes: bool = True
) -> Heads | None:
    """The place that ``--heads``, ``--authority`` and ``--timestamps`` name together.

    Without ``notes`` it is only read, and no URL of an authority is needed.

    Raises
    ------
    WrongOption
        When they do not fit together.
    OutputError, DataError
        When one of them cannot be what it should.
    """
    if place is None:
        if timestamps is not None or authority is not None:
            raise options.WrongOption(
                "--authority is for heads with timestamps, and --heads is missing."
                if timestamps is None
                else "--timestamps and --authority are for heads, and --heads is missing.",
                hint="Give --heads FILE, too: the timestamps are kept there.",
            )
        return None
    if "://" in place:
        if timestamps is not None or authority is not None or place.startswith("http"):
            raise options.WrongOption(
                "Timestamps are kept in a file, and --heads names none.",
                hint=(
                    f"Give --heads FILE {'--timestamps URL ' if notes else ''}--authority FILE, or "
                    "a database's URL alone."
                ),
            )
        from eigenveil.federation.ledger_heads_table import HeadsTable

        return HeadsTable(place)
    if notes and (authority is None) != (timestamps is None):
        raise options.WrongOption(
            "--timestamps and --authority go together: no timestamp is kept that was not checked.",
            hint="Give the authority's URL and a PEM file with its root certificate, which the "
            "authority publishes.",
        )
    if authority is None:
        from eigenveil.federation.ledger_heads import HeadsFile

        return HeadsFile(place)
    from eigenveil.federation.ledger_heads_stamped import Authority, StampedHeads

    return StampedHeads(place, Authority(authority, timestamps or ""))
