"""A round's sums at a site: checked against the study, added up over its rows, made noisy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol import payloads, validation
from eigenveil.federation.protocol.messages import Message
from eigenveil.federation.protocol.terms import Terms
from eigenveil.federation.protocols.base import SentSum
from eigenveil.linalg.threads import small_matrix_threads
from eigenveil.models.plan import Planned
from eigenveil.moments.accumulators import Accumulator, share_rules
from eigenveil.moments.describe import rebuild
from eigenveil.moments.engine import InvalidRows, accumulate
from eigenveil.moments.release import noisy_integers
from eigenveil.moments.source import RowSource
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.releases import ReleaseRecord


@dataclass(frozen=True)
class SiteSum:
    """A sum of a round, whether the site releases it by itself, and how it is sent."""

    accumulator: Accumulator
    record: ReleaseRecord
    is_unmasked: bool
    sent: SentSum


def wanted_sum(
    terms: Terms,
    rows: RowSource,
    message: Message,
    query: tuple[int, payloads.QueryBody],
    planned: Planned,
    *,
    weight: float,
) -> SiteSum:
    """An empty sum as it was asked for; no rows are read."""
    index, asked = query
    if asked.description.features != rows.features:
        raise ProtocolError("bad-query", what=f"a sum over {asked.description.features} features")
    arrays = {
        name: message.array(f"{name} {index}", dtype="f8", shape=shape)
        for name, shape in asked.description.shapes().items()
    }
    validation.check_query(terms.plan, asked.description)
    accumulator = rebuild(asked.description, arrays)
    shape = accumulator.calibrated_by()
    record = terms.record(asked.name, shape, scale=asked.scale, grid=asked.grid, weight=weight)
    if not math.isfinite(record.sampling_error().log_ratio):
        raise ProtocolError("bad-query", what=f"{asked.name} on a grid that is too coarse")
    validation.check_planned(terms, planned, shape, asked.scale)
    validation.check_public(terms, planned, asked.description, message, index)
    protocol, step = terms.protocol, planned.step
    return SiteSum(accumulator, record, protocol.is_unmasked(step), protocol.sent_of(step))


def add_up(rows: RowSource, sums: Sequence[SiteSum]) -> InvalidRows | None:
    """Read the rows, and say which are not valid."""
    accumulators = [each.accumulator for each in sums]
    share_rules(accumulators)
    with small_matrix_threads(rows.features):
        read = accumulate(rows, accumulators)
    return read.invalid


def noisy_arrays(
    sums: Sequence[SiteSum], terms: Terms, source: RandomSource
) -> dict[str, NDArray[Any]]:
    """The arrays of a round's answer before masking: noise is drawn here, once."""
    arrays: dict[str, NDArray[Any]] = {}
    for index, each in enumerate(sums):
        accumulator, record = each.accumulator, each.record
        try:
            integers = noisy_integers(accumulator, record, source, weight_bits=terms.weight_bits)
        except ValueError:  # outside what the sampler can draw
            raise ProtocolError(
                "bad-query", what=f"{record.name} with noise that cannot be drawn"
            ) from None
        array = each.sent.array(accumulator, record, integers, terms.plan)
        arrays[f"{each.sent.name} {index}"] = array
    return arrays
