"""The first site alone, for comparison."""

from __future__ import annotations

from eigenveil.federation.protocols.base import Protocol
from eigenveil.models.task import Task


class Local(Protocol):
    """A fit of the first site's rows."""

    name = "local"
    sent = "the first site sends its noisy {moment}{triple}, the others nothing"
    pure = True
    first_site_only = True
    note = "Only the rows of the first site, {first}, are used."
    forecast_note = "the first site's rows alone"

    def keeps_columns(self, task: Task) -> bool:
        """As a fit of one table does."""
        return task.has("pair", "table")

    def sketches_by_size(self, *, pure: bool) -> bool:
        """As a fit of one table does."""
        del pure
        return True
