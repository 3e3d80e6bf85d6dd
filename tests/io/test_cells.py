"""Single cells: AnnData in memory and in files, by rows, by columns and dense."""

from __future__ import annotations

import os
import tracemalloc
import warnings

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from cell_tools import GENES, KINDS, cells_of, made_cells, saved
from row_formats import labels_of, values

from eigenveil import (
    BudgetExceeded,
    DataError,
    FederatedPCA,
    NoisyResultWarning,
    PrivateCovariance,
    PrivatePCA,
    PrivateStreamingPCA,
    PrivateTopicModel,
    checks,
)
from eigenveil.io import ReadOptions, annotate, open_rows, read_cells
from eigenveil.tables.names import gene_names, unique
from eigenveil.tables.schema import Column, Schema
from refusal_tools import refuses

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def small_parts(monkeypatch):
    """Makes parts of few rows and entries, and temporary files of few bytes."""
    monkeypatch.setattr("eigenveil.io.formats.hierarchy._ENTRIES", 100)
    monkeypatch.setattr("eigenveil.io.formats.hierarchy._POINTERS", 16)
    monkeypatch.setattr("eigenveil.io.formats.hierarchy._IN_MEMORY", 1000)
    monkeypatch.setattr("eigenveil.io.open.block_rows", lambda features: 16)


@pytest.mark.parametrize("ending", [".h5ad", ".zarr"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_matrix_of_a_store_is_read(kind, ending, tmp_path, small_parts):
    adata, counts = made_cells(kind)
    path = saved(adata, tmp_path / f"cells{ending}")
    of_layers = ((None, 1), ("doubled", 2), ("raw", 3))
    for layer, times in of_layers if ending == ".h5ad" else of_layers[2:]:  # zarr takes its time
        rows = open_rows([path], unit="donor_id", read=ReadOptions(layer=layer))
        assert list(rows.names) == list(adata.var_names)
        np.testing.assert_array_equal(values(rows), times * counts)
        sparse = [block.values.toarray() for block in rows.sparse_blocks()]
        np.testing.assert_array_equal(np.concatenate(sparse), times * counts)
        units = np.concatenate([block.units for block in rows.blocks()])
        assert [*units[:4]] == ["d0", "d1", None, "d3"]


def test_labels_of_all_kinds_are_read_as_texts(tmp_path):
    adata, _ = made_cells()
    for ending in (".h5ad", ".zarr"):
        rows = open_rows([saved(adata, tmp_path / f"cells{ending}")])
        names = ("index", "donor_id", "lane", "quality", "doublet")
        found = {name: labels_of(rows, name) for name in names}
        assert [*found["index"][:2]] == ["cell0", "cell1"]
        assert [*found["donor_id"][:3]] == ["d0", "d1", None]
        assert [*found["lane"][:2]] == ["0", "1"]
        assert [*found["quality"][:2]] == ["0.5", None]
        assert found["doublet"][0] is None
        assert found["doublet"][1] == "1"


def test_stores_of_older_versions_are_read(tmp_path):
    """Records in place of groups (before 0.7), and levels in a group of their own (0.7)."""
    _, counts = made_cells()
    old, newer = tmp_path / "old.h5ad", tmp_path / "newer.h5ad"
    matrix = scipy.sparse.csr_matrix(counts)
    codes = (np.arange(90) % 2).astype(np.int8)
    with h5py.File(old, "w") as file:
        group = file.create_group("X")
        group.attrs["h5sparse_format"], group.attrs["h5sparse_shape"] = b"csr", matrix.shape
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(matrix, name)
        index = np.array([f"c{i}".encode() for i in range(90)], dtype="S8")
        file["obs"] = np.rec.fromarrays([index, codes], names=["index", "donor"])
        file["var"] = np.rec.fromarrays(
            [np.array([f"G{i}" for i in range(20)], "S8")], names="index"
        )
        file["uns/donor_categories"] = np.array([b"north", b"south"])
    with h5py.File(newer, "w") as file:
        file["X"] = counts
        obs, var = file.create_group("obs"), file.create_group("var")
        obs.attrs["_index"], obs.attrs["column-order"] = "_index", np.array(["donor"], "O")
        obs["_index"], obs["donor"] = index, codes
        obs["__categories/donor"] = np.array([b"north", b"south"])
        var.attrs["_index"], var["gene"] = "gene", np.array([f"G{i}" for i in range(20)], "S8")
    for path in (old, newer):
        rows = open_rows([path], unit="donor")
        np.testing.assert_array_equal(values(rows), counts)
        assert [*np.concatenate([b.units for b in rows.blocks()])[:3]] == [
            "north",
            "south",
            "north",
        ]
        assert rows.names[0] == "G0"


def test_a_large_store_is_read_in_bounded_memory(tmp_path, monkeypatch):
    """Not more than a few blocks at once, of 20,000 cells x 1,000 genes: 160 MB if dense."""
    monkeypatch.setattr("eigenveil.io.formats.hierarchy._ENTRIES", 1 << 16)
    monkeypatch.setattr("eigenveil.io.formats.hierarchy._IN_MEMORY", 1 << 16)
    matrix = scipy.sparse.random_array((20000, 1000), density=0.02, rng=3, format="csr")
    total = matrix.sum()
    for kind in ("csr", "csc"):
        adata = anndata.AnnData(matrix.asformat(kind))
        adata.var_names = [f"G{i}" for i in range(1000)]
        path = saved(adata, tmp_path / f"{kind}.h5ad")
        rows = open_rows([path])
        tracemalloc.start()
        found = sum(float(block.values.sum()) for block in rows.blocks())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found == pytest.approx(total)
        assert peak < 40e6, (kind, peak)


# -- Names of genes.


def test_an_index_that_only_counts_is_no_name():
    numbers = [str(i) for i in range(12)]
    symbols = [f"G{i}" for i in range(12)]
    assert gene_names("x", symbols, {}) == symbols
    assert gene_names("x", numbers, {}) == [f"c{i}" for i in range(1, 13)]
    assert gene_names("x", range(12), {"gene_name": lambda: symbols}) == symbols
    entrez = [str(100287102 + 7 * i) for i in range(12)]
    assert (
        gene_names("x", entrez, {"n_cells": lambda: numbers, "symbol": lambda: symbols}) == symbols
    )
    with refuses("header-is-data") as refused:  # as the first cell of a file without names
        gene_names("x", ["0.0", "0.0.1", "3.0", "0.0.2"], {"n_cells": lambda: [1, 2, 3, 4]})
    assert "3.0" not in str(refused.value)


def test_names_that_are_there_twice_get_numbers_as_by_anndata():
    names = ["A", "B", "A", "A-1", "A", "B"]
    frame = anndata.AnnData(np.zeros((1, 6)), var=pd.DataFrame(index=names))
    frame.var_names_make_unique()
    assert unique(names) == list(frame.var_names)


def test_genes_that_a_spreadsheet_damaged_are_names_among_many(tmp_path):
    names = ["1-Mar", "2-Sep", *(f"G{i}" for i in range(120))]
    adata = anndata.AnnData(np.ones((4, 122), np.float32), var=pd.DataFrame(index=names))
    assert list(open_rows([saved(adata, tmp_path / "cells.h5ad")]).names) == names
    few = adata[:, :50].copy()  # a row of a table may look like this
    with refuses("header-is-data"):
        open_rows([saved(few, tmp_path / "few.h5ad")])


# -- Estimators take cells.


def private(**options):
    return PrivatePCA(3, epsilon=5.0, random_state=0, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_of_cells_is_that_of_their_array(kind, tmp_path):
    adata, counts = made_cells(kind, cells=600)
    donors = np.asarray(adata.obs["donor_id"].astype(object))
    wanted = private().fit(counts, groups=donors).components_
    fitted = private(unit="donor_id").fit(adata)
    np.testing.assert_array_equal(fitted.components_, wanted)
    assert list(fitted.feature_names_in_[:6]) == GENES
    assert fitted.guarantee_.unit == "donor_id"
    backed = anndata.read_h5ad(saved(adata, tmp_path / "cells.h5ad"), backed="r")
    np.testing.assert_array_equal(private(unit="donor_id").fit(backed).components_, wanted)
    rows = open_rows([tmp_path / "cells.h5ad"], unit="donor_id")
    np.testing.assert_array_equal(private().fit_rows(rows).components_, wanted)
    np.testing.assert_array_equal(private().fit(adata, groups=donors).components_, wanted)
    doubled = private().fit_rows(read_cells(backed[:, :], layer="doubled", unit="donor_id"))
    np.testing.assert_allclose(np.abs(doubled.components_ @ wanted.T), np.eye(3), atol=0.05)


def test_new_cells_are_matched_by_their_genes():
    adata, counts = made_cells(cells=600)
    fitted = private(unit="donor_id").fit(adata)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NoisyResultWarning)
        scores = fitted.transform(adata)
        np.testing.assert_allclose(fitted.transform(adata[:, ::-1]), scores, atol=1e-4)
    np.testing.assert_allclose(scores, fitted.transform(counts), atol=1e-4)
    with pytest.raises(DataError, match="no gene 'MARCH1'"):
        fitted.transform(adata[:, 1:])


def test_sites_streams_and_other_tasks_take_cells():
    adata, counts = made_cells(cells=600)
    sites = {"north": adata[:300], "south": adata[300:, ::-1]}
    options = {"epsilon": 5.0, "random_state": 0}
    found = FederatedPCA(3, unit="donor_id", **options).fit(sites)
    ids = np.asarray(adata.obs["donor_id"].astype(object))
    arrays = {"north": counts[:300], "south": counts[300:]}
    units = {"north": ids[:300], "south": ids[300:]}
    wanted = FederatedPCA(3, unit="donor_id", **options).fit(arrays, groups=units)
    np.testing.assert_array_equal(found.components_, wanted.components_)
    assert list(found.feature_names_in_[:6]) == GENES
    stream = PrivateStreamingPCA(3, unit="donor_id", **options)
    stream.partial_fit(adata[:300]).partial_fit(adata[300:]).release()
    assert list(stream.feature_names_in_[:6]) == GENES
    topics = PrivateTopicModel(2, epsilon=100.0, random_state=0).fit(adata)
    assert topics.transform(adata).shape == (600, 2)
    covariance = PrivateCovariance(epsilon=5.0, random_state=0).fit(adata)
    assert np.isfinite(covariance.score(adata))


def test_one_anndata_is_not_several_sites():
    with pytest.raises(DataError, match="one array, not one for each site"):
        FederatedPCA(2).fit(made_cells()[0])


@pytest.mark.parametrize(
    ("read", "code", "known"),
    [
        (lambda a: read_cells(a, layer="counts"), "missing-layer", "X, doubled, raw"),
        (lambda a: read_cells(a, unit="person"), "no-unit-column", "'donor_id', 'lane'"),
        (lambda a: private(unit="person").fit(a), "no-unit-column", "'donor_id', 'lane'"),
        (lambda a: private(unit="lane").fit(a, groups=np.ones(90)), "units-given-twice", ""),
        (lambda a: private().fit(a[:0]), "too-few-cells", ""),
        (lambda a: read_cells(a.X), "not-cells", ""),
    ],
)
def test_what_cells_do_not_have_is_named(read, code, known):
    with refuses(code) as refused:
        read(made_cells()[0])
    assert known in str(refused.value)


def test_a_fitted_model_is_written_as_scanpy_names_it():
    adata, _ = made_cells(cells=600)
    genes = adata[:, 3:]
    fitted = private(unit="donor_id").fit(genes)
    annotate(adata, fitted)
    np.testing.assert_array_equal(adata.obsm["X_pca"], fitted.transform(adata))
    np.testing.assert_array_equal(adata.varm["PCs"][3:], fitted.components_.T)
    assert not adata.varm["PCs"][:3].any()
    np.testing.assert_array_equal(adata.uns["pca"]["variance"], fitted.explained_variance_)
    assert fitted.certificate_.model_dump_json() == adata.uns["eigenveil"]["certificate"]


# -- Files that cannot be read.


def damaged(path, name, change):
    with h5py.File(path, "r+") as file:
        array = change(file[name][...])
        attributes = dict(file[name].attrs)
        del file[name]
        file[name] = array
        file[name].attrs.update(attributes)


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ({"read": ReadOptions(layer="counts")}, "missing-layer", "X (the usual), doubled, raw"),
        ({"unit": "person"}, "missing-column", "'index', 'donor_id', 'lane'"),
        ({"columns": ["donor_id"]}, "missing-column", "'donor_id'"),
        ({"exclude": ["XIST"]}, "nothing-to-exclude", "'XIST'"),
        ({"schema": Schema((Column("ID1", "number"),))}, "not-a-table", ""),
    ],
)
def test_what_is_not_there_is_named(given, code, said, tmp_path):
    path = saved(made_cells()[0], tmp_path / "cells.h5ad")
    with refuses(code) as refused:
        open_rows([path], **given)
    assert said in str(refused.value)


def test_a_table_may_stand_beside_cells(tmp_path):
    cells = saved(cells_of(np.eye(2), ["a", "b"], who=["p1", None]), tmp_path / "cells.h5ad")
    table = tmp_path / "more.csv"
    table.write_text("b,who,a\n3,p1,4\n")
    rows = open_rows([cells, table], unit="who")
    np.testing.assert_array_equal(values(rows), [[1, 0], [0, 1], [4, 3]])
    assert [unit for block in rows.blocks() for unit in block.units] == ["p1", None, "p1"]
    assert labels_of(rows, "who") == ["p1", None, "p1"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("X/indptr", lambda a: a[:-1]),
        ("X/indptr", lambda a: a[::-1]),
        ("X/indptr", lambda a: a + 5),
        ("X/indices", lambda a: a + 15),
        ("X/indices", lambda a: a - 5),
        ("X/data", lambda a: a[:-3]),
        ("obs/donor_id/codes", lambda a: a + 3),
        ("obs/donor_id/codes", lambda a: a[1:]),
        ("obs/_index", lambda a: a[1:]),
        ("var/_index", lambda a: a[1:]),
        ("var/_index", lambda a: a.reshape(4, 5)),
    ],
)
@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_arrays_that_do_not_fit_together_are_a_sentence(kind, name, change, tmp_path):
    path = saved(made_cells(kind)[0], tmp_path / "cells.h5ad")
    damaged(path, name, change)
    with refuses("unreadable", r"cells\.h5ad cannot be read"):
        values(open_rows([path], unit="donor_id"))


def test_a_foreign_file_is_a_sentence(tmp_path):
    with h5py.File(tmp_path / "cells.h5ad", "w") as file:
        file["X"] = np.zeros((2, 3))
    with pytest.raises(DataError, match=r"cells\.h5ad cannot be read: it has no element 'obs'"):
        open_rows([tmp_path / "cells.h5ad"])


def test_a_small_file_does_not_become_a_large_array(tmp_path):
    path = saved(made_cells()[0], tmp_path / "cells.h5ad")
    with h5py.File(path, "r+") as file:
        del file["obs/donor_id/codes"]  # of which no chunk is stored
        file["obs/donor_id"].create_dataset("codes", (1 << 34,), "i1", chunks=(1 << 20,))
    with refuses("file-too-large"):
        values(open_rows([path], unit="donor_id"))
    with h5py.File(path, "r+") as file:
        del file["layers/doubled"]
        file["layers"].create_dataset(
            "doubled", (90, 20), "f4", maxshape=(None, 20), chunks=(1 << 25, 20)
        )
    with refuses("file-too-large"):
        open_rows([path], read=ReadOptions(layer="doubled"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_a_sentence(tmp_path):
    path = saved(made_cells()[0], tmp_path / "cells.h5ad")
    path.chmod(0)
    with pytest.raises(DataError, match="Permission denied"):
        open_rows([path])


def test_a_missing_library_names_its_extra(tmp_path, monkeypatch):
    path = saved(made_cells()[0], tmp_path / "cells.h5ad")

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(checks, "import_module", missing)
    with refuses("extra-missing", r"eigenveil\[cells\]"):
        open_rows([path])


def test_a_ledger_knows_backed_cells_by_their_file(tmp_path):
    path = saved(made_cells(cells=600)[0], tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(path, backed="r")
    assert read_cells(backed).paths == (path,)
    assert read_cells(backed.to_memory()).paths == ()
    ledger = str(tmp_path / "lab.ledger")
    private(unit="donor_id", ledger=ledger).fit(backed)
    with pytest.raises(BudgetExceeded):  # the same file, by another way
        private(ledger=ledger).fit_rows(open_rows([path], unit="donor_id"))


def test_a_store_that_is_a_folder_has_one_account(tmp_path):
    rows = open_rows([saved(made_cells(cells=600)[0], tmp_path / "cells.zarr")], unit="donor_id")
    ledger = str(tmp_path / "lab.ledger")
    private(ledger=ledger).fit_rows(rows)
    (tmp_path / "cells.zarr").rename(tmp_path / "renamed.zarr")
    again = open_rows([tmp_path / "renamed.zarr"], unit="donor_id")
    with pytest.raises(BudgetExceeded):
        private(ledger=ledger).fit_rows(again)
