"""The registry of masks: one class each, found by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from eigenveil.federation.masks.base import Mask, Unmasked
from eigenveil.federation.masks.kinds import FromHelper, Modular, Pairwise

__all__ = ["MASKS", "MODULAR", "UNMASKED", "Mask"]

MODULAR = Modular()
UNMASKED = Unmasked()
# In the order in which options list them.
MASKS: Mapping[str, Mask] = MappingProxyType(
    {each.name: each for each in (MODULAR, Pairwise(), FromHelper())}
)
