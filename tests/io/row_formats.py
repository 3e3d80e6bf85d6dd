"""How each format is written: by its own library, and not by what is tested."""

from __future__ import annotations

import ctypes
import gzip
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import cell_tools
import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pyreadr
import pyreadstat
import pytest
import scipy.io
import scipy.sparse
from numpy.typing import NDArray
from openpyxl.cell import WriteOnlyCell

from eigenveil.errors import DataError
from eigenveil.io import FileRows, open_rows
from eigenveil.moments.source import RowSource

NAMES = ("alpha", "beta", "gamma")

Saver = Callable[[Path, NDArray, Sequence[str]], None]


def _table(array: NDArray, names: Sequence[str]) -> pa.Table:
    return pa.Table.from_arrays([pa.array(column) for column in array.T], list(names))


def _tsv(path: Path, array: NDArray, names: Sequence[str]) -> None:
    options = pa.csv.WriteOptions(delimiter="\t")
    with pa.output_stream(str(path), compression="detect") as file:
        pa.csv.write_csv(_table(array, names), file, options)


def _csv(path: Path, array: NDArray, names: Sequence[str]) -> None:
    with pa.output_stream(str(path), compression="detect") as file:
        pa.csv.write_csv(_table(array, names), file)


def _mtx_gz(path: Path, array: NDArray, _: Sequence[str]) -> None:
    scratch = path.with_suffix(".whole")
    with scratch.open("wb") as file:
        scipy.io.mmwrite(file, array)  # a dense one
    path.write_bytes(gzip.compress(scratch.read_bytes()))
    scratch.unlink()


def _cells(kind: str) -> Saver:
    def save(path: Path, array: NDArray, names: Sequence[str]) -> None:
        cell_tools.saved(cell_tools.cells_of(array, names, kind), path)

    return save


def saved_sheet(path: Path, *rows: Sequence[object]) -> Path:
    """An .xlsx file; numbers that it cannot have are texts."""
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("rows")

    def cell(entry: object) -> object:
        if not isinstance(entry, float):
            return entry
        found = WriteOnlyCell(sheet, repr(entry))
        if math.isfinite(entry):
            found.data_type = "n"  # openpyxl has 16 digits of it, and Excel 17
        return found

    for row in rows:
        sheet.append([cell(each) for each in row])
    book.save(path)
    return path


def saved_sas(
    path: Path, columns: dict[str, Sequence[float]], formats: dict[str, str] | None = None
) -> Path:
    """A .sas7bdat file of numbers, by the library that is in pyreadstat, which has no name for it.

    A missing value is NaN.
    """
    sas = ctypes.CDLL(pyreadstat._readstat_writer.__file__)
    sas.readstat_writer_init.restype = sas.readstat_add_variable.restype = ctypes.c_void_p
    found = bytearray()

    @ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    def write(data: int, size: int, _: object) -> int:
        found.extend(ctypes.string_at(data, size))
        return size

    made = ctypes.c_void_p(sas.readstat_writer_init())
    sas.readstat_set_data_writer(made, write)
    added = []
    for name in columns:
        one = ctypes.c_void_p(sas.readstat_add_variable(made, name.encode(), 5, ctypes.c_size_t(8)))
        sas.readstat_variable_set_format(one, (formats or {}).get(name, "").encode())
        added.append(one)
    rows = list(zip(*columns.values(), strict=True))
    sas.readstat_begin_writing_sas7bdat(made, None, ctypes.c_long(len(rows)))
    for row in rows:
        sas.readstat_begin_row(made)
        for one, value in zip(added, row, strict=True):
            if math.isnan(value):
                sas.readstat_insert_missing_value(made, one)
            else:
                sas.readstat_insert_double_value(made, one, ctypes.c_double(value))
        sas.readstat_end_row(made)
    sas.readstat_end_writing(made)
    sas.readstat_writer_free(made)
    path.write_bytes(found)
    return path


def _framed(write: Callable[..., None], **options: object) -> Saver:
    def save(path: Path, array: NDArray, names: Sequence[str]) -> None:
        frame = pd.DataFrame(array)
        frame.columns = list(names)
        write(*((path, frame) if write is pyreadr.write_rds else (frame, path)), **options)

    return save


def bag_of_words(path: Path, counts: NDArray, header: Sequence[int] | None = None) -> Path:
    """The file of UCI's format that these counts have."""
    documents, words = np.nonzero(counts)
    found = [*counts.shape, documents.size] if header is None else header
    entries = zip(documents + 1, words + 1, counts[documents, words].astype(int), strict=True)
    text = "".join(f"{n}\n" for n in found) + "".join(f"{d} {w} {c}\n" for d, w, c in entries)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


NAMED: dict[str, Saver] = {
    "rows.csv": _csv,
    "rows.csv.gz": _csv,
    "rows.tsv": _tsv,
    "rows.tsv.gz": _tsv,
    "rows.parquet": lambda path, array, names: pa.parquet.write_table(
        _table(array, names), path, row_group_size=7
    ),
    "rows.arrow": lambda path, array, names: pa.feather.write_feather(
        _table(array, names), str(path), compression="uncompressed"
    ),
    "rows.feather": lambda path, array, names: pa.feather.write_feather(
        _table(array, names), str(path), compression="lz4", chunksize=5
    ),
    "ROWS.IPC": lambda path, array, names: pa.feather.write_feather(
        _table(array, names), str(path)
    ),
    "rows.txt": _csv,
    "rows.xlsx": lambda path, array, names: saved_sheet(path, names, *array.tolist()),
    "rows.sav": _framed(pyreadstat.write_sav, row_compress=True),
    "rows.zsav": _framed(pyreadstat.write_sav, compress=True),
    "rows.dta": _framed(pyreadstat.write_dta),
    "rows.sas7bdat": lambda path, array, names: saved_sas(
        path, dict(zip(names, array.T.tolist(), strict=True))
    ),
    "rows.rds": _framed(pyreadr.write_rds, compress="gzip"),
    "csr.h5ad": _cells("csr"),
    "csc.h5ad": _cells("csc"),
    "dense.h5ad": _cells("dense"),
    "10x.h5": lambda path, array, names: cell_tools.tenx_file(path, array, names),
}
NAMELESS: dict[str, Saver] = {
    "c.npy": lambda path, array, _: np.save(path, np.ascontiguousarray(array)),
    "fortran.npy": lambda path, array, _: np.save(path, np.asfortranarray(array)),
    "stored.npz": lambda path, array, _: np.savez(path, X=array, y=np.arange(3)),
    "packed.npz": lambda path, array, _: np.savez_compressed(path, scores=array, y=np.arange(3)),
    "fortran.npz": lambda path, array, _: np.savez_compressed(path, X=np.asfortranarray(array)),
    "csr.npz": lambda path, array, _: scipy.sparse.save_npz(path, scipy.sparse.csr_array(array)),
    "csc.npz": lambda path, array, _: scipy.sparse.save_npz(path, scipy.sparse.csc_matrix(array)),
    "coo.npz": lambda path, array, _: scipy.sparse.save_npz(path, scipy.sparse.coo_array(array)),
    "rows.mtx": lambda path, array, _: scipy.io.mmwrite(path, scipy.sparse.coo_array(array)),
    "rows.mtx.gz": _mtx_gz,
}


ALL = NAMED | NAMELESS
OF_PROGRAMS = (".sav", ".zsav", ".dta", ".sas7bdat", ".rds")
NO_NUMBER = "nan (an empty cell, or text that is not a number)"


def refusal(paths: object, **options: object) -> DataError:
    """Why files cannot be read, which has a way out."""
    with pytest.raises(DataError) as caught:
        values(open_rows(paths, **options))
    assert caught.value.hint
    return caught.value


def values(rows: RowSource) -> NDArray:
    """All rows of a source as one array."""
    return np.concatenate([block.values for block in rows.blocks()])


def labels_of(rows: FileRows, name: str) -> list[str | None]:
    """A column beside the rows, in their order."""
    assert rows.label_names([name, "no such column"]) == (name,)
    return [each for _, found in rows.labelled_blocks([name]) for each in found[name]]
