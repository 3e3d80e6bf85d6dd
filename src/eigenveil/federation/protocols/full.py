"""Each site's own noisy second moment, for comparison."""

from __future__ import annotations

from eigenveil.federation.protocols.base import Protocol


class Full(Protocol):
    """Whole moments that each site releases, added up."""

    name = "full"
    sent = "each site sends its own noisy {moment}"
    note = (
        "Each site releases a second moment with the whole noise: protocol 'cape' or 'sketch' adds "
        "the noise of one."
    )
    forecast_note = "every site's whole noise adds up"
