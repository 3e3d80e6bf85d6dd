"""The same rows whatever the format, the block size and the order of columns in the file."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from row_formats import ALL, NAMED, NAMELESS, NAMES, NO_NUMBER, OF_PROGRAMS, refusal, values

from eigenveil.errors import DataError
from eigenveil.io import ReadOptions, open_rows
from eigenveil.io.formats.dialect import Dialect
from eigenveil.io.formats.registry import format_of, formats
from eigenveil.moments.accumulators import RowSum
from eigenveil.moments.engine import accumulate
from eigenveil.moments.histograms import NormHistogram
from eigenveil.moments.rows import RowRule


@pytest.mark.parametrize("name", ALL)
def test_every_format_gives_the_same_rows_in_every_pass(name, matrix, tmp_path, small_blocks):
    path = tmp_path / name
    ALL[name](path, matrix, NAMES)
    rows = open_rows([path])
    assert (rows.features, rows.names) == (3, NAMES if name in NAMED else None)
    assert (rows.paths, rows.unit, rows.schema, rows.variables) == ((path,), None, None, None)
    assert open_rows(str(path)).features == open_rows(path).features == 3  # in no list
    next(rows.blocks())  # one left unfinished disturbs nothing
    blocks = list(rows.blocks())  # workers hold several at a time
    assert [b.values.shape for b in blocks] == [(16, 3), (16, 3), (8, 3)]
    assert [b.first_row for b in blocks] == [0, 16, 32]
    assert {b.origin.name for b in blocks} == {str(path)}
    assert all(b.units is None and b.values.flags.c_contiguous for b in blocks)
    assert {b.values.dtype for b in blocks} == {np.dtype(np.float64)}
    np.testing.assert_array_equal(np.concatenate([b.values for b in blocks]), matrix)
    for one, other in zip(rows.blocks(), rows.blocks(), strict=True):  # by two at once
        np.testing.assert_array_equal(one.values, other.values)
    sparse = list(rows.sparse_blocks())
    assert {(b.values.format, b.origin.name) for b in sparse} == {("csr", str(path))}
    np.testing.assert_array_equal(np.concatenate([b.values.toarray() for b in sparse]), matrix)


@pytest.mark.parametrize("name", NAMED)
def test_columns_go_by_name(name, matrix, tmp_path):
    first, path = tmp_path / "first.parquet", tmp_path / name
    NAMED["rows.parquet"](first, matrix, NAMES)
    NAMED[name](path, matrix[:, [2, 0, 1]], ["gamma", "alpha", "beta"])
    rows = open_rows([first, path])
    assert rows.names == NAMES
    np.testing.assert_array_equal(values(rows), np.concatenate([matrix, matrix]))
    rows = open_rows([path], columns=["gamma", "alpha"])
    assert rows.names == ("gamma", "alpha")
    np.testing.assert_array_equal(values(rows), matrix[:, [2, 0]])
    rows = open_rows([first], exclude=["beta"])
    assert rows.names == ("alpha", "gamma")
    np.testing.assert_array_equal(values(rows), matrix[:, [0, 2]])
    some = NAMES[:2]
    NAMED[name](path, matrix[:, :2], some)
    for paths, options in (
        ([first, path], {}),
        ([first, path], {"columns": ["gamma"]}),
        ([path], {"columns": ["alpha", "gamma"]}),
    ):
        error = refusal(paths, **options)
        assert error.message == f"{path} has no column 'gamma'."
        assert error.hint.startswith("Its columns are 'alpha', 'beta'.")
        assert error.code == "missing-column"
    error = refusal([path, first])
    assert error.code == "extra-column"
    assert {str(first), "'gamma'"} <= set(error.message.split())
    for options in ({"columns": some}, {"exclude": ["gamma"]}):
        rows = open_rows([path, first], **options)
        np.testing.assert_array_equal(values(rows), np.concatenate([matrix, matrix])[:, :2])
    if path.suffix in (".h5ad", ".h5", *OF_PROGRAMS):  # genes get numbers; programs refuse it
        return
    NAMED[name](path, matrix, ["a", "b", "a"])
    for options in ({}, {"columns": ["b"]}):
        assert refusal([path], **options).message == f"{path} has more than one column 'a'."


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_entry_that_is_not_finite_is_located(name, value, matrix, tmp_path, small_blocks):
    first, path = tmp_path / "first.parquet", tmp_path / name
    NAMED["rows.parquet"](first, matrix, NAMES)
    matrix[29, 1] = value
    if (name, value) == ("rows.dta", np.inf):
        return  # Stata has none
    ALL[name](path, matrix, NAMES)
    histogram = NormHistogram(None, precision="double")
    found = accumulate(open_rows([first, path]), [histogram]).invalid
    is_text = name.removesuffix(".gz").endswith((".csv", ".tsv", ".txt", ".xlsx"))
    what = NO_NUMBER if np.isnan(value) and is_text else value
    where = "line 31" if is_text else "row 30"
    assert (found.count, found.first) == (1, f"{path}: {where}, column 'beta' is {what}")


@pytest.mark.parametrize("name", ALL)
def test_files_without_rows_and_files_that_are_none(name, matrix, tmp_path):
    path = tmp_path / name
    ALL[name](path, matrix[:0], NAMES)
    rows = open_rows([path])
    assert rows.features == 3
    assert accumulate(rows, [NormHistogram(None, precision="double")]).rows == 0
    path.write_bytes(b"")
    is_text = name.removesuffix(".gz").endswith((".csv", ".tsv", ".txt"))
    wanted = f"No rows in {path}." if is_text else f"{path} cannot be read: "
    assert refusal([path]).message.startswith(wanted)
    if name in ("rows.csv", "rows.tsv", "rows.txt"):
        return  # any text is one
    path.write_text("These are words, and no rows.\n" * 20)
    error = refusal([path])
    assert str(path) in error.message
    assert "\n" not in error.message
    assert error.code == "unreadable"
    ALL[name](path, np.tile(matrix, (50, 1)), NAMES)
    whole = path.read_bytes()
    for share in (0.02, 0.3, 0.6, 0.95):
        path.write_bytes(whole[: int(share * len(whole))])
        error = refusal([path])
        assert str(path) in error.message
        # of a text whose header states more entries than are left of it, that is said
        assert error.code in ("unreadable", "file-too-large")


@pytest.mark.parametrize("name", ALL)
def test_damage_anywhere_is_a_data_error_or_none(name, matrix, tmp_path):
    path = tmp_path / name
    ALL[name](path, matrix, NAMES)
    whole = path.read_bytes()
    rng = np.random.default_rng(11)
    for _ in range(25):
        damaged = bytearray(whole)
        for place in rng.integers(0, min(len(whole), 400), size=3):
            damaged[int(place) * int(rng.choice([1, -1]))] = int(rng.integers(256))
        path.write_bytes(damaged)
        with contextlib.suppress(DataError):
            values(open_rows([path]))


def test_formats_mix_where_columns_agree_and_give_the_same_sums(matrix, tmp_path):
    sums = set()
    for name, save in ALL.items():
        save(tmp_path / name, matrix, NAMES)
        total = RowSum(RowRule(bound=1.0), features=3, count_weight=0.0)
        accumulate(open_rows([tmp_path / name]), [total])
        sums.add(tuple(total.integers()))
    assert len(sums) == 1
    rows = open_rows([tmp_path / name for name in reversed(ALL)])
    assert rows.names == NAMES  # of the first file that has them
    np.testing.assert_array_equal(values(rows), np.tile(matrix, (len(ALL), 1)))


SMALL = [np.float32, np.float16, np.int8, np.uint8, np.int16, np.uint16, np.bool_]
LARGE = [np.float64, np.int32, np.uint32, np.int64, np.uint64]


@pytest.mark.parametrize("kind", SMALL + LARGE)
@pytest.mark.parametrize("name", ["c.npy", "packed.npz", "rows.parquet", "rows.feather"])
def test_entries_are_read_in_the_narrowest_type_that_holds_them(kind, name, tmp_path):
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(kind)
    others = [array.astype(array.dtype.newbyteorder(">"))] if name in NAMELESS else []
    for stored in (array, *others):
        ALL[name](tmp_path / name, stored, NAMES)
        got = values(open_rows([tmp_path / name]))
        assert got.dtype == (np.float32 if kind in SMALL else np.float64)
        np.testing.assert_array_equal(got, array.astype(float))


def test_whole_numbers_and_decimals_are_rounded_as_text_is(tmp_path, text):
    written = ["9007199254740993", "-123456789.01", "0.07", "99999999999999.99"]
    exact = [Decimal(number) for number in written]
    pa.parquet.write_table(
        pa.table({"a": pa.array(exact, pa.decimal128(20, 2))}), tmp_path / "d.parquet"
    )
    got = values(open_rows([tmp_path / "d.parquet"]))[:, 0]
    assert got.tolist() == [float(number) for number in written]
    text_rows = open_rows([text("t.csv", "a\n" + "\n".join(written))])
    np.testing.assert_array_equal(values(text_rows)[:, 0], got)
    np.save(tmp_path / "i.npy", np.array([[9007199254740993]]))
    assert values(open_rows([tmp_path / "i.npy"]))[0, 0] == float(9007199254740993)


def test_truth_values_and_nulls(tmp_path, text):
    pl.DataFrame(
        {"a": [1, None, 3], "b": [True, False, None], "c": [None, 2.5, 3.5]}
    ).write_parquet(tmp_path / "n.parquet")
    wanted = np.array([[1, 1, np.nan], [np.nan, 0, 2.5], [3, np.nan, 3.5]])
    np.testing.assert_array_equal(values(open_rows([tmp_path / "n.parquet"])), wanted)
    path = text("n.csv", "a,b,c\n1,true,\nNA,false,2.5\n3,,3.5\n")
    np.testing.assert_array_equal(values(open_rows([path])), wanted)


def test_row_labels_of_pandas_are_no_columns(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]}).iloc[[2, 0, 1]]
    frame.to_parquet(tmp_path / "p.parquet")
    frame.to_csv(tmp_path / "p.csv")
    rows = open_rows([tmp_path / "p.parquet", tmp_path / "p.csv"])
    assert rows.names == ("a", "b")
    assert values(rows).tolist() == [[3, 6], [1, 4], [2, 5]] * 2
    labels = open_rows([tmp_path / "p.parquet"], unit="__index_level_0__")
    assert [unit for block in labels.blocks() for unit in block.units] == ["2", "0", "1"]


def test_names_with_dots_and_common_beginnings(tmp_path):
    table = pa.table({"a.b": [1.0], "a": [2.0], "a.b.c": [3.0]})
    pa.parquet.write_table(table, tmp_path / "dots.parquet")
    rows = open_rows([tmp_path / "dots.parquet"], columns=["a", "a.b"])
    assert values(rows).tolist() == [[2.0, 1.0]]


def test_text_of_other_programs(text, tmp_path):
    path = tmp_path / "excel.csv"
    path.write_bytes(
        b'\xef\xbb\xbf"a",b,note\r\n"1.5", 2 ,"two\r\nlines, one ""cell"""\r\n3,4e2,\r\n'
    )
    read = ReadOptions(dialect=Dialect(newlines_in_cells=True))
    rows = open_rows([path], exclude=["note"], read=read)
    assert values(rows).tolist() == [[1.5, 2], [3, 400]]
    assert rows.newlines_in_cells
    cut = open_rows([path], exclude=["note"])  # the cell ends with its line, and the rest is no row
    np.testing.assert_array_equal(values(cut), [[1.5, 2], [3, 400], [np.nan, np.nan]])
    assert not cut.newlines_in_cells


def test_text_that_looks_like_whole_numbers_at_first(text, monkeypatch):
    monkeypatch.setattr("eigenveil.io.formats.text._READ_BYTES", 64)
    path = text("t.csv", "a,b,c\n" + "1,,7\n" * 50 + "2.5,0.25,inf\n")
    got = values(open_rows([path]))
    assert got.shape == (51, 3)
    assert got[-1].tolist() == [2.5, 0.25, np.inf]


def test_long_lines_of_text_are_read_whole(text, monkeypatch):
    # a line is longer than what is read at a time: the header's, the first, and one further on
    monkeypatch.setattr("eigenveil.io.formats.text._READ_BYTES", 32)
    lines = [f"{i},{'x' * (700 if i == 60 else 3)},{i / 2}" for i in range(100)]
    path = text("t.csv", f"a,{'n' * 100},b\n" + "\n".join(lines))
    got = values(open_rows([path], columns=["a", "b"]))
    np.testing.assert_array_equal(got, np.c_[np.arange(100), np.arange(100) / 2])


def test_many_small_row_groups_make_full_blocks(tmp_path):
    array = np.arange(3000.0).reshape(1500, 2)
    table = pa.table({"a": array[:, 0], "b": array[:, 1]})
    pa.parquet.write_table(table, tmp_path / "small.parquet", row_group_size=3)
    with (
        pa.OSFile(str(tmp_path / "small.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as out,
    ):
        out.write_table(table, max_chunksize=1)
    for name in ("small.parquet", "small.arrow"):
        rows = open_rows([tmp_path / name])
        assert [b.values.shape for b in rows.blocks()] == [(1500, 2)]
        np.testing.assert_array_equal(values(rows), array)


def test_a_huge_record_batch_makes_no_huge_block(tmp_path):
    table = pa.table({"a": np.arange(200_000)})
    with (
        pa.OSFile(str(tmp_path / "h.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as out,
    ):
        out.write_table(table)
    sizes = [b.values.shape[0] for b in open_rows([tmp_path / "h.arrow"]).blocks()]
    assert sizes == [65536, 65536, 65536, 3392]


def test_few_of_many_columns_of_an_arrow_file(matrix, tmp_path):
    wide = np.tile(matrix, 4)
    NAMED["rows.feather"](tmp_path / "w.feather", wide, [f"c{i}" for i in range(12)])
    rows = open_rows([tmp_path / "w.feather"], columns=["c10", "c2"])
    np.testing.assert_array_equal(values(rows), wide[:, [10, 2]])


def test_an_array_in_memory_is_never_made(tmp_path, monkeypatch):
    # 400 MB, were it not stored as a hole
    array = np.lib.format.open_memmap(tmp_path / "h.npy", "w+", np.float64, (500_000, 100))
    array[-1, -1] = 1.0
    del array
    last = None
    for block in open_rows([tmp_path / "h.npy"]).blocks():
        assert not block.values.flags.owndata
        last = block
    assert last is not None
    assert last.values[-1, -1] == 1.0


def test_entries_at_one_place_of_a_sparse_matrix_add_up(tmp_path):
    parts = {
        "indices": np.int32([1, 1, 0]),
        "indptr": np.int32([0, 2, 3]),
        "data": np.int8([100, 100, 1]),
    }
    np.savez(tmp_path / "twice.npz", format=b"csr", shape=np.array([2, 2]), **parts)
    assert values(open_rows([tmp_path / "twice.npz"])).tolist() == [[0, 200], [1, 0]]


def test_files_without_rows_beside_one_with_rows(matrix, tmp_path, text):
    empty = text("empty.csv", "beta,alpha,gamma\n")
    NAMED["rows.parquet"](tmp_path / "none.parquet", matrix[:0], NAMES)
    NAMED["rows.parquet"](tmp_path / "some.parquet", matrix, NAMES)
    np.save(tmp_path / "none.npy", matrix[:0])
    paths: list[Path] = [tmp_path / name for name in ("none.parquet", "none.npy", "some.parquet")]
    rows = open_rows([empty, *paths])
    assert rows.names == ("beta", "alpha", "gamma")
    np.testing.assert_array_equal(values(rows), matrix[:, [1, 0, 2]])


def test_a_format_is_known_by_the_ending():
    for each in formats().values():
        for ending in each.endings:
            assert format_of(Path("rows" + ending)) is each
    assert format_of(Path("docword.nips.txt")).name == "bag-of-words"
    assert format_of(Path(".csv")) is None
    assert format_of(Path("rows.xls")) is None
