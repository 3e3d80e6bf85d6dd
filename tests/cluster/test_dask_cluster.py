"""A real cluster: files over workers, workers that die, other versions, a lost scheduler."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from dask_tools import assert_same
from distributed import Client, LocalCluster

import eigenveil
from eigenveil import DataError, Ledger, PrivatePCA
from eigenveil.cli.app import main
from eigenveil.io import on_workers, open_rows
from eigenveil.moments import dask_tasks
from eigenveil.privacy.accountant import Loss
from refusal_tools import refuses

pytestmark = pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")
X = np.random.default_rng(0).standard_normal((600, 5)) * [5.0, 4.0, 3.0, 2.0, 1.0]
WHO = np.random.default_rng(1).integers(0, 90, 600)
_ALONE = ("--no-nanny", "--no-dashboard", "--nthreads", "1")
TARGET = {"epsilon": 8.0, "delta": 1e-6, "random_state": 0, "mechanism": "gaussian"}


def pca(**more):
    return PrivatePCA(n_components=2, **TARGET, **more)


def run(arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    return ended.value.code or 0


@pytest.fixture
def files(tmp_path):
    """A table in three files of unequal length; a person has rows in all of them."""
    found = []
    for number, part in enumerate(np.split(np.arange(600), [100, 400])):
        columns = {f"v{column}": X[part, column] for column in range(5)}
        found.append(tmp_path / f"{number}.parquet")
        pa.parquet.write_table(pa.table({**columns, "patient": WHO[part]}), found[-1])
    return found


def test_files_give_the_fit_of_one_machine(cluster, files):
    rows = open_rows(files, unit="patient")
    there = pca().fit_rows(on_workers(rows, cluster.scheduler_address))
    assert_same(there, pca().fit_rows(rows))


def test_the_command_fits_files_over_workers_and_charges_the_clients_ledger(
    cluster, files, tmp_path, capsys
):
    ledger, dask = tmp_path / "own.ledger", cluster.scheduler_address
    how = ["--components", 2, "--epsilon", 3, "--unit", "patient", "--no-plots"]
    place = ["--out", tmp_path / "out", "--ledger", ledger, "--data-set", "ward", "--dask", dask]
    assert run(["fit", *files, *how, *place]) == 0
    assert "the cluster that read the rows" in " ".join(capsys.readouterr().out.split())
    assert Ledger(ledger).budget("ward").epsilon == 3
    assert run(["certify", tmp_path / "out"]) == 0


class DiesOnce:
    """A block whose worker is killed while it reads it, the first time."""

    def __init__(self, flag, *, always=False):
        self.flag, self.always = str(flag), always

    def __call__(self, block):
        if block.size and (self.always or not os.path.exists(self.flag)):  # noqa: PTH110
            Path(self.flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return block


def test_a_worker_that_is_killed_in_the_middle_changes_no_sum(cluster, client, tmp_path):
    killed = DiesOnce(tmp_path / "killed")
    rows = da.from_array(X, chunks=(100, 5)).map_blocks(killed, meta=X[:0])
    assert_same(pca().fit(rows), pca().fit(X))
    assert Path(killed.flag).exists()


def test_workers_that_die_of_a_partition_end_the_fit_uncharged(cluster, client, tmp_path):
    cluster.scheduler.allowed_failures = 0
    try:
        kills = DiesOnce(tmp_path / "killed", always=True)
        rows = da.from_array(X, chunks=(600, 5)).map_blocks(kills, meta=X[:0])
        ledger = tmp_path / "own.ledger"
        with pytest.raises(DataError, match="workers died") as caught:
            pca(ledger=str(ledger), data_set="ward").fit(rows)
    finally:
        cluster.scheduler.allowed_failures = 3
    assert caught.value.code == "cluster-failed"
    assert caught.value.spent is None
    assert Ledger(ledger).standings()[0].spent == Loss()


class Waits:
    """A block that takes a while to read, and says when it begins."""

    def __init__(self, flag):
        self.flag = str(flag)

    def __call__(self, block):
        if block.size:
            Path(self.flag).touch()
            time.sleep(4)
        return block


def test_a_scheduler_that_is_lost_ends_the_fit(tmp_path):
    reached = tmp_path / "reached"
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "3s"}),  # it is not coming back
        LocalCluster(n_workers=1, processes=False, dashboard_address=None) as own,
        Client(own) as client,
    ):

        def lose():
            for _ in range(3000):
                if reached.exists():
                    break
                time.sleep(0.01)
            with contextlib.suppress(Exception):  # the answer is lost as well
                client.sync(own.scheduler.close)

        rows = da.from_array(X, chunks=(600, 5)).map_blocks(Waits(reached), meta=X[:0])
        thread = threading.Thread(target=lose, daemon=True)
        thread.start()
        with pytest.raises(DataError) as caught:
            pca().fit(rows)
        thread.join(60)
    assert caught.value.code == "cluster-lost"
    assert caught.value.spent is None


def test_a_worker_of_another_version_ends_the_fit(tmp_path, files):
    """Its code differs by a comment; a real one by its arithmetic."""
    other = tmp_path / "other" / "eigenveil"
    shutil.copytree(Path(eigenveil.__file__).parent, other)
    with (other / "moments" / "rows.py").open("a") as source:
        source.write("# another version\n")
    with LocalCluster(n_workers=0, dashboard_address=None) as own:
        worker = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", own.scheduler_address, *_ALONE],
            env={**os.environ, "PYTHONPATH": str(other.parent)},
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
        )
        try:
            rows = on_workers(open_rows(files, unit="patient"), own.scheduler_address)
            with pytest.raises(DataError, match="runs another eigenveil") as caught:
                pca().fit_rows(rows)
        finally:
            worker.kill()
            worker.wait()
    assert caught.value.code == "cluster-version"
    assert "Worker tcp://" in caught.value.message


def test_a_cluster_without_workers_ends_the_fit(monkeypatch, files):
    monkeypatch.setattr(dask_tasks, "_PATIENCE", 0.2)
    monkeypatch.setattr(dask_tasks, "_LOOK", 0.1)
    with LocalCluster(n_workers=0, dashboard_address=None) as own:
        rows = on_workers(open_rows(files, unit="patient"), own.scheduler_address)
        with pytest.raises(DataError, match="no worker") as caught:
            pca().fit_rows(rows)
    assert caught.value.code == "no-worker"


@pytest.mark.parametrize("address", ["tcp://127.0.0.1", "nowhere", "gopher://127.0.0.1:1"])
def test_an_address_that_is_none_is_refused(address, files):
    with refuses("no-scheduler", "No Dask scheduler answers"):
        on_workers(open_rows(files, unit="patient"), address)


@pytest.mark.parametrize("what", ["gone", "longer"])
def test_a_file_that_a_worker_finds_otherwise_is_refused(cluster, files, what):
    rows = on_workers(open_rows(files, unit="patient"), cluster.scheduler_address)
    if what == "gone":
        files[1].unlink()
    else:
        with files[1].open("ab") as file:
            file.write(b"more")
    with refuses("other-file", rf"{files[1].name} is not on every worker"):
        pca().fit_rows(rows)


def test_rows_are_not_drawn_where_none_leaves_its_worker(files, tmp_path, capsys):
    how = ["--components", 2, "--out", tmp_path / "out", "--dask", "tcp://127.0.0.1:1"]
    assert run(["fit", *files, *how, "--projection", tmp_path / "rows.png"]) == 2
    assert "no row leaves its worker" in " ".join(capsys.readouterr().err.split())
