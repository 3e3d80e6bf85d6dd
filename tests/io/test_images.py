"""Images: NIfTI with a public mask, and DICOM; every row is an image."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pandas as pd
import pytest
from image_tools import AFFINE, brain, slice_file
from row_formats import labels_of, values
from scipy.optimize import linear_sum_assignment

from eigenveil import (
    DataError,
    InvalidRowsWarning,
    PrivateCovariance,
    PrivateICA,
    PrivatePCA,
)
from eigenveil.io import ReadOptions, open_rows, write_maps
from eigenveil.io.formats.images import voxel_names
from eigenveil.plots import plot_maps
from refusal_tools import refuses

SHAPE = (4, 5, 3)
BRAINS = np.random.default_rng(4).normal(size=(12, *SHAPE)).astype(np.float32)
INSIDE = np.zeros(SHAPE, dtype=bool)
INSIDE[1:3, 1:4, 1] = True


@pytest.fixture
def mask(tmp_path):
    return brain(tmp_path / "mask.nii.gz", INSIDE.astype(np.uint8))


@pytest.fixture
def brains(tmp_path):
    """A file for each of two visits of six subjects, packed or not."""
    for number, image in enumerate(BRAINS):
        end = ".nii" if number % 2 else ".nii.gz"
        name = f"sub-{number // 2:02}_ses-{number % 2}_T1w{end}"
        brain(tmp_path / "brains" / name, image)
    return tmp_path / "brains"


def test_a_row_is_a_subject_and_a_column_a_voxel_of_the_mask(brains, mask, small_blocks):
    rows = open_rows([brains], read=ReadOptions(mask=mask), unit="subject")
    np.testing.assert_array_equal(values(rows), BRAINS[:, INSIDE])
    assert list(rows.names[:3]) == ["x1_y1_z1", "x1_y2_z1", "x1_y3_z1"]
    units = np.concatenate([block.units for block in rows.blocks()])
    assert [*units] == [f"{number // 2:02}" for number in range(12)]
    assert len(rows.paths) == 12  # a ledger knows each
    assert len(list(rows.blocks())) == 1  # one block, not one a file
    assert labels_of(rows, "file")[0] == "sub-00_ses-0_T1w.nii.gz"


def test_every_voxel_is_a_column_without_a_mask(brains, monkeypatch):
    np.testing.assert_array_equal(values(open_rows([brains])), BRAINS.reshape(12, -1))
    monkeypatch.setattr("eigenveil.tables.names.MOST_COLUMNS", 59)
    with pytest.raises(DataError, match="60 columns") as refused:
        open_rows([brains])
    assert "--mask" in refused.value.hint


@pytest.mark.parametrize("end", [".nii", ".nii.gz"])
def test_a_row_is_a_volume_of_four_dimensions_with_its_scale(end, mask, tmp_path, monkeypatch):
    monkeypatch.setattr("eigenveil.io.formats.images._AT_ONCE", 5 * 60)  # five, five and two
    # stored as whole numbers with slope and intercept
    path = brain(tmp_path / f"run{end}", np.moveaxis(BRAINS, 0, -1), stored=np.int16)
    rows = open_rows([path], read=ReadOptions(mask=mask))
    wanted = nibabel.load(path).get_fdata()[INSIDE].T
    np.testing.assert_array_equal(values(rows), wanted)
    assert np.abs(wanted - BRAINS[:, INSIDE]).max() < 1e-3
    assert [*labels_of(rows, "image")[:2]] == ["0", "1"]


# of two persons, along two maps
VOLUMES = np.random.default_rng(5).normal(size=(400, *SHAPE)).astype(np.float32)
VOLUMES[:, INSIDE] += np.random.default_rng(6).choice([-9.0, 9.0], (400, 2)) @ np.eye(2, 6)


@pytest.fixture
def runs(tmp_path):
    for person in range(2):
        volumes = np.moveaxis(VOLUMES[200 * person : 200 * (person + 1)], 0, -1)
        brain(tmp_path / "runs" / f"sub-{person}_bold.nii.gz", volumes)
    return tmp_path / "runs"


def fitted_to(rows, kind=PrivateICA):
    model = kind(2, epsilon=1e4, delta=1e-6, row_bound=60.0, random_state=0).fit_rows(rows)
    assert model.certificate_.stopped is None
    assert model.usable_.all()
    return model


def voxels(path):
    found = nibabel.load(path)
    np.testing.assert_array_equal(found.affine, AFFINE)
    assert found.get_data_dtype() == np.float32
    return found.get_fdata()


@pytest.mark.parametrize("kind", [PrivatePCA, PrivateICA])
def test_maps_are_images_on_the_grid_of_the_mask(kind, runs, mask, tmp_path):
    header = nibabel.load(mask)
    header.set_sform(AFFINE, code="mni")
    nibabel.save(header, mask)
    fitted = fitted_to(open_rows([runs], read=ReadOptions(mask=mask)), kind)
    assert write_maps(fitted, mask, tmp_path) == ["maps.nii.gz", "mean.nii.gz"]
    assert nibabel.load(tmp_path / "maps.nii.gz").header["sform_code"] == 4  # a viewer knows it
    wanted = fitted.mixing_ if kind is PrivateICA else fitted.components_.T
    maps = voxels(tmp_path / "maps.nii.gz")
    assert maps.shape == (*SHAPE, 2)
    np.testing.assert_allclose(maps[INSIDE], wanted, rtol=1e-6)
    assert not maps[~INSIDE].any()
    mean = voxels(tmp_path / "mean.nii.gz")
    np.testing.assert_allclose(mean[INSIDE], fitted.mean_, rtol=1e-6, atol=1e-9)


def test_maps_that_cannot_be_made_are_a_sentence(runs, mask, tmp_path):
    rows = open_rows([runs], read=ReadOptions(mask=mask))
    fitted = fitted_to(rows)
    larger = np.pad(INSIDE, 1)  # the same voxels, at other places
    every = np.ones(SHAPE, np.uint8)  # these voxels, and others
    for bad in (larger.astype(np.uint8), every):
        with pytest.raises(
            DataError, match=r"6 columns are not the \d+ voxels of .*bad"
        ) as refused:
            write_maps(fitted, brain(tmp_path / "bad.nii", bad), tmp_path)
        assert refused.value.code == "not-voxels"
    with pytest.raises(DataError, match="no voxel of the mask is inside"):
        write_maps(fitted, brain(tmp_path / "bad.nii", 0 * every), tmp_path)
    np.save(tmp_path / "mask.npy", INSIDE)
    with pytest.raises(DataError, match="does not say where its voxels lie"):
        write_maps(fitted, tmp_path / "mask.npy", tmp_path)
    table = PrivatePCA(2, epsilon=1e4, delta=1e-6, random_state=0).fit(VOLUMES[:, INSIDE])
    with pytest.raises(DataError, match="6 columns are not the 6 voxels"):
        write_maps(table, mask, tmp_path)
    covariance = PrivateCovariance(epsilon=1e4, delta=1e-6, random_state=0).fit_rows(rows)
    with pytest.raises(DataError, match="A PrivateCovariance has no number for each voxel"):
        write_maps(covariance, mask, tmp_path)
    assert not list(tmp_path.glob("*.gz.*"))
    assert not (tmp_path / "maps.nii.gz").exists()


def test_a_file_without_a_subject_has_no_such_label(brains, mask, tmp_path):
    path = brain(tmp_path / "P1.nii", BRAINS[0])
    rows = open_rows([path, brains], read=ReadOptions(mask=mask), unit="subject")
    assert [each for block in rows.blocks() for each in block.units][:2] == [None, "00"]
    with refuses("missing-column", "subject"):
        open_rows([path], read=ReadOptions(mask=mask), unit="subject")


def test_a_volume_with_a_voxel_that_is_no_number_is_left_out(runs, mask):
    rows = open_rows([runs], read=ReadOptions(mask=mask))
    np.testing.assert_array_equal(values(rows), VOLUMES[:, INSIDE])
    damaged = VOLUMES[200:].copy()
    damaged[3, 1, 1, 1] = np.nan
    brain(runs / "sub-1_bold.nii.gz", np.moveaxis(damaged, 0, -1))
    with pytest.warns(InvalidRowsWarning, match="row 204, column 'x1_y1_z1' is nan"):
        found = fitted_to(open_rows([runs], read=ReadOptions(mask=mask))).mixing_
    kept = np.delete(VOLUMES, 203, axis=0)
    brain(runs / "sub-1_bold.nii.gz", np.moveaxis(kept[200:], 0, -1))
    without = fitted_to(open_rows([runs], read=ReadOptions(mask=mask))).mixing_
    np.testing.assert_array_equal(found, without)


def test_a_picture_of_voxels_is_slices(runs, mask):
    fitted = fitted_to(open_rows([runs], read=ReadOptions(mask=mask)))
    axes = plot_maps(fitted)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["z = 1"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["source 1", "source 2"]
    picture = np.ma.getdata(axes.images[0].get_array())
    assert picture.shape == (2 * 5, 4)
    lower, upper = picture[1:4, 1:3], picture[6:9, 1:3]  # y is upwards, x to the right
    np.testing.assert_array_equal(upper.T.ravel(), fitted.mixing_[:, 0])
    np.testing.assert_array_equal(lower.T.ravel(), fitted.mixing_[:, 1])


def test_a_column_is_the_mean_of_a_region_of_an_atlas(runs, tmp_path):
    labels = np.zeros(SHAPE, np.float32)
    labels[1:3, 1:3, 1], labels[1:3, 3, 1], labels[3, 4, 2] = 7, 3, 12
    atlas = brain(tmp_path / "atlas.nii.gz", labels)
    rows = open_rows([runs], read=ReadOptions(mask=atlas, regions=True))
    assert list(rows.names) == ["region_3", "region_7", "region_12"]
    wanted = [VOLUMES[:, labels == number].mean(axis=1) for number in (3, 7, 12)]
    np.testing.assert_allclose(values(rows), np.transpose(wanted), atol=1e-5)
    fitted = PrivatePCA(1, epsilon=1e4, delta=1e-6, row_bound=10.0, random_state=0).fit_rows(rows)
    assert fitted.usable_.all()
    write_maps(fitted, atlas, tmp_path)
    maps = voxels(tmp_path / "maps.nii.gz")
    for place, number in enumerate((3, 7, 12)):  # the whole region has the column's value
        everywhere = np.broadcast_to(fitted.components_[:, place], maps[labels == number].shape)
        np.testing.assert_allclose(maps[labels == number], everywhere, rtol=1e-6)
    assert not maps[labels == 0].any()
    with pytest.raises(DataError, match="3 columns are not the 2 regions of"):
        write_maps(fitted, brain(tmp_path / "b.nii", np.minimum(labels, 7)), tmp_path)
    for bad in (labels / 2, -labels, np.where(labels, np.inf, labels)):
        with pytest.raises(DataError, match=r"b\.nii .* not numbered by whole numbers from 1"):
            write_maps(fitted, brain(tmp_path / "b.nii", bad), tmp_path)
    with refuses("regions-without-mask", "none is given"):
        open_rows([runs], read=ReadOptions(regions=True))


@pytest.mark.thorough
def test_networks_are_found_as_the_tutorial_says():
    """Correlations of .97, and wanted .9; noise moves them by .002: false alarms below 1e-9."""
    page = Path(__file__).parents[2] / "docs/tutorials/fmri.md"
    made: dict[str, Any] = {}
    exec(page.read_text().split("```{code-cell}\n")[1].split("nibabel.save(nibabel")[0], made)
    persons, volumes = 6000, 20
    rows = pd.DataFrame(np.concatenate([made["person"]() for _ in range(persons)]))
    rows.columns = voxel_names(made["mask"])
    rows["subject"] = np.repeat(np.arange(persons), volumes).astype(str)
    options = {"unit": "subject", "max_rows_per_unit": volumes, "center": False, "row_bound": 0.5}
    ica = PrivateICA(8, epsilon=1.0, delta=1e-5, **options).fit(rows)
    assert ica.usable_.all()
    truth = [made["network"](centre, 0.3) for centre in made["centres"]]
    alike = np.abs(np.corrcoef(ica.mixing_.T, truth)[:8, 8:])
    assert alike[linear_sum_assignment(-alike)].min() >= 0.9


def test_images_of_another_grid_are_named_with_what_differs(brains, mask, tmp_path):
    brain(brains / "z.nii", BRAINS[0, :3])
    with pytest.raises(DataError, match=r"grid of .*mask.*: it has shape 3 x 5 x 3, not 4 x 5 x 3"):
        open_rows([brains], read=ReadOptions(mask=mask))
    brain(brains / "z.nii", BRAINS[0], affine=AFFINE + np.diag([0.5, 0, 0, 0]))
    with pytest.raises(DataError, match=r"z\.nii .* an affine that differs by 0\.5"):
        open_rows([brains])
    (brains / "z.nii").unlink()
    for bad in (np.zeros(SHAPE), np.full(SHAPE, np.nan)):
        with pytest.raises(DataError, match="no voxel of the mask is inside"):
            open_rows([brains], read=ReadOptions(mask=brain(tmp_path / "none.nii", bad)))


def test_damaged_images_are_a_sentence(brains, tmp_path):
    for name in ("sub-00_ses-0_T1w.nii.gz", "sub-00_ses-1_T1w.nii"):
        whole = (brains / name).read_bytes()
        for content in (b"", b"no image", whole[:200], whole[:-20]):
            (brains / name).write_bytes(content)
            with pytest.raises(DataError, match=f"{name} (cannot be read|is not read)"):
                values(open_rows([brains]))
        (brains / name).write_bytes(whole)


def test_a_small_file_does_not_become_a_large_image(tmp_path):
    header = nibabel.Nifti1Header()
    header.set_data_shape((30000, 30000, 30000))
    content = header.binaryblock + bytes(4)
    for name, packed in (("a.nii", content), ("a.nii.gz", gzip.compress(content))):
        (tmp_path / name).write_bytes(packed)
        with refuses("file-too-large"):
            open_rows([tmp_path / name])


# -- DICOM.


PIXELS = np.random.default_rng(6).integers(0, 4000, (6, 4, 3))


@pytest.fixture
def series(tmp_path):
    for number, pixels in enumerate(PIXELS):
        slice_file(tmp_path / "series" / f"{number}.dcm", pixels, patient=f"p{number // 2}")
    return tmp_path / "series"


def test_a_row_is_an_image_in_the_units_of_its_header(series, tmp_path):
    rows = open_rows([series], unit="PatientID")
    np.testing.assert_array_equal(values(rows), 2.0 * PIXELS.reshape(6, -1) - 1000)
    assert list(rows.names[:4]) == ["y0_x0", "y0_x1", "y0_x2", "y1_x0"]
    units = np.concatenate([block.units for block in rows.blocks()])
    assert [*units] == ["p0", "p0", "p1", "p1", "p2", "p2"]
    np.save(tmp_path / "mask.npy", np.eye(4, 3))
    rows = open_rows([series], read=ReadOptions(mask=tmp_path / "mask.npy"))
    np.testing.assert_array_equal(values(rows), 2.0 * PIXELS[:, range(3), range(3)] - 1000)


def test_a_row_is_a_frame_where_a_file_has_several(tmp_path):
    path = slice_file(tmp_path / "a.dcm", PIXELS, slope=None, frames=6)
    np.testing.assert_array_equal(values(open_rows([path])), PIXELS.reshape(6, -1))


def test_nothing_that_a_header_says_of_a_person_is_a_feature_or_published(series, tmp_path):
    with refuses("missing-column"):
        open_rows([series], columns=["PatientID"])
    fitted = PrivatePCA(2, epsilon=5.0, random_state=0).fit_rows(
        open_rows([series], unit="PatientID")
    )
    fitted.save(tmp_path / "model.npz")
    published = str(dict(np.load(tmp_path / "model.npz", allow_pickle=False)))
    published += fitted.certificate_.model_dump_json()
    for secret in ("Doe", "'p1'", '"p1"', "1.2.3"):
        assert secret not in published


def test_damaged_and_other_series_are_a_sentence(series):
    slice_file(series / "z.dcm", PIXELS[0, :3])
    with refuses("other-grid", r"z\.dcm is not .* shape 3 x 3, not 4 x 3"):
        open_rows([series])
    whole = slice_file(series / "z.dcm", PIXELS[0]).read_bytes()
    for content in (b"", b"no image", whole[:300], whole[:-5]):
        (series / "z.dcm").write_bytes(content)
        with pytest.raises(DataError, match=r"z\.dcm cannot be read"):
            values(open_rows([series]))
