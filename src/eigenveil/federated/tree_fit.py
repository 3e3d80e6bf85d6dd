"""Private PCA of sites' own rows up a tree, in one process: a result like that of any other fit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from eigenveil.errors import DataError
from eigenveil.federation.tree.messages import Totals, TreeCodec, TreeKeys
from eigenveil.federation.tree.nodes import Merged, Node, TreeRounds, publish
from eigenveil.federation.tree.private import Leaf, TreeStudy, check_rounds
from eigenveil.federation.tree.tree import MergeTree, TreePlace
from eigenveil.linalg.eigen import small_matrix_threads
from eigenveil.models.driver import Charges
from eigenveil.models.result import EstimatorSpec, Result
from eigenveil.models.streaming.private import PrivateStreamingPCA
from eigenveil.moments.independence import dependence
from eigenveil.moments.source import RowSource
from eigenveil.noise.source import noise_source
from eigenveil.origins import FileOrigin
from eigenveil.tables.names import check_features, first_difference

# What a tree's plan has of a stream's parameters.
_OF_PLAN = (
    "epsilon",
    "delta",
    "adjacency",
    "unit",
    "max_rows_per_unit",
    "row_norm",
    "precision",
    "publish",
    "forgetting",
    "missing",
)


def fit_tree(
    study: TreeStudy,
    *rounds: Mapping[str, RowSource],
    charges: Sequence[Charges] = (),
    random_state: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PrivateStreamingPCA:
    """Add up sites' rows in the leaves of a tree, merge them, and publish what the root has.

    A study of blocks has several rounds, each with rows of all sites that are in no other; the
    result is the one after the last.
    """
    if len(rounds) > 1:
        check_rounds(study)
    names = _names(study, rounds)
    run, keys = os.urandom(12).hex(), TreeKeys.in_one_process()
    sources = [
        noise_source(None if random_state is None else [random_state, number])
        for number in range(study.tree.leaf_count)
    ]
    done = count(1)
    played: dict[str, list[Leaf]] = {}
    with small_matrix_threads(study.plan.features):
        for turn, sites in enumerate(rounds):  # all are read before any is charged
            leaves = played[session := f"{run}-{turn}"] = []
            for source, (number, site) in zip(sources, enumerate(sorted(sites)), strict=True):
                leaf = Leaf(study, number, source=source, session=session, keys=keys)
                leaves.append(leaf.add(sites[site].blocks()))
                if progress is not None:
                    progress(next(done), len(rounds) * len(sites))
    for each in charges:
        each.charge([query.record for query in study.queries])
    how: dict[str, Any] = {
        "secure": random_state is None,
        "dependent": dependence(),
        "names": names,
        "counted": bool(charges) and all(each.counted for each in charges),
        "newlines_in_cells": any(r.newlines_in_cells for each in rounds for r in each.values()),
    }
    root = TreeRounds(study) if study.repeats else None
    for session, leaves in played.items():
        merged = _merged(study.tree, study.codec(session, keys), leaves)
        outcome = root.add(session, merged, **how) if root else publish(study, merged, **how)
    model = PrivateStreamingPCA(
        study.plan.n_components,
        random_state=random_state,
        center=False if study.center is None else study.center,
        sketch_size=study.plan.sketch_columns if study.plan.sketched else None,
        **{name: getattr(study.plan, name) for name in _OF_PLAN},
    )
    plan = study.plan.drawn_from(secure=random_state is None)
    found = (outcome.factors, plan.features, names, outcome.certificate)
    model._take_over(Result(EstimatorSpec.by(model), plan, *found))
    return model


def _merged(tree: MergeTree, codec: TreeCodec[Totals], leaves: Sequence[Leaf]) -> Merged[Totals]:
    """What arrives at the root of the leaves' messages."""
    levels = range(1, tree.depth + 1)
    nodes = {place: Node(codec, place) for level in levels for place in tree.places(level)}

    def deliver(sender: TreePlace, message: bytes | None) -> None:
        parent = tree.parent(sender)
        if message is not None and parent is not None:
            nodes[parent].take(message)

    for leaf in leaves:
        deliver(leaf.place, leaf.send())
    for place, node in nodes.items():  # level by level
        if not node.is_root:
            deliver(place, node.send())
    return nodes[tree.root].result()


def _names(study: TreeStudy, rounds: Sequence[Mapping[str, RowSource]]) -> tuple[str, ...] | None:
    """The columns' names, which all sites have in one order, in all rounds."""
    for sites in rounds:
        if len(sites) != study.tree.leaf_count:
            raise DataError("other-sites", sites=len(sites), leaf_count=study.tree.leaf_count)
    first: Any = None
    for name, rows in ((name, sites[name]) for sites in rounds for name in sorted(sites)):
        check_features(FileOrigin(f"site {name}"), rows)
        if rows.features != study.plan.features:
            raise DataError(
                "other-features",
                whose=f"site {name}",
                features=rows.features,
                wanted=study.plan.features,
            )
        first = first or rows
        if first.names is not None and rows.names is not None and [*first.names] != [*rows.names]:
            raise DataError(
                "other-columns",
                whose=f"site {name}",
                difference=f"{first_difference(rows.names, first.names)} than at the first site",
            )
    return None if first is None or first.names is None else tuple(first.names)
