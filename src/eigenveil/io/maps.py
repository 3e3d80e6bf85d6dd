"""Components of images as images."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np

from eigenveil.errors import DataError
from eigenveil.files import replacing
from eigenveil.io.formats.extras import library
from eigenveil.io.formats.images import read_mask, voxel_names


def write_maps(model: Any, mask: str | Path, folder: str | Path) -> list[str]:
    """Write a fitted PCA of images as NIfTI images on the grid of its mask.

    ``component-1.nii.gz``, ... and ``mean.nii.gz``, in single precision, 0 where there is no
    column. They hold what was released, and may be published as the model may.

    Parameters
    ----------
    model : fitted PrivatePCA or FederatedPCA
        Of images.
    mask : str or Path
        The NIfTI mask of the fit, which says where voxels lie.
    folder : str or Path
        Where they are written; it is there.

    Returns
    -------
    list of str
        Their names.

    Raises
    ------
    DataError
        When the model is not one of voxels of this mask; OutputError when a file cannot be written.
    """
    nibabel = library("nibabel", extra="images", what="A NIfTI image")
    found = read_mask(Path(mask))
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    place = {name: number for number, name in enumerate(voxel_names(found.inside))}
    wanted = [place[name] for name in names if name in place]
    components = getattr(model, "components_", None)
    if components is None or not names or len(wanted) != len(names):
        raise DataError("not-voxels", mask=mask)
    if found.grid.affine is None:
        raise DataError("no-grid", mask=mask)
    maps = {f"component-{number}": row for number, row in enumerate(components, start=1)}
    written = []
    for name, values in {**maps, "mean": model.mean_}.items():
        voxels = np.zeros(int(found.inside.sum()), dtype=np.float32)
        voxels[wanted] = values
        image = np.zeros(found.grid.shape, dtype=np.float32)
        image[found.inside] = voxels
        file = f"{name}.nii.gz"
        with replacing(Path(folder) / file) as scratch:
            stored = nibabel.Nifti1Image(image, found.grid.affine).to_bytes()
            scratch.write_bytes(gzip.compress(stored, mtime=0))
        written.append(file)
    return written
