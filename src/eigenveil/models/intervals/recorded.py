"""What records of releases say of their noise."""

from __future__ import annotations

import math
from collections.abc import Mapping

from eigenveil.models.result import Result
from eigenveil.models.schedule import Step
from eigenveil.privacy.releases import ReleaseRecord, Sharing


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


def sharing_of(result: Result) -> Mapping[Step, Sharing]:
    """How the noise of each step was shared, as its records say."""
    return {
        result.plan.planned(record.name).step: Sharing(
            noise_parts=record.noise.noise_parts,
            masks=record.noise.masks,
            exposure=record.exposure,
            sites=record.sites,
        )
        for record in result.certificate.releases
    }
