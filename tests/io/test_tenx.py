"""Single cells as CellRanger writes them, whose matrices are genes x cells."""

from __future__ import annotations

import gzip

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from cell_tools import tenx_file
from row_formats import labels_of, values

from eigenveil import DataError
from eigenveil.io import open_rows

COUNTS = np.random.default_rng(2).poisson(0.7, (5, 12))  # cells x genes
BARCODES = [f"AAAC{i}-1" for i in range(5)]
IDS = [f"ENSG{i:011d}" for i in range(12)]
NAMES = ["TBCE", "TBCE", *(f"G{i}" for i in range(10))]
UNIQUE = ["TBCE", "TBCE-1", *NAMES[2:]]


def written(
    folder, matrix=COUNTS.T, *, names=NAMES, kinds=None, before="", packed=True, genes=False
):
    """A folder as CellRanger writes it; names of files as of version 2 with ``genes``."""
    folder.mkdir(exist_ok=True)
    end, pack = (".gz", gzip.compress) if packed else ("", bytes)
    kinds = kinds or ["Gene Expression"] * len(names)
    lines = zip(IDS, names, kinds, strict=False)
    text = "".join("\t".join(line[: 2 if genes else 3]) + "\n" for line in lines)
    matrix_file = folder / f"{before}matrix.mtx"
    scipy.io.mmwrite(matrix_file, scipy.sparse.coo_array(matrix))
    if packed:
        (folder / f"{before}matrix.mtx.gz").write_bytes(gzip.compress(matrix_file.read_bytes()))
        matrix_file.unlink()
    list_of_genes = "genes.tsv" if genes else "features.tsv"
    (folder / f"{before}{list_of_genes}{end}").write_bytes(pack(text.encode()))
    barcodes = "".join(f"{each}\n" for each in BARCODES)
    (folder / f"{before}barcodes.tsv{end}").write_bytes(pack(barcodes.encode()))
    return folder


@pytest.mark.parametrize("matrix", [COUNTS.T, COUNTS])
@pytest.mark.parametrize("how", [{}, {"packed": False, "genes": True}, {"before": "GSM12_"}])
def test_a_folder_is_one_matrix_of_cells(how, matrix, tmp_path):
    rows = open_rows([written(tmp_path / "run", matrix, **how)])
    assert list(rows.names) == UNIQUE
    np.testing.assert_array_equal(values(rows), COUNTS)
    sparse = [block.values.toarray() for block in rows.sparse_blocks()]
    np.testing.assert_array_equal(np.concatenate(sparse), COUNTS)
    assert [*labels_of(rows, "barcode")] == BARCODES
    assert len(rows.paths) == 1
    (file,) = (tmp_path / "run").glob("*matrix.mtx*")
    np.testing.assert_array_equal(values(open_rows([file])), COUNTS)


def test_several_runs_are_one_source(tmp_path):
    runs = [written(tmp_path / "one"), written(tmp_path / "two", packed=False)]
    np.testing.assert_array_equal(values(open_rows(runs)), np.concatenate([COUNTS, COUNTS]))
    everything = open_rows([str(tmp_path / "*" / "*")])
    np.testing.assert_array_equal(values(everything), np.concatenate([COUNTS, COUNTS]))


def test_as_many_genes_as_cells_are_genes_by_cells(tmp_path):
    square = COUNTS[:, :5]
    rows = open_rows([written(tmp_path / "run", square.T, names=NAMES[:5])])
    np.testing.assert_array_equal(values(rows), square)


def test_a_lone_matrix_stays_as_it_is(tmp_path):
    scipy.io.mmwrite(tmp_path / "matrix.mtx", scipy.sparse.coo_array(COUNTS))
    rows = open_rows([tmp_path / "matrix.mtx"])
    assert rows.names is None
    np.testing.assert_array_equal(values(rows), COUNTS)


def test_only_gene_expression_is_read_where_there_is_more(tmp_path):
    kinds = ["Gene Expression", "Antibody Capture"] * 6
    rows = open_rows([written(tmp_path / "run", kinds=kinds)])
    assert list(rows.names) == NAMES[::2]
    np.testing.assert_array_equal(values(rows), COUNTS[:, ::2])
    rows = open_rows([tenx_file(tmp_path / "cells.h5", COUNTS, NAMES, kinds=kinds)])
    np.testing.assert_array_equal(values(rows), COUNTS[:, ::2])


def test_lists_of_another_matrix_are_a_sentence(tmp_path):
    folder = written(tmp_path / "run", names=NAMES[:9])
    with pytest.raises(DataError, match="12 features of 5 cells, and there are names of 9"):
        open_rows([folder])
    (folder / "barcodes.tsv.gz").unlink()
    with pytest.raises(DataError, match=r"has no barcodes\.tsv"):
        open_rows([folder / "matrix.mtx.gz"])


def test_a_damaged_folder_is_a_sentence(tmp_path):
    folder = written(tmp_path / "run")
    for name in ("features.tsv.gz", "barcodes.tsv.gz", "matrix.mtx.gz"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-12])
        with pytest.raises(DataError, match=f"{name} cannot be read"):
            values(open_rows([folder]))
        (folder / name).write_bytes(whole)


def test_a_small_text_does_not_become_a_large_matrix(tmp_path):
    header = b"%%MatrixMarket matrix coordinate integer general\n1000000 1000000 900000000000\n"
    for name, content in (("a.mtx", header), ("b.mtx.gz", gzip.compress(header))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError) as refused:
            open_rows([tmp_path / name])
        assert refused.value.code == "file-too-large"


# -- The HDF5 files.


@pytest.mark.parametrize("old", [False, True])
def test_files_of_both_versions_are_read_as_cells(old, tmp_path):
    rows = open_rows([tenx_file(tmp_path / "cells.h5", COUNTS, NAMES, old=old)])
    assert list(rows.names) == UNIQUE
    np.testing.assert_array_equal(values(rows), COUNTS)
    assert [*labels_of(rows, "barcode")] == BARCODES


def test_an_hdf5_file_of_another_kind_says_what_it_holds(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["results"] = np.zeros((3, 3))
    with pytest.raises(DataError, match="holds 'results'"):
        open_rows([tmp_path / "other.h5"])
