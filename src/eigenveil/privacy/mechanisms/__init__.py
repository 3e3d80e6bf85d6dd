"""The registry of mechanisms: one class in one file each, found by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from eigenveil.checks import one_of
from eigenveil.privacy.mechanisms.base import Mechanism, Norm
from eigenveil.privacy.mechanisms.bingham import Bingham
from eigenveil.privacy.mechanisms.gaussian import Gaussian
from eigenveil.privacy.mechanisms.laplace import Laplace
from eigenveil.privacy.mechanisms.vector import Vector
from eigenveil.privacy.mechanisms.wishart import Wishart

__all__ = ["MECHANISMS", "Mechanism", "NoiseKind", "Norm"]

# In the order in which options list them.
MECHANISMS: Mapping[str, Mechanism] = MappingProxyType(
    {each.name: each for each in (Gaussian(), Wishart(), Vector(), Bingham(), Laplace())}
)

NoiseKind = Annotated[str, *one_of(MECHANISMS)]
"""The name of a mechanism, in records."""
