"""``eigenveil demo``: visits of patients at three hospitals, and a private fit of them.

The visits are made from scikit-learn's breast cancer data. Each of its 569 rows is a patient, who
comes one to five times: a visit is the patient's row, measured again with an error of 2 per cent.
Every site has the visits of its own patients.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from eigenveil.cli.app import own_call
from eigenveil.cli.presenters.screen import say
from eigenveil.errors import OutputError

SITES = ("north", "south", "west")
ERROR = 0.02
MARK = "made-by-eigenveil-demo.txt"


def write_visits(folder: Path) -> dict[str, tuple[int, int]]:
    """Write a Parquet file for each site, always the same; visits and patients by site."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    rng = np.random.default_rng(0)
    visits = np.repeat(np.arange(len(data.data)), rng.integers(1, 6, len(data.data)))
    rows = data.data[visits] * (1.0 + ERROR * rng.standard_normal((visits.size, 1)))
    names = [name.replace(" ", "_") for name in data.feature_names]
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for number, site in enumerate(SITES):
        own = visits % len(SITES) == number
        table = pa.table([pa.array(visits[own]), *rows[own].T], names=["patient_id", *names])
        pq.write_table(table, folder / f"{site}.parquet")
        written[site] = (table.num_rows, int(np.unique(visits[own]).size))
    return written


def _commands(folder: Path) -> list[list[str]]:
    sites = [word for name in SITES for word in ("--site", f"{name}={folder}/rows/{name}.parquet")]
    target = ["--scale", "private", "--components", "3", "--epsilon", "3", "--delta", "1e-6"]
    places = ["--ledgers", f"{folder}/ledgers", "--out", f"{folder}/result"]
    return [
        ["fit", *sites, "--unit", "patient_id", *target, *places],
        ["certify", f"{folder}/result"],
        ["ledger", "show", f"{folder}/ledgers/north.ledger"],
    ]


def demo(
    folder: Annotated[Path, typer.Argument(help="Folder for all that is written.")] = Path("demo"),
    rows_only: Annotated[
        bool, typer.Option("--rows-only", help="Write the visits of the three sites, and stop.")
    ] = False,
) -> None:
    """Fit private PCA to made-up visits of patients at three hospitals; check the guarantee.

    Prints each command before it runs, so that it can be repeated by hand. The folder is made, or
    must be of an earlier demo: that one is replaced.
    """
    if folder.exists() and not (folder / MARK).is_file() and any(folder.iterdir()):
        raise OutputError("not-a-demonstration", folder=folder)
    shutil.rmtree(folder, ignore_errors=True)
    for site, (visits, patients) in write_visits(folder / "rows").items():
        say(f"wrote {folder}/rows/{site}.parquet: {visits} visits of {patients} patients")
    (folder / MARK).write_text("This folder may be replaced by 'eigenveil demo'.\n", "utf-8")
    for words in () if rows_only else _commands(folder):
        say("")
        say(f"$ eigenveil {shlex.join(words)}", most=None)
        # the folder is replaced by the next demo, the heads of its ledgers with it
        state = {"EIGENVEIL_STATE": str(folder / "state")}
        ended = subprocess.run(own_call(*words), env=os.environ | state, check=False)
        if ended.returncode:
            raise typer.Exit(ended.returncode)
