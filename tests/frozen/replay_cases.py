"""Every estimator and option of the frozen fits, and the trees, replayed on neighbours.

    python tests/frozen/replay_cases.py [PART OF A NAME ...]

prints a line a fit, and ends with 8 where something that is public depends on rows.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import dask.array
import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse
from frozen_cases import FITS, ROWS, STREAMS, STUDIES, D, plain
from frozen_tools import blocks_of, sites_of, streamed, studied

from eigenveil import FederatedICA, FederatedPCA, PrivateICA, PrivatePCA, PrivateStreamingPCA
from eigenveil.audit.replay import replay
from eigenveil.federated.tree_fit import fit_tree
from eigenveil.federation.tree.private import make_tree_study
from eigenveil.federation.tree.tree import MergeTree
from eigenveil.tables.adapters.base import array_rows

MORE_FITS = {
    "ica: usual": (PrivateICA, {"epsilon": 8.0}, "array"),
    "ica: of units": (PrivateICA, {"epsilon": 20.0, "unit": "who"}, "units"),
    "ica: of holes": (PrivateICA, {"epsilon": 8.0}, "holes"),
    "pca: scores": (PrivatePCA, {"n_components": 2, "epsilon": 8.0, "scores": True}, "array"),
}
MORE_STUDIES = {
    "study: ica": (FederatedICA, {"epsilon": 20.0}),
    "study: within sites": (FederatedPCA, {"epsilon": 9.0, "within_sites": True}),
    "study: weights": (
        FederatedPCA,
        {"epsilon": 9.0, "weights": {"site1": 4, "site2": 1, "site3": 2}},
    ),
}
# Of two rows one more decides whatever can be decided: an order, a threshold, when to stop.
FEW_ROWS = {
    f"{name}, two rows": (kind, options, "two rows")
    for name, (kind, options, rows) in (FITS | MORE_FITS).items()
    if rows == "array" and options.get("row_norm") != "max"
}
ROWS = ROWS | {"two rows": lambda: plain()[:2]}
TREES = {"tree: usual": {}, "tree: replaced": {"adjacency": "replace-one"}}
TREES |= {"tree: missing": {"missing": "pairs"}, "tree: of units": {"unit": "who"}}
TRACKED = [name for name, (kind, _) in STREAMS.items() if not hasattr(kind(), "epsilon")]


def last(value):
    """A row more, whose entries alternate in sign."""
    return lambda rows: np.vstack([rows, value * (-1.0) ** np.arange(rows.shape[1])])


def first(value):
    """Another row in place of the first."""
    return lambda rows: np.vstack([np.full((1, rows.shape[1]), value), rows[1:]])


NEIGHBOURS = {
    "add-remove": {
        "the first row removed": lambda rows: rows[1:],
        "zeros added": last(0.0),
        "1e300 added": last(1e300),
        "1e-300 added": last(1e-300),
        "missing added": last(np.nan),
        "infinite added": last(np.inf),
        "a last column added": lambda rows: np.vstack([rows, 1e3 * np.eye(rows.shape[1])[-1:]]),
    },
    "replace-one": {
        "zeros in place": first(0.0),
        "-1e300 in place": first(-1e300),
        "missing in place": first(np.nan),
        "infinite in place": first(np.inf),
    },
}


def edited(table, edit):
    """A table of the same type with other rows; of units, with all rows of the first or a new."""
    if scipy.sparse.issparse(table):
        return scipy.sparse.csr_array(edit(table.toarray().astype(float)))
    if isinstance(table, dask.array.Array):
        return dask.array.from_array(edit(table.compute()), chunks=(300, D))
    if isinstance(table, pl.DataFrame):
        return pl.from_pandas(edited(table.to_pandas(), edit))
    if not isinstance(table, pd.DataFrame):
        with np.errstate(over="ignore", invalid="ignore"):  # 1e300 as another type
            return edit(np.asarray(table)).astype(table.dtype)
    if "who" not in table:
        return pd.DataFrame(edit(table.to_numpy()), columns=table.columns)
    own = (table["who"] == table["who"][0]).to_numpy()
    rest, rows = table[~own], table.drop(columns="who").to_numpy()
    changed = edit(rows[own])
    new = pd.DataFrame(changed, columns=table.columns.drop("who"))
    if len(changed) < own.sum():
        return rest.reset_index(drop=True)
    name = table["who"][0] if len(changed) == own.sum() else "new"
    kept = table if name == "new" else rest
    return pd.concat([kept, new.assign(who=name)], ignore_index=True)


def at(place, tables, edit):
    """The same of one of several tables, or of one alone."""
    if place is None:
        return edited(tables, edit)
    return [edited(table, edit) if n == place else table for n, table in enumerate(tables)]


class Case(NamedTuple):
    """A fit, its table or tables, and which of these changes."""

    kind: type
    options: dict
    fit: Callable
    table: object
    place: int | None = None

    def neighbours(self, only=None):
        """By name."""
        edits = NEIGHBOURS[self.options.get("adjacency", "add-remove")]
        return {
            told: at(self.place, self.table, edit)
            for told, edit in edits.items()
            if only is None or told in only
        }


def grown(options, parts):
    """The fit of a tree with a leaf for each part; of units, a row is one."""
    wanted = {"features": D, "n_components": 2, "epsilon": 4.0, "delta": 1e-6} | options
    study = make_tree_study(MergeTree.with_leaves(len(parts), fan_out=2), **wanted)
    ids = [[str(n) for n in range(len(part))] if "unit" in options else None for part in parts]
    sites = {f"site{n}": array_rows(part, None, ids[n]) for n, part in enumerate(parts)}
    return fit_tree(study, sites)


def case(name):
    """A case by its name."""
    if name in STREAMS:
        kind, options = STREAMS[name]
        return Case(kind, options, partial(streamed, kind, options), blocks_of(name), 2)
    if name in STUDIES:
        kind, options, _, lost = STUDIES[name]
        fit = partial(studied, kind, options, lost=lost)
        return Case(kind, options, fit, sites_of(name), 0)
    parts = np.split(plain(), 3)
    if name in MORE_STUDIES:
        kind, options = MORE_STUDIES[name]
        return Case(kind, options, partial(studied, kind, options, lost=None), parts, 0)
    if name in TREES:
        return Case(PrivateStreamingPCA, TREES[name], partial(grown, TREES[name]), parts, 0)
    kind, options, rows = (FITS | MORE_FITS | FEW_ROWS)[name]
    return Case(kind, options, lambda table: kind(**options).fit(table), ROWS[rows]())


ALL = (*FITS, *MORE_FITS, *FEW_ROWS, *STREAMS, *STUDIES, *MORE_STUDIES, *TREES)
# Options of reproductions, whose results are never certified.
NOT_PRIVATE = [name for name, (_, options, _) in FITS.items() if options.get("row_norm") == "max"]
CASES = [name for name in ALL if name not in (*TRACKED, *NOT_PRIVATE)]


def replayed(name, only=None):
    """What replays of a case show, on all neighbours or on those that are named."""
    found = case(name)
    return replay(found.fit, found.table, found.neighbours(only))


def main(parts):
    """Replay the cases whose names have one of these parts in them, or all."""
    chosen = [name for name in CASES if not parts or any(part in name for part in parts)]
    found, draws, most, start = 0, 0, 0.0, time.monotonic()
    for name in chosen:
        told = replayed(name)
        found, draws = found + len(told.findings), draws + told.draws
        most = max(most, told.moved)
        refused = f"; refused: {told.refused[:60]}" if told.refused else ""
        print(
            f"{name}: {told.draws} sums, moved by {told.moved:.4f} of what is stated{refused}",
            flush=True,
        )
        for each in told.findings:
            print(f"  FOUND {each}")
    print(
        f"{len(chosen)} fits, {draws:,} noised sums, each on its neighbours: {found} findings; a "
        f"sum moved by at most {most:.6f} of its sensitivity; {time.monotonic() - start:.0f} s"
    )
    return 8 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
