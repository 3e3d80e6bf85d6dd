"""Matrices whose columns have names and whose rows have labels, such as single cells."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from row_formats import labels_of

from eigenveil import DataError
from eigenveil.io import open_rows, write_columns
from eigenveil.io.formats import registry
from eigenveil.io.formats.arrays import Header, NamedArrayFile, SparseArrayFile
from eigenveil.tables.schema import Column, Schema

GENES = ("ACTB", "CD4", "CD8A")
ROWS = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [0.0, 0.0, 4.0], [5.0, 6.0, 0.0]])
DONORS = ["d1", "d2", None, "d1"]


class DenseCells(NamedArrayFile):
    label_names = ("donor",)

    def _header(self):
        return Header(ROWS.shape, fortran=False, dtype=ROWS.dtype)

    def _names(self):
        return GENES

    def row_labels(self, name):
        return DONORS

    def parts(self, step):
        yield from (ROWS[start : start + 3] for start in range(0, len(ROWS), 3))


class SparseCells(DenseCells, SparseArrayFile):
    def sparse_parts(self, step):
        yield from (scipy.sparse.csr_array(part) for part in DenseCells.parts(self, step))

    parts = SparseArrayFile.parts


@pytest.fixture(params=[DenseCells, SparseCells])
def cells(request, tmp_path, monkeypatch):
    made = registry.Format("cells", (".cells",), f"{__name__}:{request.param.__name__}")
    monkeypatch.setattr(registry, "formats", lambda: {"cells": made, **dict(FORMATS)})
    monkeypatch.setattr(registry, "_named", lambda place: NAMED.get(place) or OTHERS(place))
    (tmp_path / "one.cells").touch()
    return tmp_path / "one.cells"


FORMATS = registry.formats()
OTHERS = registry._named
NAMED = {f"{__name__}:{kind.__name__}": kind for kind in (DenseCells, SparseCells)}


def read(rows, *, sparse=False):
    blocks = list(rows.sparse_blocks() if sparse else rows.blocks())
    values = [block.values.toarray() if sparse else block.values for block in blocks]
    units = [block.units for block in blocks]
    return np.concatenate(values), None if units[0] is None else list(np.concatenate(units))


@pytest.mark.parametrize("sparse", [False, True])
def test_columns_are_chosen_by_name_in_the_order_asked(cells, sparse):
    rows = open_rows([cells], columns=["CD8A", "ACTB"])
    assert tuple(rows.names) == ("CD8A", "ACTB")
    assert rows.features == 2
    np.testing.assert_array_equal(read(rows, sparse=sparse)[0], ROWS[:, [2, 0]])
    rows = open_rows([cells], exclude=["CD4"])
    np.testing.assert_array_equal(read(rows, sparse=sparse)[0], ROWS[:, [0, 2]])


@pytest.mark.parametrize("sparse", [False, True])
def test_a_label_of_rows_can_be_the_unit(cells, sparse):
    rows = open_rows([cells], unit="donor")
    assert rows.unit == "donor"
    found, units = read(rows, sparse=sparse)
    np.testing.assert_array_equal(found, ROWS)
    assert units == DONORS
    assert labels_of(rows, "donor") == DONORS


def test_a_table_may_stand_beside_it_where_the_columns_agree(cells, tmp_path):
    table = tmp_path / "more.parquet"
    donors = np.array(["d3", "d1"], dtype=object)
    write_columns(table, [("donor", donors), *zip(GENES[::-1], ROWS[:2, ::-1].T, strict=True)])
    rows = open_rows([cells, table], unit="donor")
    found, units = read(rows)
    np.testing.assert_array_equal(found, np.concatenate([ROWS, ROWS[:2]]))
    assert units == [*DONORS, "d3", "d1"]
    assert labels_of(rows, "donor") == [*DONORS, "d3", "d1"]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"columns": ["CD4", "XIST"]}, "missing-column"),
        ({"exclude": ["XIST"]}, "nothing-to-exclude"),
        ({"unit": "person"}, "missing-column"),
        ({"columns": ["donor"]}, "missing-column"),
        ({"schema": Schema((Column("CD4", "number"),))}, "not-a-table"),
    ],
)
def test_what_is_not_there_is_named(cells, given, code):
    with pytest.raises(DataError) as refused:
        open_rows([cells], **given)
    assert refused.value.code == code
