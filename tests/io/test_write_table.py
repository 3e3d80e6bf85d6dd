"""Tables come back as they were, or are not written at all."""

from __future__ import annotations

import numpy as np
import pytest
from row_formats import values

from eigenveil.errors import OutputError
from eigenveil.io import open_rows, write_table

NAMES = ("PC1", "PC2, second", 'PC"3"')
ENDINGS = ["parquet", "csv", "arrow", "feather", "npy", "CSV"]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_what_is_written_is_read(ending, kind, matrix, tmp_path):
    path = tmp_path / f"scores.{ending}"
    scores = matrix.astype(kind)
    write_table(path, scores, NAMES)
    rows = open_rows([path])
    assert rows.names == (None if ending == "npy" else NAMES)
    assert rows.single == (kind is np.float32 and ending.lower() != "csv")
    np.testing.assert_array_equal(values(rows).astype(kind), scores)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", ENDINGS)
def test_arrays_that_are_not_contiguous(ending, matrix, tmp_path):
    path = tmp_path / f"scores.{ending}"
    write_table(str(path), matrix[::2, ::-1], NAMES)
    np.testing.assert_array_equal(values(open_rows([path])), matrix[::2, ::-1])


def test_an_older_file_is_replaced(matrix, tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("old")
    write_table(path, matrix, NAMES)
    assert open_rows([path]).names == NAMES


def test_a_failure_leaves_the_older_file_and_no_other(matrix, tmp_path, monkeypatch):
    path = tmp_path / "scores.csv"
    path.write_text("old")

    def full(table, file):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.csv.write_csv", full)
    with pytest.raises(OutputError, match=r"scores\.csv: No space left on device\."):
        write_table(path, matrix, NAMES)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_missing(matrix, tmp_path):
    with pytest.raises(OutputError, match=r"nowhere/scores\.csv: No such file or directory\."):
        write_table(tmp_path / "nowhere" / "scores.csv", matrix, NAMES)


@pytest.mark.parametrize("name", ["scores.txt", "scores", "scores.csv.gz", ".csv"])
def test_an_ending_that_is_unknown(name, matrix, tmp_path):
    with pytest.raises(OutputError) as caught:
        write_table(tmp_path / name, matrix, NAMES)
    assert str(tmp_path / name) in caught.value.message
    assert ".parquet" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_names_that_do_not_fit(matrix, tmp_path):
    with pytest.raises(ValueError, match="2 names"):
        write_table(tmp_path / "scores.csv", matrix, NAMES[:2])
