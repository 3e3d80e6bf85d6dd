"""Delimited text however it is written: said, or guessed from the first lines."""

import codecs
import gzip
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil import DataError, FileDialectWarning
from eigenveil.io import Dialect, ReadOptions, open_rows
from eigenveil.io.formats.dialect import settle
from eigenveil.io.text_stream import StreamedRows

ROWS = np.array([[1.5, -2.25], [0.125, 3.0], [-4.75, 1e3]])


def written(rows=ROWS, *, separator=",", decimal=".", names=("a", "b"), before="", quote=""):
    def cell(value):
        return quote + f"{value:.6g}".replace(".", decimal) + quote

    lines = [separator.join(names), *(separator.join(map(cell, row)) for row in rows)]
    return before + "\n".join(lines) + "\n"


def read(path, **dialect):
    rows = open_rows([path], read=ReadOptions(dialect=Dialect(**dialect)))
    return rows, np.concatenate([block.values for block in rows.blocks()])


def put(tmp_path, text, *, encoding="utf-8", name="rows.csv"):
    path = tmp_path / name
    data = text if isinstance(text, bytes) else text.encode(encoding)
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


WAYS = [(sep, dec) for sep in ",;\t|" for dec in ".," if sep != dec]


@pytest.mark.parametrize(("separator", "decimal"), WAYS)
@pytest.mark.filterwarnings("ignore::eigenveil.FileDialectWarning")
def test_what_nobody_said_is_guessed(tmp_path, separator, decimal):
    text = written(separator=separator, decimal=decimal, names=("länge", "b"))
    for name in ("rows.csv", "rows.csv.gz", "rows.tsv"):
        for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"):
            path = put(tmp_path, text, encoding=encoding, name=name)
            for said in ({}, {"separator": separator, "decimal": decimal}):
                rows, values = read(path, **said)
                assert list(rows.names) == ["länge", "b"]
                assert np.array_equal(values, ROWS), (name, encoding, said)


def test_guesses_are_told_once_and_the_usual_is_not(tmp_path, recwarn):
    read(put(tmp_path, written()))
    read(put(tmp_path, written(separator=";", decimal=",")), separator=";", decimal=",")
    read(put(tmp_path, written(separator=";", decimal=",")), separator=";")  # cells have either
    assert not [each for each in recwarn if each.category is FileDialectWarning]
    with pytest.warns(FileDialectWarning, match=r"separator ';', decimal ','.*first lines") as told:
        read(put(tmp_path, written(separator=";", decimal=",")))
    assert len(told) == 1


@pytest.mark.filterwarnings("ignore::eigenveil.FileDialectWarning")
def test_a_number_is_what_it_reads_as_by_itself(tmp_path):
    """Whatever other rows have: a decimal point or a comma, and with both it is none."""
    cells = ["1,5", "1.25", "-1,234", "1.500,5", "1,500,5", "7", "x", "8", "9", "10"]
    expected = [1.5, 1.25, -1.234, np.nan, np.nan, 7.0, np.nan, 8.0, 9.0, 10.0]
    for first in ("2", "2,5", "2.5"):
        path = put(tmp_path, "a;b\n" + "".join(f"{cell};0\n" for cell in [first, *cells]))
        assert np.array_equal(read(path)[1][1:, 0], expected, equal_nan=True)
    _, values = read(path, decimal=",")
    assert np.array_equal(values[1:, 0], [1.5, np.nan, -1.234, *expected[3:]], equal_nan=True)
    _, values = read(path, decimal=".")
    assert np.array_equal(values[1:, 0], [np.nan, 1.25, np.nan, *expected[3:]], equal_nan=True)


def test_words_for_missing_values(tmp_path):
    path = put(tmp_path, "a,b\n-999,1\n2,missing\nNA,-999\n3,4\n")
    with pytest.warns(FileDialectWarning, match="'-999' in 2 cells, 'missing' in 1 cells") as told:
        rows, values = read(path, na=["-999", "missing"])
    assert len(told) == 1
    assert len(list(rows.blocks())) == 1  # a second pass says nothing more
    assert np.array_equal(
        values, [[np.nan, 1], [2, np.nan], [np.nan, np.nan], [3, 4]], equal_nan=True
    )
    _, values = read(path)
    assert values[0, 0] == -999


@pytest.mark.parametrize("other", ["", "x;x\n"])
def test_a_code_is_a_number_however_it_is_written(other, tmp_path):
    """In one way whether all cells of a column are numbers or not."""
    path = put(tmp_path, "a;b\n999,0;1\n 999;2,5\n1999;999.00\n3;9,99e2\n" + other)
    with pytest.warns(FileDialectWarning, match="'999' in 4 cells"):
        _, values = read(path, na=["999"], separator=";", decimal=None)
    wanted = [[np.nan, 1], [np.nan, 2.5], [1999, np.nan], [3, np.nan]]
    assert np.array_equal(values[:4], wanted, equal_nan=True)


@pytest.mark.filterwarnings("ignore::eigenveil.FileDialectWarning")
def test_words_for_missing_units_and_levels(tmp_path):
    path = put(tmp_path, "who,x\n7,1\n-1,2\nb,3\n")
    rows = open_rows([path], unit="who", read=ReadOptions(dialect=Dialect(na=["-1"])))
    (block,) = rows.blocks()
    assert block.units.tolist() == ["7", None, "b"]


@pytest.mark.filterwarnings("ignore::eigenveil.FileDialectWarning")
@pytest.mark.parametrize(
    ("text", "comment", "names", "rows"),
    [
        (written(before="# made on a Monday\n# by, hand\n"), None, ["a", "b"], ROWS),
        ("#chrom,pos\n1,2\n", None, ["#chrom", "pos"], [[1, 2]]),
        ("% one\na,b\n1,2\n% two, three\n3,4\n", "%", ["a", "b"], [[1, 2], [3, 4]]),
    ],
)
@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_comments(text, comment, names, rows, name, tmp_path):
    found, values = read(put(tmp_path, text, name=name), comment=comment)
    assert list(found.names) == names
    assert np.array_equal(values, rows)


def test_comments_across_what_is_read_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("eigenveil.io.formats.text._READ_BYTES", 64)
    lines = [f"{k},{k}" if k % 3 else "# no row, no" for k in range(300)]
    path = put(tmp_path, "a,b\n" + "\n".join(lines) + "\n")
    _, values = read(path, comment="#")
    assert values[:, 0].tolist() == [k for k in range(300) if k % 3]


@pytest.mark.filterwarnings("ignore::eigenveil.FileDialectWarning")
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
def test_growing_text_is_read_alike(tmp_path, encoding):
    text = written(separator=";", decimal=",", names=("länge", "b"), before="# seen\n")
    path = put(tmp_path, text, encoding=encoding)
    for strict in (True, False):
        followed = StreamedRows(path, strict=strict)
        values = np.concatenate([block.values for block in followed.blocks(2)])
        assert list(followed.names) == ["länge", "b"]
        assert np.array_equal(values, ROWS)
    followed = StreamedRows(path, dialect=Dialect(na=["3"]), strict=False)
    values = np.concatenate([block.values for block in followed.blocks(2)])
    assert np.isnan(values[1, 1])


@given(st.binary(max_size=200), st.sampled_from([",", "\t"]))
def test_any_bytes_settle(head, usual):
    found = settle(Dialect(), head, usual=usual)
    assert found.separator in (",", ";", "\t", "|")
    assert found.decimal in (".", ".,")
    codecs.lookup(found.encoding)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"separator": wrong} for wrong in ("", ";;", "a", '"')),
        *({"decimal": ";"}, {"decimal": ",", "separator": ","}),
        *({"encoding": "klingon"}, {"comment": "ab"}, {"na": "NA"}),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(DataError) as refused:
        Dialect(**wrong)
    assert refused.value.code in ("bad-dialect", "unknown-encoding")
    assert refused.value.hint


def test_the_names_of_characters():
    assert Dialect(separator="tab").separator == "\t"
    assert Dialect(separator="semicolon").separator == ";"


def test_a_wrong_encoding_is_a_sentence(tmp_path):
    path = put(tmp_path, written(names=("länge", "b")), encoding="latin-1")
    with pytest.raises(DataError, match=r"rows\.csv .* another encoding"):
        read(path, encoding="utf-16")


def test_standard_input_is_guessed(monkeypatch):
    class Standard:
        buffer = io.BytesIO(written(separator=";", decimal=",").encode())

    monkeypatch.setattr("sys.stdin", Standard())
    with pytest.warns(FileDialectWarning):
        values = np.concatenate([block.values for block in StreamedRows(None).blocks(2)])
    assert np.array_equal(values, ROWS)


@pytest.mark.parametrize("row", [b"\xe9,1\n", b"a;1;2;3;4\n", b"a\n"])
def test_one_row_of_a_text_without_names_does_not_say_how_it_is_written(row):
    others = "é,1\nè,2\n".encode() * 2
    with_it = settle(Dialect(header=False), row + others, usual=",")
    assert with_it == settle(Dialect(header=False), others, usual=",")
    foreign = others.decode().encode("latin-1")
    assert settle(Dialect(header=False), foreign, usual=",").encoding == "iso8859-1"
