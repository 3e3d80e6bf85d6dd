"""Single cells of made-up donors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray

KINDS = {
    "csr": scipy.sparse.csr_matrix,
    "csc": scipy.sparse.csc_matrix,
    "dense": np.asarray,
}
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
