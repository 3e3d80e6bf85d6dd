"""Small files that unpack to more than a machine holds are refused, or read in bounded memory."""

from __future__ import annotations

import contextlib
import copy
import gzip
import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from eigenveil import PrivatePCA
from eigenveil.app.results import load_model
from eigenveil.errors import DataError, ProtocolError
from eigenveil.io import files, open_rows
from eigenveil.io.formats.tabular import batch_sizes
from eigenveil.network.lead import LeadSession
from eigenveil.network.results import FILES, MOST_BYTES
from refusal_tools import refuses

MOST = 64 << 20
"""Bytes of Python's and NumPy's memory that reading may take."""


def zeros(archive: zipfile.ZipFile, key: str, kind: str, count: int) -> None:
    """An array of zeros, packed a thousand times smaller, written piece by piece."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": kind, "fortran_order": False, "shape": (count,)}
    )
    left = count * np.dtype(kind).itemsize
    with archive.open(f"{key}.npy", "w", force_zip64=True) as file:
        file.write(header.getvalue())
        while left:
            piece = min(left, 1 << 20)
            file.write(bytes(piece))
            left -= piece


def saved(archive: zipfile.ZipFile, key: str, array: np.ndarray) -> None:
    with archive.open(f"{key}.npy", "w") as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def sparse(path: Path, layout: str, *, entries: int, pointers: list[int]) -> Path:
    """A sparse matrix of 2 x 3 whose pointers say what they like."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        saved(archive, "format", np.array(layout.encode()))
        saved(archive, "shape", np.array([2, 3]))
        names = ("row", "col") if layout == "coo" else ("indices",)
        for name in names:
            zeros(archive, name, "<i4", entries)
        if layout != "coo":
            saved(archive, "indptr", np.array(pointers, dtype=np.int64))
        zeros(archive, "data", "<f8", entries)
    return path


@contextlib.contextmanager
def in_little_memory():
    tracemalloc.start()
    try:
        yield
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < MOST, f"{most:,} bytes"


def read(path: Path) -> list[np.ndarray]:
    rows = open_rows([path])
    with in_little_memory():
        return [block.values for block in rows.blocks()]


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_a_sparse_matrix_of_more_entries_than_memory(layout, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_UNPACKED", 32 << 20)
    path = sparse(tmp_path / "m.npz", layout, entries=8 << 20, pointers=[0, 8 << 20, 8 << 20])
    assert path.stat().st_size < 1 << 20
    with refuses("file-too-large", "at most 32 MiB are unpacked"):
        read(path)


def test_pointers_that_promise_more_than_there_is(tmp_path):
    path = sparse(tmp_path / "m.npz", "csr", entries=10, pointers=[0, 10**12, 10**12])
    with pytest.raises(DataError, match="at most 4,096 MiB are unpacked"):
        read(path)


@pytest.mark.parametrize("key", ["shape", "format"])
def test_a_shape_of_millions_of_numbers(key, tmp_path):
    path = tmp_path / "m.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("shape", "format", "data"):
            zeros(archive, name, "<i8", 16 << 20 if name == key else 2)
    with pytest.raises(DataError, match=f"its {key} is no few numbers"):
        open_rows([path])


def test_a_fortran_array_that_would_fill_the_disk(tmp_path, monkeypatch):
    path = tmp_path / "m.npz"
    np.savez_compressed(path, X=np.asfortranarray(np.zeros((1000, 3))))
    full = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda folder: full)
    with pytest.raises(DataError, match="of temporary files"):
        read(path)


def test_a_text_of_one_line_without_an_end(tmp_path):
    path = tmp_path / "zeros.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"a,b\n1,2\n")
        for _ in range(200):
            file.write(bytes(1 << 20))
    assert path.stat().st_size < 2 << 20
    found = np.concatenate(read(path))
    np.testing.assert_array_equal(found, [[1, 2], [np.nan, np.nan]])  # one row that is not valid


def test_a_text_of_many_lines_takes_little_memory(tmp_path):
    path = tmp_path / "zeros.csv.gz"
    lines = b"0,0\n" * (1 << 18)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"a,b\n")
        for _ in range(4):
            file.write(lines)
    rows = open_rows([path])
    with in_little_memory():
        assert sum(len(block.values) for block in rows.blocks()) == 4 << 18


def test_a_parquet_file_that_unpacks_to_a_thousand_times_its_size(tmp_path, monkeypatch):
    path = tmp_path / "zeros.parquet"
    table = pa.table({"a": np.zeros(4 << 20), "b": np.zeros(4 << 20)})
    pa.parquet.write_table(
        table, path, compression="zstd", use_dictionary=False, row_group_size=4 << 20
    )
    assert path.stat().st_size < 1 << 16
    monkeypatch.setattr(files, "MOST_UNPACKED", 32 << 20)
    monkeypatch.setattr("eigenveil.io.formats.tabular.MOST_UNPACKED", 32 << 20)
    with refuses("file-too-large", "row group 1 takes 64 MiB unpacked"):
        open_rows([path])


def arrow(path, table, compression):
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_file(file, table.schema, options=options) as writer,
    ):
        writer.write_table(table)


@pytest.mark.parametrize("kind", ["rows", "dictionary"])
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_an_arrow_file_that_unpacks_to_thousands_of_times_its_size(
    compression, kind, tmp_path, monkeypatch
):
    path = tmp_path / "zeros.arrow"
    if kind == "rows":
        table = pa.table({"a": np.zeros(8 << 20)})
    else:
        words = pa.array(["0" * (1 << 20)] * 64)
        table = pa.table(
            {"a": pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), words), "b": [1.0]}
        )
    arrow(path, table, compression)
    assert path.stat().st_size < 1 << 19
    monkeypatch.setattr(files, "MOST_UNPACKED", 32 << 20)
    with refuses("file-too-large", r"batch 1 takes 64 MiB unpacked"):
        open_rows([path], columns=["a" if kind == "rows" else "b"])


def test_the_sizes_of_an_arrow_file_s_batches_are_those_that_they_take(tmp_path):
    path, draw = tmp_path / "rows.arrow", np.random.default_rng(1)
    table = pa.table({"a": draw.standard_normal(5000), "b": np.zeros(5000)})
    for compression in ("lz4", "zstd", None):
        arrow(path, table, compression)
        with path.open("rb") as file:
            (only,) = batch_sizes(file)
        assert only == (None if compression is None else 80_000)


def test_an_arrow_file_whose_metadata_are_damaged_is_a_sentence(tmp_path):
    path, draw = tmp_path / "rows.arrow", np.random.default_rng(1)
    arrow(path, pa.table({"a": draw.standard_normal(500), "b": np.zeros(500)}), "zstd")
    whole = path.read_bytes()
    for _ in range(300):
        damaged = bytearray(whole)
        for place in draw.integers(0, len(whole), 3):
            damaged[place] = draw.integers(256)
        path.write_bytes(damaged[: draw.integers(1, len(whole) + 1)])
        with contextlib.suppress(DataError):
            values = [block.values for block in open_rows([path]).blocks()]
            assert sum(map(len, values)) <= 500


def test_rows_that_may_not_be_read_are_a_sentence(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.table({"a": [1.0]}), path)

    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("eigenveil.io.formats.tabular.source_of", refused)  # root may read all
    with pytest.raises(DataError, match=r"rows\.parquet cannot be read: Permission denied"):
        open_rows([path])


@pytest.mark.parametrize("packed", ["components", "header", "beside"])
def test_a_model_that_unpacks_to_more_than_its_file(packed, tmp_path):
    """It would have found: 3.3 GB for a model of 3 MB, in show, certify, console and at leads."""
    path = tmp_path / "model.npz"
    PrivatePCA(2, epsilon=5.0).fit(np.random.default_rng(1).normal(size=(500, 4))).save(path)
    assert load_model(path).n_components_ == 2
    with np.load(path) as stored:
        parts = {name: stored[name] for name in stored.files}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in parts.items():
            if name == packed:
                zeros(archive, name, "<U1" if name == "header" else "<f8", 16 << 20)
            else:
                saved(archive, name, array)
        if packed == "beside":
            zeros(archive, packed, "<f8", 16 << 20)
    assert path.stat().st_size < 4 << 20
    for read_model in (load_model, PrivatePCA.load):
        with in_little_memory(), pytest.raises(DataError, match="it is packed"):
            read_model(path)


def test_one_part_of_a_model_under_many_names(tmp_path):
    """Entries of the directory that lie over each other are together larger than the file."""
    path = tmp_path / "model.npz"
    with zipfile.ZipFile(path, "w") as archive:
        zeros(archive, "components", "<f8", 1 << 17)
        first = archive.infolist()[0]
        for number in range(100):
            again = copy.copy(first)
            again.filename = f"a{number}.npy"
            archive.filelist.append(again)
    with pytest.raises(DataError, match="it is packed"):
        load_model(path)


@pytest.mark.parametrize("more", [1 << 40, 1 << 19])
@pytest.mark.parametrize("number", range(len(FILES)))
def test_a_lead_takes_no_file_without_an_end(more, number, monkeypatch):
    """Neither one that is said to be large, nor one that is a little larger each time."""
    if number == 0:  # the others are texts, which are read whole, and have a smaller bound
        monkeypatch.setitem(MOST_BYTES, FILES[0], 1 << 26)
    session, piece = LeadSession.__new__(LeadSession), bytes(32 + (1 << 19))

    def sent(step, payload, size):
        at = int.from_bytes(payload[-8:], "little")
        return (at + (1 << 19) + more).to_bytes(8, "little") + piece

    session._ask = sent
    with pytest.raises(ProtocolError, match=f"{FILES[number]} with more than 64 MiB"):
        session._file("5e" * 12, number)
