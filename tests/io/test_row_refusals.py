"""Every refusal names the file and the column, and none quotes the data."""

from __future__ import annotations

import datetime
import gzip
import sys

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.sparse
from row_formats import NAMED, NAMELESS, NAMES, NO_NUMBER, refusal, values

from eigenveil.io import ReadOptions, open_rows
from eigenveil.io.formats.dialect import Dialect
from eigenveil.moments.engine import accumulate
from eigenveil.moments.histograms import NormHistogram

WORDS = {
    "text": ["secret", "words"],
    "day": [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)],
    "list": [[1.0], [2.0]],
    "x,secret\n2,y\n": "csv",
    "1,2020-01-01\n2,2020-01-02\n": "csv",
    "1,12:30\n2,z\n": "csv",
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((f"t.{ending}", kind) for ending in ("parquet", "feather") for kind in WORDS
          if WORDS[kind] != "csv"),
        *(("t.csv", lines) for lines, ending in WORDS.items() if ending == "csv"),
    ],
)  # fmt: skip
def test_a_column_that_is_not_numeric(name, kind, tmp_path):
    path = tmp_path / name
    if name == "t.csv":
        path.write_text("good,bad\n" + kind)
    else:
        write = pa.parquet.write_table if name == "t.parquet" else pa.feather.write_feather
        write(pa.table({"good": [1.0, 2.0], "bad": WORDS[kind]}), str(path))
    for options in ({}, {"columns": ["good", "bad"]}, {"columns": ["bad"]}):
        error = refusal([path], **options)
        assert error.message.startswith(f"{path}: column 'bad' is ")
        assert "secret" not in str(error)
        assert "--exclude" in error.hint
        assert "a schema" in error.hint
        assert error.code == "not-a-feature"
    for options in ({"columns": ["good"]}, {"exclude": ["bad"]}):
        assert values(open_rows([path], **options)).shape == (2, 1)


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
@pytest.mark.parametrize("place", [0, 3, 200])
def test_a_cell_that_is_not_a_number_is_none(ending, place, tmp_path, monkeypatch):
    monkeypatch.setattr("eigenveil.io.formats.text._READ_BYTES", 256)
    path = tmp_path / f"t.{ending}"
    lines = ["1,2"] * 250
    lines[place] = "3,secret"
    content = "\n".join(["a,b", *lines, ""]).encode()
    path.write_bytes(gzip.compress(content) if ending == "csv.gz" else content)
    rows = open_rows([path])
    expected = np.tile([1.0, 2.0], (250, 1))
    expected[place] = [3.0, np.nan]
    for _ in range(2):  # a second pass knows what the first found out
        np.testing.assert_array_equal(values(rows), expected)
    assert values(open_rows([path], columns=["a"])).shape == (250, 1)
    found = accumulate(rows, [NormHistogram(None, precision="double")]).invalid
    assert (found.count, found.first) == (1, f"{path}: line {place + 2}, column 'b' is {NO_NUMBER}")


CELLS = ["1", " -2.5", "+3 ", ".5", "4.", "1e5", "1E-3", "-0", "1e-400", "0"]
CELLS += ["true", "FALSE", "True"]
NO_CELLS = [
    "x",
    "1d5",
    "0x1",
    "--1",
    "1,0",
    "",
    "NA",
    "nan",
    "1e",
    "\u0661",
    "1 2",
    "tRUE",
    "1.5.2",
]
INFINITE = ["inf", "-Infinity", "1e400"]


def test_what_a_cell_is_depends_on_it_alone(text):
    """Whatever its column's first lines look like, and whatever stands beside it."""
    every = CELLS + NO_CELLS + INFINITE
    quoted = [f'"{cell}"' for cell in every]
    expected = values(open_rows([text("all.csv", "a,b\n" + "".join(f"{c},1\n" for c in quoted))]))[
        :, 0
    ]
    assert np.isfinite(expected[: len(CELLS)]).all()
    assert not np.isfinite(expected[len(CELLS) :]).any()
    assert expected[CELLS.index("+3 ")] == 3.0
    assert [expected[CELLS.index(c)] for c in ("true", "FALSE", "True")] == [1.0, 0.0, 1.0]
    for first in ("7", "true", ""):
        for cell, known in zip(quoted, expected, strict=True):
            found = values(open_rows([text("one.csv", f"a,b\n{first},1\n{cell},1\n7,1\n")]))[1, 0]
            assert np.isfinite(found) == np.isfinite(known)
            assert found == known or not np.isfinite(known)


def test_many_columns_with_cells_that_are_no_numbers(text, monkeypatch):
    monkeypatch.setattr("eigenveil.io.formats.text._READ_BYTES", 64)
    lines = ["1,2,3,4,5"] * 40
    for place, line in ((9, "x,2,3,4,5"), (15, "1,x,3,4,5"), (20, "1,2,x,x,5"), (39, "1,2,3,4,x")):
        lines[place] = line
    found = values(open_rows([text("t.csv", "a,b,c,d,e\n" + "\n".join(lines) + "\n")]))
    expected = np.array([[np.nan if c == "x" else float(c) for c in r.split(",")] for r in lines])
    np.testing.assert_array_equal(found, expected)


def test_a_line_of_another_length_is_a_row_that_is_none(text, monkeypatch):
    monkeypatch.setattr("eigenveil.io.formats.text._READ_BYTES", 64)
    path = text("t.csv", "a,b\n1,2\n3,4\nsecret\n5,6,7\n" + "8,9\n" * 40)
    rows = open_rows([path])
    for _ in range(2):
        found = values(rows)
        assert found.shape == (44, 2)
        assert np.isnan(found[-2:]).all(), "they come last"
        assert np.isfinite(found[:-2]).all()
    found = accumulate(rows, [NormHistogram(None, precision="double")])
    assert (found.rows, found.invalid.count) == (44, 2)
    what = "nan (its line has another number of cells)"
    assert found.invalid.first == f"{path}: line 4, column 'a' is {what}"


@pytest.mark.parametrize("line", [b"\xff,3,4", b"\xff"])
def test_nothing_is_printed_of_a_line_that_is_no_text(line, tmp_path, monkeypatch):
    """pyarrow had a traceback printed, with the place of the byte."""
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,2\n" + line + b"\n3,4\n")
    found = values(open_rows([path]))
    np.testing.assert_array_equal(found, [[1, 2], [3, 4], [np.nan, np.nan]])
    assert not reported
    assert sys.unraisablehook == reported.append


def test_a_line_of_other_bytes_is_a_row_that_is_none(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("caf\u00e9,b\n1,2\n".encode() + b"\xff\xfe\n3,\xff\n" + b"5,6\n")
    rows = open_rows([path])
    assert list(rows.names) == ["caf\u00e9", "b"]
    for columns in (None, ["b", "caf\u00e9"]):
        found = values(open_rows([path], columns=columns))
        expected = np.array([[1, 2], [3, np.nan], [5, 6], [np.nan, np.nan]])
        np.testing.assert_array_equal(found, expected if columns is None else expected[:, ::-1])


def test_a_quote_that_never_ends(text, monkeypatch):
    monkeypatch.setattr("eigenveil.io.formats.text._READ_BYTES", 64)
    monkeypatch.setattr("eigenveil.io.formats.text._MOST_READ_BYTES", 256)
    path = text("t.csv", 'a,b\n1,"2\n' + "3,4\n" * 300)
    assert values(open_rows([path])).shape == (301, 2)
    error = refusal([path], read=ReadOptions(dialect=Dialect(newlines_in_cells=True)))
    assert str(path) in error.message
    assert "a quote never ends" in error.message


def test_a_line_that_is_too_long_is_a_row_that_is_not_valid(text, monkeypatch):
    monkeypatch.setattr("eigenveil.io.formats.text._READ_BYTES", 64)
    monkeypatch.setattr("eigenveil.io.formats.text._MOST_READ_BYTES", 256)
    found = values(open_rows([text("t.csv", "a,b\n1,2\n" + "x" * 5000 + ",7\n" + "3,4\n" * 30)]))
    np.testing.assert_array_equal(found[0], [1, 2])
    np.testing.assert_array_equal(found[1], [np.nan, 7])
    np.testing.assert_array_equal(found[2:], np.tile([3, 4], (30, 1)))


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("t.csv", {"exclude": ["alpah"]}, "nothing-to-exclude"),
        ("t.csv", {"columns": ["beta", "alpha", "beta"]}, "column-requested-twice"),
        ("t.csv", {"columns": []}, "no-columns"),
        ("t.csv", {"exclude": NAMES}, "no-columns"),
        ("t.csv", {"columns": ["beta"], "exclude": ["beta"]}, "no-columns"),
        ("t.npy", {"columns": ["a"]}, "no-names"),
        ("t.npy", {"exclude": ["a"]}, "no-names"),
    ],
)
def test_a_wish_that_cannot_be_met(name, options, code, matrix, tmp_path):
    path = tmp_path / name
    (NAMED["rows.csv"] if name == "t.csv" else NAMELESS["c.npy"])(path, matrix, NAMES)
    error = refusal([path], **options)
    assert error.code == code
    assert ("'beta'" if code == "column-requested-twice" else str(path)) in error.message


@pytest.mark.parametrize("first", ["a.csv", "a.npy"])
def test_widths_that_differ(first, matrix, tmp_path):
    (NAMED["rows.csv"] if first == "a.csv" else NAMELESS["c.npy"])(tmp_path / first, matrix, NAMES)
    np.save(tmp_path / "b.npy", matrix[:, :2])
    error = refusal([tmp_path / first, tmp_path / "b.npy"])
    assert error.message == f"{tmp_path / 'b.npy'} has 2 columns and {tmp_path / first} 3."


def test_a_line_of_names_without_an_end_is_a_file_without_rows(text):
    rows = open_rows([text("t.csv", "a,b")])
    assert list(rows.names) == ["a", "b"]
    assert not list(rows.blocks())


@pytest.mark.parametrize(
    "wrong",
    [{"indices": [0, 1, 10**6]}, {"indices": [0, 1, -5]}, {"indptr": [0, 2, 1, 3]}],
    ids=str,
)
def test_an_index_out_of_range_in_a_sparse_file(wrong, tmp_path):
    path = tmp_path / "s.npz"
    parts = scipy.sparse.csr_array(np.eye(3))
    arrays = {name: getattr(parts, name) for name in ("data", "indices", "indptr")}
    changed = {name: np.int32(array) for name, array in wrong.items()}
    np.savez(path, format=b"csr", shape=np.array([3, 3]), **(arrays | changed))
    assert str(path) in refusal([path]).message


@pytest.mark.parametrize(
    ("arrays", "reported"),
    [
        ({"a": np.eye(2), "b": np.eye(3)}, ["2 numeric", "'a'", "(3, 3)"]),
        ({"a": np.arange(3), "b": np.array([["x"]])}, ["0 numeric", "'a'", "'b'"]),
        ({}, ["0 numeric", "nothing"]),
        ({"X": np.arange(3), "b": np.eye(2)}, ["int64 of shape (3,)"]),
    ],
)
def test_an_archive_that_leaves_no_choice(arrays, reported, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays)
    error = refusal([tmp_path / "a.npz"])
    assert all(part in error.message for part in [str(tmp_path / "a.npz"), *reported])


@pytest.mark.parametrize(
    "array",
    [np.arange(4.0), np.ones((2, 2, 2)), np.eye(2) * 1j, np.array([["a"]]), np.ones((3, 0)),
     np.array([[None]]), np.zeros(2, [("a", float)])],
)  # fmt: skip
def test_an_array_that_is_no_matrix_of_numbers(array, tmp_path):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    error = refusal([tmp_path / "a.npy"])
    assert str(tmp_path / "a.npy") in error.message
    assert error.code == "not-numeric"
