"""How a file is written is in its schema: read so, it is the table that it was."""

import datetime
import itertools
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from eigenveil import FederatedPCA
from eigenveil.app.rows import WantedColumns
from eigenveil.errors import DataError
from eigenveil.federation.study.study import make_study, parse_study
from eigenveil.io import Dialect, ReadOptions, open_rows, read_frame, read_schema
from eigenveil.io.survey import check_files
from eigenveil.network.survey import Telling
from eigenveil.tables.adapters import adapter
from eigenveil.tables.common import common_schema
from eigenveil.tables.schema import FORMAT, parse_schema, write_schema
from refusal_tools import refuses

pytestmark = pytest.mark.filterwarnings("ignore::eigenveil.FileDialectWarning")
COLUMNS = [
    {"name": "who", "role": "unit"},
    {"name": "dose", "kind": "number"},
    {"name": "größe", "kind": "category", "levels": ["müde", "wach"], "other": "sonst"},
    {"name": "raucht", "kind": "boolean"},
    {"name": "seen", "kind": "date"},
    {"name": "age", "kind": "years", "since": "born", "until": "seen", "range": [0, 110]},
]


def schema_of(columns=COLUMNS, **reading):
    return parse_schema({"format": FORMAT, "reading": reading, "columns": columns}, origin="s.toml")


def drawn(seed, rows=40):
    """A table with holes, as Arrow has it."""
    rng = np.random.default_rng(seed)

    def holed(values):
        return [None if hole else v for v, hole in zip(values, rng.random(rows) < 0.2, strict=True)]

    def days():
        return [
            datetime.date(1950, 1, 1) + datetime.timedelta(int(n))
            for n in rng.integers(0, 25000, rows)
        ]

    return pa.table(
        {
            "who": holed([f"p{n}" for n in rng.integers(0, 20, rows)]),
            "dose": pa.array(holed(rng.normal(0, 50, rows).round(2).tolist()), pa.float64()),
            "größe": holed(rng.choice(["müde", "wach", "weiß nicht"], rows).tolist()),
            "raucht": holed((rng.random(rows) < 0.5).tolist()),
            "seen": pa.array(holed(days()), pa.date32()),
            "born": pa.array(holed(days()), pa.date32()),
        }
    )


def read(rows):
    blocks = list(rows.blocks())
    units = [unit for block in blocks for unit in block.units.tolist()]
    return np.concatenate([block.values for block in blocks]), units


def alike(found, wanted):
    np.testing.assert_array_equal(found[0], wanted[0])
    return found[1] == wanted[1]


WORDS = {True: ["igen", "i"], False: ["nem"]}
WAYS = list(
    itertools.product(
        [(",", "."), (";", ","), (";", "."), ("\t", ","), ("|", ".")],
        ["utf-8", "latin-1", "utf-16"],
        ["%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d-%m-%Y"],
    )
)


def written(table, path, way, rng):
    """The table as a text, and how it is written; each hole is empty or one of the codes."""
    (separator, decimal), encoding, date_format = way

    def cell(value):
        if value is None:
            return str(rng.choice(["", "-999", "9999", "n. b."]))
        if isinstance(value, bool):
            return str(rng.choice(WORDS[value])).upper()
        if isinstance(value, datetime.date):
            return value.strftime(date_format)
        return str(value).replace(".", decimal) if isinstance(value, float) else value

    lines = [table.column_names, *([cell(v) for v in row.values()] for row in table.to_pylist())]
    path.write_bytes("".join(separator.join(line) + "\n" for line in lines).encode(encoding))
    return dict(
        *([],), separator=separator, decimal=decimal, encoding=encoding, date_format=date_format,
        na=[-999, "9999", "n. b."], true_words=WORDS[True], false_words=WORDS[False],
    )  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_file_in_any_dialect_is_read_alike_by_the_schema_that_states_it(way, tmp_path):
    number = WAYS.index(way)
    table = drawn(number)
    wanted = read(read_frame(table, schema_of()))
    reading = written(table, tmp_path / "rows.csv", way, np.random.default_rng(number))
    write_schema(schema_of(**reading), tmp_path / "s.toml")
    schema = read_schema(tmp_path / "s.toml")
    assert schema == schema_of(**reading)
    assert alike(read(open_rows([tmp_path / "rows.csv"], schema=schema)), wanted)
    # what is stated matters: codes and words are others, and would be lost
    less = open_rows([tmp_path / "rows.csv"], schema=schema_of(encoding=way[1]))
    assert not np.array_equal(read(less)[0], wanted[0], equal_nan=True)


@pytest.mark.parametrize("write", ["csv", "parquet", "frame", "pandas"])
def test_codes_are_no_values_in_any_format(write, tmp_path):
    """Numbers and dates however they are written, and texts; one column may have its own."""
    frame = pd.DataFrame(
        {
            "who": ["a", "-1", "c"], "x": [1.5, -999.0, 7.0], "n": [7, 2, -999],
            "k": ["7", "I", "x"], "t": ["2020-01-02", "1900-01-01", "2020-01-01"],
        }
    )  # fmt: skip
    columns = [
        {"name": "who", "role": "unit", "na": ["-1"]},
        {"name": "x", "kind": "number"},
        {"name": "n", "kind": "number", "na": [7]},
        {"name": "k", "kind": "category", "levels": ["I", "7"]},
        {"name": "t", "kind": "date", "na": ["01.01.1900"], "origin": "2020-01-01"},
    ]
    schema, path = schema_of(columns, na=["-999,00"]), tmp_path / f"rows.{write}"
    if write == "csv":
        frame.to_csv(path, index=False)
    elif write == "parquet":
        pa.parquet.write_table(pa.table(frame), path)
    of_frame = pa.table(frame) if write == "frame" else frame
    rows = open_rows([path], schema=schema) if path.exists() else read_frame(of_frame, schema)
    nan = np.nan
    wanted = [[1.5, nan, 0, 1, 1], [nan, 2, 1, 0, nan], [7, nan, 0, 0, 0]]
    assert alike(read(rows), (np.array(wanted), ["a", None, "c"]))


def test_an_option_stands_above_the_schema(tmp_path):
    path, columns = tmp_path / "rows.csv", [{"name": "x", "kind": "number"}]
    path.write_text("x;y\n1,5;2\n9;1\n")
    schema = schema_of(columns, separator="|", na=["9"])
    with refuses("missing-column"):
        open_rows([path], schema=schema)
    rows = open_rows([path], schema=schema, read=ReadOptions(Dialect(separator=";")))
    (block,) = rows.blocks()
    np.testing.assert_array_equal(block.values[:, 0], [1.5, np.nan])
    assert rows.schema.reading == Dialect(separator=";", na=["9"])  # new rows are read so, too


def test_how_a_file_is_written_is_no_part_of_what_sites_agree_on(tmp_path):
    """Each site reads a file of its own kind; the study holds none of it."""
    rng, tables, own = np.random.default_rng(5), {}, {}
    for number, (name, way) in enumerate(zip(("north", "south"), (WAYS[7], WAYS[-1]), strict=True)):
        tables[name], path = drawn(number), tmp_path / f"{name}.csv"
        own[name] = schema_of(**written(tables[name], path, way, rng))
    assert own["north"].hash == own["south"].hash == schema_of().hash
    assert own["north"].difference(own["south"]) == ""
    assert Telling(schema=own["north"]).schema == schema_of()
    common, differences = common_schema(own)
    assert (common.reading, differences) == (Dialect(), ())
    study = make_study(
        name="both", task="pca", components=1, columns=list(common.names), unit="who",
        sites=[{"name": name} for name in own], table_schema=own["north"], scale="private",
    )  # fmt: skip
    assert study.table_schema == schema_of()
    assert parse_study(json.loads(study.model_dump_json())).hash == study.hash
    for name, schema in own.items():
        wanted = WantedColumns.of_study(study, WantedColumns(schema=schema))
        rows = wanted.open([tmp_path / f"{name}.csv"])
        assert alike(read(rows), read(read_frame(tables[name], schema_of())))
    given = json.loads(study.model_dump_json())
    given["table_schema"] |= {"reading": {"na": ["9"]}}
    with refuses("bad-schema", "in each site's own schema"):
        parse_study(given)
    opened = {n: open_rows([tmp_path / f"{n}.csv"], schema=s) for n, s in own.items()}
    model = FederatedPCA(1, unit="who", scale="private").fit_rows(opened)
    assert model.schema_ == schema_of()


def test_one_column_of_a_category_is_one_in_each_row_whatever_its_level():
    """So nothing changes for sensitivities: a row has one 1 in the columns of a category."""
    rng = np.random.default_rng(3)
    levels = ["a", "b", "other level", " b", "sonst"]
    cells = [None if v == "b" and rng.random() < 0.1 else v for v in rng.choice(levels, 500)]
    columns = [{"name": "k", "kind": "category", "levels": ["a", "b"], "other": "sonst"}]
    schema = schema_of(columns)
    assert schema.names == ("k=a", "k=b", "k=sonst")
    values = np.concatenate(
        [b.values for b in read_frame(pd.DataFrame({"k": cells}), schema).blocks()]
    )
    missing = np.array([cell is None for cell in cells])
    assert missing.any()
    assert np.isnan(values[missing]).all()
    assert np.array_equal(values[~missing].sum(axis=1), np.ones((~missing).sum()))
    others = [cell in ("other level", "sonst") for cell in cells]
    assert np.array_equal(values[~missing, 2], np.array(others)[~missing])


def test_an_age_is_the_years_between_two_dates_whatever_their_origins():
    columns = [
        {"name": "age", "kind": "years", "since": "born", "until": "seen", "range": [0, 110]},
        {"name": "seen", "kind": "date", "origin": "2020-01-01", "date_format": "%d/%m/%Y"},
        {"name": "born", "role": "ignore", "na": ["1900-01-01"]},
    ]
    schema = schema_of(columns)
    frame = pd.DataFrame(
        {
            "born": ["1950-01-01", "1900-01-01", "2000-02-30"],
            "seen": ["1/1/2020", "01/01/2020", "02/01/2020"],
        }
    )
    (block,) = read_frame(frame, schema).blocks()
    days = (datetime.date(2020, 1, 1) - datetime.date(1950, 1, 1)).days
    np.testing.assert_array_equal(block.values, [[days / 365.25, 0], [np.nan, 0], [np.nan, 1]])
    assert block.values.dtype == np.float64
    np.testing.assert_array_equal(schema.public_ranges()[0], [0, 110])
    # of new rows only what is needed, in their own columns or as they were encoded
    only = schema.only(["age"])
    assert [column.name for column in only.columns] == ["age", "seen", "born"]
    assert only.names == ("age",)
    encoded = adapter(pd.DataFrame({"age": [70.0]})).by_schema(schema, ["age"])
    assert encoded.frame["age"].to_list() == [70.0]


def test_the_owner_is_told_of_codes_that_are_no_cell_and_cells_that_are_no_date(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("x,s,t,b\n999.0,1,31/12/2024,ja\n2,-9,12/31/2024,nein\n3,3,NA,vielleicht\n")
    columns = [
        {"name": "x", "kind": "number"},
        {"name": "s", "kind": "number", "na": ["-9", "-8"]},
        {"name": "t", "kind": "date", "date_format": "%d/%m/%Y"},
        {"name": "b", "kind": "boolean"},
    ]
    report = check_files([path], schema_of(columns, na=["999", "n.b."]))
    assert report.codes == {"'999'": 1, "'n.b.'": 0, "'-9' of 's'": 1, "'-8' of 's'": 0}
    found = {each.column.name: (each.holes, "; ".join(each.findings)) for each in report.columns}
    assert found == {
        "x": (1, ""),
        "s": (1, ""),
        "t": (2, "constant; 1 cells that are no date, and count as missing: '12/31/2024'"),
        "b": (1, "1 cells that are no truth value, and count as missing: 'vielleicht'"),
    }
    assert not report.clean


LEVELS = {"kind": "category", "levels": ["a", "b"]}
YEARS = {"kind": "years", "since": "x", "until": "y", "range": [0, 1]}


@pytest.mark.parametrize(
    ("reading", "column", "code", "said"),
    [
        ({"encoding": "latin-99"}, {}, "unknown-encoding", "reading: .*latin-99"),
        ({"encoding": "base64"}, {}, "unknown-encoding", "base64"),
        ({"separator": ";;"}, {}, "bad-dialect", "separator = ';;' is not one character"),
        ({"separator": ","}, {}, None, None),
        ({"separator": ",", "decimal": ","}, {}, "bad-dialect", "are both ','"),
        ({"na": "999"}, {}, "bad-schema", "na = '999' is not a list of texts"),
        ({"na": [[]]}, {}, "bad-schema", "na = "),
        ({"header": 1}, {}, "bad-schema", "header = 1 is not true or false"),
        ({"separator": 5}, {}, "bad-schema", "separator = 5 is not a text"),
        ({"seperator": ";"}, {}, "unknown-key-of-schema", "seperator"),
        ({"date_format": "%d.%m"}, {}, "bad-dialect", "%Y"),
        ({"date_format": "DD.MM.YYYY"}, {}, "bad-dialect", "as %d.%m.%Y has"),
        ({"date_format": "%d.%m.%y"}, {}, "bad-dialect", "four digits"),
        ({"true_words": ["ja"]}, {}, "bad-dialect", "together"),
        ({"true_words": ["ja"], "false_words": ["JA"]}, {}, "bad-dialect", "'ja' is among"),
        ({}, {"kind": "number", "date_format": "%d.%m.%Y"}, "bad-schema", "no meaning"),
        ({}, {"kind": "number", "na": 9}, "bad-schema", "'k': na = 9"),
        ({"na": ["b"]}, LEVELS, "bad-schema", "'b' is a level and a code"),
        ({}, LEVELS | {"other": "b"}, "bad-schema", "one of its levels"),
        ({}, {"kind": "number", "other": "b"}, "bad-schema", "no meaning"),
        ({}, {"kind": "years", "since": "x"}, "bad-schema", "needs since and until and range"),
        ({}, YEARS | {"until": "a"}, "bad-schema", "'a' is no date"),
        ({}, YEARS | {"since": 5}, "bad-schema", "not a text"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_in_a_sentence(reading, column, code, said):
    columns = [{"name": "a", "kind": "number"}, *([{"name": "k"} | column] if column else [])]
    if code is None:
        assert schema_of(columns, **reading).reading.separator == ","
        return
    with pytest.raises(DataError, match=said) as caught:
        schema_of(columns, **reading)
    assert caught.value.code == code
    assert "s.toml" in caught.value.message
