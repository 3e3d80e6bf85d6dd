"""Rows of a stream of text: the same in whatever pieces they come; what is wrong has its line."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import DataError
from eigenveil.io import open_rows
from eigenveil.io.stopping import Stop
from eigenveil.io.text_stream import StreamedRows


def read(path, *, size=4, limit=None, **options):
    """All rows, and the error that ended them."""
    blocks = StreamedRows(path, **options).blocks(size, limit=limit)
    found, problem = [], None
    try:
        for block in blocks:
            assert block.first_row == 0  # of an origin of its own
            found.append(block.values)
    except DataError as error:
        problem = error
    return found, problem


def rows_of(path, **options):
    found, problem = read(path, **options)
    assert problem is None
    return np.concatenate(found)


class Piecewise(io.RawIOBase):
    """A pipe that gives what the test says, a piece at a time."""

    def __init__(self, pieces):
        self.pieces = list(pieces)

    def readable(self):
        return True

    def read1(self, size=-1):
        return self.pieces.pop(0) if self.pieces else b""


def piped(monkeypatch, pieces):
    class Text:
        buffer = Piecewise(pieces)

    monkeypatch.setattr(sys, "stdin", Text())


TEXTS = {
    "plain": "a,b,c\n1,2,3\n4,5.5,6\n-7,8e3,9\n",
    "no newline at the end": "a,b,c\n1,2,3\n4,5,6",
    "windows": "a,b,c\r\n1,2,3\r\n4,5,6\r\n",
    "empty lines": "a,b,c\n\n1,2,3\n\n\n4,5,6\n",
    "quotes": '"a","b, ""too""","c"\n"1",2,"3"\n4,"5",6\n',
    "truth": "a,b,c\n1,true,0\n2,false,1\n",
    "row labels": ",a,b\n0,1,2\n1,3,4\n",
    "spaces": "a,b\n 1 , 2\n3, 4\n",
    "byte order mark": "\ufeffa,b\n1,2\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_values_are_those_of_the_other_commands(name, text):
    path = text("t.csv", TEXTS[name])
    rows = StreamedRows(path)
    found = np.concatenate([block.values for block in rows.blocks(2)])
    expected = open_rows([path])
    assert rows.names == expected.names
    np.testing.assert_array_equal(found, np.concatenate([b.values for b in expected.blocks()]))


CELLS = st.sampled_from(['"x,y"', '"say ""so"""', 'inch 5" or 6"', "word", ""])


@given(
    labels=st.lists(CELLS, min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 400), max_size=12),
    size=st.integers(1, 7),
)
def test_rows_do_not_depend_on_how_the_text_arrives(labels, cuts, size):
    text = "label,n\n" + "".join(f"{label},{i}\n" for i, label in enumerate(labels))
    encoded = text.encode()
    ends = sorted({min(cut, len(encoded)) for cut in cuts} - {0} | {len(encoded)})
    pieces = [encoded[a:b] for a, b in zip([0, *ends], ends, strict=False) if b > a]
    with pytest.MonkeyPatch.context() as patch:
        piped(patch, pieces)
        found = rows_of(None, size=size, exclude=["label"])
    assert found.tolist() == [[i] for i in range(len(labels))]


def test_columns_are_chosen_by_name(text):
    path = text("t.tsv", "time\ta\tb\nnoon\t1\t2\nnight\t3\t4\n")
    assert rows_of(path, columns=["b", "a"]).tolist() == [[2, 1], [4, 3]]
    assert rows_of(path, exclude=["time"]).tolist() == [[1, 2], [3, 4]]
    for options, said in (
        ({"columns": ["c"]}, f"{path} has no column 'c'."),
        ({"exclude": ["c"]}, f"{path} has no column 'c' to leave out, nor has any other file."),
        ({"columns": ["a", "a"]}, "Column 'a' is requested twice."),
    ):
        assert read(path, **options)[1].message == said


def test_blocks_have_the_size_asked_for_and_end_at_the_limit(text):
    path = text("t.csv", "a\n" + "".join(f"{i}\n" for i in range(10)))
    assert [len(values) for values in read(path, size=4)[0]] == [4, 4, 2]
    assert [len(values) for values in read(path, size=4, limit=5)[0]] == [4, 1]
    assert read(path, limit=0)[0] == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1,2", "line {}: 2 columns instead of 3."),
        ("1,2,3,4", "line {}: 4 columns instead of 3."),
        ("1,secret,3", "column 'b' is not a number at line {}."),
        ("1,,3", "line {}, column 'b' is NaN, a missing value."),
        ("1,2,NaN", "line {}, column 'c' is NaN, a missing value."),
        ("inf,2,3", "line {}, column 'a' is inf."),
    ],
)
@pytest.mark.parametrize("before", [0, 5])
def test_a_bad_line_is_located_after_the_rows_before_it(line, said, before, text):
    good = "1,2,3\n" * before
    # further problems later, of kinds that pyarrow meets earlier
    path = text("t.csv", f"a,b,c\n\n{good}{line}\n1,2,3\nx,2,3\n1\n")
    found, problem = read(path)
    assert sum(len(values) for values in found) == before
    assert problem.message.startswith(f"{path}: ")
    assert problem.message.endswith(said.format(3 + before))
    assert "secret" not in str(problem)


def test_what_cannot_be_watched(text, tmp_path):
    for path, said in (
        (tmp_path / "none.csv", "does not exist"),
        (text("t.parquet", "x"), "is not text that can be watched"),
        (tmp_path, "is not text that can be watched"),
        (text("two.csv", "a,a\n1,2\n"), "more than one column 'a'"),
    ):
        with pytest.raises(DataError, match=said):
            list(StreamedRows(path).blocks(1))


def test_a_file_that_is_made_shorter_while_it_is_read_is_said_so(tmp_path, monkeypatch):
    monkeypatch.setattr("eigenveil.io.text_stream._READ_BYTES", 1 << 10)
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "1\n" * 5000)
    blocks = StreamedRows(path).blocks(10)
    assert next(blocks).values.shape == (10, 1)
    path.write_text("a\n")
    with pytest.raises(DataError, match="was made shorter while it was read") as caught:
        list(blocks)
    assert caught.value.code == "file-moved"


def test_a_pipe_with_a_name_is_read_to_the_end_of_its_writer(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=Path.write_text, args=(path, "a,b\n1,2\n"))
    writer.start()
    try:
        assert rows_of(path).tolist() == [[1, 2]]
    finally:
        writer.join()


def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("eigenveil.io.text_stream._READ_BYTES", 1 << 14)
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n" + "1.25,2.5,3.75\n" * 100_000)
    rows = StreamedRows(path)
    tracemalloc.start()
    try:
        assert sum(block.values.shape[0] for block in rows.blocks(1000)) == 100_000
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_pyarrow_giving_up_on_a_signal_loses_no_line(text, monkeypatch):
    real, calls = pa.csv.read_csv, []

    def cancelled(*words, **options):
        calls.append(1)
        if len(calls) % 2:
            raise pa.lib.ArrowCancelled("Operation cancelled. Detail: received signal 2")
        return real(*words, **options)

    monkeypatch.setattr("pyarrow.csv.read_csv", cancelled)
    assert rows_of(text("t.csv", "a\n1\n2\n")).tolist() == [[1], [2]]


def test_a_signal_while_lines_are_parsed_is_a_request_only(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 50_000)
    stop = Stop()
    found = 0
    with stop.listening():
        timer = threading.Timer(0.002, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
        timer.start()
        for block in StreamedRows(path).blocks(100):  # this stop is not that of the rows
            found += block.values.shape[0]
        timer.join()
    assert found == 50_000
    assert stop.requested


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cuts_waiting_short_and_nothing_else(number):
    stop = Stop()
    before = signal.getsignal(number)
    with stop.listening():
        signal.raise_signal(number)  # during a step
        assert stop.requested
        assert stop.wait(lambda: 1) is None
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before
    again = Stop()
    with again.listening():
        assert again.wait(lambda: 1) == 1
        assert again.wait(lambda: signal.raise_signal(number)) is None
        assert again.requested


def test_while_it_listens_no_signal_goes_to_pyarrow():
    """Its handlers pass a signal on late, and lose it where reading ends first (1 in 100)."""

    class Interrupted(io.BytesIO):
        def read(self, size=-1):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            return super().read(size)

        def readable(self):
            return True

    stop = Stop()
    with stop.listening():
        assert pa.csv.read_csv(Interrupted(b"a\n1\n2\n")).num_rows == 2
        assert stop.requested
