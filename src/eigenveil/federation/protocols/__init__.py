"""The registry of protocols: one class each, found by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from eigenveil.federation.protocols.base import Protocol
from eigenveil.federation.protocols.kinds import Auto, Cape, Dpdispca, Full, Local, Sketches

__all__ = ["PROTOCOLS", "Protocol"]

# In the order in which options list them.
PROTOCOLS: Mapping[str, Protocol] = MappingProxyType(
    {each.name: each for each in (Auto(), Cape(), Sketches(), Dpdispca(), Full(), Local())}
)
