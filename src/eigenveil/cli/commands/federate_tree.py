"""``eigenveil federate-tree``: private PCA of sites' own files, merged up a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from eigenveil.app.fit import Fitted, ledger_files
from eigenveil.app.results import (
    check_free,
    new_folder,
    result_parts,
    result_values,
    view_parts,
    write_result,
)
from eigenveil.app.rows import open_sites, read_columns, read_sites
from eigenveil.cli import options
from eigenveil.cli.commands.fit import show_written
from eigenveil.cli.options import WrongOption
from eigenveil.cli.presenters.screen import Screen, counted
from eigenveil.files import Place
from eigenveil.io import ReadOptions
from eigenveil.models.driver import Charges, FitTerms
from eigenveil.models.options import OF_SKETCH

_SITES, _CHILDREN, _COMPONENTS = 2, 2, 2


@options.reads_files
def federate_tree(
    site: Annotated[
        list[str],
        typer.Option(
            help="NAME=FILE: a site's files, a leaf of the tree; repeat for each. With --sql also "
            "NAME=URL of its database."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    fan_out: Annotated[int, typer.Option(help="Children of an inner node, 2 or more.")] = 4,
    components: Annotated[
        int, typer.Option("--components", "-k", help="Number of components.")
    ] = _COMPONENTS,
    sketch_columns: Annotated[
        int | None,
        typer.Option(
            "--sketch-size",
            help="Columns of a sketch that stands for the second moment; by default the whole "
            "second moment up to 1447 features.",
        ),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Privacy target.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Privacy target.")] = 1e-6,
    protect: Annotated[
        str,
        typer.Option(
            help="Which adversary the target is for: outsider (the sites share the noise) or "
            "aggregators (each site draws all of it)."
        ),
    ] = "outsider",
    unit: Annotated[
        str | None,
        typer.Option(help="The column with each row's unit, such as a patient; protected whole."),
    ] = None,
    max_rows_per_unit: Annotated[
        int, typer.Option(help="Rows of a unit that count, the first that come.")
    ] = 1,
    ledgers: Annotated[
        Path | None,
        typer.Option(help="Folder of the sites' ledgers, NAME.ledger; kept between runs."),
    ] = None,
    columns: options.Columns = None,
    exclude: options.Exclude = None,
    sql: options.SitesSql = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Reproducible noise: the result is not certified."),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier result.")] = False,
    plots: Annotated[bool, typer.Option(help="Write figures.")] = True,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    read: ReadOptions,
) -> None:
    """Fit private PCA to sites' own files, whose sums are merged up a tree of aggregators.

    Each row is read once. The parties are those of a real tree, in one process: leaves add their
    part of the noise, inner nodes merge, the root publishes. What a tree costs, with
    lost and late leaves, simulate-tree of eigenveil-papers shows.
    """
    check_free(out, overwrite=overwrite)
    if fan_out < _CHILDREN:
        raise WrongOption(
            f"--fan-out {fan_out} is below {_CHILDREN}: a node that merges has at least two "
            "children.",
            hint="Give a larger one.",
        )
    places = read_sites(site, sql)
    if len(places) < _SITES:
        raise WrongOption(
            "A tree has at least two sites.", hint="Give --site NAME=FILE for each, or use 'fit'."
        )
    wanted = read_columns(
        options.read_names(columns), options.read_names(exclude), read=read
    ).with_unit(unit)
    sites = open_sites(places, wanted)

    from eigenveil.federated.tree_fit import fit_tree
    from eigenveil.federation.tree.private import make_tree_study
    from eigenveil.federation.tree.tree import MergeTree

    chosen: dict[str, Any] = {} if sketch_columns is None else {OF_SKETCH: sketch_columns}
    study = make_tree_study(
        MergeTree.with_leaves(len(sites), fan_out=fan_out),
        features=next(iter(sites.values())).features,
        n_components=components,
        epsilon=epsilon,
        delta=delta,
        protect=protect,
        unit=unit,
        max_rows_per_unit=max_rows_per_unit,
        **chosen,
    )
    screen = Screen(quiet=quiet)
    with (
        new_folder(out) as folder,  # made before anything is spent
        _charged(ledgers, places, study.plan, secure=seed is None) as charges,
        counted("leaves", quiet=quiet or json) as progress,
    ):
        model = fit_tree(study, sites, charges=charges, random_state=seed, progress=progress)
        written = write_result(model, folder, figures=plots)
    views = model.certificate_.guarantees()
    if json:
        found = {name: view.as_dict() for name, view in views.items()}
        options.print_json({**result_values(model), "views": found, "out": str(out)})
        return
    screen.show(result_parts(model))
    levels = study.tree.depth
    screen.print(
        f"{len(sites)} sites, {levels} level{'s' if levels > 1 else ''} of nodes with up to "
        f"{fan_out} children."
    )
    screen.show(view_parts(views))
    show_written(screen, Fitted(model, out, written))


@contextmanager
def _charged(
    ledgers: Path | None, files: Mapping[str, Sequence[str | Place]], plan: Any, *, secure: bool
) -> Iterator[list[Charges]]:
    """What each site's release is charged to, all reserved; nothing without ledgers."""
    if ledgers is None:
        yield []
        return
    # imported here: the ledger's database library takes a moment to load
    from eigenveil.federation.ledger.fits import begin_fit
    from eigenveil.io.files import expand

    books = ledger_files(ledgers, sorted(files))
    terms = FitTerms.of(plan.drawn_from(secure=secure), by="federate-tree")
    begun: list[Charges] = []
    outcome = "stopped"
    try:
        for name, place in books.items():
            rows = [each.place for each in expand(files[name])]
            begun.append(begin_fit(place, None, rows, terms))
        yield begun
        outcome = "finished"
    finally:
        for each in begun:
            each.end(outcome)
