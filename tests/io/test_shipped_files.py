"""Files that the field's packages carry for their own tests are read as these packages do it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from eigenveil.errors import DataError
from eigenveil.io import ReadOptions, open_rows


def shipped(package, *names):
    """A file in an installed package; the test is skipped where it is absent."""
    found = find_spec(package)
    place = None if found is None else Path(found.origin).parent.joinpath(*names)
    if place is None or not place.exists():
        pytest.skip(f"{package} with its {names[-1]} is not installed")
    return place


def values(rows):
    blocks = [block.values for block in rows.blocks()]
    return np.concatenate([each.toarray() if hasattr(each, "toarray") else each for each in blocks])


@pytest.fixture
def brain():
    return shipped("nibabel", "tests", "data", "example4d.nii.gz")


@pytest.fixture
def mask(tmp_path):
    wanted = np.zeros((128, 96, 24), dtype=bool)
    wanted[60:70, 40:50, 10:15] = True
    np.save(tmp_path / "mask.npy", wanted)
    return tmp_path / "mask.npy"


def test_nibabel_s_image_of_four_dimensions(brain, mask):
    import nibabel

    found = values(open_rows([brain], read=ReadOptions(mask=mask)))
    wanted = nibabel.load(brain).get_fdata()[np.load(mask)].T
    assert found.shape == (2, 500)
    np.testing.assert_allclose(np.sort(found), np.sort(wanted))


def test_a_mask_of_another_grid_or_a_part_of_one_is_refused(brain, mask):
    for content in (np.load(mask)[1:], None):
        if content is None:
            mask.write_bytes(mask.read_bytes()[:5000])
        else:
            np.save(mask, content)
        with pytest.raises(DataError, match=r"127 x 96 x 24|mask\.npy cannot be read"):
            open_rows([brain], read=ReadOptions(mask=mask))
        np.save(mask, np.ones((128, 96, 24), dtype=bool))


def test_half_of_nibabel_s_image_is_refused(brain, mask, tmp_path):
    cut = tmp_path / "cut.nii.gz"
    cut.write_bytes(brain.read_bytes()[: brain.stat().st_size // 2])
    with pytest.raises(DataError, match=r"cut\.nii\.gz cannot be read"):
        values(open_rows([cut], read=ReadOptions(mask=mask)))


def test_pydicom_s_slice():
    file = shipped("pydicom", "data", "test_files", "MR_small.dcm")
    import pydicom

    found = values(open_rows([file]))
    np.testing.assert_array_equal(
        np.sort(found[0]), np.sort(pydicom.dcmread(file).pixel_array, None)
    )


@pytest.mark.parametrize("name", ["MR_truncated.dcm", "rtplan.dcm", "SC_rgb_rle.dcm"])
def test_pydicom_s_files_that_are_no_slices_are_refused(name):
    file = shipped("pydicom", "data", "test_files", name)
    with pytest.raises(DataError, match=f"{name} cannot be read"):
        values(open_rows([file]))


def test_bed_reader_s_samples():
    file = shipped("bed_reader", "tests", "data", "some_missing.bed")
    import bed_reader

    with bed_reader.open_bed(file) as bed:
        wanted = bed.read()
    rows = open_rows([file])
    assert rows.features == wanted.shape[1]
    np.testing.assert_array_equal(values(rows), wanted)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("small_too_short.bed", "has 6 bytes"),
        ("smallmode0.bed", "is stored sample by sample"),
        ("small_no_bim.bed", r"has no \.bim"),
    ],
)
def test_bed_reader_s_damaged_files_are_refused(name, said):
    with pytest.raises(DataError, match=said):
        open_rows([shipped("bed_reader", "tests", "data", name)])


def test_scanpy_s_cells():
    rows = open_rows([shipped("scanpy", "datasets", "10x_pbmc68k_reduced.h5ad")])
    assert values(rows).shape == (700, 765)


def test_statsmodels_tables():
    for name, columns in (("fair", 9), ("randhie", 10), ("modechoice", 9)):
        rows = open_rows([shipped("statsmodels", "datasets", name, f"{name}.csv")])
        assert rows.features == columns
        assert np.isfinite(values(rows)).all()
