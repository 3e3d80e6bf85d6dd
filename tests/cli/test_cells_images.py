"""Single cells and images from a file to a result, and back into files of their own kind."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anndata
import h5py
import nibabel
import numpy as np
import pytest

from eigenveil import FederatedICA, PrivatePCA
from eigenveil.app.results import presenter_of

sys.path.append(str(Path(__file__).parents[1] / "io"))
from cell_tools import GENES, made_cells, saved

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def hidden(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_cells_to_a_certified_result_and_back(tmp_path, run):
    adata, counts = made_cells("csc", cells=600)
    cells, folder = saved(adata, tmp_path / "cells.h5ad"), tmp_path / "result"
    words = ("fit", cells, "--unit", "donor_id", "--layer", "doubled")
    run.done(*words, "-k", 2, "--epsilon", 3, "--out", folder, "--no-plots", "--quiet")
    model = PrivatePCA.load(folder / "model.npz")
    assert model.guarantee_.certified
    assert model.guarantee_.unit == "donor_id"
    assert list(model.feature_names_in_[:6]) == GENES
    assert run("certify", folder)[0] == 0
    out = tmp_path / "scored.h5ad"
    told = run.done("transform", folder, cells, "--out", out, "--json")
    assert json.loads(told) == {"out": str(out), "rows": 600, "columns": 2, "missing": 0}
    scored = anndata.read_h5ad(out)
    np.testing.assert_allclose(scored.obsm["X_pca"], model.transform(counts), atol=1e-4)
    np.testing.assert_array_equal(scored.varm["PCs"], model.components_.T)
    assert scored.uns["eigenveil"]["certificate"] == model.certificate_.model_dump_json()
    np.testing.assert_array_equal(scored.X.toarray(), counts)
    assert list(scored.obs.columns) == list(adata.obs.columns)
    before = cells.read_bytes()
    for words in (
        (cells, "--out", cells, "--overwrite"),
        (cells, out, "--out", tmp_path / "b.h5ad"),
    ):
        assert run("transform", folder, *words)[0] != 0
    assert cells.read_bytes() == before
    assert run("transform", folder, cells, "--out", out)[0] != 0  # it exists
    assert run("transform", folder, cells, "--out", tmp_path / "s.csv")[0] == 0
    assert (tmp_path / "s.csv").read_text().startswith('"donor_id","PC1"')
    assert not (tmp_path / "b.h5ad").exists()
    assert hidden(tmp_path) == []


def test_a_damaged_file_of_cells_leaves_nothing(tmp_path, run):
    cells = saved(made_cells(cells=600)[0], tmp_path / "cells.h5ad")
    with h5py.File(cells, "r+") as file:
        file["X/indices"][-1] = 1000  # found in the last block
    err = run.fails("fit", cells, "-k", 2, "--epsilon", 3, "--out", tmp_path / "result", status=3)
    assert "cells.h5ad cannot be read" in err
    assert not (tmp_path / "result").exists()
    assert hidden(tmp_path) == []
    err = run.fails("fit", cells, "--layer", "counts", "--out", tmp_path / "result", status=3)
    assert "doubled, raw" in err


def test_images_to_a_result_and_maps(tmp_path, run):
    images = np.random.default_rng(3).normal(size=(400, 3, 2, 2)).astype(np.float32)
    inside = np.zeros((3, 2, 2), np.uint8)
    inside[1:] = 1
    nibabel.save(nibabel.Nifti1Image(inside, np.eye(4)), tmp_path / "mask.nii.gz")
    series = nibabel.Nifti1Image(np.moveaxis(images, 0, -1), np.eye(4))
    nibabel.save(series, tmp_path / "brains.nii.gz")
    mask, folder, maps = tmp_path / "mask.nii.gz", tmp_path / "result", tmp_path / "maps"
    words = ("fit", tmp_path / "brains.nii.gz", "--mask", mask, "-k", 2, "--epsilon", 8)
    run.done(*words, "--out", folder, "--no-plots", "--quiet")
    model = PrivatePCA.load(folder / "model.npz")
    found = nibabel.load(folder / "maps.nii.gz").get_fdata()
    np.testing.assert_allclose(found[inside > 0], model.components_.T, atol=1e-6)
    drawn = {drawing.files[0]: drawing for drawing in presenter_of(model).drawings(model)}
    assert list(drawn) == ["scree.png", "maps.png"]
    assert drawn["maps.png"].draw().get_xticklabels()[0].get_text() == "z = 0"
    assert run("show", folder, "--maps", maps)[0] == 2  # without a mask
    assert run("show", folder, "--maps", maps, "--mask", mask)[0] == 0
    for name in ("maps.nii.gz", "mean.nii.gz"):
        assert (maps / name).read_bytes() == (folder / name).read_bytes()
    run.fails(
        "show", folder, "--maps", tmp_path / "m", "--mask", tmp_path / "brains.nii.gz", status=3
    )
    assert not (tmp_path / "m").exists()
    nibabel.save(nibabel.Nifti1Image(series.get_fdata()[..., ::-1], np.eye(4)), tmp_path / "b.nii")
    sites = ("--site", f"a={tmp_path / 'brains.nii.gz'}", "--site", f"b={tmp_path / 'b.nii'}")
    words = ("fit", *sites, "--mask", mask, "--one-row-per-person", "--epsilon", 8, "-q")
    run.done(*words, "--task", "ica", "--out", tmp_path / "ica", "--no-plots")
    ica = FederatedICA.load(tmp_path / "ica/model.npz")
    found = nibabel.load(tmp_path / "ica/maps.nii.gz").get_fdata()
    np.testing.assert_allclose(found[inside > 0], ica.mixing_, atol=1e-6)
    run.done(*words, "--task", "covariance", "--out", tmp_path / "c", "--no-plots")
    assert not (tmp_path / "c/maps.nii.gz").exists()
    err = run.fails("show", tmp_path / "c", "--maps", tmp_path / "m", "--mask", mask, status=3)
    assert "has no number for each voxel" in err
    assert not (tmp_path / "m").exists()
    assert hidden(tmp_path) == []
