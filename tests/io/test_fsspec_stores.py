"""Stores whose drivers fsspec has: their files are read as any, or a sentence says what is missing.

The drivers' servers are not here. fsspec's files in memory stand for a driver, under its protocol.
"""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from eigenveil.errors import DataError
from eigenveil.io import open_rows, stores

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402

ROWS = np.random.default_rng(2).standard_normal((40, 3))


class Driver(MemoryFileSystem):
    """A driver of a cloud's store, as fsspec finds it by its protocol."""

    protocol = "faked"
    store: dict = {}  # noqa: RUF012 - of the class, as fsspec's own
    pseudo_dirs = [""]  # noqa: RUF012


@pytest.fixture
def faked(tmp_path):
    """The driver, with a table in two files."""
    fsspec.register_implementation("faked", Driver, clobber=True)
    files = Driver()
    for number, part in enumerate(np.split(ROWS, 2)):
        file = tmp_path / f"{number}.parquet"
        pa.parquet.write_table(pa.table([*part.T], names=["a", "b", "c"]), file)
        files.pipe(f"/bucket/visits/{number}.parquet", file.read_bytes())
    yield files
    Driver.store.clear()


def values(rows):
    return np.concatenate([block.values for block in rows.blocks()])


@pytest.mark.parametrize("place", ["faked://bucket/visits", "faked://bucket/visits/*.parquet"])
def test_a_registered_driver_s_files_are_read(place, faked):
    rows = open_rows([place])
    np.testing.assert_array_equal(values(rows), ROWS)
    np.testing.assert_array_equal(values(rows), ROWS)


def test_a_driver_that_stalls_is_given_up_within_the_stated_time(faked, monkeypatch):
    rows, goes_on = open_rows(["faked://bucket/visits"]), threading.Event()
    monkeypatch.setattr(stores, "PATIENCE", 0.3)

    def stalls(*_, **__):
        goes_on.wait(20)
        return {}

    monkeypatch.setattr(Driver, "info", stalls)
    with pytest.raises(DataError, match=r"did not answer within 0\.3 seconds"):
        values(rows)
    with pytest.raises(DataError, match=r"did not answer within 0\.3 seconds"):
        open_rows(["faked://bucket/visits"])
    goes_on.set()


def test_what_a_driver_raises_is_a_sentence(faked, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Forbidden: no access to this bucket")

    monkeypatch.setattr(Driver, "info", refused)
    with pytest.raises(DataError, match=r"bucket.*cannot be read"):
        open_rows(["faked://bucket/visits"])


@pytest.mark.parametrize("url", ["adl://bucket/x.csv", "oss://bucket/x.csv", "dropbox://b/x.csv"])
def test_a_driver_that_is_not_installed_is_named(url):
    with pytest.raises(DataError, match=f"{url.partition(':')[0]}:// URLs cannot be read") as found:
        open_rows([url])
    assert found.value.code == "unknown-store"


@pytest.mark.parametrize("scheme", ["gs", "gcs", "hdfs", "abfs", "abfss"])
def test_a_store_that_arrow_reads_is_never_waited_for_longer(scheme, monkeypatch):
    """Without credentials and servers: whatever Arrow does, a sentence comes in time."""
    goes_on = threading.Event()
    monkeypatch.setattr(stores, "PATIENCE", 0.3)
    monkeypatch.setattr(stores, "_arrow", lambda parts: goes_on.wait(20))
    with pytest.raises(DataError, match=r"cannot be reached.*did not answer within 0\.3 seconds"):
        open_rows([f"{scheme}://bucket/x.csv"])
    goes_on.set()
