"""What is particular to files of spreadsheets and statistics programs."""

from __future__ import annotations

import builtins
import datetime
import struct
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pyreadr
import pyreadstat
import pytest
from row_formats import refusal, saved_sas, saved_sheet, values

from eigenveil.errors import FileDialectWarning
from eigenveil.io import ReadOptions, open_rows
from eigenveil.io.formats.statistics import StatisticsTable
from eigenveil.io.survey import look_at
from eigenveil.tables.draft import drafted
from eigenveil.tables.reading import Dialect
from eigenveil.tables.schema import FORMAT, parse_schema

SCHEMA = parse_schema(
    {
        "format": FORMAT,
        "columns": [
            {"name": "who", "role": "unit"},
            {"name": "born", "kind": "date", "origin": "2000-01-01"},
            {"name": "seen", "kind": "date", "origin": "2000-01-01"},
            {"name": "sex", "kind": "category", "levels": ["1", "2"]},
            {"name": "size", "kind": "number"},
        ],
    }
)
NAMES = ["who", "born", "seen", "sex", "size"]
BORN = [datetime.date(2000, 1, 2), datetime.date(1999, 12, 31), None]
SEEN = [datetime.datetime(2000, 1, 2, 23, 59), datetime.datetime(1999, 12, 31, 0, 0, 1), None]
WANTED = [[1, 1, 1, 0, 1.5], [-1, -1, 0, 1, np.nan], [np.nan, np.nan, 0, 0, 3]]


def _frame() -> pd.DataFrame:
    found = pd.DataFrame({"who": ["7", "007", "x y"], "sex": [1.0, 2.0, 3.0]})
    found["born"], found["seen"] = pd.Series(BORN, dtype=object), pd.Series(SEEN)
    return found.assign(size=[1.5, np.nan, 3.0])[NAMES]


def _sav(path):
    """With labels of values, a range of missing ones, and a code for one."""
    frame = _frame()
    frame.loc[1, "size"] = 95.0
    labels = {"sex": {1: "male", 2: "female"}}
    ranges = {"size": [{"lo": 90, "hi": 99}]}
    pyreadstat.write_sav(frame, path, variable_value_labels=labels, missing_ranges=ranges)


def _dta(path):
    """With a missing value that has a letter."""
    frame = _frame()
    frame["size"] = pd.Series([1.5, "a", 3.0], dtype=object)
    pyreadstat.write_dta(frame, path, missing_user_values={"size": ["a"]})


def _xlsx(path):
    rows = _frame().replace({np.nan: None}).values.tolist()
    rows[2][1:3] = [None, None]
    saved_sheet(path, NAMES, *rows)


def _days(moment, first, *, per_day=1.0):
    if moment is None:
        return np.nan
    moment = datetime.datetime.combine(moment, datetime.time()) if per_day == 1.0 else moment
    return (moment - first) / datetime.timedelta(1) * per_day


def _sas(path):
    first = datetime.datetime(1960, 1, 1)
    born = [_days(each, first) for each in BORN]
    seen = [round(_days(each, first, per_day=86400), 3) for each in SEEN]
    columns = [[7.0, 8.0, 9.0], born, seen, [1.0, 2.0, 3.0], [1.5, np.nan, 3.0]]
    saved_sas(path, dict(zip(NAMES, columns, strict=True)), {"born": "DATE9", "seen": "DATETIME20"})


def _rds(path):
    """As saveRDS(ascii = FALSE, compress = FALSE) writes it: dates and factors are of a class."""
    first = datetime.datetime(1970, 1, 1)

    def item(kind, flags, *parts):
        return struct.pack(">i", kind | flags << 8) + b"".join(parts)

    def text(one):
        return item(9, 64 << 4, struct.pack(">i", len(one)), one.encode())

    def texts(*every):
        return item(16, 0, struct.pack(">i", len(every)), *map(text, every))

    def attributes(**named):
        pairs = [item(2, 4, item(1, 0, text(n)), own) for n, own in named.items()]
        return b"".join(pairs) + item(254, 0)

    def vector(kind, code, cells, **named):
        data = struct.pack(f">i{len(cells)}{code}", len(cells), *cells)
        return item(kind, 3 if "class" in named else 2 * bool(named), data) + (
            attributes(**named) if named else b""
        )

    born = [_days(each, first) for each in BORN]
    seen = [_days(each, first, per_day=86400) for each in SEEN]
    columns = [
        texts("7", "007", "x y"),
        vector(14, "d", born, **{"class": texts("Date")}),
        vector(14, "d", seen, **{"class": texts("POSIXct", "POSIXt")}),
        vector(13, "i", [1, 2, 3], levels=texts("1", "2", "z"), **{"class": texts("factor")}),
        vector(14, "d", [1.5, np.nan, 3.0]),
    ]
    numbers = vector(13, "i", [-(2**31), -3])
    named = {"names": texts(*NAMES), "class": texts("data.frame"), "row.names": numbers}
    frame = item(19, 3, struct.pack(">i", 5), *columns, attributes(**named))
    path.write_bytes(b"X\n" + struct.pack(">iii", 2, 0x40202, 0x20300) + frame)


SAVERS = {"r.sav": _sav, "r.dta": _dta, "r.xlsx": _xlsx, "r.sas7bdat": _sas, "r.rds": _rds}


@pytest.mark.parametrize("name", SAVERS)
def test_dates_codes_and_missing_values_are_read_by_a_schema(name, tmp_path, monkeypatch):
    monkeypatch.setattr("eigenveil.io.formats.statistics.part_rows", lambda features: 2)
    SAVERS[name](tmp_path / name)
    rows = open_rows([tmp_path / name], schema=SCHEMA)
    np.testing.assert_array_equal(values(rows), WANTED)
    units = [unit for block in rows.blocks() for unit in block.units]
    assert units == (["7", "8", "9"] if name == "r.sas7bdat" else ["7", "007", "x y"])
    seen = {each.column.name: each for each in drafted(look_at([tmp_path / name])[0])}
    assert ("1 is 'male'; 2 is 'female'" in seen["sex"].why) == (name == "r.sav")
    kinds = {name: each.column.kind for name, each in seen.items()}
    assert kinds["born"] == kinds["seen"] == "date"
    assert kinds["size"] == "number"
    if name not in ("r.sas7bdat", "r.xlsx"):  # its first texts are few
        error = refusal([tmp_path / name])
        assert (error.code, "column 'who' is string" in error.message) == ("not-a-feature", True)


BEYOND = {
    "r.sav": lambda path, frame: pyreadstat.write_sav(
        frame, path, variable_format={"born": "DATE11"}
    ),
    "r.dta": lambda path, frame: pyreadstat.write_dta(frame, path, variable_format={"born": "%td"}),
    "r.sas7bdat": lambda path, frame: saved_sas(path, {"born": frame["born"]}, {"born": "DATE9"}),
}


@pytest.mark.parametrize("name", BEYOND)
def test_a_date_that_no_calendar_has_is_missing(name, tmp_path):
    """One person's cell ends no pass."""
    BEYOND[name](tmp_path / name, pd.DataFrame({"born": [0.0, 1e300, -1e300]}))
    schema = parse_schema({"format": FORMAT, "columns": [{"name": "born", "kind": "date"}]})
    found = values(open_rows([tmp_path / name], schema=schema))[:, 0]
    first = -141428 if name == "r.sav" else -3653  # of 1582-10-14, and 1960-01-01
    np.testing.assert_array_equal(found, [first, np.nan, np.nan])


def test_the_first_sheet_is_read_or_the_one_that_is_named(tmp_path, run):
    book = openpyxl.Workbook()
    book.active.append(["a"])
    book.active.append([1])
    for row in (
        [],
        [None, "b", None, "c"],
        [],
        [None, 2, None, 3],
        ["note", None, None, 4, "note"],
    ):
        book.create_sheet("more rows") if "more rows" not in book.sheetnames else None
        book["more rows"].append(row)
    path = tmp_path / "b.xlsx"
    book.save(path)
    with pytest.warns(FileDialectWarning, match="of 2 sheets the first, 'Sheet', is read; --sheet"):
        assert open_rows([path]).names == ("a",)
    rows = open_rows([path], read=ReadOptions(sheet="more rows"))
    assert rows.names == ("b", "c")  # empty rows are none, and what has no name is left out
    np.testing.assert_array_equal(values(rows), [[2, 3], [np.nan, 4]])
    error = refusal([path], read=ReadOptions(sheet="rows"))
    assert (error.code, error.hint) == (
        "missing-sheet",
        "Its sheets are 'Sheet', 'more rows': --sheet NAME.",
    )
    fit = ("fit", path, "--one-row-per-person", "-k", 1, "--no-plots")
    assert "'more rows'" in run.fails(*fit, "--sheet", "rows", "--out", tmp_path / "none")
    run.done(*fit, "--sheet", "more rows", "--out", tmp_path / "result")
    assert refusal([path], read=ReadOptions(dialect=Dialect(header=False))).code == "bad-dialect"


@pytest.mark.parametrize("name", ["r.sav", "r.dta"])
def test_bytes_that_are_no_text_refuse_no_file(name, tmp_path):
    """They are the sign for such bytes, as in text; other cells are as they were."""
    frame = pd.DataFrame({"größe": ["ä1", "kaputt", "c3"], "b": [1.0, 2.0, 3.0]})
    {"r.sav": pyreadstat.write_sav, "r.dta": pyreadstat.write_dta}[name](frame, tmp_path / name)
    path = tmp_path / name
    path.write_bytes(path.read_bytes().replace(b"kaputt", b"kap\xff\xfet"))
    assert open_rows([path], unit="größe").unit == "größe"
    (batch,) = (b for b in StatisticsTable(path)._batches(["größe", "b"], ()) if b.num_rows)
    assert batch.column("größe").to_pylist() == ["ä1", "kap\ufffd\ufffdt", "c3"]
    assert batch.column("b").to_pylist() == [1, 2, 3]


def test_a_time_that_python_cannot_have_refuses_no_sheet(tmp_path):
    """One person's cell ends no pass: the row is left out."""
    book = openpyxl.Workbook()
    for row in ((None, "a", "b"), (None, 1, 2), (None, 3, 1e15), (None, 5, 6)):
        book.active.append(row)
    book.active["C3"].number_format = "[h]:mm:ss"
    book.save(tmp_path / "r.xlsx")
    rows = open_rows([tmp_path / "r.xlsx"])
    assert rows.names == ("a", "b")
    np.testing.assert_array_equal(values(rows), [[1, 2], [5, 6]])


def test_a_code_for_a_missing_value_of_a_sheet(tmp_path):
    path = saved_sheet(
        tmp_path / "r.xlsx", ["a", "b"], [999, 1], [2, "k.A."], [True, "1,5"], [5, 2]
    )
    with pytest.warns(FileDialectWarning, match="'999' in 1 cells"):
        found = values(open_rows([path], read=ReadOptions(dialect=Dialect(na=("999",)))))
    np.testing.assert_array_equal(found, [[np.nan, 1], [2, np.nan], [1, np.nan], [5, 2]])


def test_a_sheet_whose_cells_are_far_apart_is_refused_before_it_is_read(tmp_path):
    book = openpyxl.Workbook()
    book.active["A1"], book.active["XFD1048576"] = "a", 1
    book.save(tmp_path / "far.xlsx")
    error = refusal([tmp_path / "far.xlsx"])
    assert error.code == "file-too-large"
    assert "16,384 x 1,048,576" in error.message


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    for module in ("io.files", "io.formats.statistics"):
        monkeypatch.setattr(f"eigenveil.{module}.MOST_UNPACKED", 1 << 16)
    frame = pd.DataFrame({"a": np.zeros(20_000)})
    pyreadr.write_rds(tmp_path / "r.rds", frame, compress="gzip")
    assert refusal([tmp_path / "r.rds"]).code == "file-too-large"
    with zipfile.ZipFile(tmp_path / "r.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/sharedStrings.xml", "x" * (1 << 17))
    assert refusal([tmp_path / "r.xlsx"]).code == "file-too-large"


def test_what_is_no_data_frame_of_r_is_refused(tmp_path):
    path = tmp_path / "r.rds"
    path.write_bytes(
        b"X\n" + struct.pack(">iii", 2, 0x40202, 0x20300) + struct.pack(">iiii", 13, 2, 1, 2)
    )
    assert "it is not one data frame" in refusal([path]).message


def test_a_level_of_r_that_is_missing_is_missing(tmp_path):
    """In Arrow a factor is the texts of its levels, whichever cells have them."""
    levels = pd.Categorical([None, "w", "m"], categories=["m", "w"])
    pyreadr.write_rds(tmp_path / "r.rds", pd.DataFrame({"sex": levels, "fit": [True, False, True]}))
    columns = [
        {"name": "sex", "kind": "category", "levels": ["m", "w"]},
        {"name": "fit", "kind": "boolean"},
    ]
    rows = open_rows(
        [tmp_path / "r.rds"], schema=parse_schema({"format": FORMAT, "columns": columns})
    )
    np.testing.assert_array_equal(values(rows), [[np.nan, np.nan, 1], [0, 1, 0], [1, 0, 1]])


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [
        ("r.sav", "pyreadstat", "statistics"),
        ("r.rds", "pyreadr", "statistics"),
        ("r.xlsx", "python_calamine", "sheets"),
    ],
)
def test_a_library_that_is_not_there_is_named_with_its_extra(
    name, library, extra, tmp_path, monkeypatch
):
    SAVERS[name](tmp_path / name)
    monkeypatch.setattr("eigenveil.checks.import_module", _without(library))
    error = refusal([tmp_path / name])
    assert (error.code, library in error.message) == ("extra-missing", True)
    assert error.hint == f"pip install 'eigenveil[{extra}]'."


def _without(library):
    def found(name):
        if name.partition(".")[0] == library:
            raise ImportError(name)
        return builtins.__import__(name)

    return found
