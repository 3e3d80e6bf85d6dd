"""The protocols, one class each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocols.base import Protocol, SentSum
from eigenveil.linalg.eigen import truncated_edge, truncated_root
from eigenveil.models.plan import BasePlan
from eigenveil.models.task import Task
from eigenveil.moments.release import Release, release_of
from eigenveil.noise.entries import from_coordinates
from eigenveil.privacy.releases import ReleaseRecord

if TYPE_CHECKING:
    from eigenveil.models.rounds import SumQuery
    from eigenveil.moments.accumulators import Accumulator

# Sums over rows of norm 1 are below 2**62, and so are the squares of a factor's entries.
_LARGEST_FACTOR = 2.0**31


class Cape(Protocol):
    """The whole moments of all sites, summed."""

    name = "cape"
    sent = "the sites send {moment}s{triples} under masks: only their sum is visible"
    pure = True


class Sketches(Protocol):
    """Sketches of the moments of all sites, summed."""

    name = "sketch"
    sent = "the sites send sketches{triples} under masks: only their sum is visible"
    sketches = takes_columns = True


class SentFactor(SentSum):
    """A factor (D, R) of the leading part of a site's noisy moment."""

    name = "factor"
    dtype = "f8"

    def shape(self, query: SumQuery, plan: BasePlan) -> tuple[int, ...]:
        """As many columns as the study has."""
        del query
        return (plan.features, plan.sketch_columns)

    def array(
        self,
        accumulator: Accumulator,
        record: ReleaseRecord,
        integers: NDArray[np.int64],
        plan: BasePlan,
    ) -> NDArray[Any]:
        """The noisy moment, cut to its leading eigenpairs."""
        whole = from_coordinates(accumulator.layout, accumulator.shape, integers)
        return truncated_root(release_of(record, whole).values, plan.sketch_columns)

    def total(self, query: SumQuery) -> NDArray[Any]:
        """A moment of zeros."""
        return np.zeros(query.accumulator.shape)

    def check(self, array: NDArray[Any], sender: str) -> None:
        """Refuse what no moment's factor can be."""
        if np.abs(array).max() > _LARGEST_FACTOR:
            raise ProtocolError("malformed", sender=sender, what="factor")

    def add(self, total: NDArray[Any], array: NDArray[Any]) -> None:
        """Add the moment that it is a factor of."""
        total += array @ array.T

    def release(
        self, query: SumQuery, total: NDArray[Any], plan: BasePlan, *, arrived: int
    ) -> Release:
        """The sum, with the edge of noise that was cut."""
        edge = truncated_edge(
            query.record.noise.edge(plan.features, plan.features),
            plan.features,
            plan.sketch_columns,
            arrived,
        )
        return Release(query.record, total, edge)


class Full(Protocol):
    """Whole moments that each site releases, added up."""

    name = "full"
    sent = "each site sends its own noisy {moment}"
    note = (
        "Each site releases a second moment with the whole noise: protocol 'cape' or 'sketch' adds "
        "the noise of one."
    )
    forecast_note = "every site's whole noise adds up"


class Dpdispca(Protocol):
    """Factors of the moments that each site releases, added up."""

    name = "dpdispca"
    sent = "each site sends the leading directions of its own noisy {moment}"
    takes_columns = True
    columns_a_component = 2
    note = Full.note
    forecast_note = "every site's whole noise, cut to its leading directions"
    own_moment_sent = SentFactor()


class Local(Protocol):
    """A fit of the first site's rows."""

    name = "local"
    sent = "the first site sends its noisy {moment}{triple}, the others nothing"
    pure = True
    first_site_only = True
    note = "Only the rows of the first site, {first}, are used."
    forecast_note = "the first site's rows alone"

    def keeps_columns(self, task: Task) -> bool:
        """As a fit of one table does."""
        return task.has("pair", "table")

    def sketches_by_size(self, *, pure: bool) -> bool:
        """As a fit of one table does."""
        del pure
        return True


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
