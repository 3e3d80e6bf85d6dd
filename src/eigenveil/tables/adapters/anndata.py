"""Single cells in memory: an ``anndata.AnnData`` as rows, and the names of genes.

``anndata`` is known by its name and never imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from eigenveil.errors import DataError, short_name
from eigenveil.models.names import numbered_names, reads_as_value
from eigenveil.moments.rows import Block
from eigenveil.moments.source import SPARSE_ROWS, block_rows, held_in
from eigenveil.tables.units import unit_ids

# Columns of var that name genes, where its index does not: those of CellRanger, cellxgene, scanpy.
_NAMING = ("gene_symbols", "gene_symbol", "feature_name", "gene_name", "gene_names", "symbol")
_IDENTIFYING = ("gene_ids", "gene_id", "ensembl_id", "feature_id")


def is_cells(X: object) -> bool:
    """Whether it is an ``AnnData``."""
    return type(X).__module__.partition(".")[0] == "anndata" and hasattr(X, "obs_names")


def gene_names(
    whose: str,
    index: Sequence[Any] | NDArray[Any],
    others: Mapping[str, Callable[[], Sequence[Any] | NDArray[Any]]],
) -> list[str]:
    """Names of genes: the index of ``var``; where it has only numbers, a column that names genes.

    Names that are there twice become ``NAME-1``, ``NAME-2``, ..., as by AnnData's
    ``var_names_make_unique``. Where the index only counts, from 0 or 1, and no column has names,
    they are c1, c2, ...
    """
    own = [str(name) for name in index]
    if not _are_values(own):
        return unique(own)
    for name in (*_NAMING, *_IDENTIFYING):
        if name in others:
            found = [str(each) for each in others[name]()]
            if len(found) == len(own) and not _are_values(found):
                return unique(found)
    if any(own == [str(number + start) for number in range(len(own))] for start in (0, 1)):
        return numbered_names(len(own))
    raise DataError(
        f"{whose} has numbers or dates for most names of genes, as the first row of a table that "
        "has no line of names.",
        hint="Give genes their names: adata.var_names, or a column 'gene_name' of var.",
        code="header-is-data",
    )


def _are_values(names: Sequence[str]) -> bool:
    """Whether most of them read as values."""
    return 2 * sum(map(reads_as_value, names)) >= len(names)


def unique(names: Sequence[str]) -> list[str]:
    """Names of which none is there twice: the second and further ones get -1, -2, ..."""
    taken, seen = set(names), set()
    found = []
    for name in names:
        if name in seen:
            name = next(new for number in count(1) if (new := f"{name}-{number}") not in taken)
            taken.add(name)
        seen.add(name)
        found.append(name)
    return found


def genes_of(adata: Any, *, of_raw: bool = False, origin: str = "The cells") -> list[str]:
    """Names of an ``AnnData``'s genes: see :func:`gene_names`."""
    var = adata.raw.var if of_raw else adata.var
    others = {str(name): lambda name=name: var[name].to_numpy() for name in var.columns}
    return gene_names(f"{origin}: the index of var", var.index.to_numpy(), others)


def units_of(adata: Any, unit: str, *, origin: str = "The cells") -> NDArray[Any]:
    """A column of ``obs``, or its index by its name or as "index": an identifier a cell."""
    obs = adata.obs
    if unit in obs.columns:
        column = obs[unit]
    elif unit in (obs.index.name, "index"):
        column = obs.index
    else:
        known = ", ".join(repr(str(name)) for name in obs.columns[:20])
        raise DataError(
            f"{origin} have no column {unit!r} in obs, which is to say whose each is.",
            hint=f"Those of obs are {known or 'none'}; or give groups, an identifier a cell.",
            code="no-units",
        )
    return unit_ids(column, int(adata.shape[0]))


class CellRows:
    """Cells of an ``AnnData``, a block at a time, sparse or dense, in memory or in its file."""

    def __init__(
        self,
        adata: Any,
        *,
        layer: str | None = None,
        unit: str | None = None,
        groups: ArrayLike | None = None,
        columns: Sequence[str] | None = None,
        origin: str = "The cells",
    ) -> None:
        self._adata, self._layer, self._origin = adata, layer, origin
        self._check_layer()
        names = genes_of(adata, of_raw=self._of_raw, origin=origin)
        self._places: NDArray[np.int64] | None = None
        if columns is not None and list(columns) != names:
            place = {name: number for number, name in enumerate(names)}
            missing = next((name for name in columns if name not in place), None)
            if missing is not None:
                raise DataError(
                    f"{origin} have no gene {short_name(missing)!r}.",
                    hint="Give cells with the genes that the model, or the first site, has.",
                    code="missing-column",
                )
            self._places = np.array([place[name] for name in columns])
            names = list(columns)
        self.names: Sequence[str] = names
        self.features, self.rows = len(names), int(adata.shape[0])
        self.units = None if unit is None else units_of(adata, unit, origin=origin)
        if groups is not None:
            self.units = unit_ids(groups, self.rows)
        self.unit = unit
        self._matrix = self._in_memory()
        kind = self._slice(0, 0).dtype
        if kind.kind not in "biuf" or self.features == 0:
            raise DataError(
                f"{origin} have a matrix of {kind} with {self.features} genes, not of numbers.",
                hint="Give an AnnData with numbers as X or as the layer.",
                code="not-numeric",
            )
        self._kind = held_in(kind)

    @property
    def paths(self) -> tuple[Any, ...] | None:
        """The file that the matrix stays in, by which a ledger knows it."""
        return (self._adata.filename,) if self._adata.isbacked else None

    def blocks(self) -> Iterator[Block]:
        """All cells once, in order, dense."""
        for block in self._blocks(block_rows(self.features)):
            values: Any = block.values
            dense = values.toarray() if scipy.sparse.issparse(values) else values
            block.values = np.ascontiguousarray(dense, self._kind)
            yield block

    def sparse_blocks(self) -> Iterator[Block]:
        """The same as CSR arrays of floating-point entries."""
        for block in self._blocks(SPARSE_ROWS):
            block.values = scipy.sparse.csr_array(block.values).astype(self._kind)
            yield block

    def matrix(self, *, sparse: bool = True) -> Any:
        """All cells as one matrix, sparse where they are and it may be."""
        found = self._slice(0, self.rows)
        return found if sparse or not scipy.sparse.issparse(found) else found.toarray()

    def _blocks(self, step: int) -> Iterator[Block]:
        for start in range(0, self.rows, step):
            stop = min(start + step, self.rows)
            units = None if self.units is None else self.units[start:stop]
            part = self._slice(start, stop)
            yield Block(part, origin=self._origin, first_row=start, units=units)

    def _slice(self, start: int, stop: int) -> Any:
        if self._matrix is not None:
            part = self._matrix[start:stop]
        else:
            cells = self._adata[start:stop]
            part = cells.X if self._layer is None else cells.layers[self._layer]
        if not scipy.sparse.issparse(part):
            part = np.asarray(part)
        return part if self._places is None else part[:, self._places]

    def _in_memory(self) -> Any:
        """The matrix where it is in memory; compressed columns are turned into rows."""
        adata = self._adata
        if self._of_raw:
            found = adata.raw.X
        elif self._layer is not None:
            found = adata.layers[self._layer]
        elif adata.isbacked:
            found = None if getattr(adata.X, "format", "csr") == "csr" else adata.X[:]
        else:
            found = adata.X
        return found.tocsr() if scipy.sparse.issparse(found) else found

    @property
    def _of_raw(self) -> bool:
        return self._layer == "raw" and "raw" not in self._adata.layers

    def _check_layer(self) -> None:
        adata, layer = self._adata, self._layer
        if layer is None:
            there = adata.X is not None
        else:
            there = adata.raw is not None if self._of_raw else layer in adata.layers
        if there:
            return
        known = [*(["X"] if adata.X is not None else []), *map(str, adata.layers)]
        known += [] if adata.raw is None else ["raw"]
        raise DataError(
            f"{self._origin} have no X." if layer is None else f"{self._origin} have no {layer!r}.",
            hint=f"There is {', '.join(known) or 'no matrix'}: read_cells(adata, layer=NAME).",
            code="missing-layer",
        )
