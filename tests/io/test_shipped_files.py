"""Files that the field's packages carry for their own tests are read as these packages do it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from row_formats import values

from eigenveil.errors import DataError
from eigenveil.io import ReadOptions, open_rows


def shipped(package, *names):
    """A file in an installed package; the test is skipped where it is absent."""
    found = find_spec(package)
    place = None if found is None else Path(found.origin).parent.joinpath(*names)
    if place is None or not place.exists():
        pytest.skip(f"{package} with its {names[-1]} is not installed")
    return place


def pixels(file):
    import pydicom

    return pydicom.dcmread(file).pixel_array.reshape(1, -1)


def genotypes(file):
    """Counts of A1."""
    import bed_reader

    with bed_reader.open_bed(file, count_A1=True) as bed:
        return bed.read(dtype="float32")


DATA = {  # package, its file, and its rows, or how many columns
    "pixels": ("pydicom", "data/test_files/MR_small.dcm", pixels),
    "missing calls": ("bed_reader", "tests/data/some_missing.bed", genotypes),
    "simulated calls": ("bed_reader", "tests/data/plink_sim_10s_100v_10pmiss.bed", genotypes),
    "cells": ("scanpy", "datasets/10x_pbmc68k_reduced.h5ad", 765),
    "fair": ("statsmodels", "datasets/fair/fair.csv", 9),
    "randhie": ("statsmodels", "datasets/randhie/randhie.csv", 10),
    "modechoice": ("statsmodels", "datasets/modechoice/modechoice.csv", 9),
}


@pytest.mark.parametrize("name", DATA)
def test_a_file_is_read_as_its_package_reads_it(name):
    package, path, wanted = DATA[name]
    file = shipped(package, *path.split("/"))
    found = values(open_rows([file]))
    if isinstance(wanted, int):
        assert found.shape[1] == wanted
        assert np.isfinite(found).all()
    else:  # in an order of its own
        np.testing.assert_array_equal(np.sort(found, None), np.sort(wanted(file), None))


@pytest.mark.parametrize(
    ("package", "path", "said"),
    [
        ("pydicom", "data/test_files/MR_truncated.dcm", "cannot be read"),
        ("pydicom", "data/test_files/rtplan.dcm", "cannot be read"),
        ("pydicom", "data/test_files/SC_rgb_rle.dcm", "cannot be read"),
        ("bed_reader", "tests/data/small_too_short.bed", "has 6 bytes"),
        ("bed_reader", "tests/data/smallmode0.bed", "is stored sample by sample"),
        ("bed_reader", "tests/data/small_no_bim.bed", r"has no \.bim"),
    ],
)
def test_a_damaged_file_is_refused(package, path, said):
    file = shipped(package, *path.split("/"))
    with pytest.raises(DataError, match=f"{file.stem}.*{said}"):
        values(open_rows([file]))


def test_nibabel_s_image_of_four_dimensions(tmp_path):
    brain = shipped("nibabel", "tests", "data", "example4d.nii.gz")
    import nibabel

    inside = np.zeros((128, 96, 24), dtype=bool)
    inside[60:70, 40:50, 10:15] = True
    mask = tmp_path / "mask.npy"
    np.save(mask, inside)
    found = values(open_rows([brain], read=ReadOptions(mask=mask)))
    wanted = nibabel.load(brain).get_fdata()[inside].T
    assert found.shape == (2, 500)
    np.testing.assert_allclose(np.sort(found), np.sort(wanted))
    cut = tmp_path / "cut.nii.gz"
    cut.write_bytes(brain.read_bytes()[: brain.stat().st_size // 2])
    with pytest.raises(DataError, match=r"cut\.nii\.gz cannot be read"):
        values(open_rows([cut], read=ReadOptions(mask=mask)))
    np.save(mask, inside[1:])
    with pytest.raises(DataError, match="127 x 96 x 24"):
        open_rows([brain], read=ReadOptions(mask=mask))
    mask.write_bytes(mask.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"mask\.npy cannot be read"):
        open_rows([brain], read=ReadOptions(mask=mask))
