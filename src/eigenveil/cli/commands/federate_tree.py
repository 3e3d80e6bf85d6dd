"""``eigenveil federate-tree``: private PCA of sites' own files, merged up a tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from eigenveil import app
from eigenveil.cli import declared, options
from eigenveil.cli.commands.fit import show_written
from eigenveil.cli.presenters.screen import counted, present

# Options of a stream that the leaves of a tree have.
_OF_TREES = (
    "n_components", "epsilon", "delta", "sketch_size", "unit", "max_rows_per_unit", "random_state",
)  # fmt: skip


@declared.declared("stream", only=_OF_TREES)
@options.takes(
    columns=options.named_columns, whose=options.whose_rows, folder=options.result_folder
)
def federate_tree(
    site: Annotated[
        list[str],
        typer.Option(
            help="NAME=FILE: a site's files, a leaf of the tree; repeat for each. With --sql also "
            "NAME=URL of its database."
        ),
    ],
    fan_out: Annotated[int, typer.Option(help="Children of an inner node, 2 or more.")] = 4,
    protect: Annotated[
        str,
        typer.Option(
            help="Which adversary the target is for: outsider (the sites share the noise) or "
            "aggregators (each site draws all of it)."
        ),
    ] = "outsider",
    ledgers: Annotated[
        Path | None,
        typer.Option(help="Folder of the sites' ledgers, NAME.ledger; kept between runs."),
    ] = None,
    sql: options.SitesSql = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    option_values: dict[str, Any],
    columns: Any,
    whose: dict[str, bool],
    folder: dict[str, Any],
) -> None:
    """Fit private PCA to sites' own files, whose sums are merged up a tree of aggregators.

    Each row is read once. The parties are those of a real tree, in one process: leaves add their
    part of the noise, inner nodes merge, the root publishes. What a tree costs, with
    lost and late leaves, simulate-tree of eigenveil-papers shows.
    """
    columns.whose_rows(option_values.get("unit"), **whose)
    asked = app.tree.TreeRequest(
        app.rows.read_sites(site, sql),
        fan_out=fan_out,
        protect=protect,
        ledgers=ledgers,
        values=option_values,
        columns=columns,
        **folder,
    )
    with counted("leaves", quiet=quiet or json) as progress:
        found = app.tree.fit_tree(asked, progress)
    show_written(present(found, json=json, quiet=quiet), found)
