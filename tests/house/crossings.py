"""Calls that go from one room of the package into another, for each release of a fit.

``python tests/house/crossings.py`` prints them, the most frequent pairs first.
"""

import io
import math
import os
import sys
import tempfile
import threading
from collections import Counter
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from itertools import count
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import eigenveil
from eigenveil import FederatedPCA, PrivatePCA
from eigenveil.cli.app import main

PACKAGE = f"{Path(eigenveil.__file__).parent}/"


def room_of(file):
    """The folder of the package that a file is in, or the package where it is in none."""
    room, slash, _ = file.removeprefix(PACKAGE).partition("/")
    return room if slash else "eigenveil"


@contextmanager
def crossings():
    """Calls from one room into another, by both: those of libraries in between are passed over."""
    found = Counter()

    def called(frame, event, argument):
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        if code.co_name == "<module>":
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        if caller is not None:
            pair = room_of(caller.f_code.co_filename), room_of(code.co_filename)
            found[pair] += pair[0] != pair[1]

    before = sys.getprofile()
    threading.setprofile(called)
    sys.setprofile(called)
    try:
        yield found
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def rows():
    return np.random.default_rng(0).standard_normal((600, 8)) * [6, 4, 1, 1, 1, 1, 1, 1]


def one_table(folder):
    model = PrivatePCA(2, epsilon=2.0, random_state=0)
    return lambda: len(model.fit(rows()).certificate_.releases)


def three_sites(folder):
    model = FederatedPCA(2, epsilon=2.0, random_state=0)
    sites = dict(zip(("north", "south", "west"), np.split(rows(), 3), strict=True))
    return lambda: len(model.fit(sites).certificate_.releases)


def command(folder):
    """``eigenveil fit`` of a Parquet file, each time with a new ledger."""
    table = pa.table({f"column{n}": each for n, each in enumerate(rows().T)})
    pq.write_table(table, folder / "rows.parquet")
    number = count()

    def run():
        n = next(number)
        words = ["fit", f"{folder}/rows.parquet", "--out", f"{folder}/result{n}", "-k", "2"]
        quiet = redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO())
        ledger = {"EIGENVEIL_LEDGER": f"{folder}/{n}.ledger", "EIGENVEIL_STATE": f"{folder}/state"}
        with mock.patch.dict(os.environ, ledger), quiet[0], quiet[1]:
            try:
                main([*words, "--one-row-per-person", "--epsilon", "2", "--no-plots"])
            except SystemExit as end:
                assert not end.code, end.code  # noqa: PT017
        return len(PrivatePCA.load(f"{folder}/result{n}/model.npz").certificate_.releases)

    return run


WALKS = {"one_table": one_table, "three_sites": three_sites, "command": command}


def of_walk(name):
    """Crossings by pair of rooms, and the releases that they are for."""
    with tempfile.TemporaryDirectory() as folder:
        walk = WALKS[name](Path(folder))
        releases = walk()  # what is imported and kept once is not counted
        with crossings() as found:
            walk()
    return found, releases


def a_release(name):
    """Crossings of a walk for each of its releases; the noise of a command is never the same."""
    found, releases = of_walk(name)
    return math.ceil(1.05 * found.total() / releases)


if __name__ == "__main__":
    for name in WALKS:
        found, releases = of_walk(name)
        print(f"{name}: {found.total() / releases:.0f} a release, of {releases} releases")
        for (caller, called), times in found.most_common(12):
            print(f"{times:8d}  {caller} -> {called}")
