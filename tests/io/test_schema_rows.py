"""Rows read with a schema: every kind of column, the same out of every format and of frames."""

import datetime
import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from row_formats import labels_of, refusal, values

from eigenveil.io import open_rows
from eigenveil.tables.schema import FORMAT, parse_schema

SCHEMA = parse_schema(
    {
        "format": FORMAT,
        "columns": [
            {"name": "person", "role": "unit"},
            {"name": "visit", "role": "identifier"},
            {"name": "age", "kind": "number", "range": [0, 120]},
            {"name": "stage", "kind": "category", "levels": ["I", "II", "NA"]},
            {"name": "grade", "kind": "category", "levels": ["1", "2"]},
            {"name": "smokes", "kind": "boolean"},
            {"name": "seen", "kind": "date", "origin": "2020-01-01"},
            {"name": "note", "role": "ignore"},
        ],
    }
)
NAN = np.nan
ROWS = np.array(
    [
        # age, stage I, II, NA, grade 1, 2, smokes, seen
        [41.5, 1, 0, 0, 1, 0, 1, 0],
        [NAN, 0, 1, 0, 0, 1, 0, 366],
        [7.0, 0, 0, 0, 0, 0, NAN, NAN],
        [80.0, NAN, NAN, NAN, NAN, NAN, 0, -18262],
    ]
)
UNITS = ["17", "17", "p2", None]
DAYS = [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1), None, datetime.date(1970, 1, 1)]

LATE = [
    None if day is None else datetime.datetime.combine(day, datetime.time(23, 59)) for day in DAYS
]


def table(**columns):
    found = {
        "note": ["x", "y", "z", ""],
        "person": ["17", "17.0", " p2", None],
        "age": pa.array([41.5, None, 7.0, 80.0]),
        "stage": pa.array(["I", "II", "IV", None]),
        "grade": pa.array([1, 2, 3, None], pa.int64()),
        "smokes": pa.array([True, False, None, False]),
        "seen": pa.array(DAYS, pa.date32()),
        "visit": ["a", "b", "c", "d"],
    }
    return pa.table(found | columns)


CSV = """note,person,age,stage,grade,smokes,seen,visit
x,17,41.5,I,1,true,2020-01-01,a
y,17.0,,II,2.0,no,2021-01-01T23:59:00,b
z, p2,7,IV,3,,2021-02-30,c
,,80,,,0,1970-01-01,d
"""


def saved(name, tmp_path):
    path = tmp_path / name
    if name.endswith("csv"):
        path.write_text(CSV)
    elif name.endswith("csv.gz"):
        path.write_bytes(gzip.compress(CSV.encode()))
    elif name.endswith("parquet"):
        pa.parquet.write_table(table(), path, row_group_size=2)
    else:
        pa.feather.write_feather(table(), str(path), chunksize=3)
    return path


FORMATS = ["t.csv", "t.csv.gz", "t.parquet", "t.feather"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_kind_of_column_is_the_same_out_of_every_format(name, tmp_path):
    rows = open_rows([saved(name, tmp_path)], schema=SCHEMA)
    assert list(rows.names) == list(SCHEMA.names)
    assert rows.features == 8
    assert rows.schema == SCHEMA
    assert rows.variables.tolist() == [0, 1, 1, 1, 2, 2, 3, 4]
    for _ in range(2):
        np.testing.assert_array_equal(values(rows), ROWS)
        assert [unit for block in rows.blocks() for unit in block.units] == UNITS
    assert labels_of(rows, "visit") == list("abcd")
    assert rows.label_names(["visit", "person", "absent"]) == ("visit", "person")


def test_files_of_several_formats_are_one_source_in_pieces(tmp_path, small_blocks):
    paths = [saved(name, tmp_path) for name in FORMATS[::2]]
    rows = open_rows(paths, schema=SCHEMA)
    np.testing.assert_array_equal(values(rows), np.concatenate([ROWS, ROWS]))
    assert labels_of(rows, "person") == UNITS * 2


TYPES = {
    "seen": [
        pa.array([None if d is None else str(d) for d in DAYS]),
        pa.array(LATE, pa.timestamp("ns")),
        pa.array(DAYS, pa.date64()),
        pa.array(LATE, pa.timestamp("us", tz="UTC")),
    ],
    "stage": [
        pa.array(["I", "II", "IV", None]).dictionary_encode(),
        pa.array(["I", " II ", "IV", ""], pa.large_string()),
        pa.array([b"I", b"II", b"\xff", None]),
    ],
    "grade": [
        pa.array([1.0, 2.0, 3.0, NAN]),
        pa.array(["1", "2", "x", None]),
        pa.array(["1.0", "2.00", "1.5", "nan"]),
    ],
    "smokes": [
        pa.array([1, 0, 2, 0]),
        pa.array(["Yes", "N", "perhaps", "FALSE"]),
        pa.array([1.0, 0.0, None, 0.0]),
    ],
    "age": [
        pa.array([41.5, NAN, 7.0, 80.0], pa.float32()),
        pa.array([41.5, None, 7.0, 80.0]).dictionary_encode(),
    ],
}


@pytest.mark.parametrize(
    ("name", "cells"), [(name, cells) for name, found in TYPES.items() for cells in found]
)
def test_a_kind_is_read_from_every_type_that_holds_it(name, cells, tmp_path):
    pa.parquet.write_table(table(**{name: cells}), tmp_path / "t.parquet")
    rows = open_rows([tmp_path / "t.parquet"], schema=SCHEMA)
    np.testing.assert_array_equal(values(rows), ROWS)


@pytest.mark.parametrize("stored", [pa.int64(), pa.int8(), pa.float64(), pa.string()])
def test_one_person_is_one_unit_however_a_file_stores_the_number(stored, tmp_path):
    first = pa.table({"who": pa.array([7, 8, None]).cast(stored), "x": [1.0, 2.0, 3.0]})
    pa.parquet.write_table(first, tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("who,x\n8,1\n07,1\n 7 ,1\nNA,1\n")
    rows = open_rows([tmp_path / "a.parquet", tmp_path / "b.csv"], unit="who")
    units = [unit for block in rows.blocks() for unit in block.units]
    assert units == ["7", "8", None, "8", "07", "7", None]
    assert rows.names == ("x",)
    assert rows.unit == "who"


def test_a_line_that_is_no_row_belongs_to_nobody(text):
    path = text("t.csv", "who,x\n1,2\n1,2,3\n3,4\n")
    rows = open_rows([path], unit="who")
    assert [unit for block in rows.blocks() for unit in block.units] == ["1", "3", None]
    assert labels_of(rows, "who") == ["1", "3", None]


def test_without_a_unit_blocks_have_none(text):
    assert all(block.units is None for block in open_rows([text("t.csv", "x\n1\n")]).blocks())


def test_a_declared_number_is_one_whatever_its_first_lines_look_like(tmp_path, monkeypatch):
    monkeypatch.setattr("eigenveil.io.formats.text._READ_BYTES", 256)
    schema = parse_schema({"format": FORMAT, "columns": [{"name": "a", "kind": "number"}]})
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "none,x\n" * 100 + "5,y\n")
    found = values(open_rows([path], schema=schema))
    assert found.shape == (101, 1)
    assert np.isnan(found[:100]).all()
    assert found[100] == 5


def test_columns_with_nothing_in_them_are_read(tmp_path):
    columns = {name: pa.nulls(3) for name in ("age", "stage", "grade", "smokes", "seen", "person")}
    pa.parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    rows = open_rows([tmp_path / "t.parquet"], schema=SCHEMA)
    assert np.isnan(values(rows)).all()
    assert [unit for block in rows.blocks() for unit in block.units] == [None] * 3


def test_what_cannot_be_read_is_refused_with_the_file_and_the_column(tmp_path):
    path = saved("t.parquet", tmp_path)
    unknown = refusal([path], unit="who")
    assert str(path) in unknown.message
    assert "'who'" in unknown.message
    assert unknown.code == "missing-column"
    both = refusal([path], columns=["age", "visit"], unit="visit")
    assert both.code == "unit-is-feature"
    assert refusal([path], schema=SCHEMA, unit="visit").code == "schema-and-columns"
    assert refusal([path], schema=SCHEMA, columns=["age"]).code == "schema-and-columns"
    pa.parquet.write_table(table(seen=pa.array([1.0, 2.0, 3.0, 4.0])), path)
    kind = refusal([path], schema=SCHEMA)
    assert "column 'seen' is double, and the schema says date" in kind.message
    assert kind.code == "column-kind"
    pa.parquet.write_table(table(person=pa.array([[1], [2], [3], [4]])), path)
    assert "'person' is list" in refusal([path], schema=SCHEMA).message
    pa.parquet.write_table(table().drop_columns(["age"]), path)
    absent = refusal([path], schema=SCHEMA)
    assert absent.message == f"{path} has no column 'age', which the schema has."
    np.save(tmp_path / "t.npy", np.eye(3))
    assert refusal([tmp_path / "t.npy"], schema=SCHEMA).code == "no-names"
    assert refusal([tmp_path / "t.npy"], unit="who").code == "no-names"


def test_identifiers_are_refused_by_name_and_type_alone(text):
    path = text("t.csv", "patient_id,age\n1,2\n3,4\n")
    error = refusal([path])
    assert error.code == "identifier-column"
    assert "'patient_id'" in error.message
    assert refusal([path], columns=["patient_id"]).code == "identifier-column"
    for options in ({"exclude": ["patient_id"]}, {"columns": ["age"]}, {"unit": "patient_id"}):
        assert open_rows([path], **options).names == ("age",)
    feature = {"name": "patient_id", "kind": "number"}
    schema = parse_schema({"format": FORMAT, "columns": [feature]})
    assert open_rows([path], schema=schema).names == ("patient_id",)
    # all values differ, but nothing in the name tells: not a reason
    assert open_rows([text("n.csv", "humidity\n1\n2\n3\n")]).names == ("humidity",)
    # a text called name is refused as what it is, a number called so is read
    assert refusal([text("w.csv", "name,age\nann,2\n")]).code == "identifier-column"
    assert open_rows([text("v.csv", "name,age\n1,2\n")]).names == ("name", "age")


def test_pandas_writes_what_is_read_the_same(tmp_path):
    frame = table().to_pandas()
    frame["stage"] = pd.Categorical(frame["stage"])
    frame["seen"] = pd.to_datetime(frame["seen"])
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    for name in ("t.parquet", "t.csv"):
        np.testing.assert_array_equal(values(open_rows([tmp_path / name], schema=SCHEMA)), ROWS)
