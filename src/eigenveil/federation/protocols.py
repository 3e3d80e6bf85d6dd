"""The protocols, one class each: what the sites of a study send, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import ProtocolError
from eigenveil.linalg.eigen import truncated_edge, truncated_root
from eigenveil.models.plan import BasePlan
from eigenveil.models.schedule import Step
from eigenveil.models.task import Task
from eigenveil.moments.release import Release, release_of
from eigenveil.noise.entries import from_coordinates
from eigenveil.privacy.releases import ReleaseRecord
from eigenveil.privacy.views import MOMENT_VIEWS

if TYPE_CHECKING:
    from eigenveil.models.rounds import SumQuery
    from eigenveil.moments.accumulators import Accumulator


class SentSum:
    """A noisy sum, as a site sends it: integers modulo 2^64, which the aggregator adds up."""

    name: ClassVar[str] = "sum"  # Of its array in a message, and the array's type
    dtype: ClassVar[str] = "u8"

    def shape(self, query: SumQuery, plan: BasePlan) -> tuple[int, ...]:
        """Of what one site sends."""
        return (query.accumulator.size,)

    def array(
        self,
        accumulator: Accumulator,
        record: ReleaseRecord,
        integers: NDArray[np.int64],
        plan: BasePlan,
    ) -> NDArray[Any]:
        """What a site sends of its noisy sum."""
        return integers.view(np.uint64)

    def total(self, query: SumQuery) -> NDArray[Any]:
        """Nothing, to which arrays are added."""
        return np.zeros(query.accumulator.size, dtype=np.uint64)

    def check(self, array: NDArray[Any], sender: str) -> None:
        """Refuse what no sum can be."""

    def add(self, total: NDArray[Any], array: NDArray[Any]) -> None:
        total += array

    def release(
        self, query: SumQuery, total: NDArray[Any], plan: BasePlan, *, arrived: int
    ) -> Release:
        """What so many sites' release together."""
        accumulator = query.accumulator
        whole = from_coordinates(accumulator.layout, accumulator.shape, total.view(np.int64))
        return release_of(_as_drawn(query.record, plan, arrived), whole)


SUM = SentSum()


def _as_drawn(record: ReleaseRecord, plan: BasePlan, arrived: int) -> ReleaseRecord:
    """The record with the noise that the sum really carries: everybody's share."""
    noise = record.noise
    parts = record.mechanism.parts_drawn(arrived, noise.noise_parts, plan.features)
    drawn = noise.model_copy(update={"scale": noise.scale * math.sqrt(parts)})
    return record.model_copy(update={"noise": drawn})


class Protocol:
    """One way to make a sum, or what stands for it, of what the sites send."""

    name: ClassVar[str]
    sent: ClassVar[str]  # For people, with words that :meth:`what_is_sent` puts in
    settled: ClassVar[bool] = True  # Not: one of the others is still to be chosen
    pure: ClassVar[bool] = False  # Whether delta = 0 is proved
    sketches: ClassVar[bool] = False  # Whether the moment is released as a sketch
    # Whether the study's number of columns of a sketch has a meaning, and how many there are to a
    # component where it gives none
    takes_columns: ClassVar[bool] = False
    columns_a_component: ClassVar[int] = 4
    first_site_only: ClassVar[bool] = False  # The other sites do nothing
    note: ClassVar[str] = ""  # What whoever agrees should know; ``{first}`` is the first site
    forecast_note: ClassVar[str] = ""  # What to know of its forecast
    own_moment_sent: ClassVar[SentSum] = SUM  # How a moment is sent that is released by each site

    @property
    def own_moment(self) -> bool:
        """Whether each site releases its second moment by itself, with all of the noise."""
        return self.settled and MOMENT_VIEWS[self.name].released_by_each

    @property
    def whole_noise(self) -> bool:
        """Whether a moment's noise does not count on other sites' shares."""
        return self.own_moment or self.first_site_only

    @property
    def sends_factors(self) -> bool:
        """Whether a site sends factors of its moment in place of the moment."""
        return self.own_moment_sent is not SUM

    def what_is_sent(self, moment: str, higher: Iterable[str] = ()) -> str:
        """In a sentence; ``moment`` is what the task calls its second moment."""
        one = "".join(f" and {name}" for name in higher)
        return self.sent.format(moment=moment, higher=one and f"{one}s", one_higher=one)

    def likely(self, *, columns_given: bool) -> Protocol:
        """The protocol, as far as it is known before one is chosen."""
        return self

    def keeps_columns(self, task: Task) -> bool:
        """Whether a study of the task may give the columns of a sketch."""
        return self.takes_columns

    def is_unmasked(self, step: Step) -> bool:
        """Whether each site releases this step's sum by itself."""
        return self.own_moment and step == "moment"

    def sent_of(self, step: Step) -> SentSum:
        return self.own_moment_sent if self.is_unmasked(step) else SUM

    def sketches_by_size(self, *, pure: bool) -> bool:
        """Whether a moment of rows alone is a sketch where its size asks for one."""
        return False


# Sums over rows of norm 1 are below 2**62, and so are the squares of a factor's entries.
_LARGEST_FACTOR = 2.0**31


class Cape(Protocol):
    """The whole moments of all sites, summed."""

    name = "cape"
    sent = "the sites send {moment}s{higher} under masks: only their sum is visible"
    pure = True


class Sketches(Protocol):
    """Sketches of the moments of all sites, summed."""

    name = "sketch"
    sent = "the sites send sketches{higher} under masks: only their sum is visible"
    sketches = takes_columns = True


class SentFactor(SentSum):
    """A factor (D, R) of the leading part of a site's noisy moment."""

    name = "factor"
    dtype = "f8"

    def shape(self, query: SumQuery, plan: BasePlan) -> tuple[int, ...]:
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
        return np.zeros(query.accumulator.shape)

    def check(self, array: NDArray[Any], sender: str) -> None:
        if np.abs(array).max() > _LARGEST_FACTOR:
            raise ProtocolError("malformed", sender=sender, what="factor")

    def add(self, total: NDArray[Any], array: NDArray[Any]) -> None:
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
    sent = "the first site sends its noisy {moment}{one_higher}, the others nothing"
    pure = True
    first_site_only = True
    note = "Only the rows of the first site, {first}, are used."
    forecast_note = "the first site's rows alone"

    def keeps_columns(self, task: Task) -> bool:
        """As a fit of one table does."""
        return task.has("pair", "table")

    def sketches_by_size(self, *, pure: bool) -> bool:
        """As a fit of one table does."""
        return True


class Auto(Protocol):
    """Becomes cape or sketch."""

    name = "auto"
    sent = ""
    settled = False
    pure = True

    def likely(self, *, columns_given: bool) -> Protocol:
        return Sketches() if columns_given else self

    def sketches_by_size(self, *, pure: bool) -> bool:
        """As the protocol that it will be."""
        return not pure


# In the order in which options list them.
PROTOCOLS: Mapping[str, Protocol] = MappingProxyType(
    {each.name: each for each in (Auto(), Cape(), Sketches(), Dpdispca(), Full(), Local())}
)
