"""One person is one person: an identifier has one form, whatever it is stored as."""

import datetime
import math
import sqlite3
from dataclasses import dataclass
from decimal import Decimal

import anndata
import dask.dataframe
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.io import open_rows, read_frame
from eigenveil.io.query import Query
from eigenveil.moments.source import Reading
from eigenveil.tables.adapters import adapter, rows_of
from eigenveil.tables.adapters.anndata import CellRows
from eigenveil.tables.adapters.base import array_rows
from eigenveil.tables.entries import identifier, identifiers
from eigenveil.tables.schema import FORMAT, parse_schema
from eigenveil.tables.units import UnitRows

SCHEMA = parse_schema(
    {
        "format": FORMAT,
        "columns": [{"name": "who", "role": "unit"}, {"name": "x", "kind": "number"}],
    }
)
LONG = 190_000_000_001  # eleven to twelve digits, as national identifiers have


def column(ids):
    """The identifiers as Arrow stores them, if they are of one type."""
    return pa.table({"who": pa.array(ids), "x": np.arange(float(len(ids)))})


def frame(ids, made=list):
    return pd.DataFrame({"who": made(ids), "x": np.arange(float(len(ids)))})


def given_frame(found):
    table, ids = adapter(found).split("who")
    return array_rows(np.asarray(table.given, dtype=float), None, ids)


def of_file(name, write):
    def opened(ids, folder):
        write(ids, folder / name)
        return open_rows([folder / name], unit="who")

    return opened


def database(ids, place, kind):
    """The rows of a table with a column of this declared type."""
    with sqlite3.connect(place) as made:
        made.execute(f"CREATE TABLE t (who {kind}, x REAL)")
        made.executemany("INSERT INTO t VALUES (?, ?)", [(each, 1.5) for each in ids])
    made.close()


def of_database(kind):
    def opened(ids, folder):
        place = folder / "rows.sqlite"
        place.unlink(missing_ok=True)
        database(ids, place, kind)
        return open_rows([Query("SELECT who, x FROM t", f"sqlite:///{place}")], unit="who")

    return opened


def of_cells(ids, folder, name):
    cells = anndata.AnnData(np.ones((len(ids), 1)), obs=pd.DataFrame({"who": ids}))
    if not name:
        return CellRows(cells, unit="who")
    cells.obs.index = [f"cell {row}" for row in range(len(ids))]
    cells.write_h5ad(folder / name)
    return open_rows([folder / name], unit="who")


ENTRANCES = {
    "list": lambda ids, _: array_rows(np.ones((len(ids), 1)), None, ids),
    "objects": lambda ids, _: given_frame(frame(ids, lambda i: pd.Series(i, dtype=object))),
    "pandas": lambda ids, _: given_frame(frame(ids)),
    "pandas-schema": lambda ids, _: read_frame(frame(ids), SCHEMA),
    "polars": lambda ids, _: given_frame(pl.from_arrow(column(ids))),
    "polars-schema": lambda ids, _: read_frame(pl.from_arrow(column(ids)), SCHEMA),
    "arrow-table": lambda ids, _: given_frame(column(ids)),
    "duckdb": lambda ids, _: read_frame(duckdb.from_arrow(column(ids)), SCHEMA),
    "dask": lambda ids, _: rows_of(
        dask.dataframe.from_pandas(frame(ids), npartitions=2), unit="who"
    ),
    "anndata": lambda ids, folder: of_cells(ids, folder, ""),
    "h5ad": lambda ids, folder: of_cells(ids, folder, "cells.h5ad"),
    "csv-of-pandas": of_file("pandas.csv", lambda i, p: frame(i).to_csv(p, index=False)),
    "csv-of-arrow": of_file("arrow.csv", lambda i, p: pyarrow.csv.write_csv(column(i), p)),
    "parquet": of_file("rows.parquet", lambda i, p: pyarrow.parquet.write_table(column(i), p)),
    "parquet-of-pandas": of_file("pandas.parquet", lambda i, p: frame(i).to_parquet(p)),
    "feather": of_file("x.feather", lambda i, p: pyarrow.feather.write_feather(column(i), str(p))),
    "sqlite-integer": of_database("INTEGER"),
    "sqlite-text": of_database("TEXT"),
    "sqlite-real": of_database("REAL"),
}


@dataclass
class Found:
    rows: int
    units: list


class Units(Reading):
    """The units of all rows, as they are compared."""

    def read(self, rows):
        found = [each for b in rows.blocks() for each in identifiers(b.units)]
        return Found(len(found), found)

    def merge(self, parts):
        return Found(sum(p.rows for p in parts), [each for p in parts for each in p.units])


def units_by(entrance, ids, folder):
    return ENTRANCES[entrance](ids, folder).fold(Units()).units


SAMPLES = {
    "whole numbers": [7, 123456, LONG, 7],
    "one of which is missing": [LONG, None, LONG + 1, LONG],
    "texts of them": ["7", "007", str(LONG), "7"],
    "texts": ["a1", "é", None, "a1"],
    "decimals": [7.0, float(LONG), 1.5, None],
}
NOT_IN = {
    # a database makes another value of them before anybody reads it
    "texts of them": ("sqlite-integer", "sqlite-real"),
    "decimals": ("sqlite-integer", "sqlite-text"),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_an_identifier_is_the_same_by_every_entrance(entrance, tmp_path):
    """So that it is by every pair of them."""
    for kind, ids in SAMPLES.items():
        if entrance not in NOT_IN.get(kind, ()):
            wanted = [identifier(each) for each in ids]
            assert units_by(entrance, ids, tmp_path) == wanted, kind


LETTERS = st.characters(codec="utf-8", exclude_categories=["Cc"])
TIMES = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))


@given(
    ids=st.one_of(
        st.lists(st.integers(-(2**53), 2**53), min_size=2, max_size=5),
        st.lists(st.text(LETTERS, max_size=5), min_size=2, max_size=5),
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=5),
        st.lists(st.dates(), min_size=2, max_size=5),
        st.lists(TIMES, min_size=2, max_size=5),
        st.lists(st.booleans(), min_size=2, max_size=5),
    )
)
def test_memory_arrow_and_text_have_one_form(ids):
    wanted = [identifier(each) for each in ids]
    for entrance in ("list", "pandas", "pandas-schema", "polars", "arrow-table", "duckdb"):
        assert units_by(entrance, ids, None) == wanted, entrance
    assert identifiers([each and str(each) for each in wanted]) == wanted, "its own form"


DAY = datetime.date(2020, 1, 2)
TIME = datetime.datetime(2020, 1, 2, 3, 4)
NOTHING = (
    *(None, "", " ", "NA", b"", float("nan"), pd.NA, pd.NaT, np.ma.masked, Decimal("NaN")),
    *(2.0**53, -1e300, math.inf, 10**5000, np.float32(2**24), Decimal("1E+999999"), object()),
)
SAME = {
    "7": (7, 7.0, "7", " 7 ", "7.0", b"7", Decimal("7.00"), np.int8(7), np.float32(7)),
    "007": ("007", " 007"),
    "0": (0, -0.0, "-0.0", False, "false", "FALSE"),
    "1": (True, "True", 1),
    "Am\u00e9lie": ("Ame\u0301lie", "Am\u00e9lie ", "Am\u00e9lie".encode()),
    "1.5": (1.5, "1.5", Decimal("1.50")),
    str(LONG): (float(LONG), "1.90000000001e+11", LONG),
    "1E5": ("1E5", "1E5 "),
    "9007199254740992": (2**53, str(2**53)),
    "2020-01-02": (DAY, datetime.datetime(2020, 1, 2), "2020-01-02T00:00"),
    "2020-01-02 03:04:00": (TIME, pd.Timestamp(TIME), "2020-01-02 03:04:00.000"),
    None: NOTHING,
}


@pytest.mark.parametrize(("form", "same"), SAME.items())
def test_what_is_one_identifier(form, same):
    assert [identifier(each) for each in same] == [form] * len(same)


def test_mixed_types_are_what_each_is_by_itself():
    """Measured before: [1, '1', 2] counted one person twice, and a text among numbers refused."""
    rows = array_rows(np.ones((4, 1)), None, [1, "1", 2, None])
    count = UnitRows(rows).count()
    assert (count.units, count.most, count.without) == (2, 2, 1)


def test_one_missing_value_changes_no_other_identifier():
    long = [2**53 + 1, 2**60 + 1]
    for ids in (
        [*long, None],
        pl.Series([*long, None]),
        pa.chunked_array([[*long, None]]),
        pd.Series([*long, None], dtype="Int64"),
        np.ma.array([*long, 3], mask=[0, 0, 1]),
    ):
        rows = array_rows(np.ones((3, 1)), None, ids)
        assert rows.fold(Units()).units == [*map(str, long), None]
