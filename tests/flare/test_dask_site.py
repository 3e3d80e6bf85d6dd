"""A site between organisations whose rows the workers of a cluster read: ``site start --dask``."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_tools import Place, free_port

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")
distributed = pytest.importorskip("distributed", reason="dask[distributed] is not installed")

import dask  # noqa: E402
from distributed.utils import get_mp_context  # noqa: E402

NAMES = [f"v{column}" for column in range(5)]
SITES = ("north", "south")
# Rows of each of north's files, in which one column is large: a sum that lacks a file, or has it
# twice, is another by far more than the noise.
PARTS = (150, 70, 230, 170)
TARGET = {"--epsilon": 30, "--delta": 1e-6, "--row-norm": 15}
NOISE = 2.0


class Kill(distributed.WorkerPlugin):
    """Ends a worker's process as it begins to read a part: once, or whenever it does."""

    name = "kill"

    def __init__(self, flag, *, always=False):
        self.flag, self.always = str(flag), always

    def transition(self, key, start, finish, **_):
        begins = finish == "executing" and str(key).startswith("read_part")
        if begins and (self.always or not Path(self.flag).exists()):
            Path(self.flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster():
    """North's own: two processes."""
    busy = {"distributed.comm.timeouts.connect": "120s"}  # a machine that does much else
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver", **busy}):
        get_mp_context().set_forkserver_preload(["distributed", "eigenveil.io"])
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=None
        ) as made:
            yield made


@pytest.fixture(scope="module")
def parts():
    """North's rows, file by file."""
    draw = np.random.default_rng(3).standard_normal
    return [draw((count, 5)) + 10 * np.eye(5)[column] for column, count in enumerate(PARTS)]


@pytest.fixture(scope="module")
def south():
    return np.random.default_rng(4).standard_normal((300, 5))


@pytest.fixture(scope="module")
def place(tmp_path_factory, cluster, parts, south):
    """A federation of two sites: north's files are read by its cluster, south's by itself."""
    place = Place(tmp_path_factory.mktemp("dask"))
    (place.folder / "north").mkdir()
    for number, part in enumerate(parts):
        pq.write_table(pa.table([*part.T], names=NAMES), place.folder / f"north/{number}.parquet")
    pq.write_table(pa.table([*south.T], names=NAMES), place.folder / "south.parquet")
    place.ok("flare", "provision", study(place, "first"), "--out", "kits", "--port", free_port())
    try:
        place.party("aggregator", "aggregator", "start", "--kit", "kits/aggregator")
        for site, data in (("north", "north/*.parquet"), ("south", "south.parquet")):
            own = ("--dask", cluster.scheduler_address) if site == "north" else ()
            books = ("--ledger", f"{site}.ledger", "--budget-epsilon", 1000, "--approve", "all")
            books += ("--budget-delta", 0.1)
            place.party(
                site, "site", "start", "--kit", f"kits/{site}", "--data", data, *books, *own
            )
        for site in SITES:
            place.heard(site, "connected")
        yield place
    finally:
        place.stop()


def study(place, name):
    """A study whose noise is next to nothing: its result says which rows it is of."""
    sites = [word for site in SITES for word in ("--site", site)]
    target = [word for pair in TARGET.items() for word in pair]
    how = ("--protocol", "cape", "--mechanism", "gaussian", "--center", "none", "--components", 5)
    place.ok("study", "new", f"{name}.toml", *sites, *target, *how, "--columns", ",".join(NAMES))
    return f"{name}.toml"


def moment_of(place, name):
    """The second moment that a study released, (5, 5)."""
    words = ("--kit", "kits/lead", "--out", name, "--json", "--no-plots")
    found = json.loads(place.ok("study", "run", study(place, name), *words))
    components = np.array(found["components"])
    return components.T * np.array(found["explained_variance"]) @ components


def exact(*parts):
    """What it is without noise."""
    together = np.vstack(parts)
    return together.T @ together / len(together)


def spent(place):
    books = json.loads(place.ok("ledger", "show", "north.ledger", "--json"))
    return books["standings"][0]["spent_epsilon"]


def test_a_site_s_cluster_adds_up_each_row_once(place, parts, south):
    found, wanted = moment_of(place, "plain"), exact(*parts, south)
    np.testing.assert_allclose(found, wanted, atol=NOISE)
    for without in range(len(parts)):  # the test would see it
        fewer = exact(*parts[:without], *parts[without + 1 :], south)
        assert np.abs(fewer - wanted).max() > 2 * NOISE
    assert "finished" in place.said("north")


def test_a_worker_that_is_killed_in_the_middle_changes_no_sum(place, parts, south, cluster):
    flag = place.folder / "killed"
    with distributed.Client(cluster) as client:
        client.register_plugin(Kill(flag))
        try:
            found = moment_of(place, "killed-once")
        finally:
            client.unregister_worker_plugin("kill")
    assert flag.exists()
    np.testing.assert_allclose(found, exact(*parts, south), atol=NOISE)


def test_workers_that_die_of_the_rows_stop_the_site_with_a_sentence(place, cluster):
    before = spent(place)
    cluster.scheduler.allowed_failures = 0
    try:
        with distributed.Client(cluster) as client:
            client.register_plugin(Kill(place.folder / "always", always=True))
            try:
                file = study(place, "hopeless")
                status, _, err = place.run(
                    "study", "run", file, "--kit", "kits/lead", "--out", "hopeless"
                )
            finally:
                client.unregister_worker_plugin("kill")
    finally:
        cluster.scheduler.allowed_failures = 3
    assert status != 0
    assert "north" in err
    place.heard("north", "workers died, again and again, while they read the same part")
    assert not (place.folder / "hopeless").exists()
    assert spent(place) == before
