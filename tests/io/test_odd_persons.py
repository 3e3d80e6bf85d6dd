"""One person, odd in every way that an entrance knows, changes nothing for anybody else.

A table is read with that person and without: what everybody else's rows become (prepared integers,
in both precisions, with holes and without, and weights) is the same to the last bit, and reading
ends in the same way, with rows or with the same error code. Measured before: a truth value in a
column that was otherwise empty rounded all rows anew (28284 times what was recorded), as did a new
part of a folder and a new image; a text among numbers ended the pass; a person was two.
"""

import datetime
import gzip
import math
import sqlite3
import warnings
from collections import Counter
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import cell_tools
import dask.array
import dask.dataframe
import genotype_tools
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pyreadr
import pyreadstat
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from image_tools import brain, slice_file
from row_formats import bag_of_words, saved_sheet

from eigenveil.errors import EigenveilError
from eigenveil.federated.running import site_rows
from eigenveil.io import Query, ReadOptions, open_rows, read_frame
from eigenveil.io.formats.dialect import Dialect
from eigenveil.io.formats.registry import formats
from eigenveil.io.text_stream import StreamedRows
from eigenveil.moments.preparation import Preparation
from eigenveil.moments.rows import RowRule
from eigenveil.moments.source import PartitionedRows, Reading
from eigenveil.tables.adapters import rows_of
from eigenveil.tables.adapters.base import array_rows
from eigenveil.tables.entries import identifier
from eigenveil.tables.schema import FORMAT, parse_schema
from eigenveil.tables.units import unit_rows
from soak_tools import times

WIDTH = 3
NAMES = ["who", "age", "size", "rare"]  # the last is often empty
SCHEMA = parse_schema(
    {
        "format": FORMAT,
        "columns": [{"name": "who", "role": "unit"}]
        + [{"name": name, "kind": "number"} for name in NAMES[1:]],
    }
)
KINDS = parse_schema(
    {
        "format": FORMAT,
        "columns": [
            {"name": "who", "role": "unit"},
            {"name": "age", "kind": "number"},
            {"name": "size", "kind": "category", "levels": ["7", "0.5", "true"]},
            {"name": "rare", "kind": "date"},
        ],
    }
)


class Odd:
    """What has a text that is an accident."""

    def __str__(self):
        raise RuntimeError

    __float__ = __str__


ENTRIES = [
    *(None, pd.NA, pd.NaT, np.ma.masked, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324),
    *(True, False, 0, 999, -999, 10**400, -(10**400), 2**53 + 1, 2**63, 2**64 + 1, np.int8(3)),
    *("", " ", "x", "<5", " 7 ", "0.5", "true", "nan", "inf", "1e400", "999", "1_000", "\ud800"),
    *(b"5", b"\xff", datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3), Odd(), object()),
    *(Decimal("0.1"), Decimal("NaN"), Decimal("1e999"), 1j, [], [1], {}, (1, 2), np.float32(0.1)),
    *(np.datetime64("2020-01-01"), pd.Timestamp("2020-01-01"), pd.Timedelta(1), np.float64(0.1)),
]
IDS = [
    *(None, pd.NA, math.nan, math.inf, True, 70, "70", 70.0, 70.5, 2.0**53, 1e300, 2**60, 10**400),
    *("", "x", "007", "Ame\u0301lie", "\ud800", b"\xff", b"70", Odd(), object(), (1, 2), [1], {}),
    *(datetime.date(2020, 1, 2), Decimal("70.0"), Decimal("NaN"), 1j, np.float32(0.1), "NA"),
]
OTHERS = st.lists(
    st.tuples(
        st.sampled_from([2, 3, 4, 5, 6]),
        st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-6),
        st.sampled_from([0.1, 1.0, 1 / 3, 12345.678, math.nan]),
        st.sampled_from([None, None, None, 2.5, 1e-3]),
    ),
    min_size=3,
    max_size=8,
)
CELL = st.sampled_from(ENTRIES)
FLOATS = [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0, 0.1, 2.0**53 + 2, 1e30]


def of_floats(draw):
    """A person whom a file of numbers can have."""
    return draw(st.sampled_from([70, 71])), [draw(st.sampled_from(FLOATS)) for _ in range(WIDTH)]


def of_anything(draw):
    return draw(st.sampled_from(IDS)), [draw(CELL) for _ in range(WIDTH)]


def of_rows(draw):
    """Of a list, where a row may be none, or too long."""
    who, row = of_anything(draw)
    return who, draw(st.sampled_from([row, row, row[:1], [*row, 1], [], None, 7, "abc"]))


def of_database(draw):
    cells = [None, 7, 2**62, 0.5, 1e308, math.inf, "<5", "7", "", "x", b"\xff", b"7", "0.1", "true"]
    return draw(st.sampled_from([*cells, 70])), [draw(st.sampled_from(cells)) for _ in range(WIDTH)]


def of_sheet(draw):
    """Cells of any kind, and notes beside the table."""
    day, moment = datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3)
    cells = [None, 7, 0.5, 1e308, math.inf, "<5", "7", "x", "true", True, day, moment, "=1/0"]
    row = [draw(st.sampled_from(cells)) for _ in range(WIDTH)]
    note = draw(st.sampled_from([[], ["note"], [None, 5.0]]))
    return draw(st.sampled_from([70, "70", "70.0", None, day, 70.5])), row + note


def of_images(draw):
    """Voxels, how they are stored, and what the header says of the person."""
    kind = draw(st.sampled_from([np.float64, np.float32, np.int16, np.uint8]))
    return draw(st.sampled_from([70, None, ""])), [
        draw(st.sampled_from(FLOATS if np.dtype(kind).kind == "f" else [0, 7, 200])),
        draw(st.sampled_from([None, 2.5, 1e-3, -1.0])),
        kind,
    ]


# Lines of text as they are written, of the names who,age,size,rare; @ stands between cells.
LINES = [
    *('70@"1@2@3', '70@1@2@"3', '"70@1@2@3', '70@1@"2\n5"@3', '70@1@"2\r\n5"@3', '70@"a""@2@3'),
    *("70@1", "70", "", " ", "70@1@2@3@4", "@@@", "@@@@@@@@", '70@1@2@"3"x', '70@1"2@2@3', '"'),
    *("70@true@2@3", "70@<5@x@", "70@1e400@inf@nan", "70@999@999,0@999.0", "70@1,5@2.5@1.000,5"),
    *("70@-inf@+5@ 7 ", "#70@1@2@3", "70@\x00@2@3", "70@\ud800@2@3", "\ufeff70@1@2@3", "NA@1@2@3"),
    *("007@1@2@3", "1e300@1@2@3", "7\r0@1@2@3", "70@0x10@1_000@1d5", "70@--@NULL@None"),
    "70@1e-400@.5@5.",
    "70@" + "9" * 400 + "@2@3",
    "70@" + "x" * 70_000 + "@2@3",
]


def of_lines(draw):
    return draw(st.sampled_from(LINES))


# -- Entrances: what opens some people, and how one of them can be odd.


def typed(people, kind=None):
    """Columns as Arrow stores them, of one type each; ids are whole numbers."""
    columns = [[who for who, _ in people], *zip(*(row for _, row in people), strict=True)]
    kinds = [pa.int64(), *[kind or pa.float64()] * WIDTH]
    return pa.table([pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], names=NAMES)


def matrix(people):
    return np.array([[math.nan if x is None else x for x in row] for _, row in people], float)


def counts(people):
    """Whole numbers of others, so that a file of counts has them; the odd one has any number."""
    found = np.nan_to_num(np.abs(matrix(people)), posinf=math.inf)
    return np.where(np.isfinite(found) & (found < 1e12), np.rint(found) % 50, found)


def saved_text(people, path, *, between=",", decimal=".", encoding="utf-8", header=True):
    """A line of text is written as it stands."""
    lines = [between.join(NAMES)] * header
    for person in people:
        if isinstance(person, str):
            lines.append(person.replace("@", between))
            continue
        who, row = person
        cells = ["" if x is None else repr(x).replace(".", decimal) for x in row]
        lines.append(between.join([str(who), *cells]))
    text = "\n".join(lines) + "\n"
    if encoding == "utf-8":
        data = text.encode("utf-8", "surrogatepass")
    else:
        data = text.encode(encoding, "surrogatepass" if "16" in encoding else "replace")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def of_text(name, dialect=None, **written):
    dialect = dialect or Dialect()

    def opened(people, folder, schema=None):
        path = saved_text(people, folder / name, header=dialect.header, **written)
        read = ReadOptions(dialect=dialect)
        if schema is not None:
            return open_rows([path], schema=schema, read=read)
        return open_rows([path], unit="who" if dialect.header else "c1", read=read)

    return opened


def sheet(people, folder):
    path = saved_sheet(folder / "rows.xlsx", NAMES, *([who, *row] for who, row in people))
    return open_rows([path], unit="who")


def of_program(name, write):
    def opened(people, folder):
        columns = np.column_stack([[float(who) for who, _ in people], matrix(people)])
        write(folder / name, pd.DataFrame(columns, columns=NAMES))
        return open_rows([folder], unit="who")

    return opened


def of_parts(save, ending):
    """A file for each person: the odd one's columns may be of other types."""

    def opened(people, folder):
        kinds = [pa.float64(), pa.float32(), pa.float16(), pa.int64(), pa.bool_(), pa.null()]
        for number, (who, row) in enumerate(people):
            table = typed([(who, row)], pa.float32())
            if who >= 70:  # the odd one
                kind = kinds[len(repr(row)) % len(kinds)]
                cell = row[0] if pa.types.is_floating(kind) else None if kind == pa.null() else 1
                table = table.set_column(1, "age", pa.array([cell]).cast(kind, safe=False))
                own = [who, str(who), float(who)][len(repr(row)) % 3]
                table = table.set_column(0, "who", pa.array([own]))
            save(table, folder / f"{number:02}.{ending}")
        return open_rows([folder], unit="who")

    return opened


def of_database_file(kind):
    def opened(people, folder):
        place = folder / "rows.sqlite"
        with sqlite3.connect(place) as made:
            made.execute(f"CREATE TABLE t (who {kind}, age {kind}, size {kind}, rare {kind})")
            rows = [(who, *row) for who, row in people]
            made.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        made.close()
        return open_rows([Query("SELECT * FROM t", f"sqlite:///{place}")], schema=SCHEMA)

    return opened


def image_of(row):
    """Of others a whole number, without a scale of its own."""
    value, slope, kind = row
    return (
        (value, slope, kind) if isinstance(kind, type) else (abs(int(value)) % 99, None, np.int16)
    )


def nifti(people, folder):
    for number, (who, row) in enumerate(people):
        value, slope, kind = image_of(row)
        with np.errstate(all="ignore"):
            voxels = np.full((2, 2, 1), value).astype(kind)
        voxels[0, 0, 0] = 1
        name = f"image_{number:02}" if who in (None, "") else f"sub-{who}_{number:02}"
        path = brain(folder / f"{name}.nii", voxels, affine=np.eye(4))
        if slope is not None and np.dtype(kind).kind != "f":
            data = bytearray(path.read_bytes())
            data[112:120] = np.array([slope, 1.5], "<f4").tobytes()  # scl_slope, scl_inter
            path.write_bytes(data)
    return open_rows([folder], unit="subject")


def dicom(people, folder):
    for number, (who, row) in enumerate(people):
        value, slope, _ = image_of(row)
        pixels = np.abs(np.nan_to_num(np.full((2, 2), value, float), posinf=9, neginf=9))
        patient = None if who is None else str(who)
        slice_file(
            folder / f"{number:02}.dcm", pixels.astype(np.int64), patient=patient, slope=slope
        )
    return open_rows([folder], unit="PatientID")


def word_counts(people, folder):
    found = np.nan_to_num(counts(people), posinf=2.0**40)
    return open_rows([bag_of_words(folder / "docword.x.txt", found)])


def npy(people, folder):
    """A file for each person: the odd one's may be of another type."""
    for number, person in enumerate(people):
        kind = np.float64 if person[0] == 70 else np.float32
        with np.errstate(over="ignore"):
            np.save(folder / f"{number:02}.npy", matrix([person]).astype(kind))
    return open_rows([folder])


def of_matrix(name, save):
    """A matrix of all, sparse where the format has such."""

    def opened(people, folder):
        sparse = name.endswith("mtx") or save is scipy.sparse.save_npz
        save(folder / name, scipy.sparse.csr_array(counts(people)) if sparse else matrix(people))
        return open_rows([folder / name])

    return opened


def cells_of(people, ids=str):
    return cell_tools.cells_of(matrix(people), NAMES[1:], who=[ids(who) for who, _ in people])


def of_cells(ending):
    def opened(people, folder):
        place = cell_tools.saved(cells_of(people), folder / f"cells{ending}")
        return open_rows([place], unit="who")

    return opened


def ten_x(people, folder):
    return open_rows([cell_tools.tenx_file(folder / "rows.h5", counts(people), NAMES[1:])])


def genotypes(write, ending):
    """Counts of an allele; a call that is none is missing."""

    def opened(people, folder):
        found = np.mod(np.nan_to_num(counts(people), posinf=3.0), 4.0)
        found[found > 2] = np.nan
        path = folder / f"rows{ending}"
        getattr(genotype_tools, write)(path, found.astype(np.float32))
        return open_rows([path])

    return opened


def typed_column(column):
    """Of decimals where all are, of objects otherwise, as what is mixed or empty is read."""
    floats = all(type(x) is float or x is None for x in column) and any(column)
    with np.errstate(over="ignore"):  # numbers that float32 holds, whatever holds them
        held = [float(np.float32(x)) if type(x) is float else x for x in column]
    return pd.Series(held, dtype=np.float32 if floats else object)


def made_frame(people, kind=typed_column):
    columns = zip(*(row for _, row in people), strict=True)
    ids = pd.Series([who for who, _ in people], dtype=object)
    return pd.DataFrame(
        {"who": ids} | {n: kind(c) for n, c in zip(NAMES[1:], columns, strict=True)}
    )


def objects_frame(people):
    return made_frame(people, lambda column: pd.Series(list(column), dtype=object))


def polars_frame(people):
    """Columns of Polars' objects where a person has other types than the others."""
    found = [pl.Series("who", [who for who, _ in people], pl.Object)]
    for name, column in zip(NAMES[1:], zip(*(row for _, row in people), strict=True), strict=True):
        floats = all(type(x) is float or x is None for x in column)
        found.append(pl.Series(name, list(column), pl.Float64 if floats else pl.Object))
    return pl.DataFrame(found)


def fitted_rows(X, **named):
    return rows_of(X, **{"unit": None, **named})


def whom(people):
    return [who for who, _ in people]


def rows_in(people):
    return [row for _, row in people]


def objects(people):
    found = np.empty((len(people), WIDTH), object)
    for place, (_, row) in enumerate(people):
        for column, entry in enumerate(row):
            found[place, column] = entry
    return found


def masked(people):
    """Of floats, or of whole numbers: what is no number is under the mask."""
    found = matrix(people)
    return np.ma.masked_array(np.nan_to_num(found), mask=np.isnan(found))


def dask_frame(people):
    """A partition for each person; a column of the odd one's may be of objects."""
    meta = {n: pd.Series([], dtype=object if n == "who" else float) for n in NAMES}
    parts = [dask.delayed(made_frame([person])) for person in people]
    with dask.config.set({"dataframe.convert-string": False}):  # Dask's own reading of texts
        return dask.dataframe.from_delayed(parts, meta=pd.DataFrame(meta), verify_meta=False)


def dask_array(people):
    return dask.array.from_array(matrix(people), chunks=(1, -1))


def of_site(people, folder):
    del folder
    other = pd.DataFrame(np.ones((2, WIDTH)), columns=NAMES[1:]).assign(who=["a", "b"])
    return site_rows({"b": other, "a": made_frame(people)}, for_one="PrivatePCA", unit="who")["a"]


def streamed(people, folder):
    path = saved_text(people, folder / "rows.csv")
    blocks = StreamedRows(path, exclude=["who"], strict=False).blocks(4)
    return array_rows(np.concatenate([block.values for block in blocks]), None)


TEXTS = {
    "a stream": streamed,
    "rows.csv": of_text("rows.csv"),
    "rows.tsv.gz": of_text("rows.tsv.gz", between="\t"),
    "no header.csv": of_text("rows.csv", Dialect(header=False)),
    "commas.csv": of_text("rows.csv", between=";", decimal=","),
    "na.csv": of_text("rows.csv", Dialect(na=("999",), comment="#")),
    "na commas.csv": of_text("rows.csv", Dialect(na=("999",)), between=";", decimal=","),
    "utf-16.csv": of_text("rows.csv", encoding="utf-16"),
    "latin-1.csv": of_text("rows.csv", Dialect(encoding="latin-1"), encoding="latin-1"),
    "schema.csv": lambda people, folder: of_text("rows.csv")(people, folder, schema=KINDS),
}
FILES = {  # entrance: its format, how a person is odd in it, and what opens people
    **{name: ("text", of_lines, opened) for name, opened in TEXTS.items()},
    "rows.txt": ("txt", of_lines, of_text("rows.txt")),
    "sheet": ("sheet", of_sheet, sheet),
    "sav": (
        "statistics",
        of_floats,
        of_program("rows.sav", lambda path, frame: pyreadstat.write_sav(frame, path)),
    ),
    "rds": ("rds", of_floats, of_program("rows.rds", pyreadr.write_rds)),
    "parquet": ("parquet", of_floats, of_parts(pa.parquet.write_table, "parquet")),
    "arrow": (
        "arrow",
        of_floats,
        of_parts(lambda table, path: pa.feather.write_feather(table, str(path)), "feather"),
    ),
    "npy": ("npy", of_floats, npy),
    "npz": ("npz", of_floats, of_matrix("rows.npz", lambda p, x: np.savez(p, X=x))),
    "sparse npz": ("npz", of_floats, of_matrix("rows.npz", scipy.sparse.save_npz)),
    "matrix market": ("matrix-market", of_floats, of_matrix("rows.mtx", scipy.io.mmwrite)),
    "sqlite of numbers": ("database", of_database, of_database_file("REAL")),
    "sqlite of whole numbers": ("database", of_database, of_database_file("INTEGER")),
    "sqlite of nothing": ("database", of_database, of_database_file("")),
    "nifti": ("nifti", of_images, nifti),
    "dicom": ("dicom", of_images, dicom),
    "10x": ("10x", of_floats, ten_x),
    "h5ad": ("h5ad", of_floats, of_cells(".h5ad")),
    "zarr": ("zarr", of_floats, of_cells(".zarr")),
    "plink1": ("plink1", of_floats, genotypes("write_bed", ".bed")),
    "plink2": ("plink2", of_floats, genotypes("write_pgen", ".pgen")),
    "vcf": ("vcf", of_floats, genotypes("write_vcf", ".vcf")),
    "bag of words": ("bag-of-words", of_floats, word_counts),
}
MEMORY = {
    "lists": (of_rows, lambda p, _: fitted_rows(rows_in(p), groups=whom(p))),
    "objects": (of_anything, lambda p, _: fitted_rows(objects(p), groups=whom(p))),
    "array": (of_floats, lambda p, _: fitted_rows(matrix(p), groups=np.array(whom(p)))),
    "masked": (of_floats, lambda p, _: fitted_rows(masked(p), groups=whom(p))),
    "sparse": (of_floats, lambda p, _: fitted_rows(scipy.sparse.csr_array(matrix(p)))),
    "pandas": (of_anything, lambda p, _: fitted_rows(made_frame(p), unit="who")),
    "pandas with a schema": (of_anything, lambda p, _: read_frame(made_frame(p), SCHEMA)),
    "pandas with kinds": (of_anything, lambda p, _: read_frame(objects_frame(p), KINDS)),
    "polars": (of_anything, lambda p, _: fitted_rows(polars_frame(p), unit="who")),
    "polars with a schema": (of_anything, lambda p, _: read_frame(polars_frame(p), SCHEMA)),
    "arrow": (of_floats, lambda p, _: fitted_rows(typed(p), unit="who")),
    "arrow with a schema": (of_floats, lambda p, _: read_frame(typed(p), SCHEMA)),
    "anndata": (of_floats, lambda p, _: fitted_rows(cells_of(p), unit="who")),
    "anndata of decimal ids": (of_floats, lambda p, _: fitted_rows(cells_of(p, float), unit="who")),
    "dask frame": (of_anything, lambda p, _: fitted_rows(dask_frame(p), unit="who")),
    "dask array": (of_floats, lambda p, _: fitted_rows(dask_array(p), groups=np.array(whom(p)))),
    "a site": (of_anything, of_site),
}
EVERY = {f"file: {name}": found[1:] for name, found in FILES.items()} | MEMORY

RULES = [
    RowRule(np.array([0.5, 2.0, -1.0]), 3.0),
    RowRule(preparation=Preparation(holes=True)),
    RowRule(bound=2.0, precision="single"),
]


class Become(Reading):
    """What rows become: their integers under several rules, and their weights."""

    def read(self, rows):
        found = Counter()
        for block in rows.blocks():
            for which, rule in enumerate(RULES):
                center = rule.center if rows.features == WIDTH else None
                own = RowRule(center, rule.bound, rule.precision, preparation=rule.preparation)
                values, squares = own(block)
                parts = [np.asarray(values, np.float64), squares[:, None].astype(np.float64)]
                if block.weights is not None:
                    parts.append(np.stack(block.weights, axis=1).astype(np.float64))
                out = np.isin(np.arange(len(values)), block.left_out)
                parts.append(out[:, None].astype(np.float64))
                whole = np.hstack(parts) + 0.0  # no -0.0
                found.update((which, row.tobytes()) for row in whole)
        return Pass(found.total(), found)

    def merge(self, parts):
        return Pass(sum(p.rows for p in parts), sum((p.found for p in parts), Counter()))


class Pass:
    def __init__(self, rows, found):
        self.rows, self.found = rows, found


def outcome(opened, people):
    """What everybody's rows become, or the code of the error."""
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            rows = opened(people, Path(folder))
            elsewhere = isinstance(rows, PartitionedRows)
            if elsewhere or next(iter(rows.blocks())).units is not None:
                rows = unit_rows(rows)
            return "rows", rows.fold(Become()).found
        except EigenveilError as error:
            return error.code, Counter()


def compare(name, others, person, place):
    """The same outcome with the person and without, and the same rows of all others."""
    opened = EVERY[name][1]
    how, without = outcome(opened, others)
    also, found = outcome(opened, [*others[:place], person, *others[place:]])
    assert also == how, f"{also} with the person, {how} without"
    assert not without - found, "rows of others changed"


def staying(person):
    """An odd person with another identifier, who is among the others."""
    if isinstance(person, str):
        return "80" + person[2:] if person.startswith("70") else "80@1@2@inf"
    return 80, person[1]


@pytest.mark.parametrize("name", EVERY)
def test_one_person_changes_nobody_else(name):
    """The first row is another one's here: two tests below are about it."""
    draw = EVERY[name][0]

    @settings(max_examples=times(30 if name == "file: zarr" else 100))  # zarr takes its time
    @given(data=st.data(), others=OTHERS, place=st.integers(1, 8), odd=st.booleans())
    def run(data, others, place, odd):
        others = [(who, list(row)) for who, *row in others]
        if odd:
            others.append(staying(draw(data.draw)))
        compare(name, others, draw(data.draw), place)

    run()


@pytest.mark.parametrize("first", [[1.0], None, 7, "abc", [[1], 2, 3], [[1, [2]], 2, 3]], ids=str)
def test_the_first_row_of_a_list_does_not_say_what_a_row_is(first):
    others = [[n, 0.5, math.nan] for n in range(4)]
    compare("lists", [(2, row) for row in others], (70, first), 0)


@pytest.mark.parametrize("first", [*LINES, "70;1;2;3;4;5"], ids=lambda line: repr(line)[:20])
def test_the_first_row_of_a_file_without_names_does_not_say_what_a_row_is(first):
    others = [(n, [n, 0.5, None]) for n in range(2, 6)]
    compare("file: no header.csv", others, first, 0)


def test_every_format_is_tried():
    assert {form for form, *_ in FILES.values()} == set(formats())


def test_odd_ids_are_nobody_elses():
    assert not {identifier(each) for each in IDS} & {"2", "3", "4", "5"}
