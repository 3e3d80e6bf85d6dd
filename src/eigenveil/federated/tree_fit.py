"""Private PCA of sites' own rows up a tree, in one process: a result like that of any other fit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eigenveil.errors import DataError
from eigenveil.federation.tree.contents import Totals
from eigenveil.federation.tree.messages import TreeCodec, TreeKeys
from eigenveil.federation.tree.nodes import Merged, Node, publish
from eigenveil.federation.tree.private import Leaf, TreeStudy
from eigenveil.federation.tree.tree import MergeTree, TreePlace
from eigenveil.linalg.eigen import small_matrix_threads
from eigenveil.models.driver import Charges
from eigenveil.models.result import EstimatorSpec, Result
from eigenveil.models.stored import noise_source
from eigenveil.models.streaming.private import PrivateStreamingPCA
from eigenveil.moments.independence import dependence
from eigenveil.moments.source import RowSource
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
)


def fit_tree(
    study: TreeStudy,
    sites: Mapping[str, RowSource],
    *,
    charges: Sequence[Charges] = (),
    random_state: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PrivateStreamingPCA:
    """Add up sites' rows in the leaves of a tree, merge them, and publish what the root has."""
    names = _names(study, sites)
    session, keys = os.urandom(12).hex(), TreeKeys.in_one_process()
    leaves = []
    with small_matrix_threads(study.plan.features):
        for number, site in enumerate(sorted(sites)):
            source = noise_source(None if random_state is None else [random_state, number])
            leaf = Leaf(study, number, source=source, session=session, keys=keys)
            leaves.append(leaf.add(sites[site].blocks()))
            if progress is not None:
                progress(number + 1, len(sites))
    records = [query.record for query in study.queries]
    for each in charges:
        each.charge(records)
    outcome = publish(
        study,
        _merged(study.tree, study.codec(session, keys), leaves),
        secure=random_state is None,
        dependent=dependence(),
        names=names,
        counted=bool(charges) and all(each.counted for each in charges),
        newlines_in_cells=any(rows.newlines_in_cells for rows in sites.values()),
    )
    model = PrivateStreamingPCA(
        study.plan.n_components,
        random_state=random_state,
        center=False if study.center is None else study.center,
        sketch_size=study.plan.sketch_columns if study.plan.sketched else None,
        **{name: getattr(study.plan, name) for name in _OF_PLAN},
    )
    model._take_over(
        Result(
            spec=EstimatorSpec.by(model),
            plan=study.plan.drawn_from(secure=random_state is None),
            factors=outcome.factors,
            features=study.plan.features,
            names=names,
            certificate=outcome.certificate,
        )
    )
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


def _names(study: TreeStudy, sites: Mapping[str, RowSource]) -> tuple[str, ...] | None:
    """The columns' names, which all sites have in one order."""
    if len(sites) != study.tree.leaf_count:
        raise DataError("other-sites", sites=len(sites), leaf_count=study.tree.leaf_count)
    first: Any = None
    for name in sorted(sites):
        rows = sites[name]
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
