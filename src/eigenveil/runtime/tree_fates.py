"""What happens to whom in a simulated tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from eigenveil.errors import DataError
from eigenveil.federation.tree import MergeTree, Place


@dataclass(frozen=True)
class Fates:
    """What happens to whom: leaves that never send, leaves that are late, nodes that never send."""

    lost: frozenset[int]
    late: tuple[int, ...]
    silent: frozenset[Place]

    @classmethod
    def drawn(
        cls,
        tree: MergeTree,
        *,
        lost: float,
        late: float,
        lost_subtrees: int,
        rng: np.random.Generator,
    ) -> Self:
        """At random: so many of all leaves lost, so many of the others late.

        Raises
        ------
        DataError
            Naming the number that cannot be.
        """
        for name, share in (("lost", lost), ("late", late)):
            if not 0 <= share < 1:
                raise DataError(
                    f"{name} = {share} is not a share of the leaves from 0 to below 1.",
                    hint="For example 0.3.",
                    code="bad-share",
                )
        inner = [place for level in range(1, tree.depth) for place in tree.places(level)]
        if not 0 <= lost_subtrees <= len(inner):
            raise DataError(
                f"lost_subtrees = {lost_subtrees} is not between 0 and {len(inner)}, the number of "
                "nodes between leaves and root.",
                hint="Give fewer.",
                code="bad-share",
            )
        order = rng.permutation(tree.leaf_count).tolist()
        gone = round(lost * tree.leaf_count)
        rest = order[gone:]
        silent = rng.permutation(len(inner))[:lost_subtrees]
        return cls(
            frozenset(order[:gone]),
            tuple(rest[: round(late * len(rest))]),
            frozenset(inner[i] for i in silent.tolist()),
        )

    def arrives(self, tree: MergeTree, leaf: int) -> bool:
        """Whether a leaf's rows are in the result."""
        if leaf in self.lost:
            return False
        place: Place | None = Place(0, leaf)
        while place is not None:
            if place in self.silent:
                return False
            place = tree.parent(place)
        return True
