"""A protocol that is still to be chosen (:func:`eigenveil.planning.protocol.choose_protocol`)."""

from __future__ import annotations

from eigenveil.federation.protocols.base import Protocol
from eigenveil.federation.protocols.sketch import Sketches


class Auto(Protocol):
    """Becomes cape or sketch."""

    name = "auto"
    sent = ""
    settled = False
    pure = True

    def likely(self, *, columns_given: bool) -> Protocol:
        """A sketch, where the study says how many columns it has."""
        return Sketches() if columns_given else self

    def sketches_by_size(self, *, pure: bool) -> bool:
        """As the protocol that it will be."""
        return not pure
