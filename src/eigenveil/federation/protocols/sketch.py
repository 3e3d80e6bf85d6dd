"""Noisy sketches under masks."""

from __future__ import annotations

from eigenveil.federation.protocols.base import Protocol


class Sketches(Protocol):
    """Sketches of the moments of all sites, summed."""

    name = "sketch"
    sent = "the sites send sketches{triples} under masks: only their sum is visible"
    sketches = takes_columns = True
