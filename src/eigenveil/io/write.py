"""Tables written whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from numpy.typing import NDArray

from eigenveil.errors import OutputError
from eigenveil.files import replacing
from eigenveil.io.formats.registry import writers


def write_table(path: str | Path, array: NDArray[np.floating[Any]], names: Sequence[str]) -> None:
    """Write an array of shape (n, D) with a name for each column: see :func:`write_columns`."""
    if array.ndim != 2 or array.shape[1] != len(names):
        raise ValueError(f"array of shape {array.shape} with {len(names)} names")
    write_columns(path, list(zip(names, array.T, strict=True)))


def write_columns(path: str | Path, columns: Sequence[tuple[str, NDArray[Any]]]) -> None:
    """Write columns of numbers of one length, each with its name; the format goes by the ending.

    ``.parquet``, ``.csv``, ``.arrow``, ``.feather``, or ``.npy``, which keeps no names. The file
    appears under its name once it is complete, in place of one that was there.

    Raises
    ------
    OutputError
        If the ending is unknown or the file cannot be written.
    """
    target = Path(path)
    write = writers().get(target.suffix.lower())
    if write is None:
        raise OutputError(
            f"{target} is not of a format that can be written.",
            hint=f"Its name must end in one of {', '.join(writers())}.",
            code="unknown-format",
        )
    with replacing(target) as scratch, scratch.open("wb") as file:
        write.write(file, columns)


_Columns = Sequence[tuple[str, NDArray[Any]]]


def _table(columns: _Columns) -> Any:
    arrays = [pa.array(column) for _, column in columns]
    return pa.Table.from_arrays(arrays, [name for name, _ in columns])


def write_npy(file: IO[bytes], columns: _Columns) -> None:
    """As a NumPy array, without names."""
    np.save(file, np.column_stack([column for _, column in columns]), allow_pickle=False)


def write_parquet(file: IO[bytes], columns: _Columns) -> None:
    """As Parquet."""
    pa.parquet.write_table(_table(columns), file)


def write_text(file: IO[bytes], columns: _Columns) -> None:
    """As CSV."""
    pa.csv.write_csv(_table(columns), file)


def write_arrow(file: IO[bytes], columns: _Columns) -> None:
    """As Arrow's own file format, Feather."""
    pa.feather.write_feather(_table(columns), file)
