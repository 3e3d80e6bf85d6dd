"""``eigenveil simulate-tree``: a tree of sites in one process, level by level."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from eigenveil.cli import declared, options
from eigenveil.cli.presenters.screen import counted, present
from eigenveil.federation.tree.private import make_tree_study
from eigenveil.federation.tree.tree import MergeTree
from eigenveil_papers.trees.simulated import check_share
from eigenveil_papers.trees.simulated import simulate_tree as play

_COMPONENTS = 10


@declared.declared("stream", only=("epsilon", "delta", "sketch_size"))
def simulate_tree(
    nodes: Annotated[int, typer.Option(min=1, help="Leaves: sites with rows.")] = 1024,
    fan_out: Annotated[int, typer.Option(help="Children of an inner node, 2 or more.")] = 4,
    features: Annotated[int, typer.Option(min=1, help="Columns of the rows.")] = 1000,
    components: Annotated[
        int | None,
        typer.Option(
            "--components", "-k", help="Components; 10, or half the columns where there are few."
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of a leaf.")] = 200,
    lost: Annotated[
        float, typer.Option(help="Share of the leaves that never send, at random, in [0, 1).")
    ] = 0.3,
    tolerate: Annotated[
        float,
        typer.Option(
            help="Share of the leaves that may be missing: the others draw all of the noise."
        ),
    ] = 0.35,
    lost_subtrees: Annotated[
        int, typer.Option(help="Inner nodes that take messages and never send, at random.")
    ] = 0,
    late: Annotated[
        float,
        typer.Option(help="Share of the arriving leaves that come after their node sent."),
    ] = 0.05,
    protect: Annotated[
        str,
        typer.Option(
            help="Which adversary the target is for: outsider (the leaves share the noise) or "
            "aggregators (each leaf draws all of it)."
        ),
    ] = "outsider",
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="Reproducible rows, losses and noise: the result is not certified."
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    option_values: dict[str, Any],
) -> None:
    """Simulate a tree of sites, on made-up rows: time, bytes and error of every level.

    The parties are those of a real tree: leaves add their part of the noise, inner nodes merge, the
    root publishes. Some leaves are lost, some are late.
    """
    check_share("tolerate", tolerate)
    study = make_tree_study(
        MergeTree.with_leaves(nodes, fan_out=fan_out),
        features=features,
        n_components=max(1, min(_COMPONENTS, features // 2)) if components is None else components,
        lost=min(nodes - 1, math.ceil(tolerate * nodes - 1e-9)),
        protect=protect,
        **{"epsilon": 1.0, "delta": 1e-6, "sketch_size": 50, **option_values},
    )
    with counted("leaves", quiet=quiet or json) as progress:
        faults: dict[str, Any] = {"lost": lost, "late": late, "lost_subtrees": lost_subtrees}
        report = play(study, rows=rows, **faults, seed=seed, progress=progress)
    present(report, json=json, quiet=quiet)
