"""Results written into single cells, as scanpy's ``pp.pca`` names them.

``obsm["X_pca"]`` are the scores of the cells, which are as private as they are. What is released
stands in ``varm["PCs"]``, ``uns["pca"]`` and, with the certificate as JSON, ``uns["eigenveil"]``.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError, OutputError
from eigenveil.files import Place, replacing
from eigenveil.io.files import reading
from eigenveil.io.formats.cells import size_and_genes
from eigenveil.io.formats.hierarchy import opened
from eigenveil.tables.adapters.anndata import CellRows, CellTable, genes_of
from eigenveil.tables.names import check_names

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
    """Entries of a mapping as AnnData stores them; others that are there stay."""
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
