"""No thread of pyarrow's has an object of Python's once a text was read.

A thread that let go of one while the interpreter ended took the process with it: `eigenveil schema
new` ended with status 134 after its file was whole, once in some runs under load.
"""

import weakref
from contextlib import suppress

import pyarrow as pa
import pyarrow.csv
import pytest

from eigenveil import DataError
from eigenveil.io import Dialect, ReadOptions, open_rows

LINES = 40_000
TEXT = "a,b\n" + "1.5,2\n" * LINES
DIALECTS = {
    "plain": (TEXT, "utf-8", {}),
    "another encoding": (TEXT.replace("a,b", "a,ß"), "latin-1", {"encoding": "latin-1"}),
    "comments": ("# of us\n" + TEXT, "utf-8", {"comment": "#"}),
    "a line with too many cells": (TEXT + "1,2,3\n", "utf-8", {}),
}


@pytest.fixture
def lent(monkeypatch):
    """What is given to pyarrow of Python's, which nothing else is to hold."""
    found = []

    def options(*, invalid_row_handler, **more):
        found.append(weakref.ref(invalid_row_handler))
        return made(invalid_row_handler=invalid_row_handler, **more)

    def file(handle, mode):
        found.append(weakref.ref(handle))
        return file_made(handle, mode)

    made, file_made = pa.csv.ParseOptions, pa.PythonFile
    monkeypatch.setattr(pa.csv, "ParseOptions", options)
    monkeypatch.setattr(pa, "PythonFile", file)
    return found


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("whole", [False, True], ids=["its first block", "all of it"])
def test_what_pyarrow_held_is_back_when_reading_ends(tmp_path, lent, name, whole):
    text, encoding, dialect = DIALECTS[name]
    path = tmp_path / "rows.csv"
    path.write_bytes(text.encode(encoding))
    for _ in range(3 if whole else 12):  # a thread held them after one in two that ended early
        rows = open_rows([path], read=ReadOptions(dialect=Dialect(**dialect)))
        assert not any(held() for held in lent)
        reading = rows.blocks()
        assert next(reading).values.shape[0] > 0
        if whole:
            for _ in reading:
                pass
        reading.close()
        assert lent
        assert not any(held() for held in lent)


def test_what_pyarrow_held_is_back_when_reading_fails(tmp_path, lent):
    path = tmp_path / "rows.csv"
    path.write_bytes(TEXT.encode() + b"\xff\xfe,1\n" * 3 + b'"unclosed')
    with suppress(DataError):
        for _ in open_rows([path]).blocks():
            pass
    assert lent
    assert not any(held() for held in lent)
