"""The shape of a tree of merges: leaves, inner aggregators, root (paper 002, algorithm 1).

Level 0 are the leaves, which hold rows; level ``depth`` is the root. Nothing here knows what is
merged: every sum and every subspace that can be merged can be merged up a tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

from eigenveil.errors import DataError

MOST_LEAVES = 1 << 20
_MOST_DEPTH = 20
_NAME = re.compile(r"(?a:leaf (\d{1,7})|node (\d{1,2})\.(\d{1,7}))")


class TreePlace(NamedTuple):
    """Where a party stands: its level (0: a leaf), and its number within the level, from 0."""

    level: int
    number: int

    @property
    def name(self) -> str:
        """As messages say it: ``leaf 12`` or ``node 2.3``."""
        return f"leaf {self.number}" if self.level == 0 else f"node {self.level}.{self.number}"

    @classmethod
    def of(cls, name: str) -> TreePlace | None:
        """The place of this name, or ``None`` where the text names none."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        leaf, level, number = found.groups()
        place = cls(0, int(leaf)) if leaf is not None else cls(int(level), int(number))
        return place if place.name == name else None


@dataclass(frozen=True)
class MergeTree:
    """Leaves whose states are merged on the way to one root.

    Examples
    --------
    >>> tree = MergeTree(fan_out=4, depth=5)
    >>> tree.leaf_count, [tree.nodes(level) for level in range(6)]
    (1024, [1024, 256, 64, 16, 4, 1])
    """

    fan_out: int  # Children that a node has at the most, >= 2
    depth: int  # Levels above the leaves, >= 1: with 1, the leaves are the root's own children
    leaves: int | None = None  # At most `fan_out ** depth`, which is the default

    def __post_init__(self) -> None:
        if self.fan_out < 2:
            raise DataError(
                "out-of-range",
                name="fan_out",
                value=self.fan_out,
                wanted="2 or more, the children of a node",
            )
        if not 1 <= self.depth <= _MOST_DEPTH:
            raise DataError(
                "out-of-range",
                name="depth",
                value=self.depth,
                wanted=f"from 1 to {_MOST_DEPTH}, the levels above the leaves",
            )
        room = min(MOST_LEAVES, self.fan_out**self.depth)
        if self.leaves is None and self.fan_out**self.depth > MOST_LEAVES:
            raise DataError(
                "too-many-leaves", depth=self.depth, fan_out=self.fan_out, most=MOST_LEAVES
            )
        if self.leaves is not None and not 1 <= self.leaves <= room:
            raise DataError(
                "bad-leaves", leaves=self.leaves, room=room, depth=self.depth, fan_out=self.fan_out
            )

    @classmethod
    def with_leaves(cls, leaves: int, *, fan_out: int) -> Self:
        """The flattest tree for so many leaves."""
        depth, room = 1, fan_out
        while room < leaves and fan_out >= 2:
            depth, room = depth + 1, room * fan_out
        return cls(fan_out=fan_out, depth=depth, leaves=leaves)

    @property
    def leaf_count(self) -> int:
        """Number of leaves."""
        return int(self.fan_out**self.depth) if self.leaves is None else self.leaves

    @property
    def root(self) -> TreePlace:
        """Where everything ends."""
        return TreePlace(self.depth, 0)

    def nodes(self, level: int) -> int:
        """Number of parties at a level, 0 to ``depth``."""
        return int(-(-self.leaf_count // self.fan_out**level))

    def places(self, level: int) -> Iterator[TreePlace]:
        """The parties of a level, in order."""
        return (TreePlace(level, number) for number in range(self.nodes(level)))

    def holds(self, place: TreePlace) -> bool:
        """Whether there is such a party."""
        return 0 <= place.level <= self.depth and 0 <= place.number < self.nodes(place.level)

    def parent(self, place: TreePlace) -> TreePlace | None:
        """To whom a party sends; ``None`` for the root."""
        self._check(place)
        if place.level == self.depth:
            return None
        return TreePlace(place.level + 1, place.number // self.fan_out)

    def children(self, place: TreePlace) -> tuple[TreePlace, ...]:
        """Who sends to a party; nobody to a leaf."""
        self._check(place)
        if place.level == 0:
            return ()
        first = place.number * self.fan_out
        last = min(first + self.fan_out, self.nodes(place.level - 1))
        return tuple(TreePlace(place.level - 1, number) for number in range(first, last))

    def under(self, place: TreePlace) -> range:
        """Numbers of the leaves under a party; of a leaf, its own."""
        self._check(place)
        width = self.fan_out**place.level
        return range(place.number * width, min((place.number + 1) * width, self.leaf_count))

    def _check(self, place: TreePlace) -> None:
        if not self.holds(place):
            raise DataError(
                "no-such-place", name=place.name, leaf_count=self.leaf_count, depth=self.depth
            )
