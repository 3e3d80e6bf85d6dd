"""Private PCA of sites' own rows, whose sums are merged up a tree of aggregators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenveil.app.fit import FitRequest, Fitted, ledger_files
from eigenveil.app.parts import Part
from eigenveil.app.results import (
    check_free,
    new_folder,
    result_parts,
    result_values,
    view_parts,
    write_result,
)
from eigenveil.app.rows import Files, WantedColumns, open_sites
from eigenveil.errors import WrongOption
from eigenveil.federated.tree_fit import fit_tree as fit_rows
from eigenveil.federation.ledger.fits import begin_fit
from eigenveil.federation.tree.private import TreeStudy, make_tree_study
from eigenveil.federation.tree.tree import MergeTree
from eigenveil.io import FileRows, WorkerFiles
from eigenveil.io.files import expand
from eigenveil.models.driver import Charges, FitTerms
from eigenveil.models.task import TASKS

_SITES, _CHILDREN, _COMPONENTS = 2, 2, 2


@dataclass(frozen=True)
class TreeRequest(FitRequest):
    """A fit up a tree; ``values`` are of a stream's declared options."""

    sites: Mapping[str, Files]
    fan_out: int = 4
    protect: str = "outsider"
    ledgers: Path | None = None


@dataclass(frozen=True)
class FittedTree(Fitted):
    """A model, and the tree that it was merged in."""

    study: TreeStudy | None = None
    rounds: int = 1

    def as_json(self) -> dict[str, Any]:
        views = {name: view.as_dict() for name, view in self._views.items()}
        return {**result_values(self.model), "views": views, "out": self.out}

    def parts(self) -> Iterator[Part]:
        assert self.study is not None
        tree = self.study.tree
        yield from result_parts(self.model)
        yield (
            f"{tree.leaf_count} sites, {tree.depth} level{'s' if tree.depth > 1 else ''} of nodes "
            f"with up to {tree.fan_out} children."
        )
        if self.rounds > 1:
            kept = self.study.plan.forgetting
            yield f"{self.rounds} rounds: at each further one, older rows count {kept:g} times."
        yield from view_parts(self._views)

    @property
    def _views(self) -> Any:
        return self.model.certificate_.guarantees()


def fit_tree(asked: TreeRequest, progress: Callable[[int, int], None] | None = None) -> FittedTree:
    """Read each row once, and merge what the sites send."""
    check_free(asked.out, overwrite=asked.overwrite)
    if asked.fan_out < _CHILDREN:
        raise WrongOption(
            "out-of-range",
            name="--fan-out",
            value=asked.fan_out,
            wanted=f"{_CHILDREN} or more, the children of a node",
        )
    if len(asked.sites) < _SITES:
        raise WrongOption("tree-of-one-site")
    values = {"n_components": _COMPONENTS, "epsilon": 1.0, "delta": 1e-6, **asked.values}
    seed = values.pop("random_state", None)
    TASKS["pca"].options("stream", **values)  # what cannot be is said before files are read
    rounds = _rounds(asked.sites, asked.columns.with_unit(values.get("unit")), values)
    if values.get("forgetting", 1.0) != 1.0:
        values["publish"] = "blocks"
    study = make_tree_study(
        MergeTree.with_leaves(len(asked.sites), fan_out=asked.fan_out),
        features=next(iter(rounds[0].values())).features,
        protect=asked.protect,
        **values,
    )
    with (
        new_folder(asked.out) as folder,  # made before anything is spent
        _charged(asked.ledgers, asked.sites, study.plan, secure=seed is None) as charges,
    ):
        model = fit_rows(study, *rounds, charges=charges, random_state=seed, progress=progress)
        written = write_result(model, folder, figures=asked.figures)
    return FittedTree(model, asked.out, written, study=study, rounds=len(rounds))


def _rounds(
    places: Mapping[str, Files], wanted: WantedColumns, values: Mapping[str, Any]
) -> list[dict[str, FileRows | WorkerFiles]]:
    """The rows of each round: with forgetting each place of a site is one, else there is one."""
    sites = open_sites(places, wanted)
    if values.get("forgetting", 1.0) == 1.0:
        return [sites]
    counts = {name: len(own) for name, own in places.items()}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise WrongOption("rounds-of-sites-differ", counts=said)
    rounds = max(counts.values())
    if rounds == 1:
        raise WrongOption("forgetting-of-one-round")
    alike = wanted.like(next(iter(sites.values())))
    return [
        open_sites({name: [own[turn]] for name, own in places.items()}, alike)
        for turn in range(rounds)
    ]


@contextmanager
def _charged(
    ledgers: Path | None, files: Mapping[str, Files], plan: Any, *, secure: bool
) -> Iterator[list[Charges]]:
    """What each site's release is charged to, all reserved; nothing without ledgers."""
    if ledgers is None:
        yield []
        return
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
