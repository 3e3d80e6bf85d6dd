"""Tables come back as they were, or are not written at all."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from row_formats import values

from eigenveil.errors import DataError, OutputError
from eigenveil.io import open_rows, write_blocks, write_columns, write_table

NAMES = ("PC1", "PC2, second", 'PC"3"')
ENDINGS = ["parquet", "csv", "arrow", "feather", "npy", "CSV"]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_what_is_written_is_read(ending, kind, matrix, tmp_path):
    path = tmp_path / f"scores.{ending}"
    scores = matrix.astype(kind)[::2, ::-1]
    write_table(str(path), scores, NAMES)
    rows = open_rows([path])
    assert rows.names == (None if ending == "npy" else NAMES)
    np.testing.assert_array_equal(values(rows).astype(kind), scores)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_columns_of_several_types_are_written(tmp_path):
    path = tmp_path / "t.csv"
    write_columns(path, [("share", np.array([0.25, 0.5])), ("number", np.array([3, 1]))])
    assert path.read_text().splitlines()[1] == "0.25,3"


def test_a_failure_leaves_the_older_file_and_no_other(matrix, tmp_path, monkeypatch):
    path = tmp_path / "scores.csv"
    path.write_text("old")

    class Full:
        def __init__(self, file, schema):
            file.write(b"half of it")
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.csv.CSVWriter", Full)
    with pytest.raises(
        OutputError, match=r"scores\.csv cannot be written: No space left on device\."
    ):
        write_table(path, matrix, NAMES)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_missing_is_made_and_one_that_cannot_be_is_named(matrix, tmp_path):
    write_table(tmp_path / "new" / "deep" / "scores.csv", matrix, NAMES)
    with pytest.raises(OutputError, match=r"scores\.csv"):
        write_table(tmp_path / "new" / "deep" / "scores.csv" / "x.csv", matrix, NAMES)


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


# -- A block after the other.

PARTS = [3, 5, 1, 7]


def blocks_of(scores, ids=None):
    start = 0
    for size in PARTS:
        part = slice(start, start + size)
        found = list(zip(NAMES, scores[part].T, strict=True))
        yield found if ids is None else [("id", ids[part]), *found]
        start = part.stop


@pytest.mark.parametrize("entries", [1, 12, 1 << 22])
@pytest.mark.parametrize("ending", ENDINGS)
def test_blocks_are_one_table(ending, entries, matrix, tmp_path, monkeypatch):
    monkeypatch.setattr("eigenveil.io.write._WRITTEN_ENTRIES", entries)
    scores, path = matrix[: sum(PARTS)], tmp_path / f"scores.{ending}"
    write_blocks(path, blocks_of(scores))
    np.testing.assert_array_equal(values(open_rows([path])), scores)


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow", "feather"])
def test_texts_keep_their_type_where_the_first_are_missing(ending, matrix, tmp_path):
    scores, path = matrix[: sum(PARTS)], tmp_path / f"scores.{ending}"
    ids = np.array([None] * 3 + [f"p{row}" for row in range(3, sum(PARTS))], dtype=object)
    write_blocks(path, blocks_of(scores, ids))
    rows = open_rows([path], unit="id")
    assert [unit for block in rows.blocks() for unit in block.units] == ids.tolist()


def test_more_rows_than_the_header_was_written_for(tmp_path):
    path = tmp_path / "scores.npy"
    write_blocks(path, ([("a", np.arange(9_999.0)), ("b", np.ones(9_999))] for _ in range(13)))
    found = np.load(path)
    assert found.shape == (129_987, 2)
    assert np.array_equal(found[:, 0], np.tile(np.arange(9_999.0), 13))


@pytest.mark.parametrize("ending", ENDINGS)
def test_rows_that_fail_in_the_middle_leave_the_older_file(ending, matrix, tmp_path):
    path = tmp_path / f"scores.{ending}"
    path.write_text("old")

    def cut():
        yield from blocks_of(matrix[: sum(PARTS)])
        raise DataError.relayed("damaged further inside", hint="", code="problem")

    with pytest.raises(DataError, match="damaged further inside"):
        write_blocks(path, cut())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ending", ENDINGS)
def test_no_more_than_some_blocks_are_waited_for(ending, tmp_path, monkeypatch):
    """Of 200 blocks no more than 3 are alive at once: it would be all if they were put together."""
    monkeypatch.setattr("eigenveil.io.write._WRITTEN_ENTRIES", 2000)
    alive, most = weakref.WeakSet(), 0

    class Column(np.ndarray):
        def __hash__(self):
            return id(self)

        __eq__ = object.__eq__

    def many():
        nonlocal most
        for number in range(200):
            column = np.full(2000, float(number)).view(Column)
            alive.add(column)
            yield [("a", column)]
            del column
            most = max(most, len(alive))

    write_blocks(tmp_path / f"scores.{ending}", many())
    assert most <= 3
