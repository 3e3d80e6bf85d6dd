"""Tables written whole or not at all, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import NDArray

from eigenveil.errors import DataError, OutputError
from eigenveil.files import replacing
from eigenveil.io.formats.genotypes import NO_FAMILY
from eigenveil.io.formats.registry import writers

Columns = Sequence[tuple[str, NDArray[Any]]]
"""Columns of one length, each with its name."""
# Entries that are written at a time: a Parquet file of many small row groups is large and slow.
_WRITTEN_ENTRIES = 1 << 22


def write_table(path: str | Path, array: NDArray[np.floating[Any]], names: Sequence[str]) -> None:
    """Write an array of shape (n, D) with a name for each column: see :func:`write_blocks`."""
    if array.ndim != 2 or array.shape[1] != len(names):
        raise ValueError(f"array of shape {array.shape} with {len(names)} names")
    write_columns(path, list(zip(names, array.T, strict=True)))


def write_columns(path: str | Path, columns: Columns) -> None:
    """Write columns of one length, each with its name: see :func:`write_blocks`."""
    write_blocks(path, [columns])


def write_blocks(path: str | Path, blocks: Iterable[Columns]) -> None:
    """Write consecutive rows as they come; the format goes by the ending.

    ``.parquet``, ``.csv``, ``.arrow``, ``.feather``, or ``.npy``, which keeps no names. No more
    than a few blocks are in memory. The file appears under its name once it is complete, in place
    of one that was there.

    Parameters
    ----------
    path : str or Path
    blocks : iterable of sequences of (str, array of shape (n,))
        Each has the same columns, numbers or (as objects) texts and None; at least one.

    Raises
    ------
    OutputError
        If the ending is unknown or the file cannot be written; whatever making a block raises. No
        part of a file is left then.
    """
    target = Path(path)
    written = writers().get(target.suffix.lower())
    if written is None:
        raise OutputError("unknown-output-format", path=target, endings=", ".join(writers()))
    with replacing(target) as scratch, scratch.open("wb") as file:
        written.write(file, blocks)


# -- One function a format: blocks of columns into an open file.


def write_npy(file: IO[bytes], blocks: Iterable[Columns]) -> None:
    """As a NumPy array, without names; its header says how many rows there are, and comes last."""
    rows, kind = 0, np.dtype(float)
    header: dict[str, Any] = {}
    for columns in blocks:
        block = np.column_stack([column for _, column in columns])
        if not header:
            kind = block.dtype
            header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False}
            np.lib.format.write_array_header_1_0(file, header | {"shape": (0, block.shape[1])})
        file.write(np.ascontiguousarray(block, kind).data)
        rows, width = rows + block.shape[0], block.shape[1]
    file.seek(0)  # numpy leaves room for any number of rows
    np.lib.format.write_array_header_1_0(file, header | {"shape": (rows, width)})


def write_parquet(file: IO[bytes], blocks: Iterable[Columns]) -> None:
    _write(blocks, lambda schema: pa.parquet.ParquetWriter(file, schema))


def write_text(file: IO[bytes], blocks: Iterable[Columns]) -> None:
    _write(blocks, lambda schema: pa.csv.CSVWriter(file, schema))


def write_arrow(file: IO[bytes], blocks: Iterable[Columns]) -> None:
    packed = pa.ipc.IpcWriteOptions(compression="lz4")
    _write(blocks, lambda schema: pa.ipc.new_file(file, schema, options=packed))


def _write(blocks: Iterable[Columns], opened: Callable[[Any], Any]) -> None:
    """Tables into the writer of pyarrow's that ``opened`` makes for their schema."""
    tables = _tables(blocks)
    first = next(tables)
    with opened(first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def _tables(blocks: Iterable[Columns]) -> Iterator[Any]:
    """Arrow tables of one schema, the first block's, most of them of many rows; at least one."""
    schema: Any = None
    waiting: list[Any] = []
    entries = 0
    for columns in blocks:
        table = _table(columns)
        schema = table.schema if schema is None else schema
        waiting.append(table.cast(schema))
        entries += table.num_rows * table.num_columns
        if entries >= _WRITTEN_ENTRIES:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, entries = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _table(columns: Columns) -> Any:
    arrays = [
        pa.array(column, pa.string() if column.dtype == object else None) for _, column in columns
    ]
    return pa.Table.from_arrays(arrays, [name for name, _ in columns])


LABELS = ("FID", "IID")
"""What stands before the scores; the family only where samples have one."""
_ENDING = ".eigenvec"


def write_eigenvec(file: IO[bytes], blocks: Iterable[Columns]) -> None:
    """A line a sample: ``#FID  IID  PC1  ...``, with tabs between and six digits."""
    begun = False
    for columns in blocks:
        held = dict(columns)
        if "IID" not in held:
            raise DataError("no-samples")
        labels = [name for name in LABELS if name in held]
        others = [name for name, _ in columns if name not in LABELS]
        if not begun:
            file.write(("#" + "\t".join([*labels, *others]) + "\n").encode())
            begun = True
        texts = [[_label(value) for value in held[name]] for name in labels]
        numbers = [[f"{value:.6g}" for value in held[name]] for name in others]
        for cells in zip(*texts, *numbers, strict=True):
            file.write(("\t".join(cells) + "\n").encode())


def _label(value: object) -> str:
    return NO_FAMILY if value is None else str(value)


@contextmanager
def eigenval_beside(path: Path, model: Any) -> Iterator[None]:
    """If the block ends well: variances beside ``NAME.eigenvec``, as plink2 has them."""
    if not writes_eigenval(path) or not hasattr(model, "explained_variance_"):
        yield
        return
    factor = max(float(model.n_samples_), 0.0) / model.n_features_in_
    with replacing(eigenval_of(path)) as scratch:
        yield
        lines = (f"{value * factor:.6g}\n" for value in np.asarray(model.explained_variance_))
        scratch.write_text("".join(lines), encoding="utf-8")


def writes_eigenval(path: Path) -> bool:
    return path.suffix.lower() == _ENDING


def eigenval_of(path: Path) -> Path:
    return path.with_suffix(".eigenval")
