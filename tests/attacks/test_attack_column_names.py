"""Names of columns that are values, or an identifier's: what would be published as features."""

from __future__ import annotations

import json
import re
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.io
import scipy.sparse
from typer.testing import CliRunner

from eigenveil import (
    FederatedCovariance,
    FederatedGaussianMixture,
    FederatedPCA,
    FederatedTopicModel,
    PrivateCovariance,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateStreamingPCA,
    PrivateTopicModel,
    StreamingPCA,
)
from eigenveil.cli.app import app
from eigenveil.errors import DataError
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import make_study
from eigenveil.io import Dialect, ReadOptions, open_rows, read_vocabulary, write_table
from eigenveil.io.text_stream import StreamedRows
from eigenveil.moments.source import ArrayRows
from eigenveil.tables.names import first_difference, is_counted, reads_as_value
from refusal_tools import refuses

SECRET = ["61.25", "1987-04-23", "7e3", "-2,5", "NaN"]  # the first person
IDENTIFIER = ["patient_id", "age", "bmi", "c", "d"]
BAD = {"header-is-data": SECRET, "identifier-column": IDENTIFIER}
VALUES = """5.1|-3|+0,25|1e5|.5|5.|1_000|1.234,56|12%|0x1F|NaN|-inf|Infinity|NA|null|TRUE|false
2020-01-02|2020/1/2|02.01.2020|2020-W05|2020-01-02T12:30:00Z|12:30|23:59:59.5|12-Jan-20
Jan 12, 2020|12 January 2020|2020-01-02 12:30|3:05 pm|1 234,5|\u22123|\uff15"""
NAMES = """x1|c1|pixel_1_2|T10|E1|e5|1st|3d|v1.2|Na|Jan|may|income_2019|2x|1/x|24h|2,4-D|0x|D0|-|+|e
sepal length (cm)|"""
NO_HEADER = ReadOptions(dialect=Dialect(header=False))


def test_a_value_is_no_name_and_a_name_no_value():
    assert [text for text in re.split(r"[|\n]", VALUES) if not reads_as_value(text)] == []
    assert [text for text in re.split(r"[|\n]", NAMES) if reads_as_value(text)] == []


@pytest.mark.parametrize(
    ("names", "counted"),
    [
        (range(8), True),
        (range(1, 9), True),
        (range(7), False),  # could be a row
        (range(2, 10), False),
        ([*range(7), 8], False),
        ([1, 0, *range(2, 9)], False),
    ],
)
def test_an_unnamed_array_counts_its_columns(names, counted):
    assert is_counted([str(name) for name in names]) is counted


def people(n=40, d=3):
    return np.random.default_rng(3).normal(size=(n, d)) + 5


def headerless(path):
    np.savetxt(path, people(), delimiter="\t" if ".tsv" in path.name else ",", fmt="%.6f")
    return path


def frame(names=IDENTIFIER, library=pd.DataFrame):
    return library(dict(zip(names, np.full((5, 50), 2.0), strict=True)))


def refused(action, *, whose="", code="header-is-data"):
    with pytest.raises(DataError) as caught:
        action()
    error = caught.value
    said = f"{error.message} {error.hint}"
    assert (error.code, getattr(error, "spent", None)) == (code, None)
    assert whose in error.message
    if code == "identifier-column":
        assert "'patient_id' looks like an identifier" in error.message
        assert "--unit" in error.hint
    else:
        assert re.search(r"column (1\b|index 0 \(from 0\))", error.message)
    assert not any(value in said for value in SECRET)
    assert all(f"{value:.6f}" not in said for value in people()[0])
    return error


# -- every way into a fit


@pytest.fixture
def no_noise(monkeypatch):
    monkeypatch.setattr("eigenveil.noise.source.SecureSource.words", None)


SITES = [FederatedPCA, FederatedGaussianMixture, FederatedCovariance, FederatedTopicModel]
TABLES = [PrivatePCA, PrivateGaussianMixture, PrivateCovariance, PrivateTopicModel]
STREAMS = [PrivateStreamingPCA, StreamingPCA]
TAKE_WORDS = (PrivateTopicModel, FederatedTopicModel)  # which no name makes an identifier


@pytest.mark.parametrize("code", BAD)
@pytest.mark.parametrize("kind", [*TABLES, *STREAMS, *SITES])
@pytest.mark.usefixtures("no_noise")
def test_a_frame(kind, code):
    model, many = kind(2) if kind is StreamingPCA else kind(), kind in SITES
    for library in (pd.DataFrame, pl.DataFrame):
        given = [frame(BAD[code], library) for _ in range(2)]
        given = dict(zip("ab", given, strict=True)) if many else given[0]
        if kind in TAKE_WORDS and code == "identifier-column":
            with pytest.raises(TypeError):  # it goes on to its noise, of which there is none here
                model.fit(given)
            continue
        for fit in (model.fit, *([model.partial_fit] if kind in STREAMS else [])):
            whose = "frame" if not many else "site a" if code == "header-is-data" else "study"
            refused(lambda f=fit, x=given: f(x), whose=whose, code=code)


@pytest.mark.parametrize("kind", [*TABLES, FederatedPCA])
@pytest.mark.usefixtures("no_noise")
def test_other_sources_of_rows(kind):
    # words may be numbers, but not all of them
    named = ["61.25", "7", "3"] if kind is PrivateTopicModel else ["61.25", "b", "c"]
    for code, names in (("header-is-data", named), ("identifier-column", IDENTIFIER[:3])):
        if kind in TAKE_WORDS and code == "identifier-column":
            continue
        rows = ArrayRows(people(), names=names)
        given = {"a": rows} if kind is FederatedPCA else rows
        refused(lambda x=given: kind().fit_rows(x), code=code)


@pytest.mark.parametrize("code", BAD)
@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "parquet", "feather", "arrow"])
def test_files_of_every_format_with_names(tmp_path, ending, code):
    file, table = tmp_path / f"rows.{ending}", frame(BAD[code])
    if ending.startswith(("csv", "tsv")):
        table.to_csv(file, sep="\t" if ending == "tsv" else ",", index=False)
    else:
        write = table.to_parquet if ending == "parquet" else table.to_feather
        write(file)
    error = refused(lambda: open_rows([file]), whose=file.name, code=code)
    assert code == "identifier-column" or "--no-header" in error.hint
    asked = BAD[code][:2]
    refused(lambda: open_rows([file], columns=asked), whose=file.name, code=code)


@pytest.mark.usefixtures("no_noise")
def test_values_decide_nothing(tmp_path):
    """The same values under another name: a refusal would be a release without noise."""
    found = pd.DataFrame({"dose": np.arange(50) * 1000, "age": people(50, 1)[:, 0], "bmi": 1.0})
    found.to_csv(tmp_path / "rows.csv", index=False)
    assert open_rows([tmp_path / "rows.csv"]).names == ("dose", "age", "bmi")
    with pytest.raises(TypeError):
        PrivatePCA().fit(found)


def test_a_headerless_file_beside_one_with_names_is_not_quoted(tmp_path):
    good, bad = tmp_path / "a.csv", headerless(tmp_path / "b.csv")
    pd.DataFrame(people(), columns=["u", "v", "w"]).to_csv(good, index=False)
    refused(lambda: open_rows([good, bad]), whose="b.csv")
    refused(lambda: open_rows([bad], columns=["u", "v", "w"]), whose="b.csv")
    refused(lambda: open_rows([bad], exclude=["u"]), whose="b.csv")
    bad.write_text("61.25,61.25\n1,2\n")
    refused(lambda: open_rows([bad]), whose="b.csv")


# -- without a header


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz"])
def test_without_a_header_the_first_line_is_a_row(tmp_path, ending):
    file = headerless(tmp_path / f"rows.{ending}")
    found = {"read": open_rows([file], read=NO_HEADER).blocks()}
    if ending == "csv":
        refused(lambda: list(StreamedRows(file).blocks(8)), whose="rows.csv")
        followed = StreamedRows(file, dialect=Dialect(header=False))
        found["followed"] = followed.blocks(8)
    for blocks in found.values():
        read = np.concatenate([block.values for block in blocks])
        np.testing.assert_allclose(read, people(), atol=1e-6)
    assert list(open_rows([file], read=NO_HEADER).names) == ["c1", "c2", "c3"]
    assert ending != "csv" or list(followed.names) == ["c1", "c2", "c3"]


def test_rows_are_counted_from_the_first_line_without_a_header(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("1,2\n3,4\n5,six\n")
    rows = open_rows([file], columns=["c1"], read=NO_HEADER)
    assert [block.values.tolist() for block in rows.blocks()] == [[[1.0], [3.0], [5.0]]]
    both = np.concatenate([block.values for block in open_rows([file], read=NO_HEADER).blocks()])
    np.testing.assert_array_equal(both, [[1.0, 2.0], [3.0, 4.0], [5.0, np.nan]])


def test_an_unnamed_array_that_pandas_wrote_is_read(tmp_path):
    file = tmp_path / "rows.csv"
    pd.DataFrame(people(d=9)).to_csv(file)
    assert list(open_rows([file]).names) == [str(i) for i in range(9)]


def test_written_tables_are_read_again(tmp_path):
    for name in ("a.csv", "a.parquet"):
        write_table(tmp_path / name, people(), ["PC1", "PC2", "PC3"])
        assert open_rows([tmp_path / name]).features == 3


# -- studies, vocabularies, commands


def a_study(columns, **other):
    targets = {"name": "s", "task": "pca", "components": 1, "epsilon": 1.0, "delta": 1e-6}
    return make_study(
        **{**targets, "sites": [{"name": "a"}, {"name": "b"}], **other}, columns=columns
    )


def test_a_study_with_such_columns_is_refused():
    refused(lambda: a_study(SECRET), whose="study")
    a_study([str(i) for i in range(8)])
    a_study(["word", "2019", "10"], task="topic-model")
    refused(lambda: a_study(["7", "2019", "10"], task="topic-model"), whose="study")


def test_a_site_checks_its_names_before_it_answers(tmp_path):
    terms, rows = settle(a_study(None, features=3)), ArrayRows(people(), names=["61.25", "b", "c"])
    ledger = Ledger(tmp_path / "a.ledger")
    refused(lambda: Site(name="a", terms=terms, rows=rows, ledger=ledger), whose="site a")


def test_other_columns_are_told_by_position():
    said = first_difference(["age", "61.25"], ["age", "1987-04-23"])
    assert "column 2" in said
    assert "61.25" not in said
    assert "1987" not in said


def test_a_table_is_no_vocabulary(tmp_path):
    file = tmp_path / "words.txt"
    for text in ("61.25\n7\n3.5\n", "anna,61\nbert,70\n", "anna\t61\nbert\t70\n"):
        file.write_text(text)
        with pytest.raises(DataError) as caught:
            read_vocabulary(file)
        assert caught.value.code in ("table-as-words", "header-is-data")
        assert "61" not in str(caught.value)
    file.write_text("anna\n1987\n10,000\n")
    assert read_vocabulary(file) == ["anna", "1987", "10,000"]


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words], auto_envvar_prefix="EIGENVEIL")


def test_no_command_publishes_the_first_row(tmp_path):
    file, study = headerless(tmp_path / "rows.csv"), tmp_path / "study.toml"
    first = [f"{value:.6f}" for value in people()[0]]
    result = tmp_path / "result"
    fit = ["fit", file, "-k", 1, "--epsilon", 50, "--out", result, "--json"]
    new = ["study", "new", study, "--site", "a", "--site", "b", "--from", file]
    watch = ["watch", file, "-k", 1]
    sites = ["fit", "--site", f"a={file}", "--site", f"b={headerless(tmp_path / 'other.csv')}"]
    sites += ["-k", 1, "--epsilon", 8, "--out", tmp_path / "of sites", "--quiet"]
    for words in (fit, new, watch, sites):
        refused_one = invoke(*words)
        assert isinstance(refused_one.exception, DataError)
        assert refused_one.exception.code == "header-is-data"
    assert not result.exists()
    assert not study.exists()
    reported = invoke(*fit, "--no-header")
    assert reported.exit_code == 0, reported.exception
    assert json.loads(reported.stdout)["features"] == ["c1", "c2", "c3"]
    for words in (new, watch, sites):
        assert invoke(*words, "--no-header").exit_code == 0
    scores = tmp_path / "scores.npy"
    assert invoke("transform", result, file, "--out", scores, "--no-header").exit_code == 0
    assert np.load(scores).shape[0] == people().shape[0]
    written = [study, *(path for path in result.iterdir() if path.suffix != ".png")]
    assert not any(value.encode() in path.read_bytes() for path in written for value in first)


# -- how many names there may be


def test_too_many_columns_are_refused_by_the_header_alone(tmp_path):
    """12 MB of text with a million columns took 18.5 GB."""
    file, words = tmp_path / "wide.csv", tmp_path / "wide.tsv"
    file.write_text(",".join(f"x{i}" for i in range(200_000)) + "\n" + "1," * 199_999 + "1\n")
    words.write_text('"a\tb"\t' * 70_000 + "c\n")
    tracemalloc.start()
    try:
        for action in (
            lambda: open_rows([file]),
            lambda: open_rows([file], read=NO_HEADER),
            lambda: open_rows([words]),
            lambda: list(StreamedRows(file).blocks(1)),
        ):
            with refuses("too-many-columns"):
                action()
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


def test_widths_of_other_formats(tmp_path, monkeypatch):
    monkeypatch.setattr("eigenveil.tables.names.MOST_COLUMNS", 3)
    monkeypatch.setattr("eigenveil.io.formats.arrays.ArrayFile.most_columns", 3)
    monkeypatch.setattr("eigenveil.io.formats.arrays.SparseArrayFile.most_columns", 4)
    monkeypatch.setattr("eigenveil.federation.study.checks.MOST_SPARSE_COLUMNS", 4)
    wide = pd.DataFrame(np.ones((2, 5)), columns=["a", "b", "c", "d", "e"])
    wide.to_parquet(tmp_path / "a.parquet")
    wide.to_feather(tmp_path / "a.feather")
    np.save(tmp_path / "a.npy", wide.to_numpy())
    np.savez(tmp_path / "a.npz", X=wide.to_numpy())
    scipy.sparse.save_npz(tmp_path / "s.npz", scipy.sparse.csr_array(wide.to_numpy()))
    scipy.io.mmwrite(tmp_path / "a.mtx", scipy.sparse.csr_array(wide.to_numpy()))
    for file in sorted(tmp_path.iterdir()):
        with refuses("too-many-columns") as caught:
            open_rows([file])
        assert file.name in caught.value.message
    np.save(tmp_path / "b.npy", np.ones((2, 3)))
    assert open_rows([tmp_path / "b.npy"]).features == 3
    with refuses("too-many-columns"):
        a_study(None, features=5)
