"""Single cells as AnnData stores them: ``.h5ad`` files and ``.zarr`` folders.

A row is a cell, a column a gene, and what ``obs`` has of a cell is a label of its row. Read a block
at a time, dense or sparse; nothing of the package ``anndata`` is needed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError, OutputError
from eigenveil.files import Place, replacing
from eigenveil.io.files import reading, unreadable
from eigenveil.io.formats.arrays import Header, NamedArrayFile, NamedSparseFile
from eigenveil.io.formats.hierarchy import (
    Compressed,
    SortedEntries,
    as_texts,
    child,
    is_array,
    opened,
    whole,
)
from eigenveil.tables.adapters.anndata import CellRows, CellTable, genes_of
from eigenveil.tables.names import check_names, gene_names

RAW = "raw"
"""The layer that stands for ``adata.raw``, where no other has this name."""
_MOST_READ = 1 << 27  # bytes of dense rows that are read together
_BY_ROWS = {"csr": True, "csc": False}


def open_cells(path: Place, *, layer: str | None = None) -> NamedArrayFile:
    with reading(path), opened(path) as root:
        dense = is_array(child(path, root, _place(path, root, layer)))
    return DenseCells(path, layer) if dense else SparseCells(path, layer)


def size_and_genes(path: Place) -> tuple[int, list[str]]:
    """The number of cells of a store, and the names of the genes of its ``var``."""
    with reading(path), opened(path) as root:
        _, index = _labels(path, root)
        rows = whole(path, *_column(path, root, "obs", index)).shape[0]
        return rows, _genes(path, root, "var")


def _genes(path: Place, root: Any, where: str) -> list[str]:
    names, index = _fields(path, root, where)
    others = {
        name: lambda name=name: _entries(path, root, where, name) for name in names if name != index
    }
    own = _entries(path, root, where, index)
    return gene_names(f"{path}: the index of var", own, others)


def _place(path: Place, root: Any, layer: str | None) -> str:
    layers = sorted(root["layers"]) if "layers" in root else []
    raw = next((name for name in ("raw/X", "raw.X") if name in root), None)
    if layer is None and "X" in root:
        return "X"
    if layer in layers:
        return f"layers/{layer}"
    if layer == RAW and raw is not None:
        return raw
    known = [*(["X (the usual)"] if "X" in root else []), *layers, *([RAW] if raw else [])]
    raise DataError(
        "missing-layer",
        whose=path,
        layer="matrix X" if layer is None else f"layer {layer!r}",
        known=", ".join(known) or "no matrix",
    )


class _Cells(NamedArrayFile):
    def __init__(self, path: Place, layer: str | None) -> None:
        self._layer = layer
        super().__init__(path)

    def _header(self) -> Header:
        with opened(self.path) as root:
            self._place = _place(self.path, root, self._layer)
            self.label_names, self._index = _labels(self.path, root)
            rows = whole(self.path, *_column(self.path, root, "obs", self._index)).shape[0]
            where = f"{self._place[:-1]}var" if self._place.startswith(RAW) else "var"
            self._genes = _genes(self.path, root, where)
            shape, kind = self._stored_shape(root)
        if shape != (rows, len(self._genes)):
            raise unreadable(
                self.path,
                f"its matrix is {shape[0]} x {shape[1]}, with {rows} cells and {len(self._genes)} "
                "genes",
            )
        return Header(shape, fortran=False, dtype=kind)

    def _stored_shape(self, root: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
        raise NotImplementedError

    def _names(self) -> Sequence[str]:
        return self._genes

    def row_labels(self, name: str) -> NDArray[np.object_]:
        field = self._index if name == self.label_names[0] else name
        with opened(self.path) as root:
            found = _entries(self.path, root, "obs", field)
        if found.shape[0] != self.rows:
            raise unreadable(
                self.path,
                f"obs has {found.shape[0]} entries {name!r}, and there are {self.rows} cells",
            )
        return found


class DenseCells(_Cells):
    """Cells whose matrix is stored whole."""

    def parts(self, step: int) -> Iterator[NDArray[Any]]:
        with opened(self.path) as root:
            stored = child(self.path, root, self._place, array=True)
            tall = 1 if not stored.chunks else int(stored.chunks[0])
            most = _MOST_READ // max(1, self.features * stored.dtype.itemsize)
            take = max(step, min(most, 4 * step))
            # larger chunks are unpacked more than once
            take = max(tall, take // tall * tall) if tall <= most else max(step, most)
            for start in range(0, self.rows, take):
                rows = stored[start : start + take]
                for first in range(0, rows.shape[0], step):
                    yield rows[first : first + step]

    def _stored_shape(self, root: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
        stored = child(self.path, root, self._place, array=True)
        return tuple(stored.shape), stored.dtype


class SparseCells(_Cells, NamedSparseFile):
    """Compressed rows; or columns, which are sorted into rows when they are first read."""

    _sorted: SortedEntries | None = None

    def sparse_parts(self, step: int) -> Iterator[Any]:
        with opened(self.path) as root:
            stored = self._compressed(root)
            if not stored.by_rows:
                if self._sorted is None:
                    self._sorted = stored.sorted_by_row()
                yield from self._sorted.parts(step)
                return
            yield from stored.parts(step)

    def _stored_shape(self, root: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
        group = child(self.path, root, self._place)
        shape = group.attrs.get("shape", group.attrs.get("h5sparse_shape"))
        if shape is None or len(shape) != 2:
            why = f"its matrix {self._place!r} has no shape"
            raise unreadable(self.path, why)
        kind = child(self.path, group, "data", array=True).dtype
        return tuple(int(each) for each in shape), kind

    def _compressed(self, root: Any) -> Compressed:
        group = child(self.path, root, self._place)
        kind = group.attrs.get("encoding-type", group.attrs.get("h5sparse_format", ""))
        by_rows = _BY_ROWS.get(str(kind).removesuffix("_matrix"))
        if by_rows is None:
            stored = str(kind)[:50]
            why = f"its matrix is stored as {stored!r}, not dense, csr_matrix or csc_matrix"
            raise unreadable(self.path, why)
        return Compressed.of_group(
            self.path,
            group,
            shape=(self.rows, self.features),
            by_rows=by_rows,
            entry_type=self._entry_type,
        )


# -- What obs and var have, in the ways that versions of AnnData store it.


def _fields(path: Place, root: Any, where: str) -> tuple[list[str], str]:
    """Names of the columns of ``obs`` or ``var``, the index among them, and that of the index."""
    frame = child(path, root, where)
    if is_array(frame):  # before version 0.7: records
        names = list(frame.dtype.names or ())
        if not names:
            raise unreadable(path, f"{where} has no index")
        return names, "index" if "index" in names else names[0]
    index = as_texts(np.array([frame.attrs.get("_index", "")], dtype=object))[0]
    if not index or index not in frame:
        raise unreadable(path, f"{where} has no index")
    order = as_texts(np.asarray(frame.attrs.get("column-order", ()), dtype=object))
    return [str(index), *(str(name) for name in order if name in frame)], str(index)


def _labels(path: Place, root: Any) -> tuple[tuple[str, ...], str]:
    """What ``obs`` has of a cell, the index first, and under which name the index is stored."""
    names, index = _fields(path, root, "obs")
    shown = "index" if index == "_index" else index
    return (shown, *(name for name in names if name not in (index, shown))), index


def _column(path: Place, root: Any, where: str, name: str) -> tuple[Any, str]:
    """Where a whole array of as many entries as there are rows is: a group and a name in it."""
    frame = child(path, root, where)
    return (root, where) if is_array(frame) else (frame, name)


def _entries(path: Place, root: Any, where: str, name: str) -> NDArray[np.object_]:
    frame = child(path, root, where)
    if is_array(frame):
        entries = as_texts(whole(path, root, where)[name])
        levels = f"{name}_categories"
        if "uns" in root and levels in root["uns"]:
            return _of_levels(path, entries, whole(path, root["uns"], levels))
        return _missing_as_none(entries)
    stored = child(path, frame, name)
    if is_array(stored):
        entries = whole(path, frame, name)
        if "__categories" in frame and name in frame["__categories"]:  # version 0.7
            return _of_levels(path, entries, whole(path, frame["__categories"], name))
        return _missing_as_none(entries)
    if "codes" in stored:
        return _of_levels(path, whole(path, stored, "codes"), whole(path, stored, "categories"))
    entries = whole(path, stored, "values").astype(object)
    entries[whole(path, stored, "mask").astype(bool)] = None
    return entries


def _of_levels(path: Place, codes: NDArray[Any], levels: NDArray[Any]) -> NDArray[np.object_]:
    if codes.dtype.kind not in "iu" or codes.max(initial=-1) >= levels.shape[0]:
        raise unreadable(path, "a column has levels that are not listed")
    known = np.array([*_missing_as_none(levels), None], dtype=object)  # a code below 0: missing
    return np.asarray(known[np.maximum(codes.astype(np.int64), -1)])


def _missing_as_none(entries: NDArray[Any]) -> NDArray[np.object_]:
    found = entries.astype(object)
    if entries.dtype.kind == "f":
        found[np.isnan(entries)] = None
    return found


# -- Results written into single cells, as scanpy's pp.pca names them.


_OWN = "eigenveil"


def read_cells(adata: Any, *, layer: str | None = None, unit: str | None = None) -> CellRows:
    """The cells of an ``anndata.AnnData``, for ``fit_rows``; ``fit(adata)`` reads its ``X``.

    Parameters
    ----------
    adata : anndata.AnnData
        Also one whose matrix stays in its file (``backed="r"``), which is read a block at a time.
    layer : str, optional
        A layer in place of ``X``; ``"raw"`` is ``adata.raw``.
    unit : str, optional
        A column of ``obs`` that says which unit, such as a donor, a cell belongs to.

    Raises
    ------
    DataError
        ``missing-layer``, ``no-units``; ``header-is-data`` where names of genes read as values.
    """
    if CellTable.of(adata) is None:
        raise DataError("not-cells", kind=type(adata).__name__)
    rows = CellRows(adata, layer=layer, unit=unit)
    check_names("The cells", rows.names)
    return rows


def annotate(adata: Any, model: Any) -> None:
    """Write a fitted PCA into an ``AnnData``: its scores, loadings, variances and certificate.

    ``obsm["X_pca"]`` of shape (cells, K), ``varm["PCs"]`` of shape (genes, K) with zeros for genes
    that the model does not have, ``uns["pca"]`` and ``uns["eigenveil"]``; what was there under
    these names is replaced.

    Parameters
    ----------
    adata : anndata.AnnData
        With the model's genes.
    model : fitted PrivatePCA or FederatedPCA

    Raises
    ------
    DataError
        When a gene of the model is not there; nothing was written.
    """
    found = _annotations(model, genes_of(adata), model.transform(adata))
    adata.obsm["X_pca"] = found["obsm"]["X_pca"]
    adata.varm["PCs"] = found["varm"]["PCs"]
    adata.uns.update(found["uns"])


def annotate_file(
    source: str | Place, target: str | Path, model: Any, scores: NDArray[np.floating[Any]]
) -> None:
    """Copy an ``.h5ad`` file and write a fitted PCA into the copy: see :func:`annotate`."""
    place, goal = (Path(source) if isinstance(source, str) else source), Path(target)
    for each in (place, goal):
        if each.suffix.lower() != ".h5ad":
            raise OutputError("not-h5ad", path=each)
    if goal.exists() and goal.samefile(place):
        raise OutputError("output-is-input", path=goal)
    cells, genes = size_and_genes(place)
    if cells != scores.shape[0]:
        raise DataError("other-number-of-cells", place=place, cells=cells, scores=scores.shape[0])
    found = _annotations(model, genes, scores)
    with replacing(goal) as scratch:
        with reading(place):
            shutil.copyfile(place, scratch)
        _write(scratch, found)


def _annotations(
    model: Any, genes: Sequence[str], scores: NDArray[np.floating[Any]]
) -> dict[str, dict[str, Any]]:
    names = getattr(model, "feature_names_in_", None)
    components = getattr(model, "components_", None)
    if components is None or not hasattr(model, "explained_variance_ratio_"):
        raise DataError("no-components-to-write", name=type(model).__name__)
    place = {name: number for number, name in enumerate(genes)}
    wanted = list(genes) if names is None else [str(name) for name in names]
    missing = sum(name not in place for name in wanted)
    if missing or len(wanted) != components.shape[1]:
        raise DataError(
            "genes-missing", missing=missing, wanted=components.shape[1], genes=len(genes)
        )
    loadings = np.zeros((len(genes), components.shape[0]))
    loadings[[place[name] for name in wanted]] = components.T
    certificate = model.certificate_.model_dump_json()
    return {
        "obsm": {"X_pca": np.asarray(scores)},
        "varm": {"PCs": loadings},
        "uns": {
            "pca": {
                "variance": np.array(model.explained_variance_),
                "variance_ratio": np.array(model.explained_variance_ratio_),
            },
            _OWN: {"certificate": certificate, "guarantee": str(model.guarantee_)},
        },
    }


def _write(path: Path, found: Mapping[str, Mapping[str, Any]]) -> None:
    with opened(path, write=True) as root:
        for name, entries in found.items():
            _write_group(root, name, entries)


def _write_group(parent: Any, name: str, entries: Mapping[str, Any]) -> None:
    group = parent.require_group(name)
    group.attrs.setdefault("encoding-type", "dict")
    group.attrs.setdefault("encoding-version", "0.1.0")
    for key, value in entries.items():
        if isinstance(value, dict):
            if key in group:
                del group[key]
            _write_group(group, key, value)
            continue
        if key in group:
            del group[key]
        stored = group.create_dataset(key, data=value)
        is_text = isinstance(value, str)
        stored.attrs["encoding-type"] = "string" if is_text else "array"
        stored.attrs["encoding-version"] = "0.2.0"
