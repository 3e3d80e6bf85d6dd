"""The faults of a simulated tree: which parties are lost or late."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.federation.tree.contents import Totals
from eigenveil.federation.tree.nodes import release_sums
from eigenveil.federation.tree.private import TreeStudy
from eigenveil.federation.tree.tree import MergeTree, TreePlace
from eigenveil.linalg.eigen import leading_eigenpairs, left_singular
from eigenveil.linalg.subspace import Subspace


@dataclass(frozen=True)
class FaultPlan:
    """What happens to whom: leaves that never send, leaves that are late, nodes that never send."""

    lost: frozenset[int]
    late: tuple[int, ...]
    silent: frozenset[TreePlace]

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
        """At random: so many of all leaves lost, so many of the others late."""
        for name, share in (("lost", lost), ("late", late)):
            if not 0 <= share < 1:
                raise DataError(
                    "out-of-range",
                    name=name,
                    value=share,
                    wanted="from 0 to below 1, a share of the leaves",
                )
        inner = [place for level in range(1, tree.depth) for place in tree.places(level)]
        if not 0 <= lost_subtrees <= len(inner):
            raise DataError(
                "out-of-range",
                name="lost_subtrees",
                value=lost_subtrees,
                wanted=f"between 0 and {len(inner)}, the nodes between leaves and root",
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
        place: TreePlace | None = TreePlace(0, leaf)
        while place is not None:
            if place in self.silent:
                return False
            place = tree.parent(place)
        return True


# -- How far the parties of a simulated tree are from the best components of all rows that arrived.


# Parties of a level that are looked at, chosen at random.
_MOST_PARTIES = 128
# Beyond, the rows' exact second moment is too large to hold beside everything else.
_MOST_FEATURES = 4096

Found = tuple[float | None, float | None]


class Errors:
    """Collects bases on the way, and judges them once all rows are known."""

    def __init__(self, study: TreeStudy, rng: np.random.Generator) -> None:
        self._study = study
        features = study.plan.features
        self._measures = features <= _MOST_FEATURES
        size = features if self._measures else 0
        self._moment = np.zeros((size, size))
        self._lock = threading.Lock()
        tree = study.tree
        self._chosen = frozenset(
            TreePlace(level, number)
            for level in range(tree.depth)
            for number in rng.permutation(tree.nodes(level))[:_MOST_PARTIES].tolist()
        )
        self._bases: dict[TreePlace, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def wants(self, place: TreePlace) -> bool:
        """Whether this party is looked at."""
        return self._measures and place in self._chosen

    def add(self, rows: NDArray[np.float64]) -> None:
        """Rows that will arrive; from any thread."""
        if self._measures:
            single = rows.astype(np.float32)  # a millionth is enough here, and takes half the time
            product = single.T @ single
            with self._lock:
                self._moment += product

    def private_basis(self, totals: Totals, leaves: int) -> NDArray[np.float64]:
        """Components of so many leaves' noisy sums, as rows."""
        plan = self._study.plan
        releases = release_sums(self._study, totals, leaves)
        moment = next(r for r in releases.values() if r.record.statistic == plan.way.statistic)
        decompose = leading_eigenpairs if plan.way.columns(plan) is None else left_singular
        return decompose(moment.values, plan.n_components)[1]

    def keep(self, place: TreePlace, components: NDArray[np.float64], merged: Subspace) -> None:
        """What a party knows: private components (K, D), and a subspace without noise."""
        if self._measures:
            plain = merged.basis[:, : self._study.plan.n_components].T
            self._bases[place] = (components, plain.copy())

    def by_level(self) -> list[Found]:
        """The mean share of the best energy that is missed: private, and without noise."""
        depth = self._study.tree.depth
        if not self._measures:
            return [(None, None)] * (depth + 1)
        energies, _ = leading_eigenpairs(self._moment, self._study.plan.n_components)
        best = float(np.sum(energies))
        missed: list[list[tuple[float, float]]] = [[] for _ in range(depth + 1)]
        for place, (private, plain) in self._bases.items():
            both = (1.0 - self._energy(basis) / best for basis in (private, plain))
            first, second = (max(0.0, part) for part in both)  # rounding
            missed[place.level].append((first, second))
        found: list[Found] = []
        for level in missed:
            means = np.mean(level, axis=0).tolist() if level else (None, None)
            found.append((means[0], means[1]))
        return found

    def _energy(self, components: NDArray[np.float64]) -> float:
        return float(np.einsum("kd,kd->", components @ self._moment, components))
