"""The report of a simulated tree, level by level."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from eigenveil.federation.tree.nodes import TreeOutcome
from eigenveil.federation.tree.tree import MergeTree


@dataclass(frozen=True)
class TreeLevel:
    """What one level did."""

    level: int  # 0: the leaves
    # Parties of the level, and those of them that sent anything (of the root: 1 if it has a result)
    parties: int
    sent: int
    # The fewest leaves in a message that a party of this level took, of those whose leaves are in
    # the result
    least: int | None
    messages: int  # Messages of private sums sent up, supplements too, and their size
    bytes: int
    # Processor time of all parties, and of the one that took longest: adding up rows and drawing
    # noise (leaves), or reading, adding up and writing messages
    seconds: float
    slowest: float
    merged_bytes: int  # The same of the subspaces without noise
    merged_seconds: float
    # Share of the best possible energy that K components miss, on average over the level: of the
    # private sums of a party's first message, and of the subspace without noise
    error: float | None
    merged_error: float | None


class TreeRound(NamedTuple):
    """One of a tree's rounds: leaves and rows that arrived, and what the refreshed result misses.

    ``error`` is against the best components of this round's rows; None as of a level.
    """

    arrived: int
    rows: int
    error: float | None


@dataclass(frozen=True, eq=False)
class TreeReport:
    """What a simulated tree did; of several rounds, in the last one."""

    tree: MergeTree
    levels: tuple[TreeLevel, ...]  # From the leaves to the root
    outcome: TreeOutcome  # What the root may publish
    late: int  # Leaves that came after their node had sent; inner nodes that never sent
    lost_subtrees: int
    rows: int  # In the result
    made_up: bool  # Whether rows were; of given ones all that is measured is as private as they are
    # Wall-clock time until the root's result, with making up the rows and measuring errors
    seconds: float
    workers: int  # Threads that played the leaves
    rounds: tuple[TreeRound, ...] = ()  # Of all rounds

    @property
    def critical_seconds(self) -> float:
        """Processor time on the longest way up, were every party a computer of its own (s)."""
        return sum(level.slowest for level in self.levels)


def as_values(report: TreeReport) -> dict[str, Any]:
    """A report as plain JSON values."""
    outcome = report.outcome
    return {
        "leaves": report.tree.leaf_count,
        "fan_out": report.tree.fan_out,
        "depth": report.tree.depth,
        "arrived": int(np.count_nonzero(outcome.arrived)),
        "late": report.late,
        "lost_subtrees": report.lost_subtrees,
        "rows": report.rows,
        "made_up": report.made_up,
        "seconds": report.seconds,
        "critical_seconds": report.critical_seconds,
        "workers": report.workers,
        "rounds": [each._asdict() for each in report.rounds],
        "levels": [asdict(level) for level in report.levels],
        "guarantees": {view: found.as_dict() for view, found in outcome.guarantees_.items()},
    }
