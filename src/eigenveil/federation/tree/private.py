"""Private PCA up a tree: what is agreed on, and leaves that add their part of the noise."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigenveil.errors import DataError, ProtocolError
from eigenveil.federation.tree.messages import Sums, Totals, TreeCodec, TreeKeys, TreeMessage
from eigenveil.federation.tree.tree import MergeTree, TreePlace
from eigenveil.models.driver import warn_owner
from eigenveil.models.options import Options
from eigenveil.models.rounds import Round
from eigenveil.models.streaming.state import StreamPlan, make_stream_plan, stream_queries
from eigenveil.moments.engine import Findings
from eigenveil.moments.release import noisy_integers
from eigenveil.moments.rows import Block
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.tree_views import check_arrived
from eigenveil.tables.adapters import adapter
from eigenveil.tables.units import StreamUnits, unit_ids

Protect = Literal["outsider", "aggregators"]
PROTECTED: tuple[Protect, ...] = ("outsider", "aggregators")
# Of a stream that prepares rows itself: leaves take them as they are.
_OF_ONE_STREAM = ("scale", "ranges", "whiten")


@dataclass(frozen=True, eq=False)
class TreeStudy:
    """What all parties of a tree agree on before any row is touched."""

    tree: MergeTree
    plan: StreamPlan
    protect: Protect  # Whom the target is about
    noise_parts: int  # Leaves that make the noise together: so many must arrive
    center: NDArray[np.float64] | None = None  # Public

    @property
    def repeats(self) -> bool:
        """Whether leaves send again and again, other rows each time."""
        return self.plan.publish == "blocks"

    @cached_property
    def queries(self) -> Round:
        """What is summed, and with which noise."""
        return stream_queries(self.plan, public_center=self.center, noise_parts=self.noise_parts)

    @cached_property
    def content(self) -> Sums:
        """What messages carry."""
        return Sums(self.queries)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of everything agreed on."""
        values = {
            "fan_out": self.tree.fan_out,
            "depth": self.tree.depth,
            "leaves": self.tree.leaf_count,
            "protect": self.protect,
            "noise_parts": self.noise_parts,
            "plan": self.plan.hash,
            "sums": self.content.request_digest,
        }
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def codec(self, session: str, keys: TreeKeys) -> TreeCodec[Totals]:
        return TreeCodec(self.tree, self.content, self.hash, session, keys)


def make_tree_study(
    tree: MergeTree,
    *,
    features: int,
    lost: int = 0,
    protect: str = "outsider",
    center: NDArray[np.float64] | Literal[False] = False,
    **options: Any,
) -> TreeStudy:
    """Check every parameter and settle every choice; ``options`` are those of a private stream."""
    if protect not in PROTECTED:
        raise DataError(
            "bad-protect", protect=f"{protect!r:.60}", known=", ".join(map(repr, PROTECTED))
        )
    if not 0 <= lost < tree.leaf_count:
        raise DataError("bad-lost", lost=lost, most=tree.leaf_count - 1, leaves=tree.leaf_count)
    if options.get("publish") == "continual":
        raise DataError("continual-in-tree")
    for name in _OF_ONE_STREAM:
        if options.get(name) is not None and options[name] is not False:
            raise DataError("not-of-a-tree", name=name)
    noise_parts = 1 if protect == "aggregators" else tree.leaf_count - lost
    wanted = Options("pca", "stream", {"center": center, **options})
    plan = make_stream_plan(wanted, features=features, noise_draws=noise_parts)
    study = TreeStudy(
        tree=tree,
        plan=plan,
        protect="aggregators" if protect == "aggregators" else "outsider",
        noise_parts=noise_parts,
        center=center if isinstance(center, np.ndarray) else None,
    )
    for query in study.queries:
        check_arrived(query.record, tree.leaf_count)
    return study


def check_rounds(study: TreeStudy) -> None:
    """Raise unless a study's leaves send again and again, other rows each time."""
    if not study.repeats:
        raise ProtocolError("one-round")


class Leaf:
    """A party with rows: adds them up, and sends the sum once with its part of the noise."""

    def __init__(
        self,
        study: TreeStudy,
        index: int,
        *,
        source: RandomSource,
        session: str,
        keys: TreeKeys,
    ) -> None:
        self.place = TreePlace(0, index)
        study.tree.parent(self.place)  # raises where there is no such leaf
        self._study, self._source, self._keys = study, source, keys
        self._codec = study.codec(session, keys)
        self._sums = [query.accumulator.empty() for query in study.queries]
        unit, most = study.plan.unit, study.plan.max_rows_per_unit
        self._units = None if unit is None else StreamUnits(most)
        self._sent: bytes | None = None

    def partial_fit(self, rows: ArrayLike, *, groups: ArrayLike | None = None) -> Leaf:
        """Add rows, shape (n, D); each counts once, and not at all if it is not finite."""
        values = self._checked(rows)
        units = None if groups is None else unit_ids(groups, len(values))
        return self.add([Block(values, origin=self.place.name, units=units)])

    def add(self, blocks: Iterable[Block]) -> Leaf:
        """Add the rows of blocks, such as those of a file, with units where the study has any."""
        if self._sent is not None:
            raise ProtocolError("already-sent", place=self.place.name)
        found = Findings(None)
        added = [query.accumulator.empty() for query in self._study.queries]
        for number, block in enumerate(self._weighted(blocks)):
            for sums in added:
                sums.update(block)
            found.add(number, block)
        for mine, theirs in zip(self._sums, added, strict=True):
            theirs.flush()
            mine.merge(theirs)
        if self._units is not None:
            self._units.keep()
        warn_owner(found.all, self._study.plan)
        return self

    def _weighted(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Blocks whose rows are valid where they must be, and count as the study's unit has it."""
        for block in blocks if self._units is None else self._units.weighted(blocks):
            if self._units is None and block.units is not None:
                raise DataError("units-not-protected", place=self.place.name)
            yield block

    def again(self, session: str) -> Leaf:
        """The same leaf in a further round, named ``session``, of a study with rounds.

        Rows of a message that was made count in that round only, whether or not it arrived. A leaf
        that was away, and made none, takes its rows with it; here it sends nothing any more.
        """
        check_rounds(self._study)
        other = Leaf(
            self._study, self.place.number, source=self._source, session=session, keys=self._keys
        )
        if self._sent is None:
            other._sums, self._sums = self._sums, []
            self._sent = b""
        return other

    def send(self) -> bytes:
        """Its message. The noise is drawn once: a repeated call returns the same bytes."""
        if self._sent is None:
            totals = tuple(
                noisy_integers(sums, query.record, self._source).view(np.uint64)
                for query, sums in zip(self._study.queries, self._sums, strict=True)
            )
            message = TreeMessage(self.place, 0, np.ones(1, dtype=bool), (), totals)
            self._sent = self._codec.write(message)
            self._sums = []  # the rows are in the message; what is left would show them
        if not self._sent:
            raise ProtocolError("rows-in-other-round", place=self.place.name)
        return self._sent

    def _checked(self, rows: ArrayLike) -> NDArray[np.float64]:
        features = self._study.plan.features
        array = np.asarray(adapter(rows).numbers().given, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] != features:
            raise DataError(
                "rows-features", whose=self.place.name, shape=array.shape, features=features
            )
        return array
