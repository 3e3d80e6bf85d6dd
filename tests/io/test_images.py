"""Images: NIfTI with a public mask, and DICOM; every row is an image."""

from __future__ import annotations

import gzip

import nibabel
import numpy as np
import pytest
from image_tools import AFFINE, brain, slice_file
from row_formats import labels_of, values

from eigenveil import DataError, PrivatePCA
from eigenveil.io import ReadOptions, open_rows, write_maps

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
def test_a_row_is_a_volume_of_four_dimensions_with_its_scale(end, mask, tmp_path):
    # stored as whole numbers with slope and intercept
    path = brain(tmp_path / f"run{end}", np.moveaxis(BRAINS, 0, -1), stored=np.int16)
    rows = open_rows([path], read=ReadOptions(mask=mask))
    wanted = nibabel.load(path).get_fdata()[INSIDE].T
    np.testing.assert_array_equal(values(rows), wanted)
    assert np.abs(wanted - BRAINS[:, INSIDE]).max() < 1e-3
    assert [*labels_of(rows, "image")[:2]] == ["0", "1"]


def test_components_become_images_on_the_grid_of_the_mask(brains, mask, tmp_path):
    rows = open_rows([brains], read=ReadOptions(mask=mask), columns=["x2_y3_z1", "x1_y1_z1"])
    fitted = PrivatePCA(2, epsilon=5.0, random_state=0).fit_rows(rows)
    assert write_maps(fitted, mask, tmp_path) == [
        "component-1.nii.gz",
        "component-2.nii.gz",
        "mean.nii.gz",
    ]
    found = nibabel.load(tmp_path / "component-1.nii.gz")
    np.testing.assert_array_equal(found.affine, AFFINE)
    voxels = found.get_fdata()
    assert [voxels[2, 3, 1], voxels[1, 1, 1]] == pytest.approx(fitted.components_[0])
    voxels[2, 3, 1] = voxels[1, 1, 1] = 0
    assert not voxels.any()
    other = brain(tmp_path / "other.nii", (~INSIDE).astype(np.uint8))
    with pytest.raises(DataError, match="not voxels of"):
        write_maps(fitted, other, tmp_path)


def test_images_of_another_grid_are_named_with_what_differs(brains, mask, tmp_path):
    brain(brains / "z.nii", BRAINS[0, :3])
    with pytest.raises(DataError, match=r"z\.nii has shape 3 x 5 x 3, not 4 x 5 x 3 as .*mask"):
        open_rows([brains], read=ReadOptions(mask=mask))
    brain(brains / "z.nii", BRAINS[0], affine=AFFINE + np.diag([0.5, 0, 0, 0]))
    with pytest.raises(DataError, match=r"z\.nii has another affine: an entry differs by 0\.5"):
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
        with pytest.raises(DataError) as refused:
            open_rows([tmp_path / name])
        assert refused.value.code == "file-too-large"


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
    with pytest.raises(DataError) as refused:
        open_rows([series], columns=["PatientID"])
    assert refused.value.code == "missing-column"
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
    with pytest.raises(DataError, match=r"z\.dcm has shape 3 x 3, not 4 x 3") as refused:
        open_rows([series])
    assert refused.value.code == "other-grid"
    whole = slice_file(series / "z.dcm", PIXELS[0]).read_bytes()
    for content in (b"", b"no image", whole[:300], whole[:-5]):
        (series / "z.dcm").write_bytes(content)
        with pytest.raises(DataError, match=r"z\.dcm cannot be read"):
            values(open_rows([series]))
