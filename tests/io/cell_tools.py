"""Single cells of made-up donors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray

KINDS = {"csr": scipy.sparse.csr_matrix, "csc": scipy.sparse.csc_matrix, "dense": np.asarray}
# names that a check of tables could take for dates and identifiers
GENES = ["MARCH1", "SEPT2", "ID1", "ENSG00000000003.15", "HLA-A", "MT-ND1"]


def made_cells(
    kind: str = "csr", *, cells: int = 90, genes: int = 20, seed: int = 5
) -> tuple[Any, NDArray[np.float32]]:
    """An AnnData, and its matrix as an array; the third cell's donor is missing."""
    rng = np.random.default_rng(seed)
    loadings = rng.gamma(2.0, 1.0, (3, genes))
    counts = rng.poisson(rng.gamma(0.7, 1.0, (cells, 3)) @ loadings / 3).astype(np.float32)
    donors = pd.Categorical([None if i == 2 else f"d{i % 30}" for i in range(cells)])
    obs = pd.DataFrame(
        {
            "donor_id": donors,
            "lane": np.arange(cells) % 4,
            "quality": np.where(np.arange(cells) == 1, np.nan, 0.5),
            "doublet": pd.array([None, *[True] * (cells - 1)], dtype="boolean"),
        },
        index=[f"cell{i}" for i in range(cells)],
    )
    names = [*GENES, *(f"G{i}" for i in range(genes - len(GENES)))]
    var = pd.DataFrame({"gene_ids": [f"ENSG{i:011d}" for i in range(genes)]}, index=names)
    adata = anndata.AnnData(KINDS[kind](counts), obs=obs, var=var)
    adata.layers["doubled"] = KINDS[kind](2 * counts)
    adata.raw = anndata.AnnData(KINDS[kind](3 * counts), obs=obs, var=var)
    return adata, counts


def saved(adata: Any, path: Path) -> Path:
    """Written by AnnData itself, in the format of the path's ending."""
    if path.suffix == ".zarr":
        adata.write_zarr(path)
    else:
        adata.write_h5ad(path, compression="gzip")
    return path


def cells_of(array: Any, names: Any, kind: str = "dense", **obs: Any) -> Any:
    """An AnnData of these entries, with these labels of its cells."""
    index = [f"cell{i}" for i in range(len(array))]
    adata = anndata.AnnData(KINDS[kind](np.asarray(array)), obs=pd.DataFrame(obs, index=index))
    adata.var_names = list(names)
    return adata


def tenx_file(path: Path, cells: Any, names: Any, *, kinds: Any = None, old: bool = False) -> Path:
    """As CellRanger writes it, of cells x genes; as of version 2 with ``old``."""
    stored = scipy.sparse.csc_array(np.asarray(cells).T)
    ids = np.array([f"ENSG{i:011d}" for i in range(len(names))], "S18")
    with h5py.File(path, "w") as file:
        group = file.create_group("GRCh38" if old else "matrix")
        group["shape"] = np.array(stored.shape, np.int32)
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(stored, name)
        group["barcodes"] = np.array([f"AAAC{i}-1" for i in range(len(cells))], "S18")
        if old:
            group["genes"], group["gene_names"] = ids, np.array(names, "S18")
            return path
        kinds = kinds or ["Gene Expression"] * len(names)
        for name, texts in (("id", ids), ("name", names), ("feature_type", kinds)):
            group[f"features/{name}"] = np.array(texts, "S18")
    return path
