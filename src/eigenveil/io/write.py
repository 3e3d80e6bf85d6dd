"""Tables written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def write_table(path: str | Path, array: NDArray[np.floating[Any]], names: Sequence[str]) -> None:
    """Write an array of shape (n, D) with a name for each column; the format goes by the ending.

    ``.parquet``, ``.csv``, ``.arrow``, ``.feather``, or ``.npy``, which keeps no names. The file
    appears under its name once it is complete, in place of one that was there.

    Raises
    ------
    OutputError
        If the ending is unknown or the file cannot be written.
    """
    target = Path(path)
    write = _WRITERS.get(target.suffix.lower())
    if write is None:
        raise OutputError(
            f"{target} is not of a format that can be written.",
            hint=f"Its name must end in one of {', '.join(_WRITERS)}.",
            code="unknown-format",
        )
    if array.ndim != 2 or array.shape[1] != len(names):
        raise ValueError(f"array of shape {array.shape} with {len(names)} names")
    with replacing(target) as scratch, scratch.open("wb") as file:
        write(file, array, names)


def _table(array: NDArray[Any], names: Sequence[str]) -> Any:
    return pa.Table.from_arrays([pa.array(column) for column in array.T], list(names))


_WRITERS: dict[str, Callable[[IO[bytes], NDArray[Any], Sequence[str]], None]] = {
    ".parquet": lambda file, array, names: pa.parquet.write_table(_table(array, names), file),
    ".csv": lambda file, array, names: pa.csv.write_csv(_table(array, names), file),
    ".arrow": lambda file, array, names: pa.feather.write_feather(_table(array, names), file),
    ".feather": lambda file, array, names: pa.feather.write_feather(_table(array, names), file),
    ".npy": lambda file, array, _: np.save(file, array, allow_pickle=False),
}
