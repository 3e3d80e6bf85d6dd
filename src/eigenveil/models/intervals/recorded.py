"""What records of releases say of their noise."""

from __future__ import annotations

import math

from eigenveil.models.result import Result
from eigenveil.privacy.releases import ReleaseRecord


def drawn(record: ReleaseRecord, result: Result) -> float:
    """Deviation of a release's noise over what is recorded: parties beyond those counted draw too.

    Where sites were lost after some rounds, that of the rounds that all took part in.
    """
    federation, plan = result.certificate.federation, result.plan
    parties = 1 if federation is None else federation.sites
    if federation is not None and not federation.hidden.hides:
        parties = federation.taking_part
    parts = record.mechanism.parts_drawn(parties, record.noise.noise_parts, plan.features)
    return math.sqrt(max(parts, 1.0))


def as_drawn(record: ReleaseRecord, result: Result) -> ReleaseRecord:
    """A record with the noise that the release really carries."""
    noise = record.noise
    scaled = noise.model_copy(update={"scale": noise.scale * drawn(record, result)})
    return record.model_copy(update={"noise": scaled})
