"""Write visits of patients for three sites, from scikit-learn's breast cancer data.

Each of its 569 rows is a patient, who comes one to five times: a visit is the patient's row,
measured again with an error of 2 per cent. Every site has the visits of its own patients.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_breast_cancer

SITES = ("north", "south", "west")
ERROR = 0.02


def main(folder: Path) -> None:
    """Write a file a site."""
    data = load_breast_cancer()
    rng = np.random.default_rng(0)
    visits = np.repeat(np.arange(len(data.data)), rng.integers(1, 6, len(data.data)))
    rows = data.data[visits] * (1.0 + ERROR * rng.standard_normal((visits.size, 1)))
    names = [name.replace(" ", "_") for name in data.feature_names]
    folder.mkdir(parents=True, exist_ok=True)
    for number, site in enumerate(SITES):
        own = visits % len(SITES) == number
        table = pa.table([pa.array(visits[own]), *rows[own].T], names=["patient_id", *names])
        pq.write_table(table, folder / f"{site}.parquet")
        patients = np.unique(visits[own]).size
        print(f"wrote {folder}/{site}.parquet: {table.num_rows} visits of {patients} patients")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/rows"))
