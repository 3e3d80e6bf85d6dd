"""The registry of protocols: one class in one file each, found by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from eigenveil.federation.protocols.auto import Auto
from eigenveil.federation.protocols.base import Protocol
from eigenveil.federation.protocols.cape import Cape
from eigenveil.federation.protocols.factors import Dpdispca
from eigenveil.federation.protocols.full import Full
from eigenveil.federation.protocols.local import Local
from eigenveil.federation.protocols.sketch import Sketches

__all__ = ["PROTOCOLS", "Protocol"]

# In the order in which options list them.
PROTOCOLS: Mapping[str, Protocol] = MappingProxyType(
    {each.name: each for each in (Auto(), Cape(), Sketches(), Dpdispca(), Full(), Local())}
)
