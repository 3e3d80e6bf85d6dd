"""Single cells: an ``anndata.AnnData``, in memory or in its file.

``anndata`` is known by its name and never imported here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from eigenveil.errors import DataError, short_name
from eigenveil.moments.rows import Block
from eigenveil.moments.source import SPARSE_ROWS, RowSource, block_rows, held_in
from eigenveil.tables.adapters.array import ArrayTable, SparseTable
from eigenveil.tables.adapters.base import Adapter, Asked
from eigenveil.tables.names import MOST_SPARSE_COLUMNS, check_names, check_width, gene_names
from eigenveil.tables.units import unit_ids


class CellTable(Adapter):
    """An ``AnnData``: its ``X``, whose genes are the columns."""

    def __init__(self, adata: Any) -> None:
        super().__init__(adata)
        self.labels = list(adata.obs.columns)

    @classmethod
    def of(cls, X: Any) -> Self | None:
        known = type(X).__module__.partition(".")[0] == "anndata" and hasattr(X, "obs_names")
        return cls(X) if known else None

    def ids(self, unit: str) -> NDArray[Any]:
        return units_of(self.given, unit)

    def matrix(self, estimator: Any, *, genes: Sequence[str] | None = None, **checks: Any) -> Any:
        found = CellRows(self.given, columns=genes).matrix()
        if scipy.sparse.issparse(found) and not checks.get("accept_sparse", False):
            found = found.toarray()
        with warnings.catch_warnings():  # they were matched by name
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            return _entries(found).matrix(estimator, **checks)

    def checked(
        self, estimator: Any = None, *, origin: str = "", fewest: int = 1
    ) -> tuple[Any, list[str] | None]:
        cells = CellRows(self.given)
        array, _ = _entries(cells.matrix()).checked(estimator, origin=origin, fewest=fewest)
        check_names(origin or "The frame", cells.names)
        return array, list(cells.names)

    def rows(self, asked: Asked) -> CellRows:
        _, ids = self.split(asked.unit, asked.groups)
        whose = f"{asked.origin}: the cells" if asked.origin else "The cells"
        rows = CellRows(self.given, groups=ids, columns=asked.like, origin=whose)
        check_width(whose, rows.features, most=MOST_SPARSE_COLUMNS)
        check_names(whose, rows.names)
        if rows.rows < asked.fewest:
            raise DataError("too-few-cells", origin=whose, rows=rows.rows, fewest=asked.fewest)
        return rows


def _entries(matrix: Any) -> Adapter:
    return SparseTable.of(matrix) or ArrayTable(matrix)


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
            "no-unit-column", whose=origin, column=unit, known=f"those of obs are {known or 'none'}"
        )
    return unit_ids(column, int(adata.shape[0]))


class CellRows(RowSource):
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
                raise DataError("missing-gene", origin=origin, gene=short_name(missing))
            self._places = np.array([place[name] for name in columns])
            names = list(columns)
        self.names: Sequence[str] = names
        self.features, self.rows = len(names), int(adata.shape[0])
        self.units = None if unit is None else units_of(adata, unit, origin=origin)
        if groups is not None:
            self.units = unit_ids(groups, self.rows)
        self.unit = unit
        # the file that the matrix stays in, by which a ledger knows it
        self.paths = (adata.filename,) if adata.isbacked else ()
        self._matrix = self._in_memory()
        kind = self._slice(0, 0).dtype
        if kind.kind not in "biuf" or self.features == 0:
            raise DataError(
                "not-numeric", what=f"{origin} have a matrix of {kind} with {self.features} genes"
            )
        self._kind = held_in(kind)

    def blocks(self) -> Iterator[Block]:
        for block in self._blocks(block_rows(self.features)):
            values: Any = block.values
            dense = values.toarray() if scipy.sparse.issparse(values) else values
            block.values = np.ascontiguousarray(dense, self._kind)
            yield block

    def sparse_blocks(self) -> Iterator[Block]:
        for block in self._blocks(SPARSE_ROWS):
            block.values = scipy.sparse.csr_array(block.values).astype(self._kind)
            yield block

    def matrix(self) -> Any:
        return self._slice(0, self.rows)

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
            "missing-layer",
            whose=self._origin,
            layer="matrix X" if layer is None else f"layer {layer!r}",
            known=", ".join(known) or "no matrix",
        )
