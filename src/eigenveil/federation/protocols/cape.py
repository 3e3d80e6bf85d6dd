"""Noisy sums under masks: paper 001, algorithm 3, with noise shared among the honest sites."""

from __future__ import annotations

from eigenveil.federation.protocols.base import Protocol


class Cape(Protocol):
    """The whole moments of all sites, summed."""

    name = "cape"
    sent = "the sites send {moment}s{triples} under masks: only their sum is visible"
    pure = True
