"""Write scikit-learn's handwritten digits (1797 rows, 64 pixels) as Parquet files of rows."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_digits

FILES = 3


def main(folder: Path) -> None:
    """Write the rows, divided over a few files."""
    rows = load_digits().data
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    for number, part in enumerate(np.array_split(rows, FILES), start=1):
        table = pa.table(list(part.T), names=names)
        pq.write_table(table, folder / f"digits-{number}.parquet")
        print(f"wrote {folder}/digits-{number}.parquet: {part.shape[0]} rows, 64 columns")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/rows"))
